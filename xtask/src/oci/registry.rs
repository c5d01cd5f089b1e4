//! Pushes to a registry, by the OCI distribution specification 1.1.
//!
//! A registry is not trusted: it gets a login only at its own address or at the one that it names for tokens, nothing
//! is sent elsewhere, answers are read up to a limit, and what is pushed is read again. The crate oci-client does none
//! of these: it follows `Location` to any host, panics on one that is no address, and reads answers to their end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Uri, header};
use serde_json::{Value, json};

use super::login::Login;
use super::reference::Reference;
use super::{Artifact, Blob, Descriptor, INDEX, MANIFEST, digest};

/// The most bytes of an answer that are read; manifests of 4 MiB are the most that registries take.
const LIMIT: u64 = 4 << 20;
/// How much of an answer a message quotes.
const QUOTED: usize = 300;

/// A registry, and who pushes to it.
#[derive(Debug)]
pub(crate) struct Registry {
    agent: ureq::Agent,
    /// Scheme, host and port.
    origin: String,
    name: String,
    login: Option<Login>,
    /// The value of the header Authorization that each repository asked for.
    authorizations: RefCell<BTreeMap<String, String>>,
}

/// What a push found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pushed {
    pub(crate) sent: usize,
    pub(crate) there: usize,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Registry {
    /// One that is reached with TLS, unless it is on this machine or `plain_http` says otherwise. As with docker, a proxy of
    /// the environment is not for this machine.
    pub(crate) fn new(name: &str, login: Option<Login>, plain_http: bool) -> Self {
        let is_here = ["localhost", "127.0.0.1", "[::1]"].iter().any(|here| {
            name.strip_prefix(here).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        });
        let plain = plain_http || is_here;
        let server = if name == "docker.io" { "registry-1.docker.io" } else { name };
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("kata-operator/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(Duration::from_secs(30)))
            .timeout_connect(Some(Duration::from_secs(30)))
            .timeout_per_write(Some(Duration::from_mins(1)))
            .timeout_recv_response(Some(Duration::from_mins(5)))
            .timeout_recv_body(Some(Duration::from_mins(5)));
        let config = if is_here { config.proxy(None) } else { config };
        Self {
            agent: config.build().new_agent(),
            origin: format!("{}://{server}", if plain { "http" } else { "https" }),
            name: name.to_owned(),
            login,
            authorizations: RefCell::default(),
        }
    }

    /// Whether the login may push to a repository: an upload is begun and given up.
    ///
    /// # Errors
    /// If it may not, or as with [`Registry::push`].
    pub(crate) fn may_push(&self, repository: &str) -> Result<(), String> {
        let upload = self.begin(repository, &format!("push to {repository}"))?;
        // A registry ends an upload that stays in its own time.
        drop(self.send(repository, &Method::DELETE, &upload, &[], &[]));
        Ok(())
    }

    /// The digest of what has a name.
    ///
    /// # Errors
    /// As with [`Registry::push`].
    pub(crate) fn named(&self, name: &Reference) -> Result<Option<String>, String> {
        Ok(self.manifest(&name.repository, &name.tag)?.map(|bytes| digest(&bytes)))
    }

    /// What has a name or a digest.
    ///
    /// # Errors
    /// As with [`Registry::push`].
    pub(crate) fn manifest(&self, repository: &str, name: &str) -> Result<Option<Vec<u8>>, String> {
        let url = format!("{}/v2/{repository}/manifests/{name}", self.origin);
        let accept = format!("{INDEX}, {MANIFEST}");
        let headers = [(header::ACCEPT, accept.as_str())];
        let answer = self.send(repository, &Method::GET, &url, &headers, &[])?;
        match answer.status {
            200 => Ok(Some(answer.body)),
            404 => Ok(None),
            _ => Err(self.refused(&format!("look for {repository}:{name}"), &answer)),
        }
    }

    /// Pushes what is not there yet, and the name at the end: a push that breaks leaves the name as it was.
    ///
    /// # Errors
    /// If the registry cannot be reached, refuses, or answers what it must not.
    pub(crate) fn push(&self, artifact: &Artifact, to: &Reference) -> Result<Pushed, String> {
        let repository = &to.repository;
        let pushed = self.upload_missing(artifact, repository)?;
        for manifest in &artifact.manifests {
            self.put(repository, manifest.digest(), manifest)?;
        }
        // Where names cannot be changed, one is refused even to what has it.
        if self.named(to)?.as_deref() != Some(artifact.root.digest()) {
            self.put(repository, &to.tag, &artifact.root)?;
        }
        Ok(pushed)
    }

    /// Pushes what is said of something else, its subject: it has no name, and is found by that.
    ///
    /// # Errors
    /// As with [`Registry::push`].
    pub(crate) fn attach(
        &self,
        artifact: &Artifact,
        repository: &str,
        subject: &Descriptor,
    ) -> Result<(), String> {
        self.upload_missing(artifact, repository)?;
        let root = &artifact.root;
        if self.put(repository, root.digest(), root)?.header("oci-subject").is_some() {
            return Ok(());
        }
        // A registry before version 1.1 of the specification lists nothing: clients do, under a tag.
        let tag = subject.digest.replace(':', "-");
        let there = self.manifest(repository, &tag)?;
        let empty = || json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": []});
        let mut index: Value = match &there {
            Some(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
            None => empty(),
        };
        let Some(list) = index["manifests"].as_array_mut() else {
            return Err(format!("{}/{repository}:{tag} is no list of what is attached", self.name));
        };
        if list.iter().any(|it| it["digest"] == root.digest()) {
            return Ok(());
        }
        let mut entry = serde_json::to_value(&root.descriptor).map_err(|it| it.to_string())?;
        let manifest: Value = serde_json::from_slice(&root.bytes).unwrap_or_default();
        for field in ["artifactType", "annotations"] {
            if let Some(value) = manifest.get(field) {
                entry[field] = value.clone();
            }
        }
        list.push(entry);
        self.put(repository, &tag, &Blob::json(INDEX, &index)?).map(drop)
    }

    fn upload_missing(&self, artifact: &Artifact, repository: &str) -> Result<Pushed, String> {
        let mut pushed = Pushed::default();
        for blob in artifact.contents.iter().flatten() {
            if self.has(repository, "blobs", blob.digest())? {
                pushed.there += 1;
            } else {
                self.upload(repository, blob)?;
                pushed.sent += 1;
            }
        }
        Ok(pushed)
    }

    fn has(&self, repository: &str, kind: &str, digest: &str) -> Result<bool, String> {
        let url = format!("{}/v2/{repository}/{kind}/{digest}", self.origin);
        let answer = self.send(repository, &Method::HEAD, &url, &[], &[])?;
        match answer.status {
            // It is in a storage elsewhere.
            200 | 301 | 302 | 307 | 308 => Ok(true),
            404 => Ok(false),
            _ => Err(self.refused(&format!("look for {digest} in {repository}"), &answer)),
        }
    }

    /// Begins an upload; returns the address that takes it.
    fn begin(&self, repository: &str, what: &str) -> Result<String, String> {
        let url = format!("{}/v2/{repository}/blobs/uploads/", self.origin);
        let begun = self.send(repository, &Method::POST, &url, &[], &[])?;
        if begun.status != 202 {
            return Err(self.refused(what, &begun));
        }
        let location = begun.header("location").unwrap_or_default();
        self.at_home(location).ok_or_else(|| {
            format!(
                "cannot {what}: {} sends the upload to {location:?}, which is elsewhere",
                self.name
            )
        })
    }

    fn upload(&self, repository: &str, blob: &Blob) -> Result<(), String> {
        let digest = blob.digest();
        let what = format!("upload {digest} to {repository}");
        let to = self.begin(repository, &what)?;
        let joint = if to.contains('?') { '&' } else { '?' };
        let url = format!("{to}{joint}digest={digest}");
        let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
        let ended = self.send(repository, &Method::PUT, &url, &headers, &blob.bytes)?;
        if ended.status != 201 {
            return Err(self.refused(&what, &ended));
        }
        self.same(&what, digest, &ended)
    }

    /// Puts a manifest under its digest or a tag, and reads it again.
    fn put(&self, repository: &str, name: &str, manifest: &Blob) -> Result<Answer, String> {
        let what = format!("put the manifest {repository}:{name}");
        let url = format!("{}/v2/{repository}/manifests/{name}", self.origin);
        let media_type = manifest.descriptor.media_type;
        let headers = [(header::CONTENT_TYPE, media_type)];
        let answer = self.send(repository, &Method::PUT, &url, &headers, &manifest.bytes)?;
        if answer.status != 201 {
            return Err(self.refused(&what, &answer));
        }
        self.same(&what, manifest.digest(), &answer)?;
        let read =
            self.send(repository, &Method::GET, &url, &[(header::ACCEPT, media_type)], &[])?;
        if read.status != 200 {
            return Err(self.refused(&format!("read the manifest {repository}:{name}"), &read));
        }
        if read.body == manifest.bytes {
            Ok(answer)
        } else {
            Err(format!(
                "{} has another manifest under {repository}:{name} than was put there",
                self.name
            ))
        }
    }

    fn same(&self, what: &str, digest: &str, answer: &Answer) -> Result<(), String> {
        match answer.header("docker-content-digest") {
            Some(other) if other != digest => {
                Err(format!("cannot {what}: {} has it as {other}", self.name))
            }
            _ => Ok(()),
        }
    }

    /// An address of this registry: a path, or one with the same scheme, host and port.
    fn at_home(&self, location: &str) -> Option<String> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(format!("{}{location}", self.origin));
        }
        let (here, there) = (self.origin.parse::<Uri>().ok()?, location.parse::<Uri>().ok()?);
        let port = |uri: &Uri| {
            uri.port_u16().or_else(|| (uri.scheme_str() == Some("https")).then_some(443))
        };
        let is_here = here.scheme() == there.scheme()
            && here.host() == there.host()
            && port(&here) == port(&there);
        is_here.then(|| location.to_owned())
    }

    /// Sends a request, with the authorization that the registry asks for.
    fn send(
        &self,
        repository: &str,
        method: &Method,
        url: &str,
        headers: &[(header::HeaderName, &str)],
        body: &[u8],
    ) -> Result<Answer, String> {
        let known = self.authorizations.borrow().get(repository).cloned();
        let answer = self.once(method, url, headers, body, known.as_deref())?;
        if answer.status != 401 {
            return Ok(answer);
        }
        let Some(authorization) = self.authorize(repository, &answer)? else { return Ok(answer) };
        let again = self.once(method, url, headers, body, Some(&authorization))?;
        self.authorizations.borrow_mut().insert(repository.to_owned(), authorization);
        Ok(again)
    }

    fn once(
        &self,
        method: &Method,
        url: &str,
        headers: &[(header::HeaderName, &str)],
        body: &[u8],
        authorization: Option<&str>,
    ) -> Result<Answer, String> {
        let failed = |error: &dyn std::fmt::Display| {
            let fix = match (url.starts_with("https://"), body.is_empty()) {
                (_, false) => "; push again: what is there is not sent twice",
                (true, true) => {
                    "; for a registry without TLS give --plain-http, for a certificate authority of its own set SSL_CERT_FILE"
                }
                (false, true) => "",
            };
            format!("cannot reach {url}: {error}{fix}")
        };
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let answer = if matches!(*method, Method::GET | Method::HEAD) {
            self.agent.run(request.body(()).map_err(|error| failed(&error))?)
        } else {
            self.agent.run(request.body(body).map_err(|error| failed(&error))?)
        };
        let mut answer = answer.map_err(|error| failed(&error))?;
        let read = answer.body_mut().with_config().limit(LIMIT).read_to_vec();
        let body = match read {
            Ok(body) => body,
            Err(ureq::Error::BodyExceedsLimit(_)) => {
                return Err(format!(
                    "{url} answers with more than {LIMIT} bytes, which are not read"
                ));
            }
            Err(error) => return Err(failed(&error)),
        };
        let (parts, _) = answer.into_parts();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// What a registry that answers 401 asks for; none if nothing would be new.
    fn authorize(&self, repository: &str, answer: &Answer) -> Result<Option<String>, String> {
        let asked: Vec<&str> = answer
            .headers
            .get_all("www-authenticate")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let wrong =
            |why: &str| format!("{} asks for a login in a way that is not known: {why}", self.name);
        let challenges: Vec<http_auth::ChallengeRef<'_>> = asked
            .iter()
            .filter_map(|field| http_auth::parse_challenges(field).ok())
            .flatten()
            .collect();
        let of = |scheme: &str| challenges.iter().find(|it| it.scheme.eq_ignore_ascii_case(scheme));
        if let Some(challenge) = of("bearer") {
            let field = |name: &str| {
                let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = field("realm").ok_or_else(|| wrong("it names no place for tokens"))?;
            return self.token(repository, &realm, field("service").as_deref()).map(Some);
        }
        match of("basic") {
            Some(_) => Ok(self.login.as_ref().map(Login::basic)),
            None => Err(wrong(&asked.join(", "))),
        }
    }

    /// Fetches a token; the login goes where the registry says, but not in clear.
    fn token(
        &self,
        repository: &str,
        realm: &str,
        service: Option<&str>,
    ) -> Result<String, String> {
        let realm = match self.at_home(realm) {
            Some(realm) => realm,
            None if realm.starts_with("https://") || self.login.is_none() => realm.to_owned(),
            None => {
                return Err(format!(
                    "{} sends the login to {realm:?}, which has no TLS",
                    self.name
                ));
            }
        };
        let mut query = url_query("scope", &format!("repository:{repository}:pull,push"));
        if let Some(service) = service {
            query = format!("{}&{query}", url_query("service", service));
        }
        let joint = if realm.contains('?') { '&' } else { '?' };
        let url = format!("{realm}{joint}{query}");
        let basic = self.login.as_ref().map(Login::basic);
        let answer = self.once(&Method::GET, &url, &[], &[], basic.as_deref())?;
        if answer.status != 200 {
            return Err(
                self.refused(&format!("get a token for {repository} from {realm}"), &answer)
            );
        }
        let fields: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let token = fields["token"].as_str().or_else(|| fields["access_token"].as_str());
        let token = token.ok_or_else(|| format!("{realm} answers with no token"))?;
        Ok(format!("Bearer {token}"))
    }

    fn refused(&self, what: &str, answer: &Answer) -> String {
        let said = String::from_utf8_lossy(&answer.body);
        let said: String = said.chars().filter(|c| !c.is_control()).take(QUOTED).collect();
        let fix = match (answer.status, &self.login) {
            (401 | 403, None) => {
                format!("; log in with `docker login {0}` or `podman login {0}`", self.name)
            }
            (401 | 403, Some(login)) => {
                format!("; {} needs the permission to push there", login.user)
            }
            (300..=399, _) => {
                let place = answer.header("location").unwrap_or_default();
                format!("; it leads to {place:?}, which is not followed")
            }
            _ => String::new(),
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        format!("cannot {what}: {} answers {}{said}{fix}", self.name, answer.status)
    }
}

fn url_query(name: &str, value: &str) -> String {
    let escaped = |c: u8| match c {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(c).to_string()
        }
        c => format!("%{c:02X}"),
    };
    format!("{name}={}", value.bytes().map(escaped).collect::<String>())
}
