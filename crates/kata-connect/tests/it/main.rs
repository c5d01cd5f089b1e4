//! Through which proxy an API server is reached, row by row of kubectl-proxies.yaml: by `target`, and by a
//! stock kubectl, which `KATA_TEST_KUBECTL` names (`. .ci/tools` has it). The test that needs it is ignored
//! unless it is asked for, and then fails without it.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as expected"
)]

mod server_time;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use kata_connect::{Connection, Proxies, Source, TargetError, target};
use serde::Deserialize;

/// At most so many kubectl at a time.
const BESIDE: usize = 8;
/// The byte by which the test ends its own proxy. No protocol of a proxy begins with it.
const END: [u8; 1] = [0xff];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    server: String,
    /// The cluster's proxy-url.
    cluster: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    via: Via,
    ours: Option<Via>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Via {
    Proxy,
    Direct,
    Refused,
}

impl Row {
    /// A kubeconfig that says this, and the environment, both with the proxy's address.
    fn settings(&self, name: &str, proxy: &str) -> (PathBuf, BTreeMap<String, String>) {
        let put = |text: &String| text.replace("PROXY", proxy);
        let mut cluster =
            serde_json::json!({"server": self.server, "insecure-skip-tls-verify": true});
        if let Some(url) = &self.cluster {
            cluster["proxy-url"] = put(url).into();
        }
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "contexts": [{"name": "main", "context": {"cluster": "prod", "user": "alice"}}],
            "users": [{"name": "alice", "user": {"token": "abc"}}],
            "clusters": [{"name": "prod", "cluster": cluster}],
        });
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        (path, self.environment.iter().map(|(name, value)| (name.clone(), put(value))).collect())
    }

    fn asked_of_us(&self, number: usize) -> Via {
        let (path, environment) = self.settings(&format!("ours-{number}"), "127.0.0.1:3128");
        let variable = |name: &str| environment.get(name).filter(|v| !v.is_empty()).cloned();
        let connection = Connection::new(Source::Flag(path), Proxies::new(variable));
        match target(&connection) {
            Ok(target) if target.config.proxy_url.is_some() => Via::Proxy,
            Ok(_) => Via::Direct,
            Err(TargetError::Proxy(_)) => Via::Refused,
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "kubectl itself is asked")]
    fn asked_of(&self, kubectl: &Path, number: usize) -> (Via, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = thread::spawn(move || {
            let mut asked = false;
            for stream in listener.incoming() {
                let mut first = [0];
                // A client that closes early has asked, too.
                drop(stream.unwrap().read(&mut first));
                if first == END {
                    break;
                }
                asked = true;
            }
            asked
        });
        let (path, environment) = self.settings(&format!("kubectl-{number}"), &address);
        let output = Command::new(kubectl)
            .args(["get", "--raw", "/version", "--request-timeout=3s", "--kubeconfig"])
            .arg(path)
            .env_clear()
            .envs(environment)
            .output()
            .unwrap();
        // Comes after every connection of kubectl's.
        TcpStream::connect(&address).unwrap().write_all(&END).unwrap();
        let asked = asked.join().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let refused = ["invalid 'proxy-url'", "proxyconnect"];
        let via = if asked {
            Via::Proxy
        } else if refused.iter().any(|words| text.contains(words)) {
            Via::Refused
        } else {
            Via::Direct
        };
        (via, text)
    }
}

fn rows() -> Vec<Row> {
    serde_saphyr::from_str(include_str!("kubectl-proxies.yaml")).unwrap()
}

#[test]
fn proxies_are_those_of_kubectl() {
    let rows = rows();
    let wrong: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(number, row)| (row, row.asked_of_us(number)))
        .filter(|(row, via)| row.ours.unwrap_or(row.via) != *via)
        .map(|(row, via)| format!("{row:?}: {via:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs kubectl"]
#[expect(clippy::disallowed_methods, reason = "kubectl itself is asked")]
fn kubectl_does_what_is_recorded() {
    let kubectl =
        std::env::var_os("KATA_TEST_KUBECTL").expect("KATA_TEST_KUBECTL names no kubectl");
    let kubectl = Path::new(&kubectl);
    let rows: Vec<(usize, Row)> = rows().into_iter().enumerate().collect();
    let mut wrong: Vec<String> = Vec::new();
    for some in rows.chunks(BESIDE) {
        thread::scope(|scope| {
            let asked: Vec<_> = some
                .iter()
                .map(|(number, row)| (row, scope.spawn(|| row.asked_of(kubectl, *number))))
                .collect();
            for (row, answer) in asked {
                let (via, text) = answer.join().unwrap();
                if via != row.via {
                    wrong.push(format!("{row:?}: {via:?}: {text}"));
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_password_of_a_proxy_is_not_shown() {
    let row = Row {
        server: "https://api.example.com".to_owned(),
        cluster: Some("ftp://me:secret@PROXY".to_owned()),
        environment: BTreeMap::new(),
        via: Via::Refused,
        ours: None,
    };
    let (path, _) = row.settings("secret", "127.0.0.1:3128");
    let error = target(&Connection::new(Source::Flag(path), Proxies::default())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "proxy-url of cluster prod is no proxy that can be used: write http://HOST:PORT, \
         https://HOST:PORT or socks5://HOST:PORT"
    );
}
