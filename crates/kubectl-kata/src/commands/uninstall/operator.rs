//! The operator's own removal, after the last KataConfig: what `install` applies is deleted, and nothing else.

use kata_api::names::{MANAGED_BY, PRODUCT};
use kata_manifests::manifests::{self, IMAGE};
use kata_plan::configs_by_age;
use serde_json::{Value, json};

use crate::Context;
use crate::api::{Read, Scope, Trouble};
use crate::cluster::{
    Deployment, Installer, Kata, NAME_LABEL, installations, operator_quietly, platform,
};
use crate::disruption::field;
use crate::failure::Failure;
use crate::human;
use crate::pod::Pod;
use crate::resource::{DEPLOYMENTS, PODS, path};
use crate::style::Style;

/// Why the operator is not removed by this command, and what removes it.
pub(super) struct Refusal {
    pub(super) text: String,
    pub(super) fix: String,
}

/// What is deleted.
pub(super) struct Removal {
    /// In this order: the Deployment first, the namespace last.
    objects: Vec<Value>,
    pub(super) namespace: String,
}

impl Installer {
    /// What removes an operator that is in a namespace.
    fn removal(&self, namespace: &str) -> String {
        match self {
            Self::Helm { release } => format!("helm uninstall {release} --namespace {namespace}"),
            Self::LifecycleManager => {
                "delete its Subscription and its ClusterServiceVersion (docs/uninstall.md)"
                    .to_owned()
            }
            Self::Other => "kubectl kata uninstall --operator".to_owned(),
        }
    }
}

/// What comes after the last KataConfig; `None` if there is no operator, or the caller may not see it.
pub(super) async fn next(context: &Context<'_, '_>) -> Result<Option<String>, Failure> {
    let found = operator_quietly(&context.api).await?.known().flatten();
    Ok(found.map(|found| {
        let removal = found.installer().removal(context.api.home());
        format!("Next, if the operator is to go too: {removal}")
    }))
}

/// What the removal deletes; `None` if there is no operator.
///
/// # Errors
/// If the caller may not look, or the API server does not answer. Inside: why it is not this command's to remove.
pub(super) async fn plan(
    kata: &Kata,
    context: &Context<'_, '_>,
) -> Result<Result<Option<Removal>, Refusal>, Failure> {
    let api = &context.api;
    let deployment = match operator_quietly(api).await? {
        Read::Known(Some(deployment)) => deployment,
        Read::Known(None) | Read::NotServed => return Ok(Ok(None)),
        Read::Forbidden => {
            return Err(Failure::Forbidden(format!(
                "cannot find the operator: you may not get {} in namespace {}",
                DEPLOYMENTS.qualified(),
                api.home()
            )));
        }
    };
    let namespace = api.home().to_owned();
    if let Some(refusal) = refusal(kata, &deployment, &namespace, installations(api).await?) {
        return Ok(Err(refusal));
    }
    let options = manifests::Options {
        namespace: namespace.clone(),
        image: IMAGE.to_owned(),
        platform: platform(Some(&deployment), api).await?,
        monitor_image: None,
    };
    let mut objects = manifests::objects(&options)
        .map_err(|error| Failure::Format { format: "JSON", message: error.to_string() })?;
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("Deployment") => 0,
        Some("Namespace") => 2,
        _ => 1,
    });
    Ok(Ok(Some(Removal { objects, namespace })))
}

fn refusal(
    kata: &Kata,
    deployment: &Deployment,
    namespace: &str,
    installations: &[String],
) -> Option<Refusal> {
    let (text, fix) = match deployment.installer() {
        Installer::Other => {
            if let Some(other) = configs_by_age(kata.configs.items()).get(1) {
                let name = other.metadata.name.as_deref().unwrap_or_default();
                (
                    format!("KataConfig {name} needs the operator after this one"),
                    format!("kubectl delete kataconfig {name}"),
                )
            } else if installations.len() > 1 {
                let list = human::list(installations, 5);
                (
                    format!(
                        "the operator is in the namespaces {list}, which share what would be deleted"
                    ),
                    "remove the Deployment of the installation to which no KataConfig belongs"
                        .to_owned(),
                )
            } else {
                return None;
            }
        }
        installer @ Installer::Helm { .. } => (
            format!("Helm installed the operator in namespace {namespace}"),
            format!("without --operator, and then {}", installer.removal(namespace)),
        ),
        installer @ Installer::LifecycleManager => (
            format!(
                "the Operator Lifecycle Manager installed the operator in namespace {namespace}"
            ),
            format!("without --operator, and then {}", installer.removal(namespace)),
        ),
    };
    Some(Refusal { text, fix })
}

impl Removal {
    /// The lines that describe it.
    pub(super) fn lines(&self, style: &Style) -> Vec<String> {
        let text = format!(
            "removed after that: {} of namespace {} and of the cluster, also the CustomResourceDefinitions",
            human::count(self.objects.len(), "object"),
            self.namespace
        );
        field("Operator", &text, style)
    }

    /// Deletes the objects. What somebody else made under such a name stays.
    ///
    /// # Errors
    /// If the API server refuses it: the same command goes on.
    pub(super) async fn run(&self, context: &mut Context<'_, '_>) -> Result<(), Failure> {
        let mut deleted = 0;
        for object in &self.objects {
            if object["kind"] == "Namespace"
                && let Some(why) = self.keeps_namespace(context).await?
            {
                context.printer.say(&format!("namespace {} stays: {why}", self.namespace))?;
                continue;
            }
            deleted += usize::from(delete(object, context).await?);
        }
        let objects = human::count(deleted, "object");
        let text = context.marked(&format!(
            "operator removed from namespace {}: {objects} deleted",
            self.namespace
        ));
        Ok(context.printer.line(&text)?)
    }

    /// Why the namespace is not the operator's alone.
    async fn keeps_namespace(&self, context: &Context<'_, '_>) -> Result<Option<String>, Failure> {
        // Its own pods, and those of its Jobs.
        let labels = format!("{NAME_LABEL}!={PRODUCT},{MANAGED_BY}!={PRODUCT}");
        let scope = Scope { labels: Some(&labels), ..Scope::of(&self.namespace) };
        Ok(match context.api.list::<Pod>(PODS, scope).await? {
            Read::Known(pods) => {
                pods.first().map(|pod| format!("pod {} is not the operator's", pod.metadata.name))
            }
            Read::Forbidden | Read::NotServed => {
                Some(format!("you may not list pods in namespace {}", self.namespace))
            }
        })
    }
}

/// Deletes an object if it is the operator's; whether it did.
async fn delete(object: &Value, context: &Context<'_, '_>) -> Result<bool, Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let path = path(object);
    let what = format!("look at {kind} {name}");
    let found: Value = match context.api.text(&what, &path).await {
        Ok(found) => {
            serde_json::from_str(&found).map_err(|source| Failure::Answer { what, source })?
        }
        Err(Trouble::Status(status)) if status.code == 404 => return Ok(false),
        Err(trouble) => return Err(trouble.failure(&what)),
    };
    if found["metadata"]["labels"][NAME_LABEL] != PRODUCT {
        return Ok(false);
    }
    let what = format!("delete {kind} {name}");
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"uid": found["metadata"]["uid"]},
    });
    match context.api.write(&what, http::Method::DELETE, &path, None, &options).await {
        Ok(_) => Ok(true),
        Err(Trouble::Status(status)) if status.code == 404 => Ok(false),
        Err(trouble) => Err(trouble.failure(&what)),
    }
}
