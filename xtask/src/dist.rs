//! What is published: static binaries, the plugin's archive and krew manifest, a list of what is in them,
//! and the operator's image. The same sources give the same bytes, wherever they are built.
//!
//! Nothing is uploaded from here.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::{command, output, say};

const FOLDER: &str = "target/dist";
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What is published, and the most bytes that it may have.
const BINARIES: [(&str, u64); 2] = [("kata-operator", 18 << 20), ("kubectl-kata", 12 << 20)];
/// The most bytes that all layers of the image may have, compressed.
const IMAGE_LIMIT: u64 = 20 << 20;

/// Arguments of `dist` and `image`.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Build a second time from a copy of the sources elsewhere, and compare
    #[arg(long)]
    twice: bool,
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
pub(crate) fn image(root: &Path, options: Options) -> Vec<String> {
    problems(run(root, options).and_then(|()| build_image(root)))
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
    }
    write(&folder.join("sbom.cdx.json"), &bill_of_materials(root)?)?;
    let license = folder.join("LICENSE");
    fs::copy(root.join("LICENSE"), &license).map_err(|error| failed("write", &license, &error))?;
    let machine = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let archive = format!("kubectl-kata_linux_{machine}.tar.gz");
    // kubectl finds completions by the other name.
    let link = folder.join("kubectl_complete-kata");
    std::os::unix::fs::symlink("kubectl-kata", &link)
        .map_err(|error| failed("link", &link, &error))?;
    tar(&folder, &archive, &["LICENSE", "kubectl-kata", "kubectl_complete-kata"])?;
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

/// Everything that is compiled into the binaries, as CycloneDX.
fn bill_of_materials(root: &Path) -> Result<String, String> {
    let mut tree = command(root, "cargo");
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--target", &triple()]);
    tree.args(["--format", "{p}|{l}"]);
    for (name, _) in BINARIES {
        tree.args(["--package", name]);
    }
    let listed = output(tree)?;
    let mut found: Vec<(String, String, String)> = listed
        .lines()
        .filter_map(|line| {
            let (package, license) = line.split_once('|')?;
            let mut words = package.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            let license = license.trim_end_matches(" (*)");
            Some((name.to_owned(), version.to_owned(), license.to_owned()))
        })
        .collect();
    found.sort();
    found.dedup();
    let components: Vec<Value> = found
        .iter()
        .map(|(name, version, license)| {
            json!({
                "type": "library",
                "name": name,
                "version": version,
                "purl": format!("pkg:cargo/{name}@{version}"),
                "licenses": [{"expression": license.replace('/', " OR ")}],
            })
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "name": "kata-operator", "version": VERSION,
            "licenses": [{"expression": "Apache-2.0"}],
        }},
        "components": components,
    });
    let mut text = serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
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

/// Builds the image without a registry or a daemon, unpacks it and runs it.
fn build_image(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let revision = output({
        let mut git = command(root, "git");
        git.args(["rev-parse", "HEAD"]);
        git
    })?;
    let storage = folder.join("storage");
    let buildah = |words: &[&str]| {
        let mut buildah = command(root, "buildah");
        buildah.args(["--storage-driver", "vfs", "--root"]).arg(storage.join("root"));
        buildah.arg("--runroot").arg(storage.join("run")).args(words);
        output(buildah)
    };
    let name = format!("kata-operator:v{VERSION}");
    let (version, revision) =
        (format!("VERSION=v{VERSION}"), format!("REVISION={}", revision.trim()));
    buildah(&[
        "build",
        "--isolation",
        "chroot",
        "--timestamp",
        "0",
        "--file",
        "Containerfile",
        "--build-arg",
        &version,
        "--build-arg",
        &revision,
        "--tag",
        &name,
        FOLDER,
    ])?;
    let archive = folder.join("kata-operator.oci.tar");
    buildah(&["push", &name, &format!("oci-archive:{}", archive.display())])?;
    fits(&archive, IMAGE_LIMIT)?;
    let container = buildah(&["from", "--pull-never", &name])?;
    let mounted = buildah(&["mount", container.trim()])?;
    let checked = check_image(Path::new(mounted.trim()));
    buildah(&["rm", container.trim()])?;
    checked
}

/// Runs what is in the image, with nothing else around it.
fn check_image(files: &Path) -> Result<(), String> {
    let inside = |words: &[&str]| {
        let mut chroot = command(files, "chroot");
        chroot.arg("--userspec=65532:65532").arg(files).args(words);
        output(chroot)
    };
    let told = inside(&["/usr/bin/kata-operator", "version"])?;
    if !told.contains(VERSION) {
        return Err(format!("the image's operator says {told:?} of its version, not {VERSION}"));
    }
    let definitions = inside(&["/usr/bin/kata-operator", "crd"])?;
    if !definitions.contains("kind: CustomResourceDefinition") {
        return Err("the image's operator prints no CustomResourceDefinitions".to_owned());
    }
    inside(&["/usr/bin/kubectl-kata", "version", "--client"])?;
    say("image: unpacked, and both programs run in it as user 65532");
    Ok(())
}
