//! Every scenario of `tests/scenarios`, compared with what it printed when it was last reviewed.
//!
//! `UPDATE_SCENARIOS=1 cargo test -p kata-sim --test it` writes the outputs anew; the difference is to be
//! read like code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// How many scenarios run at a time.
const WORKERS: usize = 2;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// The names of the files with an extension, without it.
fn names(extension: &str) -> BTreeSet<String> {
    std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect()
}

fn script(path: &Path) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kata-sim")).arg("script").arg(path).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// What is wrong with a scenario, if anything is.
fn problem(name: &str, update: bool) -> Option<String> {
    let (code, actual, complaint) = script(&directory().join(format!("{name}.txt")));
    if code != Some(0) {
        return Some(format!("{name}: exit code {code:?}\n{actual}{complaint}"));
    }
    let path = directory().join(format!("{name}.out"));
    if update {
        std::fs::write(path, actual).unwrap();
        return None;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    if expected == actual {
        return None;
    }
    let line = expected.lines().zip(actual.lines()).take_while(|(a, b)| a == b).count();
    let at = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Some(format!(
        "{name}.out:{}: differs\n  expected: {}\n  actual:   {}",
        line + 1,
        at(&expected),
        at(&actual)
    ))
}

#[test]
fn scenarios_run_as_they_were_reviewed() {
    let update = std::env::var_os("UPDATE_SCENARIOS").is_some();
    let scenarios = names("txt");
    assert!(scenarios.len() >= 27, "only {scenarios:?}");
    let queue = Mutex::new(scenarios.clone());
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().pop_first();
                    let Some(name) = next else { return };
                    problems.lock().unwrap().extend(problem(&name, update));
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let orphans: Vec<String> = names("out").difference(&scenarios).cloned().collect();
    assert!(orphans.is_empty(), "outputs without a scenario: {orphans:?}");
}

/// Runs a script that is given as text.
fn run(name: &str, text: &str) -> (Option<i32>, String, String) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    script(&path)
}

#[test]
fn what_does_not_hold_is_told_and_gives_exit_code_1() {
    let (code, said, _) = run(
        "fails.txt",
        "expect node worker-0 .spec.unschedulable=true\n\
         expect node worker-7 present\n\
         wait count nodes 7 within 10s\n\
         expect event Nothing\n\
         advance 1m\n\
         expect node worker-0 Ready=True>1m\n\
         expect node worker-0 Ready=True>1h\n\
         refused label node worker-0 a=b\n\
         delete pod absent\n",
    );
    assert_eq!(code, Some(1), "{said}");
    for line in [
        "× .spec.unschedulable is (absent)",
        "× it does not exist",
        "× not within 10s; there are 6",
        "× there is no such Event",
        "× Ready=True/KubeletReady for 10m40s",
        "× the API server does not refuse it",
        "× the API server refuses: pods \"absent\" not found",
        "fails.txt: 7 failures: not everything holds that should (simulated)",
    ] {
        assert!(said.contains(line), "{line:?} is not in\n{said}");
    }
}

#[test]
fn a_broken_invariant_is_found_without_being_asked_for() {
    // The rival lets a sandboxed pod onto a node that has no runtime.
    let (code, said, _) = run(
        "invariant.txt",
        "apply <<EOF\n\
         apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n\
         ---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: lost}\n\
         spec: {runtimeClassName: kata, containers: [{name: a, image: a}]}\n\
         EOF\n\
         advance 10s\n",
    );
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("INVARIANT BROKEN: sandboxed pod default/lost is on node"), "{said}");
}

#[test]
fn nodes_and_etcd_fail_as_scripts_say() {
    let (code, said, complaint) = run(
        "faults.txt",
        "cluster platform=kubernetes control-plane=1 workers=1 runtime=k3s\n\
         expect node worker-0 .status.nodeInfo.containerRuntimeVersion~-k3s1\n\
         label node worker-0 a=b\n\
         apply <<EOF\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: choosy}\n\
         spec: {nodeSelector: {a: b}, containers: [{name: a, image: a}]}\n\
         EOF\n\
         wait pod choosy .status.phase=Running within 10s\n\
         etcd backup\n\
         fault worker-0 not-ready for 90s\n\
         expect node worker-0 Ready=False\n\
         advance 89s\n\
         expect node worker-0 Ready=False\n\
         wait node worker-0 Ready=True within 2s\n\
         label node worker-0 a-\n\
         advance 1m\n\
         expect pod choosy .status.phase=Running\n\
         fault worker-0 kubelet-restart\n\
         expect pod choosy .status.phase=Failed .status.reason=NodeAffinity\n\
         etcd restore\n\
         expect node worker-0 .metadata.labels[a]=b\n\
         expect pod choosy .status.phase=Running\n",
    );
    assert_eq!(code, Some(0), "{said}{complaint}");
}

#[test]
fn a_sandboxed_pod_that_its_kubelet_fails_breaks_an_invariant() {
    // The script takes the label itself; the operator knows nothing of it.
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let text = format!(
        "label node worker-0 kata=true chosen=true\n\
         apply {examples}/kataconfig.yaml\n\
         wait kataconfig cluster-kataconfig Ready=True\n\
         apply <<EOF\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n\
         spec: {{runtimeClassName: kata, nodeSelector: {{chosen: 'true'}}, \
         containers: [{{name: a, image: a}}]}}\n\
         EOF\n\
         wait pod a .status.phase=Running\n\
         label node worker-0 chosen-\n\
         fault worker-0 kubelet-restart\n"
    );
    let (code, said, _) = run("refused.txt", &text);
    assert_eq!(code, Some(1), "{said}");
    let broken = "INVARIANT BROKEN: the kubelet of node worker-0 failed sandboxed pod default/a";
    assert!(said.contains(broken), "{said}");
}

#[test]
fn mistakes_name_file_line_and_remedy_before_anything_runs() {
    for (text, complaint) in [
        ("\nlable node a b=c\n", "wrong.txt:2: unknown command \"lable\": give one of cluster, "),
        ("advance soon\n", "wrong.txt:1: \"soon\" is not a span of time: write 90s, 5m or 1h30m"),
        ("fault worker-0 fire\n", "wrong.txt:1: unknown fault \"fire\": give one of no-kvm, "),
        ("apply nothing.yaml\n", "wrong.txt:1: cannot read "),
        ("apply <<EOF\na: b\n", "wrong.txt:1: no line says EOF, which ends the YAML"),
        ("expect node worker-0\n", "wrong.txt:1: no test is given: write absent, present, "),
        ("expect node a .b[c\n", "wrong.txt:1: .b[c: write "),
        ("advance 1s\ncluster compact\n", "wrong.txt:2: there is a cluster already: "),
        ("cluster workers=-1\n", "wrong.txt:1: \"-1\" is not a number in range"),
        ("label node a b=\"c\n", "wrong.txt:1: a \" is not closed"),
        ("foreign-write node a [1]\n", "wrong.txt:1: write: foreign-write KIND NAME "),
        ("api-fault status=x\n", "wrong.txt:1: \"x\" is not a number in range"),
        ("fault worker-0 kubelet-restart for 5s\n", "wrong.txt:1: kubelet-restart happens once"),
        ("cluster runtime=k3s\n", "wrong.txt:1: runtime= needs platform=kubernetes"),
        ("etcd lost\n", "wrong.txt:1: \"etcd lost\" has too few or too many words; write: etcd "),
        ("crash operator after\n", "wrong.txt:1: \"crash operator after\" has too few or too many"),
    ] {
        let (code, said, complaints) = run("wrong.txt", text);
        assert_eq!(code, Some(2), "{text}: {said}{complaints}");
        assert!(complaints.contains(complaint), "{text}: {complaints}");
        assert_eq!(said, "", "{text}");
    }
    let (code, _, complaints) = run("unknown-kind.txt", "expect unicorn a present\n");
    assert_eq!(code, Some(2));
    assert!(complaints.contains(":1: the cluster serves no kind \"unicorn\""), "{complaints}");
    let (code, _, complaints) = run("no-backup.txt", "etcd restore\n");
    assert_eq!(code, Some(2));
    assert!(complaints.contains(":1: there is no backup: write `etcd backup`"), "{complaints}");
}
