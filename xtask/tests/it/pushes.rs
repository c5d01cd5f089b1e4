//! A real registry: what is pushed, again, after a break, and with a login.

use std::fs;

use crate::lab::{Folder, Registry, image, log_in};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

#[test]
#[ignore = "needs docker-registry"]
fn what_is_pushed_is_there_and_a_second_push_sends_nothing() {
    let folder = Folder::new("pushed");
    let programs = folder.programs("one");
    let registry = Registry::start(&folder.0, None);
    let name = format!("{}/kata/kata-operator:v1", registry.name);
    let first = image(&folder.0, &programs, &["--push", &name]);
    first.says(true, &[&format!("{name}: 2 blobs pushed, 0 were there")]);
    let index = registry.json("kata/kata-operator/manifests/v1", INDEX);
    let platform = &index["manifests"][0]["platform"];
    assert_eq!(platform["os"], "linux", "{index}");
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let manifest = registry.json(&format!("kata/kata-operator/manifests/{digest}"), MANIFEST);
    let config = manifest["config"]["digest"].as_str().unwrap();
    let config = registry.json(&format!("kata/kata-operator/blobs/{config}"), "*/*");
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/kata-operator"]));
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!(labels["org.opencontainers.image.revision"].as_str().unwrap().len() / 40, 1);

    let again = image(&folder.0, &programs, &["--push", &name]);
    again.says(true, &["0 blobs pushed, 2 were there"]);
    assert_eq!(again.digest(), first.digest(), "two builds of the same programs");
    folder.programs("another");
    let other = image(&folder.0, &programs, &["--push", &name]);
    assert_ne!(other.digest(), first.digest());
}

/// A push that breaks leaves the name as it was, and can be repeated.
#[test]
#[ignore = "needs docker-registry"]
fn a_push_that_broke_is_repeated() {
    let folder = Folder::new("broken");
    let programs = folder.programs("one");
    let registry = Registry::start(&folder.0, None);
    let name = format!("{}/kata/kata-operator:v1", registry.name);
    let first = image(&folder.0, &programs, &["--push", &name]);
    folder.programs("another");
    // No more can be written, as on a disk that is full.
    let uploads =
        folder.0.join("registry/docker/registry/v2/repositories/kata/kata-operator/_uploads");
    fs::remove_dir_all(&uploads).unwrap();
    fs::write(&uploads, "").unwrap();
    image(&folder.0, &programs, &["--push", &name])
        .says(false, &["cannot upload sha256:", "answers 5"]);
    let tag = registry.get("kata/kata-operator/manifests/v1", INDEX);
    let first = first.digest();
    assert_eq!(registry.get(&format!("kata/kata-operator/manifests/{first}"), INDEX), tag);
    fs::remove_file(&uploads).unwrap();
    let again = image(&folder.0, &programs, &["--push", &name]);
    again.says(true, &["2 blobs pushed"]);
    assert_ne!(again.digest(), first);
}

#[test]
#[ignore = "needs docker-registry"]
fn a_registry_that_wants_a_login_gets_that_of_docker() {
    let folder = Folder::new("login");
    let programs = folder.programs("one");
    let users = folder.0.join("users");
    // `htpasswd -nbB kata secret`
    fs::write(&users, "kata:$2a$05$PmDm0pIc.GDFVBggM9aW2Od6wFqNRlpFHovmycYUkv3vPAlk/J0t6\n")
        .unwrap();
    let registry = Registry::start(&folder.0, Some(&users));
    let name = format!("{}/kata/kata-operator:v1", registry.name);
    let push = || image(&folder.0, &programs, &["--push", &name]);
    push().says(false, &["answers 401", &format!("docker login {}", registry.name)]);
    log_in(&folder.0, &registry.name, "kata:wrong");
    let wrong = push();
    wrong.says(false, &["answers 401", "kata needs the permission to push there"]);
    assert!(!wrong.said.contains("wrong"), "{}", wrong.said);
    log_in(&folder.0, &registry.name, "kata:secret");
    push().says(true, &["2 blobs pushed"]);
}
