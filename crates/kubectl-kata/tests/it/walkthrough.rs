//! `docs/walkthrough.md`, run line by line: what it shows is what the commands print.
//!
//! `UPDATE_GOLDEN=1` writes it anew; then look at every difference.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::golden::renewing;
use crate::lab::Lab;

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/walkthrough.md")
}

#[tokio::test(start_paused = true)]
async fn the_walkthrough_is_what_happens() {
    let text = std::fs::read_to_string(page()).unwrap();
    let lab = Lab::new();
    let mut fresh = String::new();
    let mut in_block = false;
    let mut commands = 0;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = line == "```console";
        }
        if !in_block || line.starts_with("```") {
            fresh.push_str(line);
            fresh.push('\n');
            continue;
        }
        let Some(command) = line.strip_prefix("$ ") else { continue };
        fresh.push_str(line);
        fresh.push('\n');
        if let Some(file) = command.strip_prefix("kubectl apply -f ") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            let objects: Vec<Value> =
                serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
            for object in objects {
                let kind = object["kind"].as_str().unwrap().to_lowercase();
                fresh.push_str(&format!(
                    "{kind}/{} created\n",
                    object["metadata"]["name"].as_str().unwrap()
                ));
                lab.create(object);
            }
            lab.phase("example-net-tools-kata", "Running").await;
            continue;
        }
        commands += 1;
        let words = command.strip_prefix("kubectl kata ").unwrap();
        let done = lab.kata_command(words).await;
        for line in done.err.lines().chain(done.out.lines()) {
            fresh.push_str(line);
            fresh.push('\n');
        }
        if done.code != 0 {
            fresh.push_str(&format!("(exit code {})\n", done.code));
        }
    }
    assert!(commands <= 8, "{commands} commands are too many");
    if renewing() {
        std::fs::write(page(), fresh).unwrap();
    } else {
        assert_eq!(fresh, text, "docs/walkthrough.md is not what happens");
    }
}

/// The lines of README's block, in order, on a cluster where they can succeed.
#[tokio::test(start_paused = true)]
async fn the_readmes_lines_do_what_they_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, after) = text.split_once("## kubectl kata\n").unwrap();
    let (_, after) = after.split_once("```console\n").unwrap();
    let (block, _) = after.split_once("```").unwrap();
    let lab = Lab::new();
    let mut lines = 0;
    for line in block.lines() {
        let words =
            line.strip_prefix("kubectl kata ").unwrap().replace("NAME", "plain -n test-kata");
        if words.starts_with("why") {
            lab.pod("plain", None);
            lab.phase("plain", "Running").await;
        }
        // The pod of the example is not sandboxed, which is a finding.
        let expected = u8::from(words.starts_with("why"));
        lab.kata_command(&words).await.expect(expected);
        lines += 1;
    }
    assert!(lines >= 7, "{block}");
}
