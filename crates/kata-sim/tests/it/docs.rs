//! Every block of commands of the documentation.
//!
//! What is fenced as `console` is run line by line on a simulated cluster, and must succeed; a comment
//! `<!-- cluster: openshift -->` above it says on which: `openshift` or `kubernetes`, with `, ready` one
//! with the operator and Kata on a node, with `, compact` one without workers. Blocks without a comment go on where the last one
//! ended. What is fenced as `sh` needs more than a simulated cluster: its syntax is checked, and every
//! option of kubectl, helm and our programs. What is fenced as `yaml` and is an object is checked by the
//! API server.
//!
//! The `console` blocks of README.md, docs/try.md and docs/walkthrough.md have tests of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::kubectl_process::{command, named_kubectl, repository, run};
use crate::site::{Site, programs};

/// Foreign programs that `sh` blocks name: their options are not checked.
const FOREIGN: [&str; 20] = [
    "cargo",
    "containerd",
    "cosign",
    "cp",
    "crictl",
    "curl",
    "docker",
    "git",
    "kind",
    "journalctl",
    "k3s",
    "mdbook",
    "oc",
    "oc-mirror",
    "openssl",
    "promtool",
    "skopeo",
    "ssh",
    "sudo",
    "systemctl",
];

/// A block of a page.
#[derive(Clone, Debug)]
struct Block {
    kind: String,
    /// What the comment above it says, if there is one.
    cluster: Option<String>,
    lines: Vec<String>,
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let mut found: Vec<Block> = Vec::new();
    let mut open = None;
    let mut cluster = None;
    let mut indent = 0;
    for line in text.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(kind)) => {
                indent = line.len() - line.trim_start().len();
                open = Some(Block {
                    kind: kind.to_owned(),
                    cluster: cluster.take(),
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            // Below a point of a list the block is as far to the right as the point.
            (Some(block), None) => {
                let inside = line.get(indent..).unwrap_or_default();
                assert!(line.get(..indent).unwrap_or(line).trim().is_empty(), "{line}");
                block.lines.push(inside.to_owned());
            }
            (None, None) => {
                let comment = line.strip_prefix("<!-- cluster: ");
                if let Some(comment) = comment.and_then(|line| line.strip_suffix(" -->")) {
                    cluster = Some(comment.to_owned());
                }
            }
        }
    }
    assert!(open.is_none(), "{}: a block does not end", page.display());
    found
}

/// Every page that git knows, but those with tests of their own.
fn pages() -> Vec<PathBuf> {
    let listed = run(command("git").args(["ls-files", "*.md"])).good();
    let own = ["README.md", "docs/try.md", "docs/walkthrough.md"];
    listed.lines().filter(|page| !own.contains(page)).map(PathBuf::from).collect()
}

/// Lines of a shell, joined where the shell joins them.
fn commands(lines: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open: Option<String> = None;
    let mut until: Option<String> = None;
    for line in lines {
        let command = open.get_or_insert_default();
        command.push_str(line);
        if let Some(end) = &until {
            if line != end {
                command.push('\n');
                continue;
            }
            until = None;
        } else if let Some((_, end)) = line.split_once("<<") {
            let end = end.split_whitespace().next().unwrap_or_default();
            until = Some(end.trim_matches(['\'', '"']).to_owned());
            command.push('\n');
            continue;
        } else if line.ends_with('\\') {
            command.push('\n');
            continue;
        }
        found.extend(open.take());
    }
    assert!(open.is_none(), "{lines:?} does not end");
    found.retain(|line| !line.trim().is_empty() && !line.starts_with('#'));
    found
}

/// Runs the console blocks of a page; returns what did not hold.
fn play(page: &Path) -> Result<(), String> {
    let mut site: Option<Site> = None;
    let mut number = 0;
    for block in blocks(page).iter().filter(|block| block.kind == "console") {
        if let Some(cluster) = &block.cluster {
            number += 1;
            let name = page.to_string_lossy().replace(['/', '.'], "-") + &format!("-{number}");
            site = Some(match cluster.split_once(", ").unwrap_or((cluster, "")) {
                (platform @ ("openshift" | "kubernetes"), "ready") => Site::ready(&name, platform),
                (platform @ ("openshift" | "kubernetes"), "") => Site::start(&name, platform, &[]),
                ("openshift", "compact") => Site::start(&name, "openshift", &["--compact"]),
                _ => return Err(format!("there is no cluster {cluster:?}")),
            });
        }
        let site = site.as_mut().ok_or("the first block does not say on which cluster")?;
        for line in commands(&block.lines) {
            let scratch = format!(" {}/", site.up.directory.display());
            let ended = site.line(&line.replace(" /tmp/", &scratch));
            if ended.code != Some(0) {
                let log = std::fs::read_to_string(site.up.directory.join("operator.log"));
                let log = log.unwrap_or_default();
                let end = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
                return Err(format!("{line}\n{}{}\n{end}", ended.stdout, ended.stderr));
            }
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs kubectl and helm"]
fn every_console_block_does_what_it_says() {
    let with_blocks = |page: &PathBuf| blocks(page).iter().any(|block| block.kind == "console");
    let left: Vec<PathBuf> = pages().into_iter().filter(with_blocks).collect();
    assert!(left.len() >= 10, "{left:?}");
    let left = Mutex::new(left);
    let failed = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(page) = left.lock().unwrap().pop() else { break };
                    if let Err(error) = play(&page) {
                        failed.lock().unwrap().insert(page, error);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let messages: Vec<String> =
        failed.iter().map(|(page, error)| format!("{}: {error}", page.display())).collect();
    assert!(messages.is_empty(), "{}", messages.join("\n\n"));
}

/// A program that only reads its command line: with `--help` at the end, options that it does not know are
/// refused all the same.
const SHIM: &str = r#"#!/bin/bash
help=--help
for word do
    shift
    if [ "$word" = -- ] && [ -n "$help" ]; then set -- "$@" --help; help=; fi
    set -- "$@" "$word"
done
if [ -n "$help" ]; then set -- "$@" --help; fi
if ! said=$(PROGRAM "$@" 2>&1 </dev/null); then printf '%s\n' "$said" >&2; exit 1; fi
"#;

#[test]
#[ignore = "needs kubectl and helm"]
fn every_block_for_real_clusters_is_one_that_a_shell_and_the_programs_understand() {
    let kubectl = named_kubectl();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sh-blocks");
    drop(std::fs::remove_dir_all(&folder));
    let real = programs(&folder, &kubectl);
    let shims = folder.join("shims");
    std::fs::create_dir_all(&shims).unwrap();
    let shim = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = shims.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    for name in ["kubectl", "helm", "kata-operator", "kata-sim"] {
        shim(name, &SHIM.replace("PROGRAM", &real.join(name).display().to_string()));
    }
    for name in FOREIGN {
        shim(name, "#!/bin/bash\n");
    }
    let mut messages = Vec::new();
    let mut count = 0;
    for page in pages().into_iter().chain(["README.md".into()]) {
        for block in blocks(&page).iter().filter(|block| block.kind == "sh") {
            let text = format!("set -eo pipefail\n{}", block.lines.join("\n"));
            let mut shell = command("/bin/bash");
            shell
                .args(["-c", &text])
                .current_dir(&folder)
                .env_clear()
                // kubectl finds its plugins there.
                .env("PATH", format!("{}:{}", shims.display(), real.display()))
                .env("HOME", &folder);
            let ended = run(&mut shell);
            count += 1;
            if ended.code != Some(0) {
                let (block, said) = (block.lines.join("\n"), ended.stderr);
                messages.push(format!("{}:\n{block}\n{said}", page.display()));
            }
        }
    }
    assert!(count >= 5, "{count} blocks");
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

#[test]
#[ignore = "needs kubectl and helm"]
fn every_object_in_the_documentation_is_one_that_the_api_server_takes() {
    let mut site = Site::start("docs-objects", "openshift", &[]);
    site.good("kata-operator crd | kubectl apply --server-side -f -");
    for namespace in ["openshift-sandboxed-containers-operator", "kata-operator"] {
        site.good(&format!("kubectl create namespace {namespace}"));
    }
    let class = r#"{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"kata"},"handler":"kata"}"#;
    site.good(&format!("kubectl apply -f - <<< '{class}'"));
    let mut messages = Vec::new();
    let mut count = 0;
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| block.kind == "yaml") {
            if !block.lines.iter().any(|line| line.starts_with("apiVersion: ")) {
                continue;
            }
            let file = site.up.directory.join("object.yaml");
            std::fs::write(&file, block.lines.join("\n")).unwrap();
            let apply = "kubectl apply --server-side --dry-run=server --validate=strict -f";
            let ended = site.line(&format!("{apply} {}", file.display()));
            count += 1;
            if ended.code != Some(0) {
                messages.push(format!("{}: {}", page.display(), ended.stderr));
            }
        }
    }
    assert!(count > 0, "no object in the documentation");
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}
