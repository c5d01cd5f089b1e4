//! Managed fields and server-side apply: who owns which field.
//!
//! Pure functions on JSON values. Field ownership follows the list and map topology of the kind: a
//! table for built-in kinds, `x-kubernetes-list-type` and friends for custom resources. Defaults,
//! validation and storing are other modules' work.

mod builtin;
mod compare;
mod conflict;
mod last_applied;
mod managed;
mod merge;
mod set;
mod topology;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(super) use builtin::Merge;
pub(super) use topology::Topology;

use self::compare::Diff;
use self::conflict::Conflict;
use self::managed::{Entry, Identity, Operation};
use self::set::FieldSet;
use super::error::ApiError;
use super::registry::ResourceDef;
use super::schema;

/// The manager that owns what existed before the first apply of an object without managed fields.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Whose request it is, and to what it goes.
#[derive(Clone, Copy, Debug)]
pub struct FieldWriter<'a> {
    /// The kind's definition.
    pub def: &'a ResourceDef,
    /// The field manager.
    pub manager: &'a str,
    /// The subresource; empty for the main resource.
    pub subresource: &'a str,
    /// The time of the request.
    pub now: Timestamp,
}

impl FieldWriter<'_> {
    fn identity(&self, operation: Operation) -> Identity {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        let update_version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => self.def.api_version(),
        };
        Identity {
            manager: manager.to_owned(),
            operation,
            update_version,
            subresource: self.subresource.to_owned(),
        }
    }

    /// Leaves out the fields that the endpoint does not write.
    fn restrict(&self, set: &mut FieldSet) {
        match self.subresource {
            "" if self.def.status => {
                set.remove("f:status");
            }
            "status" => {
                set.remove("f:spec");
            }
            _ => {}
        }
    }

    /// The part of an applied configuration that the endpoint writes.
    fn relevant(&self, config: &Value) -> Value {
        let mut config = config.clone();
        if let Some(fields) = config.as_object_mut() {
            match self.subresource {
                "" if self.def.status => {
                    fields.remove("status");
                }
                "status" => fields.retain(|name, _value| {
                    matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                }),
                _ => {}
            }
        }
        if self.subresource == "status"
            && self.def.custom.is_some()
            && let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.retain(|name, _value| compare::NEVER_OWNED.contains(&name.as_str()));
        }
        if self.def.custom.is_none() {
            drop_nulls(&mut config);
        }
        config
    }
}

/// Typed objects do not keep nulls.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_name, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Server-side apply: merges `config` into `live` and updates the managed fields of the result.
///
/// A configuration that changes nothing gives back `live` as it was. The result is what the write path
/// stores after defaults, admission and validation; the endpoint of `writer` decides which part of
/// `config` counts.
///
/// # Errors
/// `409 Conflict` naming the other managers, unless `force`; `400` if `config` carries managed fields;
/// `500` if `config` has unknown fields, or a keyed list with an item twice or without its key.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    writer: FieldWriter<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    if config.pointer("/metadata/managedFields").is_some_and(|sent| !sent.is_null()) {
        return Err(ApiError::new(400, "BadRequest", "metadata.managedFields must be nil"));
    }
    let topology = Topology::of(writer.def);
    let relevant = writer.relevant(config);
    let errors = mistyped(topology, &relevant, writer.def);
    if !errors.is_empty() {
        return Err(conflict::untyped(config, writer.def, &errors));
    }

    let recorded = live.and_then(sent_entries).unwrap_or_default();
    let mut owners = managed::decode(recorded).unwrap_or_default();
    let before = owners.clone();
    if let Some(live) = live.filter(|_live| owners.is_empty()) {
        let first = FieldWriter { manager: BEFORE_FIRST_APPLY, ..writer };
        let mut fields = compare::objects(topology, None, live).changed;
        writer.restrict(&mut fields);
        if !fields.is_empty() {
            owners.push(Entry {
                id: first.identity(Operation::Update),
                api_version: writer.def.api_version(),
                time: Some(managed::seconds(writer.now)),
                fields,
            });
        }
    }

    let mut bare = live.cloned().unwrap_or_else(|| json!({}));
    take_managed_fields(&mut bare);
    let from_kubectl = writer.manager == "kubectl";
    let mut attempt = merge_owned(topology, &bare, &relevant, &owners, &writer, force);
    if let Err(conflicts) = &mut attempt
        && from_kubectl
        && let Some(allowed) = last_applied::unchanged_fields(topology, &bare, writer.def)
    {
        for conflict in conflicts.iter_mut() {
            conflict.fields.subtract(&allowed);
        }
        conflicts.retain(|conflict| !conflict.fields.is_empty());
        if conflicts.is_empty() {
            attempt = merge_owned(topology, &bare, &relevant, &owners, &writer, true);
        }
    }
    let (mut merged, owners) = attempt.map_err(|conflicts| conflict::error(&conflicts))?;
    if from_kubectl {
        last_applied::refresh(&mut merged, config);
    }
    if let Some(live) = live
        && merged == bare
        && same_owners(&before, &owners)
    {
        return Ok(live.clone());
    }
    let mut entries: Vec<Value> = owners.iter().map(managed::encode_entry).collect();
    managed::sort(&mut entries);
    put_managed_fields(&mut merged, entries);
    Ok(merged)
}

/// Where a configuration does not fit the kind's schema: types, keys of lists, unknown fields.
fn mistyped(topology: Topology<'_>, config: &Value, def: &ResourceDef) -> Vec<String> {
    let known = match &def.custom {
        Some(custom) => Some(&custom.schema),
        None => schema::builtin(def),
    };
    let Some(known) = known else { return merge::list_errors(topology, config) };
    let told =
        |path: &str, what: &str| format!("{}: {what}", merge::printed(topology, config, path));
    let mut errors: Vec<String> =
        known.type_errors(config).iter().map(|(path, what)| told(path, what)).collect();
    errors.extend(merge::list_errors(topology, config));
    // A real server stops at the first field that it does not know.
    if let Some(path) = known.prune(&mut config.clone()).first() {
        errors = vec![told(path, "field not declared in schema")];
    }
    errors.sort();
    errors
}

/// Merges the configuration into the live object, both without managed fields, and works out who owns
/// what then.
fn merge_owned(
    topology: Topology<'_>,
    live: &Value,
    config: &Value,
    owners: &[Entry],
    writer: &FieldWriter<'_>,
    force: bool,
) -> Result<(Value, Vec<Entry>), Vec<Conflict>> {
    let id = writer.identity(Operation::Apply);
    let mut merged = live.clone();
    merge::merge(topology, &mut merged, config);
    let applied = merge::field_set(topology, config);
    let (own, mut others): (Vec<Entry>, Vec<Entry>) =
        owners.iter().cloned().partition(|entry| entry.id == id);
    let last = own.into_iter().next();
    if let Some(last) = &last {
        merged = prune(topology, merged, &last.fields, config, &others);
    }

    let Diff { mut changed, mut removed } = compare::objects(topology, Some(live), &merged);
    writer.restrict(&mut changed);
    writer.restrict(&mut removed);
    let mut conflicts: Vec<Conflict> = others
        .iter()
        .map(|entry| Conflict { id: entry.id.clone(), fields: entry.fields.intersect(&changed) })
        .filter(|conflict| !conflict.fields.is_empty())
        .collect();
    if !force && !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.id.cmp(&b.id));
        return Err(conflicts);
    }
    for entry in &mut others {
        entry.fields.subtract(&changed);
        entry.fields.subtract(&removed);
    }
    others.retain(|entry| !entry.fields.is_empty());

    let mut fields = applied;
    compare::strip(&mut fields);
    if !fields.is_empty() {
        // An apply that changes nothing keeps the time of its entry, and a new one has none.
        let time = if merged == *live {
            last.and_then(|last| last.time)
        } else {
            Some(managed::seconds(writer.now))
        };
        others.push(Entry { id, api_version: writer.def.api_version(), time, fields });
    }
    Ok((merged, others))
}

/// Removes what the manager applied last time, does not apply now, and nobody else owns.
fn prune(
    topology: Topology<'_>,
    merged: Value,
    last: &FieldSet,
    config: &Value,
    others: &[Entry],
) -> Value {
    let mut dropped = last.clone();
    dropped.subtract(&merge::field_set(topology, config));
    if dropped.is_empty() {
        return merged;
    }
    let last = last.with_named_fields(topology);
    let mut owned = FieldSet::default();
    for entry in others {
        owned.unite(&entry.fields);
    }
    let mut owned = owned.with_named_fields(topology);
    owned.unite(&merge::present(topology, config));

    // Without everything applied last time, then with what has an owner, then with what was never
    // applied.
    let present = merge::present(topology, &merged);
    let mut without = merged.clone();
    merge::remove(topology, &mut without, &last);
    let mut unowned = present.clone();
    unowned.subtract(&merge::present(topology, &without));
    unowned.subtract(&owned);
    let mut without = merged.clone();
    merge::remove(topology, &mut without, &unowned);
    let mut gone = present;
    gone.subtract(&merge::present(topology, &without));
    let gone = gone.intersect(&last);
    let mut pruned = merged;
    merge::remove(topology, &mut pruned, &gone);
    pruned
}

fn same_owners(a: &[Entry], b: &[Entry]) -> bool {
    a.len() == b.len() && a.iter().all(|entry| b.contains(entry))
}

/// Records in `new`'s managed fields what an update, patch or create changed against `old`.
///
/// `new` carries the managed fields that the client sent; where it sent none, those of `old` count. An
/// empty list, or one empty entry, makes the object forget its owners; writes then go unrecorded until
/// the next apply. A subresource cannot set managed fields.
pub fn track_update(old: Option<&Value>, new: &mut Value, writer: FieldWriter<'_>) {
    let sent = take_managed_fields(new);
    let mut entries = effective_entries(old, sent, &writer);
    if entries.is_empty() && old.is_some() {
        return;
    }
    let topology = Topology::of(writer.def);
    let mut diff = compare::objects(topology, old, new);
    writer.restrict(&mut diff.changed);
    writer.restrict(&mut diff.removed);
    if !diff.is_empty() {
        record(&mut entries, &diff, &writer);
    }
    put_managed_fields(new, entries);
}

/// The entries that count: those sent, if they are sound, else those recorded.
fn effective_entries(
    old: Option<&Value>,
    sent: Option<Value>,
    writer: &FieldWriter<'_>,
) -> Vec<Value> {
    let recorded = old.and_then(sent_entries).unwrap_or_default();
    if writer.subresource.is_empty()
        && let Some(Value::Array(sent)) = sent
    {
        if sent == recorded {
            return sent;
        }
        if managed::is_reset(&sent) {
            return Vec::new();
        }
        if let Some(mut entries) = managed::decode(&sent) {
            entries.retain(|entry| !entry.fields.is_empty());
            let mut entries: Vec<Value> = entries.iter().map(managed::encode_entry).collect();
            managed::sort(&mut entries);
            return entries;
        }
    }
    recorded.to_vec()
}

/// Gives what changed to the writer and takes it, and what is gone, from all others.
fn record(entries: &mut Vec<Value>, diff: &Diff, writer: &FieldWriter<'_>) {
    let id = writer.identity(Operation::Update);
    let mut own = None;
    for (index, entry) in entries.iter_mut().enumerate() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_own = text("operation") == Operation::Update.as_str()
            && text("manager") == id.manager
            && text("apiVersion") == id.update_version
            && text("subresource") == id.subresource;
        let fields = entry.get("fieldsV1").unwrap_or(&Value::Null);
        let loses_changed = !is_own && diff.changed.touches(fields);
        let gains = is_own && !diff.changed.is_covered_by(fields);
        if loses_changed || gains || diff.removed.touches(fields) {
            let mut set = FieldSet::decode(fields).unwrap_or_default();
            set.subtract(&diff.removed);
            if is_own {
                set.unite(&diff.changed);
            } else {
                set.subtract(&diff.changed);
            }
            let encoded = set.encode();
            if let Some(entry) = entry.as_object_mut() {
                entry.insert("fieldsV1".to_owned(), encoded);
            }
        }
        if is_own {
            own = Some(index);
        }
    }
    if !diff.changed.is_empty() {
        let time = managed::seconds(writer.now);
        match own.and_then(|index| entries.get_mut(index)).and_then(Value::as_object_mut) {
            Some(entry) => {
                entry.insert("time".to_owned(), Value::from(time));
            }
            None => entries.push(managed::encode_entry(&Entry {
                id,
                api_version: writer.def.api_version(),
                time: Some(time),
                fields: diff.changed.clone(),
            })),
        }
    }
    entries.retain(|entry| {
        entry.get("fieldsV1").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty())
    });
    managed::cap(entries);
    managed::sort(entries);
}

fn sent_entries(object: &Value) -> Option<&[Value]> {
    object.get("metadata")?.get("managedFields")?.as_array().map(Vec::as_slice)
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed_fields(object: &mut Value, entries: Vec<Value>) {
    if entries.is_empty() {
        return;
    }
    if let Some(object) = object.as_object_mut()
        && let Some(metadata) =
            object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

#[cfg(test)]
mod tests;
