//! Lists: pages of one consistent state, and the rules of `resourceVersion` and `continue`.
//!
//! It reads the store and its log; it must not care how the items are encoded.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::{ApiError, FieldError};
use super::request::ListOptions;
use super::selector::{FieldSelector, LabelSelector};
use super::store::Store;
use crate::Resource;

/// Which objects a list or watch is about.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The resource.
    pub resource: Resource,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector.
    pub fields: FieldSelector,
}

impl Selection {
    /// Whether it selects an object of its resource that lives in `namespace`.
    pub fn holds(&self, namespace: &str, object: &Value) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace)
            && self.labels.matches(object)
            && self.fields.matches(object)
    }

    /// Whether no selector leaves anything out.
    fn takes_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The items, ordered by namespace and name.
    pub items: Vec<Arc<Value>>,
    /// The ListMeta.
    pub metadata: Value,
}

/// The content of a `continue` token.
#[derive(Serialize, Deserialize)]
struct Token {
    /// The revision of the first page; 0 continues at whatever the current state is.
    rv: u64,
    /// The key of the last item that was sent.
    namespace: String,
    name: String,
}

type Key = (String, String);

/// Answers a list.
///
/// # Errors
/// `400` and `422` for options that make no sense, `410` for states that are no longer known, `504`
/// for states that are not known yet.
pub fn list(store: &Store, selection: &Selection, options: &ListOptions) -> Result<Page, ApiError> {
    let (revision, after) = start(store, selection, options)?;
    let undone = if revision == store.revision() {
        BTreeMap::new()
    } else {
        changes_since(store, selection, revision).ok_or_else(|| expired(store, options))?
    };
    // A list from whatever state is at hand comes whole.
    let limit = options.limit.filter(|_limit| options.resource_version != "0");
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut items = Vec::new();
    let mut last = None;
    let mut rest = 0_usize;
    let mut more = false;
    for (key, object) in state_at(store, &selection.resource, &undone, after) {
        if !selection.namespace.is_empty() && key.0 != selection.namespace {
            if key.0 > selection.namespace {
                break;
            }
            continue;
        }
        // Whether what follows matches is only known when it is read.
        more |= items.len() >= limit;
        if more && !selection.takes_all() {
            // What is left is counted for lists without selectors only.
            break;
        }
        if !selection.holds(&key.0, object) {
            continue;
        }
        if items.len() < limit {
            items.push(Arc::clone(object));
            last = Some(key);
        } else {
            rest += 1;
        }
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if more && let Some((namespace, name)) = last {
        let (namespace, name) = (namespace.clone(), name.clone());
        metadata["continue"] = json!(encode(&Token { rv: revision, namespace, name }));
        if selection.takes_all() {
            metadata["remainingItemCount"] = json!(rest);
        }
    }
    Ok(Page { items, metadata })
}

/// The revision whose state is wanted, and the key after which the page begins.
fn start(
    store: &Store,
    selection: &Selection,
    options: &ListOptions,
) -> Result<(u64, Bound<Key>), ApiError> {
    let beginning = Bound::Included((selection.namespace.clone(), String::new()));
    let now = store.revision();
    if let Some(token) = &options.continue_token {
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(ApiError::new(
                400,
                "BadRequest",
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = decode(token).ok_or_else(|| {
            ApiError::new(
                400,
                "BadRequest",
                "invalid continue token: continue key is not valid: encoding is not known",
            )
        })?;
        let revision = if token.rv == 0 { now } else { token.rv };
        return Ok((revision.min(now), Bound::Excluded((token.namespace, token.name))));
    }
    let wanted = options.resource_version.as_str();
    match options.version_match.as_deref() {
        None | Some("NotOlderThan" | "Exact") => {}
        Some(other) => {
            return Err(invalid_options(
                "resourceVersionMatch",
                "FieldValueNotSupported",
                format!(
                    "Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\""
                ),
            ));
        }
    }
    if wanted.is_empty() {
        if options.version_match.is_some() {
            return Err(invalid_options(
                "resourceVersionMatch",
                "FieldValueForbidden",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        return Ok((now, beginning));
    }
    let wanted: u64 = wanted.parse().map_err(|_error| {
        ApiError::new(
            400,
            "BadRequest",
            format!(
                "invalid resource version: resourceVersion: Invalid value: {wanted:?}: \
                 strconv.ParseUint: parsing {wanted:?}: invalid syntax"
            ),
        )
    })?;
    let exact = match options.version_match.as_deref() {
        Some(rule) => rule == "Exact",
        // The rule from before resourceVersionMatch existed.
        None => options.limit.is_some() && wanted > 0,
    };
    if exact && wanted == 0 {
        return Err(invalid_options(
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ));
    }
    if wanted > now {
        return Err(ApiError::new(
            504,
            "Timeout",
            format!("Too large resource version: {wanted}, current: {now}"),
        )
        .with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        })));
    }
    Ok((if exact { wanted } else { now }, beginning))
}

/// What objects that changed after `revision` were at that revision; `None` if that is forgotten.
fn changes_since(
    store: &Store,
    selection: &Selection,
    revision: u64,
) -> Option<BTreeMap<Key, Option<Arc<Value>>>> {
    let mut undone = BTreeMap::new();
    for event in store.events_after(revision)? {
        if event.resource == selection.resource {
            undone
                .entry((event.namespace.clone(), event.name.clone()))
                .or_insert_with(|| event.previous.clone());
        }
    }
    Some(undone)
}

/// The objects after a key, with `undone` in place of what the store has now.
fn state_at<'a>(
    store: &'a Store,
    resource: &'a Resource,
    undone: &'a BTreeMap<Key, Option<Arc<Value>>>,
    after: Bound<Key>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
    let mut live = store.range(resource, after.clone()).peekable();
    let mut old = undone.range((after, Bound::Unbounded)).peekable();
    std::iter::from_fn(move || {
        loop {
            let order = match (live.peek(), old.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((live, _)), Some((old, _))) => (*live).cmp(old),
            };
            if order == Ordering::Less {
                return live.next();
            }
            if order == Ordering::Equal {
                live.next();
            }
            if let Some((key, Some(object))) = old.next() {
                return Some((key, object));
            }
        }
    })
}

fn expired(store: &Store, options: &ListOptions) -> ApiError {
    let mut error = ApiError::new(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter, or use the continue token in this \
         response to retrieve the remainder of the results. Continuing with the provided token \
         results in an inconsistent list - objects that were created, modified, or deleted between \
         the time the first chunk was returned and now may show up in the list.",
    );
    match options.continue_token.as_deref().and_then(decode) {
        Some(token) => error.continue_token = Some(encode(&Token { rv: 0, ..token })),
        None => {
            error.message = format!(
                "The resourceVersion for the provided list is too old: {} (current {})",
                options.resource_version,
                store.revision()
            );
        }
    }
    error
}

/// `422` for a query parameter of lists and watches.
pub(crate) fn invalid_options(
    field: &str,
    reason: &'static str,
    message: impl Into<String>,
) -> ApiError {
    let cause = FieldError { field: field.to_owned(), reason, message: message.into() };
    ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![cause])
}

fn encode(token: &Token) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).unwrap_or_default())
}

fn decode(token: &str) -> Option<Token> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::CONFIGMAPS;

    fn all() -> Selection {
        Selection {
            resource: CONFIGMAPS,
            namespace: String::new(),
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
        }
    }

    fn store() -> Store {
        let mut store = Store::default();
        for name in ["a", "b", "c", "d", "e"] {
            store.put(&CONFIGMAPS, "n", name, json!({"metadata": {"name": name}}));
        }
        store
    }

    fn names(page: &Page) -> Vec<&str> {
        page.items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
    }

    fn next(page: &Page) -> ListOptions {
        ListOptions {
            limit: Some(2),
            continue_token: page.metadata["continue"].as_str().map(str::to_owned),
            ..ListOptions::default()
        }
    }

    #[test]
    fn pages_show_the_state_of_the_first_page() {
        let mut store = store();
        let options = ListOptions { limit: Some(2), ..ListOptions::default() };
        let first = list(&store, &all(), &options).unwrap();
        assert_eq!(names(&first), ["a", "b"]);
        assert_eq!(first.metadata["remainingItemCount"], 3);

        store.remove(&CONFIGMAPS, "n", "c");
        store.put(&CONFIGMAPS, "n", "cc", json!({"metadata": {"name": "cc"}}));
        store.put(&CONFIGMAPS, "n", "d", json!({"metadata": {"name": "d"}, "data": {"new": "1"}}));
        let second = list(&store, &all(), &next(&first)).unwrap();
        assert_eq!(names(&second), ["c", "d"]);
        assert_eq!(second.items[1]["data"], Value::Null);
        assert_eq!(second.metadata["resourceVersion"], first.metadata["resourceVersion"]);
        let third = list(&store, &all(), &next(&second)).unwrap();
        assert_eq!(names(&third), ["e"]);
        assert_eq!(third.metadata["continue"], Value::Null);
    }

    #[test]
    fn an_expired_page_comes_with_a_token_to_go_on() {
        let mut store = store();
        let options = ListOptions { limit: Some(2), ..ListOptions::default() };
        let first = list(&store, &all(), &options).unwrap();
        store.remove(&CONFIGMAPS, "n", "c");
        store.set_window(0);
        let error = list(&store, &all(), &next(&first)).unwrap_err();
        assert_eq!((error.code, error.reason), (410, "Expired"));
        let options = ListOptions { continue_token: error.continue_token, ..options };
        assert_eq!(names(&list(&store, &all(), &options).unwrap()), ["d", "e"]);
    }

    #[test]
    fn resource_versions_are_honoured() {
        let mut store = store();
        let old = store.revision();
        store.remove(&CONFIGMAPS, "n", "a");
        let at = |version: String, rule: Option<&str>| {
            let options = ListOptions {
                resource_version: version,
                version_match: rule.map(str::to_owned),
                ..ListOptions::default()
            };
            list(&store, &all(), &options)
        };
        assert_eq!(at(old.to_string(), Some("Exact")).unwrap().items.len(), 5);
        assert_eq!(at(old.to_string(), Some("NotOlderThan")).unwrap().items.len(), 4);
        assert_eq!(at("0".to_owned(), None).unwrap().items.len(), 4);
        assert_eq!(at("99".to_owned(), None).unwrap_err().code, 504);
        assert_eq!(at(String::new(), Some("Exact")).unwrap_err().code, 422);
        assert_eq!(at("x".to_owned(), None).unwrap_err().code, 400);
    }
}
