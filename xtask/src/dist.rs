//! What is published: static binaries, the plugin's archive and krew manifest, a list of what is in them,
//! and the operator's image. The same sources give the same bytes, wherever they are built.
//!
//! Nothing is uploaded from here.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::{command, output, say};

mod bill;
mod image;
mod pages;

const FOLDER: &str = "target/dist";
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What is published, and the most bytes that it may have.
const BINARIES: [(&str, u64); 2] = [("kata-operator", 18 << 20), ("kubectl-kata", 12 << 20)];

/// Arguments of `dist`.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Build a second time from a copy of the committed sources elsewhere, and compare
    #[arg(long)]
    twice: bool,
}

/// Arguments of `image`.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct ImageOptions {
    /// Take unoptimized binaries: a minute, and right in all but size and speed
    #[arg(long)]
    quick: bool,
}

/// Built for the machine that it is built on; named, so that build scripts are not linked statically.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Builds the binaries, their archive and lists.
pub(crate) fn dist(root: &Path, options: Options) -> Vec<String> {
    problems(run(root, options))
}

/// Builds the image and runs what is in it.
pub(crate) fn image(root: &Path, options: ImageOptions) -> Vec<String> {
    if options.quick {
        return problems(image::quick(root));
    }
    problems(run(root, Options { twice: false }).and_then(|()| image::whole(root)))
}

fn problems(result: Result<(), String>) -> Vec<String> {
    result.err().into_iter().collect()
}

fn run(root: &Path, options: Options) -> Result<(), String> {
    let folder = root.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| failed("empty", &folder, &error))?;
    }
    fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, &error))?;
    let built = build(root, &root.join("target/dist-build"))?;
    if options.twice {
        same_elsewhere(root, &built)?;
    }
    for (name, limit) in BINARIES {
        let to = folder.join(name);
        fs::copy(built.join(name), &to).map_err(|error| failed("write", &to, &error))?;
        fits(&to, limit)?;
        is_static(&to)?;
    }
    write(&folder.join("sbom.cdx.json"), &bill::of_materials(root)?)?;
    let license = folder.join("LICENSE");
    fs::copy(root.join("LICENSE"), &license).map_err(|error| failed("write", &license, &error))?;
    let machine = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let archive = format!("kubectl-kata_linux_{machine}.tar.gz");
    // kubectl finds completions by the other name.
    let link = folder.join("kubectl_complete-kata");
    std::os::unix::fs::symlink("kubectl-kata", &link)
        .map_err(|error| failed("link", &link, &error))?;
    let plugin = folder.join("kubectl-kata");
    let mut pages = pages::completions(&plugin)?;
    pages.extend(pages::manual(&plugin, "kubectl-kata")?);
    for (file, text) in &pages {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|error| failed("make", parent, &error))?;
        write(&path, text)?;
    }
    say(&format!("{} manual pages and completions", pages.len()));
    let content = ["LICENSE", "completions", "kubectl-kata", "kubectl_complete-kata", "man"];
    tar(&folder, &archive, &content)?;
    for (file, text) in pages::manual(&folder.join("kata-operator"), "kata-operator")? {
        write(&folder.join(file), &text)?;
    }
    let sums = sums(&folder, &["kata-operator", "kubectl-kata", &archive, "sbom.cdx.json"])?;
    let of_archive = sums.lines().find(|line| line.ends_with(&archive));
    let of_archive = of_archive.and_then(|line| line.split(' ').next()).unwrap_or_default();
    write(&folder.join("kata.yaml"), &krew(&archive, machine, of_archive)?)?;
    write(&folder.join("sha256sums.txt"), &sums)?;
    say(&sums);
    Ok(())
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| failed("write", path, &error))
}

fn fits(path: &Path, limit: u64) -> Result<(), String> {
    let size = fs::metadata(path).map_err(|error| failed("look at", path, &error))?.len();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    say(&format!("{name}: {:.1} MiB", mib(size)));
    if size > limit {
        return Err(format!("{name} has {:.1} MiB, more than {:.1}", mib(size), mib(limit)));
    }
    Ok(())
}

/// Fails if the program needs another file to start: it must run where there is nothing else.
fn is_static(path: &Path) -> Result<(), String> {
    let headers = output({
        let mut readelf = command(Path::new("."), "readelf");
        readelf.args(["--program-headers", "--dynamic", "--wide"]).arg(path);
        readelf
    })?;
    if headers.contains(" INTERP ") || headers.contains("(NEEDED)") {
        return Err(format!("{} is not static", path.display()));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Static binaries with no path of this machine in them; returns the folder they are in.
fn build(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let home = output({
        let mut cargo = command(root, "rustc");
        cargo.args(["--print", "sysroot"]);
        cargo
    })?;
    let registry = cargo_home();
    let flags = [
        "-C target-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/source", root.display()),
        format!("--remap-path-prefix={registry}=/cargo"),
        format!("--remap-path-prefix={}=/rust", home.trim()),
    ];
    let mut cargo = command(root, "cargo");
    cargo.args(["build", "--profile", "dist", "--locked", "--target", &triple(), "--target-dir"]);
    cargo.arg(target);
    for (name, _) in BINARIES {
        cargo.args(["--package", name, "--bin", name]);
    }
    cargo.env("RUSTFLAGS", flags.join(" ")).env("CARGO_INCREMENTAL", "0");
    match cargo.status() {
        Ok(status) if status.success() => Ok(target.join(triple()).join("dist")),
        Ok(status) => Err(format!("the build ended with {status}")),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// Where cargo keeps what it downloads.
#[expect(clippy::disallowed_methods, reason = "xtask is a developer's tool, not the product")]
fn cargo_home() -> String {
    std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()))
}

/// Builds again from a copy of the committed sources, and compares.
fn same_elsewhere(root: &Path, first: &Path) -> Result<(), String> {
    let elsewhere = root.join("target/dist-elsewhere");
    if elsewhere.exists() {
        fs::remove_dir_all(&elsewhere).map_err(|error| failed("empty", &elsewhere, &error))?;
    }
    let mut clone = command(root, "git");
    clone.args(["clone", "--quiet", "--no-hardlinks", "."]).arg(&elsewhere);
    output(clone)?;
    let second = build(&elsewhere, &elsewhere.join("target"))?;
    for (name, _) in BINARIES {
        let read = |folder: &Path| {
            let path = folder.join(name);
            fs::read(&path).map_err(|error| failed("read", &path, &error))
        };
        if read(first)? != read(&second)? {
            return Err(format!("{name} differs between two builds of the same sources"));
        }
        say(&format!("{name}: two builds in two places gave the same bytes"));
    }
    Ok(())
}

/// An archive in which only the content counts: no owner, no time of its making.
fn tar(folder: &Path, archive: &str, names: &[&str]) -> Result<(), String> {
    let mut tar = command(folder, "tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9 -n", "-cf", archive])
        .args(names);
    output(tar).map(drop)
}

fn sums(folder: &Path, names: &[&str]) -> Result<String, String> {
    let mut sums = command(folder, "sha256sum");
    sums.args(names);
    output(sums)
}

/// How krew finds the plugin.
fn krew(archive: &str, machine: &str, sum: &str) -> Result<String, String> {
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "kata"},
        "spec": {
            "version": format!("v{VERSION}"),
            "homepage": REPOSITORY,
            "shortDescription": "Inspect, verify and troubleshoot sandboxed (Kata) pods",
            "description": "Shows how far the roll-out of Kata Containers is, proves that pods are \
                            sandboxed, and explains those that do not start.",
            "platforms": [{
                "selector": {"matchLabels": {"os": "linux", "arch": machine}},
                "uri": format!("{REPOSITORY}/releases/download/v{VERSION}/{archive}"),
                "sha256": sum,
                "bin": "kubectl-kata",
            }],
        },
    });
    serde_saphyr::to_string(&manifest).map_err(|error| error.to_string())
}
