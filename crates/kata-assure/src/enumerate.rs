//! From a calm run to the plans that break it: every call and every watch event, in every way.

use std::collections::BTreeMap;
use std::time::Duration;

use kata_api::names;
use serde::Serialize;
use serde_json::json;
use simcluster::api::fault::{Fault, When};

use crate::episode::Outcome;
use crate::ledger::Call;
use crate::plan::{Deed, Plan, Strike, Target};
use crate::shape::{Topology, worker};
use crate::workload::{Base, CLOUD_LABEL, CLOUD_NODES, TAKEN_NODES, Workload};

/// What a plan is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// The operator dies at one call.
    Crash,
    /// The operator dies at two calls.
    CrashPair,
    /// One call fails.
    CallFault,
    /// One watch event is lost, late, or the watch ends there.
    EventFault,
    /// A user does something in the middle.
    UserDeed,
    /// A rival changes or deletes something that is ours.
    Rival,
    /// Two operators work at once.
    TwoOperators,
    /// Another program changes the files of a node's container runtime, and restarts it later or not at all.
    ForeignChange,
    /// Several things go wrong at random.
    Random,
}

/// How many calls after its change another program restarts a container runtime.
const SOON: u64 = 25;

/// How much is enumerated.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Percent of the plans that are run.
    pub sample: u64,
    /// Chooses the sample and the random plans.
    pub seed: u64,
}

/// A small generator of numbers (splitmix64); the same seed gives the same plans.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// One of several.
    pub fn one_of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap_or_default();
        items.get(index)
    }
}

/// How a call can fail, before it takes effect.
fn failures() -> Vec<Fault> {
    let status =
        |code, retry_after| Fault::Status { code, retry_after, message: None, when: When::Before };
    let when = When::Before;
    vec![
        status(400, None),
        status(401, None),
        status(403, None),
        status(404, None),
        status(409, None),
        status(410, None),
        status(422, None),
        status(429, None),
        status(429, Some(1)),
        status(429, Some(30)),
        status(500, None),
        status(502, None),
        status(503, None),
        status(503, Some(5)),
        status(504, None),
        Fault::Reset { when },
        Fault::Hang { when },
        Fault::Garbage { when },
        Fault::Html { when },
        Fault::WrongCode { when },
        Fault::Delay { millis: 8_000 },
        Fault::Delay { millis: 15_000 },
    ]
}

/// How a write can fail after it took effect.
fn lost_answers() -> Vec<Fault> {
    let when = When::After;
    let status = |code| Fault::Status { code, retry_after: None, message: None, when };
    vec![
        status(409),
        status(429),
        status(500),
        status(503),
        status(504),
        Fault::Reset { when },
        Fault::Hang { when },
        Fault::Garbage { when },
        Fault::Html { when },
        Fault::WrongCode { when },
    ]
}

fn event_faults() -> Vec<Fault> {
    vec![
        Fault::DropEvent,
        Fault::DuplicateEvent,
        Fault::DelayEvent { millis: 3_000 },
        Fault::DelayEvent { millis: 90_000 },
        Fault::CloseWatch,
        Fault::ExpireWatch,
        Fault::SilenceWatch,
    ]
}

/// All plans for a workload on a topology, with what each is about.
pub fn plans(
    workload: Workload,
    topology: Topology,
    calm: &Outcome,
    amount: Amount,
) -> Vec<(Sort, Plan)> {
    let plan = || Plan::calm(workload, topology);
    let mut dice = Dice(amount.seed ^ hash(&plan().line()));
    let mut plans = Vec::new();
    let share = share(workload, topology);
    for call in &calm.calls {
        let crashes = if call.number.is_multiple_of(share.crashes) {
            &[When::Before, When::After][..]
        } else {
            &[]
        };
        for when in crashes.iter().copied() {
            let strike = Strike::at_call(call.number, Fault::Crash { when });
            plans.push((Sort::Crash, plan().with(strike)));
        }
        for (index, fault) in failures().into_iter().enumerate() {
            // Calls are many and alike: each gets some of the faults, and each fault some calls.
            let turn = call.number + index as u64;
            if turn.is_multiple_of(if call.is_write() { share.writes } else { share.reads }) {
                let strike = Strike::at_call(call.number, fault);
                plans.push((Sort::CallFault, plan().with(strike)));
            }
        }
        if call.is_write() {
            for (index, fault) in lost_answers().into_iter().enumerate() {
                if (call.number + index as u64).is_multiple_of(share.writes) {
                    let strike = Strike::at_call(call.number, fault);
                    plans.push((Sort::CallFault, plan().with(strike)));
                }
            }
            if call.number.is_multiple_of(share.writes) {
                plans.push((Sort::CallFault, plan().with(storm(call, 409))));
                plans.push((Sort::CallFault, plan().with(storm(call, 503))));
            }
        }
    }
    for event in 1..=calm.events {
        for (index, fault) in event_faults().into_iter().enumerate() {
            if (event + index as u64).is_multiple_of(share.events) {
                plans.push((Sort::EventFault, plan().with(Strike::at_event(event, fault))));
            }
        }
    }
    plans.extend(pairs(&plan(), calm, share.pairs, &mut dice));
    plans.extend(user_deeds(&plan(), calm, share.deeds));
    plans.extend(rivals(&plan(), calm, share.deeds));
    plans.extend(two_operators(&plan(), calm, share.deeds));
    plans.extend(foreign_changes(&plan(), calm, share.deeds));
    plans.extend((0..share.random).map(|_| (Sort::Random, random(&plan(), calm, &mut dice))));
    let keep = |plan: &Plan| Dice(amount.seed ^ hash(&plan.line())).below(100) < amount.sample;
    plans.retain(|(_, plan)| keep(plan));
    plans
}

/// Of how many things one is tried; the larger the cluster, the fewer.
#[derive(Clone, Copy)]
struct Share {
    crashes: u64,
    writes: u64,
    reads: u64,
    events: u64,
    deeds: u64,
    pairs: u64,
    random: u64,
}

fn share(workload: Workload, topology: Topology) -> Share {
    let single =
        Share { crashes: 1, writes: 3, reads: 22, events: 5, deeds: 7, pairs: 15, random: 100 };
    // An episode on more nodes takes longer.
    let three = Share { writes: 5, reads: 44, events: 9, deeds: 11, random: 60, ..single };
    let ends = matches!(workload, Workload::Install | Workload::Uninstall);
    match topology {
        Topology::Single | Topology::Three if ends => {
            Share { writes: 1, reads: 5, events: 2, deeds: 3, pairs: 150, random: 170, ..single }
        }
        Topology::Single => single,
        Topology::Three => three,
        Topology::Compact | Topology::TwoPools => {
            let (writes, reads, events, deeds) = (23, 89, 29, 47);
            Share { crashes: 6, writes, reads, events, deeds, pairs: 5, random: 12 }
        }
        Topology::PlainThree if ends => {
            Share { writes: 2, reads: 9, events: 3, deeds: 5, pairs: 60, random: 100, ..single }
        }
        Topology::PlainThree => three,
        Topology::PlainMixed => {
            let (writes, reads, events, deeds) = (23, 89, 29, 47);
            Share { crashes: 6, writes, reads, events, deeds, pairs: 5, random: 12 }
        }
        Topology::Fifty => Share {
            crashes: 53,
            writes: 499,
            reads: 1_999,
            events: 1_999,
            deeds: 997,
            pairs: 4,
            random: 4,
        },
    }
}

fn storm(call: &Call, code: u16) -> Strike {
    let fault = Fault::Status { code, retry_after: None, message: None, when: When::Before };
    Strike { times: 8, verb: "write".to_owned(), ..Strike::at_call(call.number, fault) }
}

fn pairs(plan: &Plan, calm: &Outcome, count: u64, dice: &mut Dice) -> Vec<(Sort, Plan)> {
    let calls = calm.calls.len() as u64;
    let when = |dice: &mut Dice| if dice.below(2) == 0 { When::Before } else { When::After };
    (0..count)
        .map(|_| {
            let first = 1 + dice.below(calls);
            // The second is near the first: a crash while recovering from a crash.
            let second = first + 1 + dice.below(60);
            let first = Strike::at_call(first, Fault::Crash { when: when(dice) });
            let second = Strike::at_call(second, Fault::Crash { when: when(dice) });
            (Sort::CrashPair, plan.clone().with(first).with(second))
        })
        .collect()
}

/// The calls after the workload has begun.
fn calls(calm: &Outcome) -> impl Iterator<Item = u64> {
    let begun = calm.calls.iter().filter(|call| call.at > Duration::from_secs(5));
    begun.map(|call| call.number)
}

fn user_deeds(plan: &Plan, calm: &Outcome, one_of: u64) -> Vec<(Sort, Plan)> {
    let edit = |patch| Deed::EditConfig { patch };
    let relabel = |node: u32, value: Option<&str>| Deed::Label {
        node: worker(node),
        key: "kata".to_owned(),
        value: value.map(str::to_owned),
    };
    let settings = json!({
        "name": names::RUNTIME_CLASS,
        "config": "[hypervisor.qemu]\ndefault_memory = 4096\n",
        "overhead": {"resources": {"example.com/keys": 1}},
    });
    // What is done in addition must lead to the same end whenever it is done.
    let deeds = match plan.workload {
        Workload::Install => {
            let mut deeds = vec![
                Deed::DeleteConfig,
                edit(json!({"spec": {"logLevel": "debug"}})),
                edit(json!({"spec": {"rollout": {"maxUnavailable": 2}}})),
                edit(json!({"spec": {"runtimes": [settings]}})),
            ];
            if !plan.topology.is_converged() {
                deeds.push(relabel(0, None));
                deeds.push(relabel(plan.topology.selected(), Some("true")));
            }
            deeds
        }
        Workload::ScaleOut => vec![relabel(0, None), Deed::DeleteConfig],
        Workload::ScaleIn => vec![relabel(0, Some("true")), Deed::DeleteConfig],
        Workload::LogLevel => {
            vec![edit(json!({"spec": {"logLevel": "trace"}})), Deed::DeleteConfig]
        }
        Workload::Provided => {
            vec![edit(json!({"spec": {"logLevel": "debug"}})), Deed::DeleteConfig]
        }
        Workload::SelectorEdit
        | Workload::OsUpgrade
        | Workload::Adoption
        | Workload::InstallOn
        | Workload::InstallOnWithPod
        | Workload::ProvidedWithPod => {
            vec![Deed::DeleteConfig]
        }
        Workload::TakeOver => {
            let kill = |node: &str| Deed::KillAgent { node: node.to_owned() };
            [Deed::DeleteConfig].into_iter().chain(TAKEN_NODES.map(kill)).collect()
        }
        Workload::PayloadUpgrade | Workload::PayloadUpgradeWithPod
            if plan.workload.base() == Base::Installed =>
        {
            vec![edit(json!({"spec": {"logLevel": "debug"}})), Deed::DeleteConfig]
        }
        _ => Vec::new(),
    };
    // A node whose system provides Kata is left to the operator by mistake, and soon no more.
    let mistake = |value: Option<&str>| Deed::Label {
        node: CLOUD_NODES[0].to_owned(),
        key: CLOUD_LABEL.to_owned(),
        value: value.map(str::to_owned),
    };
    let mistakes = plan.workload == Workload::Provided;
    let kill = [0, 90].map(|down| Deed::Kill { down });
    let mut plans = Vec::new();
    for call in calls(calm) {
        for (index, deed) in deeds.iter().chain(&kill).enumerate() {
            if (call + index as u64).is_multiple_of(one_of) {
                plans.push((Sort::UserDeed, plan.clone().doing(call, deed.clone())));
            }
        }
        if mistakes && call.is_multiple_of(2) {
            let plan =
                plan.clone().doing(call, mistake(None)).doing(call + 9, mistake(Some("yes")));
            plans.push((Sort::UserDeed, plan));
        }
    }
    plans
}

/// The calls during which a KataConfig exists that has no status of ours yet.
fn untold(workload: Workload, calm: &Outcome) -> Option<std::ops::RangeInclusive<u64>> {
    let writes = || {
        let all = calm.calls.iter().filter(|call| call.is_write());
        all.filter(|call| call.path.contains("/kataconfigs/"))
    };
    let from = match workload {
        Workload::Install => 0,
        // The finalizer of the first one is taken off; the second one follows.
        Workload::Recreate => writes().find(|call| !call.path.contains("/status"))?.number,
        _ => return None,
    };
    let status = writes().find(|call| call.number > from && call.path.contains("/status"))?;
    Some(from..=status.number)
}

/// A rival that changes what is ours, while the workload lasts.
fn rivals(plan: &Plan, calm: &Outcome, one_of: u64) -> Vec<(Sort, Plan)> {
    let installed = matches!(
        plan.workload.base(),
        Base::Installed | Base::InstalledWithPod | Base::InstalledWithDebug
    );
    if !installed && plan.workload != Workload::Install {
        return Vec::new();
    }
    let mut edits = if plan.topology.is_plain() {
        plain_rival_deeds(plan.workload)
    } else {
        rival_deeds(plan.topology)
    };
    // On a node that has left, this label with a value that is not ours is the rival's to keep.
    let leaves = !matches!(
        plan.workload,
        Workload::Install
            | Workload::ScaleOut
            | Workload::LogLevel
            | Workload::LogLevelBack
            | Workload::OsUpgrade
            | Workload::PayloadUpgrade
    );
    let relabels = |deed: &Deed| {
        matches!(deed, Deed::Edit { patch, .. }
            if patch["metadata"]["labels"][kata_api::names::RUNTIME_LABEL] == "no")
    };
    edits.retain(|deed| !(leaves && relabels(deed)));
    // What a rival writes into a status before we do is the rival's, as long as it is right.
    let untold = untold(plan.workload, calm);
    let mut plans = Vec::new();
    for call in calls(calm) {
        for (index, deed) in edits.iter().enumerate() {
            let status =
                matches!(deed, Deed::Edit { object, .. } if object.plural == "kataconfigs");
            if status && untold.as_ref().is_some_and(|untold| untold.contains(&call)) {
                continue;
            }
            if (call + index as u64).is_multiple_of(one_of * 3) {
                plans.push((Sort::Rival, plan.clone().doing(call, deed.clone())));
            }
        }
    }
    plans
}

/// Changes of the fields that we own, and deletions of our objects.
fn rival_deeds(topology: Topology) -> Vec<Deed> {
    let mco = "machineconfiguration.openshift.io";
    let target = |group: &str, plural: &str, name: &str| Target {
        group: group.to_owned(),
        plural: plural.to_owned(),
        name: name.to_owned(),
    };
    let class = || target("node.k8s.io", "runtimeclasses", "kata");
    let config = || target(mco, "machineconfigs", kata_api::names::MACHINE_CONFIG);
    let pool = || target(mco, "machineconfigpools", kata_api::names::POOL);
    let node = if topology.is_converged() { "control-plane-0".to_owned() } else { worker(0) };
    let on_node = || target("", "nodes", &node);
    let edit = |object, patch| Deed::Edit { object, patch };
    let labels =
        |key: &str, value: serde_json::Value| json!({"metadata": {"labels": {key: value}}});
    let managed = kata_api::names::MANAGED_BY;
    let mut deeds = vec![
        edit(class(), json!({"overhead": {"podFixed": {"cpu": "1"}}})),
        edit(class(), json!({"overhead": null})),
        edit(class(), json!({"scheduling": null})),
        edit(
            class(),
            json!({"scheduling": {"nodeSelector": {kata_api::names::RUNTIME_LABEL: null}}}),
        ),
        edit(class(), json!({"scheduling": {"tolerations": [{"key": "x", "operator": "Exists"}]}})),
        edit(class(), json!({"metadata": {"ownerReferences": null}})),
        edit(class(), labels("app", json!("other"))),
        Deed::Remove { object: class() },
        edit(on_node(), labels(kata_api::names::RUNTIME_LABEL, json!(null))),
        edit(on_node(), labels(kata_api::names::RUNTIME_LABEL, json!("no"))),
        edit(config(), labels(managed, json!("other"))),
        edit(config(), labels("app", json!(null))),
        Deed::Remove { object: target("kata-operator.dev", "katanodes", &node) },
        edit(
            target("kata-operator.dev", "katanodes", &node),
            json!({"status": {"phase": "Failed", "ready": "False"}}),
        ),
        edit(
            target("kataconfiguration.openshift.io", "kataconfigs", crate::world::CONFIG),
            json!({"status": {"conditions": [], "observedGeneration": 0, "runtimeClasses": []}}),
        ),
    ];
    if !topology.is_converged() {
        deeds.push(edit(pool(), labels(managed, json!(null))));
        deeds.push(edit(pool(), labels("app", json!("other"))));
    }
    deeds
}

/// The same where Jobs change the nodes; their Jobs and node agents come to harm too.
fn plain_rival_deeds(workload: Workload) -> Vec<Deed> {
    let node = worker(0);
    let target = |group: &str, plural: &str, name: &str| Target {
        group: group.to_owned(),
        plural: plural.to_owned(),
        name: name.to_owned(),
    };
    let class = || target("node.k8s.io", "runtimeclasses", "kata");
    let kata_node = || target("kata-operator.dev", "katanodes", &node);
    let edit = |object, patch| Deed::Edit { object, patch };
    let label = |key: &str, value: serde_json::Value| {
        edit(target("", "nodes", &node), json!({"metadata": {"labels": {key: value}}}))
    };
    let mut deeds = vec![
        Deed::RemoveJobs { node: node.clone() },
        Deed::KillAgent { node: node.clone() },
        edit(class(), json!({"overhead": {"podFixed": {"cpu": "1"}}})),
        edit(
            class(),
            json!({"scheduling": {"nodeSelector": {kata_api::names::RUNTIME_LABEL: null}}}),
        ),
        Deed::Remove { object: class() },
        label(kata_api::names::RUNTIME_LABEL, json!(null)),
        label(kata_api::names::CLAIM_LABEL, json!(null)),
        Deed::Remove { object: kata_node() },
        edit(kata_node(), json!({"status": {"phase": "Failed", "ready": "False"}})),
        edit(
            target("kataconfiguration.openshift.io", "kataconfigs", crate::world::CONFIG),
            json!({"status": {"conditions": [], "observedGeneration": 0, "runtimeClasses": []}}),
        ),
    ];
    // Before the first claim this label is another installer's, whose nodes are left alone.
    if workload != Workload::Install {
        deeds.push(label(kata_api::names::RUNTIME_LABEL, json!("no")));
    }
    deeds
}

fn two_operators(plan: &Plan, calm: &Outcome, one_of: u64) -> Vec<(Sort, Plan)> {
    let mut plans = Vec::new();
    for call in calls(calm) {
        if call.is_multiple_of(one_of) {
            plans.push((Sort::TwoOperators, plan.clone().doing(call, Deed::Second)));
        }
        if call % (one_of * 2) == 1 {
            let mut plan = plan.clone().doing(call, Deed::StealLease);
            plan.election = true;
            plans.push((Sort::TwoOperators, plan));
        }
    }
    plans
}

/// Another program changes the files of the container runtime of each node, before or after anything that is done.
fn foreign_changes(plan: &Plan, calm: &Outcome, one_of: u64) -> Vec<(Sort, Plan)> {
    if !plan.topology.is_plain() || plan.topology.asks_again() {
        return Vec::new();
    }
    let mut plans = Vec::new();
    let taken = TAKEN_NODES.iter().filter(|_| plan.workload == Workload::TakeOver);
    let workers = (0..=plan.topology.selected()).map(worker);
    for (index, node) in workers.chain(taken.map(|node| (*node).to_owned())).enumerate() {
        let change = |breaks| Deed::ForeignChange { node: node.clone(), breaks };
        let restart = || Deed::ForeignRestart { node: node.clone() };
        let end = || Deed::ForeignEnd { node: node.clone() };
        let kill = || Deed::KillAgent { node: node.clone() };
        for call in calls(calm).filter(|call| (call + index as u64).is_multiple_of(one_of)) {
            let plan = || plan.clone();
            let (soon, late) = (call + SOON, call + 2 * SOON);
            // worker-0 has containerd 1.x, where our copy of the section keeps the change until the next inspection.
            if index > 0 {
                let again = plan().doing(call, change(false)).doing(soon, restart());
                plans.push(again.doing(late, end()));
            }
            plans.push(plan().doing(call, change(true)).doing(soon, end()));
            let killed = plan().doing(call, kill()).doing(call + 1, change(true));
            plans.push(killed.doing(soon, end()));
            // Only when all else has come to its end.
            if plan().workload == Workload::Install {
                for breaks in [false, true] {
                    plans.push(plan().doing(call, change(breaks)).doing(u64::MAX, end()));
                }
            }
        }
    }
    plans.into_iter().map(|plan| (Sort::ForeignChange, plan)).collect()
}

/// From 2 to 20 faults anywhere.
fn random(plan: &Plan, calm: &Outcome, dice: &mut Dice) -> Plan {
    let mut plan = plan.clone();
    plan.down = *dice.one_of(&[0, 0, 5, 120, 600]).unwrap_or(&0);
    let (calls, events) = (calm.calls.len() as u64, calm.events);
    for _ in 0..2 + dice.below(19) {
        let call = 1 + dice.below(calls * 5 / 4);
        let when = if dice.below(2) == 0 { When::Before } else { When::After };
        let strike = match dice.below(10) {
            0..=2 => Strike::at_call(call, Fault::Crash { when }),
            3..=4 => dice.one_of(&event_faults()).map_or_else(
                || Strike::at_event(1, Fault::DropEvent),
                |fault| Strike::at_event(1 + dice.clone().below(events), fault.clone()),
            ),
            5..=6 => {
                let fault = dice.one_of(&lost_answers()).cloned().unwrap_or(Fault::DropEvent);
                Strike { verb: "write".to_owned(), ..Strike::at_call(call, fault) }
            }
            _ => {
                let fault = dice.one_of(&failures()).cloned().unwrap_or(Fault::DropEvent);
                let times = *dice.one_of(&[1, 1, 2, 5, 30]).unwrap_or(&1);
                Strike { times, ..Strike::at_call(call, fault) }
            }
        };
        plan.strikes.push(strike);
    }
    plan
}

/// A number that follows from a text (FNV-1a).
pub fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    // The low digits of such a hash are not even enough to sample by.
    Dice(hash).roll()
}

/// How many calls of each sort a run made, for summaries.
pub fn by_verb(calls: &[Call]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.method.to_string()).or_default() += 1;
    }
    counts
}
