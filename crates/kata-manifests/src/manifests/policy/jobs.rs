//! The operator may create and delete the Jobs of the node agent, which have no token and no privilege, and start
//! no other program than the operator's.
//!
//! RBAC grants `create` on Jobs in the operator's namespace, which is `privileged`: a client with the
//! operator's token could start any program as root on every node. What stays possible is to run the node
//! agent with another task, so also to install another payload.

use kata_api::names::DOMAIN;
use kata_api::names::node_job::{
    AGENT_MOUNT, AGENT_VOLUME, CAPABILITIES, COMPONENT, COMPONENT_LABEL, COPY, FOLDERS, HOST_ROOT,
    LOCK_FOLDER, OPERATOR, PAYLOAD_FOLDER, READ_ONLY, SERVICE_ACCOUNT, STAGE_CAPABILITIES,
};

use super::rules::{Rules, list, or};

/// What the pods do not have: other runtimes, devices, and a view of each other.
const NOT_OF_PODS: [&str; 3] = ["resourceClaims", "runtimeClassName", "shareProcessNamespace"];
/// What the security settings of the pods do not have.
const NOT_OF_POD_SECURITY: [&str; 3] = ["appArmorProfile", "sysctls", "windowsOptions"];
/// What the security settings of the containers do not have.
const NOT_OF_CONTAINER_SECURITY: [&str; 3] =
    ["appArmorProfile", "seccompProfile", "windowsOptions"];
/// What the containers do not have: values from elsewhere, other programs, and devices.
const NOT_OF_CONTAINERS: [&str; 9] = [
    "args",
    "env",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "volumeDevices",
    "workingDir",
];
/// The resources that containers may ask for; others are devices.
const RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

pub(super) fn rules(image: &str) -> Rules {
    let folders: Vec<&str> = FOLDERS.into_iter().chain(READ_ONLY).chain([LOCK_FOLDER]).collect();
    let containers =
        format!("variables.pod.containers + ({})", or("variables.pod.initContainers", "[]"));
    Rules {
        resource: "jobs",
        group: "batch",
        operations: &["CREATE", "UPDATE", "DELETE"],
        variables: vec![
            ("image", format!("'{image}'")),
            ("folders", list(&folders)),
            ("readOnly", list(&READ_ONLY)),
            ("template", "object.spec.template".to_owned()),
            ("pod", "object.spec.template.spec".to_owned()),
            ("containers", containers),
            ("volumes", or("variables.pod.volumes", "[]")),
        ],
        validations: [of_jobs(), of_pods(), of_folders(), of_programs()].concat(),
    }
}

fn unless_deleted(expression: &str) -> String {
    format!("request.operation == 'DELETE' || ({expression})")
}

fn of_containers(expression: &str) -> String {
    unless_deleted(&format!("variables.containers.all(container, {expression})"))
}

fn absent(object: &str, fields: &[&str]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|field| format!("!has({object}.{field})")).collect();
    fields.join(" && ")
}

fn is_ours(object: &str) -> String {
    format!(
        "has({object}.metadata.labels) && '{COMPONENT_LABEL}' in {object}.metadata.labels && \
         {object}.metadata.labels['{COMPONENT_LABEL}'] == '{COMPONENT}'"
    )
}

type Validations = Vec<(&'static str, String)>;

fn of_jobs() -> Validations {
    vec![
        (
            "kata-operator may change and delete no other Jobs than those of its node agent",
            format!("request.operation == 'CREATE' || ({})", is_ours("oldObject")),
        ),
        (
            "kata-operator may create no other Jobs than those of its node agent",
            unless_deleted(&format!("{} && {}", is_ours("object"), is_ours("variables.template"))),
        ),
        (
            "a Job of kata-operator has one pod, and no annotations of others",
            unless_deleted(&format!(
                "(!has(object.spec.parallelism) || object.spec.parallelism == 1) && \
                 (!has(object.spec.completions) || object.spec.completions == 1) && \
                 (!has(variables.template.metadata.annotations) || \
                 variables.template.metadata.annotations.all(key, key.startsWith('{DOMAIN}/')))"
            )),
        ),
    ]
}

fn of_pods() -> Validations {
    let namespaces = ["hostNetwork", "hostPID", "hostIPC"]
        .map(|field| format!("(!has(variables.pod.{field}) || !variables.pod.{field})"));
    let capabilities = list(&CAPABILITIES);
    let resources = |field: &str| {
        format!(
            "(!has(container.resources.{field}) || \
             container.resources.{field}.all(key, key in {}))",
            list(&RESOURCES)
        )
    };
    vec![
        (
            "a Job of kata-operator may not share the network, processes or IPC of its node",
            unless_deleted(&namespaces.join(" && ")),
        ),
        (
            "a Job of kata-operator has the service account of the node agent, and no token",
            unless_deleted(&format!(
                "has(variables.pod.serviceAccountName) && \
                 variables.pod.serviceAccountName == '{SERVICE_ACCOUNT}' && \
                 has(variables.pod.automountServiceAccountToken) && \
                 !variables.pod.automountServiceAccountToken"
            )),
        ),
        (
            "a container of a Job of kata-operator may not be privileged, nor have other capabilities than \
             those of the node agent",
            of_containers(&format!(
                "has(container.securityContext) && \
                 (!has(container.securityContext.privileged) || !container.securityContext.privileged) && \
                 has(container.securityContext.allowPrivilegeEscalation) && \
                 !container.securityContext.allowPrivilegeEscalation && \
                 has(container.securityContext.capabilities) && \
                 has(container.securityContext.capabilities.drop) && \
                 container.securityContext.capabilities.drop == ['ALL'] && \
                 (!has(container.securityContext.capabilities.add) || \
                 container.securityContext.capabilities.add.all(it, it in {capabilities}))"
            )),
        ),
        (
            "a Job of kata-operator may not loosen the security settings of its pod",
            unless_deleted(&format!(
                "has(variables.pod.securityContext) && \
                 has(variables.pod.securityContext.seccompProfile) && \
                 variables.pod.securityContext.seccompProfile.type == 'RuntimeDefault' && {} && \
                 variables.containers.all(container, {} && \
                 (!has(container.securityContext.procMount) || \
                 container.securityContext.procMount == 'Default'))",
                absent("variables.pod.securityContext", &NOT_OF_POD_SECURITY),
                absent("container.securityContext", &NOT_OF_CONTAINER_SECURITY),
            )),
        ),
        (
            "a Job of kata-operator runs as an ordinary container, and asks for no devices",
            unless_deleted(&format!(
                "{} && variables.containers.all(container, !has(container.resources) || ({} && {}))",
                absent("variables.pod", &NOT_OF_PODS),
                resources("limits"),
                resources("requests")
            )),
        ),
    ]
}

fn of_folders() -> Validations {
    vec![
        (
            "a Job of kata-operator mounts no other folders of its node than those of the node agent",
            unless_deleted(&format!(
                "variables.volumes.all(volume, volume.name == '{AGENT_VOLUME}' ? has(volume.emptyDir) : \
                 (has(volume.hostPath) && volume.hostPath.path in variables.folders))"
            )),
        ),
        (
            "a Job of kata-operator mounts each folder of its node at its place below /host, and those that no \
             Job writes to for reading only",
            of_containers(&format!(
                "!has(container.volumeMounts) || container.volumeMounts.all(mount, \
                 !has(mount.subPath) && !has(mount.subPathExpr) && !has(mount.mountPropagation) && \
                 (mount.name == '{AGENT_VOLUME}' ? mount.mountPath == '{AGENT_MOUNT}' : \
                 variables.volumes.exists(volume, volume.name == mount.name && has(volume.hostPath) && \
                 mount.mountPath == '{HOST_ROOT}' + volume.hostPath.path && \
                 (!(volume.hostPath.path in variables.readOnly) || \
                 (has(mount.readOnly) && mount.readOnly)))))"
            )),
        ),
    ]
}

fn of_programs() -> Validations {
    // A container with the image of a payload starts the copy of the operator's program, and its mounts are so few
    // that the image can put nothing else in its place, nor reach systemd.
    let staging = [
        AGENT_MOUNT.to_owned(),
        format!("{HOST_ROOT}{PAYLOAD_FOLDER}"),
        format!("{HOST_ROOT}{LOCK_FOLDER}"),
    ];
    let command = |program: &str, name: &str, rest: &str| {
        format!(
            "container.command[0] == '{program}' && container.command[1] == 'node-agent' && \
             container.command[2] == '{name}' && {rest}"
        )
    };
    let with_task = format!(
        "container.command.size() == 7 && container.command[3] == '--task' && \
         container.command[5] == '--host-root' && container.command[6] == '{HOST_ROOT}'"
    );
    let copies = format!(
        "container.command.size() == 5 && container.command[3] == '--to' && \
         container.command[4] == '{COPY}'"
    );
    vec![
        (
            "a Job of kata-operator starts no other program than the operator's: from the image that this policy \
             names in its variable image, or as the copy that stages a payload",
            of_containers(&format!(
                "{} && has(container.command) && container.command.size() > 3 && \
                 (container.image == variables.image ? (({}) || ({})) : ({}))",
                absent("container", &NOT_OF_CONTAINERS),
                command(OPERATOR, "run", &with_task),
                command(OPERATOR, "self-copy", &copies),
                command(COPY, "stage", &with_task),
            )),
        ),
        (
            "only a first container of a Job of kata-operator has the image of a payload, and it mounts /opt only",
            unless_deleted(&format!(
                "variables.pod.containers.all(container, container.image == variables.image) && \
                 variables.containers.all(container, container.image == variables.image || \
                 (has(container.volumeMounts) && \
                 container.volumeMounts.all(mount, mount.mountPath in {}) && \
                 container.volumeMounts.exists(mount, mount.name == '{AGENT_VOLUME}' && \
                 has(mount.readOnly) && mount.readOnly) && \
                 (!has(container.securityContext.capabilities.add) || \
                 container.securityContext.capabilities.add.all(it, it in {}))))",
                list(&staging),
                list(&STAGE_CAPABILITIES)
            )),
        ),
    ]
}
