//! Records with values that this version does not know: a newer version wrote them, or a person.

use kata_plan::Kind;
use serde_json::{Value, json};

use super::{finding, host, label, until};
use crate::journeys::{condition, is};
use crate::world::World;

/// An installed node whose record a newer version wrote, and one that is still to get Kata.
fn world() -> World {
    let mut world = World::plain(1, 2);
    world.config(&json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}}));
    world.label("worker-0", "kata", Some("true"));
    world.settle();
    let repair = json!({"status": {"host": {"job": {"action": "Repair"}}}});
    world.edit(Kind::KataNode, "worker-0", &repair);
    world.label("worker-1", "kata", Some("true"));
    world
}

fn kata_node(world: &World) -> Value {
    world.get(Kind::KataNode, "worker-0").unwrap().clone()
}

fn jobs_on_worker_0(world: &World) -> Vec<String> {
    let mut jobs = world.names(Kind::Job);
    jobs.retain(|job| {
        let job = world.get(Kind::Job, job).unwrap();
        job["metadata"]["annotations"]["kata-operator.dev/node"] == "worker-0"
    });
    jobs
}

#[test]
fn a_node_whose_record_has_an_unknown_value_keeps_what_it_has_and_the_others_go_on() {
    let mut world = world();
    let (before, jobs) = (kata_node(&world), jobs_on_worker_0(&world));
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
    world.settle();
    assert_eq!(condition(&world, "Ready").0, "True", "it serves");
    // Another payload, and the time of the next inspection.
    world.options.payload_image = "registry.example/payload:2".to_owned();
    world.now = world.now.checked_add(jiff::SignedDuration::from_hours(48)).unwrap();
    until(&mut world, |world| host(world, "worker-1")["job"]["number"].as_i64() > Some(3));
    world.settle();
    assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
    assert_eq!((kata_node(&world), jobs_on_worker_0(&world)), (before, jobs));
    let reported = finding(&world, "KATA3118");
    let expected = "KataNode worker-0: status.host.job.action is \"Repair\"";
    assert!(reported.contains(expected), "{reported}");
    assert_eq!(condition(&world, "Degraded").0, "True");
    assert_eq!(condition(&world, "Ready").0, "False", "it has the former payload");
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_never_written_on_either_platform() {
    for mut world in [World::plain(1, 2), World::new(1, 2)] {
        world.config(&json!({}));
        until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
        world.settle();
        let before = kata_node(&world);
        world.broken.insert((Kind::KataNode, "worker-0".to_owned()));
        // A change that every KataNode would show.
        world.delete(Kind::KataConfig, "cluster-kataconfig");
        world.settle();
        assert_eq!(kata_node(&world), before);
        let named = finding(&world, "KATA1016");
        assert!(named.contains("KataNode worker-0"), "{named}");
        assert_eq!(condition(&world, "DeletionBlocked"), is("True", "ReadFailed"));
        world.broken.clear();
        world.settle();
        super::nothing_left(&world);
    }
}

#[test]
fn a_job_that_cannot_be_read_holds_up_its_node_and_a_deletion_and_nothing_else() {
    let mut world = World::plain(1, 2);
    world.config(&json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}}));
    world.label("worker-0", "kata", Some("true"));
    world.settle();
    let [job] = &jobs_on_worker_0(&world)[..] else { panic!("one Job is kept") };
    let action =
        |action: &str| json!({"metadata": {"annotations": {"kata-operator.dev/action": action}}});
    world.edit(Kind::Job, job, &action("Repair"));
    world.label("worker-1", "kata", Some("true"));
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
    world.settle();
    let named = finding(&world, "KATA1016");
    assert!(
        named.contains(job) && named.contains("kata-operator.dev/action is \"Repair\""),
        "{named}"
    );
    world.options.payload_image = "registry.example/payload:2".to_owned();
    world.settle();
    assert_eq!(jobs_on_worker_0(&world), std::slice::from_ref(job));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "ReadFailed"));
    assert_eq!(jobs_on_worker_0(&world), std::slice::from_ref(job));
    world.edit(Kind::Job, job, &action("Install"));
    world.settle();
    super::nothing_left(&world);
}

#[test]
fn a_node_whose_record_has_an_unknown_value_is_changed_again_after_the_record_was_deleted() {
    let mut world = world();
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
    world.settle();
    world.delete(Kind::KataNode, "worker-0");
    world.settle();
    assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
    assert!(host(&world, "worker-0")["installed"].is_string(), "{}", host(&world, "worker-0"));
    assert_eq!(condition(&world, "Degraded").0, "False");
}

#[test]
fn a_deletion_waits_for_a_record_with_an_unknown_value_and_names_it() {
    let mut world = world();
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    let before = kata_node(&world);
    assert!(jobs_on_worker_0(&world).iter().all(|job| {
        world.get(Kind::Job, job).unwrap()["metadata"]["annotations"]["kata-operator.dev/action"]
            != "Remove"
    }));
    assert_eq!(before["status"]["host"]["job"]["action"], "Repair");
    assert!(finding(&world, "KATA3118").contains("KataNode worker-0"));
    world.delete(Kind::KataNode, "worker-0");
    world.settle();
    super::nothing_left(&world);
}
