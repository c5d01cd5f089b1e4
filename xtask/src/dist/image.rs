//! The operator's image: built by buildah from a folder of files, unpacked, looked at and run.
//!
//! Needs root, and neither a registry nor a daemon.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::machine::Machine;
use super::{REPOSITORY, VERSION, failed, fits, write};
use crate::{command, output, say};

/// The most bytes that all layers of the image may have, compressed.
const LIMIT: u64 = 20 << 20;
const NAME: &str = "localhost/kata-operator";
const USER: &str = "65532:65532";

/// Builds the image from what `dist` built; the size of a quick one is not limited.
pub(super) fn image(
    root: &Path,
    folder: &Path,
    machine: Machine,
    quick: bool,
) -> Result<(), String> {
    let archive = build(root, folder, machine)?;
    if quick {
        say("not optimized, and therefore not limited:");
    }
    fits(&archive, if quick { u64::MAX } else { LIMIT })
}

/// buildah with a storage of its own.
struct Buildah<'a> {
    root: &'a Path,
    folder: &'a Path,
    machine: Machine,
}

impl Buildah<'_> {
    #[expect(clippy::disallowed_methods, reason = "xtask is a developer's tool, not the product")]
    fn run(&self, verb: &str, words: &[&str]) -> Result<String, String> {
        let program = std::env::var("KATA_TEST_BUILDAH").unwrap_or_else(|_| "buildah".to_owned());
        let mut buildah = command(self.root, &program);
        let storage = self.folder.join("storage");
        buildah.args(["--storage-driver", "vfs", "--root"]).arg(storage.join("root"));
        buildah.arg("--runroot").arg(storage.join("run")).arg(verb);
        if matches!(verb, "build" | "push" | "from") {
            buildah.arg("--signature-policy").arg(self.folder.join("policy.json"));
        }
        output({
            buildah.args(words);
            buildah
        })
    }

    /// Builds without anything of an earlier build; returns the image's id.
    fn build(&self, revision: &str) -> Result<String, String> {
        let (version, revision) = (format!("VERSION=v{VERSION}"), format!("REVISION={revision}"));
        let words = ["--quiet", "--isolation", "chroot", "--timestamp", "0", "--no-cache"];
        let named = ["--file", "Containerfile", "--build-arg", &version, "--build-arg", &revision];
        let named = [&named[..], &["--platform", self.machine.platform()]].concat();
        let context = self.folder.to_string_lossy();
        let words = [&words[..], &named, &["--tag", NAME, &context]].concat();
        Ok(self.run("build", &words)?.trim().to_owned())
    }
}

/// Builds the image twice, looks at it and runs it; returns the archive.
fn build(root: &Path, folder: &Path, machine: Machine) -> Result<std::path::PathBuf, String> {
    let revision = output({
        let mut git = command(root, "git");
        git.args(["rev-parse", "HEAD"]);
        git
    })?;
    // Nothing is pulled, so that nothing needs to be trusted.
    write(
        &folder.join("policy.json"),
        r#"{"default": [{"type": "reject"}], "transports": {"containers-storage": {"": [{"type": "insecureAcceptAnything"}]}}}"#,
    )?;
    let buildah = Buildah { root, folder, machine };
    let id = buildah.build(revision.trim())?;
    if buildah.build(revision.trim())? != id {
        return Err("the image differs between two builds of the same files".to_owned());
    }
    say(&format!("image: {id}, twice"));
    let archive = folder.join("kata-operator.oci.tar");
    if archive.exists() {
        fs::remove_file(&archive).map_err(|error| failed("remove", &archive, &error))?;
    }
    buildah.run("push", &["--quiet", NAME, &format!("oci-archive:{}", archive.display())])?;
    looked_at(&buildah.run("inspect", &["--type", "image", NAME])?, machine)?;
    let container = buildah.run("from", &["--pull-never", NAME])?;
    let container = container.trim();
    let mounted = buildah.run("mount", &[container])?;
    let checked = run_in(Path::new(mounted.trim()), machine);
    buildah.run("rm", &[container])?;
    checked.map(|()| archive)
}

/// What whoever starts it relies on: no root, no shell, its name and where it comes from.
fn looked_at(inspected: &str, machine: Machine) -> Result<(), String> {
    let inspected: Value = serde_json::from_str(inspected)
        .map_err(|error| format!("buildah prints no JSON: {error}"))?;
    let config = &inspected["OCIv1"]["config"];
    let labels = &config["Labels"];
    let label = |name: &str| labels[format!("org.opencontainers.image.{name}")].as_str();
    for (what, is, wanted) in [
        ("architecture", inspected["OCIv1"]["architecture"].as_str(), machine.name()),
        ("user", config["User"].as_str(), USER),
        ("entry point", config["Entrypoint"][0].as_str(), "/usr/bin/kata-operator"),
        ("title", label("title"), "kata-operator"),
        ("source", label("source"), REPOSITORY),
        ("license", label("licenses"), "Apache-2.0"),
        ("version", label("version"), concat!("v", env!("CARGO_PKG_VERSION"))),
    ] {
        if is != Some(wanted) {
            return Err(format!("the image's {what} is {is:?}, not {wanted}"));
        }
    }
    if label("revision").is_none_or(str::is_empty) {
        return Err("the image does not say of which revision it is".to_owned());
    }
    Ok(())
}

/// Runs what is in the image, with nothing else around it; for another machine with its runner, which sees
/// the files of this one too.
fn run_in(files: &Path, machine: Machine) -> Result<(), String> {
    let here = machine == Machine::here();
    let inside = |words: &[&str]| match words {
        [program, words @ ..] if !here => {
            let mut program = machine.program(&files.join(program.trim_start_matches('/')))?;
            program.args(words);
            output(program)
        }
        words => {
            let mut chroot = command(files, "chroot");
            chroot.arg(format!("--userspec={USER}")).arg(files).args(words);
            output(chroot)
        }
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
    if inside(&["/bin/sh", "-c", "true"]).is_ok() {
        return Err("there is a shell in the image".to_owned());
    }
    let bill = files.join("licenses/sbom.cdx.json");
    let bill = fs::read_to_string(&bill).map_err(|error| failed("read", &bill, &error))?;
    if !bill.contains("\"CycloneDX\"") || !bill.contains("pkg:cargo/kube@") {
        return Err("the image's list of what is in it is none".to_owned());
    }
    say(if here {
        "image: unpacked; both programs run in it as user 65532, and there is no shell"
    } else {
        "image: unpacked; both programs run, and there is no shell; run in a chroot it was not, since it is \
         for another machine"
    });
    Ok(())
}
