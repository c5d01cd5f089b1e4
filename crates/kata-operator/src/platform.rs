//! Detects the kind of cluster, and reports one on which this version cannot install Kata.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kata_api::platform::Platform;
use kata_api::{Code, KataConfig, KataConfigStatus, conditions, machine_config};
use kata_plan::{EventToSend, Finding, Kind, ObjectRef, Report, StatusReport, with_findings};
use serde::Deserialize;

use crate::client::Client;
use crate::error::CallError;

/// The Machine Config Operator's kinds that the decision reads. A hosted control plane may serve others of their group.
const MCO_KINDS: [&str; 3] = ["containerruntimeconfigs", "machineconfigpools", "machineconfigs"];

/// The group that OpenShift serves from its first minute on.
const OPENSHIFT_GROUP: &str = "config.openshift.io";

/// The most bytes of a KataConfig's name that the name of an Event contains.
const MAX_NAME_BYTES: usize = 220;

/// The kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// The Machine Config Operator's kinds are served.
    Openshift,
    /// Neither these kinds nor OpenShift's configuration are served: no other operator changes the nodes.
    Kubernetes,
    /// OpenShift's configuration or a part of the Machine Config Operator's kinds is served, and not all of these, or not
    /// yet.
    Unsupported,
}

impl Detected {
    /// The name as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openshift => Platform::Openshift.as_str(),
            Self::Kubernetes => Platform::Kubernetes.as_str(),
            Self::Unsupported => "unsupported",
        }
    }

    /// The back end that changes the nodes; `None` if none may.
    pub fn platform(self) -> Option<kata_plan::Platform> {
        match self {
            Self::Openshift => Some(kata_plan::Platform::OpenShift),
            Self::Kubernetes => Some(kata_plan::Platform::Kubernetes),
            Self::Unsupported => None,
        }
    }
}

#[derive(Deserialize)]
struct GroupList {
    // Required: an answer without groups is invalid.
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
}

#[derive(Deserialize)]
struct KindList {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
}

/// Detects the kind of cluster, unless the settings name it.
///
/// # Errors
/// If the API groups cannot be read.
pub async fn detect(client: &Client, platform: Platform) -> Result<Detected, CallError> {
    match platform {
        Platform::Openshift => return Ok(Detected::Openshift),
        Platform::Kubernetes => return Ok(Detected::Kubernetes),
        Platform::Auto => {}
    }
    let list: GroupList = client.get_document("/apis").await?;
    let served = |name: &str| list.groups.iter().any(|group| group.name == name);
    let has_group = served(machine_config::GROUP);
    Ok(if has_group && serves_mco_kinds(client).await? {
        Detected::Openshift
    } else if has_group || served(OPENSHIFT_GROUP) {
        // A Machine Config Operator may still start, and two operators must not change the same nodes.
        Detected::Unsupported
    } else {
        Detected::Kubernetes
    })
}

/// Whether all of [`MCO_KINDS`] are served.
async fn serves_mco_kinds(client: &Client) -> Result<bool, CallError> {
    let path = format!("/apis/{}/v1", machine_config::GROUP);
    let list = match client.get_document::<KindList>(&path).await {
        Err(error) if error.is_not_found() => return Ok(false),
        answer => answer?,
    };
    let served = |kind: &str| list.resources.iter().any(|served| served.name == kind);
    Ok(MCO_KINDS.into_iter().all(served))
}

/// The report on OpenShift without the Machine Config Operator: every KataConfig is Stalled, and no node
/// changes. `configs` has none of another installation.
pub fn report_without_mco(configs: &[KataConfig], now: Timestamp) -> Report {
    let mut statuses: Vec<StatusReport> =
        configs.iter().map(|config| unsupported_status(config, now)).collect();
    statuses.sort_by(|one, two| one.config.cmp(&two.config));
    let entry = Code::PlatformUnsupported.entry();
    let events = statuses.iter().filter(|status| status.needs_write).map(|status| EventToSend {
        // One Event for each generation, even if the status cannot be written.
        name: format!(
            "{}.{}-{}-{}",
            status.config.name.get(..MAX_NAME_BYTES).unwrap_or(&status.config.name),
            entry.code.to_ascii_lowercase(),
            status.config.uid.as_deref().and_then(|uid| uid.get(..8)).unwrap_or("0"),
            status.status.observed_generation.unwrap_or_default()
        ),
        regarding: status.config.clone(),
        related: None,
        warning: true,
        reason: entry.reason.to_owned(),
        action: "Reconcile".to_owned(),
        note: format!("{}: {} {}", entry.code, entry.cause, entry.fix),
    });
    let events = events.collect();
    let findings = statuses.iter().map(|status| unsupported(status.config.clone()));
    Report { findings: findings.collect(), other_configs: statuses, events, ..Report::default() }
}

fn unsupported(config: ObjectRef) -> Finding {
    let code = Code::PlatformUnsupported;
    Finding::new(code, config, code.entry().cause.to_owned())
}

fn unsupported_status(config: &KataConfig, now: Timestamp) -> StatusReport {
    let entry = Code::PlatformUnsupported.entry();
    let current = config.status.clone().unwrap_or_default();
    let generation = config.metadata.generation;
    let condition = |type_: &str, status: &str| {
        let since = current
            .conditions
            .iter()
            .find(|known| known.type_ == type_ && known.status == status)
            .map_or(Time(now), |known| known.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: entry.reason.to_owned(),
            message: format!("{}: {} {}", entry.code, entry.cause, entry.fix),
            observed_generation: generation,
            last_transition_time: since,
        }
    };
    let status = KataConfigStatus {
        observed_generation: generation,
        conditions: vec![
            condition(conditions::IN_PROGRESS, "False"),
            condition(conditions::READY, "False"),
            condition(conditions::STALLED, "True"),
        ],
        ..KataConfigStatus::default()
    };
    let name = config.metadata.name.clone().unwrap_or_default();
    let object = ObjectRef::new(Kind::KataConfig, name, config.metadata.uid.as_deref());
    let status = with_findings(status, &[unsupported(object.clone())]);
    let needs_write = config.status.as_ref().is_none_or(|known| {
        known.observed_generation != status.observed_generation
            || known.conditions != status.conditions
            || known.findings != status.findings
    });
    let config = object;
    StatusReport { config, status, needs_write }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_mco_is_reported_once_and_nothing_else_happens() {
        let mut config = KataConfig::new("c", kata_api::KataConfigSpec::default());
        config.metadata.generation = Some(2);
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let report = report_without_mco(std::slice::from_ref(&config), now);
        let warnings: Vec<_> =
            report.events.iter().map(|event| (event.warning, event.reason.as_str())).collect();
        assert_eq!(warnings, [(true, "PlatformUnsupported")]);
        let status = &report.other_configs[0];
        assert!(status.needs_write);
        let ready = status.status.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", "PlatformUnsupported")
        );
        assert!(ready.message.starts_with("KATA1018: "), "{}", ready.message);

        config.status = Some(status.status.clone());
        let later = "2026-01-01T01:00:00Z".parse().unwrap();
        let again = report_without_mco(&[config], later);
        assert!(!again.other_configs[0].needs_write);
        assert!(again.events.is_empty());
    }
}
