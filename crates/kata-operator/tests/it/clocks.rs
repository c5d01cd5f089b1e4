//! An operator whose own clock differs from the API server's.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use kata_api::platform::Platform;
use kata_operator::Settings;
use kata_operator::clock::Clock;
use simcluster::cluster::Cluster;

use crate::lab::{self, Operator};

/// Far above what an install takes.
const LIMIT: Duration = Duration::from_mins(30);

/// The codes in the KataConfig's status.
fn codes(cluster: &Cluster) -> BTreeSet<String> {
    let config = lab::get(cluster, &lab::kata_configs(), "example").unwrap();
    let findings = config["status"]["findings"].as_array().cloned().unwrap_or_default();
    findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

/// What became of an install and of the seven hours after it.
#[derive(Debug, PartialEq)]
struct Course {
    installed_after: Duration,
    seen: BTreeSet<String>,
    jobs: Vec<i64>,
}

async fn course(ahead: SignedDuration) -> Course {
    let cluster = lab::kubernetes_of(3);
    lab::create_home(&cluster);
    let mut settings = Settings {
        platform: Platform::Kubernetes,
        clock: Clock::simulated(lab::epoch() + ahead),
        ..Settings::simulated(lab::epoch())
    };
    settings.options.agent_image = Some("registry.example/kata-operator:1".to_owned());
    let _operator = Operator::with(&cluster, settings);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let mut seen = BTreeSet::new();
    let ready = || {
        seen.extend(codes(&cluster));
        lab::is_ready(&cluster, "example")
    };
    let installed_after = lab::within(LIMIT, ready).await.unwrap();
    lab::pass(Duration::from_hours(7)).await;
    seen.extend(codes(&cluster));
    assert!(lab::is_ready(&cluster, "example"), "{ahead:#}");
    let number = |index| {
        let node = lab::get(&cluster, &lab::kata_nodes(), &lab::worker(index)).unwrap();
        node["status"]["host"]["job"]["number"].as_i64().unwrap()
    };
    Course { installed_after, seen, jobs: (0..3).map(number).collect() }
}

#[tokio::test(start_paused = true)]
async fn an_install_and_its_inspections_go_by_the_clock_of_the_api_server() {
    let right = course(SignedDuration::ZERO).await;
    assert_eq!(right.seen, BTreeSet::new());
    // Preflight, installation, inspection.
    assert_eq!(right.jobs, [3, 3, 3]);
    assert_eq!(course(SignedDuration::from_secs(25)).await.seen, BTreeSet::new());
    for minutes in [-20, -3, 3, 6, 15, 20] {
        let off = course(SignedDuration::from_mins(minutes)).await;
        assert_eq!(off.seen, BTreeSet::from(["KATA1024".to_owned()]), "{minutes} min");
        assert_eq!(off.jobs, right.jobs, "{minutes} min");
        let ratio = off.installed_after.as_secs_f64() / right.installed_after.as_secs_f64();
        assert!((0.9..=1.1).contains(&ratio), "{minutes} min: {off:?}, {right:?}");
    }
}
