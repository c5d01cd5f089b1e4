//! What is published: static binaries, the plugin's archive and krew manifest, a list of what is in them,
//! and the operator's image. The same sources give the same bytes, wherever they are built.
//!
//! Nothing is uploaded from here.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::oci::login;
use crate::oci::reference::Reference;
use crate::{command, output, programs, say};

mod bill;
mod image;
mod krew;
mod machine;
mod pages;

use machine::Machine;

const FOLDER: &str = "target/dist";
/// The same from unoptimized binaries.
const QUICK: &str = "target/dist-quick";
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What is published, and the most bytes that it may have.
const BINARIES: [(&str, u64); 2] = [("kata-operator", 18 << 20), ("kubectl-kata", 12 << 20)];

/// Arguments of `dist`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Options {
    /// For which machines; the first is the default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Machine::here()])]
    arch: Vec<Machine>,
    /// Build a second time from a copy of the committed sources elsewhere, and compare
    #[arg(long)]
    twice: bool,
    /// Take unoptimized binaries: a minute, and right in all but size and speed; below target/dist-quick
    #[arg(long, conflicts_with_all = ["arch", "twice"])]
    quick: bool,
}

impl Options {
    fn folder(&self, root: &Path) -> PathBuf {
        root.join(if self.quick { QUICK } else { FOLDER })
    }
}

/// Arguments of `image`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ImageOptions {
    /// For which machines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Machine::here()])]
    arch: Vec<Machine>,
    /// Take unoptimized programs: a minute, and right in all but size and speed
    #[arg(long, conflicts_with = "arch")]
    quick: bool,
    /// Take programs that are built already: a folder with one for each machine, such as amd64
    #[arg(long, value_name = "FOLDER", conflicts_with = "quick")]
    programs: Option<PathBuf>,
    /// Push the image to REGISTRY/PATH:TAG, with the login of `docker login` or `podman login`
    #[arg(long, value_name = "REF", value_parser = Reference::parse)]
    push: Option<Reference>,
    /// Write a file for `ctr images import`, `kind load image-archive`, `docker load` and the like
    /// [default: kata-operator.oci.tar in the folder of what is built, if nothing is pushed]
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// The image's name in that file [default: that of --push, or localhost/kata-operator:vVERSION]
    #[arg(long, value_name = "REF", value_parser = Reference::parse)]
    name: Option<Reference>,
    /// The registry has no TLS; known of one on this machine
    #[arg(long, requires = "push")]
    plain_http: bool,
}

/// Builds the binaries, their archive and lists.
pub(crate) fn dist(root: &Path, options: &Options) -> Vec<String> {
    problems(run(root, options))
}

/// Builds the image, archives it and pushes it.
pub(crate) fn image(root: &Path, options: &ImageOptions) -> Vec<String> {
    problems(build_image(root, options))
}

fn build_image(root: &Path, options: &ImageOptions) -> Result<(), String> {
    let ImageOptions { arch, quick, programs: given, push, archive, name, plain_http } = options;
    for (index, machine) in arch.iter().enumerate() {
        if arch[..index].contains(machine) {
            return Err(format!("--arch names {} twice", machine.name()));
        }
    }
    let of_dist = Options { arch: arch.clone(), twice: false, quick: *quick };
    let folder = given.clone().unwrap_or_else(|| of_dist.folder(root));
    if given.is_none() {
        machine::check(root, arch)?;
        for machine in arch {
            programs(root, *machine, &of_dist)?;
        }
    }
    // Programs that are given were measured when they were built.
    let is_limited = !quick && given.is_none();
    let image = image::image(root, &folder, arch, is_limited)?;
    let default = folder.join("kata-operator.oci.tar");
    let archive = archive.as_ref().or_else(|| push.is_none().then_some(&default));
    if let Some(archive) = archive {
        let name = name.as_ref().or(push.as_ref()).map(ToString::to_string);
        let name = name.unwrap_or_else(|| format!("localhost/kata-operator:v{VERSION}"));
        image::write(&image, &name, archive)?;
    }
    match push {
        Some(to) => image::push(&image, to, &login::files(), *plain_http),
        None => Ok(()),
    }
}

fn problems(result: Result<(), String>) -> Vec<String> {
    result.err().into_iter().collect()
}

fn run(root: &Path, options: &Options) -> Result<(), String> {
    let folder = options.folder(root);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| failed("empty", &folder, &error))?;
    }
    let mut archives = Vec::new();
    for machine in &options.arch {
        archives.push(krew::Archive { machine: *machine, name: one(root, *machine, options)? });
    }
    let mut names: Vec<String> = archives.iter().map(|archive| archive.name.clone()).collect();
    for machine in &options.arch {
        let files = ["kata-operator", "kubectl-kata", "sbom.cdx.json"];
        names.extend(files.map(|file| format!("{}/{file}", machine.name())));
    }
    let sums = sums(&folder, &names)?;
    write(&folder.join("kata.yaml"), &krew::manifest(&archives, &sums)?)?;
    krew::check(&folder)?;
    write(&folder.join("sha256sums.txt"), &sums)?;
    say(&sums);
    Ok(())
}

/// The programs for a machine, in a folder named like it.
fn programs(root: &Path, machine: Machine, options: &Options) -> Result<PathBuf, String> {
    let folder = options.folder(root).join(machine.name());
    fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, &error))?;
    let built = if options.quick {
        build_quick(root)?
    } else {
        build(root, machine, &root.join("target/dist-build"))?
    };
    for (name, limit) in BINARIES {
        let to = folder.join(name);
        fs::copy(built.join(name), &to).map_err(|error| failed("write", &to, &error))?;
        let size = fs::metadata(&to).map_err(|error| failed("look at", &to, &error))?.len();
        fits(name, size, if options.quick { u64::MAX } else { limit })?;
        is_static(&to, machine)?;
    }
    if options.twice {
        same_elsewhere(root, machine, &built)?;
    }
    Ok(folder)
}

/// What is published for a machine, in a folder named like it; returns the archive, which is beside it.
fn one(root: &Path, machine: Machine, options: &Options) -> Result<String, String> {
    let folder = programs(root, machine, options)?;
    write(&folder.join("sbom.cdx.json"), &bill::of_materials(root, machine)?)?;
    let license = folder.join("LICENSE");
    fs::copy(root.join("LICENSE"), &license).map_err(|error| failed("write", &license, &error))?;
    let plugin = folder.join("kubectl-kata");
    // kubectl finds completions by this name; a link would do, but krew unpacks none.
    let script = folder.join("kubectl_complete-kata");
    write(&script, &pages::completion(&plugin, machine, "kubectl")?)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .map_err(|error| failed("make executable", &script, &error))?;
    let mut pages = pages::completions(&plugin, machine)?;
    pages.extend(pages::manual(&plugin, machine, "kubectl-kata")?);
    for (file, text) in &pages {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|error| failed("make", parent, &error))?;
        write(&path, text)?;
    }
    say(&format!("{} manual pages and completions", pages.len()));
    let archive = format!("kubectl-kata_linux_{}.tar.gz", machine.name());
    let content = ["LICENSE", "completions", "kubectl-kata", "kubectl_complete-kata", "man"];
    tar(&folder, &format!("../{archive}"), &content)?;
    let operator = folder.join("kata-operator");
    for (file, text) in pages::manual(&operator, machine, "kata-operator")? {
        write(&folder.join(file), &text)?;
    }
    Ok(archive)
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| failed("write", path, &error))
}

fn fits(name: &str, size: u64, limit: u64) -> Result<(), String> {
    say(&format!("{name}: {:.1} MiB", mib(size)));
    if size > limit {
        return Err(format!("{name} has {:.1} MiB, more than {:.1}", mib(size), mib(limit)));
    }
    Ok(())
}

/// Fails if the program is one of another machine, or needs another file to start: it must run where there
/// is nothing else.
fn is_static(path: &Path, machine: Machine) -> Result<(), String> {
    let headers = output({
        let mut readelf = command(Path::new("."), "readelf");
        readelf.args(["--file-header", "--program-headers", "--dynamic", "--wide"]).arg(path);
        // It speaks the user's language.
        readelf.env("LC_ALL", "C");
        readelf
    })?;
    let of =
        |line: &str| line.trim_start().starts_with("Machine:") && line.ends_with(machine.elf());
    if !headers.lines().any(of) {
        return Err(format!("{} is not for {}:\n{headers}", path.display(), machine.name()));
    }
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
fn build(root: &Path, machine: Machine, target: &Path) -> Result<PathBuf, String> {
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
    cargo.args([
        "build",
        "--profile",
        "dist",
        "--locked",
        "--target",
        machine.triple(),
        "--target-dir",
    ]);
    cargo.arg(target);
    for (name, _) in BINARIES {
        cargo.args(["--package", name, "--bin", name]);
    }
    cargo.env("RUSTFLAGS", flags.join(" ")).env("CARGO_INCREMENTAL", "0");
    machine.prepare(&mut cargo);
    match cargo.status() {
        Ok(status) if status.success() => Ok(target.join(machine.triple()).join("dist")),
        Ok(status) => Err(format!("the build ended with {status}")),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// Binaries that are linked statically and otherwise as tests use them; returns the folder they are in.
fn build_quick(root: &Path) -> Result<PathBuf, String> {
    let mut folder = PathBuf::new();
    for (name, _) in BINARIES {
        let mut cargo = command(root, "cargo");
        cargo.args(["rustc", "--quiet", "--locked", "--message-format=json", "--package", name]);
        cargo.args([
            "--bin",
            name,
            "--",
            "-C",
            "target-feature=+crt-static",
            "-C",
            "strip=symbols",
        ]);
        let built = programs::executables(&output(cargo)?);
        let program = built.get(name).and_then(|path| path.parent());
        folder = program.ok_or_else(|| format!("cargo names no executable for {name}"))?.to_owned();
    }
    Ok(folder)
}

/// Where cargo keeps what it downloads.
#[expect(clippy::disallowed_methods, reason = "xtask is a developer's tool, not the product")]
fn cargo_home() -> String {
    std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()))
}

/// Builds again from a copy of the committed sources, and compares.
fn same_elsewhere(root: &Path, machine: Machine, first: &Path) -> Result<(), String> {
    let elsewhere = root.join("target/dist-elsewhere");
    if elsewhere.exists() {
        fs::remove_dir_all(&elsewhere).map_err(|error| failed("empty", &elsewhere, &error))?;
    }
    let mut clone = command(root, "git");
    clone.args(["clone", "--quiet", "--no-hardlinks", "."]).arg(&elsewhere);
    output(clone)?;
    let second = build(&elsewhere, machine, &elsewhere.join("target"))?;
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

fn sums(folder: &Path, names: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, String> {
    let mut sums = command(folder, "sha256sum");
    sums.args(names);
    output(sums)
}
