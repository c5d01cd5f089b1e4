//! The promises about what the user is told: a status is well-formed and bounded, and what is not done has
//! a reason.
//!
//! Like its parent it reads the snapshot and the report alone, and shares no judgement with the decision.

use std::collections::BTreeSet;

use kata_api::conditions;
use kata_api::kata_config::LIST_CAP;

use super::{Checker, Property};
use crate::report::{Decision, StatusReport};

impl Checker<'_> {
    pub(super) fn status(&mut self, report: &StatusReport) {
        let status = &report.status;
        let mut types = BTreeSet::new();
        for condition in &status.conditions {
            let well_formed = types.insert(condition.type_.as_str())
                && !condition.reason.is_empty()
                && condition.reason.chars().all(|c| c.is_ascii_alphanumeric())
                && condition.message.len() <= 32_768
                && ["True", "False", "Unknown"].contains(&condition.status.as_str());
            self.expect(Property::Shape, well_formed, || format!("condition {condition:?}"));
        }
        let nodes = &status.kata_nodes;
        let capped = [
            &nodes.installed,
            &nodes.installing,
            &nodes.waiting_to_install,
            &nodes.failed_to_install,
            &nodes.uninstalling,
            &nodes.waiting_to_uninstall,
            &nodes.failed_to_uninstall,
        ]
        .iter()
        .all(|list| list.len() <= LIST_CAP);
        self.expect(Property::Shape, capped, || "a list is longer than its cap".to_owned());
        let previous = self
            .snapshot
            .configs
            .iter()
            .find(|config| config.metadata.uid == report.config.uid)
            .and_then(|config| config.status.as_ref());
        for before in previous.into_iter().flat_map(|status| &status.conditions) {
            let kept = status.conditions.iter().all(|after| {
                after.type_ != before.type_
                    || after.status != before.status
                    || after.last_transition_time == before.last_transition_time
            });
            self.expect(Property::Shape, kept, || {
                format!("the time of {} changed, and its status did not", before.type_)
            });
        }
    }

    pub(super) fn named(&mut self, decision: &Decision) {
        let report = &decision.report;
        let Some(status) = &report.status else { return };
        let ready =
            status.status.conditions.iter().any(|condition| {
                condition.type_ == conditions::READY && condition.status == "True"
            });
        let named = !report.findings.is_empty() || !report.waiting_on.is_empty();
        self.expect(Property::Named, ready || named, || "not ready, and no word why".to_owned());
        let told = report.findings.iter().all(|finding| !finding.message.is_empty())
            && report.waiting_on.iter().all(|waiting| !waiting.message.is_empty());
        self.expect(Property::Named, told, || "an empty message".to_owned());
    }
}
