//! The services of a node that are container runtimes or kubelets. A service is recognized by the program that it
//! runs, because its unit may have any name.

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
    /// The words of its command from the program on, and its variables.
    pub(super) fn command(
        &self,
        host: &mut dyn Host,
    ) -> HostResult<(Vec<String>, BTreeMap<String, String>)> {
        let variables = environment::variables(host, &self.unit)?;
        let command = environment::command(&self.unit, &variables);
        Ok((unwrapped(&command).unwrap_or(command), variables))
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

/// The container runtimes and kubelets among the node's services.
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

/// The program that a command runs, possibly through `env` or a shell, and for a program with several roles, its role.
fn program(command: &[String]) -> Option<Program> {
    let command = unwrapped(command)?;
    let (first, arguments) = command.split_first()?;
    let has_role = |roles: &[&str]| arguments.iter().any(|word| roles.contains(&word.as_str()));
    Some(match paths::name(first) {
        "kubelet" => Program::Kubelet,
        "containerd" => Program::Runtime(Distribution::Containerd),
        "crio" => Program::Runtime(Distribution::Crio),
        "k3s" if has_role(&["agent", "server"]) => Program::Runtime(Distribution::K3s),
        "rke2" if has_role(&["agent", "server"]) => Program::Runtime(Distribution::Rke2),
        "k0s" if has_role(&["worker", "controller"]) => Program::Runtime(Distribution::K0s),
        _ => return None,
    })
}

const PROGRAMS: [&str; 6] = ["kubelet", "containerd", "crio", "k3s", "rke2", "k0s"];

/// A command from one of [`PROGRAMS`] on, without `env` or a shell before it; `None` if it runs none of them.
fn unwrapped(command: &[String]) -> Option<Vec<String>> {
    let is_program = |word: &str| PROGRAMS.contains(&paths::name(word));
    let first = command.first()?;
    if is_program(first) {
        return Some(command.to_vec());
    }
    if !["env", "sh", "bash"].contains(&paths::name(first)) {
        return None;
    }
    let words = command.iter().flat_map(|word| word.split_whitespace());
    let words: Vec<String> =
        words.skip_while(|word| !is_program(word)).map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}
