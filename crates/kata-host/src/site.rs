//! Which container runtime a node has, and where its configuration, socket and unit are.
//!
//! The programs that systemd runs say which distribution it is, and CRI says its version. Nothing is guessed from
//! version strings, which distributions change (k3s dropped its name from them). If several container runtimes run,
//! it is the one whose socket the kubelet uses; if that is unknown, it is none.

use crate::host::{Host, HostError};
use crate::paths;

mod kind;
mod layout;
mod services;

pub use kind::{Distribution, Site};
pub(crate) use layout::{K0S_RUN, RANCHER_MAIN};
use services::{Program, Service};

/// Why the container runtime cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// systemd cannot be asked.
    #[error(transparent)]
    Systemd(HostError),
    /// A configuration file that says where things are cannot be read.
    #[error(transparent)]
    File(HostError),
    /// Several container runtimes run, and nothing says which one the kubelet uses.
    #[error("{} run, and nothing says which one the kubelet uses", .units.join(" and "))]
    Several {
        /// Their units.
        units: Vec<String>,
    },
    /// The kubelet uses a socket at which no known container runtime listens.
    #[error("{by} uses the container runtime at {socket}, where {}", describe_listeners(.units))]
    Elsewhere {
        /// The unit of the kubelet, or of the distribution.
        by: String,
        /// The socket.
        socket: String,
        /// The units of the container runtimes that run.
        units: Vec<String>,
    },
}

fn describe_listeners(units: &[String]) -> String {
    if units.is_empty() {
        "no unit of containerd or CRI-O listens".to_owned()
    } else {
        format!("{} does not listen", units.join(" or "))
    }
}

/// Finds the container runtime. `hint` is the Node's `containerRuntimeVersion`, which decides between
/// containerd and CRI-O if both run. `removes` is the drop-in that a removal takes away: the container runtime that
/// reads it is found even if the kubelet uses another one by now.
///
/// # Errors
/// If systemd cannot be asked, a file that counts cannot be read, or it is unknown which one the kubelet uses.
pub fn find(
    host: &mut dyn Host,
    hint: Option<&str>,
    removes: Option<&str>,
) -> Result<Option<Site>, SiteError> {
    let services = services::all(host).map_err(SiteError::Systemd)?;
    // The sandboxes of a distribution that is being started are not known yet.
    let is_starting = runtimes(&services)
        .any(|(service, distribution)| !distribution.is_plain() && service.unit.changing);
    if let Some(drop_in) = removes.filter(|_| !is_starting)
        && let Some(site) = reader(host, &services, drop_in)?
    {
        return Ok(Some(site));
    }
    let runtimes: Vec<(&Service, Distribution)> = runtimes(&services)
        .filter(|(_, distribution)| {
            hint.is_none_or(|hint| {
                (*distribution == Distribution::Crio) == hint.starts_with("cri-o")
            })
        })
        .collect();
    // A plain container runtime beside a distribution that is being started is another one. Whether the
    // distribution's own serves already, CRI says.
    let of_distribution = runtimes.iter().find(|(service, distribution)| {
        !distribution.is_plain() && (service.unit.active || service.unit.changing)
    });
    let kubelet = match of_distribution {
        Some((service, distribution)) => {
            let site = site(host, service, *distribution)?;
            match layout::endpoint(host, service).map_err(SiteError::File)? {
                Some(endpoint) if endpoint != site.socket => Some((&service.name, endpoint)),
                Some(_) | None => return Ok(Some(site)),
            }
        }
        None => {
            let is_active = |it: &&Service| it.program == Program::Kubelet && it.unit.active;
            match services.iter().find(is_active) {
                Some(service) => {
                    let endpoint = layout::endpoint(host, service).map_err(SiteError::File)?;
                    endpoint.map(|endpoint| (&service.name, endpoint))
                }
                None => None,
            }
        }
    };
    let mut plain = Vec::new();
    for (service, distribution) in &runtimes {
        if distribution.is_plain() && service.unit.active {
            plain.push(site(host, service, *distribution)?);
        }
    }
    let units = || plain.iter().filter_map(|site: &Site| site.unit.clone()).collect::<Vec<_>>();
    if let Some((by, socket)) = kubelet {
        return match plain.iter().find(|site| site.socket == socket) {
            Some(site) => Ok(Some(site.clone())),
            None => Err(SiteError::Elsewhere { by: by.clone(), socket, units: units() }),
        };
    }
    match (plain.as_slice(), runtimes.as_slice()) {
        ([site], _) => Ok(Some(site.clone())),
        // None is active. A single one that is there may be down because of its configuration.
        ([], [(service, distribution)]) => site(host, service, *distribution).map(Some),
        ([], _) => Ok(None),
        _ => Err(SiteError::Several { units: units() }),
    }
}

fn runtimes(services: &[Service]) -> impl Iterator<Item = (&Service, Distribution)> {
    services.iter().filter_map(|service| match service.program {
        Program::Runtime(distribution) => Some((service, distribution)),
        Program::Kubelet => None,
    })
}

fn site(
    host: &mut dyn Host,
    service: &Service,
    distribution: Distribution,
) -> Result<Site, SiteError> {
    layout::site(host, service, distribution).map_err(SiteError::File)
}

/// The running container runtime in whose folder a drop-in is.
fn reader(
    host: &mut dyn Host,
    services: &[Service],
    drop_in: &str,
) -> Result<Option<Site>, SiteError> {
    for (service, distribution) in runtimes(services).filter(|(service, _)| service.unit.active) {
        let site = site(host, service, distribution)?;
        let folders = [paths::parent(&site.main), &site.drop_ins];
        if folders.iter().any(|folder| drop_in.starts_with(&format!("{folder}/"))) {
            return Ok(Some(site));
        }
    }
    Ok(None)
}
