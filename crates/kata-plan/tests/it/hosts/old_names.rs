//! KataNodes with the former names of their fields, as the version at d7b4189 wrote them.

use kata_plan::{Kind, decide};
use serde_json::{Value, json};

use super::until;
use crate::plain::Fate;
use crate::world::World;

const HOST_STATUS: [(&str, &str); 2] = [("bad", "failedFor"), ("touched", "mayHaveArtifacts")];
const HOST_JOB: [(&str, &str); 4] = [
    ("at", "time"),
    ("before", "previousOutcome"),
    ("facts", "nodeFactsDigest"),
    ("state", "desiredStateDigest"),
];

fn rename(object: &mut Value, names: &[(&str, &str)]) -> usize {
    let Some(fields) = object.as_object_mut() else { return 0 };
    let mut renamed = 0;
    for (old, new) in names {
        if let Some(value) = fields.remove(*new) {
            fields.insert((*old).to_owned(), value);
            renamed += 1;
        }
    }
    renamed
}

/// The world with the records of the former version.
fn as_the_former_version_wrote_it(world: &World) -> World {
    let mut former = world.clone();
    let mut renamed = 0;
    for ((kind, _), object) in &mut former.objects {
        if *kind == Kind::KataNode {
            renamed += rename(&mut object["status"]["host"], &HOST_STATUS);
            renamed += rename(&mut object["status"]["host"]["job"], &HOST_JOB);
        }
    }
    assert!(renamed > 0);
    former
}

#[test]
fn records_of_the_former_version_lead_to_the_same_decisions() {
    for fate in [None, Some(Fate::RollsBack), Some(Fate::Fails), Some(Fate::Drifted)] {
        let mut world = World::plain(1, 3);
        world.hosts.extend(fate.map(|fate| ("worker-1".to_owned(), fate)));
        world.config(&json!({"rollout": {"maxUnavailable": 3}}));
        until(&mut world, |world| {
            world.get(Kind::KataNode, "worker-1").is_some_and(|node| {
                let job = &node["status"]["host"]["job"];
                job["action"] == "Install" && !job["outcome"].is_null()
            })
        });
        for step in 0..40 {
            if step == 20 {
                world.delete(Kind::KataConfig, "cluster-kataconfig");
            }
            if world.names(Kind::KataNode).is_empty() {
                break;
            }
            let former = as_the_former_version_wrote_it(&world);
            assert_eq!(decide(&former.observe()), decide(&world.observe()), "{fate:?}, {step}");
            world.pass();
            world.tick();
        }
    }
}
