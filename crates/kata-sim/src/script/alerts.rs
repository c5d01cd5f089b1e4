//! Which alerts on the conditions of KataConfigs fire, by the rules that `kata_api::conditions::ALERTS` and
//! `deploy/monitoring/alerts.yaml` share.
//!
//! It evaluates no PromQL: a test compares what scripts print with what Prometheus' own `promtool` finds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_api::conditions::{ALERTS, Alert};
use tokio::time::Instant;

use super::words;

/// A condition that is True, and since when.
#[derive(Debug)]
struct Pending {
    since: Instant,
    fires: bool,
}

/// The alerts of the conditions that are True, by KataConfig and type.
#[derive(Debug, Default)]
pub(crate) struct Alerts(BTreeMap<(String, &'static str), Pending>);

impl Alerts {
    /// Updates the conditions that are True, by KataConfig and type. Returns the alerts that begin or end now.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        are_true: &BTreeSet<(&str, &str)>,
    ) -> Vec<String> {
        let mut changes = Vec::new();
        self.0.retain(|(name, type_), pending| {
            let stays = are_true.contains(&(name.as_str(), *type_));
            if !stays && pending.fires {
                changes.push(format!("{name} alert {} is over", alert(type_)));
            }
            stays
        });
        for it in &ALERTS {
            let of_type = are_true.iter().filter(|(_, type_)| *type_ == it.condition);
            for (name, _) in of_type {
                let pending = self
                    .0
                    .entry(((*name).to_owned(), it.condition))
                    .or_insert(Pending { since: now, fires: false });
                if !pending.fires && now.duration_since(pending.since) >= duration(it) {
                    pending.fires = true;
                    changes.push(format!("{name} alert {} fires", it.alert));
                }
            }
        }
        changes
    }
}

fn alert(condition: &str) -> &'static str {
    ALERTS.iter().find(|it| it.condition == condition).map(|it| it.alert).unwrap_or_default()
}

fn duration(alert: &Alert) -> Duration {
    words::span(alert.lasts).unwrap_or(Duration::MAX)
}
