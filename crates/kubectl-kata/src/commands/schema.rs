//! `__schema`: the JSON schemas of the documents, from their types. They are generated into docs/schema.

use schemars::{JsonSchema, schema_for};

use crate::arguments::SchemaArguments;
use crate::document;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;

fn of<T: JsonSchema>() -> serde_json::Value {
    schema_for!(T).to_value()
}

/// Each kind of document and its schema.
fn all() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("StatusReport", of::<document::StatusReport>()),
        ("PodList", of::<document::PodList>()),
        ("NodeList", of::<document::NodeList>()),
        ("CheckReport", of::<document::CheckReport>()),
        ("VerifyReport", of::<document::VerifyReport>()),
        ("WhyReport", of::<document::WhyReport>()),
        ("EventList", of::<document::EventList>()),
        ("HistoryReport", of::<document::HistoryReport>()),
        ("GatherReport", of::<document::GatherReport>()),
        ("UninstallPlan", of::<document::UninstallPlan>()),
        ("CodeList", of::<document::CodeList>()),
        ("VersionReport", of::<document::VersionReport>()),
    ]
}

pub(crate) fn run(arguments: &SchemaArguments, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let mut known = Vec::new();
    let mut found = false;
    for (kind, schema) in all() {
        known.push(kind);
        if arguments.kind.as_deref().is_some_and(|wanted| wanted != kind) {
            continue;
        }
        found = true;
        if arguments.kind.is_none() {
            printer.line(&format!("# {kind}"))?;
        }
        printer.line(&format!("{schema:#}"))?;
    }
    if found {
        Ok(Exit::Fine)
    } else {
        Err(Failure::Usage(format!("the kinds are {}", known.join(", "))))
    }
}
