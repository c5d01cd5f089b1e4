//! `--data-dir`: the file in which a simulated cluster survives the end of its process.
//!
//! The file is replaced as a whole or not at all, and never when it could not be read. What is in it
//! is the simulator's affair.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use simcluster::cluster::Cluster;
use simcluster::state::{State, StateError};
use simcluster::topology::Layout;
use tokio::time::MissedTickBehavior;

/// The state's file in the directory.
const FILE: &str = "state.json";
/// The file that the process which uses the directory holds locked.
const LOCK: &str = "lock";
/// How often the state is written at most, while it changes.
const PERIOD: Duration = Duration::from_secs(2);

/// Why a directory cannot keep a cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDirectoryError {
    #[error("cannot use {path} as --data-dir: {source}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("{0} is in use by another kata-sim: end that one, or give this one another --data-dir")]
    InUse(PathBuf),
    #[error("cannot read {path}: {source}; nothing was changed")]
    Read { path: PathBuf, source: std::io::Error },
    #[error(
        "cannot go on from {path}: {source}; nothing was changed: move the file away to start a new \
         cluster, or give another --data-dir"
    )]
    State { path: PathBuf, source: StateError },
    #[error("cannot write {path}: {source}; the cluster's latest changes are not kept")]
    Write { path: PathBuf, source: std::io::Error },
}

/// How far the state in the file goes: the store's revision, and changes of hosts in this process.
type Mark = (u64, u64);

/// A directory that keeps one cluster, and is this process's alone.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    file: PathBuf,
    written: Mutex<Option<Mark>>,
    /// Held open: the lock ends with the process, however that ends.
    _lock: File,
}

impl DataDirectory {
    /// Takes the directory, which is made if need be, and reads the cluster that it keeps.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<State>), DataDirectoryError> {
        let unusable = |source| DataDirectoryError::Directory { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => DataDirectoryError::InUse(path.to_owned()),
            TryLockError::Error(source) => unusable(source),
        })?;
        let file = path.join(FILE);
        let state = match std::fs::read(&file) {
            Ok(text) => Some(
                State::from_json(&text)
                    .map_err(|source| DataDirectoryError::State { path: file.clone(), source })?,
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(DataDirectoryError::Read { path: file, source }),
        };
        Ok((Self { file, written: Mutex::new(None), _lock: lock }, state))
    }

    /// The file that the state is in.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Says what is wrong with the state that the file holds.
    pub(crate) fn refuse(&self, source: StateError) -> DataDirectoryError {
        DataDirectoryError::State { path: self.file.clone(), source }
    }

    /// Writes the cluster's state, if it has changed.
    pub(crate) fn save(
        &self,
        cluster: &Cluster,
        layout: &Layout,
    ) -> Result<(), DataDirectoryError> {
        let (mark, state) = take(cluster, layout);
        self.write(mark, &state)
    }

    /// Writes the state every few seconds while it changes; never ends.
    pub(crate) async fn keep(self: Arc<Self>, cluster: &Cluster, layout: &Layout) {
        let mut turns = tokio::time::interval(PERIOD);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = None;
        let mut complaint = String::new();
        loop {
            turns.tick().await;
            if known == Some(cluster.with(|simulation, _| mark(simulation))) {
                continue;
            }
            let (mark, state) = take(cluster, layout);
            let directory = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || directory.write(mark, &state)).await;
            match written {
                Ok(Ok(())) => known = Some(mark),
                Ok(Err(error)) if error.to_string() == complaint => {}
                Ok(Err(error)) => {
                    complaint = error.to_string();
                    complain(&complaint);
                }
                // Only a runtime that ends cancels it.
                Err(_) => return,
            }
        }
    }

    fn write(&self, mark: Mark, state: &State) -> Result<(), DataDirectoryError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        // A write that was begun earlier must not replace a later one.
        if written.is_some_and(|last| last >= mark) {
            return Ok(());
        }
        let text = state.to_json().map_err(|source| self.refuse(source))?;
        let temporary = self.file.with_extension("json.new");
        let replace = || {
            let mut new = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                // It holds Secrets.
                .mode(0o600)
                .open(&temporary)?;
            new.write_all(&text)?;
            new.sync_all()?;
            std::fs::rename(&temporary, &self.file)
        };
        replace()
            .map_err(|source| DataDirectoryError::Write { path: self.file.clone(), source })?;
        *written = Some(mark);
        Ok(())
    }
}

fn mark(simulation: &simcluster::Simulation) -> Mark {
    (simulation.api.store.revision(), simulation.world.changes())
}

fn take(cluster: &Cluster, layout: &Layout) -> (Mark, State) {
    cluster.with(|simulation, _| (mark(simulation), State::of(simulation, layout)))
}

#[expect(clippy::print_stderr, reason = "the user must know that the state is not kept")]
fn complain(text: &str) {
    eprintln!("kata-sim: {text}");
}
