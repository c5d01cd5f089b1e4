//! The steps that run kata-monitor on the nodes with Kata, and that remove it.
//!
//! It is beside everything else: no node waits for it, and its pods are no sandboxed pods.

use kata_api::{Code, names};
use serde_json::Value;

use super::install::{foreign, why};
use super::{Steps, delete};
use crate::bodies::monitor as bodies;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure};
use crate::report::Waiting;
use crate::selection;
use crate::view::View;

fn daemon_set_ref(view: &View<'_>) -> ObjectRef {
    ObjectRef::named(Kind::DaemonSet, names::MONITOR).within(&view.snapshot.options.namespace)
}

fn constraints_ref() -> ObjectRef {
    ObjectRef::named(Kind::SecurityContextConstraints, names::MONITOR_CONSTRAINTS)
}

/// Runs it from when the first node can run sandboxed pods on, if the operator was given its image.
pub(super) fn install(view: &View<'_>, out: &mut Steps) {
    let Some(image) = &view.snapshot.options.monitor_image else {
        remove(view, out);
        return;
    };
    let objects = &view.snapshot.monitor;
    let begun = matches!(&objects.daemon_set, Observed::Known(Some(set)) if bodies::is_ours(set));
    // Before that its pods would only fail: their SELinux type comes with the extension.
    if !begun && !view.nodes.iter().any(|node| node.verdict == Some(true)) {
        return;
    }
    let namespace = &view.snapshot.options.namespace;
    match &objects.constraints {
        Some(constraints) => {
            let body =
                |existing: Option<&Value>| bodies::constraints(view.config, namespace, existing);
            if !keep(constraints_ref(), constraints, body, out) {
                return;
            }
        }
        None => {
            let message = "kata-monitor runs without SecurityContextConstraints of its own, since \
                           the API server does not serve that kind";
            out.find(Code::ConstraintsNotServed, daemon_set_ref(view), message.to_owned());
        }
    }
    keep(
        daemon_set_ref(view),
        &objects.daemon_set,
        |existing| bodies::daemon_set(view.config, view.mode, namespace, image, existing),
        out,
    );
}

/// Brings an object into its form, if it is ours or does not exist. Says whether it can be relied on.
fn keep(
    object: ObjectRef,
    observed: &Observed<Option<Value>>,
    body: impl FnOnce(Option<&Value>) -> Option<Value>,
    out: &mut Steps,
) -> bool {
    let existing = match observed {
        Observed::Known(existing) => existing.as_ref(),
        Observed::Unknown { error, .. } => {
            let message = format!("cannot read {object}: {error}; it is left as it is meanwhile");
            out.find(Code::ReadFailed, object, message);
            return false;
        }
    };
    if existing.is_some_and(|existing| !bodies::is_ours(existing)) {
        foreign(out, object);
        return false;
    }
    if existing.is_some_and(is_deleting) {
        let message = format!("the old {object} to be gone");
        out.wait(Waiting::Deletion, object, message);
        return false;
    }
    if let Some(body) = body(existing) {
        out.push(Action::Apply { object, body }, OnFailure::Continue, why(existing.is_some()));
    }
    true
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Deletes what is ours; whether nothing of it is left.
pub(super) fn remove(view: &View<'_>, out: &mut Steps) -> bool {
    let objects = &view.snapshot.monitor;
    let daemon_set = take(view, daemon_set_ref(view), &objects.daemon_set, out);
    let constraints = match &objects.constraints {
        Some(constraints) => take(view, constraints_ref(), constraints, out),
        None => true,
    };
    daemon_set && constraints
}

fn take(
    view: &View<'_>,
    object: ObjectRef,
    observed: &Observed<Option<Value>>,
    out: &mut Steps,
) -> bool {
    let existing = match observed {
        Observed::Known(Some(existing)) if bodies::is_ours(existing) => existing,
        Observed::Known(_) => return true,
        // Whoever was never told to run it may not be allowed to read it. If there is one after all,
        // it goes with its owner, the KataConfig.
        Observed::Unknown { .. } if view.snapshot.options.monitor_image.is_none() => return true,
        Observed::Unknown { error, .. } => {
            let config = selection::config_ref(view.config);
            let message = format!("cannot read {object}: {error}; it may be left");
            out.find(Code::ReadFailed, config, message);
            out.wait(Waiting::Read, object.clone(), format!("{object} is read"));
            return false;
        }
    };
    let object =
        ObjectRef { uid: existing["metadata"]["uid"].as_str().map(str::to_owned), ..object };
    if !is_deleting(existing) {
        let why =
            if view.deleting { "no sandboxed pod is left" } else { "it shall not run any more" };
        out.push(delete(object.clone()), OnFailure::Continue, why);
    }
    let message = format!("{object} to be gone");
    // While the KataConfig stays, nobody waits for it.
    let what = if view.deleting { Waiting::Deletion } else { Waiting::OwnWrites };
    out.wait(what, object, message);
    false
}
