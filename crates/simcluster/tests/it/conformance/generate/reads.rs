//! Sequences about reading: pages, selectors, watches from anywhere, Tables, metadata only.

use serde_json::{Value, json};

use super::{CONFIG_MAPS, Dice, MERGE, PLAIN, PODS, Request, WIDGETS, request};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str =
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

pub(super) fn collection(seed: u64) -> &'static str {
    [CONFIG_MAPS, WIDGETS, PODS][usize::try_from(seed).unwrap() % 3]
}

/// A read of an object or of its collection.
pub(super) fn get(dice: &mut Dice, collection: &str, name: &str) -> Request {
    let path = match dice.roll(4) {
        0 => format!("{collection}/nobody-$ID"),
        _ => format!("{collection}/{name}"),
    };
    let mut get = request("GET", path, PLAIN, Value::Null);
    get.accept = dice.pick(&[PLAIN, TABLE, PARTIAL]);
    get
}

fn object(collection: &str, name: &str, label: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"l": label}});
    match collection {
        CONFIG_MAPS => json!({"metadata": metadata, "data": {"a": "1"}}),
        WIDGETS => {
            json!({"metadata": metadata, "apiVersion": "conformance.example.com/v1", "kind": "Widget",
            "spec": {"size": 1, "mode": if label == "x" { "a" } else { "b" }}})
        }
        _ => json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    }
}

const SELECTORS: [&str; 12] = [
    "labelSelector=l%3Dx",
    "labelSelector=l%21%3Dx",
    "labelSelector=l%20notin%20%28x%29",
    "labelSelector=%21l",
    "labelSelector=l",
    "labelSelector=l%20in%20%28x",
    "labelSelector=a%20b",
    "fieldSelector=metadata.name%21%3Da",
    "fieldSelector=metadata.name%3Da%2Cmetadata.namespace%3D$NS",
    "fieldSelector=metadata.name",
    "fieldSelector=metadata.namespace%3Dother",
    "labelSelector=Bad%20Label%21%3D",
];

pub(super) fn step(dice: &mut Dice, seed: u64, step: usize) -> Request {
    let collection = collection(seed);
    let names = ["a", "b", "c", "d"];
    if step < names.len() {
        let body = object(collection, names[step], dice.pick(&["x", "y"]));
        return request("POST", format!("{collection}?fieldManager=alpha"), PLAIN, body);
    }
    let name = dice.pick(&names);
    let watch = format!("{collection}?watch=true&timeoutSeconds=1");
    let list = |query: &str| request("GET", format!("{collection}?{query}"), PLAIN, Value::Null);
    let mut wanted = match dice.roll(20) {
        0 => list("limit=2"),
        1 => list("limit=1&labelSelector=l%3Dx"),
        2 | 3 => list("limit=2&continue=$CONTINUE"),
        4 => list("limit=2&continue=nonsense"),
        5 => list(dice.pick(&[
            "resourceVersion=0",
            "resourceVersion=$LRV&resourceVersionMatch=Exact",
            "resourceVersion=$LRV&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=nonsense",
            "limit=2&resourceVersion=0",
            "limit=-1",
            "limit=x",
            "resourceVersion=99999999999&timeoutSeconds=1",
        ])),
        6 | 7 => list(dice.pick(&SELECTORS)),
        8 => request(
            "PATCH",
            format!("{collection}/{name}?fieldManager=beta"),
            MERGE,
            json!({"metadata": {"labels": {"l": dice.pick(&["x", "y"])}}}),
        ),
        9 => request("DELETE", format!("{collection}/{name}"), PLAIN, json!({})),
        10 => {
            let body = object(collection, name, dice.pick(&["x", "y"]));
            request("POST", format!("{collection}?fieldManager=alpha"), PLAIN, body)
        }
        11 => request(
            "GET",
            format!("{watch}&resourceVersion={}", dice.pick(&["0", "", "$LRV"])),
            PLAIN,
            Value::Null,
        ),
        12 => request(
            "GET",
            format!("{watch}&resourceVersion=$LRV&{}", dice.pick(&SELECTORS)),
            PLAIN,
            Value::Null,
        ),
        13 => request("GET", format!("{watch}&{}", dice.pick(&SELECTORS)), PLAIN, Value::Null),
        14 => request(
            "GET",
            format!(
                "{watch}&sendInitialEvents=true&{}",
                dice.pick(&["allowWatchBookmarks=true", "resourceVersionMatch=Exact"])
            ),
            PLAIN,
            Value::Null,
        ),
        15 => request(
            "GET",
            format!("{watch}&resourceVersion={}", dice.pick(&["nonsense", "$LRV"])),
            PLAIN,
            Value::Null,
        ),
        16 => request(
            "DELETE",
            format!("{collection}?labelSelector=l%3D{}", dice.pick(&["x", "z"])),
            PLAIN,
            json!({}),
        ),
        _ => return get(dice, collection, name),
    };
    if wanted.method == "GET" && dice.chance(40) {
        wanted.accept = dice.pick(&[TABLE, PARTIAL_LIST]);
        if dice.chance(30) {
            wanted.path.push_str("&includeObject=");
            wanted.path.push_str(dice.pick(&["None", "Object", "Metadata"]));
        }
        if wanted.path.contains("watch=true") {
            wanted.accept = dice.pick(&[TABLE, PARTIAL]);
        }
    }
    wanted
}
