//! Which alerts on the conditions of KataConfigs fire, by the rules that `kata_api::conditions::ALERTS` and
//! `deploy/monitoring/alerts.yaml` share.
//!
//! It evaluates no PromQL: a test compares what scripts print with what Prometheus' own `promtool` finds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_api::conditions::{ALERTS, Alert};
use tokio::time::Instant;

use super::words;

/// Since when a condition has had the status of an alert.
#[derive(Debug)]
struct Pending {
    since: Instant,
    fires: bool,
}

/// The alerts whose conditions have their status, by KataConfig and alert.
#[derive(Debug, Default)]
pub(crate) struct Alerts(BTreeMap<(String, &'static str), Pending>);

impl Alerts {
    /// Updates the conditions, each with KataConfig, type and status. Returns the alerts that begin or end now.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        conditions: &BTreeSet<(&str, &str, &str)>,
    ) -> Vec<String> {
        let mut changes = Vec::new();
        let mut over = std::mem::take(&mut self.0);
        for alert in &ALERTS {
            let has_status =
                |it: &&(&str, &str, &str)| (it.1, it.2) == (alert.condition, alert.status);
            for (name, ..) in conditions.iter().filter(has_status) {
                let key = ((*name).to_owned(), alert.alert);
                let mut pending = over.remove(&key).unwrap_or(Pending { since: now, fires: false });
                if !pending.fires && now.duration_since(pending.since) >= duration(alert) {
                    pending.fires = true;
                    changes.push(format!("{name} alert {} fires", alert.alert));
                }
                self.0.insert(key, pending);
            }
        }
        let ended = over.into_iter().filter(|(_, pending)| pending.fires);
        let ended = ended.map(|((name, alert), _)| format!("{name} alert {alert} is over"));
        ended.chain(changes).collect()
    }
}

fn duration(alert: &Alert) -> Duration {
    words::span(alert.lasts).unwrap_or(Duration::MAX)
}
