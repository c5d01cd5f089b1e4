//! The program over TLS, with every kind of credentials that a kubeconfig can name, as a process of its own:
//! what is right works, and what is wrong is told in words that name the cause and show no secret.
//!
//! The API server is the simulated one behind a TLS front; authorities and certificates are made here.

mod hostile;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Certificate, Good};
use crate::lab::Lab;

/// The only name that the API server's certificate is for, besides the loopback address.
const NAME: &str = "api.cluster.example";
/// In everything that is secret.
const SECRET: &str = "do-not-show-me";

/// A simulated API server behind TLS, and a folder for files.
struct Front {
    lab: Lab,
    authority: Certificate,
    folder: PathBuf,
    address: SocketAddr,
    clients: Clients,
}

/// The certificates that clients showed.
type Clients = Arc<std::sync::Mutex<BTreeSet<Vec<u8>>>>;

/// What the program said.
#[derive(Debug)]
struct Said {
    code: i32,
    text: String,
}

impl Said {
    /// It ended with this code and said this, and no secret and no Debug text.
    #[track_caller]
    fn expect(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{}", self.text);
        for text in texts {
            assert!(self.text.contains(text), "does not say {text:?}:\n{}", self.text);
        }
        for text in [SECRET, "Error(", "Error {", "Some(", "Os {", "Custom {", "kind:", "\\\""] {
            assert!(!self.text.contains(text), "says {text:?}:\n{}", self.text);
        }
    }
}

impl Front {
    /// An API server whose certificate is for these names; `mutual` if clients need one too.
    async fn new(folder: &str, names: &[&str], good: Good, mutual: bool) -> Self {
        let mut lab = Lab::bare(&simcluster::topology::Layout::default());
        // A token is checked from now on; who shows none may do everything.
        lab.only_view();
        let api = lab.cluster.serve(0).await.unwrap();
        let authority = Certificate::authority("cluster");
        let server = authority.sign("server", names, good);
        let der = |certificate: &Certificate| CertificateDer::from(certificate.der.clone());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(server.key_der.clone()));
        let builder = ServerConfig::builder();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(der(&authority)).unwrap();
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(vec![der(&server)], key).unwrap();
        let clients = Clients::default();
        let address = serve(TlsAcceptor::from(Arc::new(config)), api, Arc::clone(&clients)).await;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        Self { lab, authority, folder, address, clients }
    }

    /// Writes a file; its path.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A kubeconfig with these lines about the cluster and about the user, in YAML's flow style.
    fn kubeconfig(&self, cluster: &str, user: &str) -> PathBuf {
        let address = format!("https://{}", self.address);
        self.kubeconfig_of(&address, cluster, user)
    }

    fn kubeconfig_of(&self, address: &str, cluster: &str, user: &str) -> PathBuf {
        self.file(
            "kubeconfig",
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
                 contexts: [{{name: main, context: {{cluster: prod, user: alice}}}}]\n\
                 clusters: [{{name: prod, cluster: {{server: \"{address}\", {cluster}}}}}]\n\
                 users: [{{name: alice, user: {{{user}}}}}]\n"
            ),
        )
    }

    /// What a cluster of a kubeconfig says of its authority.
    fn trust(&self) -> String {
        format!("certificate-authority-data: {}", STANDARD.encode(self.authority.pem()))
    }

    /// Runs the program in the folder.
    async fn run(&self, line: &str, variables: &[(&str, &str)]) -> Said {
        self.start(
            Path::new(env!("CARGO_BIN_EXE_kubectl-kata")),
            line.split_whitespace(),
            variables,
        )
        .await
    }

    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    async fn start(
        &self,
        program: &Path,
        words: impl Iterator<Item = &str>,
        variables: &[(&str, &str)],
    ) -> Said {
        let mut command = Command::new(program);
        command.args(words).current_dir(&self.folder).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Whom this machine trusts is not what is tested.
        command.env("SSL_CERT_FILE", self.folder.join("system.pem"));
        command.envs(variables.iter().copied());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        Said { code: output.status.code().unwrap(), text: String::from_utf8(text).unwrap() }
    }

    /// What the program says with a kubeconfig.
    async fn with(&self, cluster: &str, user: &str, line: &str) -> Said {
        let path = self.kubeconfig(cluster, user);
        self.run(&format!("{line} --kubeconfig {}", path.display()), &[]).await
    }

    fn token(&self) -> &str {
        self.lab.token.as_deref().unwrap()
    }
}

/// Ends TLS and passes on what is inside. A connection lasts a second, so a command that waits makes several.
async fn serve(acceptor: TlsAcceptor, api: SocketAddr, clients: Clients) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, clients) = (acceptor.clone(), Arc::clone(&clients));
            tokio::spawn(async move {
                match acceptor.accept(tcp).into_fallible().await {
                    Ok(mut tls) => {
                        let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
                        clients.lock().unwrap().extend(shown.map(|shown| shown.to_vec()));
                        let mut plain = TcpStream::connect(api).await.unwrap();
                        let copied = copy_bidirectional(&mut tls, &mut plain);
                        drop(tokio::time::timeout(Duration::from_secs(1), copied).await);
                    }
                    // A socket that is closed with something unread would take the alert back.
                    Err((_refused, mut tcp)) => drop(tcp.read_to_end(&mut Vec::new()).await),
                }
            });
        }
    });
    address
}

/// An HTTP proxy that connects to one place whatever it is asked for; it answers with how often it was.
async fn proxy(to: SocketAddr) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                assert!(head.starts_with(format!("CONNECT {NAME}:").as_bytes()));
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut server = TcpStream::connect(to).await.unwrap();
                drop(copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    (address, count)
}

#[tokio::test]
async fn the_servers_certificate_is_checked() {
    let front = Front::new("tls-server", &[NAME], Good::Now, false).await;
    let trust = front.trust();
    let named = format!("{trust}, tls-server-name: {NAME}");
    front.with(&named, "", "version").await.expect(0, &["kubernetes  v"]);
    let line = format!("version --tls-server-name {NAME}");
    front.with(&trust, "", &line).await.expect(0, &["kubernetes  v"]);
    let path = front.file("ca.crt", &front.authority.pem());
    let relative = format!("certificate-authority: ca.crt, tls-server-name: {NAME}");
    front.with(&relative, "", "version").await.expect(0, &["kubernetes  v"]);
    front.with(&trust, "", "version").await.expect(3, &["plugin      0.1.0"]);
    let flags = format!("{line} --certificate-authority {}", path.display());
    front.with("", "", &flags).await.expect(0, &["kubernetes  v"]);
    front.with("insecure-skip-tls-verify: true", "", "version").await.expect(0, &["kubernetes  v"]);

    let server = format!("no connection to https://{}: ", front.address);
    front.with(&trust, "", "version").await.expect(
        3,
        &[
            &server,
            "its certificate is not for 127.0.0.1, but for api.cluster.example;",
            "--tls-server-name",
        ],
    );
    let other = Certificate::authority("other");
    let wrong = format!("certificate-authority-data: {}", STANDARD.encode(other.pem()));
    let untrusted =
        "its certificate is signed by an authority that is not trusted; set certificate-authority";
    front.with(&wrong, "", &line).await.expect(3, &[&server, untrusted]);
    let none = "the kubeconfig names no certificate authority, and this machine has none either";
    front.with("", "", &line).await.expect(3, &["cannot prepare the connection to", none]);
    front.file("system.pem", &other.pem());
    front.with("", "", &line).await.expect(3, &[&server, untrusted]);
    let cases = [
        ("certificate-authority-data: '!'", "certificate authority of cluster prod is no base64"),
        (
            "certificate-authority-data: YQ==",
            "certificate authority of cluster prod has no certificate",
        ),
        ("certificate-authority: nowhere.crt", "cannot be read from"),
    ];
    for (cluster, text) in cases {
        let named = ["cannot use kubeconfig ", "/kubeconfig: ", text];
        front.with(cluster, "", "version").await.expect(3, &named);
    }
    let plain = front.kubeconfig_of(&format!("http://{}", front.address), "", "");
    let line = format!("version --kubeconfig {}", plain.display());
    front
        .run(&line, &[])
        .await
        .expect(3, &["no connection to http://", "is the address one of https://?"]);
}

#[tokio::test]
async fn an_expired_certificate_is_named() {
    let front = Front::new("tls-expired", &["127.0.0.1"], Good::Once, false).await;
    let said = front.with(&front.trust(), "", "version").await;
    said.expect(3, &["its certificate expired at 2020-12-31T23:59:59Z"]);
}

#[tokio::test]
async fn client_certificates_are_shown() {
    let front = Front::new("tls-client", &["127.0.0.1"], Good::Now, true).await;
    let trust = front.trust();
    let alice = front.authority.sign("alice", &["alice"], Good::Now);
    let data = format!(
        "client-certificate-data: {}, client-key-data: {}",
        STANDARD.encode(alice.pem()),
        STANDARD.encode(alice.key_pem())
    );
    front.with(&trust, &data, "pods -A").await.expect(0, &["No sandboxed pods found."]);
    front.file("alice.crt", &alice.pem());
    front.file("alice.key", &alice.key_pem());
    let files = "client-certificate: alice.crt, client-key: alice.key";
    front.with(&trust, files, "version").await.expect(0, &["kubernetes  v"]);
    let flags = "version --client-certificate alice.crt --client-key alice.key";
    front.with(&trust, "", flags).await.expect(0, &["kubernetes  v"]);

    let none = "it wants a client certificate, and the user has none";
    front.with(&trust, "", "version").await.expect(3, &[none]);
    let refused = "it does not accept the user's client certificate; is it one of this cluster?";
    let mallory = Certificate::authority("other").sign("alice", &["alice"], Good::Now);
    front.file("mallory.crt", &mallory.pem());
    front.file("mallory.key", &mallory.key_pem());
    let files = "client-certificate: mallory.crt, client-key: mallory.key";
    front.with(&trust, files, "version").await.expect(3, &[refused]);
    let late = front.authority.sign("alice", &["alice"], Good::Once);
    front.file("late.crt", &late.pem());
    front.file("late.key", &late.key_pem());
    let files = "client-certificate: late.crt, client-key: late.key";
    let said = front.with(&trust, files, "version").await;
    said.expect(3, &["the user's client certificate has expired"]);
    let cases = [
        ("client-certificate: alice.crt", "the client key is missing"),
        ("client-key: alice.key", "the client certificate is missing"),
        (
            "client-certificate: nowhere.crt, client-key: alice.key",
            "the client certificate cannot be read",
        ),
        ("client-certificate: alice.key, client-key: alice.key", "certificate"),
        ("client-certificate: alice.crt, client-key: mallory.key", "key"),
    ];
    for (user, text) in cases {
        let said = front.with(&trust, user, "version").await;
        said.expect(3, &["cannot prepare the connection to https://127.0.0.1:", text]);
    }
}

#[tokio::test]
async fn tokens_come_from_files() {
    let front = Front::new("tls-token", &["127.0.0.1"], Good::Now, false).await;
    let trust = front.trust();
    // Who shows this token may view, and may not see RuntimeClasses.
    let viewer = "you may not list runtimeclasses.node.k8s.io";
    // With the line feed that an editor leaves.
    front.file("token", &format!("{}\n", front.token()));
    front.with(&trust, "tokenFile: token", "pods -A").await.expect(5, &[viewer]);
    let line = format!("pods -A --token {}", front.token());
    front.with(&trust, "", &line).await.expect(5, &[viewer]);
    front.with(&trust, "", "pods -A").await.expect(0, &["No sandboxed pods found."]);

    front.file("bad", &format!("{SECRET}\n"));
    let said = front.with(&trust, "tokenFile: bad", "pods -A").await;
    said.expect(3, &["the API server does not accept the credentials", "log in again"]);
    front.file("words", &format!("{SECRET}\n{SECRET}\n"));
    front.file("empty", "\n");
    let cases = [
        ("words", "is no token: it must be one word"),
        ("empty", "there is no token in"),
        ("nowhere", "the token cannot be read from"),
    ];
    for (file, text) in cases {
        let said = front.with(&trust, &format!("tokenFile: {file}"), "pods -A").await;
        said.expect(3, &["cannot get the credentials of user alice: ", text]);
    }
}

#[tokio::test]
async fn plugins_give_credentials() {
    let front = Front::new("tls-plugin", &["127.0.0.1"], Good::Now, false).await;
    let trust = front.trust();
    let plugin = |more: &str| {
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, {more}}}"
        )
    };
    // It counts how often it is asked, and looks at what it is told.
    let shell = |script: &str| {
        front.file("plugin", &format!("#!/bin/sh\n{script}\n"));
        plugin("command: sh, args: [./plugin]")
    };
    let credential = |status: &str| {
        format!(
            "{{\"kind\": \"ExecCredential\", \"apiVersion\": \"client.authentication.k8s.io/v1\", \
             \"status\": {status}}}"
        )
    };
    let viewer = "you may not list runtimeclasses.node.k8s.io";
    let token =
        |expires: &str| credential(&format!("{{\"token\": \"{}\"{expires}}}", front.token()));
    let script =
        "echo >> asked; case $KUBERNETES_EXEC_INFO in *'\"interactive\":false'*) cat answer;; esac";
    for expires in ["", ", \"expirationTimestamp\": \"2100-01-01T00:00:00Z\""] {
        front.file("answer", &token(expires));
        drop(std::fs::remove_file(front.folder.join("asked")));
        front.with(&trust, &shell(script), "pods -A").await.expect(5, &[viewer]);
        assert_eq!(std::fs::read_to_string(front.folder.join("asked")).unwrap(), "\n");
    }
    // An answer in YAML, a variable, and the cluster's address.
    let script = format!("[ \"$WHO\" = me ] && echo \"{{status: {{token: {}}}}}\"", front.token());
    front.file("plugin", &script);
    let user = plugin("command: sh, args: [plugin], env: [{name: WHO, value: me}]");
    front.with(&trust, &user, "pods -A").await.expect(5, &[viewer]);
    let script = format!(
        "case $KUBERNETES_EXEC_INFO in *'\"server\":\"https://{}\"'*) cat answer;; esac",
        front.address
    );
    front.file("plugin", &script);
    let user = plugin("command: sh, args: [plugin], provideClusterInfo: true");
    front.with(&trust, &user, "pods -A").await.expect(5, &[viewer]);

    let fails = format!("echo {SECRET}; echo please log in >&2; exit 3");
    let texts = ["please log in", "`sh` failed with exit status: 3; its own messages are above"];
    let said = front.with(&trust, &shell(&fails), "pods -A").await;
    said.expect(3, &["cannot get the credentials of user alice: "]);
    said.expect(3, &texts);
    let absent = plugin("command: no-such-plugin, installHint: 'get it from example.com'");
    let said = front.with(&trust, &absent, "pods -A").await;
    said.expect(3, &["there is no program `no-such-plugin`: get it from example.com"]);
    let secret = format!("{{\"token\": \"{SECRET}\", \"expirationTimestamp\": \"soon\"}}");
    let cases = [
        (SECRET.to_owned(), "prints is no ExecCredential"),
        (format!("{{\"status\": \"{SECRET}\"}}"), "prints is no ExecCredential"),
        ("{}".to_owned(), "has no status"),
        (credential("{}"), "prints neither a token nor a client certificate"),
        (credential(&secret), "prints is \"soon\", which is no time"),
        (
            credential(&format!("{{\"clientKeyData\": \"{SECRET}\"}}")),
            "a client certificate without its key, or a key without its certificate",
        ),
        (
            "{\"apiVersion\": \"client.authentication.k8s.io/v1beta1\", \"status\": {}}".to_owned(),
            "of client.authentication.k8s.io/v1beta1, and the kubeconfig says client.authentication.k8s.io/v1",
        ),
    ];
    for (answer, text) in cases {
        front.file("answer", &answer);
        let said = front.with(&trust, &shell("cat answer"), "pods -A").await;
        said.expect(3, &["cannot get the credentials of user alice: ", text]);
    }
    let asks = "exec: {command: sh, interactiveMode: Always}";
    front.with(&trust, asks, "pods -A").await.expect(3, &["there is no terminal"]);
    let old = "auth-provider: {name: gcp, config: {}}";
    front.with(&trust, old, "pods -A").await.expect(3, &["use an exec credential plugin"]);
}

#[tokio::test]
async fn plugins_give_certificates() {
    let front = Front::new("tls-plugin-certificate", &["127.0.0.1"], Good::Now, true).await;
    let alice = front.authority.sign("alice", &["alice"], Good::Now);
    let status = serde_json::json!({"status": {
        "clientCertificateData": alice.pem(), "clientKeyData": alice.key_pem(),
    }});
    front.file("answer", &status.to_string());
    let user = "exec: {command: cat, args: [answer], interactiveMode: Never}";
    let said = front.with(&front.trust(), user, "pods -A").await;
    said.expect(0, &["No sandboxed pods found."]);
}

/// The plugin prints another certificate each time, and the first expires while the command runs.
#[tokio::test]
async fn a_certificate_is_renewed_while_a_command_runs() {
    let front = Front::new("tls-plugin-renewal", &["127.0.0.1"], Good::Now, true).await;
    for number in [1, 2] {
        let alice = front.authority.sign("alice", &["alice"], Good::Now);
        let status = serde_json::json!({"status": {
            "clientCertificateData": alice.pem(), "clientKeyData": alice.key_pem(),
            "expirationTimestamp": if number == 1 { "2020-01-01T00:00:00Z" } else { "2100-01-01T00:00:00Z" },
        }});
        front.file(&format!("answer-{number}"), &status.to_string());
    }
    front.file("plugin", "if [ -e asked ]; then cat answer-2; else echo > asked; cat answer-1; fi");
    let user = "exec: {command: sh, args: [plugin], interactiveMode: Never}";
    let said = front.with(&front.trust(), user, "wait --for ready").await;
    // It gives up without an operator, but only after five seconds, when the first certificate is no longer used.
    said.expect(1, &["no KataConfig"]);
    assert_eq!(front.clients.lock().unwrap().len(), 2, "certificates that the server saw");
}

#[tokio::test]
async fn proxies_are_used() {
    let front = Front::new("tls-proxy", &[NAME], Good::Now, false).await;
    let (address, count) = proxy(front.address).await;
    let asked = || count.swap(0, std::sync::atomic::Ordering::Relaxed) > 0;
    let there = format!("https://{NAME}:6443");
    let cluster = format!("{}, proxy-url: \"http://{address}\"", front.trust());
    let path = front.kubeconfig_of(&there, &cluster, "");
    let line = format!("version --kubeconfig {}", path.display());
    front.run(&line, &[]).await.expect(0, &["kubernetes  v"]);
    assert!(asked());
    front.kubeconfig_of(&there, &front.trust(), "");
    let variable = format!("http://{address}");
    front.run(&line, &[("HTTPS_PROXY", &variable)]).await.expect(0, &["kubernetes  v"]);
    assert!(asked());
    // This machine itself needs none.
    let near = format!("{}, tls-server-name: {NAME}", front.trust());
    front.kubeconfig(&near, "");
    front.run(&line, &[("HTTPS_PROXY", &variable)]).await.expect(0, &["kubernetes  v"]);
    assert!(!asked());
    let bad = format!("ftp://me:{SECRET}@{address}");
    front.kubeconfig_of(&there, &front.trust(), "");
    let said = front.run(&line, &[("HTTPS_PROXY", &bad)]).await;
    said.expect(3, &["HTTPS_PROXY is no proxy that can be used"]);
}

/// A kubeconfig that is not there, or that does not say enough.
#[tokio::test]
async fn kubeconfigs_are_checked() {
    let front = Front::new("tls-kubeconfig", &["127.0.0.1"], Good::Now, false).await;
    let trust = front.trust();
    let cases = [
        ("version --context other", "it has no context other; it has main"),
        ("version --cluster other", "it has no cluster other; it has prod"),
        ("version --user other", "it has no user other; it has alice"),
    ];
    for (line, text) in cases {
        let named = ["cannot use kubeconfig ", "config: ", text];
        front.with(&trust, "", line).await.expect(3, &named);
    }
    let said = front.with(&trust, "", "version --server ftp://here").await;
    said.expect(3, &["--server is \"ftp://here\", which is no URL"]);
    front
        .run("version --kubeconfig nowhere", &[])
        .await
        .expect(3, &["kubeconfig nowhere: No such file"]);
    // What a parser says of these quotes them.
    for (users, place) in [
        (format!("- name: a\n  user: {{token: {SECRET}, token: ["), "line 3, column "),
        (format!("- name: a\n  user: {SECRET}\n"), "line 3, column 9"),
    ] {
        front.file("bad", &format!("users:\n{users}"));
        front
            .run("version --kubeconfig bad", &[])
            .await
            .expect(3, &["kubeconfig bad: it is no kubeconfig, as ", place]);
    }
    front.file("none", "apiVersion: v1\nkind: Config\n");
    let empty = ["kubeconfig none: it has no context at all"];
    front.run("version --kubeconfig none", &[]).await.expect(3, &empty);
    front.run("version", &[]).await.expect(3, &["no kubeconfig found and not running in a pod"]);
    for (files, named) in [("nowhere", "nowhere"), ("nowhere:not-here", "nowhere, not-here")] {
        let text =
            format!("KUBECONFIG names {named}, which does not exist, and this does not run in");
        front.run("version", &[("KUBECONFIG", files)]).await.expect(3, &[&text]);
    }
    front.run("version", &[("KUBECONFIG", "nowhere:none")]).await.expect(3, &["no context at all"]);
    // The server alone is enough.
    let line = format!("version --server https://{} --insecure-skip-tls-verify", front.address);
    front.run(&line, &[]).await.expect(0, &["kubernetes  v"]);
    let nobody = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let said = front.run(&format!("version --server {nobody}"), &[]).await;
    said.expect(
        3,
        &["no connection to http://127.0.0.1:", "connection refused; is the API server up"],
    );
}

/// As in a pod: the service account's files are where the kubelet puts them, in a mount namespace of the test.
#[tokio::test]
#[ignore = "needs a mount namespace"]
async fn a_pod_uses_its_service_account() {
    let front = Front::new("tls-pod", &["127.0.0.1"], Good::Now, false).await;
    front.file("ca.crt", &front.authority.pem());
    front.file("token", front.token());
    front.file("namespace", "viewers");
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let inside = |script: &str| {
        vec![
            "--user".to_owned(),
            "--map-root-user".to_owned(),
            "--mount".to_owned(),
            "sh".to_owned(),
            "-ec".to_owned(),
            format!("mount -t tmpfs none /var/run && {script}"),
        ]
    };
    let start = async |script: &str| {
        let port = front.address.port().to_string();
        let words = inside(script);
        let variables =
            [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", port.as_str())];
        front.start(Path::new("unshare"), words.iter().map(String::as_str), &variables).await
    };
    let program = env!("CARGO_BIN_EXE_kubectl-kata");
    let said =
        start(&format!("mkdir -p {account}; cp ca.crt token namespace {account}; {program} pods"))
            .await;
    said.expect(5, &["in viewers namespace", "you may not list runtimeclasses.node.k8s.io"]);
    let said = start(&format!("{program} pods")).await;
    said.expect(3, &["the pod's service account cannot be read", "automountServiceAccountToken"]);
    let said =
        start(&format!("mkdir -p {account}; cp ca.crt namespace {account}; {program} pods")).await;
    said.expect(
        3,
        &["cannot get the credentials of the service account: the token cannot be read"],
    );
}
