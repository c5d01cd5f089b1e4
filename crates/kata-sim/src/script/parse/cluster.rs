//! The command `cluster`: what the simulated cluster is made of.

use simcluster::topology::Layout;
use simcluster::world::Platform;

use crate::script::command::{Command, Mistake, Verb};
use crate::script::words::number;

/// Takes the cluster's layout out of the commands; it is built before anything else happens.
pub(crate) fn layout(mut commands: Vec<Command>) -> Result<(Layout, Vec<Command>), Mistake> {
    let mut layout = None;
    let mut begun = false;
    for command in &mut commands {
        match &command.verb {
            Verb::Comment => {}
            Verb::Cluster(wanted) => {
                if begun {
                    let problem = "there is a cluster already: let `cluster` be the first command";
                    return Err((command.line, problem.to_owned()));
                }
                layout = Some(Layout::clone(wanted));
                begun = true;
            }
            _ => begun = true,
        }
    }
    Ok((layout.unwrap_or_default(), commands))
}

/// The options of the command.
pub(super) fn options(options: &[&str]) -> Result<Verb, String> {
    let mut layout = Layout::default();
    for option in options {
        match option.split_once('=') {
            Some(("platform", platform)) => layout.platform = platform.parse()?,
            Some(("control-plane", count)) => layout.control_plane = number(count)?,
            Some(("workers", count)) => layout.workers = number(count)?,
            Some(("runtime", runtime)) => layout.runtimes = vec![runtime.parse()?],
            None if *option == "compact" => {
                layout.compact = true;
                layout.workers = 0;
            }
            _ => {
                return Err(format!(
                    "unknown option {option:?}: give platform=openshift|kubernetes, control-plane=N, \
                     workers=N, compact or runtime=crio|containerd-1.7|containerd-2|k3s"
                ));
            }
        }
    }
    if !(1..=9).contains(&layout.control_plane) || layout.workers > 10_000 {
        return Err("give 1 to 9 control-plane nodes and at most 10000 workers".to_owned());
    }
    if !layout.runtimes.is_empty() && layout.platform == Platform::OpenShift {
        return Err("runtime= needs platform=kubernetes: OpenShift has CRI-O".to_owned());
    }
    Ok(Verb::Cluster(Box::new(layout)))
}
