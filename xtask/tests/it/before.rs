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

/// The version is that of Cargo.toml, and a pre-release needs no section in the changelog.
#[test]
fn a_release_says_before_the_build_what_is_wrong() {
    let folder = Folder::new("release");
    let other = if cfg!(target_arch = "aarch64") { "amd64" } else { "arm64" };
    let mine = concat!(env!("CARGO_PKG_VERSION"), "-mine.1");
    let to = "localhost:5000/kata";
    for (words, said) in [
        (&["--to", to, "--version", "77.0.0"][..], "not 77.0.0: change it there"),
        (&["--to", to, "--version", "0.1.0-01"], "write a pre-release of it"),
        (&["--to", "docker.io/me", "--version", mine], "names at Docker Hub have two parts"),
        (&["--to", to, "--version", mine, "--arch", other], "to --arch: this machine's programs"),
        (&["--to", to, "--version", mine, "--arch", "arm64,arm64"], "--arch names arm64 twice"),
        (&["--to", "kata", "--version", mine], "is not the name of a registry"),
        (&["--to", &closed(), "--version", mine, "--quick"], "cannot reach http://127.0.0.1:"),
        (
            &["--to", to, "--version", mine, "--quick", "--plugins", "../docs"],
            "is no archive of the plugin",
        ),
        (
            &["--to", to, "--version", mine, "--quick", "--sign-key", "../LICENSE"],
            "no section BEGIN",
        ),
    ] {
        let words = [&["release", "--allow-dirty"], words].concat();
        xtask(&folder.0, &words).says(false, &[said]);
    }
    let words = ["release", "--allow-dirty", "--dry-run", "--quick", "--to", to, "--version", mine];
    let planned = xtask(&folder.0, &words);
    planned.says(true, &[&format!("{to}/charts/kata-operator:{mine}"), "nothing was built"]);
}

/// A place in a registry that does not run.
fn closed() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("{}/kata", free.local_addr().unwrap())
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
