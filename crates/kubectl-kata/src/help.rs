//! The help of the commands: with examples, and without the options that every command takes, which
//! `kubectl kata options` shows.

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use crate::arguments::Arguments;

/// Global options that each command's help has all the same.
const SHOWN: [&str; 3] = ["namespace", "all_namespaces", "output"];
/// Examples of commands, without `kubectl kata`.
const EXAMPLES: [(&str, &[&str]); 22] = [
    ("status", &["status", "status --nodes -w"]),
    ("wait", &["wait --timeout 2h", "wait --for node/worker-1=Ready"]),
    ("doctor", &["doctor --pre", "doctor", "doctor -f kataconfig.yaml --offline"]),
    (
        "verify",
        &["verify --node worker-1", "verify pod/web-0 -n shop", "verify pod/web-0 -n shop --host"],
    ),
    ("accept", &["accept --node worker-1 --dry-run", "accept --node worker-1 --yes -o json"]),
    ("why", &["why pod/web-0 -n shop", "why deployment/web -n shop"]),
    ("pods", &["pods -A", "pods -n shop -o wide"]),
    ("nodes", &["nodes", "nodes worker-1 -o wide"]),
    ("history", &["history", "history worker-1 -o json"]),
    ("report", &["report --file change-4711.html"]),
    ("logs", &["logs operator -f", "logs node/worker-1", "logs pod/web-0 -n shop --shim"]),
    ("must-gather", &["must-gather --since 6h"]),
    (
        "install",
        &["install --dry-run client", "install --node-selector kata=true --node worker-1 --wait"],
    ),
    ("upgrade", &["upgrade --payload-image REF --dry-run", "upgrade --rollback --wait"]),
    ("takeover", &["takeover plan", "takeover begin"]),
    ("pool", &["pool --for karpenter", "pool --for eks --class kata-qemu"]),
    ("uninstall", &["uninstall --dry-run", "uninstall --wait", "uninstall --operator"]),
    ("retry", &["retry worker-1", "retry --all"]),
    ("pause", &["pause"]),
    ("resume", &["resume"]),
    ("codes", &["codes KATA2104", "codes DrainBlocked"]),
    ("schema", &["schema StatusReport"]),
];

/// Parses a command line.
///
/// # Errors
///
/// What is wrong with it, or its help.
pub fn parse(words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    Arguments::from_arg_matches(&command().try_get_matches_from(words)?)
}

/// The examples of a command.
pub(crate) fn examples(verb: &str) -> Vec<String> {
    let found = EXAMPLES.iter().filter(|(name, _)| *name == verb).flat_map(|(_, all)| *all);
    found.map(|example| format!("kubectl kata {example}")).collect()
}

/// The options that every command takes, for people.
pub(crate) fn options() -> String {
    let root = Arguments::command();
    let global: Vec<&Arg> = root.get_arguments().filter(|it| it.is_global_set()).collect();
    let options = Command::new("options").disable_help_flag(true).args(global);
    options.help_template("{all-args}").render_help().to_string()
}

fn command() -> Command {
    let hide = |argument: Arg| {
        let is_hidden = argument.is_global_set() && !SHOWN.contains(&argument.get_id().as_str());
        if is_hidden { argument.hide(true) } else { argument }
    };
    Arguments::command().mut_args(hide).mut_subcommands(|verb| {
        let mut after = String::new();
        for (at, example) in examples(verb.get_name()).iter().enumerate() {
            after.push_str(if at == 0 { "Examples:\n  " } else { "  " });
            after.push_str(example);
            after.push('\n');
        }
        if !after.is_empty() {
            after.push('\n');
        }
        verb.after_help(
            after + "`kubectl kata options` shows the options that every command takes.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_that_can_be_typed() {
        for verb in Arguments::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name();
            let needs_none = ["options", "version", "completion"].contains(&name);
            assert_eq!(examples(name).is_empty(), needs_none, "{name}");
            for example in examples(name) {
                let words = example.strip_prefix("kubectl ").unwrap().split(' ');
                assert!(parse(words.map(OsString::from).collect()).is_ok(), "{example}");
                assert_eq!(example.split(' ').nth(2), Some(name), "{example}");
            }
        }
    }

    #[test]
    fn the_help_of_a_command_is_about_that_command() {
        let words = ["kubectl-kata", "status", "--help"].map(OsString::from).to_vec();
        let help = parse(words).unwrap_err().to_string();
        assert!(help.lines().count() < 50, "{help}");
        assert!(help.contains("kubectl kata status --nodes -w"), "{help}");
        assert!(help.contains("--output") && !help.contains("--kubeconfig"), "{help}");
        assert!(options().contains("--kubeconfig <FILE>"), "{}", options());
    }
}
