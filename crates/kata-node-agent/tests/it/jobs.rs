//! The init containers of a Job as the operator makes it, on a real containerd with a real runc, from images that are not
//! what they should be.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use kata_api::names::node_job;
use kata_api::node_task::{NodeAction, Outcome};
use kata_plan::forms;
use prost::Message;
use serde_json::{Value, json};

use crate::lab::{Mounted, Node, command, packages, task};
use crate::payload;
use crate::pods::{Config, Empty, Id, Namespaces};

/// `ImageSpec`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Image {
    #[prost(string, tag = "1")]
    image: String,
}

/// `Mount`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(string, tag = "2")]
    host_path: String,
    #[prost(bool, tag = "3")]
    readonly: bool,
    /// Served by containerd 2.0 and newer.
    #[prost(bool, tag = "8")]
    recursive_read_only: bool,
}

/// `Int64Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Number {
    #[prost(int64, tag = "1")]
    value: i64,
}

/// `Capability`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Capabilities {
    #[prost(string, repeated, tag = "1")]
    add: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    drop: Vec<String>,
}

/// `LinuxContainerSecurityContext`.
#[derive(Clone, PartialEq, Eq, Message)]
struct ContainerSecurity {
    #[prost(message, optional, tag = "1")]
    capabilities: Option<Capabilities>,
    #[prost(message, optional, tag = "3")]
    namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "5")]
    run_as_user: Option<Number>,
    #[prost(bool, tag = "7")]
    readonly_rootfs: bool,
    #[prost(bool, tag = "11")]
    no_new_privs: bool,
}

/// `LinuxContainerConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    security: Option<ContainerSecurity>,
}

/// `ContainerMetadata`.
#[derive(Clone, PartialEq, Eq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

/// `ContainerConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<Image>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    mounts: Vec<Mount>,
    #[prost(string, tag = "11")]
    log_path: String,
    #[prost(message, optional, tag = "15")]
    linux: Option<LinuxContainer>,
}

/// `CreateContainerRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct CreateRequest {
    #[prost(string, tag = "1")]
    sandbox: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<Config>,
}

/// `ContainerStatusResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<ContainerStatus>,
}

/// `ContainerStatus`.
#[derive(Clone, PartialEq, Eq, Message)]
struct ContainerStatus {
    /// 2 is `CONTAINER_EXITED`.
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int32, tag = "7")]
    exit_code: i32,
}

const OPERATOR: &str = "example.invalid/operator:1";
/// The folder of the pod on the node, as the kubelet has one.
const POD: &str = "/var/lib/kubelet/pods/uid";
/// What an image starts instead of the operator's program: it writes wherever it can.
const EVIL: &str = "#!/busybox sh\n\
    for folder in /host /host/opt /host/opt/bin /host/opt/kata-operator /host/opt/kata-operator/versions \
    /host/opt/kata-operator/staging /host/run/lock /host/etc /host/usr; do\n\
    /busybox touch $folder/evil && echo reached $folder; done; exit 0\n";

/// A node with the pod of a Job.
struct Pod {
    // Goes first: the node removes its folder.
    _snapshots: Mounted,
    release: &'static str,
    node: Node,
    sandbox: (String, Config),
    job: Value,
    /// How many containers there were.
    count: u32,
}

impl Pod {
    fn start(release: &'static str) -> Self {
        let mut snapshots = None;
        let prepare = |root: &Path| {
            snapshots = Some(Mounted::small(&root.join("var/lib/containerd"), "size=1g"));
            for folder in ["opt/bin", "opt/kata-operator/versions", "root"] {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
        };
        let node = Node::start_on(release, "job", prepare);
        let pause = node.root.join("tmp/pause");
        with_busybox(release, &pause);
        let waits = json!({"Cmd": ["/busybox", "sleep", "3600"]});
        import(&node, release, "example.invalid/pause:1", &waits, &pause);
        let own = node.root.join("tmp/own");
        program(&agent(), &own.join("usr/bin/kata-operator"));
        with_libraries(&own);
        import(&node, release, OPERATOR, &json!({}), &own);
        let job = forms::jobs().into_iter().find(|job| {
            job["metadata"]["annotations"][node_job::ACTION] == NodeAction::Install.as_str()
        });
        let sandbox = node.sandbox("job", "runc").unwrap();
        let snapshots = snapshots.unwrap();
        Self { _snapshots: snapshots, release, node, sandbox, job: job.unwrap(), count: 0 }
    }

    /// Runs an init container from an image as the kubelet does. Its exit code and what it said.
    fn run(&mut self, name: &str, image: &str) -> Result<(i32, String), String> {
        let pod = &self.job["spec"]["template"]["spec"];
        let containers = pod["initContainers"].as_array().unwrap();
        let container = containers.iter().find(|container| container["name"] == name).unwrap();
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mounts = mounts.iter().map(|mount| self.mount(pod, mount)).collect();
        let mut command = strings(&container["command"]);
        if let Some(at) = command.iter().position(|word| word == "--task") {
            command[at + 1] = task(NodeAction::Install, image, &["kata"]);
        }
        let context = &container["securityContext"];
        let capabilities = &context["capabilities"];
        self.count += 1;
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: format!("{name}-{}", self.count) }),
            image: Some(Image { image: image.to_owned() }),
            command,
            mounts,
            log_path: format!("{}.log", self.count),
            linux: Some(LinuxContainer {
                security: Some(ContainerSecurity {
                    capabilities: Some(Capabilities {
                        add: strings(&capabilities["add"]),
                        drop: strings(&capabilities["drop"]),
                    }),
                    namespaces: Some(Namespaces { network: 2, pid: 1 }),
                    run_as_user: Some(Number { value: 0 }),
                    readonly_rootfs: context["readOnlyRootFilesystem"] == true,
                    no_new_privs: context["allowPrivilegeEscalation"] == false,
                }),
            }),
        };
        let (sandbox, sandbox_config) = self.sandbox.clone();
        let request =
            CreateRequest { sandbox, config: Some(config), sandbox_config: Some(sandbox_config) };
        let id: Id = self.node.call("CreateContainer", &request)?;
        self.node.call::<Empty>("StartContainer", &id)?;
        let mut code = None;
        self.node.until("the container has ended", || {
            let response: StatusResponse = self.node.call("ContainerStatus", &id).unwrap();
            code = response.status.filter(|status| status.state == 2).map(|it| it.exit_code);
            code.is_some()
        });
        self.node.call::<Empty>("RemoveContainer", &id)?;
        let log = self.node.root.join(format!("var/log/{}.log", self.count));
        Ok((code.unwrap(), fs::read_to_string(log).unwrap()))
    }

    /// A mount as the kubelet asks for it; it makes what is not there, as the volume permits.
    fn mount(&self, pod: &Value, mount: &Value) -> Mount {
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let folder = volume["hostPath"]["path"].as_str().map_or_else(
            || format!("{POD}/volumes/{}", volume["name"].as_str().unwrap()),
            str::to_owned,
        );
        let there = self.node.root.join(folder.trim_start_matches('/'));
        assert!(volume["hostPath"]["type"] != "Directory" || there.is_dir(), "{volume}");
        let sub = mount["subPath"].as_str().map_or_else(String::new, |path| format!("/{path}"));
        let folder = format!("{folder}{sub}");
        fs::create_dir_all(self.node.root.join(folder.trim_start_matches('/'))).unwrap();
        Mount {
            container_path: mount["mountPath"].as_str().unwrap().to_owned(),
            host_path: folder,
            readonly: mount["readOnly"] == true,
            recursive_read_only: mount["recursiveReadOnly"] == "IfPossible"
                && self.release.starts_with('2'),
        }
    }

    /// An image with a payload and what else this adds to it.
    fn payload(&self, name: &str, config: &Value, add: fn(&Path)) -> String {
        let folder = payload::image(&self.node.root.join("tmp"), name);
        with_busybox(self.release, &folder);
        with_libraries(&folder);
        add(&folder);
        let image = format!("example.invalid/{name}:3.30.0");
        import(&self.node, self.release, &image, config, &folder);
        image
    }

    /// Where a program of an image wrote, on the file system with the node's root. `/run/lock` is another one.
    fn reached(&self) -> BTreeSet<String> {
        let output = command("find").arg(&self.node.root).args(["-xdev", "-name", "evil"]).output();
        let root = format!("{}/", self.node.root.display());
        let found = String::from_utf8(output.unwrap().stdout).unwrap();
        let found = found.lines().map(|path| path.trim_start_matches(&root).to_owned());
        found.filter(|path| !path.starts_with("var/lib/containerd/")).collect()
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn program(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}

fn with_busybox(release: &str, folder: &Path) {
    program(&packages(release).join("bin/busybox"), &folder.join("busybox"));
}

fn agent() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_kata-node-agent"))
}

/// What is shipped is linked statically; what is tested needs these.
fn with_libraries(folder: &Path) {
    let output = command("ldd").arg(agent()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    for library in said.split_whitespace().filter(|word| word.starts_with('/')) {
        program(Path::new(library), &folder.join(library.trim_start_matches('/')));
    }
}

fn evil(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, EVIL).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn import(node: &Node, release: &str, name: &str, config: &Value, folder: &Path) {
    let mut layer = tar::Builder::new(Vec::new());
    layer.follow_symlinks(false);
    layer.append_dir_all(".", folder).unwrap();
    node.import(release, name, config, &layer.into_inner().unwrap());
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    an_image_reaches_nothing_but_the_staging_folder("2");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    an_image_reaches_nothing_but_the_staging_folder("1.7");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_6() {
    an_image_reaches_nothing_but_the_staging_folder("1.6");
}

/// Ends the test if a program of the image runs, or the payload is not staged.
fn is_staged(pod: &mut Pod, image: &str) {
    let (code, said) = pod.run(node_job::STAGE_CONTAINER, image).unwrap();
    assert!(code == 0 && said.contains(&format!("staged {image}")), "{image}: {code} {said}");
    assert_eq!(pod.reached(), BTreeSet::new(), "{image}: {said}");
}

fn an_image_reaches_nothing_but_the_staging_folder(release: &'static str) {
    let mut pod = Pod::start(release);
    let copied = pod.run(node_job::COPY_CONTAINER, OPERATOR);
    assert_eq!(copied, Ok((0, String::new())));
    let none = json!({});
    let good = pod.payload("good", &none, |_| {});
    is_staged(&mut pod, &good);
    let has_evil = pod.payload("has", &none, |image| {
        evil(&image.join("host/kata-operator"));
        evil(&image.join("host/opt/kata-operator/staging/kata-operator"));
    });
    is_staged(&mut pod, &has_evil);
    let links_to_evil = pod.payload("links", &none, |image| {
        symlink("other", image.join("host")).unwrap();
        evil(&image.join("other/kata-operator"));
    });
    is_staged(&mut pod, &links_to_evil);
    let volumes = json!({"Volumes": {"/host": {}, "/host/opt": {}}});
    let declares = pod.payload("declares", &volumes, |image| {
        evil(&image.join("host/kata-operator"));
    });
    is_staged(&mut pod, &declares);

    // containerd mounts the volume that this image declares over the mounts of the pod, so the image's program runs.
    let covers = pod.payload("covers", &json!({"Volumes": {"/cover": {}}}), |image| {
        symlink("host", image.join("cover")).unwrap();
        evil(&image.join("host/kata-operator"));
    });
    let (code, said) = pod.run(node_job::STAGE_CONTAINER, &covers).unwrap();
    let reached: Vec<&str> =
        said.lines().filter_map(|line| Some(line.split_once(" reached ")?.1)).collect();
    assert_eq!(reached, ["/host", "/host/opt/kata-operator/staging", "/host/run/lock"], "{said}");
    assert_eq!(code, 0, "{said}");
    assert_eq!(pod.reached(), ["opt/kata-operator/staging/evil".to_owned()].into(), "{said}");
    let report = pod.node.run(NodeAction::Install, &covers, &["kata"]);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");

    let report = pod.node.run(NodeAction::Install, &good, &["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
}
