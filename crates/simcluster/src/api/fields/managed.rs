//! The entries of `metadata.managedFields`: reading, writing, order, limit.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::set::FieldSet;

/// How many managers may own fields by updates; the oldest beyond that are lumped together.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager under which old updates are lumped together.
const ANCIENT: &str = "ancient-changes";

/// One manager's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Who.
    pub(super) id: Identity,
    /// The version in which the paths are written.
    pub(super) api_version: String,
    /// When the entry last changed, in RFC 3339 with seconds.
    pub(super) time: Option<String>,
    /// What the manager owns.
    pub(super) fields: FieldSet,
}

/// What tells managers apart. The order is the one in which conflicts are listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    /// The manager's name.
    pub(super) manager: String,
    /// `Apply` or `Update`.
    pub(super) operation: Operation,
    /// The version, of updates only.
    pub(super) update_version: String,
    /// The subresource; empty for the main resource.
    pub(super) subresource: String,
}

/// How a manager came to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    /// As the API writes it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl Identity {
    /// The manager as conflicts name it.
    pub(super) fn describe(&self) -> String {
        let mut text = quoted(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&quoted(&self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(&self.update_version);
        }
        text
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A time as the API writes it.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Reads all entries; `None` if one is malformed, which discards them all, as the API server does.
pub(super) fn decode(entries: &[Value]) -> Option<Vec<Entry>> {
    let mut decoded: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let entry = decode_entry(entry)?;
        decoded.retain(|other| other.id != entry.id);
        decoded.push(entry);
    }
    Some(decoded)
}

/// Reads one entry.
pub(super) fn decode_entry(entry: &Value) -> Option<Entry> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion").to_owned();
    if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => FieldSet::decode(fields)?,
    };
    let time = match entry.get("time") {
        None | Some(Value::Null) => None,
        Some(time) => Some(seconds(time.as_str()?.parse::<Timestamp>().ok()?)),
    };
    let update_version =
        if operation == Operation::Update { api_version.clone() } else { String::new() };
    Some(Entry {
        id: Identity {
            manager: text("manager").to_owned(),
            operation,
            update_version,
            subresource: text("subresource").to_owned(),
        },
        api_version,
        time,
        fields,
    })
}

/// Writes one entry.
pub(super) fn encode_entry(entry: &Entry) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    put("manager", Value::from(entry.id.manager.as_str()));
    put("operation", Value::from(entry.id.operation.as_str()));
    put("apiVersion", Value::from(entry.api_version.as_str()));
    if let Some(time) = &entry.time {
        put("time", Value::from(time.as_str()));
    }
    put("fieldsType", Value::from("FieldsV1"));
    put("fieldsV1", entry.fields.encode());
    if !entry.id.subresource.is_empty() {
        put("subresource", Value::from(entry.id.subresource.as_str()));
    }
    Value::Object(out)
}

/// Orders encoded entries: by operation, time, manager, version, subresource.
pub(super) fn sort(entries: &mut [Value]) {
    fn key(entry: &Value) -> [&str; 5] {
        ["operation", "time", "manager", "apiVersion", "subresource"]
            .map(|key| entry.get(key).and_then(Value::as_str).unwrap_or_default())
    }
    entries.sort_by(|a, b| key(a).cmp(&key(b)));
}

/// Whether `metadata.managedFields` as a client sent it asks to forget all owners.
pub(super) fn is_reset(sent: &[Value]) -> bool {
    match sent {
        [] => true,
        [only] => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Lumps the oldest updates together, if there are too many update managers.
pub(super) fn cap(entries: &mut Vec<Value>) {
    let is_update = |entry: &&Value| entry["operation"] == "Update";
    if entries.iter().filter(is_update).count() <= MAX_UPDATE_MANAGERS {
        return;
    }
    let Some(mut decoded) = decode(entries) else { return };
    decoded.sort_by(|a, b| (&a.time, &a.id).cmp(&(&b.time, &b.id)));
    let (mut updates, applies): (Vec<Entry>, Vec<Entry>) =
        decoded.into_iter().partition(|entry| entry.id.operation == Operation::Update);
    let mut index = 0;
    while updates.len() > MAX_UPDATE_MANAGERS && index < updates.len() {
        let version = updates.get(index).map(|entry| entry.api_version.clone());
        let same_version = |entry: &Entry| Some(&entry.api_version) == version.as_ref();
        let bucket = updates
            .iter()
            .position(|entry| {
                same_version(entry)
                    && entry.id.manager == ANCIENT
                    && entry.id.subresource.is_empty()
            })
            .or_else(|| updates.iter().take(index).position(same_version));
        let first = !updates.iter().take(index).any(same_version);
        let Some(bucket) = bucket.filter(|bucket| !first && *bucket != index) else {
            index += 1;
            continue;
        };
        let newer = updates.remove(index);
        let bucket = if bucket > index { bucket - 1 } else { bucket };
        if let Some(bucket) = updates.get_mut(bucket) {
            bucket.id.manager = ANCIENT.to_owned();
            bucket.id.subresource = String::new();
            bucket.fields.unite(&newer.fields);
            bucket.time = newer.time;
        }
    }
    *entries = applies.iter().chain(&updates).map(encode_entry).collect();
}
