//! API servers that listen or answer with bad intent: what they are sent, and what of their answers has an effect.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Front, SECRET};
use crate::certificates::Good;

/// A server without TLS that gives every request the same answer, and keeps what it was sent.
async fn answering(answer: String) -> (SocketAddr, Arc<std::sync::Mutex<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(std::sync::Mutex::new(String::new()));
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match client.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_closed) => break,
                }
            }
            all.lock().unwrap().push_str(&String::from_utf8_lossy(&head));
            drop(client.write_all(answer.as_bytes()).await);
        }
    });
    (address, heard)
}

/// An answer of HTTP with headers of its own.
fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n{headers}\r\n{body}"
    )
}

/// As with kubectl: any host on the path could read them.
#[tokio::test]
async fn no_credentials_are_sent_without_tls() {
    let front = Front::new("no-tls", &["127.0.0.1"], Good::Now, false).await;
    let version = answer("200 OK", "", "{\"gitVersion\": \"v1.36.0\"}");
    let (address, heard) = answering(version).await;
    front.file("token", SECRET);
    let plugin = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/to/be/found, \
                  interactiveMode: Never}";
    for user in [
        format!("token: {SECRET}"),
        format!("username: u, password: {SECRET}"),
        "tokenFile: token".to_owned(),
        plugin.to_owned(),
    ] {
        let path = front.kubeconfig_of(&format!("http://{address}"), "", &user);
        let line = format!("version --as bob --kubeconfig {}", path.display());
        front.run(&line, &[]).await.expect(0, &["kubernetes  v1.36.0"]);
    }
    let path = front.kubeconfig_of(&format!("http://{address}"), "", "");
    let line = format!("version --token {SECRET} --kubeconfig {}", path.display());
    front.run(&line, &[]).await.expect(0, &["kubernetes  v1.36.0"]);
    let heard = heard.lock().unwrap().to_ascii_lowercase();
    assert!(!heard.contains("authorization") && !heard.contains(SECRET), "{heard}");
    assert!(heard.contains("impersonate-user: bob"), "{heard}");
}

/// A hostile server can neither redirect a request nor send control characters to the terminal.
#[tokio::test]
async fn a_server_can_neither_redirect_nor_write_to_the_terminal() {
    let front = Front::new("hostile", &["127.0.0.1"], Good::Now, false).await;
    let (elsewhere, heard) = answering(answer("200 OK", "", "{}")).await;
    let moved = answer("302 Found", &format!("location: http://{elsewhere}/version\r\n"), "");
    let (address, _) = answering(moved).await;
    let path = front.kubeconfig_of(&format!("http://{address}"), "", "");
    let line = format!("status --kubeconfig {}", path.display());
    let said = front.run(&line, &[]).await;
    assert_ne!(said.code, 0, "{}", said.text);
    assert_eq!(*heard.lock().unwrap(), "");
    let message = "\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m stop";
    let body = format!(
        "{{\"kind\": \"Status\", \"apiVersion\": \"v1\", \"status\": \"Failure\", \"reason\": \"InternalError\", \
         \"code\": 500, \"message\": \"{message}\"}}"
    );
    let (address, _) = answering(answer("500 Internal Server Error", "", &body)).await;
    let path = front.kubeconfig_of(&format!("http://{address}"), "", "");
    for command in ["status", "nodes", "doctor"] {
        let line = format!("{command} --kubeconfig {}", path.display());
        let said = front.run(&line, &[]).await;
        assert!(said.text.contains("stop"), "{}", said.text);
        assert!(!said.text.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{:?}", said.text);
    }
}

/// An endless list is given up.
#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let front = Front::new("endless", &["127.0.0.1"], Good::Now, false).await;
    let page = "{\"kind\": \"List\", \"metadata\": {\"continue\": \"again\"}, \"items\": []}";
    let (address, _) = answering(answer("200 OK", "", page)).await;
    let path = front.kubeconfig_of(&format!("http://{address}"), "", "");
    let line = format!("nodes --kubeconfig {}", path.display());
    front.run(&line, &[]).await.expect(1, &["the list has more than 2000 pages"]);
}

/// An object of 2 GiB is given up long before its end.
#[tokio::test]
async fn an_object_of_two_gibibytes_is_given_up() {
    let front = Front::new("huge", &["127.0.0.1"], Good::Now, false).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = Arc::clone(&sent);
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(client.read(&mut request).await.unwrap() > 0);
        let length: u64 = 2 << 30;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{{\"gitVersion\": \"");
        client.write_all(head.as_bytes()).await.unwrap();
        let block = vec![b'v'; 1 << 20];
        // The write fails as soon as the program hangs up.
        while client.write_all(&block).await.is_ok() {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let path = front.kubeconfig_of(&format!("http://{address}"), "", "");
    let line = format!("version --kubeconfig {}", path.display());
    front.run(&line, &[]).await.expect(1, &["the answer is longer than 256 MiB"]);
    let mebibytes = sent.load(std::sync::atomic::Ordering::Relaxed);
    assert!(mebibytes < 300, "{mebibytes} MiB were read");
}
