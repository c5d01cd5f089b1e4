//! Every change of one field that a schema of the API server's OpenAPI document permits.
//!
//! A field or an item of a list that the object has is changed and left out; one that it lacks is added, and so is each field of a struct
//! that it, or the first item of a list, lacks.

use serde_json::{Map, Value, json};

/// How many levels of required fields a value is filled in.
const DEPTH: usize = 6;

/// A change of one field.
pub(super) struct Attempt {
    /// How and where: `=` changes the field, `-` leaves it out, `+` adds it, as in `+ spec/template/spec/hostPID`.
    pub(super) what: String,
    /// The object after the change.
    pub(super) object: Value,
}

/// The changes of the field `root` of an object, which has the schema of this name in `components.schemas`.
pub(super) fn of(schemas: &Value, kind: &str, object: &Value, root: &str) -> Vec<Attempt> {
    let mut attempts = Attempts { schemas, object, found: Vec::new() };
    let schema = attempts.resolve(&schemas[kind]["properties"][root]);
    if object[root].is_null() {
        attempts.absent(schema, &[root.to_owned()]);
    } else {
        attempts.present(schema, &[root.to_owned()], &object[root]);
    }
    attempts.found
}

struct Attempts<'a> {
    schemas: &'a Value,
    object: &'a Value,
    found: Vec<Attempt>,
}

impl<'a> Attempts<'a> {
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        let name = reference.and_then(|reference| reference.rsplit('/').next());
        name.map_or(schema, |name| &self.schemas[name])
    }

    fn add(&mut self, path: &[String], how: char, value: Option<Value>) {
        let mut object = self.object.clone();
        set(&mut object, path, value);
        self.found.push(Attempt { what: format!("{how} {}", path.join("/")), object });
    }

    /// Changes of a value that the object has.
    fn present(&mut self, schema: &'a Value, path: &[String], value: &Value) {
        match value {
            Value::Array(items) => {
                let of_item = self.resolve(&schema["items"]);
                for (index, item) in items.iter().enumerate() {
                    let path = child(path, &index.to_string());
                    self.present(of_item, &path, item);
                    self.add(&path, '-', None);
                }
                let sample = self.sample(of_item, 0);
                self.add(&child(path, &items.len().to_string()), '+', Some(sample));
            }
            Value::Object(fields) => self.present_fields(schema, path, fields),
            value => self.add(path, '=', Some(other(value))),
        }
    }

    fn present_fields(&mut self, schema: &'a Value, path: &[String], fields: &Map<String, Value>) {
        for (name, field) in properties(schema) {
            let path = child(path, name);
            let of_field = self.resolve(field);
            if let Some(value) = fields.get(name) {
                self.present(of_field, &path, value);
                self.add(&path, '-', None);
            } else {
                self.absent(of_field, &path);
            }
        }
        let of_value = &schema["additionalProperties"];
        if of_value.is_object() {
            let of_value = self.resolve(of_value);
            let sample = self.sample(of_value, 0);
            self.add(&child(path, "example.org-thief"), '+', Some(sample));
            for (key, value) in fields {
                self.present(of_value, &child(path, key), value);
                self.add(&child(path, key), '-', None);
            }
        }
    }

    /// Values for a field that the object lacks.
    fn absent(&mut self, schema: &'a Value, path: &[String]) {
        let sample = self.sample(schema, 0);
        self.add(path, '+', Some(sample.clone()));
        // Once for all items of a list.
        if path.iter().any(|name| name.parse::<usize>().is_ok_and(|index| index > 0)) {
            return;
        }
        for (name, field) in properties(schema) {
            // Together with what the struct requires.
            let mut filled = sample.clone();
            filled[name] = self.sample(field, 0);
            self.add(path, '+', Some(filled));
            if let Some(Attempt { what, .. }) = self.found.last_mut() {
                what.push('/');
                what.push_str(name);
            }
        }
    }

    /// A value with all that is required.
    fn sample(&self, schema: &'a Value, depth: usize) -> Value {
        let schema = self.resolve(schema);
        match schema["type"].as_str() {
            Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            Some("string") => json!("thief"),
            Some("integer" | "number") => json!(7),
            Some("boolean") => json!(true),
            Some("array") if depth < DEPTH => json!([self.sample(&schema["items"], depth + 1)]),
            Some("array") => json!([]),
            Some("object") if schema["additionalProperties"].is_object() => {
                json!({"thief": self.sample(&schema["additionalProperties"], depth + 1)})
            }
            Some("object") => {
                let required = schema["required"].as_array().into_iter().flatten();
                let fields = required.filter_map(Value::as_str).map(|name| {
                    (name.to_owned(), self.sample(&schema["properties"][name], depth + 1))
                });
                Value::Object(fields.collect())
            }
            // Quantities, and what is a number or a text.
            _ => json!("7"),
        }
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn child(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

/// Another value of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!(!flag),
        Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
        Value::String(text) => json!(format!("{text}x")),
        other => other.clone(),
    }
}

fn set(object: &mut Value, path: &[String], value: Option<Value>) {
    let Some((last, before)) = path.split_last() else { return };
    let mut at = object;
    for name in before {
        at = match name.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
            _ => &mut at[name.as_str()],
        };
    }
    match (at, value) {
        (Value::Array(items), Some(value)) => match last.parse::<usize>() {
            Ok(index) if index < items.len() => items[index] = value,
            _ => items.push(value),
        },
        (Value::Object(fields), Some(value)) => {
            fields.insert(last.clone(), value);
        }
        (Value::Array(items), None) => {
            if let Ok(index) = last.parse::<usize>() {
                items.remove(index);
            }
        }
        (Value::Object(fields), None) => {
            fields.remove(last);
        }
        _ => {}
    }
}
