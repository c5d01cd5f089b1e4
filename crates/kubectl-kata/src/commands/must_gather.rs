//! `must-gather`: what a bug report needs, in one archive, with the rights that the caller has. What it
//! cannot get it names; Secrets it never reads, and values of environment variables it takes out.
//!
//! The same program is `/usr/bin/gather` in the image, for `oc adm must-gather`.

use std::path::{Path, PathBuf};

use kata_api::names;
use serde_json::{Value, json};

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

mod archive;
mod redact;
mod talk;

/// How many things that are not to be had are named with one reason.
const NAMED: usize = 10;

/// A file of the collection.
struct Item {
    name: String,
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
    redacted: redact::Count,
}

pub(crate) async fn run(
    arguments: &GatherArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "must-gather")?;
    let begin = context.settings.now();
    let kata = Kata::read(&context.api).await?;
    let interrupted = context.interrupted();
    let collection = tokio::select! {
        collection = Box::pin(collect(arguments, &kata, context)) => collection?,
        () = interrupted => return Ok(Exit::Interrupted),
    };
    let stamp = begin.strftime("%Y%m%dT%H%M%SZ").to_string();
    let simulated = kata.is_simulated();
    let place = store(arguments, &collection, &stamp, begin)?;
    let span = human::span(context.settings.now().duration_since(begin));
    let names = collection.missing();
    let got = collection.wanted - names.len();
    let missing = if names.is_empty() {
        String::new()
    } else {
        format!(" (not to be had: {})", collection.reasons())
    };
    let text = format!(
        "collected {got} of {} items, {span}{missing}   redacted: {}",
        collection.wanted, collection.redacted
    );
    context.printer.say(&marked(&text, simulated))?;
    let document = GatherReport {
        head: Head::new("GatherReport", simulated),
        path: place.display().to_string(),
        collected: collection.items.iter().map(|item| item.name.clone()).collect(),
        missing: names,
        redacted: collection.redacted.total(),
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
            let path = root.join(&item.name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(failed(parent))?;
            }
            std::fs::write(&path, &item.text).map_err(failed(&path))?;
        }
        return Ok(root);
    }
    let path =
        arguments.archive.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let files = collection
        .items
        .iter()
        .map(|item| (format!("{folder}/{}", item.name), item.text.as_bytes()));
    let plain = archive::tar(files, begin);
    let zipped = path.extension().is_some_and(|ending| ending == "gz" || ending == "tgz");
    let bytes = if zipped { archive::gzip(&plain).map_err(failed(&path))? } else { plain };
    std::fs::write(&path, bytes).map_err(failed(&path))?;
    Ok(path)
}

async fn collect(
    arguments: &GatherArguments,
    kata: &Kata,
    context: &Context<'_, '_>,
) -> Result<Collection, Failure> {
    let mut collection = Collection { simulated: kata.is_simulated(), ..Collection::default() };
    let home = cluster::home(&context.api).await?.to_owned();
    let everything: [(Resource, Option<&str>); 12] = [
        (KATA_CONFIGS, None),
        (KATA_NODES, None),
        (RUNTIME_CLASSES, None),
        (NODES, None),
        (POOLS, None),
        (RUNTIME_CONFIGS, None),
        (CRDS, None),
        (BUDGETS, None),
        (DEPLOYMENTS, Some(home.as_str())),
        (JOBS, Some(home.as_str())),
        (LEASES, Some(home.as_str())),
        (PODS, None),
    ];
    let classes = kata.sandbox_classes();
    for (resource, namespace) in everything {
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
        objects(resource, namespace, keep, arguments, context, &mut collection).await?;
    }
    for name in names::MACHINE_CONFIGS {
        let read = context.api.get::<Value>(MACHINE_CONFIGS, None, name).await?;
        add(&format!("machineconfigs/{name}.yaml"), read, arguments, &mut collection)?;
    }
    talk::events(arguments, context, &mut collection).await?;
    talk::logs(arguments, context, &mut collection).await?;
    talk::journals(kata, arguments, context, &mut collection).await;
    // Whoever may not see the KataConfigs still gets the rest.
    let report = match Box::pin(status::read(context)).await {
        Err(Failure::Forbidden(_)) => status::report(kata, context.settings.now()),
        read => read?,
    };
    let checks = doctor::report(&DoctorArguments::default(), context).await?;
    collection.wanted += 4;
    collection.items.push(Item { name: "status.json".to_owned(), text: json(&report)? });
    collection.items.push(Item { name: "doctor.json".to_owned(), text: json(&checks)? });
    let version = json!({
        "plugin": crate::VERSION,
        "kubernetes": kata.version.git_version,
        "simulated": kata.is_simulated(),
    });
    collection.yaml("version.yaml", &version)?;
    let summary = summary(&report, &collection, context);
    collection.items.push(Item { name: "summary.md".to_owned(), text: summary });
    Ok(collection)
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

    /// Adds an object.
    fn yaml(&mut self, name: &str, value: &Value) -> Result<(), Failure> {
        let mark = if self.simulated { "# (simulated)\n" } else { "" };
        let text = format!("{mark}{}", yaml(value)?);
        self.items.push(Item { name: name.to_owned(), text });
        Ok(())
    }

    /// Adds a text, without what is nobody's business.
    fn text(&mut self, name: String, text: &str, arguments: &GatherArguments) {
        let text = if arguments.no_redaction {
            text.to_owned()
        } else {
            redact::text(text, &mut self.redacted)
        };
        self.items.push(Item { name, text });
    }
}

async fn objects(
    resource: Resource,
    namespace: Option<&str>,
    keep: impl Fn(&Value) -> bool,
    arguments: &GatherArguments,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) -> Result<(), Failure> {
    let scope = Scope { namespace, ..Scope::default() };
    let read = context.api.list::<Value>(resource, scope).await?;
    let name = format!("{}.yaml", resource.plural);
    match read {
        Read::Known(mut all) => {
            all.retain(|object| keep(object));
            add(&name, Read::Known(Some(json!(all))), arguments, collection)
        }
        Read::Forbidden => add(&name, Read::Forbidden, arguments, collection),
        // A kind of the other platform is not missing.
        Read::NotServed => Ok(()),
    }
}

fn add(
    name: &str,
    read: Read<Option<Value>>,
    arguments: &GatherArguments,
    collection: &mut Collection,
) -> Result<(), Failure> {
    match read {
        Read::Known(Some(mut value)) => {
            collection.wanted += 1;
            if !arguments.no_redaction {
                redact::value(&mut value, &mut collection.redacted);
            }
            collection.yaml(name, &value)?;
        }
        Read::Known(None) | Read::NotServed => {}
        Read::Forbidden => {
            collection.wanted += 1;
            collection.forbidden.push(name.trim_end_matches(".yaml").to_owned());
        }
    }
    Ok(())
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
        text.push_str(&format!("- {}\n", item.name));
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
