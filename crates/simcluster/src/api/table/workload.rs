//! Kinds that run pods, and the budget of their disruptions.

use serde_json::{Value, json};

use super::duration;
use super::row::{AGE, Column, NAME, Printer, Row};

const CONTAINERS: Column = ("Containers", "string", 1);
const IMAGES: Column = ("Images", "string", 1);
const SELECTOR: Column = ("Selector", "string", 1);

pub(super) const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        ("Ready", "string", 0),
        ("Up-to-date", "string", 0),
        ("Available", "string", 0),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [containers, images] = row.containers("/spec/template");
        vec![
            row.name(),
            ready(row),
            json!(row.int("/status/updatedReplicas")),
            json!(row.int("/status/availableReplicas")),
            row.age(),
            containers,
            images,
            row.selector("/spec/selector"),
        ]
    },
};

pub(super) const STATEFUL_SET: Printer = Printer {
    columns: &[NAME, ("Ready", "string", 0), AGE, CONTAINERS, IMAGES],
    cells: |row| {
        let [containers, images] = row.containers("/spec/template");
        vec![row.name(), ready(row), row.age(), containers, images]
    },
};

fn ready(row: &Row<'_>) -> Value {
    json!(format!("{}/{}", row.int("/status/readyReplicas"), row.int("/spec/replicas")))
}

pub(super) const REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        ("Desired", "integer", 0),
        ("Current", "integer", 0),
        ("Ready", "integer", 0),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [containers, images] = row.containers("/spec/template");
        // The selector of replication controllers is a plain map.
        let plain = row.object["kind"] == "ReplicationController";
        vec![
            row.name(),
            json!(row.int("/spec/replicas")),
            json!(row.int("/status/replicas")),
            json!(row.int("/status/readyReplicas")),
            row.age(),
            containers,
            images,
            if plain { row.labels("/spec/selector") } else { row.selector("/spec/selector") },
        ]
    },
};

pub(super) const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        ("Desired", "integer", 0),
        ("Current", "integer", 0),
        ("Ready", "integer", 0),
        ("Up-to-date", "integer", 0),
        ("Available", "integer", 0),
        ("Node Selector", "string", 0),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [containers, images] = row.containers("/spec/template");
        vec![
            row.name(),
            json!(row.int("/status/desiredNumberScheduled")),
            json!(row.int("/status/currentNumberScheduled")),
            json!(row.int("/status/numberReady")),
            json!(row.int("/status/updatedNumberScheduled")),
            json!(row.int("/status/numberAvailable")),
            row.labels("/spec/template/spec/nodeSelector"),
            row.age(),
            containers,
            images,
            row.selector("/spec/selector"),
        ]
    },
};

pub(super) const JOB: Printer = Printer {
    columns: &[
        NAME,
        ("Status", "string", 0),
        ("Completions", "string", 0),
        ("Duration", "string", 0),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [containers, images] = row.containers("/spec/template");
        vec![
            row.name(),
            json!(job_status(row)),
            json!(completions(row)),
            json!(job_duration(row)),
            row.age(),
            containers,
            images,
            row.selector("/spec/selector"),
        ]
    },
};

fn job_status(row: &Row<'_>) -> &'static str {
    let is = |condition: &str| row.condition(condition) == "True";
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if row.at("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(row: &Row<'_>) -> String {
    let done = row.int("/status/succeeded");
    match (row.at("/spec/completions").and_then(Value::as_i64), row.int("/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{done}/1 of {parallelism}"),
        (None, _) => format!("{done}/1"),
    }
}

fn job_duration(row: &Row<'_>) -> String {
    row.time("/status/startTime").map_or_else(String::new, |start| {
        duration::between(start, row.time("/status/completionTime").unwrap_or(row.now))
    })
}

pub(super) const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        ("Schedule", "string", 0),
        ("Timezone", "string", 0),
        ("Suspend", "boolean", 0),
        ("Active", "integer", 0),
        ("Last Schedule", "string", 0),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [containers, images] = row.containers("/spec/jobTemplate/spec/template");
        let suspend = match row.at("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = row.time("/status/lastScheduleTime");
        vec![
            row.name(),
            json!(row.text("/spec/schedule")),
            row.text_or("/spec/timeZone", "<none>"),
            json!(suspend),
            json!(row.list("/status/active").len()),
            json!(last.map_or_else(|| "<none>".to_owned(), |last| row.elapsed(Some(last)))),
            row.age(),
            containers,
            images,
            row.selector("/spec/jobTemplate/spec/selector"),
        ]
    },
};

pub(super) const POD_DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        ("Min Available", "string", 0),
        ("Max Unavailable", "string", 0),
        ("Allowed Disruptions", "integer", 0),
        AGE,
    ],
    cells: |row| {
        let limit = |pointer: &str| match row.at(pointer) {
            Some(Value::String(share)) => json!(share),
            Some(number) => json!(number.to_string()),
            None => json!("N/A"),
        };
        vec![
            row.name(),
            limit("/spec/minAvailable"),
            limit("/spec/maxUnavailable"),
            json!(row.int("/status/disruptionsAllowed")),
            row.age(),
        ]
    },
};
