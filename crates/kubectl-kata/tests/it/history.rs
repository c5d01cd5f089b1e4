//! `history` and `report`: how long changes took, and the page about a roll-out.

use jiff::SignedDuration;
use serde_json::{Value, json};
use simcluster::world::Platform;

use crate::lab::{Lab, Place, kata_nodes};

fn changes(report: &Value) -> Vec<String> {
    let items = report["items"].as_array().unwrap().iter();
    let change = |item: &Value| {
        let change = |change: &Value| {
            let steps = change["steps"].as_array().unwrap().iter();
            let names: Vec<&str> = steps.map(|step| step["name"].as_str().unwrap()).collect();
            let (node, kind) = (item["name"].as_str().unwrap(), change["kind"].as_str().unwrap());
            format!("{node} {kind} {}: {}", change["result"].as_str().unwrap(), names.join(" "))
        };
        item["changes"].as_array().unwrap().iter().map(change).collect::<Vec<_>>()
    };
    items.flat_map(change).collect()
}

#[tokio::test(start_paused = true)]
async fn the_history_of_a_roll_out_has_the_time_of_each_step() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.ready().await;
    let report = lab.kata_command("history -o json").await.expect(0).json();
    let steps = "Applying Rebooting";
    for (change, node) in changes(&report).iter().zip(["worker-0", "worker-1"]) {
        assert!(change.starts_with(&format!("{node} install done: ")), "{change}");
        assert!(change.contains(steps), "{change}");
    }
    let first = &report["items"][0]["changes"][0];
    let of_steps =
        first["steps"].as_array().unwrap().iter().map(|it| it["seconds"].as_i64().unwrap());
    assert_eq!(first["seconds"], of_steps.sum::<i64>());
    assert!(first["seconds"].as_i64().unwrap() > 300, "{first}");
    let done = lab.kata_command("history").await.expect(0);
    done.says(&["NODE       CHANGE    RESULT   BEGAN", "Rebooting ", "Median of 2 installs: "]);
    let done = lab.kata_command("history worker-7").await;
    done.says(&["there is no node with Kata worker-7"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_by_a_job_has_a_history_too() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let report = lab.kata_command("history -o json").await.expect(0).json();
    let changes = changes(&report);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].starts_with("worker-0 install done: "), "{changes:?}");
}

/// The page is whole, loads nothing, and has no text of the cluster as markup.
#[tokio::test(start_paused = true)]
async fn the_report_is_one_page_that_loads_nothing() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0", "worker-1", "worker-2"]);
    lab.ready().await;
    lab.stop_operator();
    let hostile = json!({"status": {"message": "<script>alert(1)</script>"}});
    lab.merge_status(&kata_nodes(), "", "worker-1", &hostile);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html");
    let line = format!("report --file {}", path.display());
    let done = lab.run_at(&line, &Place::default()).await.expect(0);
    done.says(&["wrote ", "report.html (simulated)"]);
    let page = std::fs::read_to_string(&path).unwrap();
    for text in [
        "This cluster is simulated: nothing on this page was measured.",
        "<svg ",
        "<title>worker-0: Rebooting ",
        "Median of ",
        "RuntimeClass",
        "&lt;script&gt;alert(1)",
    ] {
        assert!(page.contains(text), "{text}:\n{page}");
    }
    for text in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(text), "{text}:\n{page}");
    }
}

/// A roll-out of many nodes: one row for each, in natural order, with what failed marked as such.
#[tokio::test(start_paused = true)]
async fn the_report_has_a_row_for_each_of_many_nodes() {
    let mut lab = Lab::with_workers(1);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    let now = lab.cluster.now();
    let at =
        |minutes: i64| now.checked_sub(SignedDuration::from_mins(minutes)).unwrap().to_string();
    for number in 1..500_i64 {
        let name =
            format!("ip-10-0-{}-{}.eu-central-1.compute.internal", number / 250, number % 250);
        let begin = 240 - number / 3;
        let step = |step: &str, minutes: i64| json!({"phase": "Installing", "step": step, "time": at(begin - minutes)});
        let mut history = vec![
            step("2/6 Draining", 0),
            step("3/6 Applying", 3 + number % 5),
            step("4/6 Rebooting", 10 + number % 5),
            step("5/6 Finishing", 15 + number % 7),
        ];
        let end = if number % 97 == 0 { "Failed" } else { "Ready" };
        history.push(json!({"phase": end, "time": at(begin - 25)}));
        lab.create(json!({
            "apiVersion": "kata-operator.dev/v1alpha1", "kind": "KataNode", "metadata": {"name": name},
            "spec": {"nodeName": name, "kataConfig": "cluster-kataconfig"},
        }));
        let status = json!({"status": {"ready": "True", "phase": end, "history": history}});
        lab.merge_status(&kata_nodes(), "", &name, &status);
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("many.html");
    lab.kata_command(&format!("report --file {}", path.display())).await.expect(0);
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page.matches("<text class=\"node\"").count(), 500);
    assert_eq!(page.matches("failed, ").count(), 5);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("<title>ip-10-0-0-9.eu") < place("<title>ip-10-0-0-10.eu"));
}
