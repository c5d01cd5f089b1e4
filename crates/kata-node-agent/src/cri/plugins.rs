//! Why containerd serves no CRI: it reports for each of its plugins whether it was loaded and what went wrong, at
//! the socket of CRI.
//!
//! Numbers are those of containerd's `api/services/introspection/v1/introspection.proto`; unknown fields are
//! skipped. Only what is said about the plugins of CRI is read.

use prost::Message;

/// The plugin that serves CRI, in every version.
const SERVES: [&str; 2] = ["io.containerd.grpc.v1", "cri"];
/// The type of what it is made of since containerd 2.0.
const PARTS: &str = "io.containerd.cri.v1";
/// The longest reason that is repeated, in bytes.
const LONGEST: usize = 200;

/// `PluginsRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PluginsRequest {
    /// One of these must hold.
    #[prost(string, repeated, tag = "1")]
    pub filters: Vec<String>,
}

/// `PluginsResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PluginsResponse {
    /// The plugins.
    #[prost(message, repeated, tag = "1")]
    pub plugins: Vec<Plugin>,
}

/// `Plugin`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Plugin {
    /// For example `io.containerd.grpc.v1`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// For example `cri`.
    #[prost(string, tag = "2")]
    pub id: String,
    /// Why it was not loaded, if it was not.
    #[prost(message, optional, tag = "7")]
    pub init_err: Option<InitError>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct InitError {
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Asks for the plugins of CRI.
pub(super) fn request() -> PluginsRequest {
    let [kind, id] = SERVES;
    let filters = [format!("type==\"{kind}\",id==\"{id}\""), format!("type==\"{PARTS}\"")];
    PluginsRequest { filters: filters.to_vec() }
}

/// What containerd says of why it serves no CRI, in one line; `None` if it says nothing of it.
pub fn cause(response: &PluginsResponse) -> Option<String> {
    let serves = |plugin: &Plugin| [plugin.r#type.as_str(), &plugin.id] == SERVES;
    let failed = |plugin: &Plugin| plugin.init_err.as_ref().map(|error| one_line(&error.message));
    // What serves CRI fails as well if a part of it does, and says less.
    let (whole, parts): (Vec<&Plugin>, Vec<&Plugin>) =
        response.plugins.iter().partition(|plugin| serves(plugin));
    let first = parts.iter().chain(&whole).find_map(|plugin| failed(plugin));
    if first.is_none() && whole.is_empty() {
        return Some(
            "containerd has no CRI plugin loaded (disabled_plugins in its configuration?)"
                .to_owned(),
        );
    }
    first
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() <= LONGEST {
        return line;
    }
    let end = (0..=LONGEST - 4).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    format!("{} …", line.get(..end).unwrap_or_default())
}
