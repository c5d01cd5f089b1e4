//! A linter that is not ours reads the manifests, the chart and the workflow of CI. `deploy/checkov.yaml` has the rules
//! that do not hold, with reasons.

use std::path::Path;

use serde_json::Value;

use crate::files::{output, program};

#[test]
#[ignore = "needs helm and checkov"]
fn checkov_accepts_manifests_and_chart() {
    let helm = program("KATA_TEST_HELM");
    let mut files = vec![
        "deploy/kubernetes/operator.yaml".to_owned(),
        "deploy/openshift/operator.yaml".to_owned(),
    ];
    for platform in ["kubernetes", "openshift"] {
        let setting = format!(
            "platform={platform},monitor.image=registry.example/monitor:1,image.repository=registry.example/operator"
        );
        let words =
            ["template", "r", "deploy/helm/kata-operator", "-n", "kata-home", "--set", &setting];
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{platform}.yaml"));
        std::fs::write(&path, output(&helm, &words).unwrap()).unwrap();
        files.push(path.to_str().unwrap().to_owned());
    }
    for file in files {
        accepts("kubernetes", &file, 100);
    }
}

#[test]
#[ignore = "needs checkov"]
fn checkov_accepts_the_workflow_of_ci() {
    accepts("github_actions", ".github/workflows/ci.yaml", 20);
    accepts("github_actions", ".github/workflows/release.yaml", 20);
    accepts("github_actions", ".github/workflows/accept.yaml", 15);
}

/// Checkov has no finding in a file, and applied at least so many rules of a framework to it.
fn accepts(framework: &str, file: &str, rules: u64) {
    let checkov = program("KATA_TEST_CHECKOV");
    let words = ["--config-file", "deploy/checkov.yaml", "--framework", framework];
    let words = [&words[..], &["--soft-fail", "-o", "json", "-f", file]].concat();
    let report: Value = serde_json::from_str(&output(&checkov, &words).unwrap()).unwrap();
    assert_eq!(report["results"]["failed_checks"], Value::from([0_u8; 0]), "{file}");
    assert_eq!(report["summary"]["parsing_errors"], 0, "{file}");
    assert!(report["summary"]["passed"].as_u64() >= Some(rules), "{file}: {}", report["summary"]);
}
