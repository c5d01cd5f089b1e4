//! What every verb prints, word for word: in a pipe, on terminals of 80 and 160 columns, with `NO_COLOR`,
//! on a dumb terminal and where only ASCII can be shown.
//!
//! `UPDATE_GOLDEN=1` writes the files anew; then look at every difference.

use std::path::Path;

use kubectl_kata::environment::EnvVars;
use simcluster::topology::Layout;
use simcluster::workload::kata_deploy::{self, Mode};
use simcluster::world::Platform;

use crate::lab::{Lab, Place};

/// Whether files are to be written and not compared.
#[expect(clippy::disallowed_methods, reason = "only a person sets it")]
pub(crate) fn renewing() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn places() -> Vec<(&'static str, Place)> {
    let mut no_color = Place::terminal(80);
    no_color.environment.no_color = true;
    let mut dumb = Place::terminal(80);
    dumb.environment.term = "dumb".to_owned();
    let mut ascii = Place::terminal(80);
    ascii.environment.locale = "C".to_owned();
    vec![
        ("in a pipe", Place::default()),
        ("on a terminal of 80 columns", Place::terminal(80)),
        ("on a terminal of 160 columns", Place::terminal(160)),
        ("with NO_COLOR", no_color),
        ("on a dumb terminal", dumb),
        ("where only ASCII can be shown", ascii),
    ]
}

pub(crate) fn compare(name: &str, fresh: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if renewing() {
        std::fs::write(path, fresh).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(fresh, known, "{} is not what is printed", path.display());
}

/// Without what differs from machine to machine: where files are, and how large they are.
fn shown(text: &str) -> String {
    let text = text.replace(env!("CARGO_TARGET_TMPDIR"), "DIR");
    let Some((head, tail)) = text.split_once("): start with") else { return text };
    let head = head.rsplit_once('(').map_or(head, |(head, _)| head);
    format!("{head}(SIZE): start with{tail}")
}

async fn all(lab: &Lab, name: &str, line: &str) {
    let mut text = format!("$ kubectl kata {}\n", shown(line));
    for (title, place) in places() {
        let done = lab.run_at(line, &place).await;
        let show = |text: &str| shown(&text.replace('\x1b', "<ESC>"));
        text.push_str(&format!("\n--- {title}: exit code {}\n{}", done.code, show(&done.out)));
        if !done.err.is_empty() {
            text.push_str(&format!("--- standard error\n{}", show(&done.err)));
        }
        let colours = done.out.contains('\x1b');
        let may = matches!(
            title,
            "on a terminal of 80 columns"
                | "on a terminal of 160 columns"
                | "where only ASCII can be shown"
        );
        assert!(may || !colours, "{line} colours {title}");
        if title == "where only ASCII can be shown" {
            assert!(done.out.is_ascii() && done.err.is_ascii(), "{line}: {}{}", done.out, done.err);
        }
    }
    compare(name, &text);
}

#[tokio::test(start_paused = true)]
async fn every_verb_prints_what_is_written_down() {
    let lab = Lab::new();
    all(&lab, "doctor-pre", "doctor --pre").await;
    all(&lab, "status-nothing", "status").await;
    lab.kata(&["worker-0", "worker-1", "worker-2"]);
    lab.until("the first node", |lab| {
        let config = lab.get(&crate::lab::kata_configs(), "", "cluster-kataconfig").unwrap();
        config["status"]["kataNodes"]["readyNodeCount"] == 1
    })
    .await;
    lab.pass(60).await;
    all(&lab, "status-rollout", "status").await;
    all(&lab, "wait-timeout", "wait --timeout 1s").await;
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.pod("plain", None);
    lab.phase("web", "Running").await;
    lab.phase("plain", "Running").await;
    let archive = format!("must-gather --archive {}/golden.tar.gz", env!("CARGO_TARGET_TMPDIR"));
    let lines = [
        ("status", "status"),
        ("wait", "wait"),
        ("doctor", "doctor"),
        ("nodes", "nodes"),
        ("pods", "pods -A -o wide"),
        ("why", "why pod/plain -n test-kata"),
        ("verify-pod", "verify pod/plain -n test-kata"),
        ("logs", "logs pod/web -n test-kata"),
        ("install", "install --dry-run=client --node-selector kata=true"),
        ("upgrade", "upgrade --payload-image registry.example/kata:4.2.0 --dry-run"),
        ("pool", "pool --for karpenter"),
        ("uninstall", "uninstall --dry-run"),
        ("retry", "retry worker-0"),
        ("pause", "pause --dry-run"),
        ("resume", "resume"),
        ("history", "history"),
        ("report", "report --file /dev/null"),
        ("options", "options"),
        ("codes", "codes KATA2104 4001"),
        ("schema", "schema Versions"),
        ("version", "version"),
        ("completion", "completion kubectl"),
        ("complete", "__complete wait --f"),
        ("must-gather", &archive),
        ("verify", "verify --node worker-0"),
    ];
    for (name, line) in lines {
        all(&lab, name, line).await;
    }
}

/// What a cluster without the Machine Config Operator has besides: what its node agents said.
#[tokio::test(start_paused = true)]
async fn what_node_agents_say_is_shown() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0", "worker-1"]);
    lab.fault("worker-1", "no-kvm");
    lab.until("the first node", |lab| {
        let config = lab.get(&crate::lab::kata_configs(), "", "cluster-kataconfig").unwrap();
        config["status"]["kataNodes"]["readyNodeCount"] == 1
    })
    .await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let lines = [
        ("plain-status", "status"),
        ("plain-doctor", "doctor"),
        ("plain-nodes", "nodes"),
        ("plain-pods", "pods -A -o wide"),
        ("plain-verify", "verify"),
    ];
    for (name, line) in lines {
        all(&lab, name, line).await;
    }
}

/// A kata-deploy with its DaemonSet and nothing of ours.
#[tokio::test(start_paused = true)]
async fn the_plan_of_a_take_over_is_shown() {
    let lab = Lab::bare(&Layout { platform: Platform::Kubernetes, ..Layout::default() });
    lab.cluster
        .with(|sim, _| kata_deploy::install(sim, Mode::DaemonSet, &kata_deploy::workers(sim)))
        .unwrap();
    lab.pass(60).await;
    all(&lab, "takeover", "takeover plan").await;
}

/// A proof, in a pipe with every fact and on a terminal that cannot be redrawn; one that fails is a table with the reason.
#[tokio::test(start_paused = true)]
async fn a_proof_reads_as_written_down() {
    let lab = Lab::on(Platform::Kubernetes);
    let line = "accept --node worker-0 --yes";
    let mut text = format!("$ kubectl kata {line}\n\n");
    append(&mut text, &lab, &format!("{line} --dry-run")).await;
    for line in [&format!("{line} -o wide"), line] {
        let done = lab.kata_command(line).await.expect(0);
        text.push_str(&format!(
            "$ kubectl kata {line}\n{}--- standard error\n{}\n",
            done.out, done.err
        ));
    }
    lab.fault("worker-0", "no-kvm");
    let line = format!("{line} --timeout 1m");
    let done = lab.kata_command(&line).await.expect(1);
    text.push_str(&format!("$ kubectl kata {line}\n{}--- standard error\n{}", done.out, done.err));
    compare("accept", &text);
}

/// Appends a command and what it prints on a terminal of 80 columns.
async fn append(text: &mut String, lab: &Lab, line: &str) {
    let place = Place::terminal(80);
    let done = lab
        .run_at(
            line,
            &Place { environment: EnvVars { no_color: true, ..place.environment }, ..place },
        )
        .await;
    for line in done.out.lines().chain(done.err.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    text.push_str(&format!("$ kubectl kata {line}\n{}", done.out));
    if !done.err.is_empty() {
        text.push_str(&format!("--- standard error\n{}", done.err));
    }
    text.push_str(&format!("--- exit code {}\n\n", done.code));
}

/// What a new user reads first, on both kinds of clusters, as an administrator and as a viewer.
#[tokio::test(start_paused = true)]
async fn the_first_commands_read_as_written_down() {
    let roles =
        [("administrator", None, None), ("viewer", Some("view"), Some("kata-operator-view"))];
    for (kind, platform) in
        [("openshift", Platform::OpenShift), ("kubernetes", Platform::Kubernetes)]
    {
        for (name, before, after) in roles {
            let mut text = "# no operator\n\n".to_owned();
            let mut lab = Lab::bare(&Layout { platform, ..Layout::default() });
            if before.is_some() {
                lab.only(before);
            }
            for line in ["status", "doctor --pre", "install"] {
                append(&mut text, &lab, line).await;
            }
            text.push_str("# an operator\n\n");
            let mut lab = Lab::on(platform);
            if after.is_some() {
                lab.only(after);
            }
            for line in ["doctor --pre", "install --node-selector kata=true --node worker-0"] {
                append(&mut text, &lab, line).await;
            }
            lab.kata(&["worker-0", "worker-1"]);
            lab.ready().await;
            text.push_str("# Kata on two nodes\n\n");
            for line in ["status", "uninstall --dry-run", "uninstall"] {
                append(&mut text, &lab, line).await;
            }
            compare(&format!("first-{kind}-{name}"), &text);
        }
    }
}

/// No verb is left out: each has a file.
#[test]
fn every_verb_has_a_file() {
    use clap::CommandFactory as _;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let heads: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .map(|text| text.lines().next().unwrap_or_default().to_owned())
        .collect();
    for verb in kubectl_kata::arguments::Arguments::command().get_subcommands() {
        let name = verb.get_name();
        let begins = format!("$ kubectl kata {name}");
        let found = heads.iter().any(|head| head.starts_with(&begins));
        assert!(found || verb.is_hide_set(), "no golden file shows `kubectl kata {name}`");
    }
}
