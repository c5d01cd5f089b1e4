//! What a stranger does in each of the ways to install: to Ready, through an upgrade from an earlier version,
//! and away again, until nothing is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::kubectl_process::repository;
use crate::site::Site;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// An earlier version: the same but for its number.
const EARLIER: &str = "0.0.9";
const NAMESPACE: &str = "openshift-sandboxed-containers-operator";
/// Each platform with the operator's usual namespace.
const PLATFORMS: [(&str, &str); 2] = [("openshift", NAMESPACE), ("kubernetes", "kata-operator")];

/// Every object of the cluster, but for what the cluster keeps of its own accord: Events, and what the
/// Machine Config Operator rendered.
fn everything(site: &mut Site) -> BTreeSet<String> {
    let kinds = site.good("kubectl api-resources --verbs=list -o name");
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let listed =
        site.good(&format!("kubectl get {} -A --ignore-not-found -o json", kinds.join(",")));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = listed["items"].as_array().unwrap().iter().map(|object| {
        let metadata = &object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        format!("{} {namespace}/{name}", text(&object["kind"]))
    });
    names.filter(|name| !name.starts_with("MachineConfig /rendered-")).collect()
}

/// A copy of files of the repository that says that it is an earlier version; returns where it is.
fn earlier(site: &Site, folder: &str) -> PathBuf {
    let place = site.up.directory.join("earlier");
    // What bases of Kustomize refer to.
    for folder in [folder, "deploy/crds"] {
        copy(&repository().join(folder), &place.join(folder));
    }
    place.join(folder)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            std::fs::write(target, text.replace(VERSION, EARLIER)).unwrap();
        }
    }
}

/// Installs an earlier version, brings a node to Ready, upgrades, removes, and compares with before.
fn live_through(
    site: &mut Site,
    namespace: &str,
    install: impl FnOnce(&mut Site),
    upgrade: impl FnOnce(&mut Site),
    remove: impl FnOnce(&mut Site),
) {
    let before = everything(site);
    install(site);
    let image = format!(
        "kubectl get deployment kata-operator -n {namespace} -o jsonpath={{..image}}{{..metadata.labels}}"
    );
    let wait = format!(
        "kubectl wait --for=condition=Available deployment/kata-operator -n {namespace} --timeout=60s"
    );
    site.good(&wait);
    let deployed = site.good(&image);
    assert!(deployed.contains(EARLIER) && !deployed.contains(VERSION), "{deployed}");
    site.good("kubectl label node worker-0 kata=true");
    site.good("kubectl apply -f examples/kataconfig.yaml");
    let ready = "kubectl wait --for=condition=Ready kataconfig --all --timeout=120s";
    site.good(ready);
    site.good("kubectl apply -f examples/namespace.yaml -f examples/pod-kata.yaml");
    site.good("kubectl wait -n test-kata --for=condition=Ready pod --all --timeout=60s");
    let node = "kubectl get node worker-0 -o jsonpath={.status.nodeInfo.bootID}{.metadata.labels}";
    let since = "kubectl get kataconfig -o \
                 'jsonpath={.items[0].status.conditions[?(@.type==\"Ready\")].lastTransitionTime}'";
    let (node_before, since_before) = (site.good(node), site.good(since));

    upgrade(site);
    site.good(&format!(
        "kubectl rollout status deployment/kata-operator -n {namespace} --timeout=60s"
    ));
    let deployed = site.good(&image);
    assert!(deployed.contains(VERSION) && !deployed.contains(EARLIER), "{deployed}");
    // The new one is at work: it sees a change and acts on it.
    site.good("kubectl label node worker-1 kata=true");
    site.good(
        "kubectl wait --for=jsonpath={.status.kataNodes.readyNodeCount}=2 \
         kataconfig/cluster-kataconfig --timeout=120s",
    );
    site.good(ready);
    assert_eq!(site.good(node), node_before, "the upgrade changed a node that had Kata");
    assert!(!since_before.is_empty());

    let refused = site.bad("kata-operator uninstall --check");
    assert!(refused.contains("kubectl delete kataconfig cluster-kataconfig"), "{refused}");
    site.good("kubectl delete namespace test-kata --timeout=60s");
    site.good("kubectl delete kataconfig cluster-kataconfig --timeout=120s");
    site.good("kata-operator uninstall --check");
    remove(site);
    site.good("kubectl label node worker-0 worker-1 kata-");
    let after = everything(site);
    let left: Vec<&String> = after.difference(&before).collect();
    let missing: Vec<&String> = before.difference(&after).collect();
    assert!(left.is_empty() && missing.is_empty(), "left: {left:#?}\nmissing: {missing:#?}");
    let labels = site.good("kubectl get nodes --show-labels");
    assert!(!labels.contains("kata"), "{labels}");
}

#[test]
#[ignore = "needs kubectl and helm"]
fn with_manifests() {
    for (platform, namespace) in PLATFORMS {
        let name = format!("manifests-{platform}");
        let mut site = Site::start(&name, platform, &[]);
        let manifests = format!(
            "kata-operator manifests --image registry.example.com/kata-operator:v1 --platform {platform}"
        );
        let apply = "kubectl apply --server-side -f -";
        live_through(
            &mut site,
            namespace,
            |site| {
                site.good(&format!("{manifests} | sed s/{VERSION}/{EARLIER}/g | {apply}"));
            },
            |site| {
                site.good(&format!("{manifests} | {apply}"));
            },
            |site| {
                site.good(&format!(
                    "{manifests} | kubectl delete --ignore-not-found --timeout=60s -f -"
                ));
            },
        );
    }
}

/// With the roles and policies of the manifests, and a plugin that asks over HTTP.
#[test]
#[ignore = "needs kubectl and helm"]
fn a_cluster_is_accepted() {
    for (platform, namespace) in PLATFORMS {
        let mut site = Site::start(&format!("accept-{platform}"), platform, &["--speed", "60"]);
        site.good(&format!(
            "kata-operator manifests --image registry.example.com/kata-operator:v1 --platform {platform} | kubectl apply \
             --server-side -f -"
        ));
        site.good(&format!(
            "kubectl wait --for=condition=Available deployment/kata-operator -n {namespace} --timeout=60s"
        ));
        let said = site.good("kubectl kata accept --node worker-0 --timeout 10m --yes -o wide");
        assert!(said.contains("ACCEPTED  node worker-0"), "{said}");
        let left = site.good("kubectl get kataconfigs,katanodes,runtimeclasses -o name");
        assert_eq!(left, "", "{said}");
    }
}

#[test]
#[ignore = "needs kubectl and helm"]
fn with_kustomize() {
    for (platform, namespace) in PLATFORMS {
        let mut site = Site::start(&format!("kustomize-{platform}"), platform, &[]);
        let base = format!("deploy/{platform}");
        let earlier = earlier(&site, &base);
        live_through(
            &mut site,
            namespace,
            |site| {
                site.good(&format!("kubectl apply --server-side -k {}", earlier.display()));
            },
            |site| {
                site.good(&format!("kubectl apply --server-side -k {base}"));
            },
            |site| {
                site.good(&format!("kubectl delete --ignore-not-found --timeout=60s -k {base}"));
            },
        );
    }
}

#[test]
#[ignore = "needs kubectl and helm"]
fn the_overlay_of_the_page_names_the_image_for_the_operator_and_for_the_jobs() {
    let mut site = Site::start("overlay", "kubernetes", &[]);
    let page = std::fs::read_to_string(repository().join("docs/install.md")).unwrap();
    let (_, rest) = page.split_once("kind: Kustomization").unwrap();
    let (overlay, _) = rest.split_once("```").unwrap();
    let folder = site.up.directory.join("overlay");
    for base in ["deploy/kubernetes", "deploy/crds"] {
        copy(&repository().join(base), &site.up.directory.join(base));
    }
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("kustomization.yaml"), format!("kind: Kustomization{overlay}"))
        .unwrap();
    let rendered = site.good(&format!("kubectl kustomize {}", folder.display()));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    let of_jobs = env.iter().find(|it| it["name"] == "RELATED_IMAGE_NODE_AGENT").unwrap();
    let image = "registry.example.com/kata-operator:v0.1.0";
    assert_eq!((&container["image"], &of_jobs["value"]), (&image.into(), &image.into()));
    let policy = objects.iter().find(|object| {
        object["kind"] == "ValidatingAdmissionPolicy"
            && object["metadata"]["name"] == "kata-operator-jobs"
    });
    let variables = policy.unwrap()["spec"]["variables"].as_array().unwrap();
    let of_policy = variables.iter().find(|variable| variable["name"] == "image").unwrap();
    assert_eq!(of_policy["expression"], format!("'{image}'"));
}

#[test]
#[ignore = "needs kubectl and helm"]
fn with_helm() {
    for platform in ["openshift", "kubernetes"] {
        let mut site = Site::start(&format!("helm-{platform}"), platform, &[]);
        let earlier = earlier(&site, "deploy/helm/kata-operator");
        let (chart, namespace) = ("deploy/helm/kata-operator", "kata-operator");
        // The hook is a Job whose pod runs the operator's image, which nothing does here; what it would run
        // is run by hand.
        let set = format!(
            "-n {namespace} --set crds.keep=false,preDeleteCheck=false,image.repository=x.example/kata-operator"
        );
        live_through(
            &mut site,
            namespace,
            |site| {
                site.good(&format!("kubectl create namespace {namespace}"));
                site.good(&format!(
                    "kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
                ));
                let notes = site.good(&format!("helm install kata {} {set}", earlier.display()));
                assert!(notes.trim_end().ends_with("kubectl kata status"), "{notes}");
                assert!(notes.contains(&format!("for {platform}")), "{notes}");
            },
            |site| {
                site.good(&format!("helm upgrade kata {chart} {set}"));
                let history = site.good(&format!("helm history kata -n {namespace}"));
                assert!(
                    history.contains("superseded") && history.contains("deployed"),
                    "{history}"
                );
            },
            |site| {
                site.good(&format!("helm uninstall kata -n {namespace} --timeout 60s"));
                site.good(&format!("kubectl delete namespace {namespace} --timeout=60s"));
            },
        );
    }
}

/// The commands of a page after a line of it.
fn commands(page: &str, after: &str) -> Vec<String> {
    let page = std::fs::read_to_string(repository().join(page)).unwrap();
    let (_, rest) = page.split_once(after).unwrap();
    let block = rest.split("```").nth(1).unwrap();
    block.lines().skip(1).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs kubectl and helm"]
fn with_the_operator_lifecycle_manager() {
    let mut site = Site::start("olm", "openshift", &[]);
    let samples = "deploy/olm/samples";
    let earlier = earlier(&site, samples);
    let succeeded = |version: &str| {
        format!(
            "kubectl wait subs/kata-operator -n {NAMESPACE} --timeout=60s \
             --for=jsonpath={{.status.installedCSV}}=kata-operator.v{version} && \
             kubectl wait csv/kata-operator.v{version} -n {NAMESPACE} --timeout=60s \
             --for=jsonpath={{.status.phase}}=Succeeded"
        )
    };
    live_through(
        &mut site,
        NAMESPACE,
        |site| {
            site.good(&format!("kubectl apply -k {}", earlier.display()));
            site.good(&succeeded(EARLIER));
            let bundle = files(&repository().join("deploy/olm/manifests"));
            for file in bundle.iter().filter(|file| !file.ends_with(SERVICE_VERSION)) {
                site.good(&format!("kubectl get -n {NAMESPACE} -f {}", file.display()));
            }
        },
        |site| {
            site.good(&format!("kubectl apply -k {samples}"));
            site.good(&succeeded(VERSION));
            site.good(&format!(
                "kubectl wait csv/kata-operator.v{EARLIER} -n {NAMESPACE} --for=delete --timeout=60s"
            ));
        },
        |site| {
            for command in commands("docs/uninstall.md", "With the Operator Lifecycle Manager") {
                site.good(&command);
            }
        },
    );
}

const SERVICE_VERSION: &str = "kata-operator.clusterserviceversion.yaml";

/// The definition of KataConfig as another operator's package left it: not ours, and with other content.
const LEFT: &str = "kata-operator crd | sed 's/name: Total$/name: All/' | \
                    kubectl create --field-manager=catalog -f -";
const COLUMNS: &str = "kubectl get crd kataconfigs.kataconfiguration.openshift.io \
                       -o jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}";

#[test]
#[ignore = "needs kubectl and helm"]
fn a_definition_that_another_operator_left_is_taken_over_as_the_pages_say() {
    let mut site = Site::start("left", "openshift", &[]);
    site.good(LEFT);
    assert!(site.good(COLUMNS).contains("All"));
    let apply = "kata-operator manifests --image registry.example.com/kata-operator:v1 | kubectl apply --server-side";
    let refused = site.bad(&format!("{apply} -f -"));
    assert!(refused.contains("--force-conflicts"), "{refused}");
    site.good(&format!("{apply} --force-conflicts -f -"));
    assert!(site.good(COLUMNS).contains("Total"));
    let mut site = Site::start("left-helm", "openshift", &[]);
    site.good(LEFT);
    let install = format!(
        "helm install kata-operator deploy/helm/kata-operator -n {NAMESPACE} --create-namespace \
         --set image.repository=registry.example.com/kata-operator"
    );
    let refused = site.bad(&install);
    assert!(refused.contains("cannot be imported into the current release"), "{refused}");
    site.good(&format!("{install} --take-ownership"));
    assert!(site.good(COLUMNS).contains("Total"));
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

#[test]
#[ignore = "needs kubectl and helm"]
fn every_manifest_is_one_that_the_api_server_takes() {
    let mut site = Site::start("strict", "openshift", &[]);
    site.good("kubectl apply -f deploy/olm/samples/namespace.yaml");
    site.good("kubectl create namespace test-kata");
    site.good("kubectl create namespace kata-operator");
    let class = r#"{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"kata"},"handler":"kata"}"#;
    site.good(&format!("kubectl apply -f - <<< '{class}'"));
    site.good("kata-operator crd | kubectl apply --server-side -f -");
    let apply = "kubectl apply --server-side --dry-run=server --validate=strict --force-conflicts";
    let mut kinds = BTreeSet::new();
    let mut messages = Vec::new();
    let folders = ["deploy/olm/manifests", "deploy/olm/samples", "examples"];
    let single = [
        "deploy/crds/crds.yaml",
        "deploy/openshift/operator.yaml",
        "deploy/kubernetes/operator.yaml",
    ]
    .map(PathBuf::from);
    let all = folders.iter().flat_map(|folder| files(&repository().join(folder))).chain(single);
    let is_object = |path: &PathBuf| {
        !path.to_string_lossy().contains("/bad/") && !path.ends_with("kustomization.yaml")
    };
    for path in all.filter(is_object) {
        let text = std::fs::read_to_string(repository().join(&path)).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        kinds
            .extend(objects.iter().filter_map(|object| object["kind"].as_str().map(str::to_owned)));
        // What a bundle has is put into the namespace of its OperatorGroup.
        let bundled = path.to_string_lossy().contains("olm/manifests");
        let namespace = if bundled { format!("-n {NAMESPACE}") } else { String::new() };
        let text =
            format!("sed 's/namespace: placeholder/namespace: {NAMESPACE}/' {}", path.display());
        let ended = site.line(&format!("{text} | {apply} {namespace} -f -"));
        if ended.code != Some(0) {
            messages.push(format!("{}: {}", path.display(), ended.stderr));
        }
    }
    for (platform, monitor) in
        [("openshift", ""), ("openshift", "x.example/m:1"), ("kubernetes", "")]
    {
        let monitor =
            if monitor.is_empty() { String::new() } else { format!("--monitor-image {monitor}") };
        let manifests = format!(
            "kata-operator manifests --image registry.example.com/kata-operator:v1 --platform {platform} {monitor}"
        );
        let ended = site.line(&format!("{manifests} | {apply} -f -"));
        if ended.code != Some(0) {
            messages.push(format!("{manifests}: {}", ended.stderr));
        }
        let set = format!(
            "--set platform={platform},monitoring.enabled=true,\
             podDisruptionBudget.enabled=true,payloadImage=x.example/p:1,\
             image.repository=x.example/kata-operator"
        );
        let template = format!("helm template kata deploy/helm/kata-operator -n {NAMESPACE} {set}");
        let ended = site.line(&format!("{template} | {apply} -f -"));
        if ended.code != Some(0) {
            messages.push(format!("{template}: {}", ended.stderr));
        }
    }
    assert!(messages.is_empty(), "{}", messages.join("\n"));
    for kind in ["ClusterServiceVersion", "ConsoleQuickStart", "ConsoleYAMLSample", "Subscription"]
    {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
}
