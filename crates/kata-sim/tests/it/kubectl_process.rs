//! `kata-sim up` and kubectl as processes.
//!
//! kubectl is the one that `KATA_TEST_KUBECTL` names, and helm the one that `KATA_TEST_HELM` names. A test that
//! needs one is ignored unless it is asked for, and then fails without it. Nothing here sleeps or looks at the
//! user's own kubeconfig.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Directory of the repository, in which README's commands run.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A command that starts in the repository's directory.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repository()).stdin(Stdio::null());
    command
}

/// The kubectl to test: a stock one, 1.29 or newer.
pub(crate) fn named_kubectl() -> PathBuf {
    named("KATA_TEST_KUBECTL")
}

/// The helm to test.
pub(crate) fn named_helm() -> PathBuf {
    named("KATA_TEST_HELM")
}

/// The program that an environment variable names.
fn named(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty());
    path.unwrap_or_else(|| panic!("{variable} names no program; `. .ci/tools` sets it")).into()
}

/// What a process left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The output of a command that must succeed.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.stdout
    }

    /// The complaint of a command that must fail.
    #[track_caller]
    pub(crate) fn bad(self) -> String {
        assert_eq!(self.code, Some(1), "{self:#?}");
        self.stderr
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A served cluster with a directory of its own; ended when dropped.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) directory: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) announcement: String,
    pub(crate) child: Child,
}

impl Up {
    /// Starts `kata-sim` with these arguments on a free port, 600 times faster than real if they name no speed.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&directory));
        std::fs::create_dir_all(&directory).unwrap();
        let kubeconfig = directory.join("kubeconfig");
        let speed: &[&str] = if arguments.contains(&"--speed") { &[] } else { &["--speed", "600"] };
        let mut child = command(env!("CARGO_BIN_EXE_kata-sim"))
            .args(arguments)
            .args(speed)
            .args(["--port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The last line is printed when the kubeconfig is written.
        let mut announcement = String::new();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        while !announcement.contains("SIMULATED") {
            let line = lines.next().expect("kata-sim up ended").unwrap();
            announcement.push_str(&line);
            announcement.push('\n');
        }
        Self { directory, kubeconfig, announcement, child }
    }

    /// kubectl with a home of its own.
    pub(crate) fn kubectl(&self, program: &Path) -> Command {
        let mut kubectl = command(program);
        kubectl
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.directory)
            .env("KUBECONFIG", &self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.directory.join("cache"));
        kubectl
    }

    /// Another subcommand of `kata-sim` on this cluster.
    pub(crate) fn control(&self, words: &str) -> Ended {
        let mut control = command(env!("CARGO_BIN_EXE_kata-sim"));
        run(control.args(words.split_whitespace()).arg("--kubeconfig").arg(&self.kubeconfig))
    }

    /// The same, where only the environment says which cluster, as after `export KUBECONFIG=FILE`.
    pub(crate) fn control_by_environment(&self, words: &str) -> Ended {
        let mut control = command(env!("CARGO_BIN_EXE_kata-sim"));
        run(control.args(words.split_whitespace()).env("KUBECONFIG", &self.kubeconfig))
    }

    /// Sends a signal to the cluster's process and waits for its end.
    pub(crate) fn end(&mut self, signal: &str) -> Option<i32> {
        run(command("kill").arg(format!("-{signal}")).arg(self.child.id().to_string())).good();
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        status.code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It has ended already if this fails.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A served cluster and a kubectl.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) up: Up,
    program: PathBuf,
}

impl Hand {
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        Self { program: named_kubectl(), up: Up::start(name, arguments) }
    }

    /// kubectl with these words, and as the last argument `last`, if there is one.
    pub(crate) fn with(&self, words: &str, last: &str) -> Ended {
        let mut kubectl = self.up.kubectl(&self.program);
        kubectl.args(words.split_whitespace());
        if !last.is_empty() {
            kubectl.arg(last);
        }
        run(&mut kubectl)
    }

    pub(crate) fn kubectl(&self, words: &str) -> Ended {
        self.with(words, "")
    }

    /// kubectl with an editor that replaces text.
    pub(crate) fn edit(&self, words: &str, replacement: &str) -> Ended {
        let mut kubectl = self.up.kubectl(&self.program);
        run(kubectl.env("EDITOR", format!("sed -i {replacement}")).args(words.split_whitespace()))
    }

    /// A kubectl that goes on until it is killed.
    pub(crate) fn watching(&self, words: &str) -> Child {
        let mut kubectl = self.up.kubectl(&self.program);
        kubectl.args(words.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// A Ready KataConfig on worker-0.
    pub(crate) fn install(&self) {
        self.kubectl("label node worker-0 kata=true").good();
        self.kubectl("apply -f examples/kataconfig.yaml").good();
        self.ready();
    }

    pub(crate) fn ready(&self) {
        self.kubectl("wait --for=condition=Ready kataconfig --all --timeout=60s").good();
    }
}

/// The text with what differs from run to run replaced, and columns separated by one space.
pub(crate) fn normal(text: &str) -> String {
    let rules = [
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
        (r"\brendered-([a-z-]+)-[0-9a-f]{32}\b", "rendered-$1-HASH"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        (r"\b(\d+[dhm])?\d+[smh]\b", "AGE"),
        (r"( *resourceVersion:|  Resource Version:) +\S+", "$1 RV"),
        (r" +", " "),
        (r"(?m) $", ""),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
    })
}
