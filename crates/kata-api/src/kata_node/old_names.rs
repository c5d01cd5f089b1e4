//! The former names of fields of a KataNode: how a KataNode with such names is read.
//!
//! The operator writes the new names only. The CRD still lists the old names, because the API server drops every field
//! that the CRD does not list, also from the objects that it reads out of etcd. Without them an upgrade would lose the
//! record of each node before the operator could read it.

use schemars::Schema;
use serde_json::{Map, Value};

/// A field that was renamed.
struct Renamed {
    old: &'static str,
    new: &'static str,
}

const HOST_STATUS: [Renamed; 2] =
    [Renamed { old: "bad", new: "failedFor" }, Renamed { old: "touched", new: "mayHaveArtifacts" }];

const HOST_JOB: [Renamed; 4] = [
    Renamed { old: "at", new: "time" },
    Renamed { old: "before", new: "previousOutcome" },
    Renamed { old: "facts", new: "nodeFactsDigest" },
    Renamed { old: "state", new: "desiredStateDigest" },
];

/// Renames the fields of `status.host` to their current names. If an object has both names of a field, the new one counts.
pub(super) fn rename_host_status(host: &mut Map<String, Value>) {
    rename(host, &HOST_STATUS);
    if let Some(job) = host.get_mut("job").and_then(Value::as_object_mut) {
        rename(job, &HOST_JOB);
    }
}

fn rename(object: &mut Map<String, Value>, fields: &[Renamed]) {
    for field in fields {
        if let Some(value) = object.remove(field.old) {
            object.entry(field.new).or_insert(value);
        }
    }
}

/// Adds the old names to the schema of a HostStatus.
pub(super) fn of_host_status(schema: &mut Schema) {
    add_old_names(schema, &HOST_STATUS);
}

/// Adds the old names to the schema of a HostJob.
pub(super) fn of_host_job(schema: &mut Schema) {
    add_old_names(schema, &HOST_JOB);
}

fn add_old_names(schema: &mut Schema, fields: &[Renamed]) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for Renamed { old, new } in fields {
        let Some(property) = properties.get_mut(*new).and_then(Value::as_object_mut) else {
            continue;
        };
        // The API server would add a default to an object that has the old name only, and the default would count.
        property.remove("default");
        let mut deprecated = property.clone();
        let text = format!(
            "Deprecated: the former name of {new}. The operator reads it and never writes it."
        );
        deprecated.insert("description".to_owned(), Value::String(text));
        properties.insert((*old).to_owned(), Value::Object(deprecated));
    }
}
