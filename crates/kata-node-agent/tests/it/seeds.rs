//! The seeds of the parsers that are the agent's own: answers of CRI, messages of systemd, and kata-deploy's
//! list of components. They are those of the fuzz targets of the same names.

use std::fs;

use kata_node_agent::cri::{decode, message};
use kata_node_agent::stage::components;
use kata_node_agent::systemd::wire::Reader;

use crate::lab::workspace;

fn seeds(parser: &str) -> Vec<(String, Vec<u8>)> {
    let folder = workspace().join("fuzz/corpus").join(parser);
    let mut seeds: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    seeds.sort_unstable();
    assert!(seeds.len() >= 4, "{parser}");
    seeds
}

#[test]
fn every_seed_is_understood_alike_twice() {
    for (name, seed) in seeds("cri_message") {
        let status = || format!("{:?}", decode::<message::StatusResponse>(&seed));
        let list = || format!("{:?}", decode::<message::ListPodSandboxResponse>(&seed));
        assert_eq!((status(), list()), (status(), list()), "{name}");
    }
    for (name, seed) in seeds("dbus_message") {
        let command = || Reader::new(&seed).first_command();
        let text = || Reader::new(&seed).variant_string();
        assert_eq!((command(), text()), (command(), text()), "{name}");
    }
    let shims = ["qemu".to_owned()];
    for (name, seed) in seeds("shim_components") {
        let text = String::from_utf8(seed).unwrap();
        let names = || components(&text, &shims, "x86_64").map_err(|error| error.to_string());
        assert_eq!(names(), names(), "{name}");
    }
}

/// A seed that no parser understands shows nothing.
#[test]
fn the_good_seeds_say_what_they_should() {
    let seed = |parser: &str, name: &str| {
        seeds(parser).into_iter().find(|(found, _)| found == name).unwrap().1
    };
    let named = |name: &str, shim: &str| {
        let text = String::from_utf8(seed("shim_components", name)).unwrap();
        components(&text, &[shim.to_owned()], "x86_64")
    };
    assert_eq!(named("kata-4.1", "qemu").unwrap().len(), 8);
    let other = named("kata-4.1", "qemu-se").unwrap_err().to_string();
    assert_eq!(other, "the image has no shim qemu-se for x86_64; it has: qemu, qemu-runtime-rs");
    // One that it lacks takes no other with it.
    let text = String::from_utf8(seed("shim_components", "kata-4.1")).unwrap();
    let both = components(&text, &["qemu".to_owned(), "qemu-se".to_owned()], "x86_64");
    assert_eq!(both.unwrap(), named("kata-4.1", "qemu").unwrap());
    assert!(named("with-required", "qemu").unwrap().iter().eq(["qemu", "tools"]));
    let flat = named("no-shims", "qemu").unwrap_err().to_string();
    assert!(flat.ends_with("it has no object shims"), "{flat}");
    let status: message::StatusResponse = decode(&seed("cri_message", "status")).unwrap();
    let status = kata_host::host::CriStatus::from(status);
    assert!(status.runtime_ready && status.config.is_some(), "{status:?}");
    let list: message::ListPodSandboxResponse = decode(&seed("cri_message", "sandboxes")).unwrap();
    assert_eq!(list.items.len(), 2);
    let words = Reader::new(&seed("dbus_message", "exec-start")).first_command().unwrap();
    assert_eq!(words, ["/usr/bin/containerd", "--config", "/etc/containerd/config.toml"]);
    let text = Reader::new(&seed("dbus_message", "variant-string")).variant_string();
    assert_eq!(text.as_deref(), Some("active"));
}
