//! Pieces of CRD schemas that the derived schemas of foreign types cannot express.
//!
//! Descriptions are the doc comments of the fields, not here.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A label's key, with or without a domain, as the API server requires it.
const LABEL_KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// A label's value.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// Labels with their values. A schema can constrain the values of a map, and not its keys.
fn labels() -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": label_value(),
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, key.matches('{LABEL_KEY}'))"),
            "message": "keys of labels must be like kata or example.com/kata: at most 63 letters, digits, '-', '_' and '.' \
                after the domain",
        }],
    })
}

fn label_value() -> Schema {
    json_schema!({"type": "string", "maxLength": 63, "pattern": LABEL_VALUE})
}

/// The labels that a node must have.
pub(crate) fn node_selector(_generator: &mut SchemaGenerator) -> Schema {
    labels()
}

/// A label selector that lists its operators. Atomic, as in the CRD of the OpenShift sandboxed containers operator.
pub(crate) fn label_selector(_generator: &mut SchemaGenerator) -> Schema {
    let mut match_labels = labels();
    match_labels.insert(
        "description".to_owned(),
        "Labels and values that a node must have. Values are strings: write 'true', not true."
            .into(),
    );
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": match_labels,
            "matchExpressions": {
                "description": "Requirements on labels.",
                "type": "array",
                "maxItems": 64,
                "items": {
                    "description": "A requirement on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The label's key.",
                            "type": "string",
                            "maxLength": 317,
                            "pattern": LABEL_KEY,
                        },
                        "operator": {
                            "description": "How the label relates to the values: In, NotIn, Exists or DoesNotExist.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "The values; at least one for In and NotIn, none for Exists and DoesNotExist.",
                            "type": "array",
                            "maxItems": 256,
                            "items": label_value(),
                        },
                    },
                    "x-kubernetes-validations": [
                        {
                            "rule": "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : true",
                            "message": "values must hold at least one value for operator In or NotIn",
                            "fieldPath": ".values",
                        },
                        {
                            "rule": "self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || size(self.values) == 0 : true",
                            "message": "values must be empty for operator Exists or DoesNotExist",
                            "fieldPath": ".values",
                        },
                    ],
                },
            },
        },
    })
}

/// CRI-O's log levels. A rule instead of an enum, because a rule has its own message.
pub(crate) fn log_level(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "default": "info",
        "maxLength": 16,
        "x-kubernetes-validations": [{
            "rule": "self in ['fatal', 'panic', 'error', 'warn', 'info', 'debug', 'trace']",
            "message": "logLevel must be one of fatal, panic, error, warn, info, debug, trace",
        }],
    })
}

/// How many nodes may be unavailable at once.
pub(crate) fn max_unavailable(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "nullable": true,
        "x-kubernetes-validations": [{
            "rule": "string(self) == self ? self.matches('^([1-9][0-9]?|100)%$') : self > 0",
            "message": "maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%",
        }],
    })
}

/// What to do about changes of other programs that are not in effect yet.
pub(crate) fn foreign_changes(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Wait", "Activate"]})
}

/// The installers whose nodes can be taken over.
pub(crate) fn take_over(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["KataDeploy"], "nullable": true})
}

/// A duration as the Gateway API writes it (GEP-2257), from the largest unit to the smallest.
pub(crate) fn duration(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 2,
        "maxLength": 32,
        "pattern": "^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?([0-9]{1,5}ms)?$",
    })
}

/// Conditions, one per type.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let item =
        generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>();
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Tolerations, with the API server's own validation rules for a RuntimeClass.
pub(crate) fn tolerations(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "description": "Which taints are tolerated.",
            "type": "object",
            "properties": {
                "key": {
                    "description": "The taint's key; empty means all keys, with the operator Exists.",
                    "type": "string",
                    "maxLength": 317,
                },
                "operator": {
                    "description": "How the key relates to the value: Exists, or Equal, which is the default. Lt and Gt \
                        compare numbers, where the cluster has them.",
                    "type": "string",
                    "enum": ["Exists", "Equal", "Lt", "Gt"],
                },
                "value": {"description": "The taint's value.", "type": "string", "maxLength": 63},
                "effect": {
                    "description": "NoSchedule, PreferNoSchedule or NoExecute; absent means all effects.",
                    "type": "string",
                    "enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "tolerationSeconds": {
                    "description": "For how many seconds a taint with the effect NoExecute is tolerated; absent means for ever.",
                    "type": "integer",
                    "format": "int64",
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'",
                    "message": "operator must be Exists for an empty key, which means all keys",
                    "fieldPath": ".operator",
                },
                {
                    "rule": "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
                    "message": "value must be empty for operator Exists",
                    "fieldPath": ".value",
                },
                {
                    "rule": "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
                    "message": "effect must be NoExecute where tolerationSeconds is given",
                    "fieldPath": ".effect",
                },
            ],
        },
    })
}

/// Extended resources with whole numbers. The API server would refuse other names and amounts in a RuntimeClass.
pub(crate) fn extended_resources(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "pattern": "^[0-9]{1,15}$",
            "minimum": 0,
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",
                "message": "resources must have names with a domain, such as tdx.intel.com/keys; cpu and memory have fields of their own",
            },
            {
                "rule": "self.all(name, !name.contains('kubernetes.io/') && !name.startsWith('requests.') && !name.matches('^[^/]{245}'))",
                "message": "resources must not be of the domain kubernetes.io, begin with requests., or have a domain of more than 244 characters",
            },
        ],
    })
}

/// A quantity such as `250m` or `350Mi`.
pub(crate) fn quantity(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": "^[0-9]+(\\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$",
    })
}
