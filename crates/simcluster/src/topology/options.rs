//! What a node that joins a running cluster is like, as words of a script or of a command line.

use crate::world::{Runtime, System};

/// What distinguishes a new node from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeOptions {
    /// Its container runtime; `None` for that of its kind of cluster.
    pub runtime: Option<Runtime>,
    /// Its operating system.
    pub system: Option<System>,
    /// Handlers that it has from the beginning; `None` for those of its system.
    pub handlers: Option<Vec<String>>,
}

impl NodeOptions {
    /// From words such as `handlers=kata,kata-qemu`, `runtime=crio` or `system=talos`.
    ///
    /// # Errors
    /// Which word is wrong, and what is allowed.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("runtime", value)) => options.runtime = Some(value.parse()?),
                Some(("system", value)) => options.system = Some(value.parse()?),
                Some(("handlers", value)) => {
                    let valid = |name: &str| {
                        !name.is_empty()
                            && name
                                .bytes()
                                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                    };
                    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
                    if let Some(wrong) = names.iter().find(|name| !valid(name)) {
                        return Err(format!("handler {wrong:?}: give names of a-z, 0-9 and '-'"));
                    }
                    options.handlers = Some(names);
                }
                _ => {
                    return Err(format!(
                        "unknown option {word:?}: give handlers=NAME,NAME, runtime=NAME or system=NAME"
                    ));
                }
            }
        }
        Ok(options)
    }
}
