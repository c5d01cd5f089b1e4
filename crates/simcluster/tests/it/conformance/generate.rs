//! Sequences of requests, made from a seed: the same seed gives the same sequence for ever.
//!
//! Requests name what only the server knows by placeholders (`$RV:name`, `$UID:name`), which the runner
//! fills in with what that server answered last.

mod kinds;
mod reads;

use serde_json::{Value, json};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// Path and query; `$NS` stands for the sequence's namespace, `$ID` for its number.
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Value,
}

/// A small generator of numbers (xorshift), so that a fixture stays valid whatever a library does.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        dice
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % u64::try_from(sides).unwrap()).unwrap()
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }
}

/// The CRD that the sequences use; it has one of everything that the schema layer must handle.
pub(crate) fn crd() -> Value {
    serde_json::from_str(include_str!("../../fixtures/conformance-crd.json")).unwrap()
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PLAIN: &str = "application/json";
const MANAGERS: [&str; 3] = ["alpha", "beta", "gamma"];
const NAMES: [&str; 2] = ["one", "two"];

fn request(method: &'static str, path: String, content_type: &'static str, body: Value) -> Request {
    Request { method, path, content_type, accept: PLAIN, body }
}

/// The sequence of a seed: what happens to a few objects of one kind.
pub(crate) fn sequence(seed: u64) -> Vec<Request> {
    let mut dice = Dice::new(seed);
    let length = 10 + dice.roll(6);
    (0..length)
        .map(|step| match seed % 8 {
            0 => config_map(&mut dice, step),
            1 | 2 => widget(&mut dice, step),
            3 => pod(&mut dice, step),
            4 | 5 => kinds::step(&mut dice, seed / 8 * 2 + seed % 2, step),
            6 => reads::step(&mut dice, seed / 8, step),
            _ => kinds::step(&mut dice, seed / 8 + 7, step),
        })
        .collect()
}

/// The collection whose events are compared at the end of the sequence.
pub(crate) fn watched(seed: u64) -> &'static str {
    match seed % 8 {
        0 => CONFIG_MAPS,
        1 | 2 => WIDGETS,
        3 => PODS,
        4 | 5 => kinds::collection(seed / 8 * 2 + seed % 2),
        6 => reads::collection(seed / 8),
        _ => kinds::collection(seed / 8 + 7),
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/$NS/configmaps";
const WIDGETS: &str = "/apis/conformance.example.com/v1/namespaces/$NS/widgets";
const PODS: &str = "/api/v1/namespaces/$NS/pods";

fn query(dice: &mut Dice, manager: bool) -> String {
    let mut parts = Vec::new();
    if manager {
        parts.push(format!("fieldManager={}", dice.pick(&MANAGERS)));
    }
    if dice.chance(8) {
        parts.push("dryRun=All".to_owned());
    }
    if dice.chance(30) {
        parts.push(format!("fieldValidation={}", dice.pick(&["Strict", "Warn", "Ignore"])));
    }
    format!("?{}", parts.join("&"))
}

fn metadata(dice: &mut Dice, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    if dice.chance(40) {
        metadata["labels"] = json!({"l": dice.pick(&["x", "y"]), "m": dice.pick(&["x", "y"])});
    }
    if dice.chance(10) {
        metadata["finalizers"] = json!(["conformance.example.com/hold"]);
    }
    if dice.chance(6) {
        metadata["annotations"] = json!({"note": "n"});
    }
    metadata
}

fn precondition(dice: &mut Dice, body: &mut Value, name: &str) {
    match dice.roll(10) {
        0..=2 => body["metadata"]["resourceVersion"] = json!(format!("$RV:{name}")),
        3 => body["metadata"]["resourceVersion"] = json!("1"),
        4 => body["metadata"]["uid"] = json!(format!("$UID:{name}")),
        5 => body["metadata"]["uid"] = json!("00000000-1111-4222-8333-444444444444"),
        _ => {}
    }
}

fn delete(dice: &mut Dice, collection: &str, name: &str) -> Request {
    let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    match dice.roll(8) {
        0 => body["preconditions"] = json!({"uid": format!("$UID:{name}")}),
        1 => body["preconditions"] = json!({"uid": "00000000-1111-4222-8333-444444444444"}),
        2 => body["preconditions"] = json!({"resourceVersion": "1"}),
        3 => body["propagationPolicy"] = json!("Sometimes"),
        4 => body["propagationPolicy"] = json!("Background"),
        _ => {}
    }
    request("DELETE", format!("{collection}/{name}"), PLAIN, body)
}

fn read(dice: &mut Dice, collection: &str, name: &str) -> Request {
    let path = match dice.roll(8) {
        0 => format!("{collection}?labelSelector=l%3Dx"),
        1 => format!("{collection}?labelSelector=l%20in%20%28x%2Cy%29%2C%21m"),
        2 => format!("{collection}?labelSelector=l%3D%3D%3D"),
        3 => format!("{collection}?limit=1"),
        4 => format!("{collection}?fieldSelector=metadata.name%3D{name}"),
        5 => format!("{collection}?fieldSelector=spec.foo%3D1"),
        6 => format!("{collection}/nobody"),
        _ => format!("{collection}/{name}"),
    };
    request("GET", path, PLAIN, Value::Null)
}

fn json_patch(dice: &mut Dice, value_path: &str, value: &Value) -> Value {
    match dice.roll(14) {
        9 => json!([{"op": "move", "from": value_path, "path": "/metadata/labels/moved"}]),
        10 => json!([{"op": "copy", "from": "/metadata/name", "path": value_path}]),
        11 => json!([{"op": "replace", "path": "/metadata/labels/none", "value": "v"}]),
        12 => dice
            .pick(&[
                &json!([]),
                &json!({}),
                &json!([{"op": "add", "path": "/none/below", "value": 1}]),
                &json!([{"op": "sing", "path": "/metadata/labels"}]),
                &json!([{"op": "add", "path": "metadata", "value": {}}]),
                &json!([{"op": "add", "path": "/metadata/finalizers/0", "value": "a.example.com/b"}]),
                &json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "a.example.com/c"}]),
                &json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
                &json!([{"op": "test", "path": "/metadata/labels/l", "value": "x"}]),
                &json!([{"op": "replace", "path": "", "value": {}}]),
            ])
            .clone(),
        0 => {
            json!([{"op": "test", "path": "/metadata/finalizers", "value": null}, {"op": "add", "path": "/metadata/finalizers", "value": ["conformance.example.com/hold"]}])
        }
        1 => json!([{"op": "remove", "path": "/metadata/finalizers"}]),
        2 => json!([{"op": "remove", "path": "/metadata/labels/none"}]),
        3 => json!([{"op": "test", "path": value_path, "value": "never"}]),
        4 => json!([{"op": "add", "path": "/metadata/labels/new", "value": "v"}]),
        5 => json!([{"op": "replace", "path": "/metadata/name", "value": "other"}]),
        6 => json!([{"op": "remove", "path": value_path}]),
        _ => json!([{"op": "add", "path": value_path, "value": value}]),
    }
}

fn config_map(dice: &mut Dice, step: usize) -> Request {
    let collection = CONFIG_MAPS;
    let name = dice.pick(&NAMES);
    let mut data = json!({});
    for key in ["a", "b", "c"] {
        if dice.chance(55) {
            data[key] = json!(dice.pick(&["1", "2"]));
        }
    }
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(dice, name), "data": data});
    if step < NAMES.len() && dice.chance(85) {
        body["metadata"]["name"] = json!(NAMES[step]);
        return request(
            "POST",
            format!("{collection}?fieldManager={}", dice.pick(&MANAGERS)),
            PLAIN,
            body,
        );
    }
    match dice.roll(16) {
        0 => request("POST", format!("{collection}{}", query(dice, true)), PLAIN, body),
        1 => {
            body["metadata"]["name"] = json!(dice.pick(&["Bad_Name", "", "x.", "-a"]));
            request("POST", format!("{collection}{}", query(dice, true)), PLAIN, body)
        }
        2 | 3 => {
            precondition(dice, &mut body, name);
            request("PUT", format!("{collection}/{name}{}", query(dice, true)), PLAIN, body)
        }
        4 => request("PUT", format!("{collection}/nobody{}", query(dice, true)), PLAIN, body),
        5 | 6 => {
            let mut patch = json!({"data": {"a": dice.pick(&["1", "2", "3"]), "b": null}});
            precondition(dice, &mut patch, name);
            let kind = if dice.chance(50) { MERGE } else { STRATEGIC };
            request("PATCH", format!("{collection}/{name}{}", query(dice, true)), kind, patch)
        }
        7 => {
            let patch =
                json!({"metadata": {"labels": {"l": dice.pick(&["x", "y"])}, "finalizers": null}});
            request("PATCH", format!("{collection}/{name}{}", query(dice, true)), MERGE, patch)
        }
        8 | 9 => {
            let patch = json_patch(dice, "/data/a", &json!("7"));
            request("PATCH", format!("{collection}/{name}{}", query(dice, true)), JSON_PATCH, patch)
        }
        10..=12 => {
            if dice.chance(10) {
                body["metadata"]["resourceVersion"] = json!(format!("$RV:{name}"));
            }
            let with_manager = !dice.chance(4);
            let force = if dice.chance(30) { "&force=true" } else { "" };
            request(
                "PATCH",
                format!("{collection}/{name}{}{force}", query(dice, with_manager)),
                APPLY,
                body,
            )
        }
        13 => delete(dice, collection, name),
        14 => read(dice, collection, name),
        _ => request(
            "PATCH",
            format!("{collection}/{name}{}", query(dice, true)),
            "text/plain",
            json!({}),
        ),
    }
}

fn widget_spec(dice: &mut Dice) -> Value {
    let mut spec = json!({"size": dice.roll(7)});
    if dice.chance(8) {
        spec["size"] =
            dice.pick(&[&json!(30), &json!(-1), &json!("big"), &json!(null), &json!(2.5)]).clone();
    }
    let optional: [(&str, usize, Vec<Value>); 10] = [
        ("max", 20, vec![json!(3), json!(10)]),
        ("mode", 25, vec![json!("a"), json!("b"), json!("zz"), json!(null)]),
        ("note", 15, vec![json!("ok"), json!("too long"), json!(null)]),
        ("code", 20, vec![json!("abc"), json!("A1")]),
        ("port", 15, vec![json!(80), json!("http")]),
        ("free", 15, vec![json!({"x": {"y": [1, "2"]}})]),
        ("tags", 25, vec![json!(["t"]), json!(["t", "u"]), json!(["t", "t"]), json!("t")]),
        (
            "items",
            40,
            vec![
                json!([{"name": "i", "value": 1}]),
                json!([{"name": "i", "value": 2}, {"name": "j"}]),
                json!([{"name": "i"}, {"name": "i"}]),
                json!([{"value": 1}]),
            ],
        ),
        ("plain", 20, vec![json!([{"x": 1}]), json!([{"x": 1}, {"x": 2}])]),
        ("bogus", 10, vec![json!(1), json!({"a": 1})]),
    ];
    for (field, percent, values) in optional {
        if dice.chance(percent) {
            spec[field] = values[dice.roll(values.len())].clone();
        }
    }
    spec
}

fn widget(dice: &mut Dice, step: usize) -> Request {
    let collection = WIDGETS;
    let name = dice.pick(&NAMES);
    let mut body = json!({
        "apiVersion": "conformance.example.com/v1", "kind": "Widget",
        "metadata": metadata(dice, name), "spec": widget_spec(dice),
    });
    if dice.chance(15) {
        body["status"] = json!({"phase": "Told"});
    }
    if step < NAMES.len() && dice.chance(85) {
        body["metadata"]["name"] = json!(NAMES[step]);
        if dice.chance(70) {
            body["spec"] = json!({"size": dice.roll(5), "items": [{"name": "i", "value": 1}]});
        }
        return request(
            "POST",
            format!("{collection}?fieldManager={}", dice.pick(&MANAGERS)),
            PLAIN,
            body,
        );
    }
    match dice.roll(18) {
        0 | 1 => request("POST", format!("{collection}{}", query(dice, true)), PLAIN, body),
        2 | 3 => {
            body["metadata"]["resourceVersion"] = json!(format!("$RV:{name}"));
            if dice.chance(30) {
                precondition(dice, &mut body, name);
            }
            request("PUT", format!("{collection}/{name}{}", query(dice, true)), PLAIN, body)
        }
        4 => request("PUT", format!("{collection}/{name}{}", query(dice, true)), PLAIN, body),
        5..=7 => {
            let mut patch = json!({"spec": widget_spec(dice)});
            precondition(dice, &mut patch, name);
            request("PATCH", format!("{collection}/{name}{}", query(dice, true)), MERGE, patch)
        }
        8 => request(
            "PATCH",
            format!("{collection}/{name}{}", query(dice, true)),
            STRATEGIC,
            json!({"spec": {"size": 1}}),
        ),
        9 => {
            let patch = json_patch(dice, "/spec/note", &json!("hi"));
            request("PATCH", format!("{collection}/{name}{}", query(dice, true)), JSON_PATCH, patch)
        }
        10..=12 => {
            if dice.chance(30)
                && let Some(spec) = body["spec"].as_object_mut()
            {
                spec.remove("size");
            }
            let force = if dice.chance(30) { "&force=true" } else { "" };
            request(
                "PATCH",
                format!("{collection}/{name}{}{force}", query(dice, true)),
                APPLY,
                body,
            )
        }
        13 => {
            let patch = json!({"status": {"phase": dice.pick(&["A", "B"]), "count": dice.roll(3)}, "spec": {"size": 9}});
            request(
                "PATCH",
                format!("{collection}/{name}/status{}", query(dice, true)),
                MERGE,
                patch,
            )
        }
        14 => {
            let body = json!({
                "apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": {"name": name},
                "status": {"conditions": [{"type": dice.pick(&["Ready", "Stalled"]), "status": dice.pick(&["True", "False"])}]},
            });
            let force = if dice.chance(30) { "&force=true" } else { "" };
            request(
                "PATCH",
                format!("{collection}/{name}/status{}{force}", query(dice, true)),
                APPLY,
                body,
            )
        }
        15 => delete(dice, collection, name),
        16 => {
            if dice.chance(40) {
                request(
                    "GET",
                    format!("{collection}?fieldSelector=spec.mode%3Db"),
                    PLAIN,
                    Value::Null,
                )
            } else {
                read(dice, collection, name)
            }
        }
        _ => request(
            "PATCH",
            format!("{collection}/{name}{}", query(dice, true)),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        ),
    }
}

fn runtime_class(dice: &mut Dice) -> Value {
    let mut class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "class-$ID"},
        "handler": dice.pick(&["kata", "runc", "Bad_Handler"]),
    });
    if dice.chance(60) {
        class["overhead"] = json!({"podFixed": {"cpu": "250m", "memory": "350Mi"}});
    }
    if dice.chance(60) {
        class["scheduling"] = json!({
            "nodeSelector": {"kata": "true"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        });
    }
    class
}

fn pod(dice: &mut Dice, step: usize) -> Request {
    let collection = PODS;
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    if step == 0 {
        return request(
            "POST",
            format!("{classes}?fieldManager=alpha"),
            PLAIN,
            runtime_class(dice),
        );
    }
    let name = dice.pick(&NAMES);
    let mut spec =
        json!({"containers": [{"name": "c", "image": dice.pick(&["img", "img:1", "img:latest"])}]});
    if dice.chance(70) {
        spec["runtimeClassName"] = json!(dice.pick(&["class-$ID", "class-$ID", "nope"]));
    }
    if dice.chance(30) {
        spec["nodeSelector"] = json!({"kata": dice.pick(&["true", "false"]), "zone": "a"});
    }
    if dice.chance(20) {
        spec["overhead"] =
            dice.pick(&[&json!({"cpu": "0.25", "memory": "350Mi"}), &json!({"cpu": "1"})]).clone();
    }
    if dice.chance(20) {
        spec["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    }
    if dice.chance(10) {
        spec["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    }
    if dice.chance(10) {
        spec["containers"][0]["resources"] =
            json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi", "cpu": "1"}});
    }
    let mut body =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(dice, name), "spec": spec});
    if step == 1 {
        body["metadata"]["name"] = json!(NAMES[0]);
        body["spec"] =
            json!({"containers": [{"name": "c", "image": "img"}], "runtimeClassName": "class-$ID"});
        return request("POST", format!("{collection}?fieldManager=alpha"), PLAIN, body);
    }
    match dice.roll(14) {
        0..=4 => request("POST", format!("{collection}{}", query(dice, true)), PLAIN, body),
        5 => request(
            "PATCH",
            format!("{collection}/{name}{}", query(dice, true)),
            STRATEGIC,
            json!({"spec": {"containers": [{"name": "c", "image": dice.pick(&["img:2", "img:3"])}]}}),
        ),
        6 => request(
            "PATCH",
            format!("{collection}/{name}{}", query(dice, true)),
            MERGE,
            json!({"spec": {"nodeSelector": {"zone": "b"}}}),
        ),
        7 => request(
            "PATCH",
            format!("{collection}/{name}{}", query(dice, true)),
            STRATEGIC,
            json!({"metadata": {"labels": {"l": "z"}}}),
        ),
        8 => request(
            "PATCH",
            format!("{collection}/{name}/status{}", query(dice, true)),
            STRATEGIC,
            json!({"status": {"conditions": [{"type": dice.pick(&["Ready", "Initialized"]), "status": dice.pick(&["True", "False"])}]}}),
        ),
        9 => request(
            "PATCH",
            format!("{classes}/class-$ID{}", query(dice, true)),
            MERGE,
            dice.pick(&[
                &json!({"handler": "other"}),
                &json!({"metadata": {"labels": {"l": "x"}}}),
            ])
            .clone(),
        ),
        10 => request(
            "PATCH",
            format!("{classes}/class-$ID{}&force=true", query(dice, true)),
            APPLY,
            runtime_class(dice),
        ),
        11 => delete(dice, collection, name),
        12 => read(dice, collection, name),
        _ => request("DELETE", format!("{classes}/class-$ID"), PLAIN, json!({})),
    }
}
