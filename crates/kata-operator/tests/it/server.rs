//! The health and metrics server and clients that mean no good.

use std::time::Duration;

use kata_operator::metrics::Metrics;
use kata_operator::server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::metrics::get;

/// More than may be open at the same time.
const CLIENTS: usize = 500;

#[tokio::test]
async fn half_open_connections_keep_no_scrape_out_and_are_closed() {
    let listener = server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(server::serve_metrics(listener, Metrics::default()));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n").await.unwrap();
        clients.push(client);
    }
    let address = address.to_string();
    let scrape = timeout(Duration::from_secs(3), get(&address, "/metrics"));
    let (status, ..) = scrape.await.unwrap();
    assert_eq!(status, "HTTP/1.1 200 OK");
    let all_closed = async {
        for mut client in clients {
            let mut answer = Vec::new();
            // An error is the end of a connection, too.
            let ended = client.read_to_end(&mut answer).await;
            assert!(ended.is_err() || !answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
        }
    };
    timeout(Duration::from_secs(10), all_closed).await.unwrap();
}

#[tokio::test]
async fn a_connection_has_one_request() {
    let listener = server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(server::serve_health(listener, Metrics::default()));
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3);
    client.write_all(&request).await.unwrap();
    let mut answers = Vec::new();
    let _reset_or_end = timeout(Duration::from_secs(3), client.read_to_end(&mut answers)).await;
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{answers}");
}
