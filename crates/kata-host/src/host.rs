//! What a node offers: every effect and every reading is one call, so that a test can stop between any two.
//!
//! There is no implementation here. The node agent has one for Linux, the simulated cluster one for its
//! nodes, and the tests one that loses power.
//! All paths are absolute paths of the node. An implementation may put a root before them.

use std::fmt;
use std::time::Duration;

/// What a call of [`Host`] gives.
pub type HostResult<T> = Result<T, HostError>;

/// A call to the node that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action}: {reason}")]
pub struct HostError {
    /// What was tried, for example `write /etc/containerd/config.toml`.
    pub action: String,
    /// Why it failed.
    pub reason: String,
    /// What that means.
    pub kind: HostErrorKind,
}

/// What a failed call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostErrorKind {
    /// There is no space left.
    NoSpace,
    /// No program answers at that socket.
    Unreachable,
    /// A program answers, and does not offer the service: containerd with a dead CRI plugin.
    Unimplemented,
    /// The answer did not come in time.
    TimedOut,
    /// The program or unit reported a failure.
    Failed,
    /// Anything else.
    Other,
}

/// What is at a path; a symbolic link is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// When its content was changed, in nanoseconds since 1970.
    pub modified: i64,
    /// When its inode was changed, in nanoseconds since 1970; no call sets this to a past time.
    pub changed: i64,
    /// Its number in the file system.
    pub inode: u64,
}

/// What kind of file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Where it points to, as it is written.
        target: String,
    },
    /// A device, a socket or a pipe.
    Other,
}

/// A device that sandboxes need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// `/dev/kvm`: usable means that a virtual machine with a processor can be created.
    Kvm,
    /// `/dev/vhost-vsock`: usable means that it can be opened.
    VhostVsock,
    /// `/dev/vhost-net`: usable means that it can be opened.
    VhostNet,
}

/// How a file system is mounted where this process sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// This mount is read-only.
    pub read_only: bool,
    /// The file system is read-only, and with it every mount of it.
    pub file_system_read_only: bool,
    /// Programs there cannot be started (`noexec`).
    pub no_programs: bool,
}

/// Facts of the node that do not change while we run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The machine's architecture as `uname -m` prints it, for example `x86_64`.
    pub architecture: String,
    /// `MemAvailable` in bytes.
    pub memory_available: u64,
    /// Whether SELinux is enforcing and this process runs in a type that may not change the node.
    pub selinux_confined: bool,
}

/// How long a unit may take to start. systemd ends most of them earlier (`TimeoutStartSec`); the Job that waits has half
/// an hour.
pub const START_LIMIT: Duration = Duration::from_mins(5);

/// A unit of systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// `ActiveState` is `active`.
    pub active: bool,
    /// `ActiveState` is neither that nor `inactive` nor `failed`, for example `activating`.
    pub changing: bool,
    /// Words of its first `ExecStart`, with variables as they are written.
    pub command: Vec<String>,
    /// Its variables, as `NAME=VALUE`.
    pub environment: Vec<String>,
    /// The files with more variables, which win over those. One that is not there may be missing.
    pub environment_files: Vec<String>,
    /// When its main process was started, in nanoseconds since 1970, if it has one.
    pub started: Option<i64>,
}

/// How a unit of systemd is, in systemd's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// `ActiveState`, for example `failed`.
    pub active: String,
    /// `SubState`, for example `auto-restart`.
    pub sub: String,
    /// `Result`, for example `exit-code`; `success` if nothing went wrong.
    pub result: String,
    /// How its main process ended the last time, if it has.
    pub exit: Option<Exit>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for UnitState {
    /// As what follows "it is", for example `failed (exit-code, status 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { active, sub, result, exit } = self;
        let mut more = Vec::new();
        if sub != active && active != "active" {
            more.push(sub.clone());
        }
        if result != "success" {
            match exit {
                Some(Exit::Signal(signal)) if result == "signal" => {
                    more.push(format!("signal {signal}"));
                }
                Some(Exit::Signal(signal)) => more.push(format!("{result}, signal {signal}")),
                Some(Exit::Status(status)) => more.push(format!("{result}, status {status}")),
                None => more.push(result.clone()),
            }
        }
        f.write_str(active)?;
        if more.is_empty() { Ok(()) } else { write!(f, " ({})", more.join(", ")) }
    }
}

/// The main file of a configuration that is to be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource<'a> {
    /// A file of the node.
    At(&'a str),
    /// A text, which is in a file for as long as it takes. Its imports must not be relative.
    Text(&'a str),
}

impl fmt::Display for ConfigSource<'_> {
    /// Without the text, which may have credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(path) => f.write_str(path),
            Self::Text(_) => f.write_str("the main file without our import"),
        }
    }
}

/// The answer to CRI's `Version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriVersion {
    /// `containerd` or `cri-o`.
    pub name: String,
    /// For example `2.1.4` or `v1.7.24`.
    pub version: String,
}

/// The answer to CRI's `Status` with `verbose`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriStatus {
    /// The condition `RuntimeReady`.
    pub runtime_ready: bool,
    /// What that condition says if it does not hold.
    pub message: String,
    /// Names of `runtime_handlers`, as they come; containerd 1.x sends none.
    pub handlers: Vec<String>,
    /// `info["config"]`: containerd's CRI configuration as JSON.
    pub config: Option<String>,
}

/// A sandbox of CRI's `ListPodSandbox`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// uid of its pod.
    pub uid: String,
    /// Its handler; empty for the default one.
    pub handler: String,
    /// Whether its state is READY.
    pub ready: bool,
}

/// A node. Every method is one effect or one reading.
///
/// An implementation must bound every call in time; the limits named here are what callers count on.
///
/// # Errors
/// Every method fails if the node does; an absence that the type can express is not a failure.
pub trait Host {
    /// The content of a file, following links; `None` if there is none.
    fn read(&mut self, path: &str) -> HostResult<Option<Vec<u8>>>;
    /// The first 64 bytes of a file, or fewer if it is shorter; `None` if there is none.
    fn read_start(&mut self, path: &str) -> HostResult<Option<Vec<u8>>>;
    /// What is at a path, without following a link at its end; `None` if there is nothing.
    fn stat(&mut self, path: &str) -> HostResult<Option<Stat>>;
    /// The names in a directory, sorted; `None` if there is none.
    fn list(&mut self, path: &str) -> HostResult<Option<Vec<String>>>;
    /// The SHA-256 of a regular file in lower-case hexadecimal.
    fn sha256(&mut self, path: &str) -> HostResult<String>;

    /// Creates or truncates a file and writes it; neither atomic nor durable.
    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> HostResult<()>;
    /// Makes a file of any content that takes so many bytes of the disk. Not every file system can.
    fn reserve(&mut self, path: &str, bytes: u64) -> HostResult<()>;
    /// Gives a file the owner, the group and the extended attributes of another one, if there is one.
    fn take_owner(&mut self, path: &str, of: &str) -> HostResult<()>;
    /// Makes a file's content durable.
    fn sync_file(&mut self, path: &str) -> HostResult<()>;
    /// Makes a directory's entries durable.
    fn sync_dir(&mut self, path: &str) -> HostResult<()>;
    /// Makes everything below a directory durable.
    fn sync_tree(&mut self, path: &str) -> HostResult<()>;
    /// Renames, replacing what is there, atomically.
    fn rename(&mut self, from: &str, to: &str) -> HostResult<()>;
    /// Removes a file or a link; nothing happens if there is none.
    fn unlink(&mut self, path: &str) -> HostResult<()>;
    /// Creates a symbolic link; fails if something is there.
    fn symlink(&mut self, target: &str, path: &str) -> HostResult<()>;
    /// Creates one directory; nothing happens if it is there.
    fn make_dir(&mut self, path: &str, mode: u32) -> HostResult<()>;
    /// Removes an empty directory; nothing happens if there is none. Says whether it is gone now.
    fn remove_dir(&mut self, path: &str) -> HostResult<bool>;

    /// Takes the lock of a file until this process ends; `false` if another process has it.
    fn lock(&mut self, path: &str) -> HostResult<bool>;

    /// The facts of the node.
    fn facts(&mut self) -> HostResult<Facts>;
    /// Free bytes of the file system at or above a path.
    fn disk_free(&mut self, path: &str) -> HostResult<u64>;
    /// How the file system at or above a path is mounted.
    fn mount(&mut self, path: &str) -> HostResult<Mount>;
    /// Whether a device is usable, and if not, what the kernel says.
    ///
    /// # Errors
    /// If that could not be tried.
    fn device(&mut self, device: Device) -> HostResult<Result<(), String>>;
    /// Loads a module into the kernel. At most 30 s.
    fn load_module(&mut self, name: &str) -> HostResult<()>;

    /// A unit of systemd; `None` if there is no such unit.
    fn unit(&mut self, name: &str) -> HostResult<Option<Unit>>;
    /// The services of systemd that run, or are being started, with the names of their units.
    fn services(&mut self) -> HostResult<Vec<(String, Unit)>>;
    /// How a unit of systemd is; `None` if there is no such unit.
    fn unit_state(&mut self, name: &str) -> HostResult<Option<UnitState>>;
    /// Restarts a unit and waits for systemd's job to end, at most [`START_LIMIT`].
    /// Success does not mean that the unit serves anything.
    fn restart_unit(&mut self, name: &str) -> HostResult<()>;
    /// The output of the node's own `PROGRAM --config CONFIG config dump`. At most 30 s.
    fn config_dump(&mut self, program: &str, config: ConfigSource<'_>) -> HostResult<String>;
    /// The output of `COMMAND config` with the command and the variables of a unit of CRI-O, or in its own words why there
    /// is none. At most 30 s.
    ///
    /// # Errors
    /// Also if it does not say why.
    fn crio_config(&mut self, unit: &Unit) -> HostResult<Result<String, String>>;

    /// CRI's `Version`. At most 5 s, as all calls of CRI.
    fn cri_version(&mut self, socket: &str) -> HostResult<CriVersion>;
    /// CRI's `Status` with `verbose`.
    fn cri_status(&mut self, socket: &str) -> HostResult<CriStatus>;
    /// CRI's `ListPodSandbox`.
    fn cri_sandboxes(&mut self, socket: &str) -> HostResult<Vec<Sandbox>>;

    /// Time since some fixed moment; never goes back.
    fn now(&mut self) -> Duration;
    /// Lets time pass.
    fn wait(&mut self, duration: Duration);
}
