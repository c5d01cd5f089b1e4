//! The figures as Markdown tables, each beside its goal.

use crate::compare::{Behaviour, Comparison};
use crate::lab::{Requests, to_float};
use crate::sizes::{Figures, writes};
use crate::virtual_time::{Counted, Installs};

/// What no cluster and no machine excuses.
pub(crate) fn broken_promises(figures: &Figures) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    let idle = writes(&figures.idle_requests);
    expect(idle == 0, format!("{idle} writes at rest"));
    let writes = figures.heartbeat_writes;
    expect(writes == 0, format!("{writes} writes because of heartbeats"));
    let idle = figures.install.idle_versions + figures.uninstall.idle_versions;
    expect(idle == 0, format!("{idle} versions of the KataConfig that say nothing new"));
    let status = figures.largest_status;
    expect(status < 100 * 1024, format!("a status of {status} bytes"));
    expect(figures.pods_named(), "pods were not there".to_owned());
    wrong
}

impl Figures {
    /// Whether both phases ran with pods in the cluster.
    fn pods_named(&self) -> bool {
        self.install.pods > 0 && self.uninstall.pods > 0
    }
}

/// A table that grows by rows.
struct Table {
    text: String,
}

impl Table {
    fn new(heads: &[String]) -> Self {
        let mut table = Self { text: String::new() };
        table.row(heads);
        table.row(&heads.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
        table
    }

    fn row(&mut self, cells: &[String]) {
        self.text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
}

fn seconds(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0} s") } else { format!("{value:.2} s") }
}

fn mib(value: f64) -> String {
    format!("{value:.1} MiB")
}

fn kib(bytes: usize) -> String {
    format!("{:.1} KiB", to_float(u64::try_from(bytes).unwrap_or(u64::MAX)) / 1024.0)
}

fn without_leases(requests: &Requests) -> u64 {
    requests.iter().filter(|(what, _)| !what.contains("leases")).map(|(_, count)| count).sum()
}

/// Requests by verb per node; those for the lease apart.
fn by_verb(requests: &Requests, nodes: u32) -> String {
    let mut verbs = std::collections::BTreeMap::<&str, u64>::new();
    for (what, count) in requests.iter().filter(|(what, _)| !what.contains("leases")) {
        *verbs.entry(what.split_once(' ').map_or("", |(verb, _)| verb)).or_default() += count;
    }
    let parts: Vec<String> = verbs
        .iter()
        .map(|(verb, count)| format!("{verb} {:.2}", to_float(*count) / f64::from(nodes)))
        .collect();
    parts.join(", ")
}

fn by_kind(requests: &Requests) -> String {
    let parts: Vec<String> =
        requests.iter().map(|(what, count)| format!("{what} {count}")).collect();
    parts.join(", ")
}

/// The first table.
pub(crate) fn sizes(figures: &[Figures]) -> String {
    let mut heads = vec!["workers".to_owned()];
    heads.extend(figures.iter().map(|figures| figures.workers.to_string()));
    heads.push("goal at 10,000".to_owned());
    let mut table = Table::new(&heads);
    let mut row = |name: &str, goal: &str, of: &dyn Fn(&Figures) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(figures.iter().map(of));
        cells.push(goal.to_owned());
        table.row(&cells);
    };
    row("speed of the cluster's time", "", &|f| format!("{}x", f.speed));
    row("Node object as JSON", "", &|f| kib(f.node_bytes));
    row("pods at the install, at the uninstall", "", &|f| {
        format!("{}, {}", f.install.pods, f.uninstall.pods)
    });
    row("KataConfig -> first node labelled (all intents computed)", "1 s", &|f| {
        seconds(f.first_intent)
    });
    row("KataConfig -> last node labelled (all intents written)", "", &|f| seconds(f.last_intent));
    row("KataConfig -> Ready (cluster's pace)", "", &|f| seconds(f.install.seconds));
    row("last node done -> Ready", "", &|f| seconds(f.done_to_ready));
    row("KataConfig deleted -> gone (cluster's pace)", "", &|f| seconds(f.uninstall.seconds));
    row("requests of the install", "6 a node and 40", &|f| {
        without_leases(&f.install.requests).to_string()
    });
    row("- by verb, a node", "", &|f| by_verb(&f.install.requests, f.workers));
    row("requests of the uninstall", "6 a node and 40", &|f| {
        without_leases(&f.uninstall.requests).to_string()
    });
    row("- by verb, a node", "", &|f| by_verb(&f.uninstall.requests, f.workers));
    row("status writes, install / uninstall", "", &|f| {
        format!("{} / {}", f.install.status_writes, f.uninstall.status_writes)
    });
    row("KataConfig versions with nothing new", "0", &|f| {
        (f.install.idle_versions + f.uninstall.idle_versions).to_string()
    });
    row("largest status", "100 KiB", &|f| kib(f.largest_status));
    row("CPU, install / uninstall", "", &|f| {
        format!("{} / {}", seconds(f.install.cpu), seconds(f.uninstall.cpu))
    });
    row("log, install / uninstall", "", &|f| {
        let size = |bytes: u64| kib(usize::try_from(bytes).unwrap_or(usize::MAX));
        format!("{} / {}", size(f.install.log_bytes), size(f.uninstall.log_bytes))
    });
    row("memory after the start", "", &|f| mib(f.started));
    row("memory at rest, installed", "200 MiB", &|f| mib(f.steady));
    row("memory peak, install / uninstall", "", &|f| {
        format!("{} / {}", mib(f.install.peak), mib(f.uninstall.peak))
    });
    row("memory peak while nodes are listed anew", "300 MiB", &|f| mib(f.relist_peak));
    row("at rest: watched for", "", &|f| seconds(f.idle_seconds));
    row("at rest: CPU", "", &|f| seconds(f.idle_cpu));
    row("at rest: writes besides the lease", "0", &|f| writes(&f.idle_requests).to_string());
    row("at rest: requests", "", &|f| by_kind(&f.idle_requests));
    row("heartbeats of all nodes: rate", "1,000/s", &|f| format!("{:.0}/s", f.heartbeats_a_second));
    row("heartbeats of all nodes: CPU", "5 % of a core", &|f| {
        format!("{:.1} %", f.heartbeat_cpu_percent)
    });
    row("heartbeats of all nodes: writes", "0", &|f| f.heartbeat_writes.to_string());
    row("stopped after SIGTERM", "1 s", &|f| seconds(f.stop));
    row("(memory peak of the simulator)", "", &|f| mib(f.simulator_peak));
    table.text
}

/// The second table.
pub(crate) fn compare(figures: &[(Comparison, Counted)], behaviour: &Behaviour) -> String {
    let mut heads = vec!["workers".to_owned()];
    heads.extend(figures.iter().map(|(compared, _)| compared.workers.to_string()));
    heads.extend(["goal".to_owned(), "Go operator".to_owned()]);
    let mut table = Table::new(&heads);
    let mut row =
        |name: &str, goal: &str, go: &str, of: &dyn Fn(&Comparison, &Counted) -> String| {
            let mut cells = vec![name.to_owned()];
            cells.extend(figures.iter().map(|(compared, counted)| of(compared, counted)));
            cells.extend([goal.to_owned(), go.to_owned()]);
            table.row(&cells);
        };
    row("unavailable at once; speed", "", "", &|c, _| format!("{}; {}x", c.limit, c.speed));
    row("requests of an install, process", "6 a node and 40", "50 / 1,936 / 8,898", &|c, _| {
        without_leases(&c.install.requests).to_string()
    });
    row("requests of an install, real speed (virtual time)", "6 a node and 40", "", &|_, v| {
        without_leases(&v.requests).to_string()
    });
    row("- by kind", "", "", &|_, v| by_kind(&v.requests));
    row("KataConfig versions, of them nothing new", "0 of them", "94 %", &|c, v| {
        format!(
            "{}, {} (virtual time: {}, {})",
            c.install.versions, c.install.idle_versions, v.versions, v.idle_versions
        )
    });
    row("CPU of an install", "3 s at 300", "0.17 / 12 / 234 s", &|c, _| seconds(c.install.cpu));
    row("log of an install", "1 MB at 300", "0.1 / 21.5 / 460 MB", &|c, _| {
        kib(usize::try_from(c.install.log_bytes).unwrap_or(usize::MAX))
    });
    row("memory after the start", "", "35 / 36 / 41 MiB", &|c, _| mib(c.started));
    row("memory, installed", "20 MiB at 3, 25 at 300", "41 / 44 / 57 MiB", &|c, _| mib(c.steady));
    row("memory peak of an install", "20 MiB at 3, 25 at 300", "41 / 47 / 67 MiB", &|c, _| {
        mib(c.install.peak)
    });
    row("memory peak of an uninstall", "", "", &|c, _| mib(c.uninstall.peak));
    row("- with 5,000 pods of 11 KB", "no growth", "- / 386 / -", &|c, _| {
        c.uninstall_with_pods.as_ref().map_or_else(|| "-".to_owned(), |phase| mib(phase.peak))
    });
    row("CPU of an uninstall, with 5,000 pods", "", "47 s at 50", &|c, _| {
        let with = c.uninstall_with_pods.as_ref();
        let with = with.map_or_else(|| "-".to_owned(), |phase| seconds(phase.cpu));
        format!("{}, {with}", seconds(c.uninstall.cpu))
    });
    format!("{}\n{}", table.text, behaviour_table(behaviour))
}

fn behaviour_table(behaviour: &Behaviour) -> String {
    let heads = ["3 workers, real process", "measured", "goal", "Go operator"];
    let mut table = Table::new(&heads.map(str::to_owned));
    let mut row = |cells: [&str; 4]| table.row(&cells.map(str::to_owned));
    for (what, took) in &behaviour.restored {
        let took = took.map_or_else(|| "not made by this operator".to_owned(), seconds);
        row([&format!("{what} removed by hand -> back"), &took, "1 s", "90 s and more, or never"]);
    }
    let Behaviour { pool_paused_named, nothing_selected_named, goes_on_after_last_pod, .. } =
        behaviour;
    row(["pool paused -> named", &seconds(*pool_paused_named), "1 s", "never"]);
    row(["nothing selected -> named", &seconds(*nothing_selected_named), "1 s", "never"]);
    row(["last blocking pod gone -> goes on", &seconds(*goes_on_after_last_pod), "5 s", "51 s"]);
    row(["SIGTERM -> process gone", &seconds(behaviour.stop), "", "0.03 s"]);
    row([
        "process gone -> next one started and leads",
        &seconds(behaviour.next_leads),
        "1 s",
        "16 s",
    ]);
    for rival in &behaviour.rivals {
        let outcome = if rival.installed && rival.left.is_empty() && rival.early_classes == 0 {
            format!("installed and removed, {} foreign writes", rival.touches)
        } else {
            format!("WRONG: {rival:?}")
        };
        let what = format!("KataConfig touched {} times a second", rival.rate);
        row([&what, &outcome, "no effect", "3 of 3 workers degraded"]);
    }
    table.text
}

/// The installs on virtual time.
pub(crate) fn installs(installs: &Installs) -> String {
    let heads = ["installs and uninstalls on virtual time", "measured", "goal", "Go operator"];
    let mut table = Table::new(&heads.map(str::to_owned));
    let mut row = |cells: [&str; 4]| table.row(&cells.map(str::to_owned));
    let early = format!("{} of {} installs", installs.early_classes, installs.installs);
    row(["RuntimeClass before any node can serve it", &early, "0 of 10,000", "14 of 30 warm"]);
    row(["RuntimeClasses created", &installs.classes.to_string(), "", ""]);
    let touches = installs.touches.to_string();
    row(["foreign writes, one at a random moment of each", &touches, "", ""]);
    let failures = installs.failures.len().to_string();
    row(["ended wrong", &failures, "0", "each with a 409 in the window"]);
    for failure in &installs.failures {
        row(["-", failure, "", ""]);
    }
    table.text
}
