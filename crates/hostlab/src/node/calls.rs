//! The calls of a node in memory, one for each method of [`Host`].

use std::borrow::Cow;
use std::time::Duration;

use kata_host::containerd::EMPTY_FILE;
use kata_host::digest;
use kata_host::host::{
    ConfigSource, CriStatus, CriVersion, Device, Exit, Facts, Host, HostError, HostErrorKind,
    HostResult, Mount, START_LIMIT, Sandbox, Stat, Unit, UnitState,
};

use super::{Node, is_in_memory};
use crate::disk::BLOCK;
use crate::runtime::{Kind, Runtime};

/// Where a text is for as long as a program prints its configuration.
const DUMPED: &str = "/run/dumped.toml";

fn other(reason: String) -> (String, HostErrorKind) {
    (reason, HostErrorKind::Other)
}

impl Host for Node {
    fn read(&mut self, path: &str) -> HostResult<Option<Vec<u8>>> {
        self.call(false, format!("read {path}"), |node| {
            node.readable(path)?;
            Ok(node.disk.read(path))
        })
    }
    fn read_start(&mut self, path: &str) -> HostResult<Option<Vec<u8>>> {
        self.call(false, format!("read the start of {path}"), |node| {
            Ok(node.disk.read(path).map(|bytes| bytes.into_iter().take(64).collect()))
        })
    }
    fn stat(&mut self, path: &str) -> HostResult<Option<Stat>> {
        self.call(false, format!("stat {path}"), |node| Ok(node.disk.stat(path)))
    }
    fn list(&mut self, path: &str) -> HostResult<Option<Vec<String>>> {
        self.call(false, format!("list {path}"), |node| {
            node.readable(path)?;
            Ok(node.disk.list(path))
        })
    }
    fn sha256(&mut self, path: &str) -> HostResult<String> {
        self.call(false, format!("hash {path}"), |node| {
            let bytes = node.disk.read(path).ok_or_else(|| other("no file".to_owned()))?;
            Ok(digest::hex(&bytes))
        })
    }
    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> HostResult<()> {
        self.call(true, format!("write {path}"), |node| {
            node.room_for(path, content.len() as u64)?;
            node.disk.write(path, content, mode).map_err(other)
        })
    }
    fn reserve(&mut self, path: &str, bytes: u64) -> HostResult<()> {
        self.call(true, format!("reserve {path}"), |node| {
            node.room_for(path, bytes)?;
            node.disk.reserve(path, bytes).map_err(other)
        })
    }
    fn take_owner(&mut self, path: &str, of: &str) -> HostResult<()> {
        self.call(true, format!("give {path} the owner of {of}"), |node| {
            if let Some(owner) = node.disk.owner(of) {
                node.disk.give(path, owner);
            }
            Ok(())
        })
    }
    fn sync_file(&mut self, path: &str) -> HostResult<()> {
        self.call(true, format!("sync {path}"), |node| {
            node.disk.sync_file(path);
            Ok(())
        })
    }
    fn sync_dir(&mut self, path: &str) -> HostResult<()> {
        self.call(true, format!("sync directory {path}"), |node| {
            node.disk.sync_dir(path).map_err(other)
        })
    }
    fn sync_tree(&mut self, path: &str) -> HostResult<()> {
        self.call(true, format!("sync tree {path}"), |node| {
            node.disk.sync_tree(path);
            Ok(())
        })
    }
    fn rename(&mut self, from: &str, to: &str) -> HostResult<()> {
        self.call(true, format!("rename {from} to {to}"), |node| {
            node.disk.rename(from, to).map_err(other)
        })
    }
    fn unlink(&mut self, path: &str) -> HostResult<()> {
        self.call(true, format!("unlink {path}"), |node| node.disk.unlink(path).map_err(other))
    }
    fn symlink(&mut self, target: &str, path: &str) -> HostResult<()> {
        self.call(true, format!("link {path} to {target}"), |node| {
            node.room(BLOCK)?;
            node.disk.symlink(target, path).map_err(other)
        })
    }
    fn make_dir(&mut self, path: &str, mode: u32) -> HostResult<()> {
        self.call(true, format!("create directory {path}"), |node| {
            if !is_in_memory(path) {
                node.room(if node.disk.stat(path).is_some() { 0 } else { BLOCK })?;
            }
            node.disk.make_dir(path, mode).map_err(other)
        })
    }
    fn remove_dir(&mut self, path: &str) -> HostResult<bool> {
        self.call(true, format!("remove directory {path}"), |node| Ok(node.disk.remove_dir(path)))
    }
    fn lock(&mut self, path: &str) -> HostResult<bool> {
        self.call(false, format!("lock {path}"), |node| {
            Ok(node.locked.iter().all(|locked| *locked != path))
        })
    }
    fn facts(&mut self) -> HostResult<Facts> {
        self.call(false, "read facts".to_owned(), |node| Ok(node.facts.clone()))
    }
    fn disk_free(&mut self, path: &str) -> HostResult<u64> {
        self.call(false, format!("ask for free space at {path}"), |node| Ok(node.disk_free))
    }
    fn mount(&mut self, path: &str) -> HostResult<Mount> {
        self.call(false, format!("ask how {path} is mounted"), |node| {
            let of = |(place, _): &&(String, Mount)| {
                format!("{path}/").starts_with(&format!("{place}/"))
            };
            Ok(node
                .mounts
                .iter()
                .filter(of)
                .max_by_key(|(place, _)| place.len())
                .map(|it| it.1)
                .unwrap_or_default())
        })
    }
    fn device(&mut self, device: Device) -> HostResult<Result<(), String>> {
        self.call(false, format!("open {device:?}"), |node| {
            Ok(match node.broken_device {
                Some(broken) if broken == device => Err("cannot be opened".to_owned()),
                Some(_) | None => Ok(()),
            })
        })
    }
    fn load_module(&mut self, name: &str) -> HostResult<()> {
        self.call(true, format!("load module {name}"), |_| Ok(()))
    }
    fn unit(&mut self, name: &str) -> HostResult<Option<Unit>> {
        self.call(false, format!("ask for unit {name}"), |node| {
            if !node.systemd {
                return Err(("no such socket".to_owned(), HostErrorKind::Unreachable));
            }
            let changing = node.starting.as_deref() == Some(name);
            if changing || node.left_over.as_deref() == Some(name) {
                return Ok(Some(Unit { changing, ..Unit::default() }));
            }
            let all = node.running_services();
            Ok(all.into_iter().find(|(found, _)| found == name).map(|(_, unit)| unit))
        })
    }
    fn services(&mut self) -> HostResult<Vec<(String, Unit)>> {
        self.call(false, "ask for the services".to_owned(), |node| {
            if !node.systemd {
                return Err(("no such socket".to_owned(), HostErrorKind::Unreachable));
            }
            let mut all = node.running_services();
            all.retain(|(_, unit)| unit.active);
            Ok(all)
        })
    }
    fn unit_state(&mut self, name: &str) -> HostResult<Option<UnitState>> {
        self.call(false, format!("ask for the state of unit {name}"), |node| {
            let is_runtime = name == node.runtime.unit && node.is_activating();
            if is_runtime || node.starting.as_deref() == Some(name) {
                let [active, sub, result] = ["activating", "start", "success"].map(str::to_owned);
                return Ok(Some(UnitState { active, sub, result, exit: None }));
            }
            let up = node.runtime.running.is_some();
            let word = |up_word: &str, down: &str| if up { up_word } else { down }.to_owned();
            Ok((name == node.runtime.unit).then(|| UnitState {
                active: word("active", "failed"),
                sub: word("running", "failed"),
                result: word("success", "exit-code"),
                exit: (!up).then_some(Exit::Status(1)),
            }))
        })
    }
    fn restart_unit(&mut self, name: &str) -> HostResult<()> {
        let restarted = self.call(true, format!("restart {name}"), |node| {
            node.restarts_while_starting += usize::from(node.is_activating());
            node.activates_until = node.now + node.activates_for;
            node.answers_from = node.now + node.starts_for;
            node.pending_answers = std::mem::take(&mut node.first_answers);
            node.runtime.start(&mut node.disk);
            match &node.runtime.running {
                None => Err(("the job failed".to_owned(), HostErrorKind::Failed)),
                Some(_) => Ok(()),
            }
        });
        // A process that was killed did not wait for it.
        let (begun, until) = (self.now, self.activates_until);
        if restarted.is_ok() && until > begun {
            self.now = until.min(begun + START_LIMIT);
            if self.is_activating() {
                let (action, reason) = (format!("restart {name}"), "no answer".to_owned());
                return Err(HostError { action, reason, kind: HostErrorKind::TimedOut });
            }
        }
        restarted
    }
    fn config_dump(&mut self, program: &str, config: ConfigSource<'_>) -> HostResult<String> {
        self.call(false, format!("dump {config}"), |node| {
            let failed = |reason| (reason, HostErrorKind::Failed);
            if program != node.runtime.program() {
                return Err(failed(format!("{program}: no such file")));
            }
            let mut disk = Cow::Borrowed(&node.disk);
            let path = match config {
                ConfigSource::At(path) => path,
                ConfigSource::Text(text) => {
                    disk.to_mut().write(DUMPED, text.as_bytes(), 0o600).map_err(other)?;
                    DUMPED
                }
            };
            if let Some(printer) = &node.runtime.printer {
                return printer.print(&disk, path).map_err(failed);
            }
            let before_2 = matches!(node.runtime.kind, Kind::Containerd(1, _));
            if before_2 && path != EMPTY_FILE && disk.stat(path).is_none() {
                return Err(failed(format!("open {path}: no such file")));
            }
            let mut table = node.runtime.load(&disk, path).map_err(failed)?;
            if let (Some(twist), ConfigSource::At(_)) = (node.runtime.prints, config) {
                twist.apply(&mut table);
            }
            Ok(toml::to_string(&table).unwrap())
        })
    }
    fn crio_config(&mut self, unit: &Unit) -> HostResult<Result<String, String>> {
        self.call(false, "print the configuration of CRI-O".to_owned(), |node| {
            if unit.command.first() != node.runtime.command.first() {
                return Err(("no such program".to_owned(), HostErrorKind::Failed));
            }
            if let Some(complaint) = &node.runtime.complains {
                return Ok(Err(complaint.clone()));
            }
            let table = node.runtime.load(&node.disk, &node.runtime.main);
            Ok(table.map(|table| toml::to_string(&table).unwrap()))
        })
    }
    fn cri_version(&mut self, socket: &str) -> HostResult<CriVersion> {
        self.cri("version", socket, |runtime, _| runtime.version())
    }
    fn cri_status(&mut self, socket: &str) -> HostResult<CriStatus> {
        self.cri("status", socket, Runtime::status)
    }
    fn cri_sandboxes(&mut self, socket: &str) -> HostResult<Vec<Sandbox>> {
        self.cri("sandboxes", socket, |runtime, _| runtime.sandboxes.clone())
    }
    fn now(&mut self) -> Duration {
        // What was killed waits for nothing, and no time passes on the node by that.
        if self.dead {
            self.after_death += Duration::from_secs(3600);
        }
        self.now + self.after_death
    }
    fn wait(&mut self, duration: Duration) {
        if self.dead {
            return;
        }
        self.now += duration;
        if self.runtime.watches.is_some() {
            self.runtime.start(&mut self.disk);
        }
    }
}
