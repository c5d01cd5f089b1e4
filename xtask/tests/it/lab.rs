//! Programs to put into an image, `xtask` as a process, and a real registry on loopback.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What is asked for under the name of an image.
pub(crate) const OCI: &str =
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json";

/// A folder of one test's own.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The programs of an image: static ones that do nothing. What they are called with another text are others.
    pub(crate) fn programs(&self, text: &str) -> PathBuf {
        let folder = self.0.join("programs").join(if cfg!(target_arch = "aarch64") {
            "arm64"
        } else {
            "amd64"
        });
        fs::create_dir_all(&folder).unwrap();
        let source = self.0.join("stand_in.rs");
        fs::write(&source, format!("fn main() {{ println!(\"{text}\"); }}")).unwrap();
        for name in ["kata-operator", "kubectl-kata"] {
            let mut rustc = Command::new("rustc");
            rustc.args(["-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"]);
            let built = rustc.arg(folder.join(name)).arg(&source).output().unwrap();
            assert!(built.status.success(), "{built:?}");
        }
        self.0.join("programs")
    }
}

impl Folder {
    /// A script that is found before the system's programs.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let folder = self.0.join("bin");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

/// How `xtask` ended, and what it said.
pub(crate) struct Done {
    pub(crate) success: bool,
    pub(crate) said: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn says(&self, success: bool, texts: &[&str]) {
        assert_eq!(self.success, success, "{}", self.said);
        for text in texts {
            assert!(self.said.contains(text), "does not say {text:?}:\n{}", self.said);
        }
    }

    /// The name with a digest, by which an image that was pushed is the same for ever.
    pub(crate) fn digest(&self) -> String {
        let line = self.said.lines().find_map(|line| line.split_once("@sha256:"));
        let (_, hex) = line.unwrap_or_else(|| panic!("no digest:\n{}", self.said));
        format!("sha256:{hex}")
    }
}

/// Runs `xtask image` with programs that are there; `home` has the logins.
pub(crate) fn image(home: &Path, programs: &Path, arguments: &[&str]) -> Done {
    xtask(home, &[&["image", "--programs", programs.to_str().unwrap()], arguments].concat())
}

/// Runs `xtask`; `home` has the logins.
pub(crate) fn xtask(home: &Path, arguments: &[&str]) -> Done {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(arguments);
    for name in [
        "REGISTRY_AUTH_FILE",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "DOCKER_CONFIG",
        "HELM_REGISTRY_CONFIG",
    ] {
        xtask.env_remove(name);
    }
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
        xtask.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    // Only the logins are looked for there.
    let own = std::env::var("HOME").unwrap();
    for (name, below) in
        [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup"), ("GIT_CONFIG_GLOBAL", ".gitconfig")]
    {
        let given = std::env::var(name).unwrap_or_else(|_| format!("{own}/{below}"));
        xtask.env(name, given);
    }
    for name in ["AARCH64_UNKNOWN_LINUX_GNU", "X86_64_UNKNOWN_LINUX_GNU"] {
        xtask.env_remove(format!("CARGO_TARGET_{name}_LINKER"));
    }
    let path = std::env::var("PATH").unwrap();
    xtask.env("HOME", home).env("PATH", format!("{}:{path}", home.join("bin").display()));
    let output = xtask.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    Done { success: output.status.success(), said }
}

/// Writes a login as `docker login` does.
pub(crate) fn log_in(home: &Path, registry: &str, user_and_password: &str) {
    use base64::Engine as _;
    let auth = base64::engine::general_purpose::STANDARD.encode(user_and_password);
    let config = serde_json::json!({"auths": {registry: {"auth": auth}}});
    fs::create_dir_all(home.join(".docker")).unwrap();
    fs::write(home.join(".docker/config.json"), config.to_string()).unwrap();
}

/// Asks on this machine, and without a proxy.
fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().new_agent()
}

/// A real registry.
pub(crate) struct Registry {
    process: Child,
    pub(crate) name: String,
}

impl Registry {
    /// Starts one that keeps its content in a folder; with `users`, a file of htpasswd's, it wants a login.
    pub(crate) fn start(folder: &Path, users: Option<&Path>) -> Self {
        let program =
            std::env::var("KATA_TEST_REGISTRY").expect("KATA_TEST_REGISTRY names docker-registry");
        let auth = users.map(|users| {
            format!("auth:\n  htpasswd:\n    realm: kata\n    path: {}\n", users.display())
        });
        let (path, log) = (folder.join("registry.yaml"), folder.join("registry.log"));
        // Another process may take a port that was free.
        for _ in 0..10 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let name = free.local_addr().unwrap().to_string();
            drop(free);
            let config = format!(
                "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {name}\n{}",
                folder.join("registry").display(),
                auth.clone().unwrap_or_default()
            );
            fs::write(&path, config).unwrap();
            let mut registry = Command::new(&program);
            registry.arg("serve").arg(&path).stdout(Stdio::null());
            let process = registry.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
            let mut registry = Self { process, name };
            if registry.answers() {
                return registry;
            }
        }
        panic!("the registry does not start: {}", fs::read_to_string(&log).unwrap());
    }

    /// Waits until it answers; false if it has ended.
    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            let answer = agent().get(format!("http://{}/v2/", self.name)).call();
            if answer.is_ok_and(|it| it.headers().contains_key("docker-distribution-api-version")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// What is under a path below `/v2/`.
    pub(crate) fn get(&self, path: &str, accept: &str) -> Vec<u8> {
        let mut answer = agent()
            .get(format!("http://{}/v2/{path}", self.name))
            .header("accept", accept)
            .call()
            .unwrap();
        answer.body_mut().read_to_vec().unwrap()
    }

    pub(crate) fn json(&self, path: &str, accept: &str) -> Value {
        serde_json::from_slice(&self.get(path, accept)).unwrap()
    }
}

impl Registry {
    /// The files of the layer of an image for one machine, as texts.
    pub(crate) fn layer(&self, repository: &str, version: &str) -> BTreeMap<String, String> {
        let index = self.json(&format!("{repository}/manifests/v{version}"), OCI);
        let digest = index["manifests"][0]["digest"].as_str().unwrap();
        let manifest = self.json(&format!("{repository}/manifests/{digest}"), OCI);
        let digest = manifest["layers"][0]["digest"].as_str().unwrap();
        let layer = self.get(&format!("{repository}/blobs/{digest}"), "*/*");
        let mut files = BTreeMap::new();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(layer.as_slice()));
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            files.insert(name, text);
        }
        files
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
