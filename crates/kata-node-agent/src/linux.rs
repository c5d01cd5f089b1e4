//! [`Host`] on Linux: files below the node's root, systemd and CRI through their sockets.
//!
//! Every method does what its name says and nothing else; what follows from it is decided elsewhere.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kata_api::error_text::without_error_numbers;
use kata_host::digest;
use kata_host::host::{
    ConfigSource, CriStatus, CriVersion, Device, Facts, FileKind, Host, HostError, HostErrorKind,
    HostResult, Mount, START_LIMIT, Sandbox, Stat, Unit, UnitState,
};
use kata_host::paths::{self, RUN_DIR};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use sha2::{Digest as _, Sha256};

use crate::attributes;
use crate::below::below;
use crate::cri::Client;
use crate::device;
use crate::mounts;
use crate::systemd::{Program, Systemd};

/// The node that this process may change.
#[derive(Debug)]
pub struct Linux {
    root: PathBuf,
    cri: Client,
    systemd: Systemd,
    started: Instant,
    /// Locks that are held until the process ends.
    locks: Vec<File>,
    /// Digests of files that were just written by us, so that they need not be read again.
    known: HashMap<PathBuf, String>,
    /// The folder of ours that was last looked into, and its place. Of a payload thousands of files are
    /// looked at, one folder after the other, and no other program changes links there.
    folder: Option<(String, PathBuf)>,
}

impl Linux {
    /// A node whose files are below `root`.
    ///
    /// # Errors
    /// If the runtime for CRI calls cannot be made.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            cri: Client::new()?,
            systemd: Systemd::new(root.join("run/systemd/private")),
            started: Instant::now(),
            locks: Vec::new(),
            known: HashMap::new(),
            folder: None,
        })
    }

    /// Where a path of the node leads to for this process, links followed.
    ///
    /// # Errors
    /// If links lead in a circle.
    pub(crate) fn at(&self, path: &str) -> HostResult<PathBuf> {
        self.place(path).map_err(|source| error(format!("find {path}"), &source))
    }

    fn place(&self, path: &str) -> io::Result<PathBuf> {
        below(&self.root, Path::new(path))
    }

    /// The same, but a link at the end is what is meant.
    fn entry(&mut self, path: &str) -> io::Result<PathBuf> {
        let (folder, name) = (paths::parent(path), paths::name(path));
        if let Some((known, place)) = &self.folder
            && known == folder
        {
            return Ok(place.join(name));
        }
        let place = self.place(folder)?;
        if folder.starts_with(paths::ROOT) {
            self.folder = Some((folder.to_owned(), place.clone()));
        }
        Ok(place.join(name))
    }

    /// The same for something that is about to change, and with it perhaps where others lead to.
    fn changing(&mut self, path: &str) -> io::Result<PathBuf> {
        let place = self.entry(path);
        self.folder = None;
        place
    }

    /// What is known of the file system at or above a path.
    fn file_system(&mut self, path: &str) -> HostResult<StatVfs> {
        let place = self.existing(path)?;
        rustix::fs::statvfs(place)
            .map_err(|source| error(format!("ask for the file system at {path}"), &source.into()))
    }

    /// The path, or the nearest folder above it that is there, for this process.
    fn existing(&mut self, path: &str) -> HostResult<PathBuf> {
        let mut place = path;
        while place != "/" && self.stat(place)?.is_none() {
            place = paths::parent(place);
        }
        self.at(place)
    }

    /// Notes the digest of a file that was just written.
    pub(crate) fn know(&mut self, path: PathBuf, sha256: String) {
        self.known.insert(path, sha256);
    }

    /// The output of a program of the node, which systemd starts with the command and the variables of a unit. The
    /// reason of an error is the last line of the program's standard error.
    fn printed(&mut self, action: String, unit: Unit) -> HostResult<String> {
        // What cannot be written would look like a configuration that cannot be read, so not on a disk that
        // may be full. Input and output have all secrets that are configured.
        let [output, errors] = ["out", "err"].map(|it| format!("{RUN_DIR}/dump.{it}"));
        // systemd goes on with what an agent asked for that was killed since; what that writes must not get
        // into these files.
        self.unlink(&output)?;
        self.unlink(&errors)?;
        let ran = self.systemd.execute(&Program {
            command: unit.command,
            environment: unit.environment,
            environment_files: unit.environment_files,
            output: Some((output.clone(), errors.clone())),
            limit: Duration::from_secs(30),
        });
        let text = |bytes: Option<Vec<u8>>| {
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let (said, complained) = (text(self.read(&output)?), text(self.read(&errors)?));
        self.unlink(&output)?;
        self.unlink(&errors)?;
        ran.map(|()| said).map_err(|fault| {
            let last = complained.lines().rev().find(|line| !line.trim().is_empty());
            let mut error = fault.at(action);
            if let Some(last) = last {
                last.clone_into(&mut error.reason);
            }
            error
        })
    }
}

pub(crate) fn error(action: String, source: &io::Error) -> HostError {
    let kind = match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => HostErrorKind::NoSpace,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => HostErrorKind::TimedOut,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::NotFound => {
            HostErrorKind::Unreachable
        }
        _ => HostErrorKind::Other,
    };
    HostError { action, reason: without_error_numbers(&source.to_string()), kind }
}

/// Turns "there is none" into `None`.
fn maybe<T>(result: io::Result<T>, action: impl FnOnce() -> String) -> HostResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(source) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(error(action(), &source)),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Host for Linux {
    fn read(&mut self, path: &str) -> HostResult<Option<Vec<u8>>> {
        maybe(self.place(path).and_then(fs::read), || format!("read {path}"))
    }

    fn read_start(&mut self, path: &str) -> HostResult<Option<Vec<u8>>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut start = Vec::new();
            File::open(self.place(path)?)?.take(64).read_to_end(&mut start)?;
            Ok(start)
        };
        maybe(read(), || format!("read {path}"))
    }

    fn stat(&mut self, path: &str) -> HostResult<Option<Stat>> {
        let action = || format!("look at {path}");
        let place = self.entry(path).map_err(|source| error(action(), &source))?;
        let Some(found) = maybe(fs::symlink_metadata(&place), action)? else { return Ok(None) };
        let kind = if found.file_type().is_symlink() {
            let Some(target) = maybe(fs::read_link(&place), action)? else { return Ok(None) };
            FileKind::Link { target: target.to_string_lossy().into_owned() }
        } else if found.is_dir() {
            FileKind::Directory
        } else if found.is_file() {
            FileKind::File
        } else {
            FileKind::Other
        };
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Ok(Some(Stat {
            kind,
            mode: found.mode() & 0o7777,
            size: found.size(),
            modified: nanoseconds(found.mtime(), found.mtime_nsec()),
            changed: nanoseconds(found.ctime(), found.ctime_nsec()),
            inode: found.ino(),
        }))
    }

    fn list(&mut self, path: &str) -> HostResult<Option<Vec<String>>> {
        let read = || -> io::Result<Vec<String>> {
            let mut names = fs::read_dir(self.place(path)?)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<Vec<String>>>()?;
            names.sort_unstable();
            Ok(names)
        };
        maybe(read(), || format!("list {path}"))
    }

    fn sha256(&mut self, path: &str) -> HostResult<String> {
        let place = self.at(path)?;
        if let Some(known) = self.known.remove(&place) {
            return Ok(known);
        }
        let read = || -> io::Result<String> {
            let mut file = File::open(&place)?;
            let mut hash = Sha256::new();
            let mut buffer = vec![0; 1 << 18];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(digest::text(&hash.finalize())),
                    length => hash.update(buffer.get(..length).unwrap_or_default()),
                }
            }
        };
        read().map_err(|source| error(format!("read {path}"), &source))
    }

    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> HostResult<()> {
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(mode);
            let mut file = options.open(self.place(path)?)?;
            // The process's umask must not decide.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.write_all(content)
        };
        write().map_err(|source| error(format!("write {path}"), &source))
    }

    fn reserve(&mut self, path: &str, bytes: u64) -> HostResult<()> {
        let reserve = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).mode(0o600).open(self.place(path)?)?;
            Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
        };
        reserve().map_err(|source| error(format!("reserve room in {path}"), &source))
    }

    fn take_owner(&mut self, path: &str, of: &str) -> HostResult<()> {
        let action = || format!("give {path} the owner and the attributes of {of}");
        let place = self.entry(of).map_err(|source| error(action(), &source))?;
        let Some(wanted) = maybe(fs::symlink_metadata(&place), action)? else { return Ok(()) };
        let give = || -> io::Result<()> {
            let file = File::open(self.place(path)?)?;
            let found = file.metadata()?;
            if (found.uid(), found.gid()) != (wanted.uid(), wanted.gid()) {
                fchown(&file, Some(wanted.uid()), Some(wanted.gid()))?;
            }
            // A link has none of its own.
            if wanted.is_file() { attributes::copy(&place, &file) } else { Ok(()) }
        };
        give().map_err(|source| error(action(), &source))
    }

    fn sync_file(&mut self, path: &str) -> HostResult<()> {
        self.place(path)
            .and_then(|place| sync(&place))
            .map_err(|source| error(format!("make {path} durable"), &source))
    }

    fn sync_dir(&mut self, path: &str) -> HostResult<()> {
        self.place(path)
            .and_then(|place| sync(&place))
            .map_err(|source| error(format!("make {path} durable"), &source))
    }

    fn sync_tree(&mut self, path: &str) -> HostResult<()> {
        let sync = || -> io::Result<()> { Ok(rustix::fs::syncfs(File::open(self.place(path)?)?)?) };
        sync().map_err(|source| error(format!("make {path} durable"), &source))
    }

    fn rename(&mut self, from: &str, to: &str) -> HostResult<()> {
        let mut rename = || fs::rename(self.changing(from)?, self.changing(to)?);
        rename().map_err(|source| error(format!("rename {from} to {to}"), &source))
    }

    fn unlink(&mut self, path: &str) -> HostResult<()> {
        let removed = self.changing(path).and_then(fs::remove_file);
        maybe(removed, || format!("remove {path}")).map(|_| ())
    }

    fn symlink(&mut self, target: &str, path: &str) -> HostResult<()> {
        self.changing(path)
            .and_then(|place| symlink(target, place))
            .map_err(|source| error(format!("link {path} to {target}"), &source))
    }

    fn make_dir(&mut self, path: &str, mode: u32) -> HostResult<()> {
        let made = self.changing(path).and_then(|place| {
            DirBuilder::new().mode(mode).create(&place)?;
            fs::set_permissions(&place, fs::Permissions::from_mode(mode))
        });
        match made {
            Err(source) if source.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(|source| error(format!("create directory {path}"), &source)),
        }
    }

    fn remove_dir(&mut self, path: &str) -> HostResult<bool> {
        let removed = self.changing(path).and_then(fs::remove_dir);
        match maybe(removed, || format!("remove directory {path}")) {
            Ok(_) => Ok(true),
            Err(_) if self.list(path)?.is_some_and(|names| !names.is_empty()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lock(&mut self, path: &str) -> HostResult<bool> {
        let action = || format!("lock {path}");
        let fail = |source: &io::Error| error(action(), source);
        let place = self.entry(path).map_err(|source| fail(&source))?;
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(|source| fail(&source))?;
        }
        // Every user may create entries in its folder: a link to what this program is to make, or a pipe that no
        // program reads, whose opening would not come back.
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&place);
        if fs::symlink_metadata(&place).is_ok_and(|found| !found.is_file()) {
            let reason =
                "it is no regular file, so another program has put it there; remove it".to_owned();
            return Err(HostError { action: action(), reason, kind: HostErrorKind::Other });
        }
        let file = opened.map_err(|source| fail(&source))?;
        match file.try_lock() {
            Ok(()) => {
                self.locks.push(file);
                Ok(true)
            }
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(source)) => Err(fail(&source)),
        }
    }

    fn facts(&mut self) -> HostResult<Facts> {
        let meminfo = fs::read_to_string("/proc/meminfo")
            .map_err(|source| error("read /proc/meminfo".to_owned(), &source))?;
        Ok(Facts {
            architecture: std::env::consts::ARCH.replace("powerpc64", "ppc64le"),
            memory_available: memory_available(&meminfo),
            selinux_confined: selinux_confined(&self.at("/sys/fs/selinux/enforce")?),
        })
    }

    fn disk_free(&mut self, path: &str) -> HostResult<u64> {
        let found = self.file_system(path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn mount(&mut self, path: &str) -> HostResult<Mount> {
        let flags = self.file_system(path)?.f_flag;
        let read_only = flags.contains(StatVfsMountFlags::RDONLY);
        let file_system_read_only = read_only && {
            let place = self.existing(path)?;
            mounts::is_file_system_read_only(&place)
                .map_err(|source| error(format!("ask how {path} is mounted"), &source))?
        };
        let no_programs = flags.contains(StatVfsMountFlags::NOEXEC);
        Ok(Mount { read_only, file_system_read_only, no_programs })
    }

    fn device(&mut self, device: Device) -> HostResult<Result<(), String>> {
        match device::probe(&self.at(device::path(device))?, device) {
            Ok(()) => Ok(Ok(())),
            // The container's device cgroup forbids it; the node's systemd may look.
            Err(source) if source.kind() == ErrorKind::PermissionDenied => {
                device::probe_on_node(&self.at(device::PLACE)?, &self.systemd, device)
            }
            Err(source) => {
                let reason = without_error_numbers(&source.to_string());
                Ok(Err(format!("{}: {reason}", device::path(device))))
            }
        }
    }

    fn load_module(&mut self, name: &str) -> HostResult<()> {
        let command = vec!["/sbin/modprobe".to_owned(), name.to_owned()];
        let program = Program::new(command, Duration::from_secs(30));
        self.systemd.execute(&program).map_err(|fault| fault.at(format!("load {name}")))
    }

    fn unit(&mut self, name: &str) -> HostResult<Option<Unit>> {
        self.systemd.unit(name).map_err(|fault| fault.at(format!("ask systemd for {name}")))
    }

    fn services(&mut self) -> HostResult<Vec<(String, Unit)>> {
        self.systemd.services().map_err(|fault| fault.at("ask systemd for its services".to_owned()))
    }

    fn unit_state(&mut self, name: &str) -> HostResult<Option<UnitState>> {
        self.systemd.state(name).map_err(|fault| fault.at(format!("ask systemd for {name}")))
    }

    fn restart_unit(&mut self, name: &str) -> HostResult<()> {
        self.systemd.restart(name, START_LIMIT).map_err(|fault| fault.at(format!("restart {name}")))
    }

    fn config_dump(&mut self, program: &str, config: ConfigSource<'_>) -> HostResult<String> {
        let action = format!("read the merged configuration of {config}");
        let input = format!("{RUN_DIR}/dump.toml");
        self.make_dir(RUN_DIR, 0o700)?;
        let path = match config {
            ConfigSource::At(path) => path,
            ConfigSource::Text(text) => {
                self.write(&input, text.as_bytes(), 0o600)?;
                &input
            }
        };
        let command = [program, "--config", path, "config", "dump"].map(str::to_owned);
        let printed = self.printed(action, Unit { command: command.to_vec(), ..Unit::default() });
        self.unlink(&input)?;
        self.remove_dir(RUN_DIR)?;
        printed.map_err(|mut error| {
            // It may name the file that is gone by now.
            error.reason = error.reason.replace(&format!("{input}: "), "");
            error
        })
    }

    fn crio_config(&mut self, unit: &Unit) -> HostResult<Result<String, String>> {
        let action = "read the configuration of CRI-O".to_owned();
        self.make_dir(RUN_DIR, 0o700)?;
        let mut unit = unit.clone();
        unit.command.push("config".to_owned());
        let printed = self.printed(action, unit);
        self.remove_dir(RUN_DIR)?;
        match printed {
            Ok(printed) => Ok(Ok(printed)),
            Err(error) => match fatal_message(&error.reason) {
                Some(message) => Ok(Err(message)),
                None => Err(error),
            },
        }
    }

    fn cri_version(&mut self, socket: &str) -> HostResult<CriVersion> {
        self.cri.version(&self.at(socket)?).map_err(|fault| fault.at(socket))
    }

    fn cri_status(&mut self, socket: &str) -> HostResult<CriStatus> {
        self.cri.status(&self.at(socket)?).map_err(|fault| fault.at(socket))
    }

    fn cri_sandboxes(&mut self, socket: &str) -> HostResult<Vec<Sandbox>> {
        self.cri.sandboxes(&self.at(socket)?).map_err(|fault| fault.at(socket))
    }

    fn now(&mut self) -> Duration {
        self.started.elapsed()
    }

    fn wait(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// The message in the line of its log with which CRI-O ends; `None` if it is not such a line.
fn fatal_message(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("level=fatal msg=\"")?;
    let mut message = String::new();
    let mut letters = rest.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => message.extend(letters.next()),
            letter => message.push(letter),
        }
    }
    Some(message)
}

fn memory_available(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kibibytes| kibibytes.parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes.saturating_mul(1024))
}

/// Whether the node enforces SELinux, as this file of it says, and this process is confined by it. In a
/// container's own `/sys` the file is missing, so the node's is asked.
fn selinux_confined(enforce: &Path) -> bool {
    let enforcing = fs::read_to_string(enforce).is_ok_and(|text| text.trim() == "1");
    // user:role:type:level; spc_t and the unconfined types may change the node.
    let context = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
    let kind = context.split(':').nth(2).unwrap_or_default();
    enforcing && !(kind == "spc_t" || kind.starts_with("unconfined"))
}
