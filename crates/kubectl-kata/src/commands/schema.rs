//! `schema`: the JSON schemas of the documents, from their types.

use std::collections::BTreeMap;

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::arguments::SchemaArguments;
use crate::document;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// A kind of document and its schema.
type Kind = (&'static str, fn() -> Value);

const ALL: [Kind; 13] = [
    ("StatusReport", of::<document::StatusReport>),
    ("PodList", of::<document::PodList>),
    ("NodeList", of::<document::NodeList>),
    ("CheckReport", of::<document::CheckReport>),
    ("VerifyReport", of::<document::VerifyReport>),
    ("AcceptReport", of::<document::AcceptReport>),
    ("WhyReport", of::<document::WhyReport>),
    ("HistoryReport", of::<document::HistoryReport>),
    ("GatherReport", of::<document::GatherReport>),
    ("UninstallPlan", of::<document::UninstallPlan>),
    ("TakeOverPlan", of::<document::TakeOverPlan>),
    ("CodeList", of::<document::CodeList>),
    ("VersionReport", of::<document::VersionReport>),
];

fn of<T: JsonSchema>() -> Value {
    schema_for!(T).to_value()
}

/// Prints the schema of a kind, or all as one object.
pub(crate) fn run(arguments: &SchemaArguments, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let schema = match &arguments.kind {
        None => json!(BTreeMap::from(ALL.map(|(kind, schema)| (kind, schema())))),
        Some(wanted) => {
            let found = ALL.iter().find(|(kind, _)| kind.eq_ignore_ascii_case(wanted));
            let (_, schema) = found.ok_or_else(|| {
                let kinds = ALL.map(|(kind, _)| kind).join(", ");
                Failure::Usage(format!("schema {wanted}: no such kind; there are {kinds}"))
            })?;
            schema()
        }
    };
    printer.line(&format!("{schema:#}"))?;
    Ok(Exit::Fine)
}
