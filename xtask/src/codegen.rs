//! The generated files under `deploy/` and `docs/`: what the programs print is what is committed.

mod accepted;
mod catalog;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::programs::{self, Profile};
use crate::{book, command, examples, output, reference, say};

/// What a program prints: the program, the words after its name, and the file that is exactly that. The chart has links
/// to two of them.
const FILES: [(&str, &[&str], &str); 4] = [
    ("kata-operator", &["crd"], "deploy/crds/crds.yaml"),
    ("kata-operator", &["alerts"], "deploy/monitoring/alerts.yaml"),
    ("kata-operator", &["dashboards"], "deploy/monitoring/dashboard.json"),
    ("kubectl-kata", &["__reference"], "docs/cli.md"),
];
/// What `kata-operator manifests` prints with these words, but for the CustomResourceDefinitions, which `apply -k` takes
/// from their own folder.
const MANIFESTS: [(&[&str], &str); 2] = [
    (&[], "deploy/openshift/operator.yaml"),
    (&["--platform", "kubernetes"], "deploy/kubernetes/operator.yaml"),
];
/// The image in these files: no registry has it, since no host below `invalid` exists. Who installs names their own.
const UNPUBLISHED: &str = "registry.invalid/kata-operator:unpublished";
/// The folder of the OLM bundle.
const BUNDLE: &str = "deploy/olm";
/// The objects on OpenShift that the OLM bundle has too, by kind and name. OLM chooses their namespace. They are copies,
/// since an image is made of the folder, in which a link would lead nowhere.
const BUNDLED: [(&str, &str); 10] = [
    ("ClusterRole", "kata-operator-cluster-view"),
    ("ClusterRole", "kata-operator-edit"),
    ("ClusterRole", "kata-operator-view"),
    ("CustomResourceDefinition", "kataconfigs.kataconfiguration.openshift.io"),
    ("CustomResourceDefinition", "katanodes.kata-operator.dev"),
    ("PrometheusRule", "kata-operator"),
    ("Role", "prometheus-k8s"),
    ("RoleBinding", "prometheus-k8s"),
    ("Service", "kata-operator"),
    ("ServiceMonitor", "kata-operator"),
];
/// Files beside the bundle, of objects that OLM does not take: the file and the kinds.
const SAMPLES: [(&str, &[&str]); 2] = [
    ("namespace", &["Namespace"]),
    (
        "policies",
        &[
            "ConfigMap",
            "NetworkPolicy",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ],
    ),
];
/// The policies of the chart, whose template replaces namespace and images, and leaves out those that a cluster does not
/// need: the file, and the words that print the manifests with them.
const CHART_POLICIES: (&str, [&str; 2]) = (
    "deploy/helm/kata-operator/files/policies.yaml",
    ["--platform=kubernetes", "--platform=openshift --monitor-image=MONITOR-IMAGE"],
);
/// The kinds of [`CHART_POLICIES`].
const POLICIES: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
/// The folder with a page for each code.
const CODES: &str = "docs/codes";

/// Writes the files, or with `check` names those that are stale.
pub(crate) fn run(root: &Path, check: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let programs = match programs::build(root, Profile::Test, &["kata-operator", "kubectl-kata"]) {
        Ok(built) => Programs { root, built },
        Err(error) => return vec![error],
    };
    for (program, words, file) in FILES {
        match programs.print(program, words) {
            Ok(fresh) => compare(root, file, Some(&fresh), check, &mut problems),
            Err(error) => problems.push(error),
        }
    }
    match manifests(&programs) {
        Ok(files) => {
            for (file, text) in files {
                compare(root, &file, Some(&text), check, &mut problems);
            }
        }
        Err(error) => problems.push(error),
    }
    match catalog::catalog(&root.join(BUNDLE)) {
        Ok(text) => {
            compare(
                root,
                &format!("{BUNDLE}/catalog/catalog.yaml"),
                Some(&text),
                check,
                &mut problems,
            );
        }
        Err(error) => problems.push(error),
    }
    match chart_policies(&programs) {
        Ok(text) => compare(root, CHART_POLICIES.0, Some(&text), check, &mut problems),
        Err(error) => problems.push(error),
    }
    match accepted::page(root) {
        Ok(text) => compare(root, accepted::PAGE, Some(&text), check, &mut problems),
        Err(error) => problems.push(error),
    }
    let examples = match examples::sections(root) {
        Ok(examples) => examples,
        Err(error) => return vec![error],
    };
    match pages_of_codes(root, &programs, &examples) {
        Ok((pages, committed)) => {
            let names: BTreeSet<String> = pages.keys().cloned().chain(committed).collect();
            for name in names {
                let text = pages.get(&name).map(String::as_str);
                compare(root, &format!("{CODES}/{name}"), text, check, &mut problems);
            }
        }
        Err(error) => problems.push(error),
    }
    match reference::pages() {
        Ok(pages) => {
            for (name, text) in pages {
                let file = format!("docs/reference/{name}");
                compare(root, &file, Some(&text), check, &mut problems);
            }
        }
        Err(error) => problems.push(error),
    }
    // Last, because it has the titles of the pages.
    match book::summary(root) {
        Ok(text) => compare(root, book::SUMMARY, Some(&text), check, &mut problems),
        Err(error) => problems.push(error),
    }
    problems
}

/// The pages of all codes by the names of their files, and the names of those that are there.
fn pages_of_codes(
    root: &Path,
    programs: &Programs<'_>,
    examples: &BTreeMap<String, String>,
) -> Result<(BTreeMap<String, String>, BTreeSet<String>), String> {
    let mut pages: BTreeMap<String, String> = BTreeMap::new();
    let mut current = String::new();
    for line in programs.print("kubectl-kata", &["codes", "-o", "markdown"])?.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            current = format!("{}.md", title.split(' ').next().unwrap_or_default());
        }
        let page = pages.entry(current.clone()).or_default();
        page.push_str(line);
        page.push('\n');
    }
    for (code, example) in examples {
        if let Some(page) = pages.get_mut(&format!("{code}.md")) {
            page.push_str(example);
        }
    }
    let fail = |error: std::io::Error| format!("cannot list the files of {CODES}: {error}");
    let entries = fs::read_dir(root.join(CODES)).map_err(fail)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    Ok((pages, names.collect::<std::io::Result<_>>().map_err(fail)?))
}

/// The programs whose output is generated.
struct Programs<'a> {
    root: &'a Path,
    built: BTreeMap<String, PathBuf>,
}

impl Programs<'_> {
    /// What a program prints.
    fn print(&self, program: &str, words: &[&str]) -> Result<String, String> {
        let path = self.built.get(program).and_then(|path| path.to_str()).unwrap_or(program);
        let mut run = command(self.root, path);
        run.args(words);
        output(run)
    }
}

/// The operator's objects for each platform, and what the OLM bundle has of them.
fn manifests(programs: &Programs<'_>) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    for (words, file) in MANIFESTS {
        let is_openshift = words.is_empty();
        let of_image = ["manifests", "--image", UNPUBLISHED];
        let words: Vec<&str> = of_image.iter().chain(words).copied().collect();
        let printed = programs.print("kata-operator", &words)?;
        let objects = read(&printed)?;
        if is_openshift {
            files.extend(bundled(&objects)?);
        }
        files.push((file.to_owned(), without_definitions(&printed)));
    }
    Ok(files)
}

/// The documents of manifests but for the CustomResourceDefinitions.
fn without_definitions(manifests: &str) -> String {
    let is_definition = |text: &&str| text.lines().any(|it| it == "kind: CustomResourceDefinition");
    let documents = manifests.split_terminator("---\n").filter(|text| !is_definition(text));
    documents.collect::<Vec<_>>().join("---\n")
}

/// The policies of both platforms, each once.
fn chart_policies(programs: &Programs<'_>) -> Result<String, String> {
    let mut objects: Vec<Value> = Vec::new();
    for words in CHART_POLICIES.1 {
        let of_image = ["--namespace=RELEASE-NAMESPACE", "--image=OPERATOR-IMAGE"];
        let words: Vec<&str> =
            ["manifests"].into_iter().chain(words.split(' ')).chain(of_image).collect();
        let printed = read(&programs.print("kata-operator", &words)?)?;
        for object in printed {
            if !objects.contains(&object) {
                objects.push(object);
            }
        }
    }
    of_kinds(&objects, &POLICIES)
}

/// The files of the OLM bundle, and beside it, that are copies of objects of the manifests.
fn bundled(objects: &[Value]) -> Result<Vec<(String, String)>, String> {
    let mut copies = Vec::new();
    for (kind, name) in BUNDLED {
        let found = objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        let mut object =
            found.cloned().ok_or_else(|| format!("the manifests have no {kind} {name}"))?;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let file = format!("{BUNDLE}/manifests/{name}.{}.yaml", kind.to_ascii_lowercase());
        copies.push((file, render(&object)?));
    }
    for (name, kinds) in SAMPLES {
        copies.push((format!("{BUNDLE}/samples/{name}.yaml"), of_kinds(objects, kinds)?));
    }
    Ok(copies)
}

/// The objects in the text of manifests.
fn read(manifests: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(manifests)
        .map_err(|error| format!("cannot read the manifests: {error}"))
}

fn render(object: &Value) -> Result<String, String> {
    serde_saphyr::to_string(object).map_err(|error| format!("cannot render YAML: {error}"))
}

/// The objects of these kinds, as the documents of a file.
fn of_kinds(objects: &[Value], kinds: &[&str]) -> Result<String, String> {
    let of_kind = objects
        .iter()
        .filter(|object| object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)));
    let documents: Vec<String> = of_kind.map(render).collect::<Result<_, _>>()?;
    Ok(documents.join("---\n"))
}

/// Makes a file what it should be (gone, if `fresh` is nothing), or with `check` says that it is not.
fn compare(root: &Path, file: &str, fresh: Option<&str>, check: bool, problems: &mut Vec<String>) {
    let path = root.join(file);
    let committed = fs::read_to_string(&path).ok();
    if committed.as_deref() == fresh {
        return;
    }
    if check {
        problems.push(format!("{file} is stale: run `cargo xtask codegen` and commit it"));
        return;
    }
    let done = match fresh {
        Some(text) => write(&path, text),
        None => fs::remove_file(&path),
    };
    match done {
        Ok(()) => say(&format!("{} {file}", if fresh.is_some() { "wrote" } else { "removed" })),
        Err(error) => problems.push(format!("cannot write {file}: {error}")),
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}
