//! What commands in containers answer: in virtual machines, beside the host, and as far as there is a model.

use std::time::Duration;

use serde_json::json;
use simcluster::Simulation;
use simcluster::api::ApiError;
use simcluster::api::frontend::{CTRL_C, CTRL_D, ExecOutcome, ExecRequest, Session};
use simcluster::resource::PODS;

use super::{cluster, create, get, pod, with_crio, with_kata, writer};

fn exec(sim: &mut Simulation, pod: &str, argv: &[&str]) -> (String, String, i32) {
    let outcome = send(sim, (pod, argv), &mut Session::default(), "").unwrap();
    (text(outcome.stdout), text(outcome.stderr), outcome.exit_code)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn send(
    sim: &mut Simulation,
    (pod, argv): (&str, &[&str]),
    session: &mut Session,
    input: &str,
) -> Result<ExecOutcome, ApiError> {
    let request = ExecRequest {
        namespace: "default".into(),
        pod: pod.into(),
        attach: argv.is_empty(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        ..ExecRequest::default()
    };
    let hook = sim.frontend.exec.unwrap();
    hook(&mut sim.world, &sim.api, &request, session, input.as_bytes())
}

#[test]
fn a_sandboxed_pod_has_a_kernel_and_processes_of_its_own() {
    let mut sim = with_crio(0, 1);
    with_kata(&mut sim, "worker-0");
    let limits = json!([{
        "name": "main", "image": "tools:1", "command": ["sleep", "infinity"],
        "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
    }]);
    create(&mut sim, &PODS, "default", pod("vm", json!({"runtimeClassName": "kata"})));
    let sized = json!({"runtimeClassName": "kata", "containers": limits});
    create(&mut sim, &PODS, "default", pod("sized", sized));
    create(&mut sim, &PODS, "default", pod("plain", json!({})));
    sim.advance(Duration::from_secs(20));
    let host = sim.world.hosts["worker-0"].clone();
    let mut ask = |pod: &str, argv: &[&str]| exec(&mut sim, pod, argv).0;
    let boot_id = "/proc/sys/kernel/random/boot_id";
    assert_eq!(ask("plain", &["cat", boot_id]).trim(), host.boot_id);
    assert_ne!(ask("vm", &["cat", boot_id]), ask("plain", &["cat", boot_id]));
    assert_ne!(ask("vm", &["cat", boot_id]), ask("sized", &["cat", boot_id]));
    let uptime = |text: String| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    let young = uptime(ask("vm", &["cat", "/proc/uptime"]));
    assert!((10.0..20.0).contains(&young), "{young}");
    assert!(uptime(ask("plain", &["cat", "/proc/uptime"])) > young);
    assert_eq!(ask("plain", &["cat", "/proc/cmdline"]).trim(), host.cmdline);
    let guest = ask("vm", &["cat", "/proc/cmdline"]);
    assert!(guest.contains(" nr_cpus=4 ") && guest.contains("agent.log=debug"), "{guest}");
    let cpus = ["sh", "-c", "cat /proc/cpuinfo | grep processor | wc -l"];
    assert_eq!((ask("plain", &cpus), ask("vm", &cpus)), ("4\n".into(), "1\n".into()));
    assert_eq!(ask("sized", &["nproc"]), "3\n");
    assert_eq!(ask("vm", &["uname", "-r"]), ask("plain", &["uname", "-r"]));

    let uid = get(&sim, &PODS, "default", "vm")["metadata"]["uid"].as_str().unwrap().to_owned();
    let id = host.sandboxes[&uid].id.clone();
    assert_eq!(id.len(), 64);
    let of_sandbox = |sim: &Simulation| -> Vec<String> {
        let processes = sim.world.hosts["worker-0"].processes.values();
        let mut names: Vec<_> = processes
            .filter(|process| process.argv.iter().any(|word| word.contains(&id)))
            .map(|process| process.argv[0].clone())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        of_sandbox(&sim),
        ["/usr/bin/containerd-shim-kata-v2", "/usr/libexec/qemu-kiwi", "/usr/libexec/virtiofsd"]
    );
    let writer = writer(&sim);
    sim.api.delete(writer, &PODS, "default", "vm", &Default::default()).unwrap();
    sim.advance(Duration::from_secs(5));
    assert!(of_sandbox(&sim).is_empty());
}

#[test]
fn a_debug_pod_sees_the_host() {
    let mut sim = with_crio(0, 1);
    with_kata(&mut sim, "worker-0");
    create(&mut sim, &PODS, "default", pod("vm", json!({"runtimeClassName": "kata"})));
    let debug = json!({
        "nodeName": "worker-0", "hostPID": true, "hostNetwork": true,
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "containers": [{
            "name": "debug", "image": "tools:1", "command": ["sh"],
            "volumeMounts": [{"name": "host", "mountPath": "/host"}],
            "securityContext": {"privileged": true},
        }],
    });
    create(&mut sim, &PODS, "default", pod("debug", debug));
    sim.advance(Duration::from_secs(20));
    let drop_in = "etc/crio/crio.conf.d/50-kata";
    let direct = exec(&mut sim, "debug", &["cat", &format!("/host/{drop_in}")]);
    let chroot = exec(&mut sim, "debug", &["chroot", "/host", "cat", &format!("/{drop_in}")]);
    assert_eq!(direct, chroot);
    assert!(direct.0.starts_with("[crio.runtime.runtimes.kata]"), "{direct:?}");
    let listed = exec(&mut sim, "debug", &["ls", "/host/etc/crio/crio.conf.d"]).0;
    assert_eq!(listed, "00-default\n50-kata\n");
    let qemu =
        exec(&mut sim, "debug", &["sh", "-c", "ps -ef | grep qemu-kiwi | grep sandbox- | wc -l"]);
    assert_eq!(qemu.0, "1\n");
    let vm = get(&sim, &PODS, "default", "vm");
    let container = vm["status"]["containerStatuses"][0]["containerID"].as_str().unwrap();
    let container = container.strip_prefix("cri-o://").unwrap().to_owned();
    let uid = vm["metadata"]["uid"].as_str().unwrap();
    let sandbox = sim.world.hosts["worker-0"].sandboxes[uid].id.clone();
    let script = format!(
        "sandboxID=$(crictl inspect {container} | jq -r '.info.sandboxID')\necho $sandboxID\n\
         ps aux | grep qemu | grep $sandboxID | wc -l; echo $?"
    );
    let inspected = exec(&mut sim, "debug", &["chroot", "/host", "sh", "-c", &script]).0;
    assert_eq!(inspected, format!("{sandbox}\n1\n0\n"));
    let pods = exec(&mut sim, "debug", &["chroot", "/host", "crictl", "pods"]).0;
    assert!(pods.lines().any(|line| line.contains(" vm ") && line.ends_with("kata")), "{pods}");
}

#[test]
fn commands_answer_as_far_as_there_is_a_model() {
    let mut sim = cluster(0, 1);
    create(&mut sim, &PODS, "default", pod("web", json!({})));
    sim.advance(Duration::from_secs(10));
    for (script, stdout, code) in [
        ("echo one; echo two", "one\ntwo\n", 0),
        ("false && echo no || echo yes", "yes\n", 0),
        ("echo \"$HOSTNAME\" 'a  b'", "web a  b\n", 0),
        ("cat /nowhere 2>/dev/null; echo $HOME", "/root\n", 0),
        ("exit 3", "", 3),
        ("| cat", "", 2),
        ("echo 'a", "", 2),
        ("echo a | tr a b", "", 127),
        ("sleep 1 &", "", 2),
        ("a=one b=\"$a  two\"; echo $b; echo \"$b\"", "one two\none  two\n", 0),
        ("export A=1; echo ${A}$B-", "1-\n", 0),
        ("false; echo $?; echo $?", "1\n0\n", 0),
        ("a=$(false); echo $?$a", "1\n", 0),
        ("echo a$(echo b; echo \"c)\")d `echo e`", "ab c)d e\n", 0),
        ("echo \"$(echo \"a  b\")\" '$(x)'", "a  b $(x)\n", 0),
        ("echo $(exit 3)$?", "3\n", 0),
        ("echo $(echo a", "", 2),
        ("false &&\necho no\necho a |\n wc -l", "1\n", 0),
        ("echo a &&", "", 2),
        ("cat /none 2>&1 | wc -l; cat /none 2>/dev/null | wc -l", "1\n0\n", 0),
        ("echo \"a\\nb\\\"\" $(echo \\\" \"\\\")\")", "a\\nb\" \" \")\n", 0),
        ("$none; echo ${none:-a}", "", 2),
        ("$none; echo ${HOME}", "/root\n", 0),
        ("echo \"echo 'a\" | sh; echo $?", "2\n", 0),
        ("echo '{\"a\": [{\"b\": \"c\"}]}' | jq '.a[].b'", "\"c\"\n", 0),
        ("echo '{\"a\": [{\"b\": \"c\"}]}' | jq -r .a[0].b", "c\n", 0),
        ("echo '{}' | jq .a", "null\n", 0),
        ("echo '{}' | jq keys", "", 3),
        ("echo x | jq .a", "", 2),
    ] {
        let (out, _, got) = exec(&mut sim, "web", &["sh", "-c", script]);
        assert_eq!((out.as_str(), got), (stdout, code), "{script}");
    }
    let deep = format!("echo {}a{}", "$(echo ".repeat(20_000), ")".repeat(20_000));
    let (_, err, _) = exec(&mut sim, "web", &["sh", "-c", &deep]);
    assert!(err.contains("too many commands in each other"), "{err}");
    let (_, err, code) = exec(&mut sim, "web", &["vim"]);
    assert_eq!(code, 127);
    assert!(err.starts_with("exec: \"vim\": executable file not found in $PATH\n"), "{err}");
    assert!(err.contains("the pod is simulated"), "{err}");
}

/// What is typed into a shell, line by line: what each line prints, and the prompt after it.
fn typed(
    sim: &mut Simulation,
    command: (&str, &[&str]),
    lines: &[&str],
) -> Vec<(String, Option<String>)> {
    let mut session = Session::default();
    let mut answers = Vec::new();
    for line in lines {
        let outcome = send(sim, command, &mut session, &format!("{line}\n")).unwrap();
        answers.push((text(outcome.stdout), outcome.prompt));
    }
    answers
}

#[test]
fn a_shell_keeps_its_variables_and_starts_another_on_the_host() {
    let mut sim = with_crio(0, 1);
    let debug = json!({
        "nodeName": "worker-0", "hostPID": true, "hostNetwork": true, "restartPolicy": "Never",
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "containers": [{
            "name": "debug", "image": "tools:1", "stdin": true, "tty": true,
            "volumeMounts": [{"name": "host", "mountPath": "/host"}],
        }],
    });
    create(&mut sim, &PODS, "default", pod("debug", debug));
    create(&mut sim, &PODS, "default", pod("web", json!({})));
    sim.advance(Duration::from_secs(20));
    let lines = [
        "a='one",
        "two'; echo \"$a\"",
        "cat /etc/crio/crio.conf",
        "chroot /host bash",
        "cat /etc/crio/crio.conf; echo $a",
        "exit 3",
        "echo $a $?",
        "exit 4",
    ];
    let answers = typed(&mut sim, ("debug", &[]), &lines);
    let answers: Vec<(&str, Option<&str>)> =
        answers.iter().map(|(out, prompt)| (out.as_str(), prompt.as_deref())).collect();
    let (own, host) = (Some("(simulated) # "), Some("(simulated) [root@worker-0 /]# "));
    assert_eq!(
        answers,
        [
            ("", Some("> ")),
            ("one\ntwo\n", own),
            ("", own),
            ("", host),
            ("[crio.runtime]\n\n", host),
            ("", own),
            ("one two 3\n", own),
            ("", None),
        ]
    );
    // The container ends with its shell, and only with that of its own.
    sim.advance(Duration::from_secs(5));
    let ended = get(&sim, &PODS, "default", "debug");
    assert_eq!(ended["status"]["phase"], "Failed");
    let state = &ended["status"]["containerStatuses"][0]["state"];
    assert_eq!(state["terminated"]["exitCode"], 4);
    // What is typed can be given up, and the end of the input ends every shell.
    let lines = ["echo 'a", CTRL_C, "echo $?", "sh", "echo 'b", CTRL_D, "echo $?", CTRL_D];
    let answers = typed(&mut sim, ("web", &["bash"]), &lines);
    let prompts: Vec<Option<&str>> = answers.iter().map(|(_, it)| it.as_deref()).collect();
    let next = Some("> ");
    assert_eq!(prompts, [next, own, own, own, next, own, own, None]);
    assert_eq!((answers[2].0.as_str(), answers[6].0.as_str()), ("130\n", "2\n"));
    sim.advance(Duration::from_secs(5));
    assert_eq!(get(&sim, &PODS, "default", "web")["status"]["phase"], "Running");
    let refused = send(&mut sim, ("web", &[]), &mut Session::default(), "").unwrap_err();
    assert!(refused.to_string().contains("whose command is a shell"), "{refused}");
}
