//! `must-gather`: what a bug report needs, in one archive, with the rights that the caller has. What it
//! cannot get it names. Of an object it keeps the fields that it knows ([`project`]), Secrets it never reads, and
//! out of texts it takes what looks like a credential.
//!
//! The same program is `/usr/bin/gather` in the image, for `oc adm must-gather`.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use kata_api::names;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::name::ItemName;
use self::project::Extent;
use self::redact::Redactor;
use super::{doctor, expect_output, marked, status};
use crate::Context;
use crate::api::{Read, Scope};
use crate::arguments::{DoctorArguments, GatherArguments};
use crate::cluster::{self, Kata};
use crate::document::{GatherReport, Head};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::yaml;
use crate::resource::{
    BUDGETS, CRDS, DEPLOYMENTS, JOBS, KATA_CONFIGS, KATA_NODES, LEASES, MACHINE_CONFIGS, NODES,
    PODS, POOLS, RUNTIME_CLASSES, RUNTIME_CONFIGS, Resource,
};
use crate::settings::Output;

mod name;
mod project;
pub(super) mod redact;
mod talk;

/// How many things that are not to be had are named with one reason.
const NAMED: usize = 10;

/// A file of the collection.
struct Item {
    name: ItemName,
    text: String,
}

/// What has been collected so far.
#[derive(Default)]
struct Collection {
    items: Vec<Item>,
    /// What the caller may not have.
    forbidden: Vec<String>,
    /// What could not be had for another reason, and why.
    absent: Vec<(String, String)>,
    simulated: bool,
    wanted: usize,
    /// `None` with `--no-redaction`.
    redactor: Option<Redactor>,
}

pub(crate) async fn run(
    arguments: &GatherArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "must-gather")?;
    let begun = Instant::now();
    let kata = Kata::read(&context.api).await?;
    let begin = context.settings.now();
    let interrupted = context.interrupted();
    let collection = tokio::select! {
        collection = Box::pin(collect(arguments, &kata, context)) => collection?,
        () = interrupted => return Ok(Exit::Interrupted),
    };
    let stamp = begin.strftime("%Y%m%dT%H%M%SZ").to_string();
    let simulated = kata.is_simulated();
    let place = store(arguments, &collection, &stamp, begin)?;
    let span = human::elapsed(begun);
    let names = collection.missing();
    let got = collection.wanted - names.len();
    let missing = if names.is_empty() {
        String::new()
    } else {
        format!(" (not to be had: {})", collection.reasons())
    };
    let redacted = collection.redactor.as_ref().map_or_else(
        || "   not redacted: review it before you share it".to_owned(),
        |redactor| format!("   only known fields are kept; taken out: {redactor}"),
    );
    let text = format!("collected {got} of {} items, {span}{missing}{redacted}", collection.wanted);
    context.printer.say(&marked(&text, simulated))?;
    let document = GatherReport {
        head: Head::new("GatherReport", simulated),
        path: place.display().to_string(),
        collected: collection.items.iter().map(|item| item.name.as_str().to_owned()).collect(),
        missing: names,
        redacted: collection.redactor.as_ref().map_or(0, Redactor::total),
        gaps: context.api.gaps(),
    };
    if !context.printer.document(context.settings.output, &document)? {
        let size: usize = collection.items.iter().map(|item| item.text.len()).sum();
        let size = human::memory(i128::try_from(size).unwrap_or(0));
        context
            .printer
            .line(&format!("wrote {} ({size}): start with summary.md", place.display()))?;
    }
    Ok(Exit::Fine)
}

fn store(
    arguments: &GatherArguments,
    collection: &Collection,
    stamp: &str,
    begin: jiff::Timestamp,
) -> Result<PathBuf, Failure> {
    let folder = format!("kata-must-gather-{stamp}");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::File { path, source }
    };
    if let Some(directory) = &arguments.dest_dir {
        let root = directory.join(&folder);
        for place in [directory, &root] {
            std::fs::create_dir_all(place).map_err(failed(place))?;
        }
        for item in &collection.items {
            let path = root.join(item.name.as_str());
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(failed(parent))?;
            }
            std::fs::write(&path, &item.text).map_err(failed(&path))?;
        }
        return Ok(root);
    }
    let path =
        arguments.archive.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let plain = archive(&folder, &collection.items, begin).map_err(failed(&path))?;
    let zipped = path.extension().is_some_and(|ending| ending == "gz" || ending == "tgz");
    let bytes = if zipped { gzip(&plain).map_err(failed(&path))? } else { plain };
    std::fs::write(&path, bytes).map_err(failed(&path))?;
    Ok(path)
}

/// The files as a tar archive.
fn archive(folder: &str, items: &[Item], modified: jiff::Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for item in items {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(item.text.len()).unwrap_or(u64::MAX));
        header.set_mode(0o644);
        header.set_mtime(u64::try_from(modified.as_second()).unwrap_or(0));
        let path = format!("{folder}/{}", item.name.as_str());
        archive.append_data(&mut header, path, item.text.as_bytes())?;
    }
    archive.into_inner()
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

async fn collect(
    arguments: &GatherArguments,
    kata: &Kata,
    context: &Context<'_, '_>,
) -> Result<Collection, Failure> {
    let mut collection = Collection {
        simulated: kata.is_simulated(),
        redactor: (!arguments.no_redaction).then(Redactor::default),
        ..Collection::default()
    };
    let home = cluster::home(&context.api).await?.to_owned();
    let extent = Extent { home: &home, selected_by: selected_by(kata) };
    let everything: [(&'static str, Resource, Option<&str>); 12] = [
        ("kataconfigs.yaml", KATA_CONFIGS, None),
        ("katanodes.yaml", KATA_NODES, None),
        ("runtimeclasses.yaml", RUNTIME_CLASSES, None),
        ("nodes.yaml", NODES, None),
        ("machineconfigpools.yaml", POOLS, None),
        ("containerruntimeconfigs.yaml", RUNTIME_CONFIGS, None),
        ("customresourcedefinitions.yaml", CRDS, None),
        ("poddisruptionbudgets.yaml", BUDGETS, None),
        ("deployments.yaml", DEPLOYMENTS, Some(home.as_str())),
        ("jobs.yaml", JOBS, Some(home.as_str())),
        ("leases.yaml", LEASES, Some(home.as_str())),
        ("pods.yaml", PODS, None),
    ];
    let classes = kata.sandbox_classes();
    let mut pods = Vec::new();
    for (name, resource, namespace) in everything {
        let keep = |object: &Value| match resource {
            PODS => {
                let class = object["spec"]["runtimeClassName"].as_str();
                object["metadata"]["namespace"] == home
                    || class.is_some_and(|class| classes.contains(class))
            }
            CRDS => object["metadata"]["name"].as_str().is_some_and(|name| {
                name.starts_with("kata") || name.contains(".kata-operator.dev")
            }),
            _ => true,
        };
        let scope = Scope { namespace, ..Scope::default() };
        match context.api.list::<Value>(resource, scope).await? {
            Read::Known(mut all) => {
                all.retain(keep);
                if resource == PODS {
                    pods.clone_from(&all);
                }
                collection.objects(ItemName::of(name), resource, json!(all), &extent)?;
            }
            Read::Forbidden => collection.forbid(name),
            // A kind of the other platform is not missing.
            Read::NotServed => {}
        }
    }
    for name in names::MACHINE_CONFIGS {
        let item = ItemName::within("machineconfigs", name, "yaml");
        match context.api.get::<Value>(MACHINE_CONFIGS, None, name).await? {
            Read::Known(Some(config)) => {
                collection.objects(item, MACHINE_CONFIGS, config, &extent)?;
            }
            Read::Known(None) | Read::NotServed => {}
            Read::Forbidden => collection.forbid(item.as_str()),
        }
    }
    talk::events(&pods, &home, arguments, context, &mut collection).await?;
    talk::logs(arguments, context, &mut collection).await?;
    talk::journals(kata, arguments, context, &mut collection).await;
    // Whoever may not see the KataConfigs still gets the rest.
    let report = match Box::pin(status::read(context)).await {
        Err(Failure::Forbidden(_)) => status::report(kata, context.settings.now()),
        read => read?,
    };
    let checks = doctor::report(&DoctorArguments::default(), context).await?;
    let version = json!({
        "plugin": crate::VERSION,
        "kubernetes": kata.version.git_version,
        "simulated": kata.is_simulated(),
    });
    let summary = summary(&report, &collection, context);
    collection.wanted += 4;
    collection.add(ItemName::of("status.json"), &json(&report)?);
    collection.add(ItemName::of("doctor.json"), &json(&checks)?);
    collection.yaml(ItemName::of("version.yaml"), &version)?;
    collection.add(ItemName::of("summary.md"), &summary);
    Ok(collection)
}

/// The keys of labels by which KataConfigs select nodes.
fn selected_by(kata: &Kata) -> BTreeSet<String> {
    let selectors = kata
        .configs
        .items()
        .iter()
        .flat_map(|config| {
            let spec = &config.spec;
            let runtimes = spec.runtimes.iter().map(|runtime| &runtime.install_on);
            [&spec.kata_config_pool_selector, &spec.provided_nodes].into_iter().chain(runtimes)
        })
        .flatten();
    selectors
        .flat_map(|selector| {
            let labels = selector.match_labels.iter().flatten().map(|(key, _)| key.clone());
            let expressions = selector.match_expressions.iter().flatten();
            labels.chain(expressions.map(|expression| expression.key.clone())).collect::<Vec<_>>()
        })
        .collect()
}

fn json(document: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Format { format: "JSON", message: error.to_string() })
}

impl Collection {
    /// The names of what could not be had.
    fn missing(&self) -> Vec<String> {
        let absent = self.absent.iter().map(|(name, _)| name);
        self.forbidden.iter().chain(absent).cloned().collect()
    }

    /// The same for people, with the reasons that are not the caller's rights: these are told elsewhere.
    fn reasons(&self) -> String {
        let mut parts = Vec::new();
        if !self.forbidden.is_empty() {
            parts.push(human::list(&self.forbidden, NAMED));
        }
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, why) in &self.absent {
            match by_reason.iter_mut().find(|(known, _)| *known == why.as_str()) {
                Some((_, names)) => names.push(name),
                None => by_reason.push((why, vec![name])),
            }
        }
        let reasons = by_reason.iter();
        parts.extend(reasons.map(|(why, names)| format!("{}: {why}", human::list(names, NAMED))));
        parts.join("; ")
    }

    /// Adds a text, without credentials and addresses.
    fn add(&mut self, name: ItemName, text: &str) {
        let text = match &mut self.redactor {
            Some(redactor) => redactor.text(text),
            None => text.to_owned(),
        };
        let is_taken = |name: &ItemName| self.items.iter().any(|item| item.name == *name);
        let numbered = (2..).map(|number| name.numbered(number)).find(|name| !is_taken(name));
        let name = if is_taken(&name) { numbered.unwrap_or(name) } else { name };
        self.items.push(Item { name, text });
    }

    /// Adds a value.
    fn yaml(&mut self, name: ItemName, value: &Value) -> Result<(), Failure> {
        let mark = if self.simulated { "# (simulated)\n" } else { "" };
        let text = format!("{mark}{}", yaml(value)?);
        self.items.push(Item { name, text });
        Ok(())
    }

    /// Adds the part of an object, or of each object of a list, that is kept.
    fn objects(
        &mut self,
        name: ItemName,
        resource: Resource,
        mut value: Value,
        extent: &Extent<'_>,
    ) -> Result<(), Failure> {
        self.wanted += 1;
        if let Some(redactor) = &mut self.redactor {
            value = match value {
                Value::Array(all) => {
                    all.iter().map(|object| project::project(resource, object, extent)).collect()
                }
                object => project::project(resource, &object, extent),
            };
            redactor.value(&mut value);
        }
        self.yaml(name, &value)
    }

    /// Notes a file that the caller may not have.
    fn forbid(&mut self, name: &str) {
        self.wanted += 1;
        self.forbidden.push(name.trim_end_matches(".yaml").to_owned());
    }
}

fn summary(
    report: &crate::document::StatusReport,
    collection: &Collection,
    context: &Context<'_, '_>,
) -> String {
    let mut text = format!(
        "# Kata on this cluster{}\n\nCollected {} by kubectl kata {}.\n\n{}\n",
        if report.head.simulated { " (simulated)" } else { "" },
        context.settings.now(),
        crate::VERSION,
        status::summary(report),
    );
    if !report.problems.is_empty() {
        text.push_str("\n## Problems\n\n");
    }
    for problem in &report.problems {
        text.push_str(&format!(
            "- {} {}: {}\n  Fix: {}\n",
            problem.id, problem.subject, problem.message, problem.fix
        ));
    }
    text.push_str("\n## Files\n\n");
    for item in &collection.items {
        text.push_str(&format!("- {}\n", item.name.as_str()));
    }
    if !collection.forbidden.is_empty() {
        text.push_str("\n## Not to be had with the rights of the caller\n\n");
    }
    for name in &collection.forbidden {
        text.push_str(&format!("- {name}\n"));
    }
    if !collection.absent.is_empty() {
        text.push_str("\n## Not to be had\n\n");
    }
    for (name, why) in &collection.absent {
        text.push_str(&format!("- {name}: {why}\n"));
    }
    text
}
