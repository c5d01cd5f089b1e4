//! Fills ClusterRoles that have an aggregation rule with the rules of the roles that it selects.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Event;
use crate::api::rbac;
use crate::{Context, Controller, Resource, selector};

const CLUSTERROLES: Resource = Resource::new(rbac::GROUP, "clusterroles");

/// The controller of aggregated ClusterRoles.
#[derive(Debug)]
pub struct RoleAggregation;

impl Controller for RoleAggregation {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == CLUSTERROLES {
            cx.after("all", Duration::ZERO);
        }
    }

    fn act(&mut self, _key: &str, cx: &mut Context<'_>) {
        let roles = cx.api.list(&CLUSTERROLES);
        for role in &roles {
            let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else {
                continue;
            };
            let mut rules: Vec<&Value> = Vec::new();
            for part in &roles {
                let labels = &part["metadata"]["labels"];
                let itself = part["metadata"]["name"] == role["metadata"]["name"];
                if itself || !selectors.iter().any(|one| selector::matches(one, labels)) {
                    continue;
                }
                for rule in part["rules"].as_array().into_iter().flatten() {
                    if !rules.contains(&rule) {
                        rules.push(rule);
                    }
                }
            }
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            if role["rules"].as_array().is_some_and(|known| known.iter().eq(rules.iter().copied()))
            {
                continue;
            }
            let patch = json!({"rules": rules});
            if let Err(error) = cx.api.merge(cx.writer(), &CLUSTERROLES, "", name, &patch) {
                tracing::debug!(name, %error, "an aggregated role stays as it is");
            }
        }
    }
}
