//! `__schema`: the JSON schemas of the documents, from their types. They are generated into docs/schema.

use schemars::{JsonSchema, schema_for};

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

/// Prints all schemas, separated by lines `# KIND`.
pub(crate) fn run(printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    for (kind, schema) in all() {
        printer.line(&format!("# {kind}"))?;
        printer.line(&format!("{schema:#}"))?;
    }
    Ok(Exit::Fine)
}
