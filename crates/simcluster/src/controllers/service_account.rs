//! Gives every namespace the service account `default`.

use std::time::Duration;

use serde_json::json;

use crate::api::{Event, EventKind};
use crate::resource::{NAMESPACES, SERVICEACCOUNTS};
use crate::{Context, Controller};

/// The account that pods use unless they name another one.
const NAME: &str = "default";

/// The controller of service accounts.
#[derive(Debug)]
pub struct ServiceAccounts;

impl Controller for ServiceAccounts {
    fn name(&self) -> &'static str {
        "service-account-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == NAMESPACES && event.kind == EventKind::Added {
            cx.after(event.name.clone(), Duration::ZERO);
        }
        let lost = event.resource == SERVICEACCOUNTS
            && event.kind == EventKind::Deleted
            && event.name == NAME;
        if lost {
            cx.after(event.namespace.clone(), Duration::ZERO);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let alive = cx
            .api
            .get(&NAMESPACES, "", key)
            .is_some_and(|namespace| namespace["metadata"]["deletionTimestamp"].is_null());
        if !alive || cx.api.get(&SERVICEACCOUNTS, key, NAME).is_some() {
            return;
        }
        let account = json!({"metadata": {"name": NAME}});
        if let Err(error) = cx.api.create(cx.writer(), &SERVICEACCOUNTS, key, account) {
            tracing::debug!(namespace = key, %error, "no default service account");
        }
    }
}
