//! `history` and `report`: how long changes took, and the page about a roll-out.

use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use serde_json::{Value, json};
use simcluster::world::Platform;

use crate::lab::{Lab, kata_nodes};

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
    done.says(&[
        "NODE       CHANGE    RESULT   BEGAN",
        "Rebooting ",
        "Median of 2 installations: ",
    ]);
    let done = lab.kata_command("history worker-7").await;
    done.says(&["there is no KataNode of node worker-7: `kubectl kata nodes` lists"]);
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
    let path = write(&lab, "report.html").await;
    let page = std::fs::read_to_string(&path).unwrap();
    for text in [
        "This cluster is simulated: nothing on this page was measured.",
        "<p class=\"verdict good\">Done: Kata is ready on 3 of 3 nodes",
        "<dt>Cluster</dt><dd>",
        "<dt>Last roll-out</dt><dd>2",
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
    let page = std::fs::read_to_string(many().await).unwrap();
    assert_eq!(page.matches("<text class=\"node\"").count(), 500);
    assert_eq!(page.matches(">failed, ").count(), 5);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("<title>ip-10-0-0-9.eu") < place("<title>ip-10-0-0-10.eu"));
}

/// The page about a roll-out of 500 nodes.
async fn many() -> PathBuf {
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
    write(&lab, "many.html").await
}

/// Writes the page about a cluster.
async fn write(lab: &Lab, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let line = format!("report --file {}", path.display());
    lab.kata_command(&line).await.expect(0).says(&["wrote ", name, "(simulated)"]);
    path
}

/// A screenshot of a page: its width and its pixels.
#[expect(clippy::disallowed_methods, reason = "a browser looks at the page")]
fn screenshot(page: &Path, is_dark: bool, width: usize) -> (usize, Vec<[u8; 3]>) {
    let browser = std::env::var("KATA_TEST_BROWSER");
    let browser = browser.unwrap_or_else(|_| panic!("`. .ci/tools` has a browser"));
    let scheme = if is_dark { "dark" } else { "light" };
    let picture = page.with_extension(format!("{width}.{scheme}.png"));
    drop(std::fs::remove_file(&picture));
    let scheme = if is_dark { 0 } else { 1 };
    let output = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--hide-scrollbars"])
        .arg(format!("--window-size={width},1600"))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(picture.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = std::io::BufReader::new(std::fs::File::open(&picture).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let samples = info.color_type.samples();
    let pixels = bytes[..info.buffer_size()].chunks_exact(samples).map(|it| [it[0], it[1], it[2]]);
    (usize::try_from(info.width).unwrap(), pixels.collect())
}

/// The colours are those of the reader's preference, the bars are there, and nothing reaches over the margin.
#[tokio::test(start_paused = true)]
#[ignore = "needs a browser"]
async fn a_browser_shows_the_report_in_light_in_dark_and_narrow() {
    let lab = Lab::with_workers(5);
    let names: Vec<String> = (0..5).map(|number| format!("worker-{number}")).collect();
    lab.kata(&names.iter().map(String::as_str).collect::<Vec<_>>());
    lab.ready().await;
    for page in [write(&lab, "few.html").await, many().await] {
        let light = (false, [0xff, 0xff, 0xff], [0x3b, 0x6f, 0xd4]);
        let dark = (true, [0x14, 0x18, 0x1f], [0x7a, 0xa5, 0xff]);
        for ((is_dark, back, bar), width) in [(light, 900), (dark, 900), (light, 400)] {
            let (width, pixels) = screenshot(&page, is_dark, width);
            let (about, count) =
                (page.display(), |colour| pixels.iter().filter(|it| **it == colour).count());
            assert_eq!(pixels[0], back, "{about}");
            assert!(count(bar) > 300, "{about}: {} pixels of the first step", count(bar));
            let rows = pixels.chunks_exact(width);
            let is_margin =
                |row: &[[u8; 3]]| row[..10].iter().chain(&row[width - 10..]).all(|it| *it == back);
            assert!(rows.clone().all(is_margin), "{about}: something reaches over the margin");
        }
    }
}
