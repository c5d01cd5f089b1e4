//! A manifest with a KataConfig, checked without a cluster: what is wrong, with line and column.

use std::io::Read as _;
use std::path::Path;

use kata_api::{Code, KataConfig};
use serde_json::{Value, json};

use super::schema::{self, Violation};
use crate::document::{Check, CheckResult};
use crate::failure::Failure;

/// Most bytes of a manifest: what an API server takes.
const MOST: u64 = 3 * 1024 * 1024;

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
        let text = format!("{name}: there is no KataConfig in it");
        let fix = "Give a file with an object of kind KataConfig.".to_owned();
        found.checks.push(Check { fix, ..invalid(text) });
        return found;
    };
    let mut wrong: Vec<Violation> = Vec::new();
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version != "kataconfiguration.openshift.io/v1" {
        let text =
            format!("apiVersion is {version:?}, and must be kataconfiguration.openshift.io/v1");
        wrong.push((vec!["apiVersion".to_owned()], text));
    }
    wrong.extend(misnamed(&value["metadata"]));
    let mut typed = value.clone();
    if let Some(schema) = schema() {
        typed = schema::without_nulls(&value, &schema);
        wrong.extend(schema::violations(&typed, &schema));
    }
    if typed["spec"].is_null() {
        // As the definition's default has it.
        typed["spec"] = json!({});
    }
    match serde_json::from_value::<KataConfig>(typed) {
        Ok(config) => {
            if let Some(selector) = &config.spec.kata_config_pool_selector
                && wrong.is_empty()
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
        // What else an API server may object to, such as a webhook's opinion, nobody knows here.
        let text = format!(
            "{name} keeps to the schema and the rules of version {}'s definition of KataConfig",
            crate::VERSION
        );
        found.checks.push(super::check(Code::ManifestInvalid, CheckResult::Ok, text));
    }
    found.value = Some(value);
    found
}

/// Checks a file.
pub(super) fn check(path: &Path) -> Result<Found, Failure> {
    let failed = |source| Failure::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let most = MOST + 1;
    let (name, read) = if path == Path::new("-") {
        let stdin = std::io::stdin().lock();
        ("standard input".to_owned(), stdin.take(most).read_to_end(&mut bytes))
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        (path.display().to_string(), file.take(most).read_to_end(&mut bytes))
    };
    let length = read.map_err(failed)?;
    if u64::try_from(length).is_ok_and(|length| length >= most) {
        return Err(Failure::Usage(format!(
            "{name} is longer than 3 MiB, which is more than an API server takes: give a file with KataConfigs"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        Failure::Usage(format!(
            "{name} is not UTF-8 text ({error}): give a YAML file with a KataConfig"
        ))
    })?;
    Ok(check_text(&name, &text))
}

fn invalid(message: String) -> Check {
    super::check(Code::ManifestInvalid, CheckResult::Error, message)
}

/// The schema of a KataConfig.
pub(super) fn schema() -> Option<Value> {
    let crd = kata_api::crds().into_iter().next()?;
    let versions = serde_json::to_value(crd.spec.versions).ok()?;
    Some(versions[0]["schema"]["openAPIV3Schema"].clone())
}

/// What every API server says of a name that is none.
pub(super) fn misnamed(metadata: &Value) -> Option<Violation> {
    let path = vec!["metadata".to_owned(), "name".to_owned()];
    let Some(name) = metadata["name"].as_str() else {
        let generated = metadata["generateName"].is_string();
        return (!generated).then(|| (path, "metadata.name must be a string".to_owned()));
    };
    let is_part = |part: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(plain)
            && part.ends_with(plain)
            && part.chars().all(|c| plain(c) || c == '-')
    };
    let fits = name.len() <= 253 && name.split('.').all(is_part);
    (!fits).then(|| {
        let text = format!(
            "metadata.name is {name:?}, and must be of small letters, digits, - and ., and begin and end \
             with a letter or digit"
        );
        (path, text)
    })
}

/// Where the value at a path is, from 1, in block style; of a flow the line that it begins on.
fn locate(text: &str, path: &[String]) -> (usize, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    let mut column = 1;
    for segment in path {
        if let Ok(index) = segment.parse::<usize>() {
            if let Some((number, start)) = item(&lines, at, index) {
                (at, column) = (number, start + 1);
            }
            continue;
        }
        let found = lines.iter().enumerate().skip(at).find_map(|(number, line)| {
            let quoted =
                [format!("{segment}:"), format!("'{segment}':"), format!("\"{segment}\":")];
            let body = line.split('#').next().unwrap_or_default();
            // `name:` is not in `hostname:`.
            let begins = |start: usize| {
                let before = body.get(..start).and_then(|before| before.chars().next_back());
                before.is_none_or(|c| c.is_whitespace() || "{,".contains(c))
            };
            quoted.iter().find_map(|key| {
                let mut all = body.match_indices(key.as_str()).map(|(start, _)| start);
                Some((number, all.find(|start| begins(*start))?, key.len()))
            })
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

/// Line and column of an item of the list in block style that begins after a line.
fn item(lines: &[&str], at: usize, index: usize) -> Option<(usize, usize)> {
    let mut items = lines.iter().enumerate().skip(at + 1).filter_map(|(number, line)| {
        let start = line.len() - line.trim_start().len();
        let dashed = line.get(start..).is_some_and(|rest| rest == "-" || rest.starts_with("- "));
        dashed.then_some((number, start))
    });
    let (first, start) = items.next()?;
    if index == 0 {
        return Some((first, start));
    }
    items.filter(|(_, column)| *column == start).nth(index - 1)
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

    /// One line for each value that the API server refuses, and where it is.
    #[test]
    fn what_the_definition_refuses_is_found_where_it_is() {
        let head = "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: a\nspec:\n";
        let refused = [
            ("  rollout:\n    maxUnavailable: 0\n", "7:21: maxUnavailable must be"),
            ("  rollout:\n    maxUnavailable: 150%\n", "7:21: maxUnavailable must be"),
            (
                "  rollout:\n    maxUnavailable: true\n",
                "7:21: spec.rollout.maxUnavailable must be a whole number or a string",
            ),
            ("  logLevel: loud\n", "6:13: logLevel must be one of"),
            ("  payload:\n    image: ''\n", "7:12: spec.payload.image must not be empty"),
            ("  payload: {}\n", "6:12: spec.payload.image is missing"),
            ("  payload:\n    image:\n", "6:3: spec.payload.image is missing"),
            ("  runtimes: [null]\n", "6:13: spec.runtimes[0] must be an object, not null"),
            (
                "  runtimes:\n  - name: kata\n  - name: Kata_Foo\n",
                "8:11: spec.runtimes[1].name is \"Kata_Foo\"",
            ),
            (
                "  runtimes:\n  - name: kata\n    handler: a b\n",
                "8:14: spec.runtimes[0].handler is \"a b\"",
            ),
            (
                "  runtimes:\n  - name: kata\n  - name: kata\n",
                "6:3: spec.runtimes has two items with name kata",
            ),
            (
                "  runtimes:\n  - name: kata\n    overhead:\n      cpu: -250m\n",
                "9:12: spec.runtimes[0].overhead.cpu is \"-250m\"",
            ),
            (
                "  runtimes:\n  - name: kata\n    overhead:\n      memory: 350M i\n",
                "9:15: spec.runtimes[0].overhead.memory is \"350M i\"",
            ),
            (
                "  runtimes:\n  - name: kata\n    overhead:\n      resources: {cpu: 1}\n",
                "9:18: resources must have names with a domain",
            ),
            (
                "  runtimes:\n  - name: kata\n    overhead:\n      resources:\n        a.b/c: 1.5\n",
                "10:16: spec.runtimes[0].overhead.resources.a.b/c must be",
            ),
            (
                "  runtimes:\n  - {name: a, handler: x}\n  - {name: b, handler: x, shim: clh}\n",
                "6:3: runtimes with the same handler must have the same shim",
            ),
            (
                "  kataConfigPoolSelector:\n    matchExpressions:\n      - {key: kata, operator: Foo, values: ['true']}\n",
                "8:31: spec.kataConfigPoolSelector.matchExpressions[0].operator must be one of In, NotIn",
            ),
            (
                "  kataConfigPoolSelector:\n    matchExpressions:\n    - {key: kata, operator: In}\n",
                "8:5: values must hold at least one value",
            ),
        ];
        for (spec, expected) in refused {
            let found = messages(&format!("{head}{spec}"));
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("k.yaml:{expected}")),
                "{spec}\n{found:#?}"
            );
        }
        let named = |name: &str| messages(&head.replace("name: a", name));
        assert_eq!(named("name: kata-1.b"), [""; 0]);
        assert!(named("name: Kata_Foo")[0].starts_with("k.yaml:4:9: metadata.name is"));
        assert_eq!(messages(&head.replace("spec:\n", "")), [""; 0]);
        for good in [
            "rollout: {maxUnavailable: 25%}",
            "payload: {image: a}",
            "runtimes: []",
            "runtimes: null",
            "logLevel:",
            "rollout: {maxUnavailable: null}",
            "logLevel: debug",
        ] {
            assert_eq!(messages(&format!("{head}  {good}\n")), [""; 0], "{good}");
        }
    }
}
