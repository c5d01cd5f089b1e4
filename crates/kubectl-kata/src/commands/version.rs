//! `version`: of the plugin, the operator and the cluster.

use kata_api::names;

use super::{expect_output, local_head, marked};
use crate::Context;
use crate::api::Read;
use crate::cluster::{operator, version};
use crate::document::{Head, VersionReport};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::settings::{Output, Settings};

const ALLOWED: [Output; 3] = [Output::Table, Output::Json, Output::Yaml];

/// Only the plugin's own.
pub(crate) fn client(settings: &Settings, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    expect_output(settings, &ALLOWED, "version")?;
    let report = VersionReport {
        head: local_head("VersionReport"),
        plugin: crate::VERSION,
        operator: None,
        kubernetes: None,
        gaps: Vec::new(),
    };
    if !printer.document(settings.output, &report)? {
        printer.line(&format!("plugin      {}", crate::VERSION))?;
    }
    Ok(Exit::Fine)
}

pub(crate) async fn run(context: &mut Context<'_, '_>) -> Result<Exit, Failure> {
    expect_output(context.settings, &ALLOWED, "version")?;
    let (server, deployment) = futures::join!(version(&context.api), operator(&context.api));
    let server = server?;
    let deployment = deployment?;
    let absent = matches!(deployment, Read::Known(None) | Read::NotServed);
    let facts = deployment.known().flatten().map(|deployment| deployment.facts());
    let report = VersionReport {
        head: Head::new("VersionReport", server.is_simulated()),
        plugin: crate::VERSION,
        operator: facts,
        kubernetes: Some(server.git_version.clone()).filter(|version| !version.is_empty()),
        gaps: context.api.gaps(),
    };
    if context.printer.document(context.settings.output, &report)? {
        return Ok(Exit::Fine);
    }
    let unknown = || "unknown".to_owned();
    let none = || {
        if absent {
            format!("no Deployment {} in {}", names::PRODUCT, context.api.home())
        } else {
            unknown()
        }
    };
    let operator = report.operator.as_ref().map_or_else(none, |operator| {
        format!(
            "{} ({}/{})",
            operator.version.as_deref().unwrap_or("unknown"),
            operator.ready_replicas.unwrap_or_default(),
            operator.replicas.unwrap_or_default()
        )
    });
    let kubernetes = report.kubernetes.clone().unwrap_or_else(unknown);
    context.printer.line(&format!("plugin      {}", report.plugin))?;
    context.printer.line(&format!("operator    {operator}"))?;
    context.printer.line(&format!("kubernetes  {}", marked(&kubernetes, report.head.simulated)))?;
    Ok(Exit::Fine)
}
