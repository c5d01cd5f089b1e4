//! The health script for Argo CD.

use kata_api::Code;
use serde_json::{Value, json};

use crate::files::{output, program, read};

/// A JSON value as an expression of Lua.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::String(text) => format!("[==[{text}]==]"),
        Value::Array(items) => {
            format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let pairs = map.iter().map(|(key, value)| format!("[\"{key}\"] = {}", lua(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
#[ignore = "needs lua"]
fn argo_cd_calls_a_kata_config_healthy_when_it_is_ready_and_not_before() {
    let program = program("KATA_TEST_LUA");
    let script = read("deploy/argocd/health.lua");
    let holds = |name: &str| json!({"type": name, "status": "True", "message": format!("{name}!")});
    let lacks =
        |name: &str| json!({"type": name, "status": "False", "message": format!("no {name}")});
    let paused = |reason: &str| json!({"type": "Ready", "status": "False", "reason": reason, "message": "paused!"});
    for code in [Code::RolloutPaused, Code::PoolPaused] {
        assert!(script.contains(&format!("\"{}\"", code.entry().reason)));
    }
    let cases = [
        (json!({"metadata": {"generation": 1}}), "Progressing"),
        (json!({"metadata": {"generation": 1}, "status": {}}), "Progressing"),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [lacks("Ready"), holds("Reconciling")]}}),
            "Progressing",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [holds("Ready"), lacks("Degraded")]}}),
            "Healthy",
        ),
        (
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1,
            "conditions": [holds("Ready")]}}),
            "Progressing",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [lacks("Ready"), holds("Reconciling"), holds("Stalled")]}}),
            "Degraded",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [holds("Ready"), holds("Degraded")]}}),
            "Degraded",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions": [
                paused("RolloutPaused"), lacks("Reconciling"), lacks("Stalled")]}}),
            "Suspended",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions": [
                paused("PoolPaused"), lacks("Reconciling"), lacks("Stalled")]}}),
            "Suspended",
        ),
        (
            json!({"metadata": {"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"observedGeneration": 1, "conditions": [holds("Ready")]}}),
            "Progressing",
        ),
        (
            json!({"metadata": {"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"observedGeneration": 1,
            "conditions": [holds("Ready"), holds("DeletionBlocked")]}}),
            "Degraded",
        ),
    ];
    for (config, wanted) in cases {
        let code = format!(
            "obj = {}\nlocal found = (function()\n{script}\nend)()\n\
             print(found.status .. ': ' .. found.message)",
            lua(&config)
        );
        let printed = output(&program, &["-e", &code]).unwrap();
        assert!(printed.starts_with(&format!("{wanted}: ")), "{config}: {printed}");
        assert!(printed.trim_end().len() > wanted.len() + 2, "{config}: no message");
    }
}
