//! A client with the operator's token, which only ever asks what would happen.

use std::collections::BTreeSet;

use http::Request;
use serde_json::Value;
use simcluster::Cluster;
use tower::ServiceExt as _;

use super::attempts::Attempt;

/// A client that has the operator's token. It only ever asks what would happen.
pub(super) struct Thief {
    client: kube::Client,
}

impl Thief {
    pub(super) fn new(cluster: &Cluster, token: &str) -> Self {
        let bearer: http::HeaderValue = format!("Bearer {token}").parse().unwrap();
        let service = cluster.client_service().map_request(
            move |mut request: Request<kube::client::Body>| {
                request.headers_mut().insert("authorization", bearer.clone());
                request
            },
        );
        Self { client: kube::Client::new(service, "default") }
    }

    /// A client that has the identity of a node's kubelet.
    pub(super) fn kubelet(cluster: &Cluster, node: &str) -> Self {
        let admin = cluster.with(|sim, _| sim.frontend.signer.as_ref().unwrap().admin_token());
        let bearer: http::HeaderValue = format!("Bearer {admin}").parse().unwrap();
        let user: http::HeaderValue = format!("system:node:{node}").parse().unwrap();
        let service = cluster.client_service().map_request(
            move |mut request: Request<kube::client::Body>| {
                let headers = request.headers_mut();
                headers.insert("authorization", bearer.clone());
                headers.insert("impersonate-user", user.clone());
                headers.insert("impersonate-group", "system:nodes".parse().unwrap());
                request
            },
        );
        Self { client: kube::Client::new(service, "default") }
    }

    /// The object that a dry run of the request would leave, or what the API server says to it. `APPLY` is a
    /// server-side apply.
    pub(super) async fn try_it(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, String> {
        let (method, kind, force) = match method {
            "PATCH" => ("PATCH", "application/merge-patch+json", ""),
            "APPLY" => ("PATCH", "application/apply-patch+yaml", "&force=true"),
            method => (method, "application/json", ""),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All&fieldManager=thief{force}"))
            .header("content-type", kind)
            .body(if method == "DELETE" { Vec::new() } else { body.to_string().into_bytes() })
            .unwrap();
        match self.client.request::<Value>(request).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => Err(format!("no answer of the API server: {error}")),
        }
    }

    /// What the API server says to a dry run of the request; empty if it would be done.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &Value) -> String {
        self.try_it(method, path, body).await.err().unwrap_or_default()
    }

    /// The schemas of an API group.
    pub(super) async fn schemas(&self, group: &str) -> Value {
        let request = Request::get(format!("/openapi/v3/apis/{group}")).body(Vec::new()).unwrap();
        let document: Value = self.client.request(request).await.unwrap();
        document["components"]["schemas"].clone()
    }

    /// Every attempt is refused by the policy, but those that change nothing and those that are permitted. Returns how
    /// many the policy refused.
    pub(super) async fn fails_all(
        &self,
        (method, path): (&str, &str),
        policy: &str,
        (object, attempts): (&Value, &[Attempt]),
        permitted: &[&str],
    ) -> usize {
        let by = format!("ValidatingAdmissionPolicy 'kata-operator-{policy}'");
        let usual = without_uids(self.try_it(method, path, object).await.unwrap());
        let mut refused = 0;
        let (mut passed, mut otherwise, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
        for Attempt { what, object } in attempts {
            match self.try_it(method, path, object).await {
                Ok(object) if without_uids(object.clone()) == usual => {}
                Ok(_) => match permitted.iter().find(|form| is_of(what, form)) {
                    Some(form) => drop(used.insert(*form)),
                    None => passed.push(what),
                },
                Err(said) if said.contains(&by) => refused += 1,
                Err(said) => otherwise.push(format!("{what}: {said}")),
            }
        }
        assert_eq!(passed, [""; 0], "permitted by the policy");
        assert_eq!(used, permitted.iter().copied().collect(), "of no use in the list");
        assert!(otherwise.len() * 10 < attempts.len(), "not refused by the policy: {otherwise:#?}");
        refused
    }

    /// The request is refused by the policy for this resource, with this message.
    pub(super) async fn fails(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        policy: &str,
        message: &str,
    ) {
        let said = self.ask(method, path, body).await;
        let by = format!("ValidatingAdmissionPolicy 'kata-operator-{policy}'");
        assert!(said.contains(&by), "{method} {path} {body:#}: {said:?}");
        assert!(said.contains(message), "{method} {path} {body:#}: {said}");
    }

    /// The request would be done.
    pub(super) async fn succeeds(&self, method: &str, path: &str, body: &Value) {
        assert_eq!(self.ask(method, path, body).await, "", "{method} {path} {body:#}");
    }
}

/// Whether an attempt is the permitted one, or begins like it if that ends with a star.
fn is_of(what: &str, permitted: &str) -> bool {
    permitted.strip_suffix('*').map_or(what == permitted, |prefix| what.starts_with(prefix))
}

/// An object without what differs each time that it is made.
fn without_uids(mut object: Value) -> Value {
    let mut spec = object["spec"].take();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("selector");
    }
    if let Some(labels) =
        spec.pointer_mut("/template/metadata/labels").and_then(Value::as_object_mut)
    {
        labels.retain(|key, _| !key.contains("job-name") && !key.contains("controller-uid"));
    }
    for field in ["handler", "overhead", "scheduling"] {
        spec[field] = object[field].take();
    }
    spec
}
