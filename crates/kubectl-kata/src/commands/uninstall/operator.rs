//! The operator's own removal, after the last KataConfig: what `install` applies is deleted, and nothing else. The
//! namespace stays, since it may have objects of others.

use kata_api::KataConfig;
use kata_api::names::PRODUCT;
use kata_api::platform::Platform;
use kata_manifests::manifests::{self, UNPUBLISHED};
use kata_plan::configs_by_age;
use serde_json::{Value, json};

use crate::Context;
use crate::api::{Read, Scope, Trouble, not_listed};
use crate::cluster::{
    Deployment, Installer, Kata, NAME_LABEL, installations, operator_quietly, platform,
};
use crate::commands::install::operator::other_installer;
use crate::disruption::field;
use crate::failure::Failure;
use crate::human;
use crate::refusal::Refusal;
use crate::resource::{DEPLOYMENTS, KATA_CONFIGS, path};
use crate::style::Style;

/// What is deleted.
pub(in crate::commands) struct Removal {
    /// In this order, the Deployment last: as long as it is there, the same command goes on.
    objects: Vec<Value>,
    pub(super) namespace: String,
}

/// The commands that remove an operator from a namespace.
fn commands(installer: &Installer, namespace: &str) -> String {
    match installer {
        Installer::Helm { release } => {
            format!("`helm uninstall {release} --namespace {namespace}`")
        }
        Installer::LifecycleManager => {
            "delete its Subscription and its ClusterServiceVersion, as docs/uninstall.md says"
                .to_owned()
        }
        Installer::Other => "`kubectl kata uninstall --operator`".to_owned(),
    }
}

/// How the operator is removed after the last KataConfig; `None` if there is no operator, or the caller may not see it.
pub(super) async fn hint(context: &Context<'_, '_>) -> Result<Option<String>, Failure> {
    let found = operator_quietly(&context.api).await?.known().flatten();
    Ok(found.map(|found| {
        let commands = commands(&found.installer(), context.api.home());
        format!("Next, to remove the operator as well: {commands}")
    }))
}

/// What the removal deletes; `None` if there is no operator.
///
/// # Errors
/// If the caller may not look, or the API server does not answer. Inside: why this command does not remove it.
pub(in crate::commands) async fn plan(
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
    let installations = installations(api).await?;
    if api.known_installations().is_none() {
        return Err(not_listed("find other installations", &DEPLOYMENTS.qualified()));
    }
    if let Some(refusal) = refusal(kata, &deployment, &namespace, installations) {
        return Ok(Err(refusal));
    }
    let platform = platform(Some(&deployment), api).await?;
    Ok(Ok(Some(Removal::of(namespace, platform)?)))
}

fn refusal(
    kata: &Kata,
    deployment: &Deployment,
    namespace: &str,
    installations: &[String],
) -> Option<Refusal> {
    let installer = deployment.installer();
    let by = match installer {
        Installer::Helm { .. } => "Helm",
        Installer::LifecycleManager => "the Operator Lifecycle Manager",
        Installer::Other => return why_it_is_needed(kata, namespace, installations),
    };
    Some(Refusal::new(
        format!("{by} installed the operator in namespace {namespace}"),
        format!("`kubectl kata uninstall --wait`, then {}", commands(&installer, namespace)),
    ))
}

/// Why the operator in this namespace cannot go yet: another KataConfig or another installation needs its objects.
fn why_it_is_needed(kata: &Kata, namespace: &str, installations: &[String]) -> Option<Refusal> {
    let configs = configs_by_age(kata.configs.items());
    if let Some(other) = configs.get(1) {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        return Some(Refusal::new(
            format!("KataConfig {name} needs the operator after this one"),
            format!("kubectl delete kataconfig {name}"),
        ));
    }
    if installations.len() < 2 {
        return None;
    }
    let kept =
        configs.first().and_then(|config| kata_plan::claimed_by(config)).unwrap_or(namespace);
    let other = installations.iter().find(|it| *it != kept).map_or("NAMESPACE", String::as_str);
    Some(Refusal::new(
        format!(
            "the operator is in the namespaces {}, which share CustomResourceDefinitions and roles",
            human::list(installations, 5)
        ),
        format!(
            "stop only the operator in namespace {other}, since the roles are shared: `kubectl delete deployment {PRODUCT} -n \
             {other}`, or with the Operator Lifecycle Manager its Subscription and its ClusterServiceVersion; then run \
             this command again"
        ),
    ))
}

impl Removal {
    /// The removal of whatever is there of an operator, also of one that was not applied to its end.
    ///
    /// # Errors
    /// If the objects cannot be generated.
    pub(in crate::commands) fn of(namespace: String, platform: Platform) -> Result<Self, Failure> {
        let options = manifests::Options {
            namespace: namespace.clone(),
            image: UNPUBLISHED.to_owned(),
            platform,
            monitor_image: None,
        };
        let mut objects = manifests::objects(&options)
            .map_err(|error| Failure::Format { format: "JSON", message: error.to_string() })?;
        objects.retain(|object| object["kind"] != "Namespace");
        objects.sort_by_key(|object| object["kind"] == "Deployment");
        Ok(Self { objects, namespace })
    }

    /// The objects, the Deployment last; not the namespace.
    pub(in crate::commands) fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The lines that describe it.
    pub(super) fn lines(&self, style: &Style) -> Vec<String> {
        let text = format!(
            "removed after the KataConfig: {} in namespace {} and in the cluster, with the CustomResourceDefinitions; the \
             namespace stays",
            human::count(self.objects.len(), "object"),
            self.namespace
        );
        field("Operator", &text, style)
    }

    /// Deletes the objects that are the operator's, by their metadata.
    ///
    /// # Errors
    /// If there is a KataConfig by now, which would go with its definition, or if the API server refuses a request: then
    /// the same command goes on later.
    pub(in crate::commands) async fn run(
        &self,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Failure> {
        let configs = context.api.list::<KataConfig>(KATA_CONFIGS, Scope::default()).await?;
        configs.listed("remove the operator", &KATA_CONFIGS.qualified())?;
        if let Some(config) = configs.items().first() {
            let name = config.metadata.name.as_deref().unwrap_or_default();
            return Err(Failure::Refused {
                what: "remove the operator".to_owned(),
                message: format!(
                    "there is a KataConfig {name} by now; `kubectl kata uninstall --operator` removes both"
                ),
            });
        }
        let mut deleted = 0;
        for object in &self.objects {
            deleted += usize::from(delete(object, context).await?);
        }
        let objects = human::count(deleted, "object");
        let text = context.marked(&format!(
            "operator removed from namespace {}: {objects} deleted",
            self.namespace
        ));
        context.printer.line(&text)?;
        let next =
            format!("Next, if nothing else is in it: kubectl delete namespace {}", self.namespace);
        Ok(context.printer.say(&next)?)
    }
}

/// Why an object is not the operator's. Its definitions have no label: they are one for all installers.
fn why_it_stays(kind: &str, metadata: &Value) -> Option<String> {
    if let Some(installer) = other_installer(metadata) {
        return Some(format!("{installer} owns it"));
    }
    let is_labelled = metadata["labels"][NAME_LABEL] == PRODUCT;
    (!is_labelled && kind != "CustomResourceDefinition")
        .then(|| format!("it has no label {NAME_LABEL}={PRODUCT}"))
}

/// Deletes an object if it is the operator's; whether it did.
async fn delete(object: &Value, context: &mut Context<'_, '_>) -> Result<bool, Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let path = path(object);
    let what = format!("get {kind} {name}");
    let found: Value = match context.api.text(&what, &path).await {
        Ok(found) => {
            serde_json::from_str(&found).map_err(|source| Failure::Answer { what, source })?
        }
        Err(Trouble::Status(status)) if status.code == 404 => return Ok(false),
        Err(trouble) => return Err(trouble.failure(&what)),
    };
    if let Some(why) = why_it_stays(&kind, &found["metadata"]) {
        context.printer.say(&format!("{kind} {name} stays: {why}"))?;
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
