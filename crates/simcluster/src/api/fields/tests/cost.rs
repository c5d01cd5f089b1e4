//! What tracking costs. Not a check, but a measurement:
//! `cargo test --release -p simcluster --lib fields::tests::cost -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::*;

/// A pod of about 5 kB of JSON with the managed fields of its creator and its kubelet.
fn pod() -> Story {
    let containers: Vec<Value> = (0..3)
        .map(|index| {
            json!({
                "name": format!("container-{index}"), "image": "registry.example.com/team/image:1.2.3",
                "command": ["/bin/server", "--listen=0.0.0.0:8080"], "imagePullPolicy": "IfNotPresent",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            })
        })
        .collect();
    let mut story = Story::new(builtin("", "pods"));
    story.put("kubectl-create", "", json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "a", "tier": "b"}},
        "spec": {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler"},
    }));
    story.patch("scheduler", "", json!({"spec": {"nodeName": "worker-0"}}));
    story.patch("kubelet", "status", json!({"status": status(0)}));
    story
}

fn status(second: u32) -> Value {
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| {
            let time = format!("2024-01-01T00:00:{:02}Z", second % 60);
            json!({"type": kind, "status": "True", "lastTransitionTime": time, "lastProbeTime": null})
        })
        .collect();
    let statuses: Vec<Value> = (0..3)
        .map(|index| json!({"name": format!("container-{index}"), "ready": true, "restartCount": second}))
        .collect();
    json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": conditions, "containerStatuses": statuses})
}

/// The time of one call, at best and at the median, without the clone of the argument.
fn measure(name: &str, mut call: impl FnMut(usize) -> Duration) {
    let mut times: Vec<Duration> = (0..2_000).map(&mut call).collect();
    times.sort_unstable();
    println!("{name}: {:?} at best, {:?} median", times[0], times[1_000]);
}

#[test]
#[ignore = "a measurement"]
fn cost_of_tracking() {
    let story = pod();
    let old = story.object().clone();
    println!("object: {} bytes, {} owners", old.to_string().len(), story.owners().len());
    let mut updated = old.clone();
    updated["status"] = status(1);
    let writer = story.writer("kubelet", "status");
    measure("status update by the owner", |_index| {
        let mut new = updated.clone();
        let start = Instant::now();
        track_update(Some(&old), black_box(&mut new), writer);
        start.elapsed()
    });
    let other = story.writer("other", "status");
    measure("status update by another manager", |_index| {
        let mut new = updated.clone();
        let start = Instant::now();
        track_update(Some(&old), black_box(&mut new), other);
        start.elapsed()
    });
    measure("update without change", |_index| {
        let mut new = old.clone();
        let start = Instant::now();
        track_update(Some(&old), black_box(&mut new), writer);
        start.elapsed()
    });
    let config = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"x": "y"}}});
    let applier = story.writer("applier", "");
    measure("apply of one label", |_index| {
        let start = Instant::now();
        black_box(apply(Some(&old), &config, applier, false).unwrap());
        start.elapsed()
    });
    let patch = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "container-1", "image": "i"}]}});
    measure("strategic merge patch", |_index| {
        let start = Instant::now();
        black_box(crate::api::patch::strategic(&story.def, &old, &patch).unwrap());
        start.elapsed()
    });
}
