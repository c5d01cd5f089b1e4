//! `docs/walkthrough.md` and `docs/walkthrough-kubernetes.md`, run line by line: what they show is what
//! the commands print.
//!
//! `UPDATE_GOLDEN=1` writes them anew; then look at every difference.

use std::path::{Path, PathBuf};

use serde_json::Value;
use simcluster::world::Platform;

use crate::golden::renewing;
use crate::lab::Lab;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[tokio::test(start_paused = true)]
async fn the_walkthrough_is_what_happens() {
    follow("walkthrough.md", Platform::OpenShift).await;
}

#[tokio::test(start_paused = true)]
async fn the_walkthrough_without_the_machine_config_operator_is_what_happens() {
    follow("walkthrough-kubernetes.md", Platform::Kubernetes).await;
}

/// Runs the lines of a page on a new cluster of this kind.
async fn follow(page: &str, platform: Platform) {
    let path = repository().join("docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let lab = Lab::on(platform);
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
            fresh.push_str(&apply(&lab, file));
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
    assert_eq!(commands, 8, "the whole of it in eight commands");
    if renewing() {
        std::fs::write(path, fresh).unwrap();
    } else {
        assert_eq!(fresh, text, "docs/{page} is not what happens");
    }
}

/// Creates what a file of the repository has, and says what kubectl would.
fn apply(lab: &Lab, file: &str) -> String {
    let text = std::fs::read_to_string(repository().join(file)).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let mut said = String::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let name = object["metadata"]["name"].as_str().unwrap();
        said.push_str(&format!("{kind}/{name} created\n"));
        lab.create(object);
    }
    said
}

/// README shows what `install` says before it asks.
#[tokio::test(start_paused = true)]
async fn the_readme_shows_what_install_says() {
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, after) = text.split_once("```sh\nkubectl kata ").unwrap();
    let (line, after) = after.split_once('\n').unwrap();
    let (_, after) = after.split_once("```text\n").unwrap();
    let (shown, _) = after.split_once("Continue? [y/N]\n```").unwrap();
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    let done = lab.kata_command(line).await.expect(4);
    let said = done.err;
    for line in shown.lines().filter(|line| *line != "...") {
        assert!(said.lines().any(|said| said == line), "does not say {line:?}:\n{said}");
    }
}

/// The commands that docs/try.md lists, in order, on a cluster where they can succeed.
#[tokio::test(start_paused = true)]
async fn the_commands_to_try_do_what_they_say() {
    let text = std::fs::read_to_string(repository().join("docs/try.md")).unwrap();
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
