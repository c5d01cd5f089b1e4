//! The digest of the payload's image: what the first node resolved a tag to is what later nodes get.
//!
//! Nodes of another architecture resolve it for themselves: some container runtimes report the digest of the
//! image of their own architecture, and not that of the index.

use std::collections::BTreeMap;

use kata_api::Code;

use super::cluster::{Cluster, Host, architecture};
use crate::configs::config_ref;
use crate::report::Finding;
use crate::snapshot::JobPod;
use crate::text;

/// Whether a pod cannot pull the payload's image by the digest of another node.
pub(super) fn lacks_digest(pod: &JobPod, image: &str) -> bool {
    let stuck = pod.stuck.as_ref().filter(|stuck| stuck.is_pull());
    stuck.is_some_and(|stuck| stuck.image.contains('@') && stuck.image != image)
}

/// A digest, and the nodes with the desired payload that have it.
type Installed = (String, Vec<String>);

/// The digests of the desired payload.
#[derive(Debug)]
pub(super) struct Digests<'a> {
    /// The payload's image, as it was asked for.
    image: &'a str,
    /// By architecture, in the order of the nodes. Empty if the image is named by digest.
    installed: BTreeMap<String, Vec<Installed>>,
}

impl<'a> Digests<'a> {
    pub(super) fn of(cluster: &'a Cluster<'_>) -> Self {
        let image = cluster.desired.payload_image();
        let mut installed: BTreeMap<String, Vec<Installed>> = BTreeMap::new();
        let serving = |host: &&Host<'_>| host.node.wanted && host.record.status.installed.is_some();
        for host in cluster.nodes.iter().filter(serving).filter(|_| !image.contains('@')) {
            let Some(payload) = &host.record.status.payload_image else { continue };
            if payload.image != image {
                continue;
            }
            let name = host.node.facts.name.clone();
            let digests = installed.entry(architecture(host)).or_default();
            match digests.iter_mut().find(|(digest, _)| *digest == payload.digest) {
                Some((_, nodes)) => nodes.push(name),
                None => digests.push((payload.digest.clone(), vec![name])),
            }
        }
        Self { image, installed }
    }

    /// The digest that a node gets: that of most nodes, or else of the first one. `None` if no node like it has the
    /// payload, or if the node could not pull an image: it may have it by the tag only.
    pub(super) fn for_node(&self, host: &Host<'_>) -> Option<&str> {
        let last = host.record.status.job.as_ref();
        let lacks = last.is_some_and(|last| {
            let code = last.code.as_deref().and_then(Code::parse);
            code == Some(Code::NodeJobImage) && last.desired_state_digest == host.desired.state
        });
        let digests = self.installed.get(&architecture(host)).filter(|_| !lacks)?;
        let most = digests.iter().rev().max_by_key(|(_, nodes)| nodes.len());
        most.map(|(digest, _)| digest.as_str())
    }

    /// Reports that nodes have different payloads although the KataConfig names one.
    pub(super) fn moved(&self, cluster: &Cluster<'_>) -> Option<Finding> {
        let differing = self.installed.values().filter(|digests| digests.len() > 1);
        let parts: Vec<String> = differing
            .flatten()
            .map(|(digest, nodes)| format!("{digest} on {}", text::list(nodes, text::NAMES)))
            .collect();
        if parts.is_empty() {
            return None;
        }
        let message =
            format!("{} was not the same for all nodes: {}", self.image, parts.join("; "));
        Some(Finding::new(Code::PayloadTagMoved, config_ref(&cluster.base.config), message))
    }
}
