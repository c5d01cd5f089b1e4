//! What the operator may do with the objects that its roles permit it to write, which RBAC cannot say:
//! admission policies for Nodes, Jobs, KataConfigs and RuntimeClasses.
//!
//! Each matches the operator's service account only, and does not affect other clients. They bound what a
//! client with a stolen token can do; they do not decide what the operator does.

mod classes;
mod configs;
mod jobs;
mod nodes;
mod rules;

use serde_json::Value;

use kata_api::platform::Platform;

/// All policies, each with its binding.
pub(super) fn objects(namespace: &str, image: &str, platform: Platform) -> Vec<Value> {
    let mut all = vec![nodes::rules(), configs::rules(namespace), classes::rules()];
    if platform == Platform::Kubernetes {
        all.push(jobs::rules(image));
    }
    all.into_iter().flat_map(|rules| rules.objects(namespace)).collect()
}
