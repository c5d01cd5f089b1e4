//! The field numbers of the kinds that kubectl sends in protobuf.
//!
//! Facts of the Kubernetes API, as rows of: number, JSON name, whether it repeats, content. Fields
//! that no kubectl command sets (affinity, probes, status) are left out.

use super::Field;
use super::Kind::{
    Bool, Bytes, Count, Flag, Inline, Int, IntOrString, Map, Message, Quantity, Text, Time,
};

/// The fields of a kind.
pub(super) fn of(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "Namespace" => NAMESPACE,
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "Service" => SERVICE,
        "ResourceQuota" => RESOURCE_QUOTA,
        "Pod" => POD,
        "Deployment" => DEPLOYMENT,
        "Job" => JOB,
        "CronJob" => CRON_JOB,
        "Role" => ROLE,
        "ClusterRole" => CLUSTER_ROLE,
        "RoleBinding" => ROLE_BINDING,
        "ClusterRoleBinding" => CLUSTER_ROLE_BINDING,
        "PodDisruptionBudget" => POD_DISRUPTION_BUDGET,
        "Eviction" => EVICTION,
        "PriorityClass" => PRIORITY_CLASS,
        "Ingress" => INGRESS,
        "HorizontalPodAutoscaler" => HORIZONTAL_POD_AUTOSCALER,
        "TokenRequest" => TOKEN_REQUEST,
        "SelfSubjectReview" => SELF_SUBJECT_REVIEW,
        "TokenReview" => TOKEN_REVIEW,
        "SelfSubjectAccessReview" => SELF_SUBJECT_ACCESS_REVIEW,
        "SelfSubjectRulesReview" => SELF_SUBJECT_RULES_REVIEW,
        "SubjectAccessReview" => SUBJECT_ACCESS_REVIEW,
        "DeleteOptions" => DELETE_OPTIONS,
        _ => return None,
    })
}

#[rustfmt::skip]
const OWNER_REFERENCE: &[Field] = &[
    (1, "kind", false, Text), (3, "name", false, Text), (4, "uid", false, Text),
    (5, "apiVersion", false, Text), (6, "controller", false, Bool),
    (7, "blockOwnerDeletion", false, Bool),
];
#[rustfmt::skip]
const OBJECT_META: &[Field] = &[
    (1, "name", false, Text), (2, "generateName", false, Text), (3, "namespace", false, Text),
    (5, "uid", false, Text), (6, "resourceVersion", false, Text), (7, "generation", false, Count),
    (8, "creationTimestamp", false, Time), (9, "deletionTimestamp", false, Time),
    (10, "deletionGracePeriodSeconds", false, Int), (11, "labels", false, Map(&Text)),
    (12, "annotations", false, Map(&Text)), (13, "ownerReferences", true, Message(OWNER_REFERENCE)),
    (14, "finalizers", true, Text),
];
#[rustfmt::skip]
const NAMESPACE_SPEC: &[Field] = &[
    (1, "finalizers", true, Text),
];
#[rustfmt::skip]
const NAMESPACE: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(NAMESPACE_SPEC)),
];
#[rustfmt::skip]
const CONFIG_MAP: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "data", false, Map(&Text)),
    (3, "binaryData", false, Map(&Bytes)), (4, "immutable", false, Bool),
];
#[rustfmt::skip]
const SECRET: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "data", false, Map(&Bytes)),
    (3, "type", false, Text), (4, "stringData", false, Map(&Text)), (5, "immutable", false, Bool),
];
#[rustfmt::skip]
const OBJECT_REFERENCE: &[Field] = &[
    (1, "kind", false, Text), (2, "namespace", false, Text), (3, "name", false, Text),
    (4, "uid", false, Text), (5, "apiVersion", false, Text), (6, "resourceVersion", false, Text),
    (7, "fieldPath", false, Text),
];
#[rustfmt::skip]
const LOCAL_OBJECT_REFERENCE: &[Field] = &[
    (1, "name", false, Text),
];
#[rustfmt::skip]
const SERVICE_ACCOUNT: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "secrets", true, Message(OBJECT_REFERENCE)),
    (3, "imagePullSecrets", true, Message(LOCAL_OBJECT_REFERENCE)),
    (4, "automountServiceAccountToken", false, Bool),
];
#[rustfmt::skip]
const SERVICE_PORT: &[Field] = &[
    (1, "name", false, Text), (2, "protocol", false, Text), (3, "port", false, Int),
    (4, "targetPort", false, IntOrString), (5, "nodePort", false, Count),
    (6, "appProtocol", false, Text),
];
#[rustfmt::skip]
const SERVICE_SPEC: &[Field] = &[
    (1, "ports", true, Message(SERVICE_PORT)), (2, "selector", false, Map(&Text)),
    (3, "clusterIP", false, Text), (4, "type", false, Text), (5, "externalIPs", true, Text),
    (7, "sessionAffinity", false, Text), (8, "loadBalancerIP", false, Text),
    (9, "loadBalancerSourceRanges", true, Text), (10, "externalName", false, Text),
    (11, "externalTrafficPolicy", false, Text), (12, "healthCheckNodePort", false, Count),
    (13, "publishNotReadyAddresses", false, Flag), (17, "ipFamilyPolicy", false, Text),
    (18, "clusterIPs", true, Text), (19, "ipFamilies", true, Text),
    (20, "allocateLoadBalancerNodePorts", false, Bool), (21, "loadBalancerClass", false, Text),
    (22, "internalTrafficPolicy", false, Text), (23, "trafficDistribution", false, Text),
];
#[rustfmt::skip]
const SERVICE: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(SERVICE_SPEC)),
];
#[rustfmt::skip]
const RESOURCE_QUOTA_SPEC: &[Field] = &[
    (1, "hard", false, Map(&Quantity)), (2, "scopes", true, Text),
];
#[rustfmt::skip]
const RESOURCE_QUOTA: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(RESOURCE_QUOTA_SPEC)),
];
#[rustfmt::skip]
const HOST_PATH_VOLUME_SOURCE: &[Field] = &[
    (1, "path", false, Text), (2, "type", false, Text),
];
#[rustfmt::skip]
const EMPTY_DIR_VOLUME_SOURCE: &[Field] = &[
    (1, "medium", false, Text), (2, "sizeLimit", false, Quantity),
];
#[rustfmt::skip]
const KEY_TO_PATH: &[Field] = &[
    (1, "key", false, Text), (2, "path", false, Text), (3, "mode", false, Int),
];
#[rustfmt::skip]
const SECRET_VOLUME_SOURCE: &[Field] = &[
    (1, "secretName", false, Text), (2, "items", true, Message(KEY_TO_PATH)),
    (3, "defaultMode", false, Int), (4, "optional", false, Bool),
];
#[rustfmt::skip]
const PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: &[Field] = &[
    (1, "claimName", false, Text), (2, "readOnly", false, Flag),
];
#[rustfmt::skip]
const CONFIG_MAP_VOLUME_SOURCE: &[Field] = &[
    (1, "localObjectReference", false, Inline(LOCAL_OBJECT_REFERENCE)),
    (2, "items", true, Message(KEY_TO_PATH)), (3, "defaultMode", false, Int),
    (4, "optional", false, Bool),
];
#[rustfmt::skip]
const VOLUME_SOURCE: &[Field] = &[
    (1, "hostPath", false, Message(HOST_PATH_VOLUME_SOURCE)),
    (2, "emptyDir", false, Message(EMPTY_DIR_VOLUME_SOURCE)),
    (6, "secret", false, Message(SECRET_VOLUME_SOURCE)),
    (10, "persistentVolumeClaim", false, Message(PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    (19, "configMap", false, Message(CONFIG_MAP_VOLUME_SOURCE)),
];
#[rustfmt::skip]
const VOLUME: &[Field] = &[
    (1, "name", false, Text), (2, "volumeSource", false, Inline(VOLUME_SOURCE)),
];
#[rustfmt::skip]
const CONTAINER_PORT: &[Field] = &[
    (1, "name", false, Text), (2, "hostPort", false, Count), (3, "containerPort", false, Int),
    (4, "protocol", false, Text), (5, "hostIP", false, Text),
];
#[rustfmt::skip]
const CONFIG_MAP_ENV_SOURCE: &[Field] = &[
    (1, "localObjectReference", false, Inline(LOCAL_OBJECT_REFERENCE)),
    (2, "optional", false, Bool),
];
#[rustfmt::skip]
const SECRET_ENV_SOURCE: &[Field] = &[
    (1, "localObjectReference", false, Inline(LOCAL_OBJECT_REFERENCE)),
    (2, "optional", false, Bool),
];
#[rustfmt::skip]
const ENV_FROM_SOURCE: &[Field] = &[
    (1, "prefix", false, Text), (2, "configMapRef", false, Message(CONFIG_MAP_ENV_SOURCE)),
    (3, "secretRef", false, Message(SECRET_ENV_SOURCE)),
];
#[rustfmt::skip]
const OBJECT_FIELD_SELECTOR: &[Field] = &[
    (1, "apiVersion", false, Text), (2, "fieldPath", false, Text),
];
#[rustfmt::skip]
const CONFIG_MAP_KEY_SELECTOR: &[Field] = &[
    (1, "localObjectReference", false, Inline(LOCAL_OBJECT_REFERENCE)), (2, "key", false, Text),
    (3, "optional", false, Bool),
];
#[rustfmt::skip]
const SECRET_KEY_SELECTOR: &[Field] = &[
    (1, "localObjectReference", false, Inline(LOCAL_OBJECT_REFERENCE)), (2, "key", false, Text),
    (3, "optional", false, Bool),
];
#[rustfmt::skip]
const ENV_VAR_SOURCE: &[Field] = &[
    (1, "fieldRef", false, Message(OBJECT_FIELD_SELECTOR)),
    (3, "configMapKeyRef", false, Message(CONFIG_MAP_KEY_SELECTOR)),
    (4, "secretKeyRef", false, Message(SECRET_KEY_SELECTOR)),
];
#[rustfmt::skip]
const ENV_VAR: &[Field] = &[
    (1, "name", false, Text), (2, "value", false, Text),
    (3, "valueFrom", false, Message(ENV_VAR_SOURCE)),
];
#[rustfmt::skip]
const RESOURCE_REQUIREMENTS: &[Field] = &[
    (1, "limits", false, Map(&Quantity)), (2, "requests", false, Map(&Quantity)),
];
#[rustfmt::skip]
const VOLUME_MOUNT: &[Field] = &[
    (1, "name", false, Text), (2, "readOnly", false, Flag), (3, "mountPath", false, Text),
    (4, "subPath", false, Text), (5, "mountPropagation", false, Text),
    (6, "subPathExpr", false, Text), (7, "recursiveReadOnly", false, Text),
];
#[rustfmt::skip]
const CAPABILITIES: &[Field] = &[
    (1, "add", true, Text), (2, "drop", true, Text),
];
#[rustfmt::skip]
const SECURITY_CONTEXT: &[Field] = &[
    (1, "capabilities", false, Message(CAPABILITIES)), (2, "privileged", false, Bool),
    (4, "runAsUser", false, Int), (5, "runAsNonRoot", false, Bool),
    (6, "readOnlyRootFilesystem", false, Bool), (7, "allowPrivilegeEscalation", false, Bool),
    (8, "runAsGroup", false, Int), (9, "procMount", false, Text),
];
#[rustfmt::skip]
const CONTAINER: &[Field] = &[
    (1, "name", false, Text), (2, "image", false, Text), (3, "command", true, Text),
    (4, "args", true, Text), (5, "workingDir", false, Text),
    (6, "ports", true, Message(CONTAINER_PORT)), (7, "env", true, Message(ENV_VAR)),
    (8, "resources", false, Message(RESOURCE_REQUIREMENTS)),
    (9, "volumeMounts", true, Message(VOLUME_MOUNT)), (13, "terminationMessagePath", false, Text),
    (14, "imagePullPolicy", false, Text), (15, "securityContext", false, Message(SECURITY_CONTEXT)),
    (16, "stdin", false, Flag), (17, "stdinOnce", false, Flag), (18, "tty", false, Flag),
    (19, "envFrom", true, Message(ENV_FROM_SOURCE)), (20, "terminationMessagePolicy", false, Text),
    (24, "restartPolicy", false, Text),
];
#[rustfmt::skip]
const POD_SECURITY_CONTEXT: &[Field] = &[
    (2, "runAsUser", false, Int), (3, "runAsNonRoot", false, Bool),
    (4, "supplementalGroups", true, Int), (5, "fsGroup", false, Int), (6, "runAsGroup", false, Int),
    (9, "fsGroupChangePolicy", false, Text), (12, "supplementalGroupsPolicy", false, Text),
    (13, "seLinuxChangePolicy", false, Text),
];
#[rustfmt::skip]
const TOLERATION: &[Field] = &[
    (1, "key", false, Text), (2, "operator", false, Text), (3, "value", false, Text),
    (4, "effect", false, Text), (5, "tolerationSeconds", false, Int),
];
#[rustfmt::skip]
const POD_SPEC: &[Field] = &[
    (1, "volumes", true, Message(VOLUME)), (2, "containers", true, Message(CONTAINER)),
    (3, "restartPolicy", false, Text), (4, "terminationGracePeriodSeconds", false, Int),
    (5, "activeDeadlineSeconds", false, Int), (6, "dnsPolicy", false, Text),
    (7, "nodeSelector", false, Map(&Text)), (8, "serviceAccountName", false, Text),
    (9, "serviceAccount", false, Text), (10, "nodeName", false, Text),
    (11, "hostNetwork", false, Flag), (12, "hostPID", false, Flag), (13, "hostIPC", false, Flag),
    (14, "securityContext", false, Message(POD_SECURITY_CONTEXT)),
    (15, "imagePullSecrets", true, Message(LOCAL_OBJECT_REFERENCE)), (16, "hostname", false, Text),
    (17, "subdomain", false, Text), (19, "schedulerName", false, Text),
    (20, "initContainers", true, Message(CONTAINER)),
    (21, "automountServiceAccountToken", false, Bool),
    (22, "tolerations", true, Message(TOLERATION)), (24, "priorityClassName", false, Text),
    (25, "priority", false, Int), (27, "shareProcessNamespace", false, Bool),
    (29, "runtimeClassName", false, Text), (30, "enableServiceLinks", false, Bool),
    (31, "preemptionPolicy", false, Text), (32, "overhead", false, Map(&Quantity)),
    (35, "setHostnameAsFQDN", false, Bool), (37, "hostUsers", false, Bool),
    (40, "resources", false, Message(RESOURCE_REQUIREMENTS)), (41, "hostnameOverride", false, Text),
];
#[rustfmt::skip]
const POD: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(POD_SPEC)),
];
#[rustfmt::skip]
const LABEL_SELECTOR_REQUIREMENT: &[Field] = &[
    (1, "key", false, Text), (2, "operator", false, Text), (3, "values", true, Text),
];
#[rustfmt::skip]
const LABEL_SELECTOR: &[Field] = &[
    (1, "matchLabels", false, Map(&Text)),
    (2, "matchExpressions", true, Message(LABEL_SELECTOR_REQUIREMENT)),
];
#[rustfmt::skip]
const POD_TEMPLATE_SPEC: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(POD_SPEC)),
];
#[rustfmt::skip]
const ROLLING_UPDATE_DEPLOYMENT: &[Field] = &[
    (1, "maxUnavailable", false, IntOrString), (2, "maxSurge", false, IntOrString),
];
#[rustfmt::skip]
const DEPLOYMENT_STRATEGY: &[Field] = &[
    (1, "type", false, Text), (2, "rollingUpdate", false, Message(ROLLING_UPDATE_DEPLOYMENT)),
];
#[rustfmt::skip]
const DEPLOYMENT_SPEC: &[Field] = &[
    (1, "replicas", false, Int), (2, "selector", false, Message(LABEL_SELECTOR)),
    (3, "template", false, Message(POD_TEMPLATE_SPEC)),
    (4, "strategy", false, Message(DEPLOYMENT_STRATEGY)), (5, "minReadySeconds", false, Count),
    (6, "revisionHistoryLimit", false, Int), (7, "paused", false, Flag),
    (9, "progressDeadlineSeconds", false, Int),
];
#[rustfmt::skip]
const DEPLOYMENT: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(DEPLOYMENT_SPEC)),
];
#[rustfmt::skip]
const JOB_SPEC: &[Field] = &[
    (1, "parallelism", false, Int), (2, "completions", false, Int),
    (3, "activeDeadlineSeconds", false, Int), (4, "selector", false, Message(LABEL_SELECTOR)),
    (5, "manualSelector", false, Bool), (6, "template", false, Message(POD_TEMPLATE_SPEC)),
    (7, "backoffLimit", false, Int), (8, "ttlSecondsAfterFinished", false, Int),
    (9, "completionMode", false, Text), (10, "suspend", false, Bool),
    (12, "backoffLimitPerIndex", false, Int), (13, "maxFailedIndexes", false, Int),
    (14, "podReplacementPolicy", false, Text), (15, "managedBy", false, Text),
];
#[rustfmt::skip]
const JOB: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(JOB_SPEC)),
];
#[rustfmt::skip]
const JOB_TEMPLATE_SPEC: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(JOB_SPEC)),
];
#[rustfmt::skip]
const CRON_JOB_SPEC: &[Field] = &[
    (1, "schedule", false, Text), (2, "startingDeadlineSeconds", false, Int),
    (3, "concurrencyPolicy", false, Text), (4, "suspend", false, Bool),
    (5, "jobTemplate", false, Message(JOB_TEMPLATE_SPEC)),
    (6, "successfulJobsHistoryLimit", false, Int), (7, "failedJobsHistoryLimit", false, Int),
    (8, "timeZone", false, Text),
];
#[rustfmt::skip]
const CRON_JOB: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(CRON_JOB_SPEC)),
];
#[rustfmt::skip]
const POLICY_RULE: &[Field] = &[
    (1, "verbs", true, Text), (2, "apiGroups", true, Text), (3, "resources", true, Text),
    (4, "resourceNames", true, Text), (5, "nonResourceURLs", true, Text),
];
#[rustfmt::skip]
const ROLE: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "rules", true, Message(POLICY_RULE)),
];
#[rustfmt::skip]
const CLUSTER_ROLE: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "rules", true, Message(POLICY_RULE)),
];
#[rustfmt::skip]
const SUBJECT: &[Field] = &[
    (1, "kind", false, Text), (2, "apiGroup", false, Text), (3, "name", false, Text),
    (4, "namespace", false, Text),
];
#[rustfmt::skip]
const ROLE_REF: &[Field] = &[
    (1, "apiGroup", false, Text), (2, "kind", false, Text), (3, "name", false, Text),
];
#[rustfmt::skip]
const ROLE_BINDING: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "subjects", true, Message(SUBJECT)),
    (3, "roleRef", false, Message(ROLE_REF)),
];
#[rustfmt::skip]
const CLUSTER_ROLE_BINDING: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "subjects", true, Message(SUBJECT)),
    (3, "roleRef", false, Message(ROLE_REF)),
];
#[rustfmt::skip]
const POD_DISRUPTION_BUDGET_SPEC: &[Field] = &[
    (1, "minAvailable", false, IntOrString), (2, "selector", false, Message(LABEL_SELECTOR)),
    (3, "maxUnavailable", false, IntOrString), (4, "unhealthyPodEvictionPolicy", false, Text),
];
#[rustfmt::skip]
const POD_DISRUPTION_BUDGET: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
    (2, "spec", false, Message(POD_DISRUPTION_BUDGET_SPEC)),
];
#[rustfmt::skip]
const PRECONDITIONS: &[Field] = &[
    (1, "uid", false, Text), (2, "resourceVersion", false, Text),
];
#[rustfmt::skip]
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", false, Int), (2, "preconditions", false, Message(PRECONDITIONS)),
    (3, "orphanDependents", false, Bool), (4, "propagationPolicy", false, Text),
    (5, "dryRun", true, Text), (6, "ignoreStoreReadErrorWithClusterBreakingPotential", false, Bool),
];
#[rustfmt::skip]
const EVICTION: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
    (2, "deleteOptions", false, Message(DELETE_OPTIONS)),
];
#[rustfmt::skip]
const PRIORITY_CLASS: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "value", false, Int),
    (3, "globalDefault", false, Flag), (4, "description", false, Text),
    (5, "preemptionPolicy", false, Text),
];
#[rustfmt::skip]
const SERVICE_BACKEND_PORT: &[Field] = &[
    (1, "name", false, Text), (2, "number", false, Count),
];
#[rustfmt::skip]
const INGRESS_SERVICE_BACKEND: &[Field] = &[
    (1, "name", false, Text), (2, "port", false, Message(SERVICE_BACKEND_PORT)),
];
#[rustfmt::skip]
const TYPED_LOCAL_OBJECT_REFERENCE: &[Field] = &[
    (1, "apiGroup", false, Text), (2, "kind", false, Text), (3, "name", false, Text),
];
#[rustfmt::skip]
const INGRESS_BACKEND: &[Field] = &[
    (3, "resource", false, Message(TYPED_LOCAL_OBJECT_REFERENCE)),
    (4, "service", false, Message(INGRESS_SERVICE_BACKEND)),
];
#[rustfmt::skip]
const INGRESS_TLS: &[Field] = &[
    (1, "hosts", true, Text), (2, "secretName", false, Text),
];
#[rustfmt::skip]
const HTTP_INGRESS_PATH: &[Field] = &[
    (1, "path", false, Text), (2, "backend", false, Message(INGRESS_BACKEND)),
    (3, "pathType", false, Text),
];
#[rustfmt::skip]
const HTTP_INGRESS_RULE_VALUE: &[Field] = &[
    (1, "paths", true, Message(HTTP_INGRESS_PATH)),
];
#[rustfmt::skip]
const INGRESS_RULE_VALUE: &[Field] = &[
    (1, "http", false, Message(HTTP_INGRESS_RULE_VALUE)),
];
#[rustfmt::skip]
const INGRESS_RULE: &[Field] = &[
    (1, "host", false, Text), (2, "ingressRuleValue", false, Inline(INGRESS_RULE_VALUE)),
];
#[rustfmt::skip]
const INGRESS_SPEC: &[Field] = &[
    (1, "defaultBackend", false, Message(INGRESS_BACKEND)), (2, "tls", true, Message(INGRESS_TLS)),
    (3, "rules", true, Message(INGRESS_RULE)), (4, "ingressClassName", false, Text),
];
#[rustfmt::skip]
const INGRESS: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(INGRESS_SPEC)),
];
#[rustfmt::skip]
const CROSS_VERSION_OBJECT_REFERENCE: &[Field] = &[
    (1, "kind", false, Text), (2, "name", false, Text), (3, "apiVersion", false, Text),
];
#[rustfmt::skip]
const METRIC_TARGET: &[Field] = &[
    (1, "type", false, Text), (2, "value", false, Quantity), (3, "averageValue", false, Quantity),
    (4, "averageUtilization", false, Int),
];
#[rustfmt::skip]
const RESOURCE_METRIC_SOURCE: &[Field] = &[
    (1, "name", false, Text), (2, "target", false, Message(METRIC_TARGET)),
];
#[rustfmt::skip]
const METRIC_SPEC: &[Field] = &[
    (1, "type", false, Text), (4, "resource", false, Message(RESOURCE_METRIC_SOURCE)),
];
#[rustfmt::skip]
const HORIZONTAL_POD_AUTOSCALER_SPEC: &[Field] = &[
    (1, "scaleTargetRef", false, Message(CROSS_VERSION_OBJECT_REFERENCE)),
    (2, "minReplicas", false, Int), (3, "maxReplicas", false, Int),
    (4, "metrics", true, Message(METRIC_SPEC)),
];
#[rustfmt::skip]
const HORIZONTAL_POD_AUTOSCALER: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
    (2, "spec", false, Message(HORIZONTAL_POD_AUTOSCALER_SPEC)),
];
#[rustfmt::skip]
const BOUND_OBJECT_REFERENCE: &[Field] = &[
    (1, "kind", false, Text), (2, "apiVersion", false, Text), (3, "name", false, Text),
    (4, "uID", false, Text),
];
#[rustfmt::skip]
const TOKEN_REQUEST_SPEC: &[Field] = &[
    (1, "audiences", true, Text), (3, "boundObjectRef", false, Message(BOUND_OBJECT_REFERENCE)),
    (4, "expirationSeconds", false, Int),
];
#[rustfmt::skip]
const TOKEN_REQUEST: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(TOKEN_REQUEST_SPEC)),
];
#[rustfmt::skip]
const SELF_SUBJECT_REVIEW: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
];
#[rustfmt::skip]
const TOKEN_REVIEW_SPEC: &[Field] = &[
    (1, "token", false, Text), (2, "audiences", true, Text),
];
#[rustfmt::skip]
const TOKEN_REVIEW: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)), (2, "spec", false, Message(TOKEN_REVIEW_SPEC)),
];
#[rustfmt::skip]
const RESOURCE_ATTRIBUTES: &[Field] = &[
    (1, "namespace", false, Text), (2, "verb", false, Text), (3, "group", false, Text),
    (4, "version", false, Text), (5, "resource", false, Text), (6, "subresource", false, Text),
    (7, "name", false, Text),
];
#[rustfmt::skip]
const NON_RESOURCE_ATTRIBUTES: &[Field] = &[
    (1, "path", false, Text), (2, "verb", false, Text),
];
#[rustfmt::skip]
const SELF_SUBJECT_ACCESS_REVIEW_SPEC: &[Field] = &[
    (1, "resourceAttributes", false, Message(RESOURCE_ATTRIBUTES)),
    (2, "nonResourceAttributes", false, Message(NON_RESOURCE_ATTRIBUTES)),
];
#[rustfmt::skip]
const SELF_SUBJECT_ACCESS_REVIEW: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
    (2, "spec", false, Message(SELF_SUBJECT_ACCESS_REVIEW_SPEC)),
];
#[rustfmt::skip]
const SELF_SUBJECT_RULES_REVIEW_SPEC: &[Field] = &[
    (1, "namespace", false, Text),
];
#[rustfmt::skip]
const SELF_SUBJECT_RULES_REVIEW: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
    (2, "spec", false, Message(SELF_SUBJECT_RULES_REVIEW_SPEC)),
];
#[rustfmt::skip]
const SUBJECT_ACCESS_REVIEW_SPEC: &[Field] = &[
    (1, "resourceAttributes", false, Message(RESOURCE_ATTRIBUTES)),
    (2, "nonResourceAttributes", false, Message(NON_RESOURCE_ATTRIBUTES)), (3, "user", false, Text),
    (4, "groups", true, Text), (6, "uid", false, Text),
];
#[rustfmt::skip]
const SUBJECT_ACCESS_REVIEW: &[Field] = &[
    (1, "metadata", false, Message(OBJECT_META)),
    (2, "spec", false, Message(SUBJECT_ACCESS_REVIEW_SPEC)),
];
