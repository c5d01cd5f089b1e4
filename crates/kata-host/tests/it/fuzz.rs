//! Every parser takes any bytes without panicking, and what it writes it reads.
#![expect(clippy::let_underscore_must_use, reason = "that there is no panic is what is looked at")]

use std::collections::{BTreeMap, BTreeSet};

use kata_host::containerd::{
    Base, Schema, add_import, compare, drop_in, drop_in_handlers, live, main_config, remove_import,
    with_imports,
};
use kata_host::host::CriStatus;
use kata_host::payload::{Manifest, is_inside, link_is_inside};
use kata_host::plan::Handler;
use kata_host::{crio, journal};
use proptest::prelude::*;

fn handlers(names: &BTreeSet<String>) -> BTreeMap<String, Handler> {
    names
        .iter()
        .map(|name| {
            let handler = Handler {
                runtime_type: format!("io.containerd.kata-{name}.v2"),
                runtime_path: format!("/opt/{name}"),
                config_path: format!("/etc/{name}"),
            };
            (name.clone(), handler)
        })
        .collect()
}

/// Text that is often TOML, and often of containerd.
fn toml_like() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("version = 2".to_owned()),
        Just("version = 3".to_owned()),
        Just("imports = [\"/etc/containerd/conf.d/*.toml\"]".to_owned()),
        Just("imports = [1]".to_owned()),
        Just("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]".to_owned()),
        Just("[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.x.options]".to_owned()),
        Just("[crio.runtime.runtimes.kata]".to_owned()),
        "[a-z]{1,4} = [0-9]{1,3}",
        "# [ -~]{0,20}",
        "\\PC{0,12}",
    ];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

#[test]
fn the_seeds_of_every_parser_are_read_without_a_panic_and_always_alike() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for parser in hostlab::parsers::PARSERS {
        let (inputs, wrong) = hostlab::parsers::replay(&folder, &parser, 100);
        assert_eq!(wrong, Vec::<String>::new());
        assert!(inputs > 300, "{}: {inputs} inputs", parser.name);
    }
}

#[test]
fn a_manifest_that_leads_out_of_its_payload_is_refused() {
    let seeds: [(&[u8], &str); 3] = [
        (
            include_bytes!("../../../../fuzz/corpus/manifest/leads-out"),
            "\"../etc/passwd\" leads out of the payload",
        ),
        (
            include_bytes!("../../../../fuzz/corpus/manifest/link-leads-out"),
            "\"a/b\" leads out of the payload",
        ),
        (
            include_bytes!("../../../../fuzz/corpus/manifest/behind-a-link"),
            "\"a/b/c\" is in no directory of the payload",
        ),
    ];
    for (seed, reason) in seeds {
        assert_eq!(Manifest::parse(seed), Err(reason.to_owned()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_without_a_panic(text in toml_like(), other in toml_like(), major in 1_u32..3) {
        let _ = main_config(Some(&text), major);
        let _ = drop_in_handlers(&text);
        let _ = crio::handlers(&text);
        let _ = compare(&text, &other, &BTreeMap::new(), &BTreeSet::new());
        let _ = with_imports(Some(&text), Schema::V2, &[other]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = journal::parse(&bytes);
        let _ = Manifest::parse(&bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let _ = live(&CriStatus { config: Some(text), ..CriStatus::default() });
    }

    #[test]
    fn an_import_comes_and_goes_and_leaves_the_rest(text in toml_like()) {
        let import = "/etc/x/*.toml";
        if let Ok(with) = add_import(Some(&text), import)
            && let Ok(before) = text.parse::<toml::Table>()
        {
            let after: toml::Table = with.parse().unwrap();
            let mut rest = after.clone();
            let imports = rest.remove("imports").unwrap();
            prop_assert!(imports.as_array().unwrap().iter().any(|one| one.as_str() == Some(import)));
            let mut old = before.clone();
            old.remove("imports");
            prop_assert_eq!(&rest, &old);
            let without: toml::Table = remove_import(&with, import).unwrap().parse().unwrap();
            let empty = |table: &toml::Table| {
                table.get("imports").and_then(|imports| imports.as_array()).is_none_or(Vec::is_empty)
            };
            prop_assert!(without == before || (empty(&without) && empty(&before)));
        }
    }

    #[test]
    fn a_drop_in_has_what_it_was_made_of(
        names in prop::collection::btree_set("[a-z]([a-z0-9-]{0,8}[a-z0-9])?", 1..4),
        old in any::<bool>(),
        text in toml_like(),
    ) {
        let (text, version) = if old {
            (format!("version = 2\n{}", text.replace("version", "x")), (1, 7))
        } else {
            (format!("version = 3\n{}", text.replace("version", "x")), (2, 1))
        };
        if let Ok(main) = main_config(Some(&text), version.0) {
            let handlers = handlers(&names);
            let built_in = toml::Table::from_iter([("built-in".to_owned(), toml::Table::new().into())]);
            let base = Base::of([(text.as_str(), false)].into_iter(), version);
            let made = drop_in(&base, version, &built_in, &handlers);
            prop_assert!(kata_host::is_ours(&made));
            prop_assert_eq!(&made, &drop_in(&base, version, &built_in, &handlers));
            let table: toml::Table = made.parse().unwrap();
            prop_assert!(!table.contains_key("version"));
            let found = drop_in_handlers(&made).unwrap();
            prop_assert!(names.is_subset(&found));
            if old {
                prop_assert!(main.handlers.is_subset(&found), "1.x loses {:?}", main.handlers);
                prop_assert_eq!(found.contains("built-in"), !base.has_runtimes());
            } else {
                prop_assert_eq!(&found, &names);
            }
        }
        let (found, made) = (crio::handlers(&crio::drop_in(&handlers(&names))).unwrap(), names);
        prop_assert_eq!(found, made);
    }

    #[test]
    fn a_path_that_is_inside_stays_inside(path in "[a./]{0,12}", target in "[a./]{0,12}") {
        if is_inside(&path) {
            prop_assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
            if link_is_inside(&path, &target) {
                let mut depth = path.split('/').count() as i64 - 1;
                for part in target.split('/') {
                    depth += match part { ".." => -1, "" | "." => 0, _ => 1 };
                    prop_assert!(depth >= 0, "{} to {}", path, target);
                }
            }
        }
    }
}
