//! Names that follow from names of a user's objects.

use kata_api::names::{CLASS_LABEL_PREFIX, class_label};

#[test]
fn a_class_of_any_legal_name_has_a_legal_label_of_its_own() {
    assert_eq!(class_label("kata"), "kata.node-restriction.kubernetes.io/kata");
    let whole = "a.".repeat(31) + "a";
    assert_eq!(class_label(&whole), format!("{CLASS_LABEL_PREFIX}{whole}"));
    let long = "kata-".repeat(50) + "qemu";
    let other = "kata-".repeat(50) + "clh";
    assert_ne!(class_label(&long), class_label(&other));
    for class in [&whole, &long, &other, &("a.".repeat(126) + "a")] {
        let label = class_label(class);
        let name = label.strip_prefix(CLASS_LABEL_PREFIX).unwrap();
        assert!(name.len() <= 63, "{name}");
        assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
        assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
    }
}
