//! The file by which `nodeadm` of Amazon EKS keeps our import: it writes containerd's main file anew at each boot.
//!
//! It renders that file from a template without imports, merges into it what the NodeConfigs of its folder say, table by
//! table, and restarts containerd. Of a list the file with the last name counts (`mergeContainerdConfig` in
//! `nodeadm/internal/api/merge.go` of awslabs/amazon-eks-ami, read in July 2026; never seen on a node of EKS).
//! For containerd 2 it has a template of version 3. Where a NodeConfig configures containerd and names neither of the
//! plugins of version 3, it takes that of version 2 instead and writes what `containerd config migrate` makes of it, with
//! what the imported files say (`getConfigTemplateVersion` in `nodeadm/internal/containerd/config.go`).
//! Here are texts only: nothing is read, and nothing is decided.

use toml::{Table, Value};

use crate::header;

/// The folder of its NodeConfigs.
pub const FOLDER: &str = "/etc/eks/nodeadm.d";
/// The operator's NodeConfig.
pub const FILE: &str = "/etc/eks/nodeadm.d/60-kata-operator.yaml";
/// The link by which systemd starts it at each boot.
pub const ENABLED: &str = "/etc/systemd/system/multi-user.target.wants/nodeadm-run.service";

/// A plugin of version 3, named without a setting of its own.
const VERSION_3: &str = "plugins.\"io.containerd.cri.v1.images\" = {}";

/// A NodeConfig with these imports and this line of [`template_line`].
pub(crate) fn file(imports: &[String], template_line: &str) -> String {
    let imports = Value::Array(imports.iter().map(|it| Value::from(it.as_str())).collect());
    let mut text = format!(
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  containerd:\n    config: |\n      \
         imports = {imports}\n"
    );
    if !template_line.is_empty() {
        text.push_str(&format!("      {template_line}\n"));
    }
    header::add(&text)
}

/// An import as it is in our file: with a `*`, since no containerd starts without a file that is imported by its name,
/// and its owner may take it away with the NodeConfig that imports it.
pub(crate) fn as_glob(import: &str) -> String {
    let last = import.char_indices().last().filter(|_| !import.contains('*'));
    last.map_or_else(|| import.to_owned(), |(at, last)| format!("{}*{last}", &import[..at]))
}

/// The line that makes nodeadm choose the template that it used for this main file; `None` if that is unknown.
pub(crate) fn template_line(main: &str, ours: Option<&str>) -> Option<&'static str> {
    let main: Table = main.parse().ok()?;
    if main.get("version").and_then(Value::as_integer) != Some(3) {
        return Some("");
    }
    // What is migrated or dumped has it, and no template.
    let is_template =
        main.get("plugins").is_none_or(|it| it.get("io.containerd.gc.v1.scheduler").is_none());
    let is_ours = ours.is_some_and(|ours| ours.contains(VERSION_3));
    (is_template || is_ours).then_some(VERSION_3)
}

/// Whether nodeadm reads a file of its folder.
pub fn is_config(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

/// What a NodeConfig says of containerd.
#[derive(Clone, Debug, Default)]
pub struct OfContainerd {
    /// The imports that it sets.
    pub imports: Option<Vec<String>>,
    /// Whether it has settings of version 2 and none of version 3, so that with ours they are of no effect.
    pub(crate) is_version_2: bool,
}

/// Reads a NodeConfig.
///
/// # Errors
/// If it cannot be understood.
pub fn read(text: &str) -> Result<OfContainerd, String> {
    let config: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map(|location| format!(" at line {}", location.line()));
        format!("invalid YAML{}", line.unwrap_or_default())
    })?;
    let Some(toml) = config["spec"]["containerd"]["config"].as_str() else {
        return Ok(OfContainerd::default());
    };
    let table: Table = toml.parse().map_err(|error: toml::de::Error| {
        format!("invalid TOML in spec.containerd.config: {}", error.message())
    })?;
    let has = |plugin: &str| table.get("plugins").is_some_and(|it| it.get(plugin).is_some());
    Ok(OfContainerd {
        imports: table.get("imports").and_then(Value::as_array).map(|imports| {
            imports.iter().filter_map(|import| import.as_str().map(str::to_owned)).collect()
        }),
        is_version_2: has("io.containerd.grpc.v1.cri")
            && !has("io.containerd.cri.v1.images")
            && !has("io.containerd.cri.v1.runtime"),
    })
}
