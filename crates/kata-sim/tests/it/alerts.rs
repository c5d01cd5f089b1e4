//! The alerts that scenarios print, compared with what Prometheus' own `promtool test rules` finds for the same
//! timelines and the alert rules that are shipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use kata_api::conditions::READY;
use serde_json::{Value, json};

/// Seconds from one sample to the next, and from one evaluation of the rules to the next.
const INTERVAL: u64 = 15;
/// How many seconds after a moment Prometheus has seen it.
const SEEN: u64 = 2 * INTERVAL;
const NAMESPACE: &str = "openshift-sandboxed-containers-operator";

/// A stretch of time, in seconds since the start of a scenario.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u64,
    to: u64,
}

/// The conditions and alerts of a transcript, by KataConfig and name.
#[derive(Debug, Default)]
struct Timeline {
    conditions: BTreeMap<(String, String), Vec<Stretch>>,
    alerts: BTreeMap<(String, String), Vec<Stretch>>,
    end: u64,
}

/// Seconds of a time such as `9s` or `6m10s`.
fn seconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('s')?;
    let (minutes, seconds) = text.split_once('m').unwrap_or(("0", text));
    Some(minutes.parse::<u64>().ok()? * 60 + seconds.parse::<u64>().ok()?)
}

/// What begins or ends at a line: whether it is an alert, its KataConfig and name, and whether it begins. Of Ready, the
/// value Unknown counts; of all others, True.
fn change(text: &str) -> Option<(bool, String, String, bool)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let own = |word: &&str| (*word).to_owned();
    match words.as_slice() {
        [config, "alert", alert, "fires"] => Some((true, own(config), own(alert), true)),
        [config, "alert", alert, "is", "over"] => Some((true, own(config), own(alert), false)),
        [config, type_, "is", "over"] => Some((false, own(config), own(type_), false)),
        [config, condition, ..] => {
            let (type_, status) = condition.split_once('=')?;
            let begins = status == if type_ == READY { "Unknown" } else { "True" };
            Some((false, own(config), type_.to_owned(), begins))
        }
        _ => None,
    }
}

fn timeline(transcript: &str) -> Timeline {
    let mut timeline = Timeline::default();
    let mut open: BTreeMap<(bool, String, String), u64> = BTreeMap::new();
    for line in transcript.lines() {
        let Some((at, text)) = line.strip_prefix("  +").and_then(|it| it.split_once(' ')) else {
            continue;
        };
        let at = seconds(at).unwrap();
        timeline.end = timeline.end.max(at);
        let text = text.trim();
        let mut ends: Vec<(bool, String, String)> = Vec::new();
        if let Some(config) = text.strip_suffix(" is gone") {
            ends.extend(open.keys().filter(|(is_alert, of, _)| !is_alert && of == config).cloned());
        }
        match change(text) {
            Some((is_alert, config, name, true)) => {
                open.entry((is_alert, config, name)).or_insert(at);
            }
            Some((is_alert, config, name, false)) => ends.push((is_alert, config, name)),
            None => {}
        }
        for key in ends {
            if let Some(from) = open.remove(&key) {
                timeline.add(key, Stretch { from, to: at });
            }
        }
    }
    let end = timeline.end;
    for (key, from) in open {
        timeline.add(key, Stretch { from, to: end });
    }
    timeline
}

impl Timeline {
    fn add(&mut self, (is_alert, config, name): (bool, String, String), stretch: Stretch) {
        let all = if is_alert { &mut self.alerts } else { &mut self.conditions };
        all.entry((config, name)).or_default().push(stretch);
    }

    /// Samples of a condition, as promtool writes them.
    fn samples(&self, stretches: &[Stretch]) -> String {
        let is_true =
            |at: u64| stretches.iter().any(|it| it.from <= at && at < it.to.max(it.from + 1));
        // What is True at the end stays so.
        let last = stretches.last().filter(|it| it.to == self.end);
        let values = (0..=(self.end + SEEN).div_ceil(INTERVAL)).map(|index| {
            let at = index * INTERVAL;
            u8::from(is_true(at) || last.is_some_and(|last| last.from <= at))
        });
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        values.join(" ")
    }

    /// The test of promtool for this timeline.
    fn test(&self, name: &str, rules: &Value) -> Value {
        let series: Vec<Value> = self
            .conditions
            .iter()
            .map(|((config, type_), stretches)| {
                json!({
                    "series": format!(
                        "kata_operator_config_condition{{namespace=\"{NAMESPACE}\",name=\"{config}\",\
                         type=\"{type_}\",status=\"{}\"}}",
                        if type_ == READY { "Unknown" } else { "True" }
                    ),
                    "values": self.samples(stretches),
                })
            })
            .collect();
        let mut checks = Vec::new();
        let by_alert: BTreeSet<&str> =
            rules.as_array().unwrap().iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
        for alert in by_alert {
            let stretches = self.alerts.iter().filter(|((_, of), _)| of == alert);
            let stretches: Vec<(&str, Stretch)> = stretches
                .flat_map(|((config, _), all)| all.iter().map(|it| (config.as_str(), *it)))
                .collect();
            // Shortly before and after everything that begins or ends, and at the end.
            let moments = stretches.iter().flat_map(|(_, it)| [it.from, it.to]);
            let times = moments.flat_map(|at| [at.saturating_sub(SEEN), at + SEEN]);
            for at in times.chain([self.end]).collect::<BTreeSet<u64>>() {
                let is_clear = |it: &Stretch| {
                    at.abs_diff(it.from) >= SEEN
                        && (at.abs_diff(it.to) >= SEEN || it.to == self.end)
                };
                if !stretches.iter().all(|(_, it)| is_clear(it)) || at > self.end {
                    continue;
                }
                let fire: Vec<Value> = stretches
                    .iter()
                    .filter(|(_, it)| it.from <= at && (at < it.to || it.to == self.end))
                    .map(|(config, _)| expected(rules, alert, config))
                    .collect();
                checks.push(
                    json!({"eval_time": format!("{at}s"), "alertname": alert, "exp_alerts": fire}),
                );
            }
        }
        json!({"name": name, "interval": format!("{INTERVAL}s"), "input_series": series, "alert_rule_test": checks})
    }
}

/// An alert with the labels and annotations that its rule gives it.
fn expected(rules: &Value, alert: &str, config: &str) -> Value {
    let rule = rules.as_array().unwrap().iter().find(|rule| rule["alert"] == *alert).unwrap();
    let mut labels = rule["labels"].clone();
    labels["name"] = json!(config);
    let annotations = rule["annotations"].as_object().unwrap().iter().map(|(key, text)| {
        (key.clone(), json!(text.as_str().unwrap().replace("{{ $labels.name }}", config)))
    });
    json!({"exp_labels": labels, "exp_annotations": annotations.collect::<serde_json::Map<_, _>>()})
}

#[test]
#[ignore = "needs promtool"]
fn prometheus_finds_the_alerts_that_the_scenarios_print() {
    let promtool = std::env::var_os("KATA_TEST_PROMTOOL")
        .expect("set KATA_TEST_PROMTOOL, or source .ci/tools");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = here.join("../../deploy/monitoring/alerts.yaml").canonicalize().unwrap();
    let groups: Value = serde_saphyr::from_str(&std::fs::read_to_string(&rules).unwrap()).unwrap();
    let of_conditions = kata_api::conditions::ALERTS.map(|it| it.alert);
    let shipped: Vec<&Value> = groups["groups"][0]["rules"].as_array().unwrap().iter().collect();
    let shipped: Vec<&Value> = shipped
        .into_iter()
        .filter(|rule| of_conditions.iter().any(|alert| rule["alert"] == **alert))
        .collect();
    let mut tests = Vec::new();
    let mut fired = BTreeSet::new();
    for entry in std::fs::read_dir(here.join("tests/scenarios")).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "out") {
            continue;
        }
        let timeline = timeline(&std::fs::read_to_string(&path).unwrap());
        fired.extend(timeline.alerts.keys().map(|(_, alert)| alert.clone()));
        if !timeline.conditions.is_empty() {
            let name = path.file_stem().unwrap().to_string_lossy();
            tests.push(timeline.test(&name, &json!(shipped)));
        }
    }
    assert_eq!(
        fired,
        of_conditions.into_iter().map(str::to_owned).collect(),
        "each fires somewhere"
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alerts.test.yaml");
    let content = json!({
        "rule_files": [rules], "evaluation_interval": format!("{INTERVAL}s"), "tests": tests,
    });
    std::fs::write(&file, serde_saphyr::to_string(&content).unwrap()).unwrap();
    let output = Command::new(promtool).args(["test", "rules"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The alerts of a transcript, each with its condition and the condition's reason when the alert fires.
fn fired(transcript: &str) -> String {
    let mut reasons: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut alerts: Vec<String> = Vec::new();
    for line in transcript.lines().filter(|line| line.starts_with("  +")) {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [_, config, "alert", alert, "fires"] => {
                let condition =
                    kata_api::conditions::ALERTS.iter().find(|it| it.alert == *alert).unwrap();
                let reason = reasons[&(*config, condition.condition)];
                let text = format!("`{alert}` ({} {reason})", condition.condition);
                if !alerts.contains(&text) {
                    alerts.push(text);
                }
            }
            [_, config, condition, reason, ..] => {
                if let Some((type_, "True" | "Unknown")) = condition.split_once('=') {
                    reasons.insert((*config, type_), reason.trim_end_matches(':'));
                }
            }
            _ => {}
        }
    }
    if alerts.is_empty() { "none".to_owned() } else { alerts.join(", ") }
}

#[test]
fn every_standstill_shows_status_and_events_and_fires_the_alerts_of_the_table() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let page = read("../../docs/developers/scenarios.md");
    let (_, table) = page.split_once("## Standstills\n").unwrap();
    let mut count = 0;
    for row in table.lines().filter(|line| line.contains("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, name, alerts] = cells.as_slice() else { panic!("{row}") };
        let scenario = format!("tests/scenarios/{}", name.trim_matches('`'));
        let script = read(&format!("{scenario}.txt"));
        assert!(script.contains("\nshow kataconfigs\n"), "{name}");
        assert!(script.contains("\nshow events\n"), "{name}");
        assert_eq!(fired(&read(&format!("{scenario}.out"))), *alerts, "{name}");
        count += 1;
    }
    assert!(count >= 35, "{count} standstills");
}
