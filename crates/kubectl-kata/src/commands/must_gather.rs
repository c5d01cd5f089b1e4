//! `must-gather`: what a bug report needs, in one archive, with the rights that the caller has. What it
//! cannot get it names; Secrets it never reads, and values of environment variables it takes out.
//!
//! The same program is `/usr/bin/gather` in the image, for `oc adm must-gather`.

use std::path::PathBuf;

use kata_api::names;
use serde_json::{Value, json};

use super::{expect_output, marked, status};
use crate::Context;
use crate::api::{Read, Scope, Trouble};
use crate::arguments::GatherArguments;
use crate::cluster::Kata;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::yaml;
use crate::resource::{
    BUDGETS, CRDS, DEPLOYMENTS, EVENTS, JOBS, KATA_CONFIGS, KATA_NODES, LEASES, MACHINE_CONFIGS,
    NODES, PODS, POOLS, RUNTIME_CLASSES, RUNTIME_CONFIGS, Resource,
};
use crate::settings::Output;

mod archive;
mod redact;

/// A file of the collection.
struct Item {
    name: String,
    text: String,
}

/// What has been collected so far.
#[derive(Default)]
struct Collection {
    items: Vec<Item>,
    missing: Vec<String>,
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
        collection = collect(arguments, &kata, context) => collection?,
        () = interrupted => return Ok(Exit::Interrupted),
    };
    let stamp = begin.strftime("%Y%m%dT%H%M%SZ").to_string();
    let simulated = kata.is_simulated();
    let place = store(arguments, &collection, &stamp, begin)?;
    let span = human::span(context.settings.now().duration_since(begin));
    let got = collection.wanted - collection.missing.len();
    let missing = if collection.missing.is_empty() {
        String::new()
    } else {
        format!(" (not to be had: {})", human::list(&collection.missing, 10))
    };
    let text = format!(
        "collected {got} of {} items, {span}{missing}   redacted: {}",
        collection.wanted, collection.redacted
    );
    context.printer.say(&marked(&text, simulated))?;
    let document = json!({
        "apiVersion": crate::document::API_VERSION,
        "kind": "GatherReport",
        "simulated": simulated,
        "path": place,
        "collected": collection.items.iter().map(|item| &item.name).collect::<Vec<_>>(),
        "missing": collection.missing,
    });
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
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| Failure::File { path, source }
    };
    if let Some(directory) = &arguments.dest_dir {
        let root = directory.join(&folder);
        for item in &collection.items {
            let path = root.join(&item.name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(failed(&path))?;
            }
            std::fs::write(&path, &item.text).map_err(failed(&path))?;
        }
        return Ok(root);
    }
    let path = arguments.archive.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar")));
    let files = collection
        .items
        .iter()
        .map(|item| (format!("{folder}/{}", item.name), item.text.as_bytes()));
    std::fs::write(&path, archive::tar(files, begin)).map_err(failed(&path))?;
    Ok(path)
}

async fn collect(
    arguments: &GatherArguments,
    kata: &Kata,
    context: &Context<'_, '_>,
) -> Result<Collection, Failure> {
    let mut collection = Collection::default();
    let everything: [(Resource, Option<&str>); 12] = [
        (KATA_CONFIGS, None),
        (KATA_NODES, None),
        (RUNTIME_CLASSES, None),
        (NODES, None),
        (POOLS, None),
        (RUNTIME_CONFIGS, None),
        (CRDS, None),
        (BUDGETS, None),
        (DEPLOYMENTS, Some(names::NAMESPACE)),
        (JOBS, Some(names::NAMESPACE)),
        (LEASES, Some(names::NAMESPACE)),
        (PODS, None),
    ];
    let classes = kata.sandbox_classes();
    for (resource, namespace) in everything {
        let keep = |object: &Value| match resource {
            PODS => {
                let class = object["spec"]["runtimeClassName"].as_str();
                object["metadata"]["namespace"] == names::NAMESPACE
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
    let since = arguments.since.map(|since| since.as_secs());
    events(since, context, &mut collection).await?;
    logs(since, context, &mut collection).await?;
    let report = status::report(kata, context.settings.now());
    collection.wanted += 3;
    collection.items.push(Item { name: "status.yaml".to_owned(), text: yaml(&report)? });
    let version = json!({
        "plugin": crate::VERSION,
        "kubernetes": kata.version.git_version,
        "simulated": kata.is_simulated(),
    });
    collection.items.push(Item { name: "version.yaml".to_owned(), text: yaml(&version)? });
    let summary = summary(&report, &collection, context);
    collection.items.push(Item { name: "summary.md".to_owned(), text: summary });
    Ok(collection)
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
            collection.items.push(Item { name: name.to_owned(), text: yaml(&value)? });
        }
        Read::Known(None) | Read::NotServed => {}
        Read::Forbidden => {
            collection.wanted += 1;
            collection.missing.push(name.trim_end_matches(".yaml").to_owned());
        }
    }
    Ok(())
}

async fn events(
    since: Option<u64>,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) -> Result<(), Failure> {
    collection.wanted += 1;
    let Read::Known(events) = context.api.list::<Value>(EVENTS, Scope::default()).await? else {
        collection.missing.push("events".to_owned());
        return Ok(());
    };
    let oldest = since.and_then(|since| {
        let span = jiff::SignedDuration::from_secs(i64::try_from(since).ok()?);
        context.settings.now().checked_sub(span).ok()
    });
    let mut lines: Vec<String> = events
        .iter()
        .filter_map(|event| {
            let time = ["lastTimestamp", "eventTime", "firstTimestamp"]
                .iter()
                .find_map(|key| event[*key].as_str()?.parse::<jiff::Timestamp>().ok())?;
            let text = |value: &Value| value.as_str().unwrap_or_default().replace('\n', " ");
            let object = &event["involvedObject"];
            oldest.is_none_or(|oldest| time >= oldest).then(|| {
                format!(
                    "{time} {} {} {}/{}/{} {}",
                    text(&event["type"]),
                    text(&event["reason"]),
                    text(&object["kind"]),
                    text(&object["namespace"]),
                    text(&object["name"]),
                    text(&event["message"])
                )
            })
        })
        .collect();
    lines.sort();
    collection.items.push(Item { name: "events.txt".to_owned(), text: lines.join("\n") + "\n" });
    Ok(())
}

/// Logs of the operator and of its Jobs.
async fn logs(
    since: Option<u64>,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) -> Result<(), Failure> {
    let Read::Known(pods) = context.api.list::<Value>(PODS, Scope::of(names::NAMESPACE)).await?
    else {
        return Ok(());
    };
    for pod in pods {
        let Some(name) = pod["metadata"]["name"].as_str() else { continue };
        collection.wanted += 1;
        let since = since.map_or_else(String::new, |since| format!("?sinceSeconds={since}"));
        let path = format!("{}/log{since}", PODS.object(Some(names::NAMESPACE), name));
        match context.api.text("read a log", &path).await {
            Ok(text) => collection.items.push(Item { name: format!("logs/{name}.log"), text }),
            Err(Trouble::Status(status)) => {
                if status.code == 403 {
                    context.api.note("get", "pods/log", Some(names::NAMESPACE));
                }
                collection.missing.push(format!("logs/{name}"));
            }
            Err(trouble) => return Err(trouble.failure("read a log")),
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
    if !collection.missing.is_empty() {
        text.push_str("\n## Not to be had with the rights of the caller\n\n");
    }
    for name in &collection.missing {
        text.push_str(&format!("- {name}\n"));
    }
    text
}
