//! Changes of a Job's pod that an attacker would profit from.

use serde_json::{Value, json};

use super::IMAGE;

/// The Job after a change of its pod.
pub(super) fn changed(job: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut job = job.clone();
    change(&mut job["spec"]["template"]["spec"]);
    job
}

fn agent(pod: &mut Value) -> &mut Value {
    &mut pod["containers"][0]
}

pub(super) fn stage(pod: &mut Value) -> &mut Value {
    &mut pod["initContainers"][1]
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().unwrap().push(item);
}

fn mount<'a>(container: &'a mut Value, name: &str) -> &'a mut Value {
    let mounts = container["volumeMounts"].as_array_mut().unwrap();
    mounts.iter_mut().find(|mount| mount["name"] == name).unwrap()
}

fn mount_at<'a>(container: &'a mut Value, path: &str) -> &'a mut Value {
    let mounts = container["volumeMounts"].as_array_mut().unwrap();
    mounts.iter_mut().find(|mount| mount["mountPath"] == path).unwrap()
}

type Change = fn(&mut Value);

const AGENT: &str = "spec.template.spec.containers[node-agent] of this Job";
const STAGE: &str = "spec.template.spec.initContainers[stage] of this Job";
const STAGING: &str = "/host/opt/kata-operator/staging";
const VOLUMES: &str = "spec.template.spec.volumes of this Job";

/// Changes of a pod that an attacker would profit from, and what the policy says to them.
pub(super) const PODS: [(&str, Change); 25] = [
    (STAGE, |pod| {
        // Then the image's own /host/kata-operator would be started.
        stage(pod)["volumeMounts"].as_array_mut().unwrap().retain(|mount| mount["name"] != "agent");
    }),
    ("spec.template.spec.initContainers of this Job", |pod| {
        pod["initContainers"].as_array_mut().unwrap().remove(0);
    }),
    (AGENT, |pod| {
        push(&mut agent(pod)["securityContext"]["capabilities"]["add"], json!("SYS_ADMIN"));
    }),
    (VOLUMES, |pod| {
        push(&mut pod["volumes"], json!({"name": "root", "hostPath": {"path": "/"}}));
    }),
    (VOLUMES, |pod| {
        push(&mut pod["volumes"], json!({"name": "secret", "secret": {"secretName": "registry"}}));
    }),
    (VOLUMES, |pod| {
        let agent = json!({"name": "agent", "hostPath": {"path": "/opt"}});
        pod["volumes"][0] = agent;
    }),
    (AGENT, |pod| mount(agent(pod), "etc")["mountPath"] = json!("/host/opt")),
    (AGENT, |pod| mount(agent(pod), "etc")["mountPath"] = json!("/host/../usr/bin")),
    (AGENT, |pod| agent(pod)["terminationMessagePath"] = json!("/host/etc/nologin")),
    (AGENT, |pod| agent(pod)["ports"] = json!([{"containerPort": 1, "hostPort": 6443}])),
    (STAGE, |pod| {
        // The payload's own program would be started.
        mount(stage(pod), "agent")["mountPath"] = json!("/host/opt/kata-operator/payloads/x");
    }),
    (STAGE, |pod| {
        // A program of the payload's image would reach what containerd starts.
        mount(stage(pod), "opt").as_object_mut().unwrap().remove("readOnly");
    }),
    (STAGE, |pod| mount_at(stage(pod), STAGING)["subPath"] = json!("kata-operator")),
    (STAGE, |pod| {
        mount_at(stage(pod), STAGING).as_object_mut().unwrap().remove("subPath");
    }),
    (STAGE, |pod| {
        // An image with links could reach systemd's socket there.
        push(&mut stage(pod)["volumeMounts"], json!({"name": "run", "mountPath": "/host/run"}));
    }),
    (STAGE, |pod| {
        push(&mut stage(pod)["securityContext"]["capabilities"]["add"], json!("CHOWN"));
    }),
    ("spec.template.spec.containers of this Job", |pod| {
        let stage = stage(pod).clone();
        push(&mut pod["containers"], stage);
    }),
    ("spec.template.spec.initContainers of this Job", |pod| {
        push(&mut pod["initContainers"], json!({"name": "more", "image": IMAGE}));
    }),
    ("spec.template.spec.initContainers[self-copy] of this Job", |pod| {
        pod["initContainers"][0]["command"][4] = json!("/host/etc/shadow");
    }),
    (STAGE, |pod| push(&mut stage(pod)["command"], json!("--image-root"))),
    (STAGE, |pod| stage(pod)["command"] = json!(["/bin/sh", "-c", "id"])),
    (AGENT, |pod| agent(pod)["command"] = json!(["/bin/sh", "-c", "id"])),
    (AGENT, |pod| agent(pod)["command"][6] = json!("/")),
    (AGENT, |pod| {
        agent(pod)["resources"]["limits"]["devices.kubevirt.io/kvm"] = json!("1");
    }),
    (AGENT, |pod| agent(pod)["resources"]["requests"]["cpu"] = json!("7")),
];
