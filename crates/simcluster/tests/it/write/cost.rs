//! What a write costs. Not a check, but a measurement:
//! `cargo test --release -p simcluster --test it write::cost -- --ignored --nocapture`.

use std::time::Instant;

use serde_json::json;
use simcluster::api::server::Writer;
use simcluster::resource::PODS;

use super::{now, server};

#[test]
#[ignore = "a measurement"]
fn cost_of_a_write() {
    const ROUNDS: u32 = 2_000;
    let mut api = server();
    let writer = Writer { manager: "test", now: now() };
    let mut body = super::pod("p");
    let container = body["spec"]["containers"][0].clone();
    let containers: Vec<_> = (0..8)
        .map(|index| {
            let mut container = container.clone();
            container["name"] = json!(format!("c{index}"));
            container["env"] = json!([{"name": "A", "value": "x".repeat(200)}]);
            container
        })
        .collect();
    body["spec"]["containers"] = json!(containers);
    let made = api.create(writer, &PODS, "default", body.clone()).unwrap();
    println!("{} bytes of JSON", made.to_string().len());
    let mut measure =
        |what: &str, mut write: Box<dyn FnMut(u32, &mut simcluster::api::ApiServer)>| {
            let start = Instant::now();
            for round in 0..ROUNDS {
                write(round, &mut api);
            }
            println!("{what}: {:?}", start.elapsed() / ROUNDS);
        };
    measure(
        "create",
        Box::new(move |round, api| {
            body["metadata"]["name"] = json!(format!("p{round}"));
            api.create(writer, &PODS, "default", body.clone()).unwrap();
        }),
    );
    measure(
        "status merge",
        Box::new(move |round, api| {
            let patch = json!({"status": {"message": round.to_string()}});
            api.merge_status(writer, &PODS, "default", "p", &patch).unwrap();
        }),
    );
    measure(
        "label merge",
        Box::new(move |round, api| {
            let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
            api.merge(writer, &PODS, "default", "p", &patch).unwrap();
        }),
    );
    measure(
        "merge without a change",
        Box::new(move |_round, api| {
            api.merge(writer, &PODS, "default", "p", &json!({})).unwrap();
        }),
    );
}
