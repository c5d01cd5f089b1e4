//! The command line of the node agent and of the probe: what was typed, what is printed, and the exit code.
//! `kata-operator` has these commands as its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use kata_api::error_text::chain;
use kata_api::node_task::Outcome;
use kata_host::PodName;

use crate::AgentError;
use crate::probe;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// What another probe printed: end with 1 if this one runs on the same kernel.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Stay for so long after printing, so that the sandbox can be looked at.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub hold: u64,
}

/// What the node agent is to do.
#[derive(Debug, Subcommand)]
pub enum NodeAgentCommand {
    /// Copy this binary, so that a container of another image can start it.
    SelfCopy {
        /// Where to.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// A directory to make as well, in which another container mounts something.
        #[arg(long, value_name = "DIR")]
        make: Vec<PathBuf>,
    },
    /// Take the payload out of the image that this runs in, and stage it on the node.
    Stage {
        /// What the Job asks for.
        #[arg(long, value_name = "JSON")]
        task: String,
        /// Where the node's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
        /// Where the image's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        image_root: PathBuf,
    },
    /// Carry a task out, and report in one line of JSON.
    Run {
        /// What the Job asks for.
        #[arg(long, value_name = "JSON")]
        task: String,
        /// Where the node's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
        /// Print what would be done as a diff, and change nothing.
        #[arg(long)]
        plan: bool,
    },
    /// Print the sandbox of a pod and its processes, as JSON. Changes nothing.
    Sandbox {
        /// The pod's namespace.
        #[arg(long, value_name = "NAME")]
        namespace: String,
        /// The pod's name.
        #[arg(long, value_name = "NAME")]
        pod: String,
        /// The pod's uid, as the container runtime knows it.
        #[arg(long)]
        uid: String,
        /// Where the node's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
    },
    /// Say whether a device of this node can be used by sandboxes.
    #[command(hide = true)]
    Device {
        /// kvm, vhost-vsock or vhost-net.
        name: String,
    },
}

/// The exit codes of `kata-operator` that these commands use.
#[derive(Clone, Copy)]
enum Exit {
    Fine = 0,
    Failed = 1,
    Usage = 2,
    Refused = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl NodeAgentCommand {
    /// Does what was asked for, and prints the result or why there is none.
    pub fn execute(self) -> ExitCode {
        let done = match self {
            Self::SelfCopy { to, make } => crate::self_copy(&to)
                .and_then(|()| crate::self_copy::make(&make))
                .map(|()| Exit::Fine)
                .map_err(AgentError::from),
            Self::Stage { task, host_root, image_root } => crate::task(&task)
                .and_then(|task| crate::stage(&task, &host_root, &image_root))
                .map(|said| print(&(said + "\n"))),
            Self::Run { task, host_root, plan: true } => crate::task(&task)
                .and_then(|task| crate::plan(&task, &host_root))
                .map(|said| print(&said)),
            Self::Run { task, host_root, plan: false } => crate::task(&task)
                .and_then(|task| crate::run(&task, &host_root))
                .map(|report| match report.outcome {
                    Outcome::Done => Exit::Fine,
                    Outcome::Refused | Outcome::Blocked => Exit::Refused,
                    Outcome::Drifted | Outcome::RolledBack | Outcome::Unsafe | Outcome::Failed => {
                        Exit::Failed
                    }
                }),
            Self::Sandbox { namespace, pod, uid, host_root } => {
                let pod = PodName { namespace: &namespace, name: &pod, uid: &uid };
                crate::show_sandbox(&pod, &host_root).map(|()| Exit::Fine)
            }
            Self::Device { name } => crate::device(&name).map(|()| Exit::Fine),
        };
        let exit = match done {
            Ok(exit) => exit,
            Err(error @ (AgentError::Task { .. } | AgentError::Name { .. })) => {
                complain(Exit::Usage, &error)
            }
            Err(error @ AgentError::NoPlan { .. }) => complain(Exit::Refused, &error),
            Err(AgentError::Stage(error)) if error.of_image().is_some() => {
                complain(Exit::Refused, &error)
            }
            Err(error) => complain(Exit::Failed, &error),
        };
        exit.into()
    }
}

impl ProbeArguments {
    /// Prints the facts, compares them and stays, as was asked for.
    pub fn execute(self) -> ExitCode {
        self.probe().into()
    }

    fn probe(self) -> Exit {
        let line = match probe::line() {
            Ok(line) => line,
            Err(error) => return complain(Exit::Failed, &error),
        };
        let mut out = std::io::stdout().lock();
        if let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            return complain(Exit::Failed, &error);
        }
        let exit = match self.compare.map(probe::differs_from) {
            None | Some(Ok(true)) => Exit::Fine,
            Some(Ok(false)) => Exit::Failed,
            Some(Err(error)) => return complain(Exit::Failed, &error),
        };
        if self.hold > 0 {
            probe::hold(Duration::from_secs(self.hold));
        }
        exit
    }
}

fn print(text: &str) -> Exit {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => Exit::Fine,
        // The reader of the output has closed it.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Fine,
        Err(error) => complain(Exit::Failed, &error),
    }
}

fn complain(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Exit {
    // If standard error is closed, nothing can be reported any more.
    match writeln!(std::io::stderr().lock(), "error: {}", chain(error)) {
        Ok(()) | Err(_) => exit,
    }
}
