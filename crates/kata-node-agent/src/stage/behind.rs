//! What goes on behind the writer of files: they are hashed, and large ones are on their way to the disk,
//! while the next ones are read.
//!
//! Makes nothing durable: the caller that relies on the files syncs them, and finds most of it done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use kata_host::digest;
use sha2::{Digest as _, Sha256};

/// Bytes of a block.
pub(super) const BLOCK: usize = 1 << 19;
/// Blocks that may be written and not hashed yet.
const AHEAD: usize = 16;
/// Files of at least so many bytes are sent to the disk by themselves. Of small ones a file system writes
/// many at once, later.
const LARGE: u64 = 1 << 20;
/// Files that may be on their way to the disk.
const IN_FLIGHT: usize = 64;

/// SHA-256 by path.
pub(super) type Digests = BTreeMap<PathBuf, String>;

/// Something that was done to a file, in the order in which it was done.
enum Piece {
    /// So many bytes of a block were appended to the file that is being written.
    Block(Vec<u8>, usize),
    /// That file is complete, and this is its path.
    File(PathBuf),
    /// A file has got another path.
    Link { from: PathBuf, to: PathBuf },
    /// What was at the path is gone.
    Gone(PathBuf),
}

/// A file that could not be written to the disk.
pub(super) type Lost = (PathBuf, io::Error);

/// The two threads behind a writer. If one of them cannot be had, its work is left to the caller that seals the
/// files, which reads and syncs what is not done.
#[derive(Debug)]
pub(super) struct Behind {
    done: SyncSender<Piece>,
    used: Receiver<Vec<u8>>,
    hashing: Option<JoinHandle<Digests>>,
    to_disk: SyncSender<(PathBuf, File)>,
    writing: Option<JoinHandle<Option<Lost>>>,
}

impl Behind {
    /// Starts both.
    pub(super) fn start() -> Self {
        let (done, pieces) = sync_channel(AHEAD);
        let (give_back, used) = channel();
        let hashing = Builder::new().name("hash".to_owned()).spawn(move || {
            let mut digests = Digests::new();
            let mut hash = Sha256::new();
            for piece in pieces {
                match piece {
                    Piece::Block(block, length) => {
                        hash.update(block.get(..length).unwrap_or_default());
                        // The writer that fills blocks may have failed, and wants none back.
                        drop(give_back.send(block));
                    }
                    Piece::File(path) => {
                        digests.insert(path, digest::text(&hash.finalize_reset()));
                    }
                    Piece::Link { from, to } => {
                        if let Some(digest) = digests.get(&from).cloned() {
                            digests.insert(to, digest);
                        }
                    }
                    Piece::Gone(path) => {
                        digests.remove(&path);
                    }
                }
            }
            digests
        });
        let (to_disk, files) = sync_channel::<(PathBuf, File)>(IN_FLIGHT);
        let writing = Builder::new().name("disk".to_owned()).spawn(move || {
            let lost = |(path, file): (PathBuf, File)| Some((path, file.sync_data().err()?));
            files.into_iter().filter_map(lost).reduce(|first, _| first)
        });
        Self { done, used, hashing: hashing.ok(), to_disk, writing: writing.ok() }
    }

    /// A block to fill.
    pub(super) fn block(&self) -> Vec<u8> {
        self.used.try_recv().unwrap_or_else(|_none| vec![0; BLOCK])
    }

    /// Hashes the first bytes of a block that was appended to the file that is being written.
    pub(super) fn wrote(&self, block: Vec<u8>, length: usize) {
        self.send(Piece::Block(block, length));
    }

    /// The file is complete.
    pub(super) fn complete(&self, path: PathBuf, file: File, bytes: u64) {
        if bytes >= LARGE {
            // If there are many of them already, this one waits for the caller that syncs all.
            drop(self.to_disk.try_send((path.clone(), file)));
        }
        self.send(Piece::File(path));
    }

    /// A file has got another path.
    pub(super) fn linked(&self, from: PathBuf, to: PathBuf) {
        self.send(Piece::Link { from, to });
    }

    /// What was at the path is gone.
    pub(super) fn gone(&self, path: PathBuf) {
        self.send(Piece::Gone(path));
    }

    fn send(&self, piece: Piece) {
        // Without that thread there are no digests, and the files are read again.
        drop(self.done.send(piece));
    }

    /// Waits for both: the SHA-256 of every file.
    ///
    /// # Errors
    /// If the disk did not take a file.
    pub(super) fn finish(self) -> Result<Digests, Lost> {
        let Self { done, used: _, hashing, to_disk, writing } = self;
        drop((done, to_disk));
        let digests = hashing.and_then(|thread| thread.join().ok()).unwrap_or_default();
        match writing.and_then(|thread| thread.join().ok()).flatten() {
            Some(lost) => Err(lost),
            None => Ok(digests),
        }
    }
}
