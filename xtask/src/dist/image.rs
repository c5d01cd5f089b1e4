//! The operator's image: two static programs, their licenses and the certificates of public authorities; no shell, no
//! root. It needs no daemon, and no right that the user does not have.

use std::fs;
use std::path::Path;

use super::machine::Machine;
use super::{BINARIES, REPOSITORY, bill, failed, fits, is_static};
use crate::oci::{Artifact, File, Image, Labels, Platform, archive};
use crate::{command, output, say};

/// The most bytes that the layer of the image may have, compressed.
const LIMIT: u64 = 20 << 20;
const USER: &str = "65532:65532";
/// Where programs look for the certificates of authorities that they trust.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// The image for some machines, each of which has a folder with its programs in `folder`.
pub(super) fn image(
    root: &Path,
    folder: &Path,
    machines: &[Machine],
    version: &str,
    is_limited: bool,
) -> Result<Artifact, String> {
    let created = created(root)?;
    let labels = [
        ("title", "kata-operator".to_owned()),
        (
            "description",
            "Installs, watches over, upgrades and removes the Kata Containers runtime".to_owned(),
        ),
        ("licenses", "Apache-2.0".to_owned()),
        ("source", REPOSITORY.to_owned()),
        ("version", format!("v{version}")),
        ("revision", revision(root)?),
    ];
    let labels: Labels = labels
        .into_iter()
        .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value))
        .collect();
    let files: Result<Vec<Vec<File>>, String> =
        machines.iter().map(|machine| files(root, folder, *machine)).collect();
    let files = files?;
    let images: Vec<Image<'_>> = machines
        .iter()
        .zip(&files)
        .map(|(machine, files)| Image {
            platform: Platform { architecture: machine.name(), os: "linux" },
            files,
            created: &created,
            labels: &labels,
            user: USER,
            entrypoint: &["/usr/bin/kata-operator"],
        })
        .collect();
    let image = Artifact::index(&images)?;
    for (machine, [_, layer]) in machines.iter().zip(&image.contents) {
        let name = format!("layer of the image for {}", machine.name());
        fits(&name, layer.bytes.len() as u64, if is_limited { LIMIT } else { u64::MAX })?;
    }
    say(&format!("image: {}", image.root.digest()));
    Ok(image)
}

/// The commit of the sources; what is built from other files than the commit's is not of it.
pub(super) fn revision(root: &Path) -> Result<String, String> {
    let git = |words: &[&str]| {
        let mut git = command(root, "git");
        git.args(words);
        output(git).map(|text| text.trim().to_owned())
    };
    // A file that git does not know is in no build.
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let changed = if changes.is_empty() { "" } else { "-dirty" };
    Ok(format!("{}{changed}", git(&["rev-parse", "HEAD"])?))
}

/// When the sources were committed; the same text by every git with every configuration.
pub(super) fn created(root: &Path) -> Result<String, String> {
    let mut git = command(root, "git");
    git.args(["-c", "log.showSignature=false", "show", "--no-patch", "--format=%cd"]);
    git.args(["--date=format-local:%Y-%m-%dT%H:%M:%SZ", "HEAD"]).env("TZ", "UTC");
    Ok(output(git)?.trim().to_owned())
}

fn files(root: &Path, folder: &Path, machine: Machine) -> Result<Vec<File>, String> {
    let mut files = vec![
        File::new(CERTIFICATES, certificates()),
        File::new("licenses/LICENSE", read(&root.join("LICENSE"))?),
        File::new("licenses/sbom.cdx.json", bill::of_materials(root, machine)?),
    ];
    for (name, _) in BINARIES {
        let path = folder.join(machine.name()).join(name);
        is_static(&path, machine)?;
        let bytes = read(&path)?;
        files.push(File { executable: true, ..File::new(format!("usr/bin/{name}"), bytes) });
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| failed("read", path, &error))
}

/// Those that Mozilla trusts, of the version that Cargo.lock names, and not those of the machine that builds.
fn certificates() -> String {
    use base64::Engine as _;
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Writes the image into a file that container runtimes load.
pub(super) fn write(image: &Artifact, name: &str, to: &Path) -> Result<(), String> {
    let bytes = archive::archive(image, name)?;
    fs::write(to, bytes).map_err(|error| failed("write", to, &error))?;
    say(&format!("{}: {name}", to.display()));
    Ok(())
}
