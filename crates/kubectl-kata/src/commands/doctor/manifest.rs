//! A manifest with a KataConfig, checked without a cluster: what is wrong, with line and column.

use std::path::Path;

use kata_api::{Code, KataConfig};
use serde_json::Value;

use crate::document::{Check, CheckResult};
use crate::failure::Failure;

/// What a manifest is.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The KataConfig as it was written.
    pub(super) value: Option<Value>,
    /// The KataConfig, if it can be understood.
    pub(super) config: Option<KataConfig>,
    pub(super) checks: Vec<Check>,
}

/// Checks a file.
pub(super) fn check_text(name: &str, text: &str) -> Found {
    let mut found = Found::default();
    let documents: Vec<Value> = match serde_saphyr::from_multiple(text) {
        Ok(documents) => documents,
        Err(error) => {
            let place = error
                .location()
                .map_or_else(String::new, |place| format!(":{}:{}", place.line(), place.column()));
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default();
            found.checks.push(invalid(format!("{name}{place}: no valid YAML: {why}")));
            return found;
        }
    };
    let Some(value) = documents.into_iter().find(|document| document["kind"] == "KataConfig")
    else {
        found.checks.push(invalid(format!("{name}: there is no KataConfig in it")));
        return found;
    };
    let mut wrong = Vec::new();
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version != "kataconfiguration.openshift.io/v1" {
        let text =
            format!("apiVersion is {version:?}, and must be kataconfiguration.openshift.io/v1");
        wrong.push((vec!["apiVersion".to_owned()], text));
    }
    if let Some(schema) = schema() {
        walk(&value["spec"], &schema, &mut vec!["spec".to_owned()], &mut wrong);
    }
    match serde_json::from_value::<KataConfig>(value.clone()) {
        Ok(config) => {
            if let Some(selector) = &config.spec.kata_config_pool_selector
                && let Err(error) = kata_plan::selector::check(selector)
            {
                let path = vec!["spec".to_owned(), "kataConfigPoolSelector".to_owned()];
                wrong.push((path, error));
            }
            found.config = Some(config).filter(|_| wrong.is_empty());
        }
        Err(error) if wrong.is_empty() => wrong.push((Vec::new(), error.to_string())),
        Err(_told) => {}
    }
    for (path, why) in &wrong {
        let (line, column) = locate(text, path);
        found.checks.push(invalid(format!("{name}:{line}:{column}: {why}")));
    }
    if wrong.is_empty() {
        let text = format!("{name} is a valid KataConfig");
        found.checks.push(super::check(Code::ManifestInvalid, CheckResult::Ok, text));
    }
    found.value = Some(value);
    found
}

/// Checks a file.
pub(super) fn check(path: &Path) -> Result<Found, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::File { path: path.to_owned(), source })?;
    Ok(check_text(&path.display().to_string(), &text))
}

fn invalid(message: String) -> Check {
    super::check(Code::ManifestInvalid, CheckResult::Error, message)
}

/// The schema of `spec`.
fn schema() -> Option<Value> {
    let crd = kata_api::crds().into_iter().next()?;
    let versions = serde_json::to_value(crd.spec.versions).ok()?;
    Some(versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone())
}

/// Compares a value with its schema: unknown fields, and values of the wrong type.
fn walk(
    value: &Value,
    schema: &Value,
    path: &mut Vec<String>,
    wrong: &mut Vec<(Vec<String>, String)>,
) {
    if value.is_null() {
        return;
    }
    let name = path.join(".");
    let type_ = schema["type"].as_str().unwrap_or_default();
    let fits = match type_ {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        _ => true,
    };
    if !fits {
        let hint =
            if type_ == "string" { format!(": write '{}'", plain(value)) } else { String::new() };
        wrong.push((path.clone(), format!("{name} must be a {type_}, not {}{hint}", kind(value))));
        return;
    }
    if let Some(fields) = value.as_object() {
        let known = schema["properties"].as_object();
        let others = &schema["additionalProperties"];
        for (key, field) in fields {
            path.push(key.clone());
            match known.and_then(|known| known.get(key)) {
                Some(schema) => walk(field, schema, path, wrong),
                None if others.is_object() => walk(field, others, path, wrong),
                None if known.is_some() => {
                    let text = match nearest(key, known) {
                        Some(near) => format!("there is no field {key}; did you mean {near}?"),
                        None => format!("there is no field {key}"),
                    };
                    wrong.push((path.clone(), text));
                }
                None => {}
            }
            path.pop();
        }
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        path.push(at.to_string());
        walk(item, &schema["items"], path, wrong);
        path.pop();
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn kind(value: &Value) -> String {
    match value {
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "null".to_owned(),
    }
}

/// The known field that ends or begins like the unknown one.
fn nearest(key: &str, known: Option<&serde_json::Map<String, Value>>) -> Option<String> {
    let lower = key.to_lowercase();
    known?
        .keys()
        .find(|name| {
            let name = name.to_lowercase();
            name.ends_with(&lower) || lower.ends_with(&name) || name.starts_with(&lower)
        })
        .cloned()
}

/// Where the value at a path is, from 1, in block style; of a flow the line that it begins on.
fn locate(text: &str, path: &[String]) -> (usize, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    let mut column = 1;
    for segment in path {
        if segment.chars().all(|c| c.is_ascii_digit()) {
            continue;
        }
        let found = lines.iter().enumerate().skip(at).find_map(|(number, line)| {
            let quoted =
                [format!("{segment}:"), format!("'{segment}':"), format!("\"{segment}\":")];
            let body = line.split('#').next().unwrap_or_default();
            quoted.iter().find_map(|key| Some((number, body.find(key.as_str())?, key.len())))
        });
        let Some((number, start, length)) = found else { break };
        at = number;
        let rest =
            lines.get(number).and_then(|line| line.get(start + length..)).unwrap_or_default();
        let gap = rest.len() - rest.trim_start().len();
        column = if rest.trim().is_empty() { start + 1 } else { start + length + gap + 1 };
    }
    (at + 1, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check_text("k.yaml", text)
            .checks
            .into_iter()
            .filter(|check| check.result == CheckResult::Error)
            .map(|check| check.message)
            .collect()
    }

    #[test]
    fn a_label_that_is_no_string_is_found_with_line_and_column() {
        let text = "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: \
                    cluster-kataconfig\nspec:\n  kataConfigPoolSelector:\n    matchLabels:\n       kata: true\n";
        assert_eq!(
            messages(text),
            [
                "k.yaml:8:14: spec.kataConfigPoolSelector.matchLabels.kata must be a string, not the \
                 boolean true: write 'true'"
            ]
        );
        assert!(messages(&text.replace("true", "'true'")).is_empty());
    }

    #[test]
    fn unknown_fields_and_broken_files_are_found() {
        let text = "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata: {name: a}\n\
                    spec:\n  poolSelector: {}\n";
        assert_eq!(
            messages(text),
            ["k.yaml:5:17: there is no field poolSelector; did you mean kataConfigPoolSelector?"]
        );
        // As the seed's own manifest is indented.
        let text = "kind: KataConfig\nmetadata:\n  name: a\n spec:\n    logLevel: info\n";
        let found = messages(text);
        assert!(found.len() == 1 && found[0].starts_with("k.yaml:4:"), "{found:?}");
        assert_eq!(messages("kind: Pod\n"), ["k.yaml: there is no KataConfig in it"]);
    }
}
