//! Operators that ended without anybody's notice: only their Lease tells.

use jiff::SignedDuration;
use kata_api::names;
use serde_json::json;
use simcluster::resource::LEASES;

use crate::lab::Lab;

/// The Lease as an operator writes it whose clock shows this.
fn lease(lab: &Lab, holder: &str, ahead: SignedDuration) {
    let time = (lab.cluster.now() + ahead).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let spec = json!({
        "holderIdentity": holder, "leaseDurationSeconds": 137, "renewTime": time,
    });
    if lab.get(&LEASES, lab.home(), names::PRODUCT).is_some() {
        lab.merge(&LEASES, lab.home(), names::PRODUCT, &json!({"spec": spec}));
    } else {
        lab.create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": names::PRODUCT, "namespace": lab.home()}, "spec": spec,
        }));
    }
}

/// A cluster that is Ready, whose operator has ended.
async fn orphaned() -> Lab {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    lab
}

async fn is_told(lab: &Lab) -> bool {
    let done = lab.kata_command("status").await.expect(0);
    let doctor = lab.kata_command("doctor").await.expect(0);
    let told = done.out.contains("KATA5010 no operator is working: ");
    assert_eq!(
        doctor.out.contains("; no operator is working: "),
        told,
        "{}\n{}",
        done.out,
        doctor.out
    );
    told
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_does_not_renew_its_lease_is_told() {
    let lab = orphaned().await;
    assert!(!is_told(&lab).await, "an operator without an election has no Lease");
    lease(&lab, "operator-1", SignedDuration::ZERO);
    lab.pass(160).await;
    assert!(!is_told(&lab).await, "another would take over about now");
    lab.pass(20).await;
    assert!(is_told(&lab).await);
    let done = lab.kata_command("status").await.expect(0);
    done.says(&[
        "KATA5010 no operator is working: operator-1 has not renewed the Lease \
         openshift-sandboxed-containers-operator/kata-operator for 3m, which counts for 137s",
        "kubectl kata logs operator",
    ]);
    let done = lab.kata_command("doctor").await.expect(0);
    done.says(&[
        "‼ KATA5010 generation 1 of KataConfig cluster-kataconfig is taken up; no operator",
    ]);
    lab.kata_command("status --fail-on warning").await.expect(1);
    // It comes back, and ends as it should, with nobody after it.
    lease(&lab, "operator-1", SignedDuration::ZERO);
    assert!(!is_told(&lab).await);
    lease(&lab, "", SignedDuration::ZERO);
    lab.pass(20).await;
    assert!(!is_told(&lab).await, "the next one may just be starting");
    lab.pass(20).await;
    assert!(is_told(&lab).await);
    lab.kata_command("status").await.expect(0).says(&["has had no holder for 40s"]);
}

/// Whoever waits is told, too.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_an_operator_that_ended_is_told() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.pass(60).await;
    lab.stop_operator();
    lease(&lab, "operator-1", SignedDuration::ZERO);
    lab.pass(300).await;
    let done = lab.kata_command("wait --timeout 10s").await.expect(124);
    done.says(&["KATA5010 no operator is working: operator-1 has not renewed"]);
}

/// A clock that is wrong makes nobody dead: neither this machine's, nor the operator's, nor that of a cluster
/// whose time runs faster than the operator's.
#[tokio::test(start_paused = true)]
async fn no_clock_that_is_wrong_makes_an_operator_dead() {
    let hour = SignedDuration::from_hours(1);
    let mut lab = orphaned().await;
    lab.skew = hour;
    lease(&lab, "operator-1", SignedDuration::ZERO);
    assert!(!is_told(&lab).await, "this machine is ahead");
    lab.pass(300).await;
    assert!(is_told(&lab).await, "and that does not hide one that is dead");

    lab.skew = SignedDuration::ZERO;
    lease(&lab, "operator-1", -hour);
    assert!(!is_told(&lab).await, "the operator's clock is behind");
    lab.pass(300).await;
    assert!(is_told(&lab).await);

    // The cluster's time runs away from the operator's and this machine's.
    lab.skew = -hour;
    lease(&lab, "operator-1", SignedDuration::from_secs(290) - hour);
    lab.pass(300).await;
    assert!(!is_told(&lab).await, "by its own clock it renewed it 10 s ago");
    lab.pass(300).await;
    assert!(is_told(&lab).await);
}

/// The clock of this machine says nothing of how new a change is, either.
#[tokio::test(start_paused = true)]
async fn a_change_is_as_new_as_the_api_server_says() {
    for hours in [-1, 1] {
        let mut lab = orphaned().await;
        lab.skew = SignedDuration::from_hours(hours);
        let quiet = json!({"spec": {"logLevel": "debug"}});
        lab.merge(&crate::lab::kata_configs(), "", "cluster-kataconfig", &quiet);
        let done = lab.kata_command("status").await.expect(1);
        assert!(!done.out.contains("KATA5010"), "it may need a moment: {}", done.out);
        lab.pass(60).await;
        lab.kata_command("status")
            .await
            .expect(1)
            .says(&["KATA5010 the operator has not taken up"]);
        lab.kata_command("doctor").await.expect(0).says(&["KATA5010 the operator has not taken"]);
    }
}
