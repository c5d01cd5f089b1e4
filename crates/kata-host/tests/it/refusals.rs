//! What is refused, with its code, and that nothing is changed then.

use kata_api::node_task::{NodeAction, Outcome, TaskHandler};
use kata_host::host::{Device, Mount};
use kata_host::paths;

use crate::node::{Node, V1_MAIN, V2_MAIN, task};
use crate::runtime::Kind;

const CONF_D: &str = "/etc/containerd/conf.d";

fn node() -> Node {
    let text = format!("imports = [\"{CONF_D}/*.toml\"]\n{V2_MAIN}");
    let mut node = Node::new(Kind::Containerd(2, 1), Some(&text));
    node.stage("a");
    node
}

fn old_node() -> Node {
    let text = format!("imports = [\"{CONF_D}/*.toml\"]\n{V1_MAIN}");
    let mut node = Node::new(Kind::Containerd(1, 7), Some(&text));
    node.stage("a");
    node
}

#[track_caller]
fn refused(mut node: Node, code: &str, says: &str) {
    let before = node.disk.all();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    let check = report.checks.iter().find(|check| check.code == code);
    let check = check.unwrap_or_else(|| panic!("{code} is not in {report:?}"));
    assert!(check.fatal && check.message.contains(says), "{check:?}");
    assert!(!report.changed && !report.restarted && !report.message.is_empty(), "{report:?}");
    assert_eq!(node.disk.all(), before);
    assert_eq!(node.runtime.restarts, 0);
}

fn with_file(mut node: Node, path: &str, text: &str) -> Node {
    node.disk.make_dir(paths::parent(path), 0o755).unwrap();
    node.disk.write(path, text.as_bytes(), 0o644).unwrap();
    node
}

#[test]
fn systems_that_nobody_may_change_are_refused_with_what_to_do_instead() {
    refused(with_file(node(), "/etc/os-release", "ID=talos\n"), "KATA3017", "system extension");
    refused(with_file(node(), "/etc/os-release", "ID=\"bottlerocket\"\n"), "KATA3017", "read-only");
    let managed = with_file(node(), "/etc/machine-config-daemon/currentconfig", "{}");
    refused(managed, "KATA3018", "currentconfig");
}

#[test]
fn a_machine_that_cannot_run_sandboxes_is_refused() {
    for (device, code) in [(Device::Kvm, "KATA3001"), (Device::VhostVsock, "KATA3002")] {
        let mut node = node();
        node.broken_device = Some(device);
        refused(node, code, "cannot be opened");
    }
    let mut full = node();
    full.disk_free = 1 << 20;
    refused(full, "KATA3005", "MiB are needed");
    // Before anything is taken out of the image its size is unknown.
    let mut unstaged = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    unstaged.disk_free = (2 << 30) - 1;
    let report = kata_host::run(&mut unstaged, &task(NodeAction::Preflight, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3005", "{report:?}");
    // A Job that changes the node sees the mount as it is; one that checks mounts most folders read-only itself.
    let read_only = Mount { read_only: true, file_system_read_only: true, no_programs: false };
    let own = Mount { file_system_read_only: false, ..read_only };
    let no_programs = Mount { no_programs: true, ..Mount::default() };
    for (place, mount, checked, message) in [
        ("/opt", read_only, true, "/opt is mounted read-only"),
        ("/opt", own, true, "/opt is mounted read-only"),
        ("/opt", no_programs, true, "/opt is mounted with noexec"),
        ("/var", read_only, true, "/var/lib/kata-operator is mounted read-only"),
        ("/var", own, false, "/var/lib/kata-operator is mounted read-only"),
        ("/etc", read_only, true, "/etc/containerd/conf.d is mounted read-only"),
        ("/etc/containerd", own, false, "/etc/containerd/conf.d is mounted read-only"),
    ] {
        let mut frozen = node();
        frozen.mounts = vec![(place.to_owned(), mount)];
        frozen.disk_free = if place == "/opt" { 0 } else { frozen.disk_free };
        // Nothing is said of a device that could not be tried.
        frozen.broken_device = mount.no_programs.then_some(Device::Kvm);
        let report = kata_host::run(&mut frozen.clone(), &task(NodeAction::Preflight, "a"));
        assert_eq!(report.outcome == Outcome::Refused, checked, "{place}: {report:?}");
        refused(frozen, "KATA3017", message);
    }
    // Where Kata is installed, an inspection says so, and it can be removed.
    let mut installed = node();
    let done = kata_host::run(&mut installed, &task(NodeAction::Install, "a"));
    assert_eq!(done.outcome, Outcome::Done, "{done:?}");
    installed.mounts = vec![("/opt".to_owned(), no_programs)];
    let report = kata_host::run(&mut installed, &task(NodeAction::Inspect, "a"));
    assert_eq!((report.outcome, report.checks[0].code.as_str()), (Outcome::Refused, "KATA3017"));
    let gone = kata_host::run(&mut installed, &task(NodeAction::Remove, "a"));
    assert_eq!(gone.outcome, Outcome::Done, "{gone:?}");
    let mut arm = node();
    arm.facts.architecture = "aarch64".to_owned();
    refused(arm, "KATA3006", "qemu is for x86_64");
    let mut confined = node();
    confined.facts.selinux_confined = true;
    refused(confined, "KATA3020", "spc_t");
}

#[test]
fn what_is_only_worse_is_a_warning() {
    let mut node = node();
    node.broken_device = Some(Device::VhostNet);
    node.facts.memory_available = 1 << 30;
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let codes: Vec<&str> = report.checks.iter().map(|check| check.code.as_str()).collect();
    assert_eq!(codes, ["KATA3003", "KATA3004"]);
    assert!(report.checks.iter().all(|check| !check.fatal));
}

#[test]
fn a_runtime_that_cannot_be_trusted_is_left_alone() {
    let mut down = node();
    down.runtime.running = None;
    refused(down, "KATA3009", "connection refused");
    let mut dead = node();
    dead.runtime.running = Some(Err("invalid plugin config".to_owned()));
    refused(dead, "KATA3009", "invalid plugin config");
    let mut without = node();
    without.systemd = false;
    refused(without, "KATA3019", "systemd does not answer: no such socket");
    let mut other = node();
    other.runtime.unit = "docker.service".to_owned();
    other.runtime.command = vec!["/usr/bin/dockerd".to_owned()];
    refused(other, "KATA3007", "no unit");
    let mut ancient = Node::new(Kind::Containerd(1, 5), Some(V1_MAIN));
    ancient.stage("a");
    refused(ancient, "KATA3007", "1.5");
    let mut untold = Node::new(Kind::Crio, Some("[crio.runtime]\n"));
    untold.runtime.version = Some("1.29.9".to_owned());
    untold.stage("a");
    refused(untold, "KATA3007", "1.29.9");
    // As Flatcar starts it.
    let mut variable = node();
    variable.runtime.command =
        ["/usr/bin/containerd", "--config", "${CONTAINERD_CONFIG}"].map(str::to_owned).to_vec();
    let mut unstaged = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    unstaged.runtime.command.clone_from(&variable.runtime.command);
    let report = kata_host::run(&mut unstaged, &task(NodeAction::Preflight, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3012", "{report:?}");
    // What may say another thing of it is not seen.
    let mut unseen = variable.clone();
    unseen.runtime.environment = vec!["CONTAINERD_CONFIG=/etc/containerd/config.toml".to_owned()];
    unseen.runtime.environment_files = vec!["/usr/lib/containerd.env".to_owned()];
    refused(unseen, "KATA3012", "${CONTAINERD_CONFIG}");
    let mut elsewhere = variable.clone();
    elsewhere.runtime.environment =
        vec!["CONTAINERD_CONFIG=/usr/share/containerd/config.toml".to_owned()];
    refused(elsewhere, "KATA3012", "/usr/share/containerd/config.toml");
    refused(variable, "KATA3012", "${CONTAINERD_CONFIG}");
}

/// What cannot be seen is not taken for absent, on any path.
#[test]
fn what_is_imported_from_where_nothing_is_seen_is_refused_with_its_path() {
    let import = |import: &str| {
        let mut node = Node::new(
            Kind::Containerd(2, 1),
            Some(&format!("imports = [\"{import}\"]\n{V2_MAIN}")),
        );
        node.stage("a");
        node
    };
    for path in
        ["/usr/share/containerd/more.toml", "/usr/share/containerd/*.toml", "../../srv/a.toml"]
    {
        let whole = path.replace("../../", "/");
        for action in [NodeAction::Preflight, NodeAction::Install] {
            let mut node = import(path);
            // containerd does not start without a file that is imported by its name.
            for folder in ["/usr", "/usr/share", "/usr/share/containerd", "/srv"] {
                node.disk.make_dir(folder, 0o755).unwrap();
            }
            node.disk.write("/usr/share/containerd/more.toml", b"", 0o644).unwrap();
            node.disk.write("/srv/a.toml", b"", 0o644).unwrap();
            node.runtime.start(&mut node.disk);
            let report = kata_host::run(&mut node, &task(action, "a"));
            assert_eq!(report.outcome, Outcome::Refused, "{path}: {report:?}");
            let check = report.checks.iter().find(|check| check.code == "KATA3012").unwrap();
            let said = format!("{} imports {whole}, and of the node only", node.runtime.main);
            assert!(check.message.starts_with(&said), "{check:?}");
            assert!(check.message.ends_with("put a copy below /etc in its place"), "{check:?}");
        }
    }
    let mut linked = import("/etc/containerd/more/*.toml");
    linked.disk.make_dir("/etc/containerd/more", 0o755).unwrap();
    linked.disk.symlink("/usr/lib/vendor.toml", "/etc/containerd/more/vendor.toml").unwrap();
    refused(
        linked,
        "KATA3012",
        "/etc/containerd/more/vendor.toml is a link to /usr/lib/vendor.toml",
    );
    // A link that leads to nothing that could be there.
    let mut dangling = import("/etc/containerd/more/*.toml");
    dangling.disk.make_dir("/etc/containerd/more", 0o755).unwrap();
    dangling.disk.symlink("gone.toml", "/etc/containerd/more/old.toml").unwrap();
    dangling.runtime.start(&mut dangling.disk);
    let report = kata_host::run(&mut dangling, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
}

/// A link may be used by others as well. The preflight says so, and not only the installation.
#[test]
fn a_main_file_that_is_a_link_is_refused_before_anything_else() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    node.disk.write("/etc/shared.toml", V2_MAIN.as_bytes(), 0o644).unwrap();
    node.disk.unlink("/etc/containerd/config.toml").unwrap();
    node.disk.symlink("/etc/shared.toml", "/etc/containerd/config.toml").unwrap();
    node.runtime.start(&mut node.disk);
    let before = node.disk.all();
    for action in [NodeAction::Preflight, NodeAction::Install] {
        let report = kata_host::run(&mut node, &task(action, "a"));
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        assert_eq!(report.checks.len(), 1, "{report:?}");
        let message = &report.checks[0].message;
        assert!(message.contains("is a link to /etc/shared.toml"), "{message}");
        assert!(
            message.ends_with("or add the import /etc/containerd/conf.d/*.toml yourself"),
            "{message}"
        );
    }
    assert_eq!(node.disk.all(), before);
}

/// Flatcar's unit has its configuration in a variable. A file of the environment wins over the unit itself.
#[test]
fn the_configuration_that_a_variable_of_the_unit_names_is_the_one_that_is_changed() {
    let own = "CONTAINERD_CONFIG=/etc/containerd/own.toml";
    for (command, environment, files, content) in [
        ("--config ${CONTAINERD_CONFIG}", vec![own], vec![], ""),
        ("--config=${FOLDER}/own.toml", vec!["FOLDER=/etc/containerd"], vec![], ""),
        (
            "$OPTIONS",
            vec!["OPTIONS=--log-level info --config /etc/containerd/own.toml"],
            vec![],
            "",
        ),
        (
            "--config ${CONTAINERD_CONFIG}",
            vec!["CONTAINERD_CONFIG=/usr/share/containerd/config.toml"],
            vec!["/etc/default/missing", "/etc/default/containerd"],
            "# mine\n\nOTHER='a b'\nCONTAINERD_CONFIG=\"/etc/containerd/own.toml\"\n",
        ),
    ] {
        let mut node = node();
        let main = node.disk.read(&node.runtime.main).unwrap();
        node.disk.write("/etc/containerd/own.toml", &main, 0o644).unwrap();
        node.disk.make_dir("/etc/default", 0o755).unwrap();
        node.disk.write("/etc/default/containerd", content.as_bytes(), 0o644).unwrap();
        let words = ["/usr/bin/containerd"].into_iter().chain(command.split(' '));
        node.runtime.command = words.map(str::to_owned).collect();
        node.runtime.main = "/etc/containerd/own.toml".to_owned();
        node.runtime.environment = environment.into_iter().map(str::to_owned).collect();
        node.runtime.environment_files = files.into_iter().map(str::to_owned).collect();
        node.runtime.start(&mut node.disk);
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{command}: {report:?}");
        let changed = String::from_utf8(node.disk.read("/etc/containerd/own.toml").unwrap());
        assert!(changed.unwrap().contains("/etc/containerd/conf.d/*.toml"), "{command}");
        assert_eq!(node.disk.read("/etc/containerd/config.toml").unwrap(), main, "{command}");
    }
}

/// What an administrator looks at next is the unit.
#[test]
fn a_runtime_that_does_not_answer_is_named_by_its_unit_and_how_that_is() {
    let mut down = node();
    down.runtime.running = None;
    refused(down, "KATA3009", "containerd.service is failed (exit-code, status 1): cannot ask CRI");
    let mut dead = node();
    dead.runtime.running = Some(Err("invalid plugin config".to_owned()));
    refused(dead, "KATA3009", "containerd.service is active: cannot ask CRI");
    // Its pod does not have that folder.
    let mut elsewhere = node();
    elsewhere.runtime.command =
        ["/usr/bin/containerd", "--address", "/srv/c.sock"].map(str::to_owned).to_vec();
    elsewhere.runtime.socket = Some("/srv/other.sock".to_owned());
    refused(elsewhere, "KATA3009", "so let its socket be below /run");
}

#[test]
fn a_configuration_behind_a_link_to_what_is_not_seen_is_not_taken_for_none() {
    for (link, target) in
        [("/etc/containerd", "/mnt/x"), ("/etc/containerd/config.toml", "/mnt/x/config.toml")]
    {
        let mut node = Node::new(Kind::Containerd(2, 1), None);
        node.stage("a");
        if link != "/etc/containerd" {
            node.disk.make_dir("/etc/containerd", 0o755).unwrap();
        }
        node.disk.symlink(target, link).unwrap();
        refused(node, "KATA3012", &format!("{link} is a link to {target}"));
    }
}

#[test]
fn a_configuration_that_is_broken_already_is_not_touched() {
    let broken = with_file(node(), &format!("{CONF_D}/10-other.toml"), "[plugins\n");
    refused(broken, "KATA3011", "10-other.toml");
    let text = format!("imports = [\"/etc/containerd/gone.toml\"]\n{V2_MAIN}");
    let mut dangling = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    dangling.stage("a");
    refused(with_file(dangling, "/etc/containerd/config.toml", &text), "KATA3011", "gone.toml");
    let mut newer = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    newer.stage("a");
    let newer = with_file(newer, "/etc/containerd/config.toml", "version = 5\n");
    refused(newer, "KATA3012", "version");
}

#[test]
fn files_and_handlers_of_others_are_left_alone() {
    let file = format!("{CONF_D}/60-kata-operator.toml");
    refused(with_file(node(), &file, "# mine\n"), "KATA3015", "60-kata-operator.toml");
    let table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.kata]\nruntime_type = \"x\"\n";
    let other = with_file(node(), &format!("{CONF_D}/kata-deploy.toml"), table);
    refused(other, "KATA3016", "kata-deploy.toml");
    let table = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\nruntime_type = \"x\"\n";
    let other = with_file(old_node(), &format!("{CONF_D}/99-nvidia.toml"), table);
    refused(other, "KATA3014", "99-nvidia.toml");
    let mut crio =
        Node::new(Kind::Crio, Some("[crio.runtime.runtimes.kata]\nruntime_type = \"vm\"\n"));
    crio.stage("a");
    refused(crio, "KATA3016", "crio.conf");
}

/// What ordinary pods run on is in no file, and would be changed for all of them.
/// A read of a pipe never ends, and renaming a file over it removes it.
#[test]
fn a_pipe_in_place_of_the_drop_in_is_neither_read_nor_replaced() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    let path = "/etc/containerd/conf.d/60-kata-operator.toml";
    node.disk.make_dir(paths::parent(path), 0o755).unwrap();
    node.disk.make_pipe(path).unwrap();
    let etc = node.etc();
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
    assert!(report.message.contains(&format!("{path}: it is no regular file")), "{report:?}");
    assert_eq!(node.etc(), etc);
}

#[test]
fn a_handler_that_the_container_runtime_has_by_itself_is_not_taken() {
    for name in ["runc", "crun"] {
        for mut node in [node(), old_node()] {
            let before = node.disk.all();
            let mut wanted = task(NodeAction::Install, "a");
            wanted.handlers =
                vec![TaskHandler { name: name.to_owned(), shim: "qemu".to_owned(), config: None }];
            let report = kata_host::run(&mut node, &wanted);
            assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
            let check = &report.checks[0];
            assert!(check.code == "KATA3016" && check.message.contains(name), "{check:?}");
            assert_eq!(node.disk.all(), before);
            assert_eq!(node.runtime.restarts, 0);
        }
    }
}

/// A shim that an image lacks takes no other handler with it, unless the node has the handler already.
#[test]
fn a_handler_without_a_shim_is_left_out_and_never_taken_away() {
    let handler = |name: &str, shim: &str| TaskHandler {
        name: name.to_owned(),
        shim: shim.to_owned(),
        config: None,
    };
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage_for("a", &["qemu", "dragonball"]);
    let mut wanted = task(NodeAction::Install, "a");
    wanted.handlers = vec![handler("kata", "qemu"), handler("kata-db", "dragonball")];
    for action in [NodeAction::Preflight, NodeAction::Install, NodeAction::Inspect] {
        wanted.action = action;
        let report = kata_host::run(&mut node, &wanted);
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        let check = report.checks.iter().find(|check| check.code == "KATA3029").unwrap();
        assert!(!check.fatal && check.message.contains("no shim dragonball"), "{check:?}");
        assert!(check.message.ends_with("the handler kata-db is left out"), "{check:?}");
    }
    let report = kata_host::run(&mut node, &wanted);
    let handlers = report.handlers.unwrap();
    assert!(handlers.contains(&"kata".to_owned()) && !handlers.contains(&"kata-db".to_owned()));
    // Now `kata` is there, and the next image lacks what it needs.
    node.stage_for("b", &["clh", "dragonball"]);
    let mut next = task(NodeAction::Preflight, "b");
    next.handlers = vec![handler("kata", "dragonball"), handler("kata-clh", "clh")];
    let before = node.disk.all();
    let restarts = node.runtime.restarts;
    for action in [NodeAction::Preflight, NodeAction::Install] {
        next.action = action;
        let report = kata_host::run(&mut node, &next);
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        assert_eq!(report.checks[0].code, "KATA3023", "{report:?}");
    }
    assert_eq!((node.disk.all(), node.runtime.restarts), (before, restarts));
}

#[test]
fn a_payload_without_the_shim_or_the_payload_itself_is_named() {
    let mut node = node();
    let mut wanted = task(NodeAction::Install, "a");
    wanted.handlers =
        vec![TaskHandler { name: "kata".to_owned(), shim: "dragonball".to_owned(), config: None }];
    let report = kata_host::run(&mut node, &wanted);
    assert_eq!(report.checks[0].code, "KATA3023", "{report:?}");
    assert!(report.checks[0].message.contains("clh, qemu"), "{report:?}");
    // What a check finds there was staged for an earlier task, and something else is staged for this one.
    wanted.action = NodeAction::Preflight;
    assert_eq!(kata_host::run(&mut node, &wanted).outcome, Outcome::Done);

    let report = kata_host::run(&mut node, &task(NodeAction::Install, "another"));
    assert_eq!(report.checks[0].code, "KATA3021", "{report:?}");
    assert!(report.checks[0].message.contains("another"), "{report:?}");
}

#[test]
fn a_task_or_a_journal_of_a_newer_version_is_refused() {
    let mut node = node();
    let mut wanted = task(NodeAction::Install, "a");
    wanted.version = 2;
    let report = kata_host::run(&mut node, &wanted);
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(report.message.contains("version 2"), "{report:?}");

    node.disk.make_dir(paths::STATE_DIR, 0o755).unwrap();
    for text in ["{\"version\":2}", "half a jou", ""] {
        node.disk.write(paths::STATE, text.as_bytes(), 0o600).unwrap();
        let before = node.disk.all();
        for action in [NodeAction::Install, NodeAction::Remove, NodeAction::Inspect] {
            let report = kata_host::run(&mut node, &task(action, "a"));
            assert_eq!(report.outcome, Outcome::Failed, "{text}: {report:?}");
            assert_eq!(report.checks[0].code, "KATA3035", "{text}: {report:?}");
        }
        assert_eq!(node.disk.all(), before);
    }
}

#[test]
fn preflight_and_inspect_write_nothing() {
    let mut node = node();
    node.revive(false);
    let report = kata_host::run(&mut node, &task(NodeAction::Preflight, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    assert_eq!(node.writes, 0, "{:?}", node.log);
}

/// containerd 1.x reports its snapshotter; of 2.x the files name it.
#[test]
fn a_shim_that_needs_block_devices_is_refused_on_another_snapshotter() {
    let mut firecracker = task(NodeAction::Preflight, "a");
    firecracker.handlers[0].shim = "fc".to_owned();
    let devmapper = V2_MAIN.replace("overlayfs", "devmapper");
    let devmapper_1 = format!(
        "{V1_MAIN}[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"devmapper\"\n"
    );
    for (kind, main, fits) in [
        (Kind::Containerd(2, 1), Some(V2_MAIN), false),
        (Kind::Containerd(2, 1), None, false),
        (Kind::Containerd(2, 1), Some(devmapper.as_str()), true),
        (Kind::Containerd(2, 1), Some(devmapper_1.as_str()), true),
        (Kind::Containerd(1, 7), Some(V1_MAIN), false),
    ] {
        let mut node = Node::new(kind, main);
        let report = kata_host::run(&mut node, &firecracker);
        let refused = report.checks.iter().any(|check| check.code == "KATA3024" && check.fatal);
        assert_eq!(refused, !fits, "{kind:?} {main:?}: {report:?}");
        assert!(fits || report.message.contains("overlayfs"), "{report:?}");
    }
}
