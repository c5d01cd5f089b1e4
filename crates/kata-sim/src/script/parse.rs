//! From text to commands.
//!
//! A line is a command, a comment (`#`) or empty. Words may be quoted. Nothing is carried out here, and
//! nothing is looked up in a cluster: whether an object exists is found out later.

mod api_fault;
mod cluster;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use simcluster::api::fault::When;
use simcluster::topology::NodeOptions;
use simcluster::world::{NodeFault, NodeGroup};

pub(crate) use self::cluster::layout;
use super::claim;
use super::command::{Command, Mistake, Verb};
use super::words::{Target, number, span, target, words};

/// How long `wait` waits if nothing is said.
const PATIENCE: Duration = Duration::from_mins(60);
/// The verbs, for those who mistype one.
const VERBS: &str = "cluster, apply, delete, label, show, wait, expect, advance, fault, node, group, cordon, \
                     uncordon, kata-deploy, os-image, api-fault, etcd, crash operator, restart operator, foreign-write, \
                     refused, invariants";

impl Command {
    /// Reads the files that the command names; `here` is the directory of the script.
    pub(crate) fn resolve(mut self, here: &Path) -> Result<Self, Mistake> {
        if let Verb::ApplyFile(file) = &self.verb {
            let path = here.join(file);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| (self.line, format!("cannot read {}: {error}", path.display())))?;
            self.verb = Verb::Apply(documents(&text).map_err(|problem| (self.line, problem))?);
        }
        Ok(self)
    }
}

/// The commands of a script.
pub(crate) fn script(text: &str) -> Result<Vec<Command>, Mistake> {
    let mut commands = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, raw)) = lines.next() {
        let line = index + 1;
        let trimmed = raw.trim();
        if trimmed.is_empty() {
            continue;
        }
        if trimmed.starts_with('#') {
            commands.push(Command {
                line,
                text: trimmed.to_owned(),
                refused: false,
                verb: Verb::Comment,
            });
            continue;
        }
        let (head, inline) = match trimmed.split_once("<<") {
            None => (trimmed, None),
            Some((head, end)) => {
                let end = end.trim();
                let mut body = String::new();
                loop {
                    let Some((_, next)) = lines.next() else {
                        return Err((line, format!("no line says {end}, which ends the YAML")));
                    };
                    if next.trim() == end {
                        break;
                    }
                    body.push_str(next);
                    body.push('\n');
                }
                (head.trim(), Some(body))
            }
        };
        let (refused, rest) = match head.strip_prefix("refused ") {
            Some(rest) => (true, rest.trim()),
            None => (false, head),
        };
        let verb = verb(rest, inline.as_deref()).map_err(|problem| (line, problem))?;
        commands.push(Command { line, text: head.to_owned(), refused, verb });
    }
    Ok(commands)
}

fn verb(text: &str, inline: Option<&str>) -> Result<Verb, String> {
    let words = words(text)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((verb, rest)) = words.split_first() else { return Err("a command is missing".into()) };
    if inline.is_some() && *verb != "apply" {
        return Err(format!("{verb} takes no YAML: only apply does"));
    }
    match (*verb, rest) {
        ("cluster", options) => cluster::options(options),
        ("apply", []) => match inline {
            Some(yaml) => Ok(Verb::Apply(documents(yaml)?)),
            None => Err("apply needs a file, or <<EOF and YAML in the lines below".to_owned()),
        },
        ("apply", [file]) => Ok(Verb::ApplyFile((*file).to_owned())),
        ("delete", rest) => match target(rest)? {
            (target, []) => Ok(Verb::Delete(target)),
            (_, more) => Err(format!("delete KIND NAME [-n NAMESPACE] ends before {more:?}")),
        },
        ("label", rest) => label(rest),
        ("get" | "show", rest) => show(rest),
        ("wait", rest) => {
            let (rest, within) = match rest {
                [rest @ .., "within", limit] => (rest, span(limit)?),
                rest => (rest, PATIENCE),
            };
            Ok(Verb::Wait { claim: claim::parse(rest)?, within })
        }
        ("expect", rest) => Ok(Verb::Expect(claim::parse(rest)?)),
        ("advance", [span_text]) => Ok(Verb::Advance(span(span_text)?)),
        ("fault", [node, "none"]) => fault(node, None, None),
        ("fault", [node, name]) => fault(node, Some(name), None),
        ("fault", [node, name, "for", lasts]) => fault(node, Some(name), Some(lasts)),
        ("node", ["add", name, options @ ..]) => {
            let options = NodeOptions::parse(options.iter().copied())?;
            Ok(Verb::NodeAdd((*name).to_owned(), options))
        }
        ("group", ["add", name, options @ ..]) => {
            NodeGroup::parse(name, options.iter().copied()).map(Verb::GroupAdd)
        }
        ("node", ["rm", name]) => Ok(Verb::NodeRemove((*name).to_owned())),
        ("node", [verb @ ("reboot" | "reinstall"), name]) => {
            Ok(Verb::NodeBoot { name: (*name).to_owned(), reinstall: *verb == "reinstall" })
        }
        ("cordon" | "uncordon", [node]) => Ok(Verb::Merge {
            target: Target { kind: "node".to_owned(), name: (*node).to_owned(), namespace: None },
            status: false,
            patch: serde_json::json!({"spec": {"unschedulable": *verb == "cordon"}}),
            manager: "kubectl",
        }),
        ("kata-deploy", [mode]) => Ok(Verb::KataDeploy(mode.parse()?)),
        ("os-image", [image]) => Ok(Verb::OsImage((*image).to_owned())),
        ("api-fault", ["none"]) => Ok(Verb::ApiFault(None)),
        ("api-fault", [fault, options @ ..]) => {
            api_fault::rule(fault, options).map(|rule| Verb::ApiFault(Some(rule)))
        }
        ("etcd", ["backup"]) => Ok(Verb::EtcdBackup),
        ("etcd", ["restore"]) => Ok(Verb::EtcdRestore),
        ("crash", ["operator"]) => Ok(Verb::Crash(None)),
        ("crash", ["operator", "after", calls, "calls"]) => {
            Ok(Verb::Crash(Some((number(calls)?, When::Before))))
        }
        ("crash", ["operator", "after", calls, "calls", "answered"]) => {
            Ok(Verb::Crash(Some((number(calls)?, When::After))))
        }
        ("restart", ["operator", options @ ..]) => restart(options),
        ("foreign-write", _) => foreign_write(text),
        ("invariants", ["on"]) => Ok(Verb::Invariants(true)),
        ("invariants", ["off"]) => Ok(Verb::Invariants(false)),
        (verb, _) if VERBS.split([',', ' ']).any(|known| known == verb) => {
            Err(format!("{text:?} has too few or too many words; {}", usage(verb)))
        }
        (verb, _) => Err(format!("unknown command {verb:?}: give one of {VERBS}")),
    }
}

/// How a verb is written.
fn usage(verb: &str) -> &'static str {
    match verb {
        "advance" => "write: advance 5m",
        "fault" => "write: fault NODE FAULT [for SPAN], or fault NODE none",
        "etcd" => "write: etcd backup, or etcd restore",
        "node" => {
            "write: node add NAME [handlers=NAME,NAME] [runtime=NAME] [system=NAME] [labels=KEY=VALUE,…] \
             [taints=KEY:EFFECT,…], or node rm NAME"
        }
        "group" => {
            "write: group add NAME autoscaler=NAME [labels=KEY=VALUE,…] [taints=KEY:EFFECT,…] \
             [startup-taints=KEY:EFFECT,…] [fault=FAULT] [max-nodes=N]"
        }
        "cordon" | "uncordon" => "write: cordon NODE, or uncordon NODE",
        "crash" => "write: crash operator [after N calls [answered]]",
        "restart" => "write: restart operator [monitor-image=REF] [clock-offset=SPAN]",
        "invariants" => "write: invariants on, or invariants off",
        "apply" => "write: apply FILE, or apply <<EOF",
        _ => "see docs/developers/scenarios.md",
    }
}

fn restart(options: &[&str]) -> Result<Verb, String> {
    let (mut monitor_image, mut clock_offset) = (None, SignedDuration::ZERO);
    for option in options {
        match option.split_once('=') {
            Some(("monitor-image", image)) if !image.is_empty() => {
                monitor_image = Some(image.to_owned());
            }
            Some(("clock-offset", span)) => clock_offset = crate::arguments::clock_offset(span)?,
            _ => {
                return Err(format!(
                    "unknown option {option:?}: give monitor-image=REF or clock-offset=SPAN, such as -3m"
                ));
            }
        }
    }
    Ok(Verb::Restart { monitor_image, clock_offset })
}

fn fault(node: &str, name: Option<&str>, lasts: Option<&str>) -> Result<Verb, String> {
    let fault = name.map(str::parse).transpose()?;
    if fault == Some(NodeFault::KubeletRestart) && lasts.is_some() {
        return Err("kubelet-restart happens once: write it without a span of time".to_owned());
    }
    Ok(Verb::Fault { node: node.to_owned(), fault, lasts: lasts.map(span).transpose()? })
}

/// The objects of a YAML file.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let all: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| format!("not YAML: {error}"))?;
    let all: Vec<Value> = all.into_iter().filter(|object| !object.is_null()).collect();
    if all.is_empty() {
        return Err("the YAML has no object".to_owned());
    }
    Ok(all)
}

fn label(words: &[&str]) -> Result<Verb, String> {
    let (target, changes) = target(words)?;
    let mut set = BTreeMap::new();
    for change in changes {
        match (change.split_once('='), change.strip_suffix('-')) {
            (Some((key, value)), _) => set.insert(key.to_owned(), Some(value.to_owned())),
            (None, Some(key)) => set.insert(key.to_owned(), None),
            (None, None) => {
                return Err(format!(
                    "{change:?} is no change: write KEY=VALUE, or KEY- to remove it"
                ));
            }
        };
    }
    if set.is_empty() {
        return Err("write: label KIND NAME KEY=VALUE KEY-".to_owned());
    }
    Ok(Verb::Label { target, set })
}

fn show(words: &[&str]) -> Result<Verb, String> {
    let (kind, name, namespace) = match words {
        [kind] => (*kind, None, None),
        [kind, "-n", namespace] => (*kind, None, Some((*namespace).to_owned())),
        [kind, name] => (*kind, Some((*name).to_owned()), None),
        [kind, name, "-n", namespace] => {
            (*kind, Some((*name).to_owned()), Some((*namespace).to_owned()))
        }
        _ => return Err("write: show KIND [NAME] [-n NAMESPACE]".to_owned()),
    };
    Ok(Verb::Show { kind: kind.to_owned(), name, namespace })
}

fn foreign_write(text: &str) -> Result<Verb, String> {
    let hint = "write: foreign-write KIND NAME [-n NAMESPACE] {\"spec\": {...}}, or status {...} for the status";
    let (head, patch) = text.split_once('{').ok_or_else(|| hint.to_owned())?;
    let patch: Value = serde_saphyr::from_str(&format!("{{{patch}"))
        .map_err(|error| format!("the patch is not JSON or YAML: {error}; {hint}"))?;
    let words = words(head)?;
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let (target, rest) = target(&words)?;
    let (status, patch) = match rest {
        [] => (false, patch),
        ["status"] => (true, serde_json::json!({ "status": patch })),
        _ => return Err(hint.to_owned()),
    };
    Ok(Verb::Merge { target, status, patch, manager: "rival" })
}
