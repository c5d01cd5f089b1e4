//! Whether the operator may go: `kata-operator uninstall --check`, which Helm runs before it removes the
//! release. It reads once and changes nothing.

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;

use kata_api::{KataConfig, conditions};

/// Why it cannot be told whether the operator may go.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The KataConfigs cannot be listed.
    #[error("cannot list the KataConfigs, so it is not known whether the operator is still needed")]
    List(#[source] Box<kube::Error>),
}

/// The KataConfigs that only the operator can remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StillNeeded {
    /// Each KataConfig's name, and what its removal waits for if it is being deleted and tells.
    pub configs: Vec<(String, Option<String>)>,
}

impl StillNeeded {
    /// Those that exist, in the order of their names.
    pub fn among(configs: impl IntoIterator<Item = DynamicObject>) -> Self {
        let mut configs: Vec<(String, Option<String>)> = configs
            .into_iter()
            .map(|config| {
                let name = config.metadata.name.clone().unwrap_or_default();
                let deleting = config.metadata.deletion_timestamp.is_some();
                (name, deleting.then(|| waits_for(&config)))
            })
            .collect();
        configs.sort();
        Self { configs }
    }

    /// What to tell an admin, or nothing if the operator may go.
    pub fn message(&self) -> Option<String> {
        let mut lines = Vec::new();
        for (name, waits) in &self.configs {
            lines.push(match waits {
                None => format!(
                    "KataConfig {name} exists, and only the operator can take Kata off its nodes. Delete it first \
                     and wait until it is gone: kubectl delete kataconfig {name}"
                ),
                Some(waits) => format!("KataConfig {name} is being deleted and not gone yet: {waits}"),
            });
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Looks for KataConfigs.
///
/// # Errors
/// If they cannot be listed for another reason than that the kind does not exist.
pub async fn check(client: &kube::Client) -> Result<StillNeeded, UninstallError> {
    // Whatever is in them, they must not be left behind.
    let kind = ApiResource::erase::<KataConfig>(&());
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let found = match configs.list(&ListParams::default()).await {
        Ok(found) => found,
        // Without the CustomResourceDefinition there is no KataConfig either.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(StillNeeded::default()),
        Err(error) => return Err(UninstallError::List(Box::new(error))),
    };
    Ok(StillNeeded::among(found.items))
}

/// What the removal waits for, in the words of its conditions.
fn waits_for(config: &DynamicObject) -> String {
    let conditions = config.data["status"]["conditions"].as_array();
    let message =
        [conditions::DELETION_BLOCKED, conditions::RECONCILING].iter().find_map(|wanted| {
            conditions.into_iter().flatten().find_map(|condition| {
                let holds = condition["type"] == *wanted && condition["status"] == "True";
                condition["message"].as_str().filter(|message| holds && !message.is_empty())
            })
        });
    message.unwrap_or("its conditions do not say what for yet").to_owned()
}
