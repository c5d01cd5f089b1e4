//! Protobuf request bodies, which kubectl 1.32 and later sends from its typed commands.
//!
//! Tables of field numbers, for the kinds of those commands only, turn a message into JSON.
//! Answers are always JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::error::ApiError;

mod kinds;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A string.
    Text,
    /// Bytes, which JSON shows in base64.
    Bytes,
    /// A signed integer.
    Int,
    /// A boolean.
    Bool,
    /// A signed integer that JSON leaves out when it is 0.
    Count,
    /// A boolean that JSON leaves out when it is false.
    Flag,
    /// A message.
    Message(&'static [Field]),
    /// A map from strings to this.
    Map(&'static Self),
    /// A message whose fields appear in the parent.
    Inline(&'static [Field]),
    /// `metav1.Time`.
    Time,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `resource.Quantity`.
    Quantity,
}

/// Number, JSON name, whether it repeats, and what it holds.
type Field = (u64, &'static str, bool, Kind);

/// Reads a `runtime.Unknown` body.
///
/// # Errors
/// `400` for what is no such body, `415` for a kind of which the fields are not known.
pub fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let malformed =
        || ApiError::new(400, "BadRequest", "the protobuf body of the request is malformed");
    let unknown = body.strip_prefix(b"k8s\0").ok_or_else(malformed)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for part in Parts(unknown) {
        match part.ok_or_else(malformed)? {
            (1, Wire::Bytes(meta)) => {
                for part in Parts(meta) {
                    match part.ok_or_else(malformed)? {
                        (1, Wire::Bytes(text)) => {
                            api_version = String::from_utf8_lossy(text).into();
                        }
                        (2, Wire::Bytes(text)) => kind = String::from_utf8_lossy(text).into(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let fields = kinds::of(&kind).ok_or_else(|| {
        ApiError::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the simulated API server cannot read a {kind} in protobuf; send it as JSON, for \
                 example with kubectl create -f"
            ),
        )
    })?;
    let mut object = message(raw, fields).ok_or_else(malformed)?;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Ok(object)
}

fn message(bytes: &[u8], fields: &[Field]) -> Option<Value> {
    let mut object = Map::new();
    for part in Parts(bytes) {
        let (number, wire) = part?;
        let Some((_, name, repeated, kind)) = fields.iter().find(|(n, ..)| *n == number) else {
            continue;
        };
        match kind {
            Kind::Inline(fields) => {
                let Wire::Bytes(inner) = wire else { return None };
                if let Value::Object(inner) = message(inner, fields)? {
                    object.extend(inner);
                }
            }
            Kind::Map(kind) => {
                let Wire::Bytes(entry) = wire else { return None };
                let (mut key, mut value) = (String::new(), None);
                for part in Parts(entry) {
                    match part? {
                        (1, Wire::Bytes(text)) => key = String::from_utf8_lossy(text).into(),
                        (2, wire) => value = Some(single(wire, **kind)?),
                        _ => {}
                    }
                }
                let value = value.unwrap_or_else(|| json!(""));
                object.entry(*name).or_insert_with(|| json!({}))[key] = value;
            }
            kind => {
                let value = single(wire, *kind)?;
                if *repeated {
                    let list = object.entry(*name).or_insert_with(|| json!([]));
                    list.as_array_mut()?.push(value);
                } else if !is_empty(&value) {
                    object.insert((*name).to_owned(), value);
                }
            }
        }
    }
    Some(Value::Object(object))
}

/// Go leaves out empty strings and zero times in JSON, but not in protobuf.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

fn single(wire: Wire<'_>, kind: Kind) -> Option<Value> {
    Some(match (kind, wire) {
        (Kind::Text, Wire::Bytes(text)) => json!(String::from_utf8_lossy(text)),
        (Kind::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Kind::Int, Wire::Number(number)) => json!(number.cast_signed()),
        (Kind::Bool, Wire::Number(number)) => json!(number != 0),
        (Kind::Count | Kind::Flag, Wire::Number(0)) => Value::Null,
        (Kind::Count, Wire::Number(number)) => json!(number.cast_signed()),
        (Kind::Flag, Wire::Number(_)) => json!(true),
        (Kind::Message(fields), Wire::Bytes(bytes)) => message(bytes, fields)?,
        (Kind::Time, Wire::Bytes(bytes)) => {
            let seconds = Parts(bytes).flatten().find_map(|part| match part {
                (1, Wire::Number(number)) => Some(number.cast_signed()),
                _ => None,
            });
            match seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
                Some(time) => json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
                None => Value::Null,
            }
        }
        (Kind::Quantity, Wire::Bytes(bytes)) => Parts(bytes)
            .flatten()
            .find_map(|part| match part {
                (1, Wire::Bytes(text)) => Some(json!(String::from_utf8_lossy(text))),
                _ => None,
            })
            .unwrap_or_else(|| json!("0")),
        (Kind::IntOrString, Wire::Bytes(bytes)) => {
            let (mut kind, mut number, mut text) = (0, 0, String::new());
            for part in Parts(bytes) {
                match part? {
                    (1, Wire::Number(value)) => kind = value,
                    (2, Wire::Number(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(value)) => text = String::from_utf8_lossy(value).into(),
                    _ => {}
                }
            }
            if kind == 0 { json!(number) } else { json!(text) }
        }
        _ => return None,
    })
}

/// A field's content on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message; an inner `None` means that the rest is malformed.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Option<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_none() {
            self.0 = &[];
        }
        Some(part)
    }
}

impl<'a> Parts<'a> {
    fn part(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(self.take(4)?.try_into().ok()?))),
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        field.extend_from_slice(content);
        field
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
    }

    #[test]
    fn a_configmap_reads_as_json() {
        let meta = [bytes(1, b"c1"), bytes(3, b""), bytes(8, &[])].concat();
        let entry = [bytes(1, b"key"), bytes(2, b"value")].concat();
        let raw = [bytes(1, &meta), bytes(2, &entry)].concat();
        assert_eq!(
            decode(&body("ConfigMap", &raw)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1"},
                "data": {"key": "value"},
            })
        );
    }

    #[test]
    fn an_unknown_kind_is_refused_with_advice() {
        let error = decode(&body("Widget", b"")).unwrap_err();
        assert_eq!(error.code, 415);
        assert!(error.message.contains("send it as JSON"), "{error}");
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(garbage: Vec<u8>) {
            let mut garbled = body("Deployment", &[]);
            garbled.extend_from_slice(&garbage);
            drop(decode(&garbled));
            drop(message(&garbage, kinds::of("Deployment").unwrap()));
        }
    }
}
