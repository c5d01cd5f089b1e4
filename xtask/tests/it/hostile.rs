//! A registry that lies: it gets no login for others, nothing is sent elsewhere, and no answer fills the memory.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::lab::{Folder, image, log_in};

/// A request: method, path and the header Authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    authorization: Option<String>,
}

/// Answers each request with what `answer` says, until the test ends; returns its name and the requests.
fn serve(answer: impl Fn(&Request) -> String + Send + 'static) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            while let Some(request) = read(&mut stream) {
                let text = answer(&request);
                if sender.send(request).is_err() || stream.write_all(text.as_bytes()).is_err() {
                    break;
                }
                if text.contains("connection: close") {
                    // As much as there is space for.
                    let endless = [b'x'; 1 << 16];
                    while stream.write_all(&endless).is_ok() {}
                    break;
                }
            }
        }
    });
    (name, requests)
}

fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    Some(Request { method, path, authorization })
}

fn answer(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n{headers}\r\n")
}

const NOT_THERE: &str = "404 Not Found";
const ACCEPTED: &str = "202 Accepted";

/// What a registry answers for a push, but for what a test changes.
fn usual(request: &Request) -> String {
    match request.method.as_str() {
        "HEAD" => answer(NOT_THERE, ""),
        "POST" => answer(ACCEPTED, "location: /v2/kata/blobs/uploads/1\r\n"),
        "PUT" => answer("201 Created", ""),
        _ => answer("200 OK", ""),
    }
}

#[test]
fn an_upload_that_leads_elsewhere_is_refused() {
    let folder = Folder::new("elsewhere");
    let programs = folder.programs("one");
    let (other, elsewhere) = serve(usual);
    for location in [
        &format!("http://{other}/upload"),
        "//127.0.0.2/upload",
        "no address",
        "",
        "https://127.0.0.1/",
    ] {
        let header = format!("location: {location}\r\n");
        let (name, _requests) = serve(move |request| match request.method.as_str() {
            "POST" => answer(ACCEPTED, &header),
            _ => usual(request),
        });
        log_in(&folder.0, &name, "kata:secret");
        let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
        pushed
            .says(false, &["cannot upload sha256:", &format!("{location:?}, which is elsewhere")]);
    }
    assert_eq!(elsewhere.try_iter().next(), None);
}

#[test]
fn a_redirect_is_not_followed() {
    let folder = Folder::new("redirect");
    let programs = folder.programs("one");
    let (other, elsewhere) = serve(usual);
    let header = format!("location: http://{other}/v2/\r\n");
    let (name, _requests) = serve(move |request| match request.method.as_str() {
        "POST" => answer("307 Temporary Redirect", &header),
        _ => usual(request),
    });
    let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
    pushed.says(false, &["answers 307", "which is not followed", &other]);
    assert_eq!(elsewhere.try_iter().next(), None);
}

#[test]
fn other_bytes_than_were_pushed_are_refused() {
    let folder = Folder::new("digest");
    let programs = folder.programs("one");
    let header = format!("docker-content-digest: sha256:{}\r\n", "0".repeat(64));
    let (name, _requests) = serve(move |request| match request.method.as_str() {
        "PUT" => answer("201 Created", &header),
        _ => usual(request),
    });
    let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
    pushed.says(false, &["cannot upload sha256:", "has it as sha256:0000"]);
    let (name, _requests) = serve(usual);
    let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
    pushed.says(false, &["has another manifest under kata:sha256:"]);
}

#[test]
fn an_answer_without_an_end_is_not_read_to_its_end() {
    let folder = Folder::new("endless");
    let programs = folder.programs("one");
    for status in ["200 OK", "500 Internal Server Error"] {
        let text =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2147483648\r\n\r\n");
        let (name, _requests) = serve(move |request| match request.method.as_str() {
            "GET" | "POST" => text.clone(),
            _ => usual(request),
        });
        let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
        pushed.says(false, &["answers with more than 4194304 bytes"]);
    }
}

/// A login goes to the address for tokens that a registry names, but not in clear.
#[test]
fn no_login_goes_to_another_host_in_clear() {
    let folder = Folder::new("token");
    let programs = folder.programs("one");
    let (other, elsewhere) = serve(usual);
    let header =
        format!("www-authenticate: Bearer realm=\"http://{other}/token\",service=\"kata\"\r\n");
    let (name, _requests) = serve(move |_| answer("401 Unauthorized", &header));
    log_in(&folder.0, &name, "kata:secret");
    let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
    pushed.says(false, &["sends the login to", "which has no TLS"]);
    assert!(!pushed.said.contains("secret"), "{}", pushed.said);
    assert_eq!(elsewhere.try_iter().next(), None);
}

/// The token of the registry goes with the next requests.
#[test]
fn a_token_is_fetched_for_the_repository() {
    let folder = Folder::new("bearer");
    let programs = folder.programs("one");
    let (name, requests) = serve(|request| {
        if request.path.starts_with("/token") {
            let body = "{\"token\":\"T\"}";
            return format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
        if request.authorization.as_deref() == Some("Bearer T") {
            return usual(request);
        }
        answer(
            "401 Unauthorized",
            "www-authenticate: Bearer realm=\"/token\",service=\"kata io\"\r\n",
        )
    });
    let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata/operator:v1")]);
    pushed.says(false, &["has another manifest under kata/operator"]);
    let paths: Vec<Request> = requests.try_iter().collect();
    assert_eq!(
        paths[1].path,
        "/token?service=kata%20io&scope=repository%3Akata%2Foperator%3Apull%2Cpush"
    );
    let tokens = paths.iter().filter(|request| request.path.starts_with("/token")).count();
    assert_eq!(tokens, 1, "{paths:?}");
}
