//! How MachineConfigs become one rendered configuration, and what its name is.
//!
//! Pure functions; what happens to the result is the render controller's business.

use std::sync::Arc;

use md5::{Digest, Md5};
use serde_json::{Map, Value, json};

use super::names::{
    API_VERSION, GENERATED_BY, IGNITION_VERSION, RENDERED_PREFIX, ROLE, unknown_extensions,
};
use super::pool::{annotation, name};

/// The largest rendered configuration, in bytes of JSON.
const MAX_SIZE: usize = 1_572_864;

/// The release's images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Images {
    /// The operating system.
    pub(super) os: String,
    /// Its extensions.
    pub(super) extensions: String,
    /// The release's version.
    pub(super) release: String,
    /// Whether it is of Fedora CoreOS.
    pub(super) are_fedora: bool,
}

/// The order in which MachineConfigs are merged: role `worker` by name, then the others by name.
pub(super) fn order(configs: &mut [Arc<Value>]) {
    configs.sort_by(|a, b| {
        let key = |mc: &Value| (mc["metadata"]["labels"][ROLE] != "worker", name(mc).to_owned());
        key(a).cmp(&key(b))
    });
}

/// `spec.configuration.source` for configurations in merge order.
pub(super) fn source(configs: &[Arc<Value>]) -> Value {
    configs
        .iter()
        .map(|mc| json!({"apiVersion": API_VERSION, "kind": "MachineConfig", "name": name(mc)}))
        .collect()
}

/// The name of a rendered configuration: equal content gives equal endings in all pools.
pub(super) fn rendered_name(pool: &str, spec: &Value) -> String {
    let mut text = String::from("rendered configuration, first edition\n");
    canonical(spec, &mut text);
    let digest: String = Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{RENDERED_PREFIX}{pool}-{digest}")
}

/// Merges configurations in merge order into the spec of a rendered one.
///
/// # Errors
/// The first thing that makes a configuration unusable, as it appears in `RenderDegraded`.
pub(super) fn merge(configs: &[Arc<Value>], images: &Images) -> Result<Value, String> {
    for config in configs {
        validate(&config["spec"], images.are_fedora)?;
    }
    let mut ignition = json!({});
    let mut arguments = Vec::new();
    let mut extensions = Vec::new();
    let mut fips = false;
    let mut kernel = "default";
    let (mut os, mut extensions_image) = (images.os.as_str(), images.extensions.as_str());
    for config in configs {
        let spec = &config["spec"];
        merge_value(&mut ignition, &spec["config"], "");
        arguments.extend(strings(&spec["kernelArguments"]));
        extensions.extend(strings(&spec["extensions"]));
        fips |= spec["fips"] == true;
        if let Some(kind) = spec["kernelType"].as_str().filter(|k| !k.is_empty() && *k != "default")
        {
            kernel = kind;
        }
        if annotation(config, GENERATED_BY).is_empty() {
            os = spec["osImageURL"].as_str().filter(|url| !url.is_empty()).unwrap_or(os);
            extensions_image = spec["baseOSExtensionsContainerImage"]
                .as_str()
                .filter(|url| !url.is_empty())
                .unwrap_or(extensions_image);
        }
    }
    if kernel == "realtime" && extensions.contains(&"kernel-devel") {
        return Err(
            "could not generate rendered MachineConfig: installing kernel-devel extension \
                    is not supported with kernelType: realtime"
                .to_owned(),
        );
    }
    ignition["ignition"]["version"] = json!(IGNITION_VERSION);
    for file in ignition["storage"]["files"].as_array_mut().into_iter().flatten() {
        if file["overwrite"].is_null() {
            file["overwrite"] = json!(true);
        }
    }
    Ok(json!({
        "config": ignition, "kernelArguments": arguments, "extensions": extensions, "fips": fips,
        "kernelType": kernel, "osImageURL": os, "baseOSExtensionsContainerImage": extensions_image,
    }))
}

/// Checks the size of a rendered configuration.
///
/// # Errors
/// If it is too large to be stored.
pub(super) fn check_size(rendered: &str, spec: &Value) -> Result<(), String> {
    let size = spec.to_string().len();
    if size > MAX_SIZE {
        return Err(format!(
            "size validation failed: rendered MachineConfig {rendered} is too large ({size} bytes, \
             at most {MAX_SIZE})"
        ));
    }
    Ok(())
}

/// What render checks of each MachineConfig; extensions only next to an Ignition config, and not on Fedora
/// CoreOS.
fn validate(spec: &Value, is_fedora: bool) -> Result<(), String> {
    let fail = |why: String| Err(format!("could not generate rendered MachineConfig: {why}"));
    let kernel = spec["kernelType"].as_str().unwrap_or_default();
    if !["", "default", "realtime", "64k-pages"].contains(&kernel) {
        return fail(format!("kernelType={kernel} is invalid"));
    }
    let config = &spec["config"];
    if config.is_null() {
        return Ok(());
    }
    let Some(version) = config["ignition"]["version"].as_str().filter(|v| !v.is_empty()) else {
        return fail("parsing Ignition config failed: invalid version".to_owned());
    };
    let supported = ["2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"];
    if !supported.contains(&version) {
        return fail(
            "parsing Ignition config failed: unknown version. Supported spec versions: 2.2, 3.0, \
             3.1, 3.2, 3.3, 3.4, 3.5"
                .to_owned(),
        );
    }
    for file in config["storage"]["files"].as_array().into_iter().flatten() {
        let path = file["path"].as_str().unwrap_or_default();
        if !path.starts_with('/') {
            return fail(format!(
                "invalid ignition V3 config found: file {path:?}: path not absolute"
            ));
        }
        let mode = file["mode"].as_i64().unwrap_or(0);
        if mode > 0o777 {
            return fail(format!("invalid mode 0{mode:o} for {path}, cannot exceed 0777"));
        }
    }
    let unknown = unknown_extensions(strings(&spec["extensions"]));
    if !is_fedora && !unknown.is_empty() {
        return fail(format!("invalid extensions found: [{}]", unknown.join(" ")));
    }
    Ok(())
}

/// The strings of a list.
pub(super) fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Merges Ignition: objects by key, lists by path, name or device, later values win.
fn merge_value(base: &mut Value, other: &Value, field: &str) {
    match (base, other) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(other)) => {
            for (key, value) in other {
                merge_value(base.entry(key.clone()).or_insert(Value::Null), value, key);
            }
        }
        (Value::Array(base), Value::Array(other)) => {
            for item in other {
                let key = match field {
                    "files" | "directories" | "links" => "path",
                    "units" | "dropins" | "users" | "groups" | "raid" | "luks" => "name",
                    "disks" | "filesystems" => "device",
                    _ => "",
                };
                let same = base.iter().position(|known| {
                    if key.is_empty() { known == item } else { known[key] == item[key] }
                });
                match same.and_then(|index| base.get_mut(index)) {
                    Some(known) => merge_value(known, item, ""),
                    None => base.push(item.clone()),
                }
            }
        }
        (base, other) => *base = other.clone(),
    }
}

/// JSON with sorted keys.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => canonical_object(map, out),
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn canonical_object(map: &Map<String, Value>, out: &mut String) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort();
    out.push('{');
    for key in keys {
        out.push_str(&Value::from(key.as_str()).to_string());
        out.push(':');
        canonical(&map[key.as_str()], out);
        out.push(',');
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn images() -> Images {
        Images {
            os: "os".into(),
            extensions: "ext".into(),
            release: "4.22.0".into(),
            are_fedora: false,
        }
    }

    fn config(name: &str, role: &str, spec: &Value) -> Arc<Value> {
        Arc::new(json!({"metadata": {"name": name, "labels": {(ROLE): role}}, "spec": spec}))
    }

    fn ignition(rest: &Value) -> Value {
        let mut config = json!({"ignition": {"version": "3.2.0"}});
        merge_value(&mut config, rest, "");
        config
    }

    /// Rule 12: role worker first, then the others, each by name.
    #[test]
    fn worker_configs_come_first() {
        let mut configs = vec![
            config("50-ext", "kata-oc", &json!({})),
            config("99-ssh", "worker", &json!({})),
            config("00-base", "worker", &json!({})),
            config("10-a", "kata-oc", &json!({})),
        ];
        order(&mut configs);
        let names: Vec<_> = configs.iter().map(|mc| name(mc)).collect();
        assert_eq!(names, ["00-base", "99-ssh", "10-a", "50-ext"]);
        assert_eq!(source(&configs)[3]["name"], "50-ext");
    }

    #[test]
    fn later_values_win_and_lists_are_joined() {
        let file = |data: &str| json!({"path": "/etc/a", "contents": {"source": data}});
        let unit = |dropin: &str| json!({"name": "a.service", "dropins": [{"name": dropin, "contents": "x"}]});
        let configs = [
            config(
                "00",
                "worker",
                &json!({
                    "config": ignition(&json!({"storage": {"files": [file("data:,1")]},
                        "systemd": {"units": [unit("1.conf")]}})),
                    "kernelArguments": ["a"], "extensions": ["usbguard"], "osImageURL": "mine",
                }),
            ),
            config(
                "01",
                "worker",
                &json!({
                    "config": ignition(&json!({"storage": {"files": [file("data:,2")]},
                        "systemd": {"units": [unit("2.conf")]}})),
                    "kernelArguments": ["a", "b"], "extensions": ["usbguard"], "fips": true,
                    "kernelType": "realtime",
                }),
            ),
        ];
        let spec = merge(&configs, &images()).unwrap();
        assert_eq!(
            spec["config"]["storage"]["files"],
            json!([
            {"path": "/etc/a", "contents": {"source": "data:,2"}, "overwrite": true}])
        );
        assert_eq!(spec["config"]["systemd"]["units"][0]["dropins"].as_array().unwrap().len(), 2);
        assert_eq!(spec["config"]["ignition"]["version"], "3.5.0");
        assert_eq!(spec["kernelArguments"], json!(["a", "a", "b"]));
        assert_eq!(spec["extensions"], json!(["usbguard", "usbguard"]), "not de-duplicated");
        assert_eq!(spec["fips"], true);
        assert_eq!(spec["kernelType"], "realtime");
        assert_eq!(spec["osImageURL"], "mine");
        assert_eq!(spec["baseOSExtensionsContainerImage"], "ext");
    }

    #[test]
    fn bad_content_stops_the_render() {
        for (spec, expected) in [
            (
                json!({"config": ignition(&json!({})), "extensions": ["sandboxed-containerz", "foo"]}),
                "invalid extensions found: [sandboxed-containerz foo]",
            ),
            (json!({"kernelType": "fast"}), "kernelType=fast is invalid"),
            (json!({"config": {}}), "parsing Ignition config failed: invalid version"),
            (
                json!({"config": {"ignition": {"version": "9.9.0"}}}),
                "parsing Ignition config failed: unknown version. Supported spec versions: 2.2, 3.0, \
              3.1, 3.2, 3.3, 3.4, 3.5",
            ),
            (
                json!({"config": ignition(&json!({"storage": {"files": [
                {"path": "/p", "mode": 0o1777}]}}))}),
                "invalid mode 01777 for /p, cannot exceed 0777",
            ),
            (
                json!({"kernelType": "realtime", "extensions": ["kernel-devel"]}),
                "installing kernel-devel extension is not supported with kernelType: realtime",
            ),
        ] {
            let error = merge(&[config("x", "worker", &spec)], &images()).unwrap_err();
            assert_eq!(error, format!("could not generate rendered MachineConfig: {expected}"));
        }
        let unchecked = json!({"extensions": ["sandboxed-containerz"]});
        assert!(merge(&[config("x", "worker", &unchecked)], &images()).is_ok());
    }

    #[test]
    fn a_config_that_is_too_large_is_refused() {
        let spec = json!({"config": "x".repeat(MAX_SIZE)});
        assert!(check_size("rendered-a-1", &spec).unwrap_err().contains("is too large"));
        assert_eq!(check_size("rendered-a-1", &json!({})), Ok(()));
    }

    proptest! {
        /// The name says the content: key order and pool do not change its ending.
        #[test]
        fn names_follow_content(keys in prop::collection::vec("[a-z]{1,4}", 1..6)) {
            let forward: Map<String, Value> =
                keys.iter().map(|key| (key.clone(), json!(key))).collect();
            let backward: Map<String, Value> =
                keys.iter().rev().map(|key| (key.clone(), json!(key))).collect();
            let a = rendered_name("a", &Value::Object(forward.clone()));
            let b = rendered_name("b", &Value::Object(backward));
            prop_assert_eq!(a.strip_prefix("rendered-a-"), b.strip_prefix("rendered-b-"));
            prop_assert_eq!(a.len(), "rendered-a-".len() + 32);
            let mut changed = forward;
            changed.insert("changed!".to_owned(), json!(1));
            prop_assert_ne!(a, rendered_name("a", &Value::Object(changed)));
        }
    }
}
