//! What commands in containers answer: in virtual machines, beside the host, and as far as there is a model.

use std::time::Duration;

use serde_json::json;
use simcluster::Simulation;
use simcluster::api::frontend::ExecRequest;
use simcluster::resource::PODS;

use super::{cluster, create, get, pod, with_crio, with_kata, writer};

fn exec(sim: &mut Simulation, pod: &str, argv: &[&str]) -> (String, String, i32) {
    let request = ExecRequest {
        namespace: "default".into(),
        pod: pod.into(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        ..ExecRequest::default()
    };
    let hook = sim.frontend.exec.unwrap();
    let outcome = hook(&mut sim.world, &sim.api, &request, b"").unwrap();
    (
        String::from_utf8(outcome.stdout).unwrap(),
        String::from_utf8(outcome.stderr).unwrap(),
        outcome.exit_code,
    )
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
    let script = format!("crictl inspect {container} | grep sandboxID");
    let inspected = exec(&mut sim, "debug", &["chroot", "/host", "sh", "-c", &script]).0;
    let uid = vm["metadata"]["uid"].as_str().unwrap();
    assert!(inspected.contains(&sim.world.hosts["worker-0"].sandboxes[uid].id), "{inspected}");
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
    ] {
        let (out, _, got) = exec(&mut sim, "web", &["sh", "-c", script]);
        assert_eq!((out.as_str(), got), (stdout, code), "{script}");
    }
    let (_, err, code) = exec(&mut sim, "web", &["vim"]);
    assert_eq!(code, 127);
    assert!(err.starts_with("exec: \"vim\": executable file not found in $PATH\n"), "{err}");
    assert!(err.contains("the pod is simulated"), "{err}");
}
