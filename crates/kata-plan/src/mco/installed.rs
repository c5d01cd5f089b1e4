//! The operator's MachineConfigs that exist, and the images of the operating system that they install.

use std::collections::BTreeSet;

use kata_api::{MachineConfig, names};

use super::payload::Payload;
use crate::observed::Observed;
use crate::ownership::{is_managed, label};
use crate::snapshot::Snapshot;

/// The operator's MachineConfigs that exist, by name: one, or both during a switch.
pub(crate) fn machine_configs(
    snapshot: &Snapshot,
) -> impl Iterator<Item = (&'static str, &MachineConfig)> {
    names::MACHINE_CONFIGS.into_iter().filter_map(|name| match snapshot.machine_configs.get(name) {
        Some(Observed::Known(Some(config))) if is_our_machine_config(config) => {
            Some((name, config))
        }
        _ => None,
    })
}

/// Whether a MachineConfig with one of the operator's names belongs to it, or to the OpenShift operator.
pub(crate) fn is_our_machine_config(config: &MachineConfig) -> bool {
    is_managed(&config.metadata)
        || label(&config.metadata, names::APP_LABEL).is_some()
        || config.spec.extensions.iter().any(|extension| is_extension(extension))
}

/// Whether this is the name of an extension with Kata, unless a setting gives another one.
pub(crate) fn is_extension(name: &str) -> bool {
    [names::EXTENSION, names::FEDORA_EXTENSION].contains(&name)
}

/// The images that a MachineConfig of the operator records.
pub(crate) fn recorded(config: &MachineConfig) -> impl Iterator<Item = &str> {
    let annotations = config.metadata.annotations.as_ref();
    let list = annotations.and_then(|annotations| annotations.get(names::IMAGES_ANNOTATION));
    list.into_iter().flat_map(|list| list.split_whitespace())
}

/// The images of the operating system that contain Kata and that a node may run.
pub(crate) fn images(snapshot: &Snapshot) -> BTreeSet<&str> {
    machine_configs(snapshot)
        .flat_map(|(_, config)| recorded(config).chain([config.spec.os_image_url.as_str()]))
        .filter(|image| !image.is_empty())
        .collect()
}

/// Those of [`images`], except the desired one, that a node or a pool still uses.
pub(crate) fn images_in_use<'a>(snapshot: &'a Snapshot, payload: &Payload) -> BTreeSet<&'a str> {
    let mut images = images(snapshot);
    let rendered = |image: &str| {
        snapshot.machine_configs.iter().any(|(name, config)| {
            name.starts_with(names::mco::RENDERED_PREFIX)
                && matches!(config, Observed::Known(Some(config)) if config.spec.os_image_url == image)
        })
    };
    images.retain(|image| {
        !matches!(payload, Payload::Image { image: wanted, .. } if wanted == image)
            && rendered(image)
    });
    images
}
