//! Alerts and dashboard: each alert fires, is documented and has a runbook; each panel shows a metric that
//! exists.

use std::collections::BTreeSet;

use kata_manifests::{alerts, dashboard};
use serde_json::Value;

use crate::files::{names, output, program, read};

#[test]
#[ignore = "needs promtool"]
fn every_alert_fires_when_it_should_and_only_then() {
    let promtool = program("KATA_TEST_PROMTOOL");
    let file = "deploy/monitoring/alerts.yaml";
    let fresh = alerts::rules(kata_api::names::NAMESPACE).unwrap();
    assert_eq!(read(file), fresh);
    output(&promtool, &["check", "rules", file]).unwrap();
    output(&promtool, &["test", "rules", "deploy/monitoring/alerts.test.yaml"]).unwrap();
}

#[test]
fn every_alert_has_a_test_and_a_runbook() {
    let rules: Value =
        serde_saphyr::from_str(&alerts::rules(kata_api::names::NAMESPACE).unwrap()).unwrap();
    let tests = read("deploy/monitoring/alerts.test.yaml");
    let list = read("docs/alerts.md");
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(!rules.is_empty());
    let mut runbooks = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        let fires = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "{name} never fires in alerts.test.yaml");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        let listed = format!("| [{name}](runbooks/{name}.md) | {severity} |");
        assert!(list.contains(&listed), "docs/alerts.md does not list {name}, {severity}");
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let (_, file) = url.split_once("/blob/main/").unwrap();
        let page = read(file);
        assert!(page.starts_with(&format!("# {name}\n\nSeverity: {severity}, after ")), "{file}");
        for part in ["What it means", "How to look", "Causes", "Fix"] {
            assert!(page.contains(&format!("\n## {part}\n")), "{file} does not say: {part}");
        }
        runbooks.insert(format!("{name}.md"));
    }
    let pages: BTreeSet<String> = names("docs/runbooks").into_iter().collect();
    assert_eq!(pages, runbooks, "a runbook of no alert");
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let content: Value = serde_json::from_str(&dashboard::dashboard().unwrap()).unwrap();
    let page = read("docs/metrics.md");
    let panels = content["panels"].as_array().unwrap();
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut seen = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let query = target["expr"].as_str().unwrap();
        let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for metric in words.filter(|word| word.starts_with("kata_operator_")) {
            let metric = metric.trim_end_matches("_bucket");
            assert!(page.contains(&format!("| `{metric}` |")), "{metric} of {query}");
            seen.insert(metric.to_owned());
        }
    }
    assert!(seen.len() >= 8, "{seen:?}");
}
