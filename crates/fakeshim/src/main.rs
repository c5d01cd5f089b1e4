//! The shim's command line, as containerd calls it: `start` leaves a process that serves, and prints its
//! socket; `delete` clears up after a shim that is gone. No more than that.

#![expect(clippy::disallowed_methods, reason = "a shim starts processes")]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Where containerd's own shims have their sockets.
const SOCKETS: &str = "/run/containerd/s";
/// How long the process that serves may take to begin.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "fake shim: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn act() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| word.trim_start_matches('-') == flag)?;
        words.get(at + 1).cloned()
    };
    let id = after("id").unwrap_or_default();
    let bundle = match after("bundle") {
        Some(bundle) if !bundle.is_empty() => bundle,
        _ => std::env::current_dir()?.to_string_lossy().into_owned(),
    };
    match words.last().map(String::as_str) {
        Some("start") => start(&id, &bundle),
        Some("serve") => serve(&id, &bundle),
        Some("delete") => delete(&bundle),
        // `-info` and `-v`: nothing to print.
        _ => Ok(()),
    }
}

fn socket(id: &str) -> String {
    format!("{SOCKETS}/fake-{}", id.get(..24).unwrap_or(id))
}

fn start(id: &str, bundle: &str) -> io::Result<()> {
    fs::create_dir_all(SOCKETS)?;
    let socket = socket(id);
    let mut server = Command::new(std::env::current_exe()?);
    server.args(["-id", id, "-bundle", bundle, "serve"]).process_group(0);
    let server = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    fs::write(format!("{bundle}/shim.pid"), server.id().to_string())?;
    let begun = Instant::now();
    while !Path::new(&socket).exists() {
        if begun.elapsed() > LIMIT {
            return Err(io::Error::other("the process that serves did not begin"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = format!("unix://{socket}");
    fs::write(format!("{bundle}/address"), &address)?;
    io::stdout().write_all(address.as_bytes())
}

fn serve(id: &str, bundle: &str) -> io::Result<()> {
    let socket = socket(id);
    // Bound under another name, so that a client that sees the socket can connect.
    let temporary = format!("{socket}.new");
    let listener = UnixListener::bind(&temporary)?;
    fs::rename(&temporary, &socket)?;
    fakeshim::serve::serve(&listener, bundle.to_owned())
}

/// Kills the task of a shim that is gone, and notes which binary was asked to.
fn delete(bundle: &str) -> io::Result<()> {
    let text = fs::read_to_string(format!("{bundle}/task.pid")).unwrap_or_default();
    let pid = text.trim().parse().unwrap_or(0);
    drop(fakeshim::serve::kill(pid));
    fs::write("/run/fake-shim-delete", std::env::current_exe()?.to_string_lossy().as_bytes())?;
    io::stdout().write_all(&fakeshim::serve::deleted(pid))
}
