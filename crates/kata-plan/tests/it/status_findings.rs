//! The findings in the status of a KataConfig.

use kata_api::kata_config::LIST_CAP;
use kata_api::{Code, KataConfigStatus};
use kata_plan::{Finding, Kind, ObjectRef, StatusReport, Urgency, with_findings};
use serde_json::json;

use crate::world::World;

fn finding(code: Code, node: usize) -> Finding {
    let name = format!("worker-{node}");
    Finding::new(
        code,
        ObjectRef::named(Kind::Node, &name),
        format!("node {name}: {}", "x".repeat(2_000)),
    )
}

#[test]
fn the_list_is_capped_and_cut_and_the_counts_are_exact() {
    let mut findings: Vec<Finding> = (0..90).map(|it| finding(Code::NodeBroken, it)).collect();
    findings.extend((0..30).map(|it| finding(Code::NodeCordoned, it)));
    findings.extend((0..7).map(|it| finding(Code::UnsupportedNode, it)));
    let status = with_findings(KataConfigStatus::default(), &findings);
    let counts = status.finding_counts.unwrap();
    assert_eq!((counts.error, counts.warning, counts.info), (90, 30, 7));
    assert_eq!(status.findings.len(), LIST_CAP);
    assert_eq!(status.findings[0].code, "KATA3104");
    assert_eq!(status.findings[0].subject.name, "worker-0");
    assert!(status.findings.iter().all(|it| it.message.len() <= 1_024 && !it.fix.is_empty()));
}

#[test]
fn a_new_warning_is_written_sooner_than_a_new_information() {
    let config = ObjectRef::named(Kind::KataConfig, "cluster-kataconfig");
    let urgency = |old: &[Finding], new: &[Finding]| {
        let written = with_findings(KataConfigStatus::default(), old);
        let status = with_findings(KataConfigStatus::default(), new);
        StatusReport { config: config.clone(), status, needs_write: true }.urgency(Some(&written))
    };
    let (warning, info) = (finding(Code::NodeCordoned, 1), finding(Code::UnsupportedNode, 1));
    assert_eq!(urgency(&[], std::slice::from_ref(&warning)), Urgency::Findings);
    assert_eq!(urgency(std::slice::from_ref(&warning), &[]), Urgency::Findings);
    assert_eq!(urgency(&[], &[info]), Urgency::Progress);
    let moved = Finding { message: "node worker-1 is cordoned".to_owned(), ..warning.clone() };
    assert_eq!(urgency(&[warning], &[moved]), Urgency::Progress);
}

#[test]
fn a_failed_read_is_added_and_takes_no_finding_away() {
    let mut world = World::new(3, 2);
    world.config(&json!({}));
    for _ in 0..60 {
        world.settle();
        world.tick();
    }
    world.cordon("worker-0", true);
    world.settle();
    let codes = |world: &World| -> Vec<String> {
        let config = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap();
        let status: KataConfigStatus = serde_json::from_value(config["status"].clone()).unwrap();
        status.findings.iter().map(|it| it.code.clone()).collect()
    };
    let before = codes(&world);
    assert!(before.contains(&"KATA2105".to_owned()), "{before:?}");
    for _ in 0..2 {
        world.unreadable.insert(Kind::Node.plural().to_owned());
        world.settle();
        let found = codes(&world);
        assert_eq!(found.first().map(String::as_str), Some("KATA1016"));
        assert_eq!(found[1..], before);
    }
    world.unreadable.clear();
    world.settle();
    assert_eq!(codes(&world), before);
}
