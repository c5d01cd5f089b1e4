//! A version with the real programs in a real registry: a real containerd pulls the image and runs it, and Helm installs the
//! chart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::lab::{Folder, OCI, Registry, image, xtask};
use crate::signed::{keys, verify};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A containerd of its own.
struct Containerd {
    process: Child,
    programs: PathBuf,
    socket: PathBuf,
}

impl Containerd {
    fn start(release: &Path, folder: &Path) -> Self {
        let programs = release.join("usr/bin");
        let path = |name: &str| folder.join(name).display().to_string();
        let version = if release.ends_with("1.6") || release.ends_with("1.7") { 2 } else { 3 };
        // Images and containers are enough; the part for the kubelet wants a network.
        let config = format!(
            "version = {version}\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {:?}\n",
            path("root"),
            path("state"),
            path("s")
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut containerd = Command::new(programs.join("containerd"));
        containerd
            .arg("--config")
            .arg(folder.join("config.toml"))
            .env("PATH", Self::path(&programs));
        containerd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = containerd.spawn().unwrap();
        let containerd = Self { process, programs, socket: folder.join("s") };
        let begun = Instant::now();
        while !containerd.ctr(&["version"]).status.success() {
            let log = fs::read_to_string(folder.join("log")).unwrap();
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "containerd does not answer:\n{log}"
            );
        }
        containerd
    }

    /// Its own programs before the system's.
    fn path(programs: &Path) -> String {
        let system = programs.with_file_name("sbin");
        let path = std::env::var("PATH").unwrap_or_default();
        format!("{}:{}:{path}", programs.display(), system.display())
    }

    fn ctr(&self, arguments: &[&str]) -> Output {
        let mut ctr = Command::new(self.programs.join("ctr"));
        ctr.arg("--address").arg(&self.socket).args(arguments);
        ctr.env("PATH", Self::path(&self.programs)).output().unwrap()
    }

    /// Runs a program of an image; what it printed.
    fn run(&self, image: &str, id: &str, words: &[&str]) -> Result<String, String> {
        let run = ["run", "--rm", "--snapshotter", "native", image, id];
        let output = self.ctr(&[&run[..], words].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The SHA-256 of bytes.
fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A pre-release, which needs no section in the changelog.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-test.1");

/// One command publishes a version; containerd of three releases pulls the image by its digest and runs what is in it, and Helm
/// installs the chart from the registry.
#[test]
#[ignore = "needs docker-registry, openssl, containerd, kubectl and helm"]
fn a_version_is_published_pulled_and_installed() {
    let folder = Folder::new("p");
    let registry = Registry::start(&folder.0, None);
    let place = format!("{}/kata", registry.name);
    let url = "https://files.example.com/kata";
    let words = ["release", "--quick", "--allow-dirty", "--version", VERSION, "--to", &place];
    let (private, public) = keys(&folder.0, "release");
    let key = private.to_str().unwrap();
    let plugins = plugins(&folder);
    let more = ["--files-url", url, "--sign-key", key, "--plugins", plugins.to_str().unwrap()];
    let words = [&words[..], &more].concat();
    let first = xtask(&folder.0, &words);
    first.says(true, &["kata-operator:v", "2 blobs pushed", &format!("--version {VERSION}")]);
    let again = xtask(&folder.0, &words);
    again.says(true, &["0 blobs pushed, 2 were there"]);
    assert!(!again.said.contains(": 2 blobs pushed"), "{}", again.said);
    assert_eq!(again.digest(), first.digest(), "two builds");
    let by_digest = format!("{place}/kata-operator@{}", first.digest());

    let files = workspace().join("target/dist-quick");
    let archive = folder.0.join("image.tar").display().to_string();
    let here =
        image(&folder.0, &files, &["--archive", &archive, "--name", "localhost/kata-operator:v1"]);
    here.says(true, &["localhost/kata-operator:v1"]);
    for file in ["kata-operator-kubernetes.yaml", "kata-operator-openshift.yaml"] {
        let manifests = fs::read_to_string(files.join(file)).unwrap();
        assert!(manifests.contains(&by_digest), "{file}");
        assert!(!manifests.contains("registry.invalid"), "{file}");
    }
    let krew = fs::read_to_string(files.join("kata.yaml")).unwrap();
    for os in ["linux", "darwin", "windows"] {
        assert!(krew.contains(&format!("{url}/kubectl-kata_{os}_")), "{krew}");
    }
    assert!(krew.contains("bin: kubectl-kata.exe"), "{krew}");
    assert!(krew.contains(&format!("version: v{VERSION}")), "{krew}");
    let manifests = registry.layer("kata/kata-operator-bundle", VERSION);
    let downloads = &manifests["manifests/kubectl-kata.consoleclidownload.yaml"];
    assert!(downloads.contains(url) && !downloads.contains("github.com"), "{downloads}");
    let version = &manifests["manifests/kata-operator.clusterserviceversion.yaml"];
    assert!(version.contains(&format!("image: {by_digest}")), "{version}");
    assert!(version.contains(&format!("name: kata-operator.v{VERSION}")), "{version}");
    let catalog = registry.layer("kata/kata-operator-catalog", VERSION);
    let catalog = &catalog["configs/kata-operator/catalog.yaml"];
    let index = registry.get(&format!("kata/kata-operator-bundle/manifests/v{VERSION}"), INDEX);
    let bundle = format!("{place}/kata-operator-bundle@sha256:{}", hex(&index));
    for text in [&bundle, &by_digest, &format!("kata-operator.v{VERSION}")] {
        assert!(catalog.contains(text), "no {text}: {catalog}");
    }
    let index = registry.get(&format!("kata/kata-operator-catalog/manifests/v{VERSION}"), INDEX);
    let source = fs::read_to_string(files.join("kata-operator-catalogsource.yaml")).unwrap();
    let name = format!("image: {place}/kata-operator-catalog@sha256:{}", hex(&index));
    assert!(source.contains(&name), "{source}");
    let sums = fs::read_to_string(files.join("sha256sums.txt")).unwrap();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        assert_eq!(hex(&fs::read(files.join(name)).unwrap()), sum, "{name}");
    }
    assert!(sums.lines().any(|line| line.ends_with("  kata.yaml")), "{sums}");
    for text in [version, catalog] {
        assert!(!text.contains("registry.invalid"), "{text}");
    }
    let tag = format!("v{VERSION}");
    for (name, tag) in [
        ("kata/kata-operator", tag.as_str()),
        ("kata/kata-operator-bundle", &tag),
        ("kata/kata-operator-catalog", &tag),
        ("kata/charts/kata-operator", VERSION),
    ] {
        let digest = hex(&registry.get(&format!("{name}/manifests/{tag}"), OCI));
        verify(&folder.0, &registry, name, &format!("sha256:{digest}"), &public).unwrap();
    }
    bill(&registry, &first.digest());
    // Users have installed it and rely on what it is.
    let other = ["release", "--quick", "--allow-dirty", "--version", VERSION, "--to", &place];
    let refused = xtask(&folder.0, &other);
    refused.says(false, &["kata-operator-bundle:v", "with other content", "nothing was pushed"]);
    containerd(&folder, &by_digest, &archive);
    helm(&folder, &place, &by_digest);
}

/// Archives of the plugin as they come from other systems.
fn plugins(folder: &Folder) -> PathBuf {
    let (plugins, content) = (folder.0.join("plugins"), folder.0.join("content"));
    for folder in [&plugins, &content] {
        fs::create_dir(folder).unwrap();
    }
    for name in ["LICENSE", "kubectl-kata", "kubectl-kata.exe"] {
        fs::write(content.join(name), name).unwrap();
    }
    for (name, program) in [("darwin_arm64", "kubectl-kata"), ("windows_amd64", "kubectl-kata.exe")]
    {
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(plugins.join(format!("kubectl-kata_{name}.tar.gz")));
        assert!(
            tar.args(["-C", content.to_str().unwrap(), "LICENSE", program])
                .status()
                .unwrap()
                .success()
        );
    }
    plugins
}

/// The registry lists what is attached to the image.
fn bill(registry: &Registry, digest: &str) {
    let of_image = format!("kata/kata-operator/manifests/{}", digest.replace(':', "-"));
    let list = registry.json(&of_image, INDEX)["manifests"].take();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list[0]["artifactType"], "application/vnd.cyclonedx+json");
    let attached = list[0]["digest"].as_str().unwrap();
    let attached = registry.json(&format!("kata/kata-operator/manifests/{attached}"), MANIFEST);
    assert_eq!(attached["subject"]["digest"], digest);
    let document = attached["layers"][0]["digest"].as_str().unwrap();
    let document = registry.json(&format!("kata/kata-operator/blobs/{document}"), "*/*");
    assert_eq!(document["bomFormat"], "CycloneDX");
}

/// The chart comes from the registry into a simulated cluster, and names the image by its digest.
fn helm(folder: &Folder, place: &str, by_digest: &str) {
    let program =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} names no program"));
    let kubeconfig = folder.0.join("kubeconfig");
    // The tests of kata-sim have built it.
    let simulator = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("kata-sim");
    let mut up = Command::new(simulator);
    up.args(["up", "--no-operator", "--platform", "kubernetes", "--kubeconfig"]).arg(&kubeconfig);
    let _up = Running(up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begun = Instant::now();
    while !kubeconfig.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "kata-sim does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = |name: &str, words: &str| {
        let mut command = Command::new(program(name));
        command.args(words.split(' ')).env("KUBECONFIG", &kubeconfig).env("HOME", &folder.0);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // What the simulator brings for an operator beside it is not the release's.
    for left in ["crd --all", "priorityclass kata-operator-check"] {
        run("KATA_TEST_KUBECTL", &format!("delete {left}"));
    }
    let chart = format!("oci://{place}/charts/kata-operator --version {VERSION} --plain-http");
    run("KATA_TEST_HELM", &format!("install kata {chart} -n kata --create-namespace"));
    let path = "jsonpath={.spec.template.spec.containers[0].image}";
    let image =
        run("KATA_TEST_KUBECTL", &format!("get deployment kata-operator -n kata -o {path}"));
    assert_eq!(image, by_digest);
}

/// A program that ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// containerd of three releases pulls the image and loads the archive, and runs what is in both, as the user that they name.
fn containerd(folder: &Folder, by_digest: &str, archive: &str) {
    let mut releases: Vec<PathBuf> = fs::read_dir(workspace().join("target/containerd"))
        .unwrap_or_else(|error| panic!("run .ci/containerd.sh first: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    releases.sort();
    assert!(!releases.is_empty());
    for release in releases {
        let place = folder.0.join("c");
        fs::create_dir(&place).unwrap();
        let containerd = Containerd::start(&release, &place);
        // Releases from 2 on would unpack elsewhere.
        let is_old = release.ends_with("1.6") || release.ends_with("1.7");
        let local: &[&str] = if is_old { &[] } else { &["--local"] };
        let pull = ["images", "pull", "--plain-http", "--snapshotter", "native", by_digest];
        let pulled = containerd.ctr(&[&pull[..2], local, &pull[2..]].concat());
        assert!(pulled.status.success(), "{}: {pulled:?}", release.display());
        let import = ["images", "import", "--snapshotter", "native", archive];
        let imported = containerd.ctr(&[&import[..2], local, &import[2..]].concat());
        assert!(imported.status.success(), "{}: {imported:?}", release.display());
        for image in [by_digest, "localhost/kata-operator:v1"] {
            let version =
                containerd.run(image, "v", &["/usr/bin/kata-operator", "version"]).unwrap();
            assert!(version.contains(VERSION), "{version}");
            let crds = containerd.run(image, "c", &["/usr/bin/kata-operator", "crd"]).unwrap();
            assert!(crds.contains("kind: CustomResourceDefinition"), "{crds}");
            let plugin = ["/usr/bin/kubectl-kata", "version", "--client"];
            containerd.run(image, "p", &plugin).unwrap();
            let create = ["container", "create", "--snapshotter", "native", image, "u"];
            assert!(containerd.ctr(&create).status.success());
            let info = containerd.ctr(&["container", "info", "u"]).stdout;
            let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
            assert_eq!(info["Spec"]["process"]["user"]["uid"], 65532, "{info}");
            assert!(containerd.ctr(&["container", "rm", "u"]).status.success());
            let shell = containerd.run(image, "s", &["/bin/sh", "-c", "true"]);
            assert!(shell.unwrap_err().contains("no such file"));
        }
        drop(containerd);
        fs::remove_dir_all(&place).unwrap();
    }
}
