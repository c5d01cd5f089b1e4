//! A cluster that a stranger works on: `kata-sim up --no-operator --rbac`, a shell with the stock programs
//! and ours on its PATH, and the operator as a process of its own as soon as a test installs it.
//!
//! The simulated cluster runs no container. What a kubelet would do with the operator's pods is done here:
//! the arguments and variables are those of the Deployment, and the token is that of its ServiceAccount.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::kubectl_process::{Ended, Up, command, named_helm, named_kubectl, run};

/// Ours, which a build of the workspace puts next to `kata-sim`.
const PROGRAMS: [&str; 2] = ["kata-operator", "kubectl-kata"];

/// A program of ours.
pub(crate) fn ours(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_kata-sim")).with_file_name(name);
    assert!(path.exists(), "{} is not built: cargo build --workspace", path.display());
    path
}

/// A directory with links to the programs that commands of the documentation may use.
pub(crate) fn programs(directory: &Path, kubectl: &Path) -> PathBuf {
    let bin = directory.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let link = |name: &str, program: &Path| {
        std::os::unix::fs::symlink(std::fs::canonicalize(program).unwrap(), bin.join(name))
            .unwrap();
    };
    link("kubectl", kubectl);
    link("kata-sim", Path::new(env!("CARGO_BIN_EXE_kata-sim")));
    for name in PROGRAMS {
        link(name, &ours(name));
    }
    link("helm", &named_helm());
    bin
}

/// The operator that runs, and the Deployment that it runs for.
#[derive(Debug)]
struct Running {
    pod: Value,
    child: Child,
}

/// A cluster, a shell, and perhaps an operator.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) up: Up,
    bin: PathBuf,
    running: Option<Running>,
}

impl Site {
    pub(crate) fn start(name: &str, platform: &str, more: &[&str]) -> Self {
        let kubectl = named_kubectl();
        let arguments = ["up", "--no-operator", "--rbac", "--platform", platform];
        let up = Up::start(name, &[&arguments, more].concat());
        let bin = programs(&up.directory, &kubectl);
        Self { up, bin, running: None }
    }

    /// The operator installed by its manifests, and Kata on one node.
    pub(crate) fn ready(name: &str, platform: &str) -> Self {
        let mut site = Self::start(name, platform, &[]);
        site.good(&format!(
            "kata-operator manifests --image registry.example.com/kata-operator:v1 --platform {platform} | kubectl apply --server-side -f -"
        ));
        site.good("kubectl label node worker-0 kata=true");
        site.good("kubectl apply -f examples/kataconfig.yaml");
        site.good("kubectl wait --for=condition=Ready kataconfig --all --timeout=120s");
        site
    }

    /// What a line does in a shell, in the repository's directory.
    pub(crate) fn line(&mut self, line: &str) -> Ended {
        let ended = run(self.command("bash").args(["-eo", "pipefail", "-c", line]));
        self.follow();
        ended
    }

    /// A program with the stranger's environment, in the repository's directory.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.bin.display()))
            .env("HOME", &self.up.directory)
            .env("KUBECONFIG", &self.up.kubeconfig)
            .env("KUBECACHEDIR", self.up.directory.join("cache"));
        command
    }

    /// What a line prints that must succeed.
    #[track_caller]
    pub(crate) fn good(&mut self, line: &str) -> String {
        let ended = self.line(line);
        assert_eq!(ended.code, Some(0), "{line}\n{}\n{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    /// The complaint of a line that must fail.
    #[track_caller]
    pub(crate) fn bad(&mut self, line: &str) -> String {
        let ended = self.line(line);
        assert_ne!(ended.code, Some(0), "{line}\n{}\n{}", ended.stdout, ended.stderr);
        ended.stderr
    }

    fn kubectl(&self, words: &str) -> Ended {
        let mut kubectl = self.up.kubectl(&self.bin.join("kubectl"));
        run(kubectl.args(words.split_whitespace()))
    }

    /// Starts, replaces or ends the operator, as its Deployment wants it.
    fn follow(&mut self) {
        let list =
            self.kubectl("get deployments -A -l app.kubernetes.io/component=operator -o json");
        let list: Value = serde_json::from_str(&list.good()).unwrap();
        let wanted = list["items"].as_array().unwrap().iter().find(|deployment| {
            deployment["metadata"]["name"] == "kata-operator"
                && deployment["metadata"]["deletionTimestamp"].is_null()
        });
        let pod = wanted.map(|deployment| {
            json!({
                "namespace": deployment["metadata"]["namespace"],
                "spec": deployment["spec"]["template"]["spec"],
            })
        });
        if self.running.as_ref().map(|running| &running.pod) == pod.as_ref() {
            return;
        }
        self.end_operator();
        self.running = pod.map(|pod| Running { child: self.operator(&pod), pod });
    }

    fn operator(&self, pod: &Value) -> Child {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let namespace = text(&pod["namespace"]);
        let account = text(&pod["spec"]["serviceAccountName"]);
        let token = self.kubectl(&format!("create token {account} -n {namespace} --duration=24h"));
        let kubeconfig = self.up.directory.join("operator.kubeconfig");
        let mut config: Value =
            serde_json::from_str(&std::fs::read_to_string(&self.up.kubeconfig).unwrap()).unwrap();
        config["users"][0]["user"] = json!({"token": token.good().trim()});
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let container = &pod["spec"]["containers"][0];
        let mut operator = Command::new(ours("kata-operator"));
        for argument in container["args"].as_array().unwrap() {
            let argument = text(argument);
            let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            match argument.split_once('=') {
                Some((flag @ ("--health-addr" | "--metrics-addr"), _)) => {
                    operator.arg(format!("{flag}={}", free()));
                }
                _ => {
                    operator.arg(argument);
                }
            }
        }
        operator.arg("--kubeconfig").arg(&kubeconfig).args(["--namespace", &namespace]);
        for variable in container["env"].as_array().into_iter().flatten() {
            if let Some(value) = variable["value"].as_str() {
                operator.env(text(&variable["name"]), value);
            }
        }
        let log = std::fs::File::create(self.up.directory.join("operator.log")).unwrap();
        operator.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// Ends the operator as a kubelet does.
    fn end_operator(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        run(command("kill").arg(running.child.id().to_string())).good();
        running.child.wait().unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            // It has ended already if this fails.
            drop(running.child.kill());
            drop(running.child.wait());
        }
    }
}
