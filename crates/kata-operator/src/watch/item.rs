//! An object as a cache keeps it: its name, its version, and what [`CachedValue`] keeps of it.
//!
//! Parsing an item never fails: an invalid object becomes an item with its error, and breaks neither a list
//! nor a watch. (In a watch event the type must come before the object, as it does in what every API server
//! sends.) This module decides nothing.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kata_plan::{Kind, ObjectRef, UnreadableObject};
use kube::Resource;
use kube::core::DynamicResourceScope;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::ingest::{CachedValue, TrimError, VersionedName};

/// The name of an object that has none, which no API server stores.
const NO_NAME: &str = "without a name";

/// An object as a cache keeps it.
#[derive(Clone, Debug)]
pub(super) struct Item<T> {
    /// Name and version only.
    metadata: ObjectMeta,
    /// The value of the object, or why it cannot be read.
    pub(super) content: Result<T, Invalid>,
    /// Whether the content differs from the content in the cache.
    pub(super) has_changed: bool,
}

/// An object that cannot be parsed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Invalid {
    uid: Option<String>,
    created: Option<Timestamp>,
    pub(super) error: String,
}

/// The metadata of an object that cannot be parsed.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    resource_version: String,
    uid: Option<String>,
    creation_timestamp: Option<String>,
}

impl<T: CachedValue> Item<T> {
    /// Reads an object from its JSON text.
    pub(super) fn from_text(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(wire) => Self::from_wire(wire),
            Err(error) => {
                let envelope = serde_json::from_str::<Envelope<'_>>(text);
                let error = with_path::<T::Wire>(text, &error);
                Self::invalid(envelope.ok().map(|envelope| envelope.metadata), error)
            }
        }
    }

    fn from_wire(wire: T::Wire) -> Self {
        match T::trim(wire) {
            Ok((id, value)) if !id.name.is_empty() => Self::new(id, Ok(value)),
            Ok(_) => Self::invalid(None, "it has no name".to_owned()),
            Err(TrimError { metadata, error }) => {
                Self::invalid(metadata.as_deref(), error.to_string())
            }
        }
    }

    fn invalid(metadata: Option<&RawValue>, error: String) -> Self {
        let metadata = metadata.and_then(|text| serde_json::from_str(text.get()).ok());
        let Metadata { name, resource_version: version, uid, creation_timestamp } =
            metadata.unwrap_or_default();
        let name = if name.is_empty() { NO_NAME.to_owned() } else { name };
        let created = creation_timestamp.and_then(|time| time.parse().ok());
        let invalid = Invalid { uid, created, error };
        Self::new(VersionedName { name, version }, Err(invalid))
    }

    fn new(VersionedName { name, version }: VersionedName, content: Result<T, Invalid>) -> Self {
        let metadata = ObjectMeta {
            name: Some(name),
            resource_version: Some(version),
            ..ObjectMeta::default()
        };
        Self { metadata, content, has_changed: true }
    }

    /// The object's name.
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or(NO_NAME)
    }

    /// The object's version, as the API server wrote it.
    pub(super) fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// The object's version as a number.
    pub(super) fn version(&self) -> u128 {
        parse_version(self.resource_version())
    }

    /// Takes over the value of `known` if both are equivalent, which saves memory, and records whether they
    /// are.
    pub(super) fn compare(&mut self, known: Option<&Self>) {
        self.has_changed = match (&self.content, known.map(|known| &known.content)) {
            (Ok(new), Some(Ok(old))) if new.is_equivalent(old) => {
                self.content = Ok(old.clone());
                false
            }
            (Err(new), Some(Err(old))) => new != old,
            _ => true,
        };
    }

    /// The object as the decision gets it, if it cannot be read.
    pub(super) fn unreadable(&self, kind: Kind) -> Option<UnreadableObject> {
        let Invalid { uid, created, error } = self.content.as_ref().err()?;
        Some(UnreadableObject {
            object: ObjectRef::new(kind, self.name(), uid.as_deref()),
            created: *created,
            error: error.clone(),
        })
    }
}

/// An error with the path of the field that it is about, and without the place in a JSON text that no user sees.
fn with_path<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> String {
    let error = error.to_string();
    let error = error.split(" at line ").next().unwrap_or_default();
    let mut json = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut json)
        .map_err(|error| error.path().to_string())
    {
        Err(path) if path != "." => format!("{path}: {error}"),
        _ => error.to_owned(),
    }
}

/// A resourceVersion as a number; they grow. A version that is not a number counts as the newest, so that
/// the last answer wins.
pub(super) fn parse_version(version: &str) -> u128 {
    version.parse().unwrap_or(u128::MAX)
}

impl<'de, T: CachedValue> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if T::WIRE_ACCEPTS_ANY_OBJECT {
            return T::Wire::deserialize(deserializer).map(Self::from_wire);
        }
        <&RawValue>::deserialize(deserializer).map(|text| Self::from_text(text.get()))
    }
}

impl<T> Resource for Item<T> {
    type DynamicType = Kind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &Kind) -> Cow<'_, str> {
        kind.as_str().into()
    }

    fn group(kind: &Kind) -> Cow<'_, str> {
        kind.api_version().split_once('/').map_or("", |(group, _)| group).into()
    }

    fn version(kind: &Kind) -> Cow<'_, str> {
        let version = kind.api_version();
        version.split_once('/').map_or(version, |(_, version)| version).into()
    }

    fn plural(kind: &Kind) -> Cow<'_, str> {
        kind.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
