//! What the node agent must come through, counted: ends of its process at every call, installs and removals
//! in a loop, and inputs for its parsers.
//!
//! The nodes are in memory; the decision that runs on them is the node agent's own. Nothing is judged here
//! that `hostlab` does not judge.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hostlab::parsers::{PARSERS, Parser, replay};
use hostlab::sweep::{self, Sweep};
use kata_node_agent::cri::{decode, message};
use kata_node_agent::stage;
use kata_node_agent::systemd::wire::Reader;
use serde::{Deserialize, Serialize};

/// How much is tried besides the crash points, which are always all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Installs and removals on each of the eight kinds of node.
    pub loops: u64,
    /// Variants of each seed of a parser.
    pub variants: u64,
}

impl Extent {
    /// What a whole run tries.
    pub const WHOLE: Self = Self { loops: 500, variants: 5_000 };
    /// What is tried with each commit.
    pub const SAMPLE: Self = Self { loops: 20, variants: 100 };
}

/// What was tried, and what went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCounts {
    /// Points at which the agent's process was ended: before and after every call of an install, an
    /// upgrade, a repair, a way back and a removal, with and without a loss of power, on eight kinds of
    /// node, and of a take-over of kata-deploy and its way back on two.
    pub crash_points: u64,
    /// Installs followed by removals, on all kinds of node together, after which everything on the disk was as before.
    pub loops: u64,
    /// Inputs that parsers were given, seeds and variants of them.
    pub fuzz_inputs: u64,
    /// How many of these went wrong.
    pub failures: u64,
    /// A sentence for each of the first that went wrong.
    pub broken: Vec<String>,
    /// Seconds that it took.
    pub seconds: u64,
}

/// How many failures are named.
const NAMED: usize = 40;

/// The parsers of the operator's binary that read what others wrote.
pub const PARSERS_OF_THE_AGENT: [Parser; 3] = [
    Parser { name: "cri_message", parse: cri_message },
    Parser { name: "dbus_message", parse: dbus_message },
    Parser { name: "shim_components", parse: shim_components },
];

/// An answer of CRI, in its frame of gRPC.
pub fn cri_message(bytes: &[u8]) -> String {
    format!(
        "{:?}\n{:?}\n{:?}",
        decode::<message::StatusResponse>(bytes),
        decode::<message::ListPodSandboxResponse>(bytes),
        decode::<message::VersionResponse>(bytes)
    )
}

/// Values in a message of systemd.
pub fn dbus_message(bytes: &[u8]) -> String {
    let command = Reader::new(bytes).first_command();
    let mut reader = Reader::new(bytes);
    let variant = reader.variant_string();
    format!("{command:?}\n{variant:?}\n{:?}", reader.string())
}

/// kata-deploy's list of components.
pub fn shim_components(bytes: &[u8]) -> String {
    let shims = ["qemu".to_owned()];
    match stage::components(&String::from_utf8_lossy(bytes), &shims, "x86_64") {
        Ok(names) => format!("{names:?}"),
        Err(error) => error.to_string(),
    }
}

/// What is gone through, in pieces that can be done at the same time.
#[derive(Clone, Copy)]
enum Piece {
    Crashes(fn() -> Sweep),
    Loops,
    Inputs(Parser),
}

/// Goes through everything; `root` is the repository, in which the seeds are.
pub fn run(root: &Path, extent: Extent, threads: usize) -> AgentCounts {
    let begun = Instant::now();
    let crashes = [
        sweep::install,
        sweep::upgrade,
        sweep::repair,
        sweep::rollback,
        sweep::removal,
        sweep::take_over,
    ];
    let parsers = PARSERS.into_iter().chain(PARSERS_OF_THE_AGENT).map(Piece::Inputs);
    let pieces: Vec<Piece> =
        crashes.into_iter().map(Piece::Crashes).chain([Piece::Loops]).chain(parsers).collect();
    let next = AtomicUsize::new(0);
    let folder = root.join("fuzz/corpus");
    let mut counts = AgentCounts::default();
    std::thread::scope(|scope| {
        let work = || {
            let mut mine = AgentCounts::default();
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                mine.add(*piece, extent, &folder);
            }
            mine
        };
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            counts.plus(worker.join().unwrap_or_else(|_panic| {
                let broken = vec!["a sweep ended by a panic".to_owned()];
                AgentCounts { failures: 1, broken, ..AgentCounts::default() }
            }));
        }
    });
    counts.broken.sort_unstable();
    counts.broken.truncate(NAMED);
    counts.seconds = begun.elapsed().as_secs();
    counts
}

impl AgentCounts {
    fn add(&mut self, piece: Piece, extent: Extent, folder: &Path) {
        let (sum, Sweep { points, failures }) = match piece {
            Piece::Crashes(sweep) => (&mut self.crash_points, sweep()),
            Piece::Loops => (&mut self.loops, sweep::loops(extent.loops)),
            Piece::Inputs(parser) => {
                let (points, failures) = replay(folder, &parser, extent.variants);
                (&mut self.fuzz_inputs, Sweep { points, failures })
            }
        };
        *sum += points;
        self.failures += u64::try_from(failures.len()).unwrap_or(u64::MAX);
        self.broken.extend(failures);
    }

    fn plus(&mut self, other: Self) {
        self.crash_points += other.crash_points;
        self.loops += other.loops;
        self.fuzz_inputs += other.fuzz_inputs;
        self.failures += other.failures;
        self.broken.extend(other.broken);
    }
}
