//! Checks whether the operator can be removed: `kata-operator uninstall --check`, which Helm runs before it
//! removes the release. It reads once and changes nothing.

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;

use kata_api::{KataConfig, conditions};

/// Why the check failed.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The KataConfigs cannot be listed.
    #[error("cannot list the KataConfigs, so it is not known whether the operator is still needed")]
    List(#[source] Box<kube::Error>),
}

/// The KataConfigs that only the operator can remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingConfigs {
    /// The name of each KataConfig and, if it is being deleted, what its deletion waits for.
    pub configs: Vec<(String, Option<String>)>,
}

impl RemainingConfigs {
    /// The KataConfigs of a list, sorted by name.
    pub fn from_objects(configs: impl IntoIterator<Item = DynamicObject>) -> Self {
        let mut configs: Vec<(String, Option<String>)> = configs
            .into_iter()
            .map(|config| {
                let name = config.metadata.name.clone().unwrap_or_default();
                let deleting = config.metadata.deletion_timestamp.is_some();
                (name, deleting.then(|| deletion_wait(&config)))
            })
            .collect();
        configs.sort();
        Self { configs }
    }

    /// The message for the administrator; `None` if the operator can be removed.
    pub fn message(&self) -> Option<String> {
        let mut lines = Vec::new();
        for (name, wait) in &self.configs {
            lines.push(match wait {
                None => format!(
                    "KataConfig {name} still exists, and only the operator can remove Kata from its nodes. Delete it \
                     and wait until it is gone: kubectl delete kataconfig {name}"
                ),
                Some(wait) => format!("KataConfig {name} is still being deleted: {wait}"),
            });
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Lists the KataConfigs.
///
/// # Errors
/// If they cannot be listed for another reason than that the kind does not exist.
pub async fn check(client: &kube::Client) -> Result<RemainingConfigs, UninstallError> {
    // As dynamic objects: a KataConfig that cannot be parsed must not be left behind either.
    let kind = ApiResource::erase::<KataConfig>(&());
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let found = match configs.list(&ListParams::default()).await {
        Ok(found) => found,
        // Without the CustomResourceDefinition there is no KataConfig either.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Ok(RemainingConfigs::default());
        }
        Err(error) => return Err(UninstallError::List(Box::new(error))),
    };
    Ok(RemainingConfigs::from_objects(found.items))
}

/// What the deletion waits for, by the message of its condition.
fn deletion_wait(config: &DynamicObject) -> String {
    let conditions = config.data["status"]["conditions"].as_array();
    let message =
        [conditions::DELETION_BLOCKED, conditions::RECONCILING].iter().find_map(|wanted| {
            conditions.into_iter().flatten().find_map(|condition| {
                let holds = condition["type"] == *wanted && condition["status"] == "True";
                condition["message"].as_str().filter(|message| holds && !message.is_empty())
            })
        });
    message.unwrap_or("its conditions give no reason yet").to_owned()
}
