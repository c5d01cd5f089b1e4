//! The operator's objects: whether `install` applies them, and how. [`kata_manifests`] generates them.
//!
//! An operator that is there is never replaced unless `--upgrade` asks for it, and one that Helm or the Operator
//! Lifecycle Manager installed is left to them.

use std::time::Duration;

use kata_api::Code;
use kata_api::platform::Platform;
use kata_manifests::manifests;
use semver::Version;
use serde_json::Value;
use tokio::time::Instant;

use super::Mode;
use crate::Context;
use crate::api::{Api, Read, Scope, Trouble};
use crate::arguments::InstallArguments;
use crate::cluster::{
    Deployment, Installer, Kata, OperatorState, operator_quietly, platform, semantic,
};
use crate::commands::status;
use crate::disruption::field;
use crate::failure::Failure;
use crate::human;
use crate::refusal::Refusal;
use crate::resource::{CRDS, KATA_CONFIGS, LEASES, path};
use crate::settings::Settings;
use crate::style::Style;

/// How long the API server may take to serve a new kind.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait between two requests.
const PAUSE: Duration = Duration::from_millis(200);

/// What `install` does about the operator.
pub(super) enum Step {
    /// Nothing: there is one, which this text describes.
    Keep(String),
    /// It applies the operator's objects.
    Apply(Bundle),
}

/// The operator's objects.
pub(super) struct Bundle {
    objects: Vec<Value>,
    namespace: String,
    image: String,
    platform: kata_plan::Platform,
    /// The version of the operator that it replaces; `None` if there is none.
    replaces: Option<String>,
    /// Whether to take over fields that another tool wrote.
    takes_over: bool,
}

/// What the cluster has of the operator.
struct Found {
    deployment: Option<Deployment>,
    state: OperatorState,
    /// Whether the API server serves KataConfigs.
    is_served: bool,
}

impl Step {
    /// What to do about the operator of this cluster.
    pub(super) async fn of(
        kata: &Kata,
        arguments: &InstallArguments,
        context: &Context<'_, '_>,
    ) -> Result<Result<Self, Refusal>, Failure> {
        let api = &context.api;
        let state = status::operator_state(api, kata, context.settings.now()).await?;
        let read = operator_quietly(api).await?;
        if state == OperatorState::Unknown && matches!(read, Read::Known(None)) {
            return Err(Failure::Forbidden(format!(
                "cannot find out whether the operator runs: you may not get {} in namespace {}",
                LEASES.qualified(),
                api.home()
            )));
        }
        let deployment = read.known().flatten();
        let is_served = !kata.configs.is_not_served();
        let found = Found { deployment, state, is_served };
        let replaced = match found.decide(arguments, context.settings.published.as_deref()) {
            Ok(Decision::Keep(text)) => return Ok(Ok(Self::Keep(text))),
            Ok(Decision::Apply { replaces }) => replaces,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if arguments.upgrade
            && let Some(refusal) = foreign_definition(api).await?
        {
            return Ok(Err(refusal));
        }
        let deployment = found.deployment.as_ref();
        let platform = match arguments.platform {
            Some(platform) => platform.into(),
            None => platform(deployment, api).await?,
        };
        let monitor = deployment.and_then(|deployment| {
            deployment.told("--monitor-image", "RELATED_IMAGE_KATA_MONITOR")
        });
        let monitor = monitor.map(str::to_owned);
        let Some(image) = image(arguments, context.settings) else {
            let [text, fix] = NO_IMAGE;
            return Ok(Err(Refusal::new(text, fix)));
        };
        let options = manifests::Options {
            namespace: api.home().to_owned(),
            image,
            platform,
            monitor_image: monitor,
        };
        Ok(Ok(Self::Apply(Bundle::new(&options, replaced, arguments.upgrade)?)))
    }

    /// The kind of cluster that the applied operator is for.
    pub(super) fn platform(&self) -> Option<kata_plan::Platform> {
        match self {
            Self::Keep(_) => None,
            Self::Apply(bundle) => Some(bundle.platform),
        }
    }

    /// The lines that describe it.
    pub(super) fn lines(&self, style: &Style) -> Vec<String> {
        match self {
            Self::Keep(text) => field("Operator", text, style),
            Self::Apply(bundle) => {
                let objects = human::count(bundle.objects.len(), "object");
                let text =
                    format!("{}: {objects} in namespace {}", crate::VERSION, bundle.namespace);
                let mut lines = field("Operator", &text, style);
                lines.extend(field("Image", &bundle.image, style));
                lines
            }
        }
    }

    /// What the command does about the operator, as a part of a sentence.
    pub(super) fn summary(&self) -> Option<String> {
        match self {
            Self::Keep(_) => None,
            Self::Apply(Bundle { replaces: None, .. }) => Some("installs the operator".to_owned()),
            Self::Apply(Bundle { replaces: Some(version), .. }) => {
                Some(format!("replaces operator {version} by {}", crate::VERSION))
            }
        }
    }
}

enum Decision {
    Keep(String),
    Apply { replaces: Option<String> },
}

impl Found {
    fn decide(
        &self,
        arguments: &InstallArguments,
        published: Option<&str>,
    ) -> Result<Decision, Refusal> {
        let Some(deployment) = &self.deployment else {
            return match (self.state, self.is_served) {
                (OperatorState::LeaseOnly, true) => Ok(Decision::Keep(
                    "it runs outside the cluster: its Lease is renewed, and there is no Deployment"
                        .to_owned(),
                )),
                (OperatorState::LeaseOnly, false) => Err(Refusal::of(
                    Code::CustomResourceMissing,
                    "the operator runs outside the cluster, which does not serve KataConfig",
                    "kata-operator crd | kubectl apply --server-side -f -",
                )),
                (OperatorState::Unknown, true) => {
                    Ok(Decision::Keep("unknown: you may not read deployments.apps".to_owned()))
                }
                _ => Ok(Decision::Apply { replaces: None }),
            };
        };
        let facts = deployment.facts();
        let namespace = &facts.namespace;
        let found = facts.version.unwrap_or_else(|| "of unknown version".to_owned());
        let theirs = semantic(&found);
        let ours = Version::parse(crate::VERSION).ok();
        let is_newer = theirs.is_some() && theirs > ours;
        if !arguments.upgrade {
            if !self.is_served {
                return Err(Refusal::of(
                    Code::CustomResourceMissing,
                    format!(
                        "there is operator {found} in namespace {namespace}, but the cluster does not serve \
                         KataConfig"
                    ),
                    "kubectl kata install --upgrade, with its --operator-image, which applies all objects of the operator",
                ));
            }
            let wanted = arguments.operator_image.as_deref();
            if let Some(wanted) = wanted.filter(|wanted| deployment.image() != Some(wanted)) {
                return Err(Refusal::new(
                    format!(
                        "there is operator {found} in namespace {namespace} already, with another image than {wanted}"
                    ),
                    "add --upgrade to replace it, or leave out --operator-image",
                ));
            }
            let ours = crate::VERSION;
            let note = match self.state {
                OperatorState::NotReady => {
                    "; no pod of it is ready: see `kubectl kata logs operator`".to_owned()
                }
                _ if is_newer => format!("; it is newer than this program ({ours})"),
                _ if theirs.is_some() && semantic(ours) != theirs => {
                    format!("; it is older than this program ({ours}), and --upgrade replaces it")
                }
                _ => String::new(),
            };
            return Ok(Decision::Keep(format!("{found} in namespace {namespace}{note}")));
        }
        if is_newer {
            return Err(Refusal::new(
                format!("operator {found} is newer than this program ({})", crate::VERSION),
                format!("use the kubectl-kata of version {found} or newer"),
            ));
        }
        match deployment.installer() {
            Installer::Helm { release } => {
                return Err(Refusal::new(
                    format!("Helm installed operator {found} in namespace {namespace}"),
                    format!("helm upgrade {release} CHART --namespace {namespace}"),
                ));
            }
            Installer::LifecycleManager => {
                return Err(Refusal::new(
                    format!(
                        "the Operator Lifecycle Manager installed operator {found} in namespace {namespace}"
                    ),
                    "change the channel of its Subscription",
                ));
            }
            Installer::Other => {}
        }
        let repository = |image: &str| {
            let name = image.split('@').next().unwrap_or_default();
            match name.rsplit_once(':') {
                Some((before, tag)) if !tag.contains('/') => before.to_owned(),
                _ => name.to_owned(),
            }
        };
        let current = deployment.image().unwrap_or_default();
        let published = published.filter(|_| arguments.operator_image.is_none());
        if published.is_some_and(|image| repository(current) != repository(image)) {
            return Err(Refusal::new(
                format!(
                    "operator {found} in namespace {namespace} has the image {current}, of another repository"
                ),
                "add --operator-image with the new image",
            ));
        }
        Ok(Decision::Apply { replaces: Some(found) })
    }
}

/// Why there is no image to install, and what to do about it.
pub(super) const NO_IMAGE: [&str; 2] = [
    "no image of the operator was published with this kubectl-kata",
    "add --operator-image REF; `cargo xtask image --push REF` builds it and pushes it to your registry",
];

/// The operator's image: the one that is asked for, or that was published with this program.
pub(super) fn image(arguments: &InstallArguments, settings: &Settings) -> Option<String> {
    arguments.operator_image.clone().or_else(|| settings.published.clone())
}

impl Bundle {
    /// The objects for a kind of cluster.
    pub(super) fn new(
        options: &manifests::Options,
        replaces: Option<String>,
        takes_over: bool,
    ) -> Result<Self, Failure> {
        let mut objects = manifests::objects(options)
            .map_err(|error| Failure::Format { format: "JSON", message: error.to_string() })?;
        // A cluster with the Deployment has all the rest: the same command completes what was interrupted.
        objects.sort_by_key(|object| object["kind"] == "Deployment");
        let platform = match options.platform {
            Platform::Kubernetes => kata_plan::Platform::Kubernetes,
            Platform::Auto | Platform::Openshift => kata_plan::Platform::OpenShift,
        };
        let (namespace, image) = (options.namespace.clone(), options.image.clone());
        Ok(Self { objects, namespace, image, platform, replaces, takes_over })
    }

    pub(super) fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Has the API server check every object that it can check now.
    ///
    /// # Errors
    /// If it refuses one, or does not answer.
    pub(super) async fn try_out(&self, api: &Api) -> Result<Vec<Value>, Failure> {
        let mut answers = Vec::new();
        for object in &self.objects {
            match self.apply_one(object, Mode::Try, api).await {
                Ok(answer) => answers.push(answer),
                Err((_, Trouble::Status(status))) if self.comes_later(object, &status) => {
                    answers.push(object.clone());
                }
                Err((what, trouble)) => return Err(trouble.failure(&what)),
            }
        }
        Ok(answers)
    }

    /// Whether the API server cannot check an object before the others exist: its namespace, or the role of a binding.
    fn comes_later(&self, object: &Value, status: &kube::core::Status) -> bool {
        let is_binding = object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding"));
        let namespace = format!("namespaces \"{}\" not found", self.namespace);
        status.code == 404 && (is_binding || status.message.contains(&namespace))
    }

    /// Applies every object, and waits until the API server serves KataConfigs.
    ///
    /// # Errors
    /// If the API server refuses an object: those before it stay, and the same command goes on.
    pub(super) async fn apply(&self, context: &mut Context<'_, '_>) -> Result<(), Failure> {
        for object in &self.objects {
            if let Err((what, trouble)) = self.apply_one(object, Mode::Write, &context.api).await {
                return Err(trouble.failure(&what));
            }
        }
        let objects = human::count(self.objects.len(), "object");
        let text = format!(
            "operator {} applied: {objects} in namespace {}",
            crate::VERSION,
            self.namespace
        );
        context.printer.say(&text)?;
        let end = Instant::now() + SERVED_WITHIN;
        let mut is_waiting = false;
        loop {
            let read = context.api.list::<Value>(KATA_CONFIGS, Scope::default()).await?;
            if !matches!(read, Read::NotServed) {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Failure::Refused {
                    what: "create the KataConfig".to_owned(),
                    message: format!(
                        "the API server does not serve KataConfig {} s after its CustomResourceDefinition was \
                         applied; see `kubectl describe crd {}`",
                        SERVED_WITHIN.as_secs(),
                        KATA_CONFIGS.qualified()
                    ),
                });
            }
            if !is_waiting {
                context.printer.say("waiting until the API server serves KataConfig")?;
                is_waiting = true;
            }
            tokio::time::sleep_until(Instant::now() + PAUSE).await;
        }
    }

    async fn apply_one(
        &self,
        object: &Value,
        mode: Mode,
        api: &Api,
    ) -> Result<Value, (String, Trouble)> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("apply {kind} {name}");
        let force = if self.takes_over { "&force=true" } else { "" };
        let path = format!("{}{}&fieldManager=kubectl-kata{force}", path(object), mode.query());
        let content = Some("application/apply-patch+yaml");
        let answer = api.write(&what, http::Method::PATCH, &path, content, object).await;
        answer.map_err(|trouble| {
            let trouble = match trouble {
                Trouble::Status(mut status) if status.code == 409 => {
                    status.message.push_str("; add --upgrade to take these fields over");
                    Trouble::Status(status)
                }
                other => other,
            };
            (what, trouble)
        })
    }
}

/// The other installer that an object belongs to, by the marks that these leave in its metadata.
pub(crate) fn other_installer(metadata: &Value) -> Option<&'static str> {
    let has = |field: &str, prefix: &str| {
        let keys = metadata[field].as_object();
        keys.is_some_and(|keys| keys.keys().any(|key| key.starts_with(prefix)))
    };
    if has("labels", "olm.") || has("labels", "operators.coreos.com/") {
        return Some("the Operator Lifecycle Manager");
    }
    has("annotations", "meta.helm.sh/release-name").then_some("Helm")
}

/// Why `--upgrade` must not take the definition of KataConfig over, if another installer owns it.
async fn foreign_definition(api: &Api) -> Result<Option<Refusal>, Failure> {
    let name = KATA_CONFIGS.qualified();
    let read = api.glance::<Value>(CRDS, None, &name).await?.known().flatten();
    let owner = other_installer(&read.unwrap_or_default()["metadata"]);
    Ok(owner.map(|owner| {
        Refusal::new(
            format!("{owner} owns the CustomResourceDefinition {name}"),
            "upgrade with it, or see docs/migrate.md for the way from another operator",
        )
    }))
}
