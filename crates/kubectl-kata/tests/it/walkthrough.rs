//! `docs/walkthrough.md`, run line by line on a cluster of each kind: what it shows is what the commands print.
//!
//! `UPDATE_GOLDEN=1` writes it anew; then look at every difference.

use std::collections::BTreeMap;
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
    let path = repository().join("docs/walkthrough.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (first, second) = text.split_once("<!-- cluster: kubernetes -->").unwrap();
    let commands: Vec<&str> = first.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let ours = commands.iter().filter(|line| line.starts_with("kubectl kata ")).count();
    assert_eq!(ours, 8, "the whole of it in eight commands");
    let openshift = printed(Platform::OpenShift, &commands).await;
    // All of them run there, too; the page shows where they differ most.
    let kubernetes = printed(Platform::Kubernetes, &commands).await;
    let fresh = format!(
        "{}<!-- cluster: kubernetes -->{}",
        renewed(first, &openshift),
        renewed(second, &kubernetes)
    );
    if renewing() {
        std::fs::write(path, fresh).unwrap();
    } else {
        assert_eq!(fresh, text, "docs/walkthrough.md is not what happens");
    }
    let of = |word: &str| {
        let mut found = kubernetes.iter().filter(|(command, _)| command.contains(word));
        found.next().unwrap().1.clone()
    };
    let restarts =
        "the container runtime of the node restarts once; running pods keep running; no reboot";
    assert!(of(" install ").contains(restarts) && of(" uninstall ").contains(restarts));
    assert!(of(" nodes").contains("yes   kata       containerd 2.1.4   4.1.0"), "{}", of(" nodes"));
    assert!(of(" pods ").contains(" qemu "), "{}", of(" pods "));
}

/// A part of the page with what each of its commands prints.
fn renewed(part: &str, printed: &BTreeMap<&str, String>) -> String {
    let mut fresh = String::new();
    let mut in_block = false;
    for line in part.split_inclusive('\n') {
        if line.starts_with("```") {
            in_block = line == "```console\n";
        }
        let command = line.strip_prefix("$ ").filter(|_| in_block);
        if !in_block || line.starts_with("```") || command.is_some() {
            fresh.push_str(line);
        }
        if let Some(command) = command {
            fresh.push_str(&printed[command.trim_end()]);
        }
    }
    fresh
}

/// What each command prints, one after the other on a new cluster of this kind.
async fn printed<'a>(platform: Platform, commands: &[&'a str]) -> BTreeMap<&'a str, String> {
    let lab = Lab::on(platform);
    let mut printed = BTreeMap::new();
    for command in commands {
        let mut text = String::new();
        if let Some(file) = command.strip_prefix("kubectl apply -f ") {
            text.push_str(&apply(&lab, file));
            lab.phase("example-net-tools-kata", "Running").await;
        } else {
            let words = command.strip_prefix("kubectl kata ").unwrap();
            let done = lab.kata_command(words).await;
            for line in done.err.lines().chain(done.out.lines()) {
                text.push_str(line);
                text.push('\n');
            }
            if done.code != 0 {
                text.push_str(&format!("(exit code {})\n", done.code));
            }
        }
        assert!(printed.insert(*command, text).is_none(), "{command} is there twice");
    }
    printed
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
