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

/// The login of these tests, as a request has it.
const LOGIN: &str = "Basic a2F0YTpzZWNyZXQ=";

/// What a registry answers that wants the login.
fn closed(request: &Request) -> Option<String> {
    let header = "www-authenticate: Negotiate\r\nwww-authenticate: Basic realm=\"kata\"\r\n";
    let is_known = request.authorization.as_deref() == Some(LOGIN);
    (!is_known).then(|| answer("401 Unauthorized", header))
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
        let (name, requests) = serve(move |request| match request.method.as_str() {
            _ if closed(request).is_some() => closed(request).unwrap(),
            "POST" => answer(ACCEPTED, &header),
            _ => usual(request),
        });
        log_in(&folder.0, &name, "kata:secret");
        let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
        pushed
            .says(false, &["cannot upload sha256:", &format!("{location:?}, which is elsewhere")]);
        let last = requests.try_iter().last().unwrap();
        assert_eq!((last.method.as_str(), last.authorization.as_deref()), ("POST", Some(LOGIN)));
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
    for (status, method) in
        [("500 Internal Server Error", "POST"), ("200 OK", "GET"), ("404 Not Found", "GET")]
    {
        let text =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2147483648\r\n\r\n");
        let (name, requests) = serve(move |request| match request.method.as_str() {
            it if it == method => text.clone(),
            _ => usual(request),
        });
        let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
        pushed.says(false, &["answers with more than 4194304 bytes"]);
        assert_eq!(requests.try_iter().last().unwrap().method, method);
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
    for secret in ["secret", LOGIN.trim_start_matches("Basic ")] {
        assert!(!pushed.said.contains(secret), "{}", pushed.said);
    }
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
    log_in(&folder.0, &name, "kata:secret");
    let pushed = image(&folder.0, &programs, &["--push", &format!("{name}/kata/operator:v1")]);
    pushed.says(false, &["has another manifest under kata/operator"]);
    let requests: Vec<Request> = requests.try_iter().collect();
    let token = &requests[1];
    assert_eq!(
        token.path,
        "/token?service=kata%20io&scope=repository%3Akata%2Foperator%3Apull%2Cpush"
    );
    assert_eq!(token.authorization.as_deref(), Some(LOGIN));
    let others = requests.iter().filter(|request| !request.path.starts_with("/token"));
    let with = others.skip(1).map(|request| request.authorization.as_deref());
    assert!(with.clone().count() > 3, "{requests:?}");
    assert!(with.clone().all(|it| it == Some("Bearer T")), "{requests:?}");
}

/// The program that keeps logins is asked; that it fails is no login that is missing.
#[test]
fn a_credential_helper_is_asked() {
    let folder = Folder::new("helper");
    let programs = folder.programs("one");
    let (name, _requests) = serve(|request| closed(request).unwrap_or_else(|| usual(request)));
    let config = serde_json::json!({"credHelpers": {&name: "test"}}).to_string();
    std::fs::create_dir_all(folder.0.join(".docker")).unwrap();
    std::fs::write(folder.0.join(".docker/config.json"), config).unwrap();
    let push = || image(&folder.0, &programs, &["--push", &format!("{name}/kata:v1")]);
    let no_login = format!("docker login {name}");
    for (script, said) in [
        (
            "read server; echo '{\"Username\":\"kata\",\"Secret\":\"secret\"}'",
            "has another manifest",
        ),
        ("echo 'the keychain is locked'; exit 1", "test fails: the keychain is locked"),
        ("echo 'credentials not found in native keychain'; exit 1", no_login.as_str()),
    ] {
        folder.program("docker-credential-test", script);
        push().says(false, &[said]);
    }
}
