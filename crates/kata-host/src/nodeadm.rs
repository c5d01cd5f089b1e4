//! The file by which `nodeadm` of Amazon EKS keeps our import: it writes containerd's main file anew at each boot.
//!
//! It renders that file from a template without imports, merges into it what the NodeConfigs of its folder say, table by
//! table, and restarts containerd. Of a list the file with the last name counts (`mergeContainerdConfig` in
//! `nodeadm/internal/api/merge.go` of awslabs/amazon-eks-ami, read in July 2026; never seen on a node of EKS).
//! Here are texts only: nothing is read, and nothing is decided.

use toml::{Table, Value};

use crate::header;

/// The folder of its NodeConfigs.
pub const FOLDER: &str = "/etc/eks/nodeadm.d";
/// Ours.
pub const FILE: &str = "/etc/eks/nodeadm.d/60-kata-operator.yaml";
/// The link by which systemd starts it at each boot.
pub const ENABLED: &str = "/etc/systemd/system/multi-user.target.wants/nodeadm-run.service";

/// A NodeConfig with these imports.
pub fn file(imports: &[String]) -> String {
    let imports: Vec<Value> = imports.iter().map(|import| Value::from(import.as_str())).collect();
    header::add(&format!(
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  containerd:\n    config: |\n      \
         imports = {}\n",
        Value::Array(imports)
    ))
}

/// The imports that a NodeConfig sets; `None` if it sets none. Its TOML is a text in YAML: the key `imports` is at the
/// beginning of a line there, or of the text.
pub fn imports(text: &str) -> Option<Vec<String>> {
    let mut found = None;
    for (at, _) in text.match_indices("imports") {
        let before = text[..at].trim_end_matches([' ', '\t']);
        let is_key = before.is_empty() || before.ends_with(['\n', '|', '"', '\'', ':']);
        let rest = text[at + "imports".len()..].trim_start();
        let Some(list) = rest.strip_prefix('=').filter(|_| is_key) else { continue };
        let Some(end) = list.find(']') else { continue };
        // In a quoted text of YAML the quotes of TOML are escaped.
        let list = list[..=end].replace("\\\"", "\"");
        let Ok(table) = format!("imports = {list}").parse::<Table>() else { continue };
        let values = table.get("imports").and_then(Value::as_array).into_iter().flatten();
        found = Some(values.filter_map(|value| value.as_str().map(str::to_owned)).collect());
    }
    found
}
