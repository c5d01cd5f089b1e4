//! Checks the settings of runtimes, `spec.runtimes[].config`, as far as their text alone suffices. The first node checks
//! them against the payload.

use kata_api::kata_config::RuntimeSpec;
use kata_api::{Code, KataConfig};
use toml_edit::{DocumentMut, TomlError};

use crate::configs::config_ref;
use crate::report::Finding;

/// A finding for each runtime whose settings cannot be used.
pub(crate) fn problems(config: &KataConfig, runtimes: &[RuntimeSpec]) -> Vec<Finding> {
    let with_settings =
        runtimes.iter().filter_map(|runtime| Some((&runtime.name, runtime.config.as_deref()?)));
    with_settings
        .filter_map(|(name, text)| {
            let problem = problem(text)?;
            let message = format!(
                "spec.runtimes[{name}].config{problem}; no node gets or updates Kata meanwhile"
            );
            Some(Finding::new(Code::SettingsInvalid, config_ref(config), message))
        })
        .collect()
}

/// What is wrong with settings, as the end of a sentence about them.
pub(crate) fn problem(text: &str) -> Option<String> {
    let document: DocumentMut = match text.parse() {
        Ok(document) => document,
        Err(error) => return Some(at(text, &error)),
    };
    let outside: Vec<&str> =
        document.iter().filter(|(_, item)| !item.is_table_like()).map(|(key, _)| key).collect();
    (!outside.is_empty()).then(|| {
        let (is, it) = if outside.len() == 1 { ("is", "it") } else { ("are", "them") };
        let outside = outside.join(", ");
        format!(": {outside} {is} in no [table]; put {it} below one, such as [hypervisor.qemu]")
    })
}

/// `, line 3, column 5: …`.
fn at(text: &str, error: &TomlError) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    format!(", line {line}, column {column}: {message}")
}
