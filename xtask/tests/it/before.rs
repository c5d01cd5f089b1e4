//! What is wrong is said before anything is built.

use crate::lab::{Folder, xtask};

#[test]
fn a_wrong_command_builds_nothing() {
    let folder = Folder::new("before");
    for (words, said) in [
        (&["--arch", "amd64,amd64"][..], "--arch names amd64 twice"),
        (&["--push", "localhost:5000/kata"], "localhost:5000/kata has no tag"),
        (&["--push", "kata:v1"], "write REGISTRY/PATH"),
        (&["--plain-http"], "--push <REF>"),
    ] {
        xtask(&folder.0, &[&["image"], words].concat()).says(false, &[said]);
    }
}

#[test]
fn a_compiler_that_is_missing_is_named_with_the_package_that_has_it() {
    let folder = Folder::new("lacks");
    let (other, packages) = if cfg!(target_arch = "aarch64") {
        ("amd64", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross")
    } else {
        ("arm64", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    };
    // It finds no static C library.
    for name in ["aarch64-linux-gnu-gcc", "x86_64-linux-gnu-gcc"] {
        folder.program(name, "echo libc.a");
    }
    let lacking = xtask(&folder.0, &["image", "--arch", other]);
    lacking.says(false, &["this machine lacks:", "with a static C library", packages]);
}
