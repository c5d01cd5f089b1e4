//! What the operator may do with the objects that its roles permit it to write, which RBAC cannot say:
//! admission policies for Nodes, Jobs, KataConfigs, RuntimeClasses and the objects of kata-monitor.
//!
//! Each matches the operator's service account only, and does not affect other clients. They bound what a
//! client with a stolen token can do; they do not decide what the operator does.

mod classes;
mod configs;
mod jobs;
mod monitor;
mod nodes;
mod pods;
mod rules;
mod shape;

use serde_json::Value;

use kata_api::platform::Platform;

/// The parameters, and all policies, each with its binding.
pub(super) fn objects(
    namespace: &str,
    image: &str,
    platform: Platform,
    monitor_image: Option<&str>,
) -> Vec<Value> {
    let mut all = vec![nodes::rules(), configs::rules(namespace), classes::rules()];
    if platform == Platform::Kubernetes {
        all.push(jobs::rules(image));
    }
    if let Some(image) = monitor_image {
        all.extend([monitor::daemon_sets(namespace, image), monitor::constraints(namespace)]);
    }
    let policies = all.into_iter().flat_map(|rules| rules.objects(namespace));
    [rules::parameters(namespace)].into_iter().chain(policies).collect()
}
