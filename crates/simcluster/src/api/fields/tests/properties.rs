//! What holds after any sequence of requests by several managers.

use std::collections::BTreeSet;

use super::*;

/// A request of one of three managers.
#[derive(Clone, Debug)]
enum Request {
    Apply { manager: usize, config: Value, force: bool },
    Update { manager: usize, object: Value },
}

const MANAGERS: [&str; 3] = ["m0", "m1", "m2"];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!("x")), Just(json!("y")), Just(json!("z"))]
}

fn fields(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[abc]", inner, 0..3)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn keyed() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[abc]", prop::option::of(scalar()), 0..3)
        .prop_map(|items| {
            items
                .into_iter()
                .map(|(name, v)| match v {
                    Some(v) => json!({"name": name, "v": v}),
                    None => json!({"name": name}),
                })
                .collect::<Vec<Value>>()
        })
        .prop_shuffle()
        .prop_map(Value::Array)
}

fn set() -> impl Strategy<Value = Value> {
    prop::collection::btree_set("[abc]", 0..3).prop_map(|items| json!(items))
}

fn spec() -> impl Strategy<Value = Value> {
    use prop::option::of as part;
    (
        part(fields(scalar())),
        part(fields(fields(scalar()))),
        part(keyed()),
        part(set()),
        part(scalar()),
    )
        .prop_map(|(granular, nested, keyed, set, one)| {
            let parts = [
                ("granular", granular),
                ("nested", nested),
                ("keyed", keyed),
                ("set", set),
                ("one", one.clone()),
                ("whole", one.map(|one| json!([one]))),
                // A configuration without any leaf leaves no entry behind.
                ("always", Some(json!("x"))),
            ];
            let parts = parts.into_iter().filter_map(|(name, part)| Some((name.to_owned(), part?)));
            json!({"apiVersion": "sim.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
                "spec": Value::Object(parts.collect())})
        })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (0..3_usize, spec(), any::<bool>()).prop_map(|(manager, config, force)| Request::Apply {
            manager,
            config,
            force
        }),
        (0..3_usize, spec()).prop_map(|(manager, object)| Request::Update { manager, object }),
    ]
}

fn widgets() -> ResourceDef {
    let text = json!({"type": "string"});
    let map = json!({"type": "object", "additionalProperties": text});
    custom(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "granular": map, "nested": {"type": "object", "additionalProperties": map},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": text, "v": text}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "one": text, "always": text, "whole": {"type": "array", "items": text},
    }}}}))
}

/// Runs a request; a conflict changes nothing.
fn run(story: &mut Story, request: &Request) {
    match request {
        Request::Apply { manager, config, force } => {
            match story.try_apply(MANAGERS[*manager], config.clone(), *force) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.code, 409, "{error}"),
            }
        }
        Request::Update { manager, object } => {
            story.put(MANAGERS[*manager], "", object.clone());
        }
    }
}

/// The scalar leaves of an object's spec, as paths.
fn leaves(def: &ResourceDef, object: &Value) -> BTreeSet<String> {
    let mut set = merge::field_set(Topology::of(def), object);
    compare::strip(&mut set);
    innermost(&set, &mut String::new())
}

fn innermost(set: &FieldSet, prefix: &mut String) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let length = prefix.len();
    for (element, node) in set.iter() {
        prefix.push('/');
        prefix.push_str(element);
        if node.below.is_empty() {
            found.insert(prefix.clone());
        }
        found.extend(innermost(&node.below, prefix));
        prefix.truncate(length);
    }
    found
}

fn entries(object: &Value) -> Vec<Entry> {
    managed::decode(sent_entries(object).unwrap_or_default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn applying_twice_changes_nothing(
        before in prop::collection::vec(request(), 0..6), config in spec(), manager in 0..3_usize,
    ) {
        let mut story = Story::new(widgets());
        for request in &before {
            run(&mut story, request);
        }
        story.force(MANAGERS[manager], config.clone());
        let once = story.object().clone();
        story.force(MANAGERS[manager], config.clone());
        prop_assert_eq!(story.object(), &once);
        story.apply(MANAGERS[manager], config);
        prop_assert_eq!(story.object(), &once);
    }

    #[test]
    fn every_field_has_an_owner_and_every_owned_field_exists(
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let mut story = Story::new(widgets());
        for request in &requests {
            run(&mut story, request);
        }
        let mut owned = FieldSet::default();
        for entry in entries(story.object()) {
            owned.unite(&entry.fields);
        }
        let def = widgets();
        let present = leaves(&def, story.object());
        // An empty list has no leaves, but an updater owns it; an empty map that an applier emptied has
        // lost its owner.
        let owned_leaves = innermost(&owned, &mut String::new());
        let all = innermost_members(&owned, &mut String::new());
        for leaf in &owned_leaves {
            prop_assert!(exists(story.object(), leaf), "owned but absent: {} in {}", leaf, story.object());
        }
        for leaf in present.iter().filter(|leaf| !is_empty_at(story.object(), leaf)) {
            prop_assert!(all.contains(leaf), "without owner: {} in {}", leaf, story.object());
        }
    }

    #[test]
    fn after_force_nobody_else_owns_another_value(
        before in prop::collection::vec(request(), 0..6), config in spec(), manager in 0..3_usize,
    ) {
        let mut story = Story::new(widgets());
        for request in &before {
            run(&mut story, request);
        }
        let old = story.object.clone();
        story.force(MANAGERS[manager], config.clone());
        let def = widgets();
        let wanted = leaves(&def, &config);
        let topology = Topology::of(&def);
        let changed = compare::objects(topology, old.as_ref(), story.object()).changed;
        for entry in entries(story.object()) {
            if entry.id.manager == MANAGERS[manager] && entry.id.operation == Operation::Apply {
                prop_assert_eq!(innermost(&entry.fields, &mut String::new()), wanted.clone());
            } else {
                prop_assert!(entry.fields.intersect(&changed).is_empty());
            }
        }
        // The configuration is in force.
        let diff = compare::objects(topology, Some(story.object()), &{
            let mut merged = story.object().clone();
            merge::merge(topology, &mut merged, &config);
            merged
        });
        prop_assert!(diff.is_empty());
    }

    #[test]
    fn an_apply_after_an_update_loses_no_foreign_field(
        first in spec(), object in spec(), config in spec(), dropped in any::<bool>(),
    ) {
        let def = widgets();
        let mut story = Story::new(widgets());
        story.force("m0", first.clone());
        story.put("m1", "", object);
        let foreign: Vec<Entry> = entries(story.object())
            .into_iter()
            .filter(|entry| entry.id.manager == "m1")
            .collect();
        let config = if dropped { json!({"metadata": {"name": "w"}}) } else { config };
        if story.try_apply("m0", config, false).is_ok() {
            for entry in foreign {
                for leaf in held(Topology::of(&def), &entry.fields, &mut String::new()) {
                    prop_assert!(exists(story.object(), &leaf), "lost {} in {}", leaf, story.object());
                }
            }
        }
    }

    #[test]
    fn managed_fields_survive_reading_and_writing(requests in prop::collection::vec(request(), 1..6)) {
        let mut story = Story::new(widgets());
        for request in &requests {
            run(&mut story, request);
        }
        let stored = sent_entries(story.object()).unwrap_or_default().to_vec();
        let written: Vec<Value> =
            entries(story.object()).iter().map(managed::encode_entry).collect();
        prop_assert_eq!(stored, written);
    }
}

/// The leaves of a set that do not hang on an item or key of somebody else: those go with it.
fn held(topology: Topology<'_>, set: &FieldSet, prefix: &mut String) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let length = prefix.len();
    for (element, node) in set.iter() {
        let step = topology.along(element);
        prefix.push('/');
        prefix.push_str(element);
        if node.below.is_empty() {
            found.insert(prefix.clone());
        } else if step.named || node.member {
            found.extend(held(step.topology, &node.below, prefix));
        }
        prefix.truncate(length);
    }
    found
}

fn innermost_members(set: &FieldSet, prefix: &mut String) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let length = prefix.len();
    for (element, node) in set.iter() {
        prefix.push('/');
        prefix.push_str(element);
        if node.member {
            found.insert(prefix.clone());
        }
        found.extend(innermost_members(&node.below, prefix));
        prefix.truncate(length);
    }
    found
}

/// The value at a path of elements.
fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('/').skip(1).try_fold(object, |value, element| {
        let (kind, rest) = element.split_at(2);
        match kind {
            "f:" => value.get(rest),
            "k:" => {
                let key: Value = serde_json::from_str(rest).unwrap();
                value.as_array()?.iter().find(|item| item["name"] == key["name"])
            }
            _ => {
                let wanted: Value = serde_json::from_str(rest).unwrap();
                value.as_array()?.iter().find(|item| **item == wanted)
            }
        }
    })
}

fn exists(object: &Value, path: &str) -> bool {
    at(object, path).is_some()
}

fn is_empty_at(object: &Value, path: &str) -> bool {
    match at(object, path) {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => false,
    }
}
