//! From the text of a fixture to the cluster that it describes. It decides nothing.

use jiff::SignedDuration;
use kata_plan::Kind;
use serde_json::{Value, json};

use crate::plain::Fate;
use crate::world::World;

pub(crate) fn build(fixture: &str) -> World {
    let fixture: Value = serde_saphyr::from_str(fixture).unwrap();
    let masters = count(&fixture["masters"]).unwrap_or(3);
    let mut world = if fixture["compact"] == json!(true) {
        World::compact(masters)
    } else if fixture["plain"] == json!(true) {
        World::plain(masters, count(&fixture["workers"]).unwrap_or(3))
    } else {
        World::new(masters, count(&fixture["workers"]).unwrap_or(3))
    };
    for act in list(&fixture["before"]) {
        perform(&mut world, act);
    }
    if let Some(spec) = fixture.get("spec") {
        world.config(spec);
    }
    if fixture["installed"] == json!(true) {
        world.settle();
    }
    for act in list(&fixture["then"]) {
        perform(&mut world, act);
    }
    world
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|value| usize::try_from(value).ok())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn perform(world: &mut World, act: &Value) {
    let (verb, value) = act.as_object().unwrap().iter().next().unwrap();
    let text = |key: &str| value[key].as_str().unwrap().to_owned();
    match verb.as_str() {
        "create" => {
            world.create(value.clone());
        }
        "edit" => world.edit(kind(&text("kind")), &text("name"), &value["with"]),
        "delete" => world.delete(kind(&text("kind")), &text("name")),
        "pod" => world.pod(&text("name"), "kata", &text("node")),
        "cordon" => world.cordon(value.as_str().unwrap(), true),
        "notReady" => world.set_ready(value.as_str().unwrap(), false),
        "unreadable" => {
            world.unreadable.insert(value.as_str().unwrap().to_owned());
        }
        "broken" => {
            world.broken.insert((kind(&text("kind")), text("name")));
        }
        "failing" => {
            world.failing.insert(value.as_str().unwrap().to_owned());
        }
        "undrainable" => {
            world.undrainable.insert(value.as_str().unwrap().to_owned());
        }
        "fate" => {
            let fate = Fate::ALL.into_iter().find(|fate| format!("{fate:?}") == text("fate"));
            world.hosts.insert(text("node"), fate.unwrap());
        }
        "rounds" => {
            for _ in 0..count(value).unwrap() {
                world.pass();
                world.tick();
            }
        }
        "pass" => {
            world.pass();
        }
        "render" => world.render(),
        "minutes" => {
            let minutes = SignedDuration::from_mins(value.as_i64().unwrap());
            world.now = world.now.checked_add(minutes).unwrap();
        }
        "settle" => {
            world.settle();
        }
        other => panic!("no verb {other}"),
    }
}

fn kind(name: &str) -> Kind {
    [
        Kind::KataConfig,
        Kind::KataNode,
        Kind::Node,
        Kind::MachineConfig,
        Kind::MachineConfigPool,
        Kind::ContainerRuntimeConfig,
        Kind::RuntimeClass,
        Kind::ConfigMap,
        Kind::Pod,
    ]
    .into_iter()
    .find(|kind| kind.as_str() == name)
    .unwrap()
}
