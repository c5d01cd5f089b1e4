//! Whether the API server admits the pods of the operator's Jobs, which the operator learns only when it has
//! created one.

use kata_api::Code;
use serde_json::Value;

use super::check;
use crate::api::{Api, Read};
use crate::cluster;
use crate::document::{Check, CheckResult};
use crate::failure::Failure;
use crate::resource::NAMESPACES;

/// The label with the level of Pod Security that a namespace enforces.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Whether the operator's namespace lets its Jobs run, whose pods mount folders of the nodes: of the levels of
/// Pod Security, only one allows that.
pub(super) async fn jobs(api: &Api) -> Result<Check, Failure> {
    let home = cluster::home(api).await?;
    let namespace = api.glance::<Value>(NAMESPACES, None, home).await?;
    let (result, text) = match namespace {
        Read::Forbidden => (CheckResult::Skipped, format!("you may not get the namespace {home}")),
        Read::NotServed | Read::Known(None) => (
            CheckResult::Skipped,
            format!(
                "there is no namespace {home}, where the Jobs would run, or they run elsewhere"
            ),
        ),
        Read::Known(Some(namespace)) => match namespace["metadata"]["labels"][ENFORCE].as_str() {
            Some("privileged") => {
                (CheckResult::Ok, format!("the namespace {home} has {ENFORCE}=privileged"))
            }
            Some(level) => (
                CheckResult::Error,
                format!(
                    "the namespace {home} has {ENFORCE}={level}, which refuses the pods of the Jobs: they \
                     mount folders of the nodes"
                ),
            ),
            // That is in a file of the API server, which nobody can ask for.
            None => (
                CheckResult::Ok,
                format!(
                    "the namespace {home} has no label {ENFORCE}: the cluster's default counts, which \
                     is privileged unless somebody configured another"
                ),
            ),
        },
    };
    let mut check = check(Code::NodeJobWithoutPod, result, text);
    check.subjects = vec![format!("namespace/{home}")];
    if result == CheckResult::Error {
        check.fix = format!("`kubectl label --overwrite namespace {home} {ENFORCE}=privileged`");
    }
    Ok(check)
}
