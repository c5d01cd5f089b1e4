//! The agent's whole run on a node with CRI-O: a real systemd with a unit of that name, and a CRI server that
//! offers what CRI-O's files had when the unit was started, or is as CRI-O should not be.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kata_api::node_task::{NodeAction, NodeReport, Outcome};
use kata_node_agent::cri::message::{
    ListPodSandboxResponse, PodSandbox, PodSandboxMetadata, RuntimeHandler, StatusResponse,
    VersionResponse,
};
use prost::Message as _;

use crate::lab::{Node, assert_same, assert_went_back};
use crate::mock::{Answer, crio_status, ready, serve_at};

const SOCKET: &str = "run/crio/crio.sock";
/// CRI-O's drop-ins as they were when the unit was started.
const STARTED_WITH: &str = "run/crio/started-with";
/// Stands in for CRI-O's program: as a service it does nothing; asked for its configuration it prints one, or ends as
/// CRI-O does with what it was given if a file is there that it cannot start with.
const PROGRAM: &str = "node/crio";
const STAND_IN: &str = r#"#!/bin/sh
case "$*" in
*config) ;;
*) exec sleep infinity ;;
esac
if [ -e /etc/crio/crio.conf.d/90-bad.conf ]; then
    echo 'time="now" level=info msg="Updating config"' >&2
    echo 'time="now" level=fatal msg="given '"$*, $SITE"': \"gone\" was not found"' >&2
    exit 1
fi
echo "[crio.runtime]"
"#;
const DROP_IN: &str = "etc/crio/crio.conf.d/60-kata-operator.conf";

/// How the server is.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Well,
    /// It serves no CRI.
    Dead,
    /// It serves no CRI if this handler is configured.
    DeadWith(&'static str),
    NotReady,
    Hangs,
    /// Two answers say that it is not ready, and one never comes.
    Slow(u32),
}

struct Crio {
    root: PathBuf,
    mood: Mutex<Mood>,
    /// Whether a sandbox with the handler kata runs.
    runs: AtomicBool,
}

impl Crio {
    fn handlers(&self) -> BTreeSet<String> {
        let files = fs::read_dir(self.root.join(STARTED_WITH)).into_iter().flatten();
        let text = |file: fs::DirEntry| fs::read_to_string(file.path()).unwrap();
        files.flat_map(|file| kata_host::crio::handlers(&text(file.unwrap())).unwrap()).collect()
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn answer(&self, method: &str) -> Answer {
        let handlers = self.handlers();
        let mut mood = self.mood.lock().unwrap();
        let mut is_ready = true;
        match &mut *mood {
            Mood::Well => {}
            Mood::Dead => return Answer::Status("12"),
            Mood::DeadWith(handler) if !handlers.contains(*handler) => {}
            Mood::DeadWith(_) => return Answer::Status("12"),
            Mood::Hangs => return Answer::Never,
            Mood::NotReady => is_ready = false,
            // Only from the restart on.
            Mood::Slow(_) if !handlers.contains("kata-two") => {}
            Mood::Slow(0) => {}
            Mood::Slow(left) if *left > 1 && method.ends_with("/Status") => {
                *left -= 1;
                is_ready = false;
            }
            Mood::Slow(left) if *left == 1 => {
                *left = 0;
                return Answer::Never;
            }
            Mood::Slow(_) => {}
        }
        Answer::Message(match method.rsplit('/').next() {
            Some("Version") => VersionResponse {
                runtime_name: "cri-o".to_owned(),
                runtime_version: "1.34.1".to_owned(),
            }
            .encode_to_vec(),
            Some("Status") => {
                let names = handlers.into_iter().chain(["crun".to_owned(), String::new()]);
                StatusResponse {
                    status: ready(is_ready),
                    runtime_handlers: names.map(|name| RuntimeHandler { name }).collect(),
                    ..StatusResponse::default()
                }
                .encode_to_vec()
            }
            Some("ListPodSandbox") => {
                let metadata = PodSandboxMetadata {
                    name: "vm".to_owned(),
                    namespace: "shop".to_owned(),
                    ..PodSandboxMetadata::default()
                };
                let sandbox = PodSandbox {
                    id: "1f".to_owned(),
                    metadata: Some(metadata),
                    ..PodSandbox::default()
                };
                let items = self.runs.load(Ordering::Relaxed).then_some(sandbox);
                ListPodSandboxResponse { items: items.into_iter().collect() }.encode_to_vec()
            }
            Some("PodSandboxStatus") => crio_status("kata"),
            _ => return Answer::Status("12"),
        })
    }
}

/// A node with CRI-O's unit, and no containerd.
fn start() -> (Node, Arc<Crio>) {
    let mut crio = None;
    let prepare = |root: &Path| {
        let units = root.join("etc/systemd/system");
        fs::create_dir_all(units.join("node.target.wants")).unwrap();
        symlink("/dev/null", units.join("containerd.service")).unwrap();
        let unit = format!(
            "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n[Service]\n\
             ExecStartPre=/bin/sh -c 'rm -rf /{STARTED_WITH}; cp -r /etc/crio/crio.conf.d /{STARTED_WITH}'\n\
             Environment=SITE=one\nEnvironmentFile=-/etc/sysconfig/crio\nEnvironmentFile=-/etc/sysconfig/none\n\
             ExecStart=/{PROGRAM} $CRIO_OPTIONS $NOT_SET\n"
        );
        for (path, text) in [(PROGRAM, STAND_IN), ("etc/sysconfig/crio", "CRIO_OPTIONS=-l debug\n")]
        {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(units.join("crio.service"), unit).unwrap();
        symlink("../crio.service", units.join("node.target.wants/crio.service")).unwrap();
        fs::create_dir_all(root.join("etc/crio/crio.conf.d")).unwrap();
        fs::write(root.join("etc/crio/crio.conf"), "[crio.runtime]\nlog_level = \"info\"\n")
            .unwrap();
        fs::create_dir_all(root.join("run/crio")).unwrap();
        let server = Arc::new(Crio {
            root: root.to_owned(),
            mood: Mutex::new(Mood::Well),
            runs: AtomicBool::new(false),
        });
        let serving = Arc::clone(&server);
        serve_at(&root.join(SOCKET), move |method, _| serving.answer(method));
        crio = Some(server);
    };
    let node = Node::start_with("2", "crio", SOCKET, prepare);
    node.until("the unit is active", || {
        let state = node.inside("/usr/bin/systemctl", &["is-active", "crio.service"]);
        state.status.success()
    });
    (node, crio.unwrap())
}

#[test]
#[ignore = "needs a real containerd"]
fn cri_o_is_changed_rolled_back_and_left_alone() {
    let (node, crio) = start();
    let before = node.files();
    let install = |handlers: &[&str]| node.run(NodeAction::Install, "a", handlers);
    let process = || node.systemctl(&["show", "--property", "MainPID", "crio.service"]);
    let has = |report: &NodeReport, code: &str, text: &str| {
        report.checks.iter().any(|it| it.code == code && it.message.contains(text))
    };

    // Nothing is done to one that does not answer, does not serve CRI, or is not ready.
    assert!(node.stage("a", &node.image("3.24.0")).status.success());
    let staged = (node.files(), process());
    for (mood, code, text) in [
        (Mood::NotReady, "KATA3010", "NetworkPluginNotReady: no CNI"),
        (Mood::Dead, "KATA3009", "unknown service runtime.v1.RuntimeService"),
        (Mood::Hangs, "KATA3009", "no answer within 5 s"),
    ] {
        crio.set(mood);
        let begun = Instant::now();
        let report = install(&["kata"]);
        assert_eq!(report.outcome, Outcome::Refused, "{mood:?}: {report:?}");
        assert!(has(&report, code, text), "{mood:?}: {report:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{mood:?}: {:?}", begun.elapsed());
        assert_eq!((node.files(), process()), staged, "{mood:?}");
    }

    crio.set(Mood::Well);
    let report = install(&["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.restarted, "{report:?}");
    assert_eq!(report.runtime, "cri-o 1.34.1");
    assert_ne!(process(), staged.1);
    assert_eq!(crio.handlers(), ["kata".to_owned()].into());
    let good = (node.files(), process());
    let report = install(&["kata"]);
    assert!(!report.changed && !report.restarted, "{report:?}");
    assert_eq!((node.files(), process()), good);

    // Another program changes a file with which CRI-O would not start: its own program says so, which systemd starts
    // with the command and the variables of the unit.
    let bad = node.root.join("etc/crio/crio.conf.d/90-bad.conf");
    fs::write(&bad, "[crio.runtime]\n").unwrap();
    let report = install(&["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    let says = "90-bad.conf: given -l debug config, one: \"gone\" was not found";
    assert!(has(&report, "KATA3011", says), "{report:?}");
    fs::remove_file(&bad).unwrap();
    let report = install(&["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::Refused, "the folder was changed: {report:?}");
    assert!(has(&report, "KATA3047", "/etc/crio/crio.conf.d was changed"), "{report:?}");
    node.systemctl(&["restart", "crio.service"]);
    let good = (good.0, process());

    // Its unit is active and it serves nothing with the change.
    crio.set(Mood::DeadWith("kata-two"));
    let report = install(&["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert!(has(&report, "KATA3033", "unknown service runtime.v1.RuntimeService"), "{report:?}");
    assert_went_back(&node.files(), &good.0);
    assert_ne!(process(), good.1);
    assert_eq!(crio.handlers(), ["kata".to_owned()].into());

    // It takes its time: it is waited for, and not given up.
    crio.set(Mood::Slow(3));
    let report = install(&["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(matches!(*crio.mood.lock().unwrap(), Mood::Slow(0)), "it was slow");
    assert_eq!(crio.handlers(), ["kata".to_owned(), "kata-two".to_owned()].into());
    assert!(fs::read_to_string(node.root.join(DROP_IN)).unwrap().contains("kata-two"));

    // Nothing is pulled from under a sandbox, although CRI-O's list does not show that it is one of ours.
    crio.runs.store(true, Ordering::Relaxed);
    let good = (node.files(), process());
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
    let named = &report.sandboxes[0];
    assert_eq!((named.pod.as_str(), named.handler.as_str()), ("vm", "kata"));
    assert_eq!((node.files(), process()), good);
    crio.runs.store(false, Ordering::Relaxed);

    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(crio.handlers().is_empty());
    assert_same(&node.files(), &before);
}
