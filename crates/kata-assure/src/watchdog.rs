//! Panics and errors of the operator, wherever they happen in an episode's thread.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::sync::Once;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::ledger::Ledger;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

static HOOK: Once = Once::new();

/// Listens, in this thread, until the guard is dropped.
#[derive(Debug)]
pub struct Listening {
    _logs: tracing::subscriber::DefaultGuard,
}

impl Drop for Listening {
    fn drop(&mut self) {
        ARMED.set(false);
    }
}

/// Collects the panics of this thread, and notes logged errors as broken promises; with `traced`, writes
/// all of the log into the trace.
pub fn listen(ledger: &Ledger, traced: bool) -> Listening {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if ARMED.get() {
                PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            } else {
                before(panic);
            }
        }));
    });
    ARMED.set(true);
    PANICS.with_borrow_mut(Vec::clear);
    let level = if traced { LevelFilter::DEBUG } else { LevelFilter::ERROR };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .without_time()
        .with_ansi(false)
        .with_writer(Lines(ledger.clone()))
        .finish();
    Listening { _logs: tracing::subscriber::set_default(subscriber) }
}

/// The panics since the last [`listen`].
pub fn panics() -> Vec<String> {
    PANICS.take()
}

#[derive(Clone, Debug)]
struct Lines(Ledger);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        let mut page = self.0.open();
        page.note(&format!("log {text}"));
        if text.starts_with("ERROR") {
            page.broke("O-log", text);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}
