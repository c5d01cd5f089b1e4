//! The list of real clusters in the support matrix: a line for each report of `kubectl kata accept` that was sent in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// The page, and what stands before and after the list in it.
pub(super) const PAGE: &str = "docs/support-matrix.md";
const BEGIN: &str = "<!-- The reports in docs/accepted; `cargo xtask codegen` writes this. -->\n";
const END: &str = "<!-- The end of the reports. -->\n";
/// The folder with the reports, as `-o json` prints them.
const REPORTS: &str = "docs/accepted";
/// What the list says of a cluster: the title, and where it is in the report.
const COLUMNS: [(&str, &str); 8] = [
    ("Platform", "/environment/platform"),
    ("Kubernetes", "/environment/kubernetes"),
    ("System", "/environment/system"),
    ("Kernel", "/environment/kernel"),
    ("Machine", "/environment/architecture"),
    ("Container runtime", "/environment/containerRuntime"),
    ("Kata", "/environment/kata"),
    ("VMM", "/environment/vmm"),
];

/// The page with the list of the reports that are there.
///
/// # Errors
/// If a file cannot be read or is no report of a real cluster, or the page has no place for the list.
pub(super) fn page(root: &Path) -> Result<String, String> {
    let page = read(&root.join(PAGE))?;
    let mut reports = BTreeMap::new();
    for path in files(&root.join(REPORTS))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let report = serde_json::from_str(&read(&path)?);
        let report = report.map_err(|error| format!("{REPORTS}/{name} is no JSON: {error}"))?;
        reports.insert(name, report);
    }
    let list = list(&reports)?;
    let around = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = around.ok_or_else(|| {
        format!("{PAGE} has no line `{}` with `{}` after it", BEGIN.trim(), END.trim())
    })?;
    Ok(format!("{before}{BEGIN}{list}{END}{after}"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The files of a folder; none if it is not there.
fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let failed = |error| format!("cannot list {}: {error}", folder.display());
    match fs::read_dir(folder) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// The list, the newest report first. Pure.
fn list(reports: &BTreeMap<String, Value>) -> Result<String, String> {
    if reports.is_empty() {
        return Ok(
            "No report has come yet, so no row below has seen a virtual machine.\n".to_owned()
        );
    }
    let mut lines = Vec::new();
    for (name, report) in reports {
        if report["kind"] != "AcceptReport" || report["simulated"] != false {
            return Err(format!(
                "{REPORTS}/{name} is not what `kubectl kata accept -o json` prints for a real cluster"
            ));
        }
        let date = report["time"].as_str().and_then(|time| time.get(..10)).unwrap_or("unknown");
        let facts = report["steps"].as_array().into_iter().flatten();
        let facts = facts.flat_map(|step| step["facts"].as_array().into_iter().flatten());
        let failed = facts.filter(|fact| fact["result"] == "failed").count();
        let result = match (report["success"] == true, failed) {
            (true, _) => "accepted".to_owned(),
            (false, 0) => "not completed".to_owned(),
            (false, failed) => format!("{failed} failed"),
        };
        let cells = COLUMNS.map(|(_, place)| {
            let text = report.pointer(place).and_then(Value::as_str).unwrap_or("unknown");
            // A report comes from others: it must not end a cell, or bring markup.
            text.replace(['|', '<', '>', '[', ']', '`', '\n'], " ")
        });
        let name = format!("[{date}](accepted/{name})");
        lines.push((date.to_owned(), format!("| {name} | {} | {result} |\n", cells.join(" | "))));
    }
    lines.sort_by(|a, b| b.cmp(a));
    let titles = COLUMNS.map(|(title, _)| title).join(" | ");
    let rule = "---|".repeat(COLUMNS.len() + 2);
    let lines: String = lines.into_iter().map(|(_, line)| line).collect();
    Ok(format!("| Report | {titles} | Result |\n|{rule}\n{lines}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(time: &str, success: bool, result: &str) -> Value {
        json!({
            "apiVersion": "cli.kata-operator.dev/v1", "kind": "AcceptReport", "simulated": false,
            "time": time, "success": success,
            "environment": {
                "platform": "kubernetes", "kubernetes": "v1.34.2", "system": "Debian <b>|12",
                "kernel": "6.1.0-41-amd64", "architecture": "amd64",
                "containerRuntime": "containerd://1.7.24", "kata": "4.1.0",
            },
            "steps": [{"id": "verify", "facts": [{"expected": "a", "seen": "b", "result": result}]}],
        })
    }

    #[test]
    fn each_report_is_a_line_and_the_newest_is_first() {
        let reports = BTreeMap::from([
            ("k3s.json".to_owned(), report("2026-11-30T10:00:00Z", true, "held")),
            ("kubeadm.json".to_owned(), report("2026-12-01T10:00:00Z", false, "failed")),
        ]);
        let facts = "kubernetes | v1.34.2 | Debian  b  12 | 6.1.0-41-amd64 | amd64 | containerd://1.7.24 | 4.1.0 | unknown";
        let expected = format!(
            "| Report | Platform | Kubernetes | System | Kernel | Machine | Container runtime | Kata | VMM | Result |\n\
             |---|---|---|---|---|---|---|---|---|---|\n\
             | [2026-12-01](accepted/kubeadm.json) | {facts} | 1 failed |\n\
             | [2026-11-30](accepted/k3s.json) | {facts} | accepted |\n"
        );
        assert_eq!(list(&reports).unwrap(), expected);
    }

    #[test]
    fn a_simulated_cluster_is_no_real_one() {
        let mut simulated = report("2026-11-30T10:00:00Z", true, "held");
        simulated["simulated"] = json!(true);
        for wrong in [simulated, json!({"kind": "VerifyReport", "simulated": false}), json!([])] {
            let reports = BTreeMap::from([("a.json".to_owned(), wrong)]);
            let error = list(&reports).unwrap_err();
            assert!(error.starts_with("docs/accepted/a.json is not what"), "{error}");
        }
    }
}
