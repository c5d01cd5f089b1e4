//! A write that the API server refuses shows in the status, once.

use kata_api::KataConfigStatus;

use super::*;

fn condition(type_: &str, status: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: "R".to_owned(),
        message: "m".to_owned(),
        observed_generation: Some(1),
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
    }
}

fn failure(code: u16) -> Failure {
    Failure {
        action: "apply MachineConfig x".to_owned(),
        object: ObjectRef::named(Kind::MachineConfig, "x"),
        error: CallError::Refused {
            call: "apply MachineConfig x".to_owned(),
            code,
            reason: "Forbidden".to_owned(),
            message: "no".to_owned(),
            retry_after: None,
        },
    }
}

fn report() -> StatusReport {
    let status = KataConfigStatus {
        conditions: vec![condition("Ready", "False")],
        ..KataConfigStatus::default()
    };
    StatusReport { config: ObjectRef::named(Kind::KataConfig, "c"), status, patch: None }
}

#[test]
fn a_refused_write_is_told_once_and_keeps_its_time() {
    let mut config = KataConfig::new("c", kata_api::KataConfigSpec::default());
    config.status = Some(report().status);
    let first = "2026-01-01T00:00:00Z".parse().unwrap();
    let patch = with_failure(&report(), Some(&config), &failure(403), first).unwrap();
    let told: Vec<Condition> =
        serde_json::from_value(patch["status"]["conditions"].clone()).unwrap();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1].reason, "WriteFailed");
    assert_eq!(
        told[1].message,
        "KATA1017: apply MachineConfig x: 403 Forbidden: no. See the message; often a permission is \
         missing, or another field manager owns the field."
    );

    config.status = Some(KataConfigStatus { conditions: told, ..KataConfigStatus::default() });
    let later = "2026-01-01T01:00:00Z".parse().unwrap();
    assert_eq!(with_failure(&report(), Some(&config), &failure(403), later), None);
}

#[test]
fn only_a_failure_that_lasts_is_told() {
    assert!(lasting_failure(&[failure(409), failure(503)]).is_none());
    assert!(lasting_failure(&[failure(409), failure(403)]).is_some());
}
