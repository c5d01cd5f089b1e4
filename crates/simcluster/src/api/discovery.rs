//! Discovery: what the API server serves, in the aggregated and the plain forms.
//!
//! Everything is computed from the registry; reviews and subresources are the only fixed part.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::negotiate::MediaType;
use super::registry::{Registry, ResourceDef};

/// The verbs of a resource that is stored.
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A resource that is answered but never stored: group, plural, singular, kind, namespaced.
type Virtual = (&'static str, &'static str, &'static str, &'static str, bool);

/// The reviews; all have version v1 and can only be created.
const REVIEWS: &[Virtual] = &[
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "selfsubjectreview",
        "SelfSubjectReview",
        false,
    ),
    ("authentication.k8s.io", "tokenreviews", "tokenreview", "TokenReview", false),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
        "LocalSubjectAccessReview",
        true,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
        "SelfSubjectRulesReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "subjectaccessreview",
        "SubjectAccessReview",
        false,
    ),
];

/// A subresource: name, group, version and kind of what it takes, verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The name, such as `status`.
    pub name: &'static str,
    /// Group, version and kind, where they differ from the parent's.
    pub other_kind: Option<(&'static str, &'static str, &'static str)>,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Subresource {
    const fn new(
        name: &'static str,
        other_kind: Option<(&'static str, &'static str, &'static str)>,
        verbs: &'static [&'static str],
    ) -> Self {
        Self { name, other_kind, verbs }
    }
}

const STATUS: Subresource = Subresource::new("status", None, &["get", "patch", "update"]);
const SCALE: Subresource =
    Subresource::new("scale", Some(("autoscaling", "v1", "Scale")), &["get", "patch", "update"]);

/// The subresources of a resource.
pub fn subresources(def: &ResourceDef) -> Vec<Subresource> {
    let mut all = match (def.resource.group.as_ref(), def.resource.plural.as_ref()) {
        ("", "pods") => vec![
            Subresource::new("attach", Some(("", "v1", "PodAttachOptions")), &["create", "get"]),
            Subresource::new("binding", Some(("", "v1", "Binding")), &["create"]),
            Subresource::new("eviction", Some(("policy", "v1", "Eviction")), &["create"]),
            Subresource::new("exec", Some(("", "v1", "PodExecOptions")), &["create", "get"]),
            Subresource::new("log", None, &["get"]),
            Subresource::new(
                "portforward",
                Some(("", "v1", "PodPortForwardOptions")),
                &["create", "get"],
            ),
        ],
        ("", "serviceaccounts") => vec![Subresource::new(
            "token",
            Some(("authentication.k8s.io", "v1", "TokenRequest")),
            &["create"],
        )],
        ("", "namespaces") => vec![Subresource::new("finalize", None, &["update"])],
        _ => Vec::new(),
    };
    if def.scale.is_some() {
        all.push(SCALE);
    }
    if def.status {
        all.push(STATUS);
    }
    all
}

/// Whether a resource is one of the reviews; returns its kind.
pub fn review_kind(group: &str, version: &str, plural: &str) -> Option<&'static str> {
    REVIEWS
        .iter()
        .find(|(g, p, ..)| version == "v1" && *g == group && *p == plural)
        .map(|(.., kind, _)| *kind)
}

/// Which discovery format a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lists per group and version.
    Plain,
    /// `APIGroupDiscoveryList`, version `v2` or `v2beta1`.
    Aggregated(&'static str),
}

impl Format {
    /// Chooses by the `Accept` header.
    pub fn negotiate(accept: &str) -> Self {
        for media in MediaType::parse_all(accept) {
            match (media.param("as"), media.param("g"), media.param("v")) {
                ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                    return Self::Aggregated("v2");
                }
                ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => {
                    return Self::Aggregated("v2beta1");
                }
                ("", ..) => return Self::Plain,
                _ => {}
            }
        }
        Self::Plain
    }

    /// The answer's content type.
    pub fn content_type(self) -> String {
        match self {
            Self::Plain => "application/json".to_owned(),
            Self::Aggregated(version) => format!(
                "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            ),
        }
    }
}

/// `GET /api`.
pub fn core_versions(registry: &Registry, format: Format) -> Value {
    match format {
        Format::Plain => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        }),
        Format::Aggregated(version) => aggregated(registry, version, |group| group.is_empty()),
    }
}

/// `GET /apis`.
pub fn groups(registry: &Registry, format: Format) -> Value {
    match format {
        Format::Plain => {
            let groups: Vec<Value> = group_versions(registry)
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| api_group(group, versions))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        Format::Aggregated(version) => aggregated(registry, version, |group| !group.is_empty()),
    }
}

/// `GET /apis/GROUP`.
pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = group_versions(registry);
    let versions = groups.get(name).filter(|_| !name.is_empty())?;
    let mut group = api_group(name, versions);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Some(group)
}

/// `GET /api/v1` and `GET /apis/GROUP/VERSION`.
pub fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    if !group_versions(registry).get(group)?.iter().any(|served| served == version) {
        return None;
    }
    let mut list = Vec::new();
    for def in served(registry, group, version) {
        list.push(json!({
            "name": def.resource.plural, "singularName": def.singular, "namespaced": def.namespaced,
            "kind": def.kind, "verbs": VERBS, "shortNames": def.short_names,
            "categories": def.categories,
        }));
        for sub in subresources(def) {
            let mut entry = json!({
                "name": format!("{}/{}", def.resource.plural, sub.name), "singularName": "",
                "namespaced": def.namespaced, "kind": def.kind, "verbs": sub.verbs,
            });
            if let Some((group, version, kind)) = sub.other_kind {
                entry["kind"] = json!(kind);
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            list.push(entry);
        }
    }
    for (_, plural, singular, kind, namespaced) in reviews(group, version) {
        list.push(json!({
            "name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind,
            "verbs": ["create"],
        }));
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list,
    }))
}

/// Whether anything of the group is served.
pub fn has_group(registry: &Registry, group: &str) -> bool {
    group_versions(registry).contains_key(group)
}

/// All groups with their versions, best first.
pub fn group_versions(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let stored = registry.iter().map(|def| (def.resource.group.as_ref(), def.version.as_ref()));
    for (group, version) in stored.chain(REVIEWS.iter().map(|(group, ..)| (*group, "v1"))) {
        let versions = groups.entry(group.to_owned()).or_default();
        if !versions.iter().any(|known| known == version) {
            versions.push(version.to_owned());
            // Stable versions come first, then beta, then alpha.
            versions.sort_by_key(|v| (v.contains("alpha"), v.contains("beta"), v.clone()));
        }
    }
    groups
}

fn served<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a ResourceDef> {
    registry
        .iter()
        .map(AsRef::as_ref)
        .filter(move |def| def.resource.group == group && def.version == version)
}

fn reviews<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = Virtual> + 'a {
    REVIEWS.iter().copied().filter(move |(g, ..)| *g == group && version == "v1")
}

fn api_group(name: &str, versions: &[String]) -> Value {
    let entries: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": entries.first(), "versions": entries})
}

fn aggregated(registry: &Registry, version: &str, wanted: impl Fn(&str) -> bool) -> Value {
    let items: Vec<Value> = group_versions(registry)
        .iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let mut resources: Vec<Value> =
                        served(registry, group, version).map(aggregated_resource).collect();
                    resources.extend(reviews(group, version).map(
                        |(_, plural, singular, kind, namespaced)| {
                            json!({
                                "resource": plural, "singularResource": singular,
                                "scope": scope(namespaced), "verbs": ["create"],
                                "responseKind": {"group": group, "version": version, "kind": kind},
                            })
                        },
                    ));
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            // Real group entries have a creationTimestamp of null and no name for the core group.
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
}

fn aggregated_resource(def: &ResourceDef) -> Value {
    let (group, version) = (&def.resource.group, &def.version);
    let mut resource = json!({
        "resource": def.resource.plural, "singularResource": def.singular,
        "scope": scope(def.namespaced), "verbs": VERBS,
        "responseKind": {"group": group, "version": version, "kind": def.kind},
    });
    if !def.short_names.is_empty() {
        resource["shortNames"] = json!(def.short_names);
    }
    if !def.categories.is_empty() {
        resource["categories"] = json!(def.categories);
    }
    let subresources: Vec<Value> = subresources(def)
        .into_iter()
        .map(|sub| {
            let (group, version, kind) = sub.other_kind.unwrap_or((group, version, &def.kind));
            json!({
                "subresource": sub.name, "verbs": sub.verbs,
                "responseKind": {"group": group, "version": version, "kind": kind},
            })
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = Value::Array(subresources);
    }
    resource
}

fn scope(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_is_offered_the_aggregated_form_that_it_asks_for_first() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(Format::negotiate(accept), Format::Aggregated("v2"));
        assert_eq!(Format::negotiate("application/json, */*"), Format::Plain);
    }

    #[test]
    fn both_forms_list_subresources() {
        let registry = Registry::default();
        let plain = resources(&registry, "", "v1").unwrap();
        let names: Vec<&str> = plain["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r["name"].as_str())
            .collect();
        for name in
            ["pods", "pods/exec", "pods/status", "serviceaccounts/token", "namespaces/finalize"]
        {
            assert!(names.contains(&name), "{name}");
        }
        let apps = groups(&registry, Format::Aggregated("v2"));
        let scale = apps["items"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|group| group["versions"][0]["resources"].as_array().unwrap())
            .filter(|resource| resource["resource"] == "deployments")
            .flat_map(|resource| resource["subresources"].as_array().unwrap())
            .find(|sub| sub["subresource"] == "scale")
            .unwrap();
        assert_eq!(scale["responseKind"]["group"], "autoscaling");
        assert!(resources(&registry, "nope", "v1").is_none());
    }
}
