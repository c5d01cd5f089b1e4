//! What is published: static binaries, the plugin's archive and krew manifest, a list of what is in them,
//! and the operator's image. The same sources give the same bytes, wherever they are built.
//!
//! Nothing is uploaded from here.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::oci::reference::Reference;
use crate::oci::registry::Registry;
use crate::oci::signature::{Key, Signed};
use crate::oci::{Artifact, File, digest, gzip, login, tar};
use crate::{command, output, programs, say};

mod bill;
mod changes;
mod chart;
mod image;
mod krew;
mod machine;
mod olm;
mod pages;
mod release;

use machine::Machine;
pub(crate) use release::{ReleaseOptions, release};

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
    /// Where the archives will be put, for the krew manifest; without it none is written
    #[arg(long, value_name = "URL")]
    files_url: Option<String>,
    /// A folder with archives of the plugin that were built on other systems.
    #[arg(skip)]
    plugins: Option<PathBuf>,
    /// What the programs say of themselves.
    #[arg(skip)]
    version: Option<String>,
    /// The image that the programs install.
    #[arg(skip)]
    image: Option<String>,
}

impl Options {
    /// Those of a build that names no image.
    fn new(arch: Vec<Machine>, quick: bool) -> Self {
        Self {
            arch,
            twice: false,
            quick,
            files_url: None,
            plugins: None,
            version: None,
            image: None,
        }
    }

    fn folder(&self, root: &Path) -> PathBuf {
        root.join(if self.quick { QUICK } else { FOLDER })
    }

    fn version(&self) -> &str {
        self.version.as_deref().unwrap_or(VERSION)
    }

    /// Has the programs know their commit, and the version and the image that are published with them: they take these from
    /// the environment when they are compiled.
    fn name(&self, root: &Path, cargo: &mut std::process::Command) -> Result<(), String> {
        cargo.env("KATA_OPERATOR_REVISION", image::revision(root)?);
        for (variable, value) in
            [("KATA_OPERATOR_VERSION", &self.version), ("KATA_OPERATOR_IMAGE", &self.image)]
        {
            match value {
                Some(value) => cargo.env(variable, value),
                None => cargo.env_remove(variable),
            };
        }
        Ok(())
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
    /// Sign what is pushed, in the format of cosign: a private key of the curve P-256, as PEM of PKCS #8
    #[arg(long, value_name = "FILE", requires = "push")]
    sign_key: Option<PathBuf>,
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
    let ImageOptions { arch, quick, programs: given, push, sign_key, archive, name, plain_http } =
        options;
    machine::each_once(arch)?;
    let key = sign_key.as_deref().map(Key::read).transpose()?;
    let of_dist = Options::new(arch.clone(), *quick);
    let folder = given.clone().unwrap_or_else(|| of_dist.folder(root));
    if given.is_none() {
        machine::check(root, arch)?;
        if let Some(to) = push {
            registry(to, *plain_http)?.may_push(&to.repository)?;
        }
        for machine in arch {
            programs(root, *machine, &of_dist)?;
        }
    }
    // Programs that are given were measured when they were built.
    let is_limited = !quick && given.is_none();
    let image = image::image(root, &folder, arch, VERSION, is_limited)?;
    let default = folder.join("kata-operator.oci.tar");
    let archive = archive.as_ref().or_else(|| push.is_none().then_some(&default));
    if let Some(archive) = archive {
        let name = name.as_ref().or(push.as_ref()).map(ToString::to_string);
        let name = name.unwrap_or_else(|| format!("localhost/kata-operator:v{VERSION}"));
        image::write(&image, &name, archive)?;
    }
    match push {
        Some(to) => {
            push_to(&image, to, *plain_http)?;
            if let Some(key) = &key {
                sign(key, &image, to, *plain_http)?;
            }
            say(&to.by(&image));
            Ok(())
        }
        None => Ok(()),
    }
}

/// A registry with the login for one of its places: a login may be for that place alone, and may end within the hour.
fn registry(of: &Reference, plain_http: bool) -> Result<Registry, String> {
    let login = login::find(&login::files(), &of.registry, &of.repository)?;
    Ok(Registry::new(&of.registry, login, plain_http))
}

fn push_to(artifact: &Artifact, to: &Reference, plain_http: bool) -> Result<(), String> {
    let pushed = registry(to, plain_http)?.push(artifact, to)?;
    say(&format!("{to}: {} blobs pushed, {} were there", pushed.sent, pushed.there));
    Ok(())
}

fn problems(result: Result<(), String>) -> Vec<String> {
    result.err().into_iter().collect()
}

fn run(root: &Path, options: &Options) -> Result<(), String> {
    let (folder, here) = (options.folder(root), Machine::here());
    machine::each_once(&options.arch)?;
    machine::has_here(&options.arch)?;
    machine::check(root, &options.arch)?;
    let mut built = Vec::new();
    for machine in &options.arch {
        built.push((*machine, compile(root, *machine, options)?));
    }
    // What was there stays until there is something new.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| failed("empty", &folder, &error))?;
    }
    for (machine, built) in &built {
        take(built, &folder.join(machine.name()), *machine, options.quick)?;
    }
    let mut archives = Vec::new();
    for machine in &options.arch {
        let of_machine = folder.join(machine.name());
        let archive = one(root, &of_machine, &folder.join(here.name()), *machine)?;
        archives.push(archive);
    }
    if let Some(plugins) = &options.plugins {
        for archive in krew::foreign(plugins)? {
            let (from, to) = (plugins.join(&archive.name), folder.join(&archive.name));
            fs::copy(&from, &to).map_err(|error| failed("copy", &from, &error))?;
            archives.push(archive);
        }
    }
    let mut names: Vec<String> = archives.iter().map(|archive| archive.name.clone()).collect();
    for machine in &options.arch {
        let files = ["kata-operator", "kubectl-kata", "sbom.cdx.json"];
        names.extend(files.map(|file| format!("{}/{file}", machine.name())));
    }
    if let Some(url) = &options.files_url {
        let manifest = krew::manifest(&archives, &sums(&folder, &names)?, options.version(), url)?;
        write(&folder.join("kata.yaml"), &manifest)?;
        krew::check(&folder)?;
        names.push("kata.yaml".to_owned());
    }
    let sums = sums(&folder, &names)?;
    write(&folder.join("sha256sums.txt"), &sums)?;
    say(&sums);
    Ok(())
}

/// Builds the programs for a machine, into a folder named like it.
fn programs(root: &Path, machine: Machine, options: &Options) -> Result<(), String> {
    let built = compile(root, machine, options)?;
    take(&built, &options.folder(root).join(machine.name()), machine, options.quick)
}

/// Builds the programs for a machine; returns the folder they are in.
fn compile(root: &Path, machine: Machine, options: &Options) -> Result<PathBuf, String> {
    if options.quick {
        return build_quick(root, options);
    }
    let built = build(root, machine, &root.join("target/dist-build"), options)?;
    if options.twice {
        same_elsewhere(root, machine, &built, options)?;
    }
    Ok(built)
}

/// Copies programs that were built, and looks at them.
fn take(built: &Path, folder: &Path, machine: Machine, quick: bool) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
    for (name, limit) in BINARIES {
        let to = folder.join(name);
        fs::copy(built.join(name), &to).map_err(|error| failed("write", &to, &error))?;
        let size = fs::metadata(&to).map_err(|error| failed("look at", &to, &error))?.len();
        fits(name, size, if quick { u64::MAX } else { limit })?;
        is_static(&to, machine)?;
    }
    Ok(())
}

/// What is published for a machine beside its programs; returns the archive of the plugin, which is beside the folder.
/// `here` has the programs for this machine, which print their own pages.
fn one(root: &Path, folder: &Path, here: &Path, machine: Machine) -> Result<krew::Archive, String> {
    write(&folder.join("sbom.cdx.json"), &bill::of_materials(root, machine)?)?;
    let license = folder.join("LICENSE");
    fs::copy(root.join("LICENSE"), &license).map_err(|error| failed("write", &license, &error))?;
    let plugin = here.join("kubectl-kata");
    // kubectl finds completions by this name; a link would do, but krew unpacks none.
    let script = folder.join("kubectl_complete-kata");
    write(&script, &pages::completion(&plugin, "kubectl")?)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .map_err(|error| failed("make executable", &script, &error))?;
    let mut pages = pages::completions(&plugin)?;
    pages.extend(pages::manual(&plugin, "kubectl-kata")?);
    for (file, text) in &pages {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| failed("make", parent, &error))?;
        write(&path, text)?;
    }
    say(&format!("{} manual pages and completions", pages.len()));
    let archive = krew::Archive::linux(machine);
    let mut files = Vec::new();
    for name in ["LICENSE", "completions", "kubectl-kata", "kubectl_complete-kata", "man"] {
        collect(&folder.join(name), name, &mut files)?;
    }
    let path = folder.with_file_name(&archive.name);
    fs::write(&path, gzip(&tar(&files)?)?).map_err(|error| failed("write", &path, &error))?;
    for (file, text) in pages::manual(&here.join("kata-operator"), "kata-operator")? {
        write(&folder.join(file), &text)?;
    }
    Ok(archive)
}

/// The files below a folder of the sources that git knows: what else lies there is published by none.
fn tracked(root: &Path, folder: &str) -> Result<Vec<File>, String> {
    let names = output({
        let mut git = command(&root.join(folder), "git");
        git.args(["ls-files", "-z"]);
        git
    })?;
    let mut files = Vec::new();
    for name in names.split_terminator('\0') {
        collect(&root.join(folder).join(name), name, &mut files)?;
    }
    Ok(files)
}

/// Signs an artifact, and each manifest of an index: a container runtime asks for the signature of what it runs.
fn sign(key: &Key, artifact: &Artifact, name: &Reference, plain_http: bool) -> Result<(), String> {
    let (registry, place) = (registry(name, plain_http)?, name.place());
    for blob in [&artifact.root].into_iter().chain(&artifact.manifests) {
        let signed = Signed { place: &place, digest: blob.digest() };
        let at = Reference::new(&place, &signed.tag())?;
        match registry.manifest(&at.repository, &at.tag)? {
            Some(there) if key.has_signed(signed, &there) => {}
            Some(_) => {
                return Err(format!(
                    "{at} is not a signature by this key: sign with the key that made it, or delete it in the registry"
                ));
            }
            None => registry.push(&key.sign(signed)?, &at).map(drop)?,
        }
    }
    say(&format!("{name}: signed"));
    Ok(())
}

/// Replaces texts of a file; each is there.
fn replace(files: &mut [File], path: &str, edits: &[(&str, &str)]) -> Result<(), String> {
    let file = files.iter_mut().find(|file| file.path == path);
    let file = file.ok_or_else(|| format!("git knows no file {path} of what is published"))?;
    let mut text = String::from_utf8_lossy(&file.bytes).into_owned();
    for (from, to) in edits {
        if !text.contains(from) {
            return Err(format!(
                "{path} does not have {from:?}, which is replaced in what is published: see docs/developers/release.md"
            ));
        }
        text = text.replace(from, to);
    }
    file.bytes = text.into_bytes();
    Ok(())
}

/// Names the version in the labels of all objects.
fn label(files: &mut [File], version: &str) {
    let of = |version: &str| format!("app.kubernetes.io/version: \"{version}\"\n");
    for file in files {
        if let Ok(text) = std::str::from_utf8(&file.bytes) {
            file.bytes = text.replace(&of(VERSION), &of(version)).into_bytes();
        }
    }
}

/// A file, or all below a folder; what a link leads to counts.
fn collect(path: &Path, inside: &str, files: &mut Vec<File>) -> Result<(), String> {
    let fail = |error: std::io::Error| failed("read", path, &error);
    let about = fs::metadata(path).map_err(fail)?;
    if !about.is_dir() {
        let executable = about.permissions().mode() & 0o111 != 0;
        let bytes = fs::read(path).map_err(fail)?;
        files.push(File { executable, ..File::new(inside, bytes) });
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let inside = format!("{inside}/{}", entry.file_name().to_string_lossy());
        collect(&entry.path(), &inside, files)?;
    }
    Ok(())
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
fn build(
    root: &Path,
    machine: Machine,
    target: &Path,
    options: &Options,
) -> Result<PathBuf, String> {
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
    options.name(root, &mut cargo)?;
    match cargo.status() {
        Ok(status) if status.success() => Ok(target.join(machine.triple()).join("dist")),
        Ok(status) => Err(format!("the build ended with {status}")),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// Binaries that are linked statically and otherwise as tests use them; returns the folder they are in. They are built apart
/// from those, which others may be running.
fn build_quick(root: &Path, options: &Options) -> Result<PathBuf, String> {
    let mut folder = PathBuf::new();
    for (name, _) in BINARIES {
        let mut cargo = command(root, "cargo");
        cargo.args(["rustc", "--quiet", "--locked", "--message-format=json", "--package", name]);
        cargo.arg("--target-dir").arg(root.join("target/dist-quick-build"));
        cargo.args([
            "--bin",
            name,
            "--",
            "-C",
            "target-feature=+crt-static",
            "-C",
            "strip=symbols",
        ]);
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
        options.name(root, &mut cargo)?;
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
fn same_elsewhere(
    root: &Path,
    machine: Machine,
    first: &Path,
    options: &Options,
) -> Result<(), String> {
    let elsewhere = root.join("target/dist-elsewhere");
    if elsewhere.exists() {
        fs::remove_dir_all(&elsewhere).map_err(|error| failed("empty", &elsewhere, &error))?;
    }
    let mut clone = command(root, "git");
    clone.args(["clone", "--quiet", "--no-hardlinks", "."]).arg(&elsewhere);
    output(clone)?;
    let second = build(&elsewhere, machine, &elsewhere.join("target"), options)?;
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

/// A line with the digest of each file, as `sha256sum` prints it.
fn sums(folder: &Path, names: &[impl AsRef<str>]) -> Result<String, String> {
    let line = |name: &str| {
        let path = folder.join(name);
        let bytes = fs::read(&path).map_err(|error| failed("read", &path, &error))?;
        let digest = digest(&bytes);
        Ok(format!("{}  {name}\n", digest.trim_start_matches("sha256:")))
    };
    names.iter().map(|name| line(name.as_ref())).collect()
}
