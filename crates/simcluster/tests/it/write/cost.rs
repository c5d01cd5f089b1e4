//! What a write costs. Not a check, but a measurement:
//! `cargo test --release -p simcluster --test it write::cost -- --ignored --nocapture`.

use std::time::Instant;

use serde_json::json;
use simcluster::api::ApiServer;
use simcluster::api::server::Writer;
use simcluster::resource::PODS;

use super::{now, server};

const ROUNDS: u32 = 2_000;

/// Prints the mean time of a write.
#[expect(clippy::print_stdout, reason = "the measurement is what it is for")]
fn measure(api: &mut ApiServer, what: &str, mut write: impl FnMut(u32, &mut ApiServer)) {
    let start = Instant::now();
    for round in 0..ROUNDS {
        write(round, api);
    }
    println!("{what}: {:?}", start.elapsed() / ROUNDS);
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_write() {
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
    measure(&mut api, "create", |round, api| {
        body["metadata"]["name"] = json!(format!("p{round}"));
        api.create(writer, &PODS, "default", body.clone()).unwrap();
    });
    measure(&mut api, "status merge", |round, api| {
        let patch = json!({"status": {"message": round.to_string()}});
        api.merge_status(writer, &PODS, "default", "p", &patch).unwrap();
    });
    measure(&mut api, "label merge", |round, api| {
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
        api.merge(writer, &PODS, "default", "p", &patch).unwrap();
    });
    measure(&mut api, "merge without a change", |_round, api| {
        api.merge(writer, &PODS, "default", "p", &json!({})).unwrap();
    });
}
