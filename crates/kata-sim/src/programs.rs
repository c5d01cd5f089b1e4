//! The operator's own programs in pods of the simulated cluster that end by themselves, and its bundle for the
//! Operator Lifecycle Manager.
//!
//! A simulated kubelet starts no processes; what such a program would find is found by the product's own
//! function, in the name of the pod's service account. It decides nothing.

use std::time::Duration;

use kata_operator::uninstall::RemainingConfigs;
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::ApiServer;
use simcluster::api::authentication::User;
use simcluster::api::rbac::{self, Access};
use simcluster::node::agent::Ending;
use simcluster::resource::KATACONFIGS;

use crate::bundle;

/// How long the check takes: a list of a few objects.
const CHECK: Duration = Duration::from_secs(1);

/// Adds the operator's programs and its bundle to a cluster.
pub(crate) fn bring(simulation: &mut Simulation) {
    simulation.world.programs = vec![uninstall_check];
    simulation.world.catalog = Some(bundle::of_catalog);
}

/// `kata-operator uninstall --check`, which the chart runs before Helm removes a release.
fn uninstall_check(api: &ApiServer, pod: &Value, container: &Value) -> Option<Ending> {
    let words: Vec<&str> = ["command", "args"]
        .iter()
        .flat_map(|list| container[*list].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let is_check = matches!(words.as_slice(), [.., "uninstall", "--check"]);
    is_check.then(|| {
        let message = refused(api, pod).or_else(|| found(api).message());
        let code = i32::from(message.is_some());
        Ending { after: CHECK, code, message: message.unwrap_or_default() }
    })
}

/// Why the pod's service account may not look, if it may not.
fn refused(api: &ApiServer, pod: &Value) -> Option<String> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    let user = User::from_review(&json!({
        "user": format!("system:serviceaccount:{namespace}:{account}"),
        "groups": [
            "system:serviceaccounts",
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated",
        ],
    }));
    let access = Access {
        verb: "list".to_owned(),
        group: KATACONFIGS.group.to_string(),
        resource: KATACONFIGS.plural.to_string(),
        ..Access::default()
    };
    let verdict = rbac::judge(api, &user, &access);
    (!verdict.allowed).then(|| access.refusal(&user, &verdict.reason).message)
}

fn found(api: &ApiServer) -> RemainingConfigs {
    let configs = api.list(&KATACONFIGS);
    RemainingConfigs::from_objects(configs.iter().filter_map(|config| {
        // What cannot be read as an object at all was never stored.
        serde_json::from_value(config.as_ref().clone()).ok()
    }))
}
