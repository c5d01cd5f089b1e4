//! `completion`, and the candidates for a command line in the protocol of `kubectl_complete-NAME`: one
//! `value<TAB>help` per line, and `:4` at the end, for no file names.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use kata_api::Code;

use crate::Context;
use crate::api::Scope;
use crate::arguments::{Arguments, CompleteArguments, CompletionArguments, Shell};
use crate::cluster::Kata;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::pod::Pod;
use crate::printer::Printer;
use crate::resource::{NAMESPACES, NODES, PODS};

/// What comes next on a command line.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// One of these.
    Words(Vec<(String, String)>),
    /// The name of something in the cluster.
    Names(What),
    /// A file.
    Files,
}

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pods,
    Nodes,
    Namespaces,
    /// `operator`, pods and nodes.
    Logs,
    /// Names of pods, without their kind.
    PodNames,
}

pub(crate) fn script(
    arguments: &CompletionArguments,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let text = match arguments.shell {
        Shell::Kubectl => {
            "#!/bin/sh\n\
             # Save as kubectl_complete-kata, executable, in a directory of the PATH.\n\
             exec kubectl kata __complete \"$@\"\n"
        }
        Shell::Bash => {
            "# source <(kubectl kata completion bash)\n\
             # To complete `kubectl kata ...` instead: kubectl kata completion kubectl\n\
             _kubectl_kata() {\n\
             \x20   local IFS=$'\\n' line\n\
             \x20   COMPREPLY=()\n\
             \x20   while read -r line; do\n\
             \x20       case \"$line\" in :*) ;; *) COMPREPLY+=(\"${line%%$'\\t'*}\") ;; esac\n\
             \x20   done < <(kubectl-kata __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n\
             }\n\
             complete -o default -F _kubectl_kata kubectl-kata\n"
        }
        Shell::Zsh => {
            "#compdef kubectl-kata\n\
             # source <(kubectl kata completion zsh)\n\
             # To complete `kubectl kata ...` instead: kubectl kata completion kubectl\n\
             _kubectl_kata() {\n\
             \x20   local -a candidates\n\
             \x20   local line\n\
             \x20   for line in \"${(@f)$(kubectl-kata __complete \"${(@)words[2,$CURRENT]}\" 2>/dev/null)}\"; do\n\
             \x20       [[ $line == :* || -z $line ]] || candidates+=(\"${${line//:/\\\\:}/$'\\t'/:}\")\n\
             \x20   done\n\
             \x20   _describe 'kubectl-kata' candidates\n\
             }\n\
             compdef _kubectl_kata kubectl-kata\n"
        }
        Shell::Fish => {
            "# kubectl kata completion fish | source\n\
             # To complete `kubectl kata ...` instead: kubectl kata completion kubectl\n\
             complete -c kubectl-kata -f -a \
             '(kubectl-kata __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null | string match -v \":*\")'\n"
        }
    };
    printer.raw(text)?;
    Ok(Exit::Fine)
}

/// Candidates that need no cluster; `None` if they do.
pub(crate) fn offline(
    arguments: &CompleteArguments,
    printer: &mut Printer<'_>,
) -> Option<Result<Exit, Failure>> {
    let last = arguments.words.last().map_or("", String::as_str);
    match next(&arguments.words) {
        Next::Names(_) => None,
        Next::Files => Some(finish(printer, Vec::new(), last, 0)),
        Next::Words(words) => Some(finish(printer, words, last, 4)),
    }
}

/// Candidates from the cluster. A cluster that does not answer has none.
pub(crate) async fn online(
    arguments: &CompleteArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let last = arguments.words.last().map_or("", String::as_str).to_owned();
    let names = match next(&arguments.words) {
        Next::Names(what) => names(what, context).await.unwrap_or_default(),
        Next::Words(_) | Next::Files => Vec::new(),
    };
    finish(context.printer, names, &last, 4)
}

async fn names(what: What, context: &Context<'_, '_>) -> Result<Vec<(String, String)>, Failure> {
    let api = &context.api;
    let namespace = context.list_namespace();
    let scope = Scope { namespace: namespace.as_deref(), ..Scope::default() };
    let mut found = Vec::new();
    if matches!(what, What::Pods | What::Logs | What::PodNames) {
        let (kata, pods) = futures::join!(Kata::read(api), api.list::<Pod>(PODS, scope));
        let classes = kata?.sandbox_classes();
        let prefix = if what == What::PodNames { "" } else { "pod/" };
        for pod in pods?.items() {
            let sandboxed = pod.class().is_some_and(|class| classes.contains(class));
            // `why` and `verify` are also about pods that are not what they should be.
            if sandboxed || what == What::Pods {
                let help = pod.class().unwrap_or("no RuntimeClass").to_owned();
                found.push((format!("{prefix}{}", pod.metadata.name), help));
            }
        }
    }
    if matches!(what, What::Nodes | What::Logs) {
        let prefix = if what == What::Logs { "node/" } else { "" };
        for node in api.list::<Pod>(NODES, Scope::default()).await?.items() {
            found.push((format!("{prefix}{}", node.metadata.name), "node".to_owned()));
        }
    }
    if what == What::Namespaces {
        for namespace in api.list::<Pod>(NAMESPACES, Scope::default()).await?.items() {
            found.push((namespace.metadata.name.clone(), "namespace".to_owned()));
        }
    }
    if what == What::Logs {
        found.push(("operator".to_owned(), "the operator's log".to_owned()));
    }
    Ok(found)
}

fn finish(
    printer: &mut Printer<'_>,
    words: Vec<(String, String)>,
    last: &str,
    directive: u8,
) -> Result<Exit, Failure> {
    let mut seen = BTreeSet::new();
    for (word, help) in words {
        if word.starts_with(last) && seen.insert(word.clone()) {
            let help = help.lines().next().unwrap_or_default().to_owned();
            printer.line(&if help.is_empty() { word } else { format!("{word}\t{help}") })?;
        }
    }
    printer.line(&format!(":{directive}"))?;
    Ok(Exit::Fine)
}

/// What comes next. Pure.
fn next(words: &[String]) -> Next {
    let root = Arguments::command();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let verb = verb(&root, before);
    let pending = before.last().and_then(|word| flag(&root, verb, word));
    if let Some(flag) = pending.filter(|flag| flag.get_action().takes_values()) {
        return value(flag);
    }
    if last.starts_with('-') {
        let all =
            root.get_arguments().chain(verb.into_iter().flat_map(clap::Command::get_arguments));
        let words = all
            .filter(|flag| !flag.is_hide_set())
            .filter_map(|flag| Some((format!("--{}", flag.get_long()?), help(flag.get_help()))));
        return Next::Words(words.collect());
    }
    let Some(verb) = verb else {
        let verbs = root.get_subcommands().filter(|verb| !verb.is_hide_set());
        return Next::Words(
            verbs.map(|verb| (verb.get_name().to_owned(), help(verb.get_about()))).collect(),
        );
    };
    match verb.get_name() {
        "why" | "verify" => Next::Names(What::Pods),
        "logs" => Next::Names(What::Logs),
        "pods" => Next::Names(What::PodNames),
        "nodes" | "history" | "retry" => Next::Names(What::Nodes),
        "codes" => Next::Words(
            Code::ALL
                .iter()
                .map(|code| (code.entry().code.to_owned(), code.entry().reason.to_owned()))
                .collect(),
        ),
        "completion" => values(verb.get_arguments().find(|flag| flag.get_id() == "shell")),
        _ => Next::Words(Vec::new()),
    }
}

/// The words of flags that every command has, as far as they are complete.
pub(crate) fn global_words(words: &[String]) -> Vec<String> {
    let root = Arguments::command();
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    let mut found = Vec::new();
    let mut rest = before.iter();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') {
            continue;
        }
        let name = word.split('=').next().unwrap_or_default();
        let Some(flag) = flag(&root, None, name) else { continue };
        found.push(word.clone());
        if flag.get_action().takes_values() && !word.contains('=') {
            match rest.next() {
                Some(value) => found.push(value.clone()),
                // The value is what is being typed.
                None => drop(found.pop()),
            }
        }
    }
    found
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// The verb among the words, if there is one yet.
fn verb<'c>(root: &'c clap::Command, words: &[String]) -> Option<&'c clap::Command> {
    let mut skip = false;
    for word in words {
        if std::mem::take(&mut skip) {
            continue;
        }
        if word.starts_with('-') {
            skip = flag(root, None, word).is_some_and(|flag| flag.get_action().takes_values());
            continue;
        }
        return root.find_subcommand(word);
    }
    None
}

/// The flag that a word is, if its value is another word.
fn flag<'c>(
    root: &'c clap::Command,
    verb: Option<&'c clap::Command>,
    word: &str,
) -> Option<&'c clap::Arg> {
    if !word.starts_with('-') || word.contains('=') {
        return None;
    }
    let all = root.get_arguments().chain(verb.into_iter().flat_map(clap::Command::get_arguments));
    let (long, short) = (word.strip_prefix("--"), word.strip_prefix('-'));
    let mut all = all.filter(|flag| match long {
        Some(name) => flag.get_long() == Some(name),
        None => {
            let mut letters = short.unwrap_or_default().chars();
            flag.get_short() == letters.next() && letters.next().is_none()
        }
    });
    all.next()
}

fn value(flag: &clap::Arg) -> Next {
    match flag.get_id().as_str() {
        "namespace" => Next::Names(What::Namespaces),
        "node" => Next::Names(What::Nodes),
        "kubeconfig" | "filename" | "file" | "dest_dir" | "archive" => Next::Files,
        _ => values(Some(flag)),
    }
}

fn values(flag: Option<&clap::Arg>) -> Next {
    let values = flag.map(clap::Arg::get_possible_values).unwrap_or_default();
    let words = values.iter().map(|value| (value.get_name().to_owned(), help(value.get_help())));
    Next::Words(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_of(line: &str) -> Next {
        next(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn words(line: &str) -> Vec<String> {
        match next_of(line) {
            Next::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn verbs_flags_values_and_names_are_known() {
        assert!(words("").contains(&"status".to_owned()));
        assert!(!words("").contains(&"__complete".to_owned()));
        assert!(words("--context here s").contains(&"status".to_owned()));
        assert!(words("status --").contains(&"--nodes".to_owned()));
        assert!(words("status --").contains(&"--kubeconfig".to_owned()));
        assert!(words("status -o ").contains(&"json".to_owned()));
        assert!(words("codes KATA21").contains(&"KATA2104".to_owned()));
        assert!(words("completion ").contains(&"kubectl".to_owned()));
        assert_eq!(next_of("verify "), Next::Names(What::Pods));
        assert_eq!(next_of("pods -n "), Next::Names(What::Namespaces));
        assert_eq!(next_of("doctor -f "), Next::Files);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
