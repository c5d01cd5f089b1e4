//! The steps that install kata-monitor on the nodes with Kata, and that remove it.
//!
//! No node waits for kata-monitor, and its pods are not sandboxed pods.

use kata_api::{Code, names};
use serde_json::Value;

use super::monitor_body as bodies;
use super::objects::{reason_of_apply, report_foreign_object};
use super::pools::Pools;
use crate::assessment::{Assessment, LabelDecision};
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure};
use crate::report::Waiting;

fn daemon_set_ref(cluster: &Assessment) -> ObjectRef {
    ObjectRef::named(Kind::DaemonSet, names::MONITOR).within(&cluster.options.namespace)
}

fn constraints_ref() -> ObjectRef {
    ObjectRef::named(Kind::SecurityContextConstraints, names::MONITOR_CONSTRAINTS)
}

/// Installs kata-monitor once the first node can run sandboxed pods, if the operator has its image.
pub(super) fn install(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let Some(image) = &cluster.options.monitor_image else {
        remove(pools, cluster, out);
        return;
    };
    let objects = &pools.snapshot.monitor;
    let begun = matches!(&objects.daemon_set, Observed::Known(Some(set)) if bodies::is_ours(set));
    // Before that its pods would fail: the extension installs their SELinux type.
    if !begun && !cluster.nodes.iter().any(|node| node.label == LabelDecision::Set) {
        return;
    }
    let namespace = &cluster.options.namespace;
    match &objects.constraints {
        Some(constraints) => {
            let body = |existing: Option<&Value>| {
                bodies::constraints(&cluster.config, namespace, existing)
            };
            if !apply_object(constraints_ref(), constraints, body, out) {
                return;
            }
        }
        None => {
            let message = "kata-monitor runs without its own SecurityContextConstraints, because \
                           the API server does not serve that kind";
            out.add_finding(
                Code::ConstraintsNotServed,
                daemon_set_ref(cluster),
                message.to_owned(),
            );
        }
    }
    if let Observed::Known(Some(set)) = &objects.daemon_set
        && bodies::is_ours(set)
        && !bodies::has_our_label(set)
        && !is_deleting(set)
    {
        // An apply would keep its fields, and the policy permits only ours.
        let uid = set["metadata"]["uid"].as_str().map(str::to_owned);
        let object = ObjectRef { uid, ..daemon_set_ref(cluster) };
        out.delete(
            object,
            OnFailure::Continue,
            "the OpenShift operator made it, and kata-operator replaces it",
        );
        return;
    }
    apply_object(
        daemon_set_ref(cluster),
        &objects.daemon_set,
        |existing| bodies::daemon_set(&cluster.config, pools.mode, namespace, image, existing),
        out,
    );
}

/// Applies an object, if it belongs to the operator or does not exist. Returns whether later steps may rely
/// on it.
fn apply_object(
    object: ObjectRef,
    observed: &Observed<Option<Value>>,
    body: impl FnOnce(Option<&Value>) -> Option<Value>,
    out: &mut Draft,
) -> bool {
    let existing = match observed {
        Observed::Known(existing) => existing.as_ref(),
        Observed::Unknown { error, .. } => {
            let message = format!("cannot read {object}: {error}; it is left unchanged meanwhile");
            out.add_finding(Code::ReadFailed, object, message);
            return false;
        }
    };
    if existing.is_some_and(|existing| !bodies::is_ours(existing)) {
        report_foreign_object(out, object);
        return false;
    }
    if existing.is_some_and(is_deleting) {
        let message = format!("the old {object} to be gone");
        out.wait_for(Waiting::Deletion, object, message);
        return false;
    }
    if let Some(body) = body(existing) {
        out.push(
            Action::Apply { object, body },
            OnFailure::Continue,
            reason_of_apply(existing.is_some()),
        );
    }
    true
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Deletes kata-monitor's objects. Returns whether none of them is left.
pub(super) fn remove(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) -> bool {
    let objects = &pools.snapshot.monitor;
    let daemon_set = delete_object(cluster, daemon_set_ref(cluster), &objects.daemon_set, out);
    let constraints = match &objects.constraints {
        Some(constraints) => delete_object(cluster, constraints_ref(), constraints, out),
        None => true,
    };
    daemon_set && constraints
}

fn delete_object(
    cluster: &Assessment,
    object: ObjectRef,
    observed: &Observed<Option<Value>>,
    out: &mut Draft,
) -> bool {
    let existing = match observed {
        Observed::Known(Some(existing)) if bodies::is_ours(existing) => existing,
        Observed::Known(_) => return true,
        // Without the image, the operator may lack the permission to read it. If it exists, the API server
        // deletes it together with its owner, the KataConfig.
        Observed::Unknown { .. } if cluster.options.monitor_image.is_none() => return true,
        Observed::Unknown { error, .. } => {
            let config = config_ref(&cluster.config);
            let message = format!("cannot read {object}: {error}; it may still exist");
            out.add_finding(Code::ReadFailed, config, message);
            out.wait_for(Waiting::Read, object.clone(), format!("{object} to be read"));
            return false;
        }
    };
    let object =
        ObjectRef { uid: existing["metadata"]["uid"].as_str().map(str::to_owned), ..object };
    if !is_deleting(existing) {
        let why = if cluster.deleting {
            "no sandboxed pod is left"
        } else {
            "the operator has no kata-monitor image"
        };
        out.delete(object.clone(), OnFailure::Continue, why);
    }
    // Without the image, the operator may lack the permission to delete it.
    if cluster.options.monitor_image.is_none() && bodies::is_owned_by(existing, &cluster.config) {
        return true;
    }
    let message = format!("{object} to be gone");
    // While the KataConfig exists, no step depends on the deletion.
    let what = if cluster.deleting { Waiting::Deletion } else { Waiting::OwnWrites };
    out.wait_for(what, object, message);
    false
}
