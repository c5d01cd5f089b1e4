//! The Jobs and the objects of kata-monitor, one of each form: the admission policies are made from them, so that they
//! permit what the operator writes, and nothing else.
//!
//! This module decides nothing: the objects come from the functions that make them for a plan.

use kata_api::node_task::{ForeignChanges, NODE_TASK_VERSION, NodeAction, NodeTask};
use kata_api::{KataConfig, KataConfigSpec};
use serde_json::Value;

use crate::job_limits::JobLimits;
use crate::jobs::job_body::{self, JobParameters};
use crate::mco::mode::Mode;
use crate::mco::monitor_body;
use crate::snapshot::Options;

/// A part of every text that depends on the cluster.
pub const VARIES: &str = "<varies>";
/// The operator's own image.
pub const OPERATOR_IMAGE: &str = "<operator>";
/// The image of kata-monitor.
pub const MONITOR_IMAGE: &str = "<monitor>";

/// The Jobs: every action, with and without staging, with and without limits.
pub fn jobs() -> Vec<Value> {
    let mut jobs = Vec::new();
    for (cpu, memory) in [(true, true), (true, false), (false, true), (false, false)] {
        let limit = |is_set: bool| is_set.then(|| VARIES.to_owned());
        let job_limits = JobLimits { cpu: limit(cpu), memory: limit(memory) };
        let options = Options { job_limits, ..Options::default() };
        for action in NodeAction::ALL {
            for ahead in [false, true] {
                jobs.push(job(action, ahead, &options));
            }
        }
    }
    jobs
}

fn job(action: NodeAction, ahead: bool, options: &Options) -> Value {
    let task = NodeTask {
        version: NODE_TASK_VERSION,
        node: VARIES.to_owned(),
        action,
        handlers: Vec::new(),
        payload_image: None,
        container_runtime: None,
        log_level: None,
        foreign_changes: ForeignChanges::Wait,
        take_over: false,
        verify: false,
    };
    let parameters = JobParameters {
        task: &task,
        node_uid: VARIES,
        state: VARIES,
        facts: VARIES,
        number: 1,
        agent_image: OPERATOR_IMAGE,
        payload_image: VARIES,
        payload_digest: None,
        stages: job_body::stages(action, ahead),
    };
    job_body::job(&parameters, options)
}

fn config() -> KataConfig {
    KataConfig::new(VARIES, KataConfigSpec::default())
}

/// The DaemonSets of kata-monitor, one for each pool that can install Kata.
pub fn monitor_daemon_sets(namespace: &str) -> Vec<Value> {
    let config = config();
    let modes = [Mode::Pool, Mode::Compact].into_iter();
    modes
        .filter_map(|mode| monitor_body::daemon_set(&config, mode, namespace, MONITOR_IMAGE, None))
        .collect()
}

/// The SecurityContextConstraints of kata-monitor.
pub fn monitor_constraints(namespace: &str) -> Option<Value> {
    monitor_body::constraints(&config(), namespace, None)
}
