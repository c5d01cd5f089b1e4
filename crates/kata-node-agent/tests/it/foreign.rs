//! Another program has changed a file of a real containerd and restarted nothing: the process runs on with what it
//! read before, and a restart for Kata would start it with the other one.

use std::fs;

use kata_api::node_task::{ForeignChanges, NodeAction, Outcome};

use crate::lab::{Node, assert_same, report, task_with};

const MAIN: &str = "etc/containerd/config.toml";
const DROP_IN: &str = "etc/containerd/others.d/10-other.toml";

/// The main file and a drop-in that it imports.
type Files = (String, Option<String>);

/// The words for the same thing in the schemas of both releases.
struct Words {
    version: u32,
    runtime: &'static str,
    snapshotter: &'static str,
    /// Where the runtime of another program is: in 1.x a drop-in would replace all that the main file says of CRI.
    place: &'static str,
}

const V2: Words = Words {
    version: 3,
    runtime: "io.containerd.cri.v1.runtime",
    snapshotter: "[plugins.\"io.containerd.cri.v1.images\"]\nsnapshotter",
    place: "others.d/10-other.toml was",
};
const V1: Words = Words {
    version: 2,
    runtime: "io.containerd.grpc.v1.cri",
    snapshotter: "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter",
    place: "config.toml was",
};

/// What another program does, and what is to be said about it.
struct Case {
    name: &'static str,
    /// With what containerd was started.
    before: Files,
    after: Files,
    code: &'static str,
    says: Vec<&'static str>,
}

impl Words {
    /// Files with a runtime of another program, and what may be changed in the main one.
    fn files(&self, more: &str, other: Option<&str>) -> Files {
        let Self { version, runtime, .. } = self;
        let main = format!(
            "version = {version}\nimports = [\"/etc/containerd/others.d/*.toml\"]\n{more}\n\
             [plugins.\"{runtime}\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
             [plugins.\"{runtime}\".containerd.runtimes.runc.options]\nSystemdCgroup = false\n"
        );
        let other = other.map(|name| {
            format!(
                "[plugins.\"{runtime}\".containerd.runtimes.{name}]\nruntime_type = \"io.containerd.runc.v2\"\n"
            )
        });
        if *version == 3 {
            (main, other.map(|other| format!("version = {version}\n{other}")))
        } else {
            (main + &other.unwrap_or_default(), None)
        }
    }

    fn default_runtime(&self, name: &str) -> String {
        format!("[plugins.\"{}\".containerd]\ndefault_runtime_name = {name}", self.runtime)
    }

    fn snapshotter(&self, name: &str) -> String {
        format!("{} = \"{name}\"", self.snapshotter)
    }

    fn cases(&self) -> Vec<Case> {
        let native = self.snapshotter("native");
        let before = self.files(&native, Some("other"));
        let case = |name, after: Files, code, says: &[&'static str]| Case {
            name,
            before: before.clone(),
            after,
            code,
            says: says.to_vec(),
        };
        let edited =
            |(main, other): &Files, edit: &dyn Fn(&str) -> String| (edit(main), other.clone());
        let left = if self.version == 3 { "others.d was" } else { self.place };
        let rewritten = self.files(&self.snapshotter("overlayfs"), None);
        vec![
            // NVIDIA/nvidia-container-toolkit#1328
            Case {
                before: self.files(&self.default_runtime("\"runc\""), Some("other")),
                ..case(
                    "latent-default-runtime",
                    self.files(&self.default_runtime("\"nvidia\""), Some("other")),
                    "KATA3011",
                    &["config.toml", "default_runtime_name is nvidia"],
                )
            },
            case(
                "a snapshotter that is not there",
                self.files(&self.snapshotter("gone"), Some("other")),
                "KATA3011",
                &["config.toml", "snapshotter is gone"],
            ),
            case(
                "CRI disabled",
                edited(&before, &|main| {
                    format!("disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n{main}")
                }),
                "KATA3011",
                &["config.toml", "disabled_plugins"],
            ),
            case(
                "a wrong type",
                self.files(&self.default_runtime("5"), Some("other")),
                "KATA3011",
                &["config.toml", "string"],
            ),
            // awslabs/amazon-eks-ami#2702
            case(
                "pending-foreign-change",
                edited(&rewritten, &|main| {
                    main.replace("SystemdCgroup = false", "SystemdCgroup = true")
                }),
                "KATA3047",
                &["config.toml", "containerd.runtimes.other", "SystemdCgroup"],
            ),
            case(
                "a handler that left",
                self.files(&native, None),
                "KATA3047",
                &[left, "the process and the files differ in containerd.runtimes.other"],
            ),
            case(
                "a handler that came",
                self.files(&native, Some("another")),
                "KATA3047",
                &[self.place, "containerd.runtimes.another", "containerd.runtimes.other"],
            ),
            case(
                "a comment",
                edited(&before, &|main| format!("# seen\n{main}")),
                "KATA3047",
                &[
                    "config.toml was changed after containerd.service started",
                    "CRI reports no difference",
                ],
            ),
        ]
    }
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    every_case("2", &V2);
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    every_case("1.7", &V1);
}

/// Writes what differs.
fn put(node: &Node, (main, drop_in): &Files) {
    for (path, text) in [(MAIN, Some(main)), (DROP_IN, drop_in.as_ref())] {
        let path = node.root.join(path);
        if fs::read_to_string(&path).ok().as_ref() != text {
            match text {
                Some(text) => fs::write(path, text).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
        }
    }
}

fn every_case(release: &str, words: &Words) {
    let node = Node::start_on(release, "foreign", |root| {
        fs::create_dir_all(root.join("etc/containerd/others.d")).unwrap();
    });
    let image = node.image("3.24.0");
    for Case { name, before, after, code, says } in words.cases() {
        assert!(node.stage("a", &image).status.success(), "{name}");
        put(&node, &before);
        node.restart();
        put(&node, &after);
        let (files, incarnation) = (node.files(), node.incarnation());
        for action in [NodeAction::Preflight, NodeAction::Install] {
            let report = node.run(action, "a", &["kata"]);
            assert_eq!(report.outcome, Outcome::Refused, "{name}: {report:?}");
            let check = report.checks.first().unwrap();
            assert_eq!(check.code, code, "{name}: {report:?}");
            for words in &says {
                assert!(check.message.contains(words), "{name}: {words}: {report:?}");
            }
            assert!(!report.changed && !report.restarted, "{name}: {report:?}");
        }
        assert_same(&node.files(), &files);
        assert!(node.ready() && node.incarnation() == incarnation, "{name}");

        // What the admin asked for is activated, unless nothing would start with it.
        let activate = task_with(NodeAction::Install, "a", &["kata"], ForeignChanges::Activate);
        let report = report(&node.agent(&["run", "--task", &activate]).output().unwrap());
        if code == "KATA3011" {
            assert_eq!(report.outcome, Outcome::Refused, "{name}: {report:?}");
            assert_eq!(node.incarnation(), incarnation, "{name}");
        } else {
            assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
            assert!(report.checks.iter().any(|it| it.code == "KATA3048"), "{name}: {report:?}");
            let report = node.run(NodeAction::Remove, "", &[]);
            assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        }

        // Its owner corrects the file, or wants what is in it, and restarts containerd.
        if code == "KATA3011" {
            put(&node, &before);
        }
        node.restart();
        let files = node.files();
        assert!(node.stage("a", &image).status.success(), "{name}");
        let report = node.run(NodeAction::Install, "a", &["kata"]);
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        assert_eq!(report.checks, [], "{name}: {report:?}");
        let report = node.run(NodeAction::Remove, "", &[]);
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        let etc = |files: &std::collections::BTreeMap<String, String>| {
            let mut files = files.clone();
            files.retain(|path, _| path.starts_with("etc"));
            files
        };
        assert_same(&etc(&node.files()), &etc(&files));
    }
}
