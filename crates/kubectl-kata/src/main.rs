//! The `kubectl-kata` binary: arguments in, exit code out. Nothing else is here.

use std::io::{BufWriter, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use jiff::Timestamp;
use kata_connect::ServerTime;
use kubectl_kata::environment::{EnvVars, Terminal, settings};
use kubectl_kata::{Exit, Printer, connect, help, run};
use tokio::sync::watch;

mod signals;

use signals::Signals;

fn main() -> ExitCode {
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let name = words.first().map(std::path::PathBuf::from).unwrap_or_default();
    // One program under three names: kubectl looks for the second, `oc adm must-gather` for the third.
    let extra: &[&str] = match name.file_stem().and_then(|name| name.to_str()) {
        Some("kubectl_complete-kata") => &["__complete"],
        Some("gather") => &["must-gather", "--dest-dir", "/must-gather"],
        _ => &[],
    };
    words.splice(1.min(words.len())..1.min(words.len()), extra.iter().map(Into::into));
    let arguments = match help::parse(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let exit = match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Fine,
                _ => Exit::Usage,
            };
            // There is nobody left to tell if the streams are closed.
            drop(error.print());
            return ExitCode::from(exit.code());
        }
    };
    let (out, err) = (std::io::stdout(), std::io::stderr());
    let size = terminal_size::terminal_size();
    let terminal = Terminal {
        out: out.is_terminal(),
        err: err.is_terminal(),
        width: size.map(|(width, _)| usize::from(width.0)),
        height: size.map(|(_, height)| usize::from(height.0)),
    };
    let environment = EnvVars::of_process();
    // What is compared with it was written by the API server.
    let time = ServerTime::default();
    let now = {
        let time = time.clone();
        move || {
            let own = Timestamp::now();
            own.checked_add(time.ahead()).unwrap_or(own)
        }
    };
    let settings = settings(&arguments.global(), &environment, terminal, Arc::new(now));
    let live = terminal.err && environment.term != "dumb";
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(_error) => return ExitCode::from(Exit::Findings.code()),
    };
    let exit = runtime.block_on(async {
        let (interrupt, interrupted) = watch::channel(false);
        if let Ok(mut signals) = Signals::listen() {
            tokio::spawn(async move {
                signals.next().await;
                interrupt.send_replace(true);
                // The second one ends the process at once.
                signals.next().await;
                std::process::exit(i32::from(Exit::Interrupted.code()));
            });
        }
        let (mut out, mut err) = (BufWriter::new(out.lock()), err.lock());
        let mut printer = Printer::new(&mut out, &mut err, settings.style, live);
        run(&arguments.command, &settings, &mut printer, interrupted, async |connection| {
            connect(connection, time.clone()).await
        })
        .await
    });
    runtime.shutdown_background();
    ExitCode::from(exit.code())
}
