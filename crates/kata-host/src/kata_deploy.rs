//! What kata-deploy, upstream's own installer of Kata, has on a node with containerd.
//!
//! Nothing is read or changed here.
//! Source: `tools/packaging/kata-deploy` of Kata Containers 4.1 and 4.2.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::containerd::Schema;
use crate::plan::{Content, Handler};

/// The name of its drop-in. That of an installation with a suffix has another one.
pub(crate) const DROP_IN: &str = "kata-deploy.toml";
/// How the name of the drop-in begins that its users may give it.
const USER_DROP_IN: &str = "zz-kata-deploy-user";
/// Where its payload is, if it has no prefix.
pub(crate) const TREE: &str = "/opt/kata";
/// The lock that it holds while it changes a node.
pub(crate) const LOCK: &str = "/run/lock/kata-deploy.lock";
/// What it may have elsewhere on a node.
pub(crate) const ELSEWHERE: [&str; 3] = [
    "/etc/modules-load.d/kata-containers-default.conf",
    "/etc/udev/rules.d/99-kata-containers-rootless-default.rules",
    "/etc/systemd/system/nydus-for-kata-tee.service",
];
/// The settings beside a shim's configuration that only say where the payload is.
pub(crate) const PREFIX_SETTINGS: &str = "10-installation-prefix.toml";

/// Its installation, as far as the container runtime reads it.
#[derive(Clone, Debug)]
pub(crate) struct KataDeploy {
    /// Its drop-ins that a folder's import reads, with what is there.
    pub(crate) drop_ins: Vec<(String, Content)>,
    /// The imports of the main file that name a drop-in of it, as they are written.
    pub(crate) imports: Vec<String>,
    /// The handlers that these configure, or why they are not such that they can be taken over.
    pub(crate) handlers: Result<BTreeMap<String, Handler>, String>,
    /// Whether they set the log level of containerd.
    pub(crate) sets_log_level: bool,
    /// Files with settings of its shims.
    pub(crate) settings: Vec<String>,
    /// Other files of it.
    pub(crate) elsewhere: Vec<String>,
}

impl KataDeploy {
    /// The handlers that it configures; none if these cannot be taken over.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (&String, &Handler)> {
        self.handlers.iter().flatten()
    }

    /// Whether it configures a handler.
    pub(crate) fn has(&self, handler: &str) -> bool {
        self.handlers.as_ref().is_ok_and(|all| all.contains_key(handler))
    }
}

/// Whether a file is one that users of kata-deploy give it.
pub(crate) fn is_of_user(name: &str) -> bool {
    name.starts_with(USER_DROP_IN)
}

/// The handlers of a drop-in of it.
///
/// # Errors
/// What else it configures, as a part of a sentence: only handlers and the log level of containerd can be taken over.
pub(crate) fn handlers(text: &str) -> Result<BTreeMap<String, Handler>, String> {
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("is no TOML: {}", error.message()))?;
    let mut handlers = BTreeMap::new();
    for (key, value) in &table {
        match (key.as_str(), value) {
            ("version" | "debug", _) => {}
            ("plugins", Value::Table(plugins)) => {
                for (plugin, section) in plugins {
                    for (name, runtime) in runtimes(plugin, section)? {
                        handlers.insert(name.clone(), handler(name, runtime)?);
                    }
                }
            }
            _ => return Err(format!("sets {key}")),
        }
    }
    Ok(handlers)
}

/// Whether a drop-in sets containerd's log level.
pub(crate) fn sets_log_level(text: &str) -> bool {
    text.parse::<Table>().is_ok_and(|table| table.contains_key("debug"))
}

/// The runtimes of a section that has nothing else.
fn runtimes<'a>(plugin: &str, section: &'a Value) -> Result<&'a Table, String> {
    let other = |key: &str| format!("sets {key}");
    if ![Schema::V1, Schema::V2, Schema::V3].iter().any(|schema| schema.plugin() == plugin) {
        return Err(other(&format!("plugins.{plugin:?}")));
    }
    let only = |table: &'a Value, name: &str, path: &str| -> Result<&'a Value, String> {
        let keys = table.as_table().into_iter().flatten();
        match keys.map(|(key, _)| key).find(|key| *key != name) {
            Some(key) => Err(other(&format!("plugins.{plugin:?}.{path}{key}"))),
            None => table.get(name).ok_or_else(|| other(&format!("plugins.{plugin:?}"))),
        }
    };
    let runtimes = only(only(section, "containerd", "")?, "runtimes", "containerd.")?;
    runtimes.as_table().ok_or_else(|| other(&format!("plugins.{plugin:?}.containerd.runtimes")))
}

fn handler(name: &str, runtime: &Value) -> Result<Handler, String> {
    const KEYS: [&str; 6] = [
        "runtime_type",
        "runtime_path",
        "privileged_without_host_devices",
        "pod_annotations",
        "container_annotations",
        "options",
    ];
    let mut keys = runtime.as_table().into_iter().flatten().map(|(key, _)| key);
    if let Some(key) = keys.find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("sets {key} of the handler {name}"));
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = Handler {
        runtime_type: text(runtime.get("runtime_type")),
        runtime_path: text(runtime.get("runtime_path")),
        config_path: text(runtime.get("options").and_then(|options| options.get("ConfigPath"))),
    };
    let is_below = |path: &str| path.strip_prefix(TREE).is_some_and(|rest| rest.starts_with('/'));
    if let Some(path) =
        [&found.runtime_path, &found.config_path].into_iter().find(|it| !is_below(it))
    {
        return Err(format!("names {path:?} for the handler {name}, which is not below {TREE}"));
    }
    Ok(found)
}

/// Whether a shim is the one in Rust, by its path. Sandboxes of one cannot be handled by the other.
pub(crate) fn is_rust(shim: &str) -> bool {
    shim.contains("/runtime-rs/")
}

#[cfg(test)]
mod tests {
    use super::handlers;

    const GOOD: &str = r#"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-qemu]
runtime_type = "io.containerd.kata-qemu.v2"
runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
privileged_without_host_devices = true
pod_annotations = ["io.katacontainers.*"]
container_annotations = ["io.kubernetes.container.terminationMessage*"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-qemu.options]
ConfigPath = "/opt/kata/share/defaults/kata-containers/runtimes/qemu/configuration-qemu.toml"
[debug]
level = "debug"
"#;

    #[test]
    fn handlers_and_the_log_level_can_be_taken_over() {
        let found = handlers(GOOD).unwrap();
        let names: Vec<&String> = found.keys().collect();
        assert_eq!(names, ["kata-qemu"]);
        assert_eq!(found["kata-qemu"].runtime_path, "/opt/kata/bin/containerd-shim-kata-v2");
    }

    #[test]
    fn all_else_is_named() {
        let runtime = "plugins.\"io.containerd.cri.v1.runtime\"";
        let snapshotter = GOOD
            .replace("pod_annotations = [\"io", "snapshotter = \"nydus\"\npod_annotations = [\"io");
        let prefix = GOOD.replace("/opt/kata/bin", "/data/opt/kata/bin");
        for (text, error) in [
            (format!("{GOOD}[proxy_plugins.nydus]\ntype = \"snapshot\""), "sets proxy_plugins"),
            (snapshotter, "sets snapshotter of the handler kata-qemu"),
            (
                prefix,
                "names \"/data/opt/kata/bin/containerd-shim-kata-v2\" for the handler kata-qemu, which is not below \
                 /opt/kata",
            ),
            (
                format!(
                    "{GOOD}[plugins.\"io.containerd.cri.v1.images\".runtime_platforms.kata-qemu]\nsnapshotter = \"nydus\""
                ),
                "sets plugins.\"io.containerd.cri.v1.images\"",
            ),
            (
                format!("[{runtime}.containerd]\ndefault_runtime_name = \"kata-qemu\""),
                "sets plugins.\"io.containerd.cri.v1.runtime\".containerd.default_runtime_name",
            ),
            ("[plugins".to_owned(), "is no TOML: unclosed table, expected `]`"),
        ] {
            assert_eq!(handlers(&text).unwrap_err(), error, "{text}");
        }
    }
}
