//! Where a command runs, and what it did.

use kubectl_kata::environment::{EnvVars, Terminal};
use serde_json::Value;

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    /// The output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The same, if it ended with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: u8) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }

    /// The same, if the output has these texts.
    #[track_caller]
    pub(crate) fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(
                self.out.contains(text) || self.err.contains(text),
                "does not say {text:?}:\n{}\n{}",
                self.out,
                self.err
            );
        }
        self
    }
}

/// Where a command runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) environment: EnvVars,
    pub(crate) terminal: Terminal,
}

impl Place {
    /// A terminal of this width.
    pub(crate) fn terminal(width: usize) -> Self {
        Self {
            terminal: Terminal { out: true, err: true, width: Some(width), height: Some(24) },
            environment: EnvVars { locale: "en_US.UTF-8".to_owned(), ..EnvVars::default() },
        }
    }
}

/// The checks of `doctor` with a code.
pub(crate) fn checks(report: &Value, id: &str) -> Vec<Value> {
    let categories = report["categories"].as_array().unwrap().iter();
    let all = categories.flat_map(|category| category["checks"].as_array().unwrap());
    all.filter(|check| check["id"] == id).cloned().collect()
}
