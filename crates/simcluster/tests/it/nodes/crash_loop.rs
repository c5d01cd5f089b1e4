//! Containers that end again and again: the back-off between their restarts.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use simcluster::resource::PODS;
use simcluster::world::NodeFault;
use simcluster::{Simulation, topology};

use super::{cluster, create, get, messages, pod};

fn crashing(command: &str) -> Simulation {
    let mut sim = cluster(0, 1);
    let container = json!({"name": "main", "image": "busybox:1", "command": ["sh", "-c", command]});
    create(&mut sim, &PODS, "default", pod("crashing", json!({"containers": [container]})));
    sim
}

fn container(sim: &Simulation) -> Value {
    get(sim, &PODS, "default", "crashing")["status"]["containerStatuses"][0].clone()
}

/// For how many seconds the container did not run, between one run and the next.
fn pauses(sim: &mut Simulation, count: usize) -> Vec<i64> {
    let mut pauses = Vec::new();
    let mut ended: Option<Timestamp> = None;
    sim.advance_until(Duration::from_secs(30 * 3600), |sim| {
        let state = container(sim)["state"].clone();
        let over =
            state["waiting"]["reason"] == "CrashLoopBackOff" || !state["terminated"].is_null();
        if over {
            ended.get_or_insert_with(|| sim.now());
        } else if let Some(ended) = ended.take_if(|_| !state["running"].is_null()) {
            pauses.push(sim.now().duration_since(ended).as_secs());
        }
        pauses.len() == count
    });
    pauses
}

#[test]
fn restarts_are_held_back_from_ten_seconds_to_five_minutes() {
    let mut sim = crashing("sleep 5; exit 3");
    assert_eq!(pauses(&mut sim, 8), [1, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(container(&sim)["restartCount"], 8);
    sim.advance(Duration::from_secs(6));
    let status = container(&sim);
    let uid = get(&sim, &PODS, "default", "crashing")["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap();
    assert_eq!(
        status["state"]["waiting"],
        json!({
            "reason": "CrashLoopBackOff",
            "message":
                format!("back-off 5m0s restarting failed container=main pod=crashing_default({uid})"),
        })
    );
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 3);
    let told = format!("Back-off restarting failed container main in pod crashing_default({uid})");
    assert_eq!(messages(&sim, "BackOff"), [told], "repetitions are counted");
}

#[test]
fn a_container_that_ran_for_long_is_not_held_back() {
    let mut sim = crashing("sleep 601; exit 3");
    assert_eq!(pauses(&mut sim, 4), [1, 1, 1, 1]);
}

#[test]
fn a_kubelet_that_restarts_has_forgotten_the_back_off() {
    let mut sim = crashing("sleep 5; exit 3");
    pauses(&mut sim, 7);
    sim.advance(Duration::from_secs(6));
    topology::set_fault(&mut sim, "worker-0", NodeFault::KubeletRestart).unwrap();
    assert_eq!(pauses(&mut sim, 3), [1, 1, 10]);
}
