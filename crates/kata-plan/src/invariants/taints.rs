//! The promises about the startup taint.

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;

use super::{Checker, Property};
use crate::object::ObjectRef;

impl Checker<'_> {
    /// Only the startup taint goes, only from a node that is open to sandboxed pods, and only if the node
    /// is still as it was seen.
    pub(super) fn taints(&mut self, node: &ObjectRef, seen: &str, left: &[Taint]) {
        let Some(facts) = self.node(&node.name) else {
            return self.expect(Property::Unknown, false, || format!("{node} was not seen"));
        };
        self.expect(Property::Foreign, node.uid.as_ref() == Some(&facts.uid), || {
            format!("{node} is written without the uid that was seen")
        });
        self.expect(Property::Unknown, seen == facts.resource_version, || {
            format!("{node} loses a taint although it may have changed")
        });
        let label = facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
        self.expect(Property::Verified, label == Some(names::RUNTIME_LABEL_VERIFIED), || {
            format!("{node} loses its startup taint and is not marked as usable")
        });
        let mut rest = left.iter();
        let kept = facts.taints.iter().all(|taint| {
            taint.key == names::STARTUP_TAINT || rest.next().is_some_and(|kept| kept == taint)
        });
        self.expect(Property::Fields, kept && rest.next().is_none(), || {
            format!("{node} gets other taints: {left:?}")
        });
    }
}
