//! Nodes, events, services and the small kinds.

use serde_json::{Value, json};

use super::row::{AGE, NAME, Printer, Row, joined};

pub(super) const NAME_AND_AGE: Printer =
    Printer { columns: &[NAME, AGE], cells: |row| vec![row.name(), row.age()] };

/// Kinds that show when they were made, not how long ago.
pub(super) const CREATED_AT: Printer = Printer {
    columns: &[NAME, ("Created At", "date", 0)],
    cells: |row| vec![row.name(), json!(row.text("/metadata/creationTimestamp"))],
};

pub(super) const NAMESPACE: Printer = Printer {
    columns: &[NAME, ("Status", "string", 0), AGE],
    cells: |row| vec![row.name(), json!(row.text("/status/phase")), row.age()],
};

pub(super) const CONFIG_MAP: Printer = Printer {
    columns: &[NAME, ("Data", "string", 0), AGE],
    cells: |row| {
        vec![row.name(), json!(row.members("/data") + row.members("/binaryData")), row.age()]
    },
};

pub(super) const SECRET: Printer = Printer {
    columns: &[NAME, ("Type", "string", 0), ("Data", "string", 0), AGE],
    cells: |row| vec![row.name(), json!(row.text("/type")), json!(row.members("/data")), row.age()],
};

pub(super) const SERVICE_ACCOUNT: Printer =
    Printer { columns: &[NAME, AGE], cells: |row| vec![row.name(), row.age()] };

pub(super) const RUNTIME_CLASS: Printer = Printer {
    columns: &[NAME, ("Handler", "string", 0), AGE],
    cells: |row| vec![row.name(), json!(row.text("/handler")), row.age()],
};

pub(super) const LEASE: Printer = Printer {
    columns: &[NAME, ("Holder", "string", 0), AGE],
    cells: |row| vec![row.name(), json!(row.text("/spec/holderIdentity")), row.age()],
};

pub(super) const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        ("Value", "integer", 0),
        ("Global-Default", "boolean", 0),
        AGE,
        ("PreemptionPolicy", "string", 0),
    ],
    cells: |row| {
        let default = row.at("/globalDefault").and_then(Value::as_bool).unwrap_or(false);
        let policy = row.text_or("/preemptionPolicy", "PreemptLowerPriority");
        vec![row.name(), json!(row.int("/value")), json!(default), row.age(), policy]
    },
};

pub(super) const ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        ("Role", "string", 0),
        AGE,
        ("Users", "string", 1),
        ("Groups", "string", 1),
        ("ServiceAccounts", "string", 1),
    ],
    cells: |row| {
        let subjects = |kind: &str| {
            let names: Vec<String> = row
                .list("/subjects")
                .iter()
                .filter(|subject| subject["kind"] == kind)
                .map(|subject| {
                    let name = subject["name"].as_str().unwrap_or_default();
                    match subject["namespace"].as_str().filter(|_| kind == "ServiceAccount") {
                        Some(namespace) => format!("{namespace}/{name}"),
                        None => name.to_owned(),
                    }
                })
                .collect();
            json!(names.join(", "))
        };
        vec![
            row.name(),
            json!(format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name"))),
            row.age(),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

pub(super) const NODE: Printer = Printer {
    columns: &[
        NAME,
        ("Status", "string", 0),
        ("Roles", "string", 0),
        AGE,
        ("Version", "string", 0),
        ("Internal-IP", "string", 1),
        ("External-IP", "string", 1),
        ("OS-Image", "string", 1),
        ("Kernel-Version", "string", 1),
        ("Container-Runtime", "string", 1),
    ],
    cells: |row| {
        let address = |kind: &str| {
            row.list("/status/addresses")
                .iter()
                .find(|address| address["type"] == kind)
                .map_or_else(|| json!("<none>"), |address| address["address"].clone())
        };
        vec![
            row.name(),
            json!(node_status(row)),
            joined(&node_roles(row)),
            row.age(),
            json!(row.text("/status/nodeInfo/kubeletVersion")),
            address("InternalIP"),
            address("ExternalIP"),
            row.text_or("/status/nodeInfo/osImage", "<unknown>"),
            row.text_or("/status/nodeInfo/kernelVersion", "<unknown>"),
            row.text_or("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
        ]
    },
};

fn node_status(row: &Row<'_>) -> String {
    let ready = match row.condition("Ready") {
        "" => "Unknown",
        "True" => "Ready",
        _ => "NotReady",
    };
    let cordoned = row.at("/spec/unschedulable") == Some(&Value::Bool(true));
    format!("{ready}{}", if cordoned { ",SchedulingDisabled" } else { "" })
}

fn node_roles(row: &Row<'_>) -> Vec<String> {
    let labels = row.at("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    roles.dedup();
    roles
}

pub(super) const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        ("Type", "string", 0),
        ("Cluster-IP", "string", 0),
        ("External-IP", "string", 0),
        ("Port(s)", "string", 0),
        AGE,
        ("Selector", "string", 1),
    ],
    cells: |row| {
        let address = match row.text("/spec/clusterIPs/0") {
            "" => row.text_or("/spec/clusterIP", "<none>"),
            address => json!(address),
        };
        vec![
            row.name(),
            json!(row.text("/spec/type")),
            address,
            external_address(row),
            ports(row),
            row.age(),
            row.labels("/spec/selector"),
        ]
    },
};

fn external_address(row: &Row<'_>) -> Value {
    let external: Vec<&str> =
        row.list("/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match row.text("/spec/type") {
        "ExternalName" => json!(row.text("/spec/externalName")),
        "LoadBalancer" => {
            let ingress = row.list("/status/loadBalancer/ingress").iter();
            let addresses: Vec<&str> = ingress
                .filter_map(|point| point["ip"].as_str().or_else(|| point["hostname"].as_str()))
                .chain(external)
                .collect();
            if addresses.is_empty() { json!("<pending>") } else { joined(&addresses) }
        }
        _ => joined(&external),
    }
}

fn ports(row: &Row<'_>) -> Value {
    let ports: Vec<String> = row
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let number = port["port"].as_i64().unwrap_or(0);
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().filter(|port| *port > 0) {
                Some(node_port) => format!("{number}:{node_port}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    joined(&ports)
}

/// Core events and those of events.k8s.io, which name the same things differently.
pub(super) const EVENT: Printer = Printer {
    columns: &[
        ("Last Seen", "string", 0),
        ("Type", "string", 0),
        ("Reason", "string", 0),
        ("Object", "string", 0),
        ("Subobject", "string", 1),
        ("Source", "string", 1),
        ("Message", "string", 0),
        ("First Seen", "string", 1),
        ("Count", "integer", 1),
        ("Name", "string", 1),
    ],
    cells: |row| {
        let time = |pointers: [&str; 2]| pointers.iter().find_map(|pointer| row.time(pointer));
        let either = |pointers: [&str; 2]| {
            pointers.iter().map(|pointer| row.text(pointer)).find(|text| !text.is_empty())
        };
        let first = time(["/firstTimestamp", "/deprecatedFirstTimestamp"])
            .or_else(|| row.time("/eventTime"));
        let last = row
            .time("/series/lastObservedTime")
            .or_else(|| time(["/lastTimestamp", "/deprecatedLastTimestamp"]))
            .or(first);
        let count = ["/series/count", "/count", "/deprecatedCount"]
            .iter()
            .map(|pointer| row.int(pointer))
            .find(|count| *count > 0);
        let kind = either(["/involvedObject/kind", "/regarding/kind"]).unwrap_or_default();
        let kind = kind.to_lowercase();
        let target = match either(["/involvedObject/name", "/regarding/name"]) {
            Some(name) => format!("{kind}/{name}"),
            None => kind,
        };
        vec![
            json!(row.elapsed(last)),
            json!(row.text("/type")),
            json!(row.text("/reason")),
            json!(target),
            json!(either(["/involvedObject/fieldPath", "/regarding/fieldPath"]).unwrap_or("")),
            json!(event_source(row)),
            json!(either(["/message", "/note"]).unwrap_or_default().trim()),
            json!(row.elapsed(first)),
            json!(count.unwrap_or(1)),
            row.name(),
        ]
    },
};

fn event_source(row: &Row<'_>) -> String {
    let first = |pointers: [&str; 4]| {
        pointers
            .into_iter()
            .map(|pointer| row.text(pointer))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    };
    let component = first([
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]);
    let host = first([
        "/source/host",
        "/deprecatedSource/host",
        "/reportingInstance",
        "/reportingInstance",
    ]);
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}
