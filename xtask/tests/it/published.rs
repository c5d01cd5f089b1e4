//! The image with the real programs, which `cargo xtask image --quick` leaves below target/dist-quick: a real containerd
//! pulls it from a real registry, or imports the archive, and runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Folder, Registry, image};

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

/// containerd of three releases pulls the image by its digest and runs what is in it, as the user that it names.
#[test]
#[ignore = "needs docker-registry and containerd"]
fn containerd_pulls_the_image_and_runs_it() {
    let folder = Folder::new("p");
    let programs = workspace().join("target/dist-quick");
    assert!(programs.is_dir(), "run `cargo xtask image --quick` first");
    let registry = Registry::start(&folder.0, None);
    let name = format!("{}/kata/kata-operator", registry.name);
    let archive = folder.0.join("image.tar").display().to_string();
    let pushed = image(
        &folder.0,
        &programs,
        &[
            "--push",
            &format!("{name}:v1"),
            "--archive",
            &archive,
            "--name",
            "localhost/kata-operator:v1",
        ],
    );
    pushed.says(true, &["blobs pushed"]);
    let by_digest = format!("{name}@{}", pushed.digest());
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
        let pull = ["images", "pull", "--plain-http", "--snapshotter", "native", &by_digest];
        let pulled = containerd.ctr(&[&pull[..2], local, &pull[2..]].concat());
        assert!(pulled.status.success(), "{}: {pulled:?}", release.display());
        let import = ["images", "import", "--snapshotter", "native", &archive];
        let imported = containerd.ctr(&[&import[..2], local, &import[2..]].concat());
        assert!(imported.status.success(), "{}: {imported:?}", release.display());
        for image in [&*by_digest, "localhost/kata-operator:v1"] {
            let version =
                containerd.run(image, "v", &["/usr/bin/kata-operator", "version"]).unwrap();
            assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
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
