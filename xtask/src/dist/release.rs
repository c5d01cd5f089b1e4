//! A version, from a clone into a registry: the image, what names it by its digest (programs, manifests, chart, bundle), and
//! the catalog.
//!
//! What can be wrong is found before the build, and everything is built before anything is pushed. Each step can be
//! repeated: what is in the registry already is not sent again, and a name that has something else is left alone.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::machine::{self, Machine};
use super::olm::{self, Published};
use super::{
    Options, VERSION, bill, changes, chart, failed, image, krew, programs, push_to, registry, run,
    sign, sums, write,
};
use crate::oci::reference::Reference;
use crate::oci::signature::Key;
use crate::oci::{Artifact, Blob, Labels};
use crate::{command, output, say};

/// Stands for a digest that is not known before the build.
const UNKNOWN: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// The type of a CycloneDX document.
const BILL: &str = "application/vnd.cyclonedx+json";
/// The type of a configuration without content.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Arguments of `release`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReleaseOptions {
    /// Where everything is pushed to: REGISTRY/PATH
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// That of Cargo.toml, or a pre-release of it such as 0.2.0-mine.1, which needs no section in CHANGELOG.md
    #[arg(long, value_name = "VERSION", default_value = VERSION)]
    version: String,
    /// For which machines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Machine::Amd64, Machine::Arm64])]
    arch: Vec<Machine>,
    /// Take unoptimized programs, for this machine only: a minute, and right in all but size and speed
    #[arg(long, conflicts_with = "arch")]
    quick: bool,
    /// Where you will put the archives of the plugin: for its krew manifest, and for OpenShift's console
    #[arg(long, value_name = "URL")]
    files_url: Option<String>,
    /// A folder with the plugin for other systems, which is built there: kubectl-kata_darwin_arm64.tar.gz and the like, with
    /// the program and LICENSE
    #[arg(long, value_name = "FOLDER")]
    plugins: Option<PathBuf>,
    /// Sign what is pushed, in the format of cosign: a private key of the curve P-256, as PEM of PKCS #8
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Say what would be pushed and written, and build nothing
    #[arg(long)]
    dry_run: bool,
    /// Publish changes that are not committed, too; the image says so
    #[arg(long)]
    allow_dirty: bool,
    /// The registry has no TLS; known of one on this machine
    #[arg(long)]
    plain_http: bool,
}

/// Builds a version and pushes it.
pub(crate) fn release(root: &Path, options: &ReleaseOptions) -> Vec<String> {
    publish(root, options).err().into_iter().collect()
}

/// The names under which things are pushed.
struct Names {
    image: Reference,
    bundle: Reference,
    catalog: Reference,
    chart: Reference,
}

impl Names {
    fn new(to: &str, version: &str) -> Result<Self, String> {
        let tag = format!("v{version}");
        let names = Self {
            image: Reference::new(&format!("{to}/kata-operator"), &tag)?,
            bundle: Reference::new(&format!("{to}/kata-operator-bundle"), &tag)?,
            catalog: Reference::new(&format!("{to}/kata-operator-catalog"), &tag)?,
            // Beside the image, since a tag of the chart is a version without v.
            chart: Reference::new(&format!("{to}/charts/kata-operator"), version)?,
        };
        if names.chart.registry == "docker.io" {
            return Err(format!(
                "{} cannot be pushed: names at Docker Hub have two parts, and the chart's needs three; take another registry",
                names.chart
            ));
        }
        Ok(names)
    }

    fn each(&self) -> [(&'static str, &Reference); 4] {
        [
            ("image", &self.image),
            ("bundle", &self.bundle),
            ("catalog", &self.catalog),
            ("chart", &self.chart),
        ]
    }
}

/// What names the image by its digest.
struct Naming {
    bundle: Artifact,
    catalog: Artifact,
    chart: Artifact,
}

impl Naming {
    fn new(
        root: &Path,
        names: &Names,
        machines: &[Machine],
        digest: &str,
        files_url: Option<&str>,
    ) -> Result<Self, String> {
        let (version, image) = (&names.chart.tag, format!("{}@{digest}", names.image.place()));
        let published = Published { machines, version, image: &image, files_url };
        let bundle = olm::bundle(root, published)?;
        let catalog = olm::catalog(root, published, &names.bundle.by(&bundle))?;
        let chart = chart::chart(root, &names.chart, &names.image, digest)?;
        Ok(Self { bundle, catalog, chart })
    }
}

fn publish(root: &Path, options: &ReleaseOptions) -> Result<(), String> {
    let ReleaseOptions { to, version, quick, files_url, plain_http, .. } = options;
    let arch = if *quick { vec![Machine::here()] } else { options.arch.clone() };
    let names = Names::new(to, version)?;
    let notes = changes::check(root, version, options.allow_dirty)?;
    machine::each_once(&arch)?;
    machine::has_here(&arch)?;
    machine::check(root, &arch)?;
    Naming::new(root, &names, &arch, UNKNOWN, files_url.as_deref())?;
    options.plugins.as_deref().map(krew::foreign).transpose()?;
    let key = options.sign_key.as_deref().map(Key::read).transpose()?;
    let build = Options {
        files_url: files_url.clone(),
        plugins: options.plugins.clone(),
        version: Some(version.clone()),
        ..Options::new(arch.clone(), *quick)
    };
    let folder = build.folder(root);
    if options.dry_run {
        plan(&names, &arch, &folder, options);
        return Ok(());
    }
    for (_, name) in names.each() {
        registry(name, *plain_http)?.may_push(&name.repository)?;
    }

    for machine in &arch {
        programs(root, *machine, &build)?;
    }
    let image = image::image(root, &folder, &arch, version, !quick)?;
    let naming = Naming::new(root, &names, &arch, image.root.digest(), files_url.as_deref())?;
    let artifacts = [&image, &naming.bundle, &naming.catalog, &naming.chart];
    for ((_, name), artifact) in names.each().into_iter().zip(artifacts) {
        is_free(name, artifact, *plain_http)?;
    }
    // The same programs once more: they know the image now.
    run(root, &Options { image: Some(names.image.by(&image)), ..build })?;
    files(root, &folder, &names, &image, &naming, &notes)?;
    for ((_, name), artifact) in names.each().into_iter().zip(artifacts) {
        push_to(artifact, name, *plain_http)?;
    }
    attach_bills(root, &arch, &image, &names.image, *plain_http)?;
    if let Some(key) = &key {
        for ((_, name), artifact) in names.each().into_iter().zip(artifacts) {
            sign(key, artifact, name, *plain_http)?;
        }
    }

    say(&format!("image   {}", names.image.by(&image)));
    say(&format!("bundle  {}", names.bundle.by(&naming.bundle)));
    say(&format!("catalog {}", names.catalog.by(&naming.catalog)));
    say(&format!(
        "chart   helm install kata-operator oci://{} --version {version}{} --namespace kata-operator --create-namespace",
        names.chart.place(),
        if *plain_http { " --plain-http" } else { "" }
    ));
    say(&format!("files   {}", folder.display()));
    Ok(())
}

/// Says what would be done.
fn plan(names: &Names, arch: &[Machine], folder: &Path, options: &ReleaseOptions) {
    let arch: Vec<&str> = arch.iter().map(|machine| machine.name()).collect();
    for (what, name) in names.each() {
        say(&format!("{what:<7} {name}"));
    }
    say(&format!(
        "files   {}: programs and plugin for {}, manifests, chart, CatalogSource, {}checksums, notes",
        folder.display(),
        arch.join(" and "),
        if options.files_url.is_some() { "krew manifest, " } else { "" }
    ));
    if options.sign_key.is_none() {
        say("without --sign-key nothing is signed");
    }
    say("nothing was built and nothing pushed");
}

/// Whether a name is free, or has what is to be pushed: people and tools hold what a version has for unchangeable.
fn is_free(name: &Reference, artifact: &Artifact, plain_http: bool) -> Result<(), String> {
    match registry(name, plain_http)?.named(name)? {
        Some(digest) if digest != artifact.root.digest() => Err(format!(
            "{name} is in the registry with other content ({digest}): publish another --version, or delete it there first; \
             nothing was pushed"
        )),
        _ => Ok(()),
    }
}

/// Attaches the bill of materials of each machine's programs to the image.
fn attach_bills(
    root: &Path,
    arch: &[Machine],
    image: &Artifact,
    name: &Reference,
    plain_http: bool,
) -> Result<(), String> {
    let registry = registry(name, plain_http)?;
    for machine in arch {
        let mut bill = Blob::new(BILL, bill::of_materials(root, *machine)?.into_bytes());
        let title = format!("sbom-{}.cdx.json", machine.name());
        let about = Labels::from([("org.opencontainers.image.title".to_owned(), title)]);
        bill.descriptor.annotations = about.clone();
        let (nothing, subject) = (Blob::new(EMPTY, b"{}".to_vec()), &image.root.descriptor);
        let artifact = Artifact::single(nothing, bill, Some(BILL), Some(subject), about)?;
        registry.attach(&artifact, &name.repository, subject)?;
    }
    say(&format!("{name}: {} bills of materials attached", arch.len()));
    Ok(())
}

/// Writes the files that name what is published, and their checksums.
fn files(
    root: &Path,
    folder: &Path,
    names: &Names,
    image: &Artifact,
    naming: &Naming,
    notes: &str,
) -> Result<(), String> {
    let here = folder.join(Machine::here().name()).join("kata-operator");
    let mut files = Vec::new();
    for platform in ["kubernetes", "openshift"] {
        let printed = output({
            let mut program = command(root, &here.to_string_lossy());
            program.args(["manifests", "--platform", platform, "--image", &names.image.by(image)]);
            program
        })?;
        files.push((format!("kata-operator-{platform}.yaml"), printed.into_bytes()));
    }
    let source = olm::source(root, &names.catalog.by(&naming.catalog))?;
    files.push(("kata-operator-catalogsource.yaml".to_owned(), source.into_bytes()));
    let [_, archive] = naming.chart.contents.first().ok_or("the chart has no archive")?;
    files.push((format!("kata-operator-{}.tgz", names.chart.tag), archive.bytes.clone()));
    files.push(("notes.md".to_owned(), notes.as_bytes().to_vec()));
    for (name, bytes) in &files {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| failed("write", &path, &error))?;
    }
    let more: Vec<String> = files.into_iter().map(|(name, _)| name).collect();
    let path = folder.join("sha256sums.txt");
    let before = fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
    write(&path, &format!("{before}{}", sums(folder, &more)?))
}
