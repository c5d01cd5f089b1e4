//! Which KataConfig is active, and which finalizers belong to kata-operator.

use kata_api::{KataConfig, names};

use crate::object::{Kind, ObjectRef};

/// The KataConfigs of the cluster; see [`configs_by_age`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Configs {
    /// The oldest KataConfig, the only one that the operator applies.
    pub(crate) active: Option<KataConfig>,
    /// The others, by age.
    pub(crate) others: Vec<KataConfig>,
}

impl Configs {
    /// Separates the active KataConfig from the others.
    pub(crate) fn of(configs: &[KataConfig]) -> Self {
        let mut sorted = configs_by_age(configs).into_iter().cloned();
        Self { active: sorted.next(), others: sorted.collect() }
    }
}

/// The KataConfigs, oldest first, so that the active one is the first. Leaves out a KataConfig that is
/// being deleted without a finalizer of kata-operator: the operator has no work left for it.
pub fn configs_by_age(configs: &[KataConfig]) -> Vec<&KataConfig> {
    let mut sorted: Vec<&KataConfig> = configs
        .iter()
        .filter(|config| config.metadata.deletion_timestamp.is_none() || has_finalizer(config))
        .collect();
    sorted.sort_by_key(|config| {
        (config.metadata.creation_timestamp.as_ref().map(|time| time.0), &config.metadata.name)
    });
    sorted
}

/// Whether a KataConfig carries a finalizer of kata-operator.
pub(crate) fn has_finalizer(config: &KataConfig) -> bool {
    config.metadata.finalizers.iter().flatten().any(|name| is_our_finalizer(name))
}

/// Whether a finalizer belongs to kata-operator, under its old or its new name.
pub(crate) fn is_our_finalizer(finalizer: &str) -> bool {
    finalizer == names::FINALIZER || finalizer == names::LEGACY_FINALIZER
}

pub(crate) fn config_ref(config: &KataConfig) -> ObjectRef {
    ObjectRef::new(
        Kind::KataConfig,
        config.metadata.name.clone().unwrap_or_default(),
        config.metadata.uid.as_deref(),
    )
}
