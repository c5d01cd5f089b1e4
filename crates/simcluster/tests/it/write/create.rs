//! Creating objects.

use serde_json::{Value, json};
use simcluster::resource::{
    CONFIGMAPS, DEPLOYMENTS, EVENTS, EVENTS_V1, LEASES, NAMESPACES, NODES, SECRETS, SERVICES,
};

use super::{config_map, create, now, object, request, server, told};

#[test]
fn a_new_object_gets_what_the_server_decides() {
    let mut api = server();
    let mut body = config_map("c9");
    body["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    body["metadata"]["selfLink"] = json!("/x");
    let answer = create(&mut api, &CONFIGMAPS, "default", body).unwrap();
    assert_eq!(answer.code, 201);
    let metadata = &answer.object["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["generation"], Value::Null);
    assert_eq!(metadata["deletionTimestamp"], Value::Null);
    assert_eq!(metadata["selfLink"], Value::Null);
    assert_eq!(metadata["resourceVersion"], api.store.revision().to_string().as_str());
    let uid = metadata["uid"].as_str().unwrap();
    assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
    assert_eq!(api.get(&CONFIGMAPS, "default", "c9").unwrap(), answer.object);
}

#[test]
fn refused_creations_say_why() {
    let mut api = server();
    create(&mut api, &CONFIGMAPS, "default", config_map("c9")).unwrap();
    let mut versioned = config_map("c1");
    versioned["metadata"]["resourceVersion"] = json!("7");
    let mut elsewhere = config_map("c1");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let subdomain = "a lowercase RFC 1123 subdomain must consist of";
    let table = [
        ("default", config_map("c9"), 409, "AlreadyExists", "configmaps \"c9\" already exists"),
        ("nope", config_map("c1"), 404, "NotFound", "namespaces \"nope\" not found"),
        (
            "default",
            versioned,
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "default",
            elsewhere,
            400,
            "BadRequest",
            "the namespace of the provided object does not match",
        ),
        (
            "default",
            config_map("Bad_Name"),
            422,
            "Invalid",
            &format!(
                "ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": {subdomain}"
            ),
        ),
        (
            "default",
            json!({"metadata": {}}),
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            "default",
            json!({"apiVersion": "v2", "metadata": {"name": "x"}}),
            400,
            "BadRequest",
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        ("default", json!([1]), 400, "BadRequest", "the object provided is unrecognized"),
        (
            "default",
            json!({"metadata": 7}),
            400,
            "BadRequest",
            "ConfigMap in version \"v1\" cannot be handled",
        ),
        (
            "default",
            json!({"metadata": {"name": "x", "labels": {"a": 1}}}),
            400,
            "BadRequest",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number",
        ),
        (
            "default",
            json!({"metadata": {"name": "x", "labels": {"a": "b c"}}}),
            422,
            "Invalid",
            "ConfigMap \"x\" is invalid: metadata.labels: Invalid value: \"b c\": a valid label must be",
        ),
    ];
    let before = api.store.revision();
    for (namespace, body, code, reason, message) in table {
        let (got_code, got_reason, got) = told(create(&mut api, &CONFIGMAPS, namespace, body));
        assert_eq!((got_code, got_reason.as_str()), (code, reason), "{got}");
        assert!(got.starts_with(message), "{got}\nshould start with\n{message}");
    }
    assert_eq!(api.store.revision(), before, "a refused request writes nothing");
}

#[test]
fn an_invalid_name_is_a_cause_of_the_kind() {
    let mut api = server();
    let details =
        create(&mut api, &CONFIGMAPS, "default", config_map("B")).unwrap_err().details.unwrap();
    assert_eq!(details["kind"], "ConfigMap");
    assert_eq!(details["causes"][0]["reason"], "FieldValueInvalid");
    assert_eq!(details["causes"][0]["field"], "metadata.name");
    let missing = create(&mut api, &CONFIGMAPS, "nope", config_map("c")).unwrap_err();
    assert_eq!(missing.details.unwrap()["kind"], "namespaces");
}

#[test]
fn generated_names_are_five_readable_letters_and_differ() {
    let mut api = server();
    let mut body = config_map("");
    body["metadata"] = json!({"generateName": "web-"});
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let made = object(create(&mut api, &CONFIGMAPS, "default", body.clone()));
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        let suffix = name.strip_prefix("web-").unwrap();
        assert_eq!(suffix.len(), 5);
        assert!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{suffix}");
        assert!(seen.insert(name));
    }
}

#[test]
fn a_dry_run_checks_everything_and_writes_nothing() {
    let mut api = server();
    let before = api.store.revision();
    let mut dry = request(super::WriteVerb::Create, &CONFIGMAPS, ("default", ""), config_map("c"));
    dry.options.dry_run = true;
    let answer = api.write(now(), &dry).unwrap();
    assert_eq!((answer.code, &answer.object["data"]["a"]), (201, &json!("1")));
    dry.namespace = "nope".to_owned();
    assert_eq!(told(api.write(now(), &dry)).0, 404);
    assert_eq!(api.store.revision(), before);
    assert!(api.get(&CONFIGMAPS, "default", "c").is_none());
}

#[test]
fn status_and_generation_start_as_the_kind_wants() {
    let mut api = server();
    let deployment = object(create(
        &mut api,
        &DEPLOYMENTS,
        "default",
        json!({
            "metadata": {"name": "d"},
            "spec": {
                "strategy": {},
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}, "creationTimestamp": null},
                    "spec": {"containers": [{"name": "c", "image": "x", "resources": {}}]},
                },
            },
            "status": {"replicas": 7},
        }),
    ));
    assert_eq!(deployment["status"], json!({}));
    assert_eq!(deployment["metadata"]["generation"], 1);
    assert_eq!(deployment["kind"], "Deployment");
    assert_eq!(deployment["apiVersion"], "apps/v1");
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["revisionHistoryLimit"], 10);
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(spec["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");

    let node = json!({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}});
    let node = object(create(&mut api, &NODES, "", node));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    assert_eq!(node["metadata"]["generation"], Value::Null);

    let namespace = object(create(&mut api, &NAMESPACES, "", json!({"metadata": {"name": "x"}})));
    assert_eq!(namespace["status"]["phase"], "Active");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
}

#[test]
fn small_kinds_get_their_defaults() {
    let mut api = server();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let service = object(create(&mut api, &SERVICES, "default", service));
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(
        service["spec"]["ports"][0],
        json!({"port": 80, "protocol": "TCP", "targetPort": 80})
    );
    assert_eq!(service["spec"]["clusterIPs"], json!([service["spec"]["clusterIP"]]));
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let secret = object(create(&mut api, &SECRETS, "default", secret));
    assert_eq!((&secret["type"], &secret["data"]["k"]), (&json!("Opaque"), &json!("dg==")));
    assert_eq!(secret["stringData"], Value::Null);
}

#[test]
fn a_lease_can_be_created_by_put() {
    let mut api = server();
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let answer = super::put(&mut api, &LEASES, ("default", "l"), lease).unwrap();
    assert_eq!(answer.code, 201);
    let missing = super::put(&mut api, &CONFIGMAPS, ("default", "c"), config_map("c"));
    assert_eq!(told(missing).2, "configmaps \"c\" not found");
}

#[test]
fn both_faces_of_an_event_show_one_object() {
    let mut api = server();
    let event = json!({
        "metadata": {"name": "e"},
        "regarding": {"kind": "Node", "name": "n1"},
        "note": "hello", "reason": "Said", "type": "Normal", "action": "Say",
        "reportingController": "kata-operator", "reportingInstance": "a",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let made = object(create(&mut api, &EVENTS_V1, "default", event));
    assert_eq!((&made["note"], &made["apiVersion"]), (&json!("hello"), &json!("events.k8s.io/v1")));
    let core = api.get(&EVENTS, "default", "e").unwrap();
    assert_eq!((&core["message"], &core["apiVersion"]), (&json!("hello"), &json!("v1")));
    assert_eq!(core["involvedObject"], json!({"kind": "Node", "name": "n1"}));
    assert_eq!(core["reportingComponent"], "kata-operator");
    assert_eq!(core["metadata"], made["metadata"]);
    let patch = json!({"message": "bye"});
    super::merge(&mut api, &EVENTS, ("default", "e"), patch).unwrap();
    assert_eq!(api.get(&EVENTS_V1, "default", "e").unwrap()["note"], "bye");
    assert_eq!(api.list(&EVENTS_V1).len(), 1);
}

#[test]
fn unknown_fields_fail_warn_or_vanish() {
    let mut api = server();
    let mut body = deployment();
    body["spec"]["bogus"] = json!(1);
    let mut with = |validation| {
        let mut request =
            request(super::WriteVerb::Create, &DEPLOYMENTS, ("default", ""), body.clone());
        request.options.field_validation = validation;
        request.options.dry_run = true;
        api.write(now(), &request)
    };
    let strict = with(super::FieldValidation::Strict).unwrap_err();
    assert_eq!((strict.code, strict.reason), (400, "BadRequest"));
    assert!(strict.message.ends_with("strict decoding error: unknown field \"spec.bogus\""));
    let warned = with(super::FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, ["unknown field \"spec.bogus\""]);
    assert_eq!(warned.object["spec"]["bogus"], Value::Null);
    let ignored = with(super::FieldValidation::Ignore).unwrap();
    assert!(ignored.warnings.is_empty());
    assert_eq!(ignored.object["spec"], warned.object["spec"]);

    create(&mut api, &DEPLOYMENTS, "default", deployment()).unwrap();
    let patch = json!({"spec": {"bogus": 1}});
    let (code, _, message) = told(super::merge(&mut api, &DEPLOYMENTS, ("default", "d"), patch));
    assert_eq!(code, 422);
    assert_eq!(
        message,
        " \"\" is invalid: patch: Invalid value: \"{\\\"spec\\\":{\\\"bogus\\\":1}}\": strict decoding error: unknown \
         field \"spec.bogus\""
    );
}

#[test]
fn wrong_types_are_told_as_a_decoder_does() {
    let mut api = server();
    let mut body = deployment();
    body["spec"]["replicas"] = json!("three");
    let (code, reason, message) = told(create(&mut api, &DEPLOYMENTS, "default", body));
    assert_eq!((code, reason.as_str()), (400, "BadRequest"));
    assert!(
        message.starts_with(
            "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal"
        ),
        "{message}"
    );
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x:1"}]},
            },
        },
    })
}
