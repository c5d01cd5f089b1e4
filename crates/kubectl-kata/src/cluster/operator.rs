//! The operator in the cluster: its Deployment, its Lease, its pods and its namespace. Reads only.

use k8s_openapi::api::coordination::v1::Lease;
use kata_api::platform::Platform;
use kata_api::{Code, KataConfig, names};
use serde::Deserialize;
use serde_json::Value;

use crate::api::{Api, Read, Scope};
use crate::document::{OperatorFacts, Problem};
use crate::failure::Failure;
use crate::resource::{DEPLOYMENTS, KATA_CONFIGS, LEASES, PODS, POOLS};

/// The label with the program's name, which the operator's manifests give to all their objects.
pub(crate) const NAME_LABEL: &str = "app.kubernetes.io/name";

/// The operator's Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Deployment(Value);

/// What installed the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Installer {
    Helm {
        release: String,
    },
    /// The Operator Lifecycle Manager.
    LifecycleManager,
    Other,
}

/// A version such as `v1.2.3`.
pub(crate) fn semantic(version: &str) -> Option<semver::Version> {
    semver::Version::parse(version.trim_start_matches('v')).ok()
}

impl Deployment {
    /// What installed the operator, by the marks that these tools leave on a Deployment.
    pub(crate) fn installer(&self) -> Installer {
        if self.label("olm.owner").is_some() {
            return Installer::LifecycleManager;
        }
        match self.0["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str() {
            Some(release) => Installer::Helm { release: release.to_owned() },
            None => Installer::Other,
        }
    }

    /// Whether it is the operator's, wherever it is: others may have its name, which is no more than a name.
    fn is_ours(&self) -> bool {
        self.0["metadata"]["name"] == names::PRODUCT
            && self.label(NAME_LABEL) == Some(names::PRODUCT)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["labels"][key].as_str()
    }

    fn namespace(&self) -> &str {
        self.0["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn container(&self) -> &Value {
        &self.0["spec"]["template"]["spec"]["containers"][0]
    }

    /// The operator's image.
    pub(crate) fn image(&self) -> Option<&str> {
        self.container()["image"].as_str()
    }

    /// What a flag of the operator says, or else a variable; `None` if neither is set.
    pub(crate) fn told(&self, flag: &str, variable: &str) -> Option<&str> {
        let of = |key: &str| self.container()[key].as_array().into_iter().flatten();
        let mut words = of("args").filter_map(Value::as_str);
        let flagged = words.find_map(|word| match word.strip_prefix(flag)? {
            "" => Some(None),
            value => value.strip_prefix('=').map(Some),
        });
        let value = match flagged {
            Some(Some(value)) => Some(value),
            Some(None) => words.next(),
            None => of("env").find(|entry| entry["name"] == variable)?["value"].as_str(),
        };
        value.filter(|value| !value.is_empty())
    }

    pub(crate) fn facts(&self) -> OperatorFacts {
        let label = self.label("app.kubernetes.io/version").map(str::to_owned);
        let tag = || {
            let (_, tag) = self.image()?.rsplit('/').next()?.split_once(':')?;
            Some(tag.trim_start_matches('v').to_owned())
        };
        OperatorFacts {
            namespace: self.namespace().to_owned(),
            version: label.or_else(tag),
            ready_replicas: Some(self.0["status"]["readyReplicas"].as_i64().unwrap_or(0)),
            replicas: Some(self.0["spec"]["replicas"].as_i64().unwrap_or(1)),
            definitions_current: None,
        }
    }
}

/// The kind of cluster that an operator is for: as its Deployment says it, else as the cluster looks.
pub(crate) async fn platform(
    deployment: Option<&Deployment>,
    api: &Api,
) -> Result<Platform, Failure> {
    Ok(match deployment.and_then(|deployment| deployment.told("--platform", "")) {
        Some("kubernetes") => Platform::Kubernetes,
        Some("openshift") => Platform::Openshift,
        _ if api.serves(POOLS).await? => Platform::Openshift,
        _ => Platform::Kubernetes,
    })
}

/// The Lease by which one of the operator's processes leads. The command can do without.
pub(crate) async fn lease(api: &Api) -> Result<Read<Option<Lease>>, Failure> {
    api.glance::<Lease>(LEASES, Some(home(api).await?), names::PRODUCT).await
}

/// The operator's Deployment: in its usual namespace, or in another one if there is none, which is looked for
/// once.
pub(crate) async fn operator(api: &Api) -> Result<Read<Option<Deployment>>, Failure> {
    let home = expected_home(api).await;
    let usual = api.get::<Deployment>(DEPLOYMENTS, Some(home), names::PRODUCT).await?;
    or_elsewhere(api, home, usual).await
}

/// The same for a command that can do without: it notes nothing of what may not be seen.
pub(crate) async fn operator_quietly(api: &Api) -> Result<Read<Option<Deployment>>, Failure> {
    let home = expected_home(api).await;
    let usual = api.glance::<Deployment>(DEPLOYMENTS, Some(home), names::PRODUCT).await?;
    or_elsewhere(api, home, usual).await
}

/// Where the operator is, or else the usual namespace on a cluster of this kind.
async fn expected_home(api: &Api) -> &str {
    match api.known_home() {
        Some(home) => home,
        None if api.serves(POOLS).await.unwrap_or(true) => Platform::Openshift.namespace(),
        None => Platform::Kubernetes.namespace(),
    }
}

/// The namespace of the operator that the KataConfig belongs to.
async fn owner(api: &Api) -> Result<Option<String>, Failure> {
    let configs = api.for_watches().list::<KataConfig>(KATA_CONFIGS, Scope::default()).await?;
    let active = kata_plan::configs_by_age(configs.items()).into_iter().next();
    Ok(active.and_then(kata_plan::claimed_by).map(str::to_owned))
}

/// Whether there is an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperatorState {
    /// A pod of its Deployment is ready.
    Running,
    /// No pod of its Deployment is ready.
    NotReady,
    /// There is no Deployment, but the Lease is renewed: the operator runs elsewhere.
    LeaseOnly,
    /// There is no Deployment, and the Lease is not renewed.
    Missing,
    /// The caller may not read the Deployment or the Lease.
    Unknown,
}

impl OperatorState {
    /// The state by the Deployment and the Lease; `abandoned` is whether the Lease is not renewed.
    pub(crate) fn of(
        deployment: &Read<Option<Deployment>>,
        lease: &Read<Option<Lease>>,
        abandoned: bool,
    ) -> Self {
        match (deployment, lease) {
            (Read::Known(Some(deployment)), _) => {
                let ready = deployment.facts().ready_replicas.unwrap_or_default();
                if ready > 0 { Self::Running } else { Self::NotReady }
            }
            (Read::Known(None), Read::Known(Some(_))) if !abandoned => Self::LeaseOnly,
            (Read::Known(None), Read::Known(_)) => Self::Missing,
            (Read::Known(None), _) | (Read::Forbidden | Read::NotServed, _) => Self::Unknown,
        }
    }

    /// The problem that there is no operator, with the command that installs it.
    pub(crate) fn missing(self) -> Option<Problem> {
        let place = format!("deployment/{}", names::PRODUCT);
        let text = format!(
            "there is no operator: no Deployment {} in any namespace, and no active holder of its Lease",
            names::PRODUCT
        );
        let mut problem = Problem::new(Code::OperatorNotRunning, place, text);
        Code::CustomResourceMissing.entry().fix.clone_into(&mut problem.fix);
        (self == Self::Missing).then_some(problem)
    }
}

/// The namespaces with a Deployment of the operator, as far as they can be seen.
pub(crate) async fn installations(api: &Api) -> Result<&[String], Failure> {
    if api.known_installations().is_none() {
        everywhere(api).await?;
    }
    Ok(api.known_installations().unwrap_or_default())
}

/// The operator's Deployments in all namespaces.
async fn everywhere(api: &Api) -> Result<Read<Vec<Deployment>>, Failure> {
    let fields = format!("metadata.name={}", names::PRODUCT);
    let labels = format!("{NAME_LABEL}={}", names::PRODUCT);
    let everywhere = Scope { fields: Some(&fields), labels: Some(&labels), ..Scope::default() };
    let found = api.for_watches().list::<Deployment>(DEPLOYMENTS, everywhere).await?;
    let Read::Known(mut found) = found else { return Ok(found) };
    found.retain(Deployment::is_ours);
    api.note_installations(found.iter().map(|it| it.namespace().to_owned()).collect());
    Ok(Read::Known(found))
}

async fn or_elsewhere(
    api: &Api,
    home: &str,
    usual: Read<Option<Deployment>>,
) -> Result<Read<Option<Deployment>>, Failure> {
    if api.known_home().is_some() || matches!(usual, Read::Known(Some(_)) | Read::NotServed) {
        api.settle(home);
        return Ok(usual);
    }
    let Some(mut found) = everywhere(api).await?.known() else {
        // The Deployment may be in a namespace that the caller may not list.
        api.settle(owner(api).await?.as_deref().unwrap_or(home));
        return Ok(Read::Forbidden);
    };
    if found.len() > 1
        && let Some(owner) = owner(api).await?
    {
        found.sort_by_key(|it| it.namespace() != owner);
    }
    match found.into_iter().next() {
        Some(deployment) => {
            api.settle(deployment.namespace());
            Ok(Read::Known(Some(deployment)))
        }
        None => {
            api.settle(home);
            Ok(usual)
        }
    }
}

/// The pods of the operator's Deployment, read through `reader`, which is `api` or one of its kind that notes nothing.
pub(crate) async fn operator_pods(api: &Api, reader: &Api) -> Result<Read<Vec<Value>>, Failure> {
    let labels = format!("{NAME_LABEL}={}", names::PRODUCT);
    reader.list(PODS, Scope { labels: Some(&labels), ..Scope::of(home(api).await?) }).await
}

/// The namespace of the operator, of its Jobs and its Lease: where its Deployment is, else the usual one.
pub(crate) async fn home(api: &Api) -> Result<&str, Failure> {
    if api.known_home().is_none() {
        operator_quietly(api).await?;
    }
    Ok(api.home())
}
