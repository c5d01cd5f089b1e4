//! Promises of structural schemas: what is refused, pruned, defaulted and reported, in which words.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Structural, builtin, decode_error};
use crate::Resource;
use crate::api::error::FieldError;
use crate::api::registry::Registry;

fn schema(spec: Value) -> Structural {
    let mut root = json!({"type": "object", "properties": {}});
    root["properties"]["spec"] = spec;
    Structural::parse(&root).unwrap()
}

fn object(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}});
    object["spec"] = spec;
    object
}

fn lines(errors: &[FieldError]) -> Vec<String> {
    let mut lines: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
    lines.sort();
    lines
}

fn check(spec: Value, value: Value) -> Vec<String> {
    lines(&schema(spec).validate(&object(value), None))
}

#[test]
fn messages_are_those_of_the_api_server() {
    let property = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
    let table: &[(Value, Value, &str)] = &[
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("zz"),
            r#"spec.x: Unsupported value: "zz": supported values: "a", "b""#,
        ),
        (
            json!({"type": "integer", "maximum": 10}),
            json!(30),
            "spec.x: Invalid value: 30: spec.x in body should be less than or equal to 10",
        ),
        (
            json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
            json!(10),
            "spec.x: Invalid value: 10: spec.x in body should be less than 10",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer"}),
            json!("3"),
            r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "string"}),
            json!(null),
            r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#,
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
        ),
        (json!({"type": "object", "required": ["size"]}), json!({}), "spec.x.size: Required value"),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            "spec.x: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            r#"spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long"#,
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A1"),
            r#"spec.x: Invalid value: "A1": spec.x in body should match '^[a-z]+$'"#,
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("noon"),
            r#"spec.x: Invalid value: "noon": spec.x in body must be of type date-time: "noon""#,
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "integer"}}),
            json!([1, 2]),
            "spec.x: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "integer"}}),
            json!([]),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a"]),
            r#"spec.x[2]: Duplicate value: "a""#,
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
                "properties": {"name": {"type": "string"}}}}),
            json!([{"name": "a"}, {"name": "a"}]),
            r#"spec.x[1]: Duplicate value: {"name":"a"}"#,
        ),
        (
            json!({"type": "array", "items": {"type": "object",
                "properties": {"n": {"type": "integer"}}}}),
            json!([{"n": 1}, {"n": "2"}]),
            r#"spec.x[1].n: Invalid value: "string": spec.x[1].n in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]},
                "properties": {"a": {"type": "string"}}}),
            json!({"a": "b"}),
            r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#,
        ),
    ];
    for (schema, value, expected) in table {
        let errors = check(property(schema.clone()), json!({"x": value}));
        assert_eq!(errors, [*expected], "schema {schema}");
    }
    // Fractions are told of twice.
    assert_eq!(
        check(property(json!({"type": "integer"})), json!({"x": 1.5})),
        [
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x"#,
            r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#,
        ]
    );
}

#[test]
fn one_of_reports_how_many_alternatives_fit() {
    let spec = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        check(spec.clone(), json!({"a": "", "b": ""})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]
    );
    assert_eq!(
        check(spec, json!({})).first().unwrap(),
        r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#
    );
}

#[test]
fn numbers_and_nulls_fit_where_they_may() {
    let spec = json!({"type": "object", "properties": {
        "whole": {"type": "integer"}, "any": {"type": "number"},
        "none": {"type": "string", "nullable": true, "enum": ["a"]},
        "either": {"x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}]},
    }});
    let value = json!({"whole": 2.0, "any": 1, "none": null, "either": "25%"});
    assert_eq!(check(spec, value), [] as [&str; 0]);
}

fn with_rules(rules: Value) -> Value {
    let mut schema = json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "max": {"type": "integer"}, "mode": {"type": "string"},
        "map": {"type": "object", "additionalProperties": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 0", "message": "must be positive"}]}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
            "properties": {"name": {"type": "string"}, "value": {"type": "integer",
                "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}},
    }});
    schema["x-kubernetes-validations"] = rules;
    schema
}

#[test]
fn rules_report_their_message_path_and_reason() {
    let rules = json!([
        {"rule": "!has(self.max) || self.size <= self.max", "message": "size must be <= max"},
        {"rule": "!has(self.mode) || self.mode != 'bad'", "fieldPath": ".mode",
            "reason": "FieldValueForbidden",
            "messageExpression": "'mode ' + self.mode + ' is bad'"},
        {"rule": "self.size < 100"},
    ]);
    let value = json!({"size": 200, "max": 5, "mode": "bad", "map": {"k": 0}});
    let errors = schema(with_rules(rules)).validate(&object(value), None);
    assert_eq!(
        lines(&errors),
        [
            "spec.map[k]: Invalid value: 0: must be positive",
            "spec.mode: Forbidden: mode bad is bad",
            "spec: Invalid value: failed rule: self.size < 100",
            "spec: Invalid value: size must be <= max",
        ]
    );
    assert!(errors.iter().any(|error| error.reason == "FieldValueForbidden"));
}

#[test]
fn rules_do_not_run_on_objects_of_the_wrong_shape() {
    let rules = json!([{"rule": "self.size < 100"}]);
    assert_eq!(
        check(with_rules(rules), json!({"size": "many"})),
        [
            "<nil>: Invalid value: null: some validation rules were not checked because the object \
             was invalid; correct the existing errors to complete validation",
            r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#,
        ]
    );
}

#[test]
fn transition_rules_need_an_old_value_with_the_same_key() {
    let schema = schema(with_rules(json!([
        {"rule": "self.mode == oldSelf.mode", "message": "mode is immutable"}])));
    let old = object(json!({"mode": "a", "keyed": [{"name": "x", "value": 5}]}));
    let new = object(json!({"mode": "b",
        "keyed": [{"name": "new", "value": 1}, {"name": "x", "value": 3}]}));
    assert_eq!(lines(&schema.validate(&new, None)), [] as [&str; 0]);
    assert_eq!(
        lines(&schema.validate(&new, Some(&old))),
        [
            "spec.keyed[1].value: Invalid value: 3: failed rule: self >= oldSelf",
            "spec: Invalid value: mode is immutable",
        ]
    );
}

#[test]
fn rules_see_escaped_names_timestamps_and_loops() {
    let spec = json!({"type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.a__dash__b == 1"},
            {"rule": "self.at > timestamp('2020-01-01T00:00:00Z')"},
            {"rule": "self.list.all(item, item > 0) && self.list.exists_one(i, i == 2)"},
            {"rule": "math.greatest(1, 2) == 2 && int('3') == 3"},
        ],
        "properties": {"a-b": {"type": "integer"}, "at": {"type": "string", "format": "date-time"},
            "list": {"type": "array", "items": {"type": "integer"}}}});
    let value = json!({"a-b": 1, "at": "2026-01-01T00:00:00Z", "list": [1, 2]});
    assert_eq!(check(spec, value), [] as [&str; 0]);
}

fn refused(schema: &Value) -> Vec<String> {
    lines(&Structural::parse(schema).unwrap_err())
}

#[test]
fn schemas_that_cannot_be_enforced_are_refused() {
    let with = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
    let table: &[(Value, &str)] = &[
        (json!({}), "type: Required value: must not be empty at the root"),
        (json!({"type": "string"}), r#"type: Invalid value: "string": must be object at the root"#),
        (
            with(json!({"description": "x"})),
            "properties[spec].type: Required value: must not be empty for specified object fields",
        ),
        (
            with(json!({"type": "array"})),
            "properties[spec].items: Required value: must be specified",
        ),
        (
            with(json!({"type": "array", "items": {}})),
            "properties[spec].items.type: Required value: must not be empty for specified array items",
        ),
        (
            with(json!({"type": "object", "anyOf": [{"description": "x"}]})),
            "properties[spec].anyOf[0].description: Forbidden: must be undefined to be structural",
        ),
        (
            with(json!({"type": "integer", "default": "x"})),
            r#"properties[spec].default: Invalid value: "x": Invalid value: "string":  in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object",
                "properties": {"labels": {"type": "object"}}}}}),
            "properties[metadata]: Forbidden: must not specify anything other than name and \
             generateName, but metadata is implicitly specified",
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(refused(schema), [*expected], "schema {schema}");
    }
}

#[test]
fn rules_that_do_not_compile_are_refused_with_their_path() {
    for (rule, text) in [
        ("self.size <", "failed to compile CEL rule"),
        ("slef.size < 3", "undeclared reference to 'slef'"),
        ("self.list.all(i, j > 1)", "undeclared reference to 'j'"),
    ] {
        let errors = refused(&json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": "true"}, {"rule": rule}]}}}));
        let prefix = "properties[spec].x-kubernetes-validations[1].rule: \
                      Invalid value: ";
        assert!(errors.len() == 1 && errors[0].starts_with(prefix), "{errors:?}");
        assert!(
            errors[0].contains("compilation failed: ") && errors[0].contains(text),
            "{errors:?}"
        );
    }
}

#[test]
fn patterns_and_depth_are_limited() {
    let errors = refused(&json!({"type": "object",
        "properties": {"a": {"type": "string", "pattern": "("}}}));
    assert!(errors[0].contains("must be a valid regular expression, but isn't: "), "{errors:?}");
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let errors = refused(&deep);
    assert!(errors[0].contains("must not nest more than 64 levels deep"), "{errors:?}");
}

#[test]
fn pruning_names_the_unknown_fields() {
    let schema = schema(json!({"type": "object", "properties": {
        "known": {"type": "string"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object",
            "properties": {"a": {"type": "string"}}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"closed": {"type": "object"}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}}},
    }}));
    let mut value = object(json!({
        "known": "a", "bogus": 1,
        "list": [{"a": "b"}, {"a": "b", "z": 1}],
        "map": {"key": {"a": "b", "z": 1}},
        "open": {"free": {"x": 1}, "closed": {"z": 1}},
        "embedded": {"apiVersion": "v1", "kind": "P", "metadata": {"x": 1}, "spec": {}, "z": 1},
    }));
    value["extra"] = json!(1);
    value["metadata"]["bogus"] = json!(1);
    let unknown = schema.prune(&mut value);
    assert_eq!(
        unknown,
        [
            "extra",
            "metadata.bogus",
            "spec.bogus",
            "spec.embedded.z",
            "spec.list[1].z",
            "spec.map.key.z",
            "spec.open.closed.z",
        ]
    );
    assert_eq!(
        value,
        object(json!({
            "known": "a",
            "list": [{"a": "b"}, {"a": "b"}],
            "map": {"key": {"a": "b"}},
            "open": {"free": {"x": 1}, "closed": {}},
            "embedded": {"apiVersion": "v1", "kind": "P", "metadata": {"x": 1}, "spec": {}},
        }))
    );
}

#[test]
fn defaults_fill_gaps_and_replace_nulls() {
    let schema = schema(json!({"type": "object", "default": {}, "properties": {
        "mode": {"type": "string", "default": "auto"},
        "null": {"type": "string", "default": "auto"},
        "nullable": {"type": "string", "nullable": true, "default": "auto"},
        "dropped": {"type": "string"},
        "nested": {"type": "object", "default": {"a": 1}, "properties": {
            "a": {"type": "integer"}, "b": {"type": "integer", "default": 2}}},
        "list": {"type": "array", "items": {"type": "object",
            "properties": {"a": {"type": "integer", "default": 7}}}},
    }}));
    let mut value = object(json!({"null": null, "nullable": null, "dropped": null, "list": [{}]}));
    schema.default(&mut value);
    assert_eq!(
        value["spec"],
        json!({"mode": "auto", "null": "auto", "nullable": null,
            "nested": {"a": 1, "b": 2}, "list": [{"a": 7}]})
    );
    let mut value = json!({"metadata": {"name": "a"}});
    schema.default(&mut value);
    assert_eq!(
        value["spec"],
        json!({"mode": "auto", "null": "auto", "nullable": "auto",
        "nested": {"a": 1, "b": 2}})
    );
}

#[test]
fn every_built_in_kind_has_a_schema() {
    for def in Registry::default().iter() {
        let schema = builtin(def).unwrap_or_else(|| panic!("no schema for {}", def.kind));
        let mut value = json!({"apiVersion": def.api_version(), "kind": def.kind,
            "metadata": {"name": "a", "labels": {"b": "c"}}, "bogus": 1});
        assert_eq!(schema.prune(&mut value), ["bogus"], "{}", def.kind);
        assert_eq!(decode_error(def, &value), None, "{}", def.kind);
    }
}

#[test]
fn built_in_kinds_find_unknown_fields_and_wrong_types() {
    let registry = Registry::default();
    let def = registry.get(&Resource::new("apps", "deployments")).unwrap();
    let mut value = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 1, "bogus": 1, "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "overhead": {"cpu": 0.5}, "containers": [{"name": "c", "imag": "x",
                "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}}});
    let schema = builtin(def).unwrap();
    assert_eq!(schema.prune(&mut value), ["spec.bogus", "spec.template.spec.containers[0].imag"]);
    assert_eq!(decode_error(def, &value), None);
    value["spec"]["replicas"] = json!("many");
    let error = decode_error(def, &value).unwrap();
    assert_eq!((error.code, error.reason), (400, "BadRequest"));
    assert_eq!(
        error.message,
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal \
         string into Go struct field Deployment.spec.replicas of type int32"
    );
}

/// Any JSON value with few names, so that schemas and objects meet.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..12).prop_map(Value::from),
        (-2.0..3.0).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]|metadata|kind", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Mostly sound schemas; the others must be refused, not panic.
fn json_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "maxLength": 2, "default": "a"})),
        Just(json!({"type": "string", "pattern": "^a", "nullable": true})),
        Just(json!({"type": "integer", "minimum": 0, "maximum": 10, "default": 3})),
        Just(json!({"type": "number", "multipleOf": 0.5})),
        Just(json!({"type": "boolean", "default": true})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != 'b'"}]})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (inner.clone(), any::<bool>()).prop_map(|(items, set)| {
                let list = if set { "set" } else { "atomic" };
                json!({"type": "array", "items": items, "x-kubernetes-list-type": list})
            }),
            (proptest::collection::btree_map("[a-c]", inner.clone(), 0..4), any::<[bool; 2]>())
                .prop_map(|(properties, [filled, embedded])| {
                    let mut schema = json!({"type": "object", "properties": properties});
                    if filled {
                        schema["default"] = json!({});
                    }
                    if embedded {
                        schema["x-kubernetes-embedded-resource"] = json!(true);
                    }
                    schema
                }),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_settle_at_once(spec in json_schema(), value in json_value()) {
        let schema = json!({"type": "object", "properties": {"spec": spec, "a": {"type": "object"}}});
        if let Ok(schema) = Structural::parse(&schema) {
            let mut once = json!({"spec": value, "kind": "K"});
            schema.prune(&mut once);
            let mut twice = once.clone();
            prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
            prop_assert_eq!(&once, &twice);
            schema.default(&mut once);
            let mut twice = once.clone();
            schema.default(&mut twice);
            prop_assert_eq!(&once, &twice);
            // What defaults add is known: nothing of it would be pruned again.
            prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
            schema.validate(&once, Some(&twice));
        }
    }

    #[test]
    fn no_input_makes_it_panic(schema in json_value(), value in json_value()) {
        if let Ok(schema) = Structural::parse(&schema) {
            let mut value = value;
            schema.prune(&mut value);
            schema.default(&mut value);
            schema.validate(&value, None);
        }
    }
}
