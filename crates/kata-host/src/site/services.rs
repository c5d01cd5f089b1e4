//! The services of a node that are container runtimes or kubelets, by the program that they run: what their units are
//! called is up to whoever installed them.

use std::collections::BTreeMap;

use super::kind::Distribution;
use crate::environment;
use crate::host::{Host, HostResult, Unit};
use crate::paths;

/// What a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Runtime(Distribution),
    Kubelet,
}

/// A service that is a container runtime or a kubelet.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) unit: Unit,
}

impl Service {
    /// The words of its command, and its variables.
    pub(super) fn command(
        &self,
        host: &mut dyn Host,
    ) -> HostResult<(Vec<String>, BTreeMap<String, String>)> {
        let variables = environment::variables(host, &self.unit)?;
        Ok((environment::command(&self.unit, &variables), variables))
    }
}

/// The usual units in the order in which they count: those of a distribution before plain ones. They are looked for
/// even if they do not run.
const UNITS: [(&str, Program); 10] = [
    ("rke2-agent.service", Program::Runtime(Distribution::Rke2)),
    ("rke2-server.service", Program::Runtime(Distribution::Rke2)),
    ("k3s-agent.service", Program::Runtime(Distribution::K3s)),
    ("k3s.service", Program::Runtime(Distribution::K3s)),
    ("k0sworker.service", Program::Runtime(Distribution::K0s)),
    ("k0scontroller.service", Program::Runtime(Distribution::K0s)),
    ("snap.microk8s.daemon-containerd.service", Program::Runtime(Distribution::Microk8s)),
    ("containerd.service", Program::Runtime(Distribution::Containerd)),
    ("crio.service", Program::Runtime(Distribution::Crio)),
    ("kubelet.service", Program::Kubelet),
];

/// All of them.
pub(super) fn all(host: &mut dyn Host) -> HostResult<Vec<Service>> {
    let mut services = Vec::new();
    for (name, program) in UNITS {
        if let Some(unit) = host.unit(name)? {
            services.push(Service { name: name.to_owned(), program, unit });
        }
    }
    for (name, unit) in host.services()? {
        if let Some(program) = program(&unit.command)
            && !UNITS.iter().any(|(usual, _)| *usual == name)
        {
            services.push(Service { name, program, unit });
        }
    }
    Ok(services)
}

/// What a command runs: the program, which may be behind `env` or a shell, and what it is told to be.
fn program(command: &[String]) -> Option<Program> {
    let mut words = command.iter().map(|word| paths::name(word));
    let first = words.next()?;
    let told = |known: &[&str]| command.iter().skip(1).any(|word| known.contains(&word.as_str()));
    Some(match first {
        "kubelet" => Program::Kubelet,
        "containerd" => Program::Runtime(Distribution::Containerd),
        "crio" => Program::Runtime(Distribution::Crio),
        "k3s" if told(&["agent", "server"]) => Program::Runtime(Distribution::K3s),
        "rke2" if told(&["agent", "server"]) => Program::Runtime(Distribution::Rke2),
        "k0s" if told(&["worker", "controller", "single"]) => Program::Runtime(Distribution::K0s),
        "env" | "sh" | "bash" => {
            let rest = command.iter().skip(1).flat_map(|word| word.split_whitespace());
            let known = ["kubelet", "containerd", "crio", "k3s", "rke2", "k0s"];
            let rest: Vec<String> = rest
                .skip_while(|word| !known.contains(&paths::name(word)))
                .map(str::to_owned)
                .collect();
            program(&rest)?
        }
        _ => return None,
    })
}
