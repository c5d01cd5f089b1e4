//! Preconditions for setting and removing the operator's labels and taints of a node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;

use super::{Facts, Kept, Property, Violation, ensure};
use crate::mco;
use crate::object::{Kind, ObjectRef};
use crate::snapshot::{Freshness, NodeFacts, Platform};

impl<'a> Facts<'a> {
    /// The node as it was read, if it has the uid of the node to be written.
    fn node_as_read(&self, node: &ObjectRef) -> Result<&'a NodeFacts, Violation> {
        let facts = self.nodes.get(node.name.as_str()).copied();
        facts.filter(|facts| node.uid.as_ref() == Some(&facts.uid)).ok_or_else(|| Violation {
            property: Property::KnownState,
            note: format!("{node} is written and was not read"),
        })
    }

    pub(super) fn may_label(
        &self,
        node: &ObjectRef,
        seen: Option<&str>,
        set: &BTreeMap<String, String>,
        remove: &BTreeSet<String>,
    ) -> Kept {
        let own = match self.snapshot.options.platform {
            Platform::OpenShift => [names::RUNTIME_LABEL, names::KATA_ROLE_LABEL],
            Platform::Kubernetes => [names::RUNTIME_LABEL, names::CLAIM_LABEL],
        };
        let is_own = |key: &str| own.contains(&key) || key.starts_with(names::CLASS_LABEL_PREFIX);
        let foreign = set.keys().chain(remove).find(|key| !is_own(key));
        ensure(foreign.is_none(), Property::Ownership, || {
            format!(
                "{node}: the label {} does not belong to the operator",
                foreign.map_or("", |key| key)
            )
        })?;
        let facts = self.node_as_read(node)?;
        let verifies =
            set.get(names::RUNTIME_LABEL).is_some_and(|it| it == names::RUNTIME_LABEL_VERIFIED);
        let leaves_pool = remove.contains(names::KATA_ROLE_LABEL);
        let sets_claim = set.contains_key(names::CLAIM_LABEL) && !verifies;
        let unchanged = seen == Some(facts.resource_version.as_str())
            || self.snapshot.freshness == Freshness::Quorum;
        ensure(sets_claim || unchanged, Property::KnownState, || {
            format!("{node} is labelled although it may have changed since it was read")
        })?;
        ensure(!verifies || self.is_usable(facts), Property::VerifiedNodes, || {
            format!("{node} gets the runtime label but cannot run sandboxed pods")
        })?;
        if remove.contains(names::RUNTIME_LABEL) && self.offers_kata(facts) {
            self.ensure_no_pods_on_node(&node.name, &format!("{node} loses the runtime label"))?;
        }
        for class in self.snapshot.runtime_classes.known().into_iter().flatten() {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            let runs_pods = facts.offers(&class.handler) && self.offers_kata(facts);
            if runs_pods && remove.contains(&names::class_label(name)) {
                self.ensure_no_pods_of_class_on_node(
                    name,
                    &node.name,
                    &format!("{node} loses the label of RuntimeClass {name}"),
                )?;
            }
        }
        if leaves_pool {
            ensure(
                !facts.labels.contains_key(names::RUNTIME_LABEL),
                Property::ClosedToNewPods,
                || format!("{node} leaves the pool while new sandboxed pods can start"),
            )?;
            self.ensure_no_pods_on_node(&node.name, &format!("{node} leaves the pool"))?;
        }
        Ok(())
    }

    /// Whether a node has Kata, is Ready and is not cordoned.
    fn is_usable(&self, facts: &NodeFacts) -> bool {
        self.has_kata(facts) && facts.ready.status == Some(true) && !facts.unschedulable
    }

    /// Whether a node carries the runtime label, has Kata, and may offer one of the handlers.
    fn offers_kata(&self, facts: &NodeFacts) -> bool {
        let runtimes = self.active.map(|config| config.spec.effective_runtimes());
        let mut runtimes = runtimes.iter().flatten();
        let has_kata = match self.snapshot.options.platform {
            Platform::OpenShift => self.has_kata(facts),
            // A report that is not recorded yet may be out of date.
            Platform::Kubernetes => {
                self.is_recorded_as_installed(&facts.name)
                    || self.is_provided(&facts.name)
                    || self.snapshot.is_unreadable(Kind::KataNode, &facts.name)
            }
        };
        facts.has_runtime_label()
            && has_kata
            && runtimes.any(|runtime| facts.offers(runtime.effective_handler()))
    }

    fn has_kata(&self, facts: &NodeFacts) -> bool {
        match self.snapshot.options.platform {
            Platform::OpenShift => mco::contains_kata(self.snapshot, facts.current_config()),
            Platform::Kubernetes if self.is_provided(&facts.name) => {
                let runtimes = self.active.map(|config| config.spec.effective_runtimes());
                let mut runtimes = runtimes.iter().flatten();
                runtimes.any(|runtime| facts.reports(runtime.effective_handler()))
            }
            Platform::Kubernetes => self.is_installed_by_job(&facts.name),
        }
    }

    /// Only the startup taints, and the taint of an earlier release, are removed, on a node that is unchanged
    /// since the read. No taint is set, and the startup taint only goes from a node that has Kata.
    pub(super) fn may_replace_taints(
        &self,
        node: &ObjectRef,
        seen: &str,
        taints: &[Taint],
    ) -> Kept {
        let facts = self.node_as_read(node)?;
        ensure(seen == facts.resource_version, Property::KnownState, || {
            format!("{node} gets new taints although it may have changed since it was read")
        })?;
        let is_startup = |taint: &Taint| names::STARTUP_TAINTS.contains(&&*taint.key);
        let starts = |list: &[Taint]| list.iter().filter(|taint| is_startup(taint)).count();
        let has_kata = facts.has_runtime_label();
        ensure(
            has_kata || starts(taints) == starts(&facts.taints),
            Property::VerifiedNodes,
            || format!("{node} loses its startup taint but does not have Kata"),
        )?;
        let is_foreign = |taint: &&Taint| taint.key != names::LEAVING_TAINT && !is_startup(taint);
        let foreign = facts.taints.iter().filter(is_foreign);
        let is_added = taints.iter().any(|taint| !facts.taints.contains(taint));
        ensure(
            foreign.eq(taints.iter().filter(is_foreign)) && !is_added,
            Property::Ownership,
            || format!("{node} gets or loses taints that do not belong to the operator"),
        )
    }
}
