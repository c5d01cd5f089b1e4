//! A cache against an API server that says exactly what a test has it say: answers that are late, versions
//! that go back, watches that miss something, end at once or never begin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_operator::client::{Client, WritePermit, is_watch};
use kata_operator::jitter::Jitter;
use kata_operator::metrics::Metrics;
use kata_operator::pacing::CATCH_UP;
use kata_operator::watch::{AnyCache as _, Cache, LoopWaker};
use kata_plan::Kind;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::lab;

const SECOND: Duration = Duration::from_secs(1);

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// An API server of RuntimeClasses.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    version: u64,
    objects: BTreeMap<String, Value>,
    watches: Vec<UnboundedSender<Bytes>>,
    /// When which requests came.
    lists: Vec<Instant>,
    opened: Vec<Instant>,
    /// How late lists answer what they found at once.
    list_delay: Duration,
    /// The code with which watches are refused.
    refuse_watches: Option<u16>,
    /// Watches end as soon as they were opened.
    end_watches: bool,
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    /// Stores an object without an event in any watch.
    fn store(&self, name: &str, version: u64, handler: &Value) -> Value {
        let object = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": name, "resourceVersion": version.to_string()},
            "handler": handler,
        });
        let mut script = self.lock();
        script.version = version;
        script.objects.insert(name.to_owned(), object.clone());
        object
    }

    fn put(&self, name: &str, version: u64, handler: &Value) {
        let object = self.store(name, version, handler);
        self.send("MODIFIED", &object);
    }

    fn delete(&self, name: &str, version: u64) {
        let mut script = self.lock();
        script.version = version;
        let mut object = script.objects.remove(name).unwrap();
        drop(script);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.send("DELETED", &object);
    }

    /// The type comes first, as in the JSON of every API server.
    fn send(&self, type_: &str, object: &Value) {
        self.send_text(&format!("{{\"type\": \"{type_}\", \"object\": {object}}}"));
    }

    fn send_text(&self, line: &str) {
        let bytes = Bytes::from(format!("{line}\n"));
        self.lock().watches.retain(|watch| watch.unbounded_send(bytes.clone()).is_ok());
    }

    fn list(&self) -> (Bytes, Duration) {
        let mut script = self.lock();
        script.lists.push(Instant::now());
        let list = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClassList",
            "metadata": {"resourceVersion": script.version.to_string()},
            "items": script.objects.values().collect::<Vec<_>>(),
        });
        (Bytes::from(list.to_string()), script.list_delay)
    }

    fn watch(&self) -> Response<Body> {
        let mut script = self.lock();
        script.opened.push(Instant::now());
        if let Some(code) = script.refuse_watches {
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Expired", "message": "too old resource version"});
            return answer(code, Bytes::from(status.to_string()));
        }
        let (sender, receiver) = unbounded();
        if !script.end_watches {
            script.watches.push(sender);
        }
        let frames = receiver.map(|bytes| Ok(http_body::Frame::data(bytes)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                if is_watch(&request) {
                    return Ok::<_, std::convert::Infallible>(server.watch());
                }
                let (list, delay) = server.list();
                lab::pass(delay).await;
                Ok(answer(200, list))
            }
        });
        let (_sender, fence) = watch::channel(WritePermit::Always);
        let kube = kube::Client::new(service, "default");
        let clock = kata_operator::clock::Clock::simulated(lab::epoch());
        Client::new(kube, Arc::new(Jitter::new(1)), Metrics::new(), clock, fence)
    }
}

fn answer(code: u16, bytes: Bytes) -> Response<Body> {
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// A cache that is followed until it is dropped.
struct Followed {
    cache: Arc<Cache<RuntimeClass>>,
    wake: Arc<LoopWaker>,
    client: Client,
    task: JoinHandle<()>,
}

impl Followed {
    /// Waits for the first answer.
    async fn start(server: &Server) -> Self {
        Self::of(server, Cache::new).await
    }

    async fn of(
        server: &Server,
        new: impl Fn(Kind, &Arc<LoopWaker>) -> Cache<RuntimeClass>,
    ) -> Self {
        let wake = Arc::new(LoopWaker::default());
        let cache = Arc::new(new(Kind::RuntimeClass, &wake));
        let client = server.client();
        let (jitter, metrics) = (Arc::new(Jitter::new(1)), Metrics::new());
        let task = tokio::spawn(Arc::clone(&cache).follow(client.clone(), jitter, metrics));
        let followed = Self { cache, wake, client, task };
        assert!(lab::within(SECOND, || followed.cache.has_answer()).await.is_some());
        lab::pass(SECOND).await;
        let _first = followed.takes_change();
        followed
    }

    fn names(&self) -> Option<Vec<String>> {
        names(&self.cache.view())
    }

    /// Whether a pass was asked for since this was asked last.
    fn takes_change(&self) -> bool {
        use futures::FutureExt as _;
        self.wake.changed.notified().now_or_never().is_some()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn names(view: &kata_operator::watch::View<RuntimeClass>) -> Option<Vec<String>> {
    let classes = view.objects.known()?.iter();
    Some(classes.map(|class| class.metadata.name.clone().unwrap()).collect())
}

fn handler() -> Value {
    json!("kata")
}

/// The list was made before the watch saw the deletion, and its answer comes after it.
#[tokio::test(start_paused = true)]
async fn a_list_that_answers_late_brings_back_nothing_that_the_watch_saw_deleted() {
    let server = Server::default();
    server.store("a", 1, &handler());
    server.store("b", 2, &handler());
    let followed = Followed::start(&server).await;
    server.lock().list_delay = 5 * SECOND;
    let read = followed.cache.read_fresh(&followed.client);
    let meanwhile = async {
        lab::pass(SECOND).await;
        server.delete("b", 3);
        server.put("c", 4, &handler());
        lab::pass(SECOND).await;
    };
    let (view, ()) = futures::join!(read, meanwhile);
    assert_eq!(names(&view), Some(vec!["a".to_owned(), "c".to_owned()]));
    assert_eq!(followed.names(), Some(vec!["a".to_owned(), "c".to_owned()]));
    assert!(!followed.cache.is_behind());
}

/// The watch breaks and the kind is listed again, while an older list is on its way.
#[tokio::test(start_paused = true)]
async fn a_list_that_a_newer_one_overtook_is_made_again() {
    let server = Server::default();
    server.store("a", 1, &handler());
    server.store("b", 2, &handler());
    let followed = Followed::start(&server).await;
    server.lock().list_delay = 5 * SECOND;
    let read = followed.cache.read_fresh(&followed.client);
    let meanwhile = async {
        lab::pass(SECOND).await;
        server.lock().list_delay = Duration::ZERO;
        // No watch reports it.
        server.lock().objects.remove("b");
        server.store("a", 4, &handler());
        server.send_text("garbage");
        lab::pass(2 * SECOND).await;
        assert_eq!(followed.names(), Some(vec!["a".to_owned()]));
    };
    let (view, ()) = futures::join!(read, meanwhile);
    assert_eq!(names(&view), Some(vec!["a".to_owned()]));
}

/// Versions are lower than before, and the watch, which waits for higher ones, stays silent.
#[tokio::test(start_paused = true)]
async fn a_restored_etcd_is_believed_as_soon_as_the_kind_is_read_again() {
    let server = Server::default();
    server.store("a", 100, &handler());
    server.store("b", 101, &handler());
    let followed = Followed::start(&server).await;
    server.lock().objects.clear();
    server.store("a", 50, &json!("restored"));
    let view = followed.cache.read_fresh(&followed.client).await;
    assert_eq!(names(&view), Some(vec!["a".to_owned()]));
    assert!(followed.cache.is_behind());
    assert!(lab::within(SECOND, || !followed.cache.is_behind()).await.is_some());
    assert_eq!(followed.names(), Some(vec!["a".to_owned()]));
    assert_eq!(followed.cache.get("a").unwrap().handler, "restored");
    // And from there on the watch is followed.
    server.delete("a", 51);
    assert!(lab::within(SECOND, || followed.names() == Some(Vec::new())).await.is_some());
}

/// Writes after the restore have reached the versions from before it.
#[tokio::test(start_paused = true)]
async fn a_restored_etcd_is_believed_although_its_versions_are_as_high_as_before() {
    let server = Server::default();
    server.store("a", 100, &handler());
    server.store("b", 101, &handler());
    let followed = Followed::start(&server).await;
    server.lock().objects.clear();
    server.store("a", 50, &json!("restored"));
    server.store("c", 150, &handler());
    followed.cache.read_fresh(&followed.client).await;
    assert!(lab::within(SECOND, || !followed.cache.is_behind()).await.is_some());
    assert_eq!(followed.names(), Some(vec!["a".to_owned(), "c".to_owned()]));
    assert_eq!(followed.cache.get("a").unwrap().handler, "restored");
}

#[tokio::test(start_paused = true)]
async fn a_pass_waits_until_the_watch_shows_what_was_written() {
    let server = Server::default();
    server.store("a", 1, &handler());
    let followed = Followed::start(&server).await;
    let written = server.store("a", 2, &json!("written"));
    followed.cache.await_response(&written.to_string());
    assert!(followed.cache.is_behind());
    server.send("MODIFIED", &written);
    assert!(lab::within(SECOND, || !followed.cache.is_behind()).await.is_some());
    assert_eq!(followed.cache.get("a").unwrap().handler, "written");
    assert!(!followed.takes_change(), "the pass that wrote it knows it");
    // A write that changes nothing is shown already.
    followed.cache.await_response(&written.to_string());
    assert!(!followed.cache.is_behind());
    server.put("a", 3, &json!("by another client"));
    lab::pass(SECOND).await;
    assert!(followed.takes_change());
}

/// The watch misses a change, which a fresh read shows: the next pass must not see less.
#[tokio::test(start_paused = true)]
async fn a_watch_that_misses_a_change_is_corrected_by_a_list() {
    let server = Server::default();
    server.store("a", 1, &handler());
    server.store("b", 2, &handler());
    let followed = Followed::start(&server).await;
    server.lock().objects.remove("b");
    server.store("a", 4, &json!("missed"));
    let lists = || server.lock().lists.len();
    let view = followed.cache.read_fresh(&followed.client).await;
    assert_eq!(names(&view), Some(vec!["a".to_owned()]));
    assert!(followed.cache.is_behind());
    let before = lists();
    lab::pass(CATCH_UP - SECOND).await;
    assert!(followed.cache.relist_if_late().is_some());
    assert!(followed.cache.is_behind() && lists() == before, "it has its time");
    lab::pass(SECOND).await;
    followed.cache.relist_if_late();
    assert!(lab::within(SECOND, || !followed.cache.is_behind()).await.is_some());
    assert_eq!(lists(), before + 1);
    assert_eq!(followed.names(), Some(vec!["a".to_owned()]));
    assert!(followed.takes_change());
}

/// That the watch showed something newer of another object does not mean that it showed this.
#[tokio::test(start_paused = true)]
async fn what_the_watch_missed_is_read_again_although_it_showed_something_newer() {
    let server = Server::default();
    server.store("a", 1, &handler());
    server.store("b", 2, &handler());
    let followed = Followed::start(&server).await;
    server.store("a", 3, &json!("missed"));
    server.put("b", 4, &json!("shown"));
    lab::pass(SECOND).await;
    followed.cache.read_fresh(&followed.client).await;
    assert!(followed.cache.is_behind());
    lab::pass(CATCH_UP).await;
    followed.cache.relist_if_late();
    assert!(lab::within(SECOND, || !followed.cache.is_behind()).await.is_some());
    assert_eq!(followed.cache.get("a").unwrap().handler, "missed");
}

/// kube opens the next watch without any wait.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_opened_once_a_second() {
    let server = Server::default();
    server.lock().end_watches = true;
    let _followed = Followed::start(&server).await;
    lab::pass(10 * SECOND).await;
    let opened = server.lock().opened.len();
    assert!((10..=13).contains(&opened), "{opened} watches in 11 s");
}

/// kube asks for the history that is gone again and again.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_expired_is_preceded_by_a_list() {
    let server = Server::default();
    server.store("a", 1, &handler());
    let followed = Followed::start(&server).await;
    server.lock().refuse_watches = Some(410);
    server.lock().watches.clear();
    lab::pass(5 * SECOND).await;
    server.delete("a", 2);
    server.lock().refuse_watches = None;
    assert!(lab::within(30 * SECOND, || followed.names() == Some(Vec::new())).await.is_some());
}

/// kube goes on after a line that it cannot read, and with it is lost what the line said.
#[tokio::test(start_paused = true)]
async fn a_line_that_cannot_be_read_has_the_kind_listed_again() {
    let server = Server::default();
    server.store("a", 1, &handler());
    let followed = Followed::start(&server).await;
    server.lock().objects.clear();
    server.send_text("{\"type\": \"DELETED\" garbage");
    assert!(lab::within(5 * SECOND, || followed.names() == Some(Vec::new())).await.is_some());
}

/// kube sets no time limit for a list.
#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_answer_ends_after_its_time_limit() {
    let server = Server::default();
    server.lock().list_delay = Duration::from_hours(1);
    let wake = Arc::new(LoopWaker::default());
    let cache = Arc::new(Cache::<RuntimeClass>::new(Kind::RuntimeClass, &wake));
    let (jitter, metrics) = (Arc::new(Jitter::new(1)), Metrics::new());
    let task = tokio::spawn(Arc::clone(&cache).follow(server.client(), jitter, metrics));
    assert!(lab::within(35 * SECOND, || cache.has_answer()).await.is_some());
    let text = format!("{:?}", cache.view().objects);
    assert!(text.contains("no answer within 10 s"), "{text}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn one_object_that_cannot_be_read_spoils_no_other() {
    let server = Server::default();
    server.store("a", 1, &handler());
    server.store("b", 2, &json!({"not": "a string"}));
    let new = |kind, wake: &Arc<LoopWaker>| Cache::new(kind, wake).tolerate_unreadable();
    let followed = Followed::of(&server, new).await;
    let unreadable = || -> Vec<String> {
        let view = followed.cache.view();
        view.unreadable.iter().map(|found| found.object.name.clone()).collect()
    };
    assert_eq!(followed.names(), Some(vec!["a".to_owned()]));
    assert_eq!(unreadable(), ["b"]);
    let error = followed.cache.view().unreadable[0].error.clone();
    assert!(error.starts_with("handler: ") && !error.contains(" at line "), "{error}");
    let view = followed.cache.read_fresh(&followed.client).await;
    assert_eq!((names(&view).unwrap().len(), view.unreadable.len()), (1, 1));
    // By the watch, too.
    server.put("a", 3, &json!(7));
    server.put("b", 4, &handler());
    assert!(lab::within(SECOND, || unreadable() == ["a"]).await.is_some());
    assert_eq!(followed.names(), Some(vec!["b".to_owned()]));
    server.delete("a", 5);
    assert!(lab::within(SECOND, || unreadable().is_empty()).await.is_some());
    // Where each object counts, one that cannot be read makes the kind unknown.
    server.store("c", 6, &json!(7));
    let followed = Followed::start(&server).await;
    let text = format!("{:?}", followed.cache.view().objects);
    assert!(text.contains("RuntimeClass c"), "{text}");
}
