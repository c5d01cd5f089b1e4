//! What the built-in kinds say of their fields: keys of lists, sets, atomic values, merge keys.
//!
//! Facts only, as the Kubernetes 1.33 API declares them; a field that is not here is a scalar, a
//! plain struct, a granular map or an atomic list.

/// A struct of the Kubernetes API, as far as it differs from a plain one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Type {
    /// The name in the API's source; kinds are their own names.
    pub(super) name: &'static str,
    /// Whether the struct has one owner as a whole.
    pub(super) atomic: bool,
    /// Its notable fields, ordered by name.
    pub(super) rows: &'static [Row],
}

/// A field of a struct.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The field's JSON name.
    pub(super) name: &'static str,
    /// The type of the field, or of its items, if it is a notable one; else empty.
    pub(super) child: &'static str,
    /// How ownership and server-side apply see the field.
    pub(super) ownership: Ownership,
    /// How a strategic merge patch sees the field.
    pub(super) merge: Merge,
    /// Whether the field always exists, even if it is not in the JSON: a struct, or a list that Go
    /// writes as null.
    pub(super) inline: bool,
}

/// How ownership and server-side apply see a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// By its value: maps and structs granular, lists atomic.
    Plain,
    /// A list whose items are told apart by these fields.
    Keyed(&'static [&'static str]),
    /// A list of distinct scalars.
    Set,
    /// One owner for the whole value.
    Atomic,
}

/// How a strategic merge patch sees a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Lists are replaced, maps merged.
    Plain,
    /// Lists are merged by this key; an empty key means scalars.
    List(&'static str),
    /// Maps are replaced.
    Replace,
}

/// The notable type of that name.
pub(super) fn find(name: &str) -> Option<&'static Type> {
    let index = TYPES.binary_search_by(|row| row.name.cmp(name)).ok()?;
    TYPES.get(index)
}

impl Type {
    /// The row of a field.
    pub(super) fn row(&self, name: &str) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

const fn ty(name: &'static str, rows: &'static [Row]) -> Type {
    Type { name, atomic: false, rows }
}

const fn atomic(name: &'static str) -> Type {
    Type { name, atomic: true, rows: &[] }
}

const fn row(name: &'static str, child: &'static str) -> Row {
    Row { name, child, ownership: Ownership::Plain, merge: Merge::Plain, inline: false }
}

impl Row {
    const fn keyed(mut self, keys: &'static [&'static str]) -> Self {
        self.ownership = Ownership::Keyed(keys);
        self
    }

    const fn set(mut self) -> Self {
        self.ownership = Ownership::Set;
        self
    }

    const fn atomic(mut self) -> Self {
        self.ownership = Ownership::Atomic;
        self
    }

    const fn merge(mut self, key: &'static str) -> Self {
        self.merge = Merge::List(key);
        self
    }

    const fn replace(mut self) -> Self {
        self.merge = Merge::Replace;
        self
    }

    const fn inline(mut self) -> Self {
        self.inline = true;
        self
    }
}

/// The notable types, ordered by name. Of a kind's `metadata`, `spec` and `status` the code knows
/// that they are there; `events.Event` is the one of the group `events.k8s.io`.
#[rustfmt::skip]
static TYPES: &[Type] = &[
    ty("Affinity", &[row("nodeAffinity", "NodeAffinity")]),
    ty("CSIDriver", &[row("spec", "CSIDriverSpec").inline()]),
    ty("CSIDriverSpec", &[row("volumeLifecycleModes", "").set()]),
    ty("CSINode", &[row("spec", "CSINodeSpec").inline()]),
    ty("CSINodeSpec", &[row("drivers", "").keyed(&["name"]).merge("name")]),
    ty("CSIPersistentVolumeSource", &[
        row("controllerExpandSecretRef", "SecretReference"),
        row("controllerPublishSecretRef", "SecretReference"),
        row("nodeExpandSecretRef", "SecretReference"),
        row("nodePublishSecretRef", "SecretReference"),
        row("nodeStageSecretRef", "SecretReference"),
    ]),
    ty("CSIVolumeSource", &[row("nodePublishSecretRef", "LocalObjectReference")]),
    ty("CephFSPersistentVolumeSource", &[row("secretRef", "SecretReference")]),
    ty("CephFSVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("CinderPersistentVolumeSource", &[row("secretRef", "SecretReference")]),
    ty("CinderVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("ClusterRole", &[row("rules", "").inline()]),
    ty("ClusterRoleBinding", &[row("roleRef", "RoleRef").inline()]),
    atomic("ConfigMapKeySelector"),
    ty("Container", &[
        row("env", "EnvVar").keyed(&["name"]).merge("name"),
        row("ports", "").keyed(&["containerPort", "protocol"]).merge("containerPort"),
        row("resources", "ResourceRequirements").inline(),
        row("volumeDevices", "").keyed(&["devicePath"]).merge("devicePath"),
        row("volumeMounts", "").keyed(&["mountPath"]).merge("mountPath"),
    ]),
    ty("CronJob", &[row("spec", "CronJobSpec").inline()]),
    ty("CronJobSpec", &[row("jobTemplate", "JobTemplateSpec").inline()]),
    ty("CustomResourceDefinition", &[
        row("spec", "CustomResourceDefinitionSpec").inline(),
        row("status", "CustomResourceDefinitionStatus").inline(),
    ]),
    ty("CustomResourceDefinitionSpec", &[row("names", "").inline()]),
    ty("CustomResourceDefinitionStatus", &[row("acceptedNames", "").inline(), row("conditions", "").keyed(&["type"])]),
    ty("DaemonSet", &[row("spec", "DaemonSetSpec").inline(), row("status", "DaemonSetStatus").inline()]),
    ty("DaemonSetSpec", &[
        row("selector", "LabelSelector"),
        row("template", "PodTemplateSpec").inline(),
        row("updateStrategy", "").inline(),
    ]),
    ty("DaemonSetStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("Deployment", &[row("spec", "DeploymentSpec").inline(), row("status", "DeploymentStatus").inline()]),
    ty("DeploymentSpec", &[
        row("selector", "LabelSelector"),
        row("strategy", "").inline(),
        row("template", "PodTemplateSpec").inline(),
    ]),
    ty("DeploymentStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("EnvVar", &[row("valueFrom", "EnvVarSource")]),
    ty("EnvVarSource", &[
        row("configMapKeyRef", "ConfigMapKeySelector"),
        row("fieldRef", "ObjectFieldSelector"),
        row("resourceFieldRef", "ResourceFieldSelector"),
        row("secretKeyRef", "SecretKeySelector"),
    ]),
    ty("EphemeralContainer", &[
        row("env", "EnvVar").keyed(&["name"]).merge("name"),
        row("ports", "").keyed(&["containerPort", "protocol"]).merge("containerPort"),
        row("resources", "ResourceRequirements").inline(),
        row("volumeDevices", "").keyed(&["devicePath"]).merge("devicePath"),
        row("volumeMounts", "").keyed(&["mountPath"]).merge("mountPath"),
    ]),
    ty("EphemeralVolumeSource", &[row("volumeClaimTemplate", "PersistentVolumeClaimTemplate")]),
    ty("Event", &[
        row("involvedObject", "ObjectReference").inline(),
        row("related", "ObjectReference"),
        row("source", "").inline(),
    ]),
    ty("FlexPersistentVolumeSource", &[row("secretRef", "SecretReference")]),
    ty("FlexVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("HorizontalPodAutoscaler", &[
        row("spec", "HorizontalPodAutoscalerSpec").inline(),
        row("status", "HorizontalPodAutoscalerStatus").inline(),
    ]),
    ty("HorizontalPodAutoscalerSpec", &[row("scaleTargetRef", "").inline()]),
    ty("HorizontalPodAutoscalerStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("ISCSIPersistentVolumeSource", &[row("secretRef", "SecretReference")]),
    ty("ISCSIVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("Ingress", &[row("spec", "IngressSpec").inline(), row("status", "IngressStatus").inline()]),
    ty("IngressBackend", &[row("resource", "TypedLocalObjectReference"), row("service", "IngressServiceBackend")]),
    ty("IngressServiceBackend", &[row("port", "ServiceBackendPort").inline()]),
    ty("IngressSpec", &[row("defaultBackend", "IngressBackend")]),
    ty("IngressStatus", &[row("loadBalancer", "").inline()]),
    ty("Job", &[row("spec", "JobSpec").inline(), row("status", "JobStatus").inline()]),
    ty("JobSpec", &[row("selector", "LabelSelector"), row("template", "PodTemplateSpec").inline()]),
    ty("JobStatus", &[
        row("conditions", "").merge("type"),
        row("uncountedTerminatedPods", "UncountedTerminatedPods"),
    ]),
    ty("JobTemplateSpec", &[row("metadata", "ObjectMeta").inline(), row("spec", "JobSpec").inline()]),
    atomic("LabelSelector"),
    atomic("LocalObjectReference"),
    atomic("MatchResources"),
    ty("MutatingWebhook", &[
        row("clientConfig", "").inline(),
        row("matchConditions", "").keyed(&["name"]).merge("name"),
        row("namespaceSelector", "LabelSelector"),
        row("objectSelector", "LabelSelector"),
    ]),
    ty("MutatingWebhookConfiguration", &[row("webhooks", "MutatingWebhook").keyed(&["name"]).merge("name")]),
    ty("Namespace", &[row("status", "NamespaceStatus").inline()]),
    ty("NamespaceStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("NetworkPolicy", &[row("spec", "NetworkPolicySpec").inline()]),
    ty("NetworkPolicySpec", &[row("podSelector", "LabelSelector").inline()]),
    ty("Node", &[row("spec", "NodeSpec").inline(), row("status", "NodeStatus").inline()]),
    ty("NodeAffinity", &[row("requiredDuringSchedulingIgnoredDuringExecution", "NodeSelector")]),
    ty("NodeDaemonEndpoints", &[row("kubeletEndpoint", "").inline()]),
    atomic("NodeSelector"),
    ty("NodeSpec", &[row("podCIDRs", "").set().merge("")]),
    ty("NodeStatus", &[
        row("addresses", "").keyed(&["type"]).merge("type"),
        row("conditions", "").keyed(&["type"]).merge("type"),
        row("daemonEndpoints", "NodeDaemonEndpoints").inline(),
        row("nodeInfo", "").inline(),
    ]),
    atomic("ObjectFieldSelector"),
    ty("ObjectMeta", &[
        row("finalizers", "").set().merge(""),
        row("ownerReferences", "OwnerReference").keyed(&["uid"]).merge("uid"),
    ]),
    atomic("ObjectReference"),
    atomic("OwnerReference"),
    atomic("ParamKind"),
    atomic("ParamRef"),
    ty("PersistentVolume", &[row("spec", "PersistentVolumeSpec").inline()]),
    ty("PersistentVolumeClaim", &[
        row("spec", "PersistentVolumeClaimSpec").inline(),
        row("status", "PersistentVolumeClaimStatus").inline(),
    ]),
    ty("PersistentVolumeClaimSpec", &[
        row("dataSource", "TypedLocalObjectReference"),
        row("resources", "").inline(),
        row("selector", "LabelSelector"),
    ]),
    ty("PersistentVolumeClaimStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("PersistentVolumeClaimTemplate", &[row("metadata", "ObjectMeta").inline(), row("spec", "PersistentVolumeClaimSpec").inline()]),
    ty("PersistentVolumeSpec", &[
        row("cephfs", "CephFSPersistentVolumeSource"),
        row("cinder", "CinderPersistentVolumeSource"),
        row("claimRef", "ObjectReference"),
        row("csi", "CSIPersistentVolumeSource"),
        row("flexVolume", "FlexPersistentVolumeSource"),
        row("iscsi", "ISCSIPersistentVolumeSource"),
        row("nodeAffinity", "VolumeNodeAffinity"),
        row("rbd", "RBDPersistentVolumeSource"),
        row("scaleIO", "ScaleIOPersistentVolumeSource"),
        row("storageos", "StorageOSPersistentVolumeSource"),
    ]),
    ty("Pod", &[row("spec", "PodSpec").inline(), row("status", "PodStatus").inline()]),
    ty("PodDisruptionBudget", &[
        row("spec", "PodDisruptionBudgetSpec").inline(),
        row("status", "PodDisruptionBudgetStatus").inline(),
    ]),
    ty("PodDisruptionBudgetSpec", &[row("selector", "LabelSelector").replace()]),
    ty("PodDisruptionBudgetStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("PodSpec", &[
        row("affinity", "Affinity"),
        row("containers", "Container").keyed(&["name"]).merge("name").inline(),
        row("ephemeralContainers", "EphemeralContainer").keyed(&["name"]).merge("name"),
        row("hostAliases", "").keyed(&["ip"]).merge("ip"),
        row("imagePullSecrets", "LocalObjectReference").keyed(&["name"]).merge("name"),
        row("initContainers", "Container").keyed(&["name"]).merge("name"),
        row("nodeSelector", "").atomic(),
        row("resourceClaims", "").keyed(&["name"]).merge("name"),
        row("resources", "ResourceRequirements"),
        row("schedulingGates", "").keyed(&["name"]).merge("name"),
        row("topologySpreadConstraints", "TopologySpreadConstraint").keyed(&["topologyKey", "whenUnsatisfiable"]).merge("topologyKey"),
        row("volumes", "Volume").keyed(&["name"]).merge("name"),
    ]),
    ty("PodStatus", &[
        row("conditions", "").keyed(&["type"]).merge("type"),
        row("hostIPs", "").merge("ip"),
        row("podIPs", "").keyed(&["ip"]).merge("ip"),
        row("resourceClaimStatuses", "").keyed(&["name"]).merge("name"),
    ]),
    ty("PodTemplateSpec", &[row("metadata", "ObjectMeta").inline(), row("spec", "PodSpec").inline()]),
    ty("PriorityClass", &[row("value", "").inline()]),
    ty("RBDPersistentVolumeSource", &[row("secretRef", "SecretReference")]),
    ty("RBDVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("ReplicaSet", &[row("spec", "ReplicaSetSpec").inline(), row("status", "ReplicaSetStatus").inline()]),
    ty("ReplicaSetSpec", &[row("selector", "LabelSelector"), row("template", "PodTemplateSpec").inline()]),
    ty("ReplicaSetStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("ReplicationController", &[
        row("spec", "ReplicationControllerSpec").inline(),
        row("status", "ReplicationControllerStatus").inline(),
    ]),
    ty("ReplicationControllerSpec", &[row("selector", "").atomic(), row("template", "PodTemplateSpec")]),
    ty("ReplicationControllerStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    atomic("ResourceFieldSelector"),
    ty("ResourceQuota", &[row("spec", "ResourceQuotaSpec").inline()]),
    ty("ResourceQuotaSpec", &[row("scopeSelector", "ScopeSelector")]),
    ty("ResourceRequirements", &[row("claims", "").keyed(&["name"])]),
    ty("Role", &[row("rules", "").inline()]),
    ty("RoleBinding", &[row("roleRef", "RoleRef").inline()]),
    atomic("RoleRef"),
    ty("RuntimeClass", &[row("scheduling", "Scheduling")]),
    ty("ScaleIOPersistentVolumeSource", &[row("secretRef", "SecretReference")]),
    ty("ScaleIOVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("Scheduling", &[row("nodeSelector", "").atomic()]),
    atomic("ScopeSelector"),
    atomic("SecretKeySelector"),
    atomic("SecretReference"),
    ty("Service", &[row("spec", "ServiceSpec").inline(), row("status", "ServiceStatus").inline()]),
    ty("ServiceAccount", &[row("secrets", "ObjectReference").keyed(&["name"]).merge("name")]),
    atomic("ServiceBackendPort"),
    ty("ServiceSpec", &[row("ports", "").keyed(&["port", "protocol"]).merge("port"), row("selector", "").atomic()]),
    ty("ServiceStatus", &[row("conditions", "").keyed(&["type"]).merge("type"), row("loadBalancer", "").inline()]),
    ty("StatefulSet", &[row("spec", "StatefulSetSpec").inline(), row("status", "StatefulSetStatus").inline()]),
    ty("StatefulSetSpec", &[
        row("selector", "LabelSelector"),
        row("serviceName", "").inline(),
        row("template", "PodTemplateSpec").inline(),
        row("updateStrategy", "").inline(),
    ]),
    ty("StatefulSetStatus", &[row("conditions", "").keyed(&["type"]).merge("type")]),
    ty("StorageOSPersistentVolumeSource", &[row("secretRef", "ObjectReference")]),
    ty("StorageOSVolumeSource", &[row("secretRef", "LocalObjectReference")]),
    ty("TopologySpreadConstraint", &[row("labelSelector", "LabelSelector")]),
    atomic("TypedLocalObjectReference"),
    ty("UncountedTerminatedPods", &[row("failed", "").set(), row("succeeded", "").set()]),
    ty("ValidatingAdmissionPolicy", &[
        row("spec", "ValidatingAdmissionPolicySpec").inline(),
        row("status", "ValidatingAdmissionPolicyStatus").inline(),
    ]),
    ty("ValidatingAdmissionPolicyBinding", &[row("spec", "ValidatingAdmissionPolicyBindingSpec").inline()]),
    ty("ValidatingAdmissionPolicyBindingSpec", &[
        row("matchResources", "MatchResources"),
        row("paramRef", "ParamRef"),
        row("validationActions", "").set(),
    ]),
    ty("ValidatingAdmissionPolicySpec", &[
        row("matchConditions", "").keyed(&["name"]).merge("name"),
        row("matchConstraints", "MatchResources"),
        row("paramKind", "ParamKind"),
        row("variables", "Variable").keyed(&["name"]).merge("name"),
    ]),
    ty("ValidatingAdmissionPolicyStatus", &[row("conditions", "").keyed(&["type"])]),
    ty("ValidatingWebhook", &[
        row("clientConfig", "").inline(),
        row("matchConditions", "").keyed(&["name"]).merge("name"),
        row("namespaceSelector", "LabelSelector"),
        row("objectSelector", "LabelSelector"),
    ]),
    ty("ValidatingWebhookConfiguration", &[row("webhooks", "ValidatingWebhook").keyed(&["name"]).merge("name")]),
    atomic("Variable"),
    ty("Volume", &[
        row("cephfs", "CephFSVolumeSource"),
        row("cinder", "CinderVolumeSource"),
        row("csi", "CSIVolumeSource"),
        row("ephemeral", "EphemeralVolumeSource"),
        row("flexVolume", "FlexVolumeSource"),
        row("iscsi", "ISCSIVolumeSource"),
        row("rbd", "RBDVolumeSource"),
        row("scaleIO", "ScaleIOVolumeSource"),
        row("storageos", "StorageOSVolumeSource"),
    ]),
    ty("VolumeNodeAffinity", &[row("required", "NodeSelector")]),
    ty("events.Event", &[
        row("deprecatedSource", "").inline(),
        row("regarding", "ObjectReference").inline(),
        row("related", "ObjectReference"),
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_ordered_and_refer_to_each_other() {
        assert!(TYPES.is_sorted_by(|a, b| a.name < b.name));
        for ty in TYPES {
            assert!(ty.rows.is_sorted_by(|a, b| a.name < b.name), "{}", ty.name);
            for row in ty.rows {
                assert!(
                    row.child.is_empty() || find(row.child).is_some(),
                    "{}.{}",
                    ty.name,
                    row.name
                );
            }
        }
    }
}
