//! `uninstall`: deletes the KataConfig, unless sandboxed pods still run; `--dry-run` says what would
//! happen. What stands in the way is [`kata_plan::decide`]'s answer for a KataConfig that is being deleted.

mod eviction;
pub(super) mod operator;
mod plan;

use eviction::evict;
use kata_api::{KataConfig, names};
use operator::Removal;
use plan::{Words, again, exit, lines, plan, sequel};
use serde_json::{Value, json};

use super::{ask_consent, expect_output, marked, wait};
use crate::Context;
use crate::api::Trouble;
use crate::arguments::UninstallArguments;
use crate::cluster::Kata;
use crate::disruption::{Disruption, field};
use crate::document::{Head, UninstallPlan};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::node_labels::{Labels, SetLabels};
use crate::resource::{KATA_CONFIGS, NODES};
use crate::settings::Output;

pub(crate) async fn run(
    arguments: &UninstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "uninstall")?;
    let kata = Kata::read(&context.api).await?;
    kata.configs.listed("find the KataConfig", &KATA_CONFIGS.qualified())?;
    let removal = if arguments.operator {
        match operator::plan(&kata, context).await? {
            Ok(None) => {
                let home = context.api.home();
                let text = format!("there is no Deployment {} in namespace {home}", names::PRODUCT);
                context.printer.say(&format!("{text}, so no operator is removed"))?;
                None
            }
            Ok(removal) => removal,
            Err(refusal) => return refusal.print(context),
        }
    } else {
        None
    };
    let Some(config) = kata.active() else {
        return without_config(&kata, removal, arguments, context).await;
    };
    let name = config.metadata.name.clone().unwrap_or_default();
    let (mut plan, mut words) = plan(&kata, config, arguments.evict_pods, context).await?;
    plan.operator_namespace = removal.as_ref().map(|removal| removal.namespace.clone());
    words.removal = removal;
    if arguments.dry_run {
        if !context.printer.document(context.settings.output, &plan)? {
            print(&plan, &words, arguments, context)?;
        }
        return Ok(exit(&plan));
    }
    if !plan.success {
        print(&plan, &words, arguments, context)?;
        return Ok(exit(&plan));
    }
    if let Some(exit) = ask_consent_to(&plan, &words, arguments, context).await? {
        return Ok(exit);
    }
    if !plan.pods.is_empty() {
        for line in &words.returning {
            context.printer.say(line)?;
        }
        if !evict(&plan, arguments, context).await? {
            return Ok(Exit::Refused);
        }
    }
    if plan.deleting {
        let text = format!("KataConfig {name} is being deleted already");
        context.printer.line(&marked(&text, plan.head.simulated))?;
        return follow(config, &plan, &words, arguments, context).await;
    }
    let what = format!("delete KataConfig {name}");
    let path = KATA_CONFIGS.object(None, &name);
    match context.api.write(&what, http::Method::DELETE, &path, None, &json!(null)).await {
        Ok(_) => {}
        Err(Trouble::Status(status)) if status.code == 404 => {}
        Err(trouble) => {
            return Err(trouble.denied(&what, &format!("delete {}", KATA_CONFIGS.qualified())));
        }
    }
    context.printer.line(&format!("kataconfig.kataconfiguration.openshift.io/{name} deleted"))?;
    follow(config, &plan, &words, arguments, context).await
}

/// Without a KataConfig only the operator is left.
async fn without_config(
    kata: &Kata,
    removal: Option<Removal>,
    arguments: &UninstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let plan = UninstallPlan {
        head: Head::new("UninstallPlan", kata.is_simulated()),
        success: true,
        config: None,
        deleting: false,
        pods: Vec::new(),
        controllers: Vec::new(),
        nodes: Vec::new(),
        disruption: None,
        objects: Vec::new(),
        labelled: Vec::new(),
        operator_namespace: removal.as_ref().map(|removal| removal.namespace.clone()),
        successor: None,
        problems: Vec::new(),
        gaps: context.api.gaps(),
    };
    if arguments.dry_run && context.printer.document(context.settings.output, &plan)? {
        return Ok(Exit::Fine);
    }
    let Some(removal) = removal else {
        context.printer.say("There is no KataConfig; nothing is to be done.")?;
        if let Some(hint) = operator::hint(context).await? {
            context.printer.say(&hint)?;
        }
        return Ok(Exit::Fine);
    };
    let style = context.printer.style();
    let mut lines =
        vec![context.marked("There is no KataConfig. This command removes the operator.")];
    lines.extend(field("Cluster", &context.place, &style));
    lines.extend(removal.lines(&style));
    lines.iter().try_for_each(|line| context.printer.say(line))?;
    if arguments.dry_run {
        context.printer.say(&format!("nothing changed. Next: {}", again(arguments)))?;
        return Ok(Exit::Fine);
    }
    let what = "uninstall removes the operator";
    if let Some(exit) = ask_consent(arguments.change.yes, what, context).await? {
        return Ok(exit);
    }
    removal.run(context).await?;
    Ok(Exit::Fine)
}

/// What comes after the deletion, and the wait for it.
async fn follow(
    config: &KataConfig,
    plan: &UninstallPlan,
    words: &Words,
    arguments: &UninstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let name = config.metadata.name.clone().unwrap_or_default();
    // With another one to come, not every KataConfig goes.
    let deleted = match &plan.successor {
        Some(successor) => {
            context.printer.say(&sequel(successor))?;
            format!("deleted/{name}")
        }
        None => "deleted".to_owned(),
    };
    let labels = words.set_labels.as_ref().map(|set| format!(", then {}", set.removal()));
    let next = format!("Next: kubectl kata wait --for {deleted}{}", labels.unwrap_or_default());
    if !arguments.change.wait && !arguments.operator {
        context.printer.say(&next)?;
        return Ok(Exit::Fine);
    }
    let wanted = wait::Wanted::Deleted(Some(name));
    let exit = wait::until(&wanted, arguments.change.timeout, context).await?;
    if exit != Exit::Fine {
        // The record of the labels goes with the KataConfig.
        context.printer.say(&next)?;
        return Ok(exit);
    }
    if let Some(SetLabels { labels, nodes }) = &words.set_labels {
        for node in nodes {
            take_labels_off(node, labels, context).await?;
        }
    }
    match &words.removal {
        Some(removal) => removal.run(context).await?,
        None if plan.successor.is_some() => {}
        None => {
            if let Some(hint) = operator::hint(context).await? {
                context.printer.say(&hint)?;
            }
        }
    }
    Ok(Exit::Fine)
}

/// Takes labels off a node that have the value that `install` gave them.
async fn take_labels_off(
    node: &str,
    labels: &Labels,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let found = context.api.get::<Value>(NODES, None, node).await?.known().flatten();
    let Some(found) = found else { return Ok(()) };
    let found = &found["metadata"]["labels"];
    let ours = labels.iter().filter(|(key, value)| found[key.as_str()] == value.as_str());
    let gone: serde_json::Map<String, Value> =
        ours.map(|(key, _)| (key.clone(), Value::Null)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let keys: Vec<String> = gone.keys().cloned().collect();
    let what = format!("take labels off node {node}");
    let patch = json!({"metadata": {"labels": gone}});
    let path = NODES.object(None, node);
    let content = Some("application/merge-patch+json");
    let written = context.api.write(&what, http::Method::PATCH, &path, content, &patch).await;
    written.map_err(|trouble| trouble.denied(&what, "patch nodes"))?;
    Ok(context.printer.say(&format!("node/{node} has no label {} any more", keys.join(", ")))?)
}

/// Prints the plan as the result of the command.
fn print(
    plan: &UninstallPlan,
    words: &Words,
    arguments: &UninstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let lines = lines(plan, words, arguments, context);
    Ok(lines.iter().try_for_each(|line| context.printer.line(line))?)
}

/// Shows the plan and asks; how the command ends if the user does not agree.
async fn ask_consent_to(
    plan: &UninstallPlan,
    words: &Words,
    arguments: &UninstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<Option<Exit>, Failure> {
    // What is being deleted already needs no answer, unless something else goes with it.
    if plan.deleting && plan.pods.is_empty() && words.removal.is_none() {
        return Ok(None);
    }
    let lines = lines(plan, words, arguments, context);
    lines.iter().try_for_each(|line| context.printer.say(line))?;
    let what = if plan.deleting {
        let pods = human::count(plan.pods.len(), "sandboxed pod");
        (!plan.pods.is_empty()).then(|| format!("evicts {pods}"))
    } else {
        let name = plan.config.as_deref().unwrap_or_default();
        let change = plan.disruption.as_ref().and_then(Disruption::summary);
        Some(change.unwrap_or_else(|| format!("deletes KataConfig {name}")))
    };
    let removal = words.removal.as_ref().map(|_| "removes the operator".to_owned());
    let what: Vec<String> = what.into_iter().chain(removal).collect();
    ask_consent(arguments.change.yes, &format!("uninstall {}", what.join(", and ")), context).await
}
