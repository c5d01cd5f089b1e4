//! The operator as a process of its own, seen from outside: its life, its memory, its processor time.
//!
//! Linux only, since it reads `/proc`. It must not know what the operator does.

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// A running `kata-operator run`.
#[derive(Debug)]
pub(crate) struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts it with leader election, the monitor and otherwise default settings; its log goes to `log`.
    #[expect(clippy::disallowed_methods, reason = "the process is what is measured")]
    pub(crate) fn start(binary: &Path, kubeconfig: &Path, log: &Path) -> Result<Self, Failure> {
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let child = Command::new(binary)
            .args(["run", "--leader-elect", "--health-addr", &free, "--metrics-addr", &free])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_clear()
            // As the Go operator, which always has one.
            .env("RELATED_IMAGE_KATA_MONITOR", "registry.invalid/kata-monitor:1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log)?)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// How much it has written to its log, in bytes.
    pub(crate) fn log_bytes(&self) -> Result<u64, Failure> {
        Ok(std::fs::metadata(&self.log)?.len())
    }

    /// Resident memory now, in MiB.
    pub(crate) fn resident(&self) -> Result<f64, Failure> {
        memory(self.child.id(), "VmRSS")
    }

    /// The most resident memory since [`Operator::reset_peak`], in MiB.
    pub(crate) fn peak(&self) -> Result<f64, Failure> {
        memory(self.child.id(), "VmHWM")
    }

    /// Makes the kernel forget the peak so far.
    pub(crate) fn reset_peak(&self) -> Result<(), Failure> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    /// Processor time of user and system since its start, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Fields 14 and 15; the name before may hold blanks but ends with `)`.
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut times = rest.split_whitespace().skip(11);
        let mut next = || times.next().unwrap_or("0").parse::<u32>();
        // The kernel counts in hundredths of a second.
        Ok((f64::from(next()?) + f64::from(next()?)) / 100.0)
    }

    /// Asks it to end (SIGTERM), and waits; how long that took.
    #[expect(clippy::disallowed_methods, reason = "a signal to a process needs a process")]
    pub(crate) fn terminate(mut self) -> Result<(Duration, ExitStatus), Failure> {
        let begin = Instant::now();
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let status = self.child.wait()?;
        Ok((begin.elapsed(), status))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // Nothing can be done about a process that is gone.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A line of `/proc/PROCESS/status`, in MiB.
pub(crate) fn memory(process: u32, line: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib: u32 = found.and_then(|text| text.split_whitespace().next()).unwrap_or("0").parse()?;
    Ok(f64::from(kib) / 1024.0)
}

/// Where the operator's binary of the profile is that this program was built with.
pub(crate) fn built_operator() -> Result<PathBuf, Failure> {
    // This program is in `deps` below the directory of the profile.
    let own = std::env::current_exe()?;
    let directory = own.parent().and_then(Path::parent).ok_or("this program is nowhere")?;
    Ok(directory.join("kata-operator"))
}

/// Whether cargo sets this variable for a program that it runs, to describe the program's package.
fn is_of_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")
}

/// Builds that binary, if it is older than its source.
#[expect(clippy::disallowed_methods, reason = "cargo is asked for the program to measure")]
pub(crate) fn build_operator() -> Result<PathBuf, Failure> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--package", "kata-operator", "--bin", "kata-operator"]);
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    // A cargo that inherits them runs ring's build script again, and builds all that needs ring again.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        build.env_remove(name);
    }
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    if !build.status()?.success() {
        return Err("kata-operator cannot be built; or give its --operator PATH".into());
    }
    built_operator()
}
