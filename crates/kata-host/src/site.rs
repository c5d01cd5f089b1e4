//! Which container runtime a node has, and where its configuration, socket and unit are.
//!
//! The services of systemd say which distribution it is, whatever their units are called; its version comes from
//! CRI. Nothing is guessed from version strings, which distributions change (k3s dropped its name from them).
//! Where several container runtimes run, it is the one to whose socket the kubelet is pointed, or none.

use crate::host::{Host, HostError};
use crate::paths;

mod kind;
mod layout;
mod services;

pub use kind::{Distribution, Site};
pub(crate) use layout::{K0S_RUN, RANCHER_MAIN};
use services::Program;

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
    /// The kubelet is pointed to a socket at which no container runtime listens that is known.
    #[error("{by} points to the container runtime at {socket}, where {}", others(.units))]
    Elsewhere {
        /// The unit of the kubelet, or of the distribution.
        by: String,
        /// The socket.
        socket: String,
        /// The units of the container runtimes that run.
        units: Vec<String>,
    },
}

fn others(units: &[String]) -> String {
    if units.is_empty() {
        "no unit of containerd or CRI-O listens".to_owned()
    } else {
        format!("{} does not listen", units.join(" or "))
    }
}

/// Finds the container runtime. `hint` is the Node's `containerRuntimeVersion`, which decides between
/// containerd and CRI-O if both run; `ours` is our drop-in, which decides if Kata is installed.
///
/// # Errors
/// If systemd cannot be asked, a file that counts cannot be read, or nothing says which one it is.
pub fn find(
    host: &mut dyn Host,
    hint: Option<&str>,
    ours: Option<&str>,
) -> Result<Option<Site>, SiteError> {
    let services = services::all(host).map_err(SiteError::Systemd)?;
    let mut runtimes = Vec::new();
    for service in &services {
        if let Program::Runtime(distribution) = service.program
            && hint.is_none_or(|hint| {
                (distribution == Distribution::Crio) == hint.starts_with("cri-o")
            })
        {
            runtimes.push((service, distribution));
        }
    }
    // A plain one beside a distribution that is being started is another runtime. Whether the distribution's
    // serves already is what CRI tells.
    let of_distribution = runtimes.iter().find(|(service, distribution)| {
        !distribution.is_plain() && (service.unit.active || service.unit.changing)
    });
    let mut endpoint = None;
    if let Some((service, distribution)) = of_distribution {
        let site = layout::site(host, service, *distribution).map_err(SiteError::File)?;
        endpoint = layout::endpoint(host, service).map_err(SiteError::File)?;
        if endpoint.as_ref().is_none_or(|endpoint| *endpoint == site.socket) {
            return Ok(Some(site));
        }
    }
    let mut by = of_distribution.map(|(service, _)| service.name.clone());
    if let (None, Some(kubelet)) =
        (&by, services.iter().find(|it| it.program == Program::Kubelet && it.unit.active))
    {
        endpoint = layout::endpoint(host, kubelet).map_err(SiteError::File)?;
        by = Some(kubelet.name.clone());
    }
    let mut plain = Vec::new();
    for (service, distribution) in &runtimes {
        if distribution.is_plain() && service.unit.active {
            plain.push(layout::site(host, service, *distribution).map_err(SiteError::File)?);
        }
    }
    let units = || plain.iter().filter_map(|site: &Site| site.unit.clone()).collect::<Vec<_>>();
    if let (Some(by), Some(socket)) = (by, endpoint) {
        if let Some(site) = plain.iter().find(|site| site.socket == socket) {
            return Ok(Some(site.clone()));
        }
        return Err(SiteError::Elsewhere { by, socket, units: units() });
    }
    let has_ours =
        |site: &&Site| ours.is_some_and(|ours| ours.starts_with(paths::parent(&site.main)));
    match plain.as_slice() {
        [] => {}
        [site] => return Ok(Some(site.clone())),
        several => {
            let ours = several.iter().find(has_ours).cloned();
            return ours.map(Some).ok_or_else(|| SiteError::Several { units: units() });
        }
    }
    // None is active. A single one that is there may be down because of its configuration.
    match runtimes.as_slice() {
        [(service, distribution)] => {
            layout::site(host, service, *distribution).map(Some).map_err(SiteError::File)
        }
        _ => Ok(None),
    }
}
