//! What is to be done on a node and what is installed afterwards, as data, and how a plan reads.
//!
//! A plan is decided before anything is written; carrying it out makes no choice but to go back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::header;
use crate::site::Site;

/// What is to be done, in this order.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HostPlan {
    /// The container runtime that it is about.
    pub site: Site,
    /// What is not read yet: putting payload and configuration of the handlers in place. Of a removal, what
    /// is not needed and takes room.
    pub prepare: Vec<Step>,
    /// What the container runtime reads; journalled before, and undone in reverse order.
    pub changes: Vec<Change>,
    /// Whether the container runtime must be restarted to see the changes.
    pub restart: bool,
    /// Whether a drop-in of ours that may be live is replaced by another one. Then only a restart proves
    /// that the new one is.
    #[serde(default)]
    pub rewritten: bool,
    /// What to compare the container runtime's configuration with; `None` if it prints none.
    pub baseline: Option<Baseline>,
    /// The files and folders that others had changed since the container runtime was started.
    #[serde(default)]
    pub changed_by_others: Vec<String>,
    /// What the container runtime must say afterwards.
    pub expect: Expect,
    /// Our handlers that the container runtime did not offer before, and that no file configured. Once the
    /// changes are undone it must not offer them.
    #[serde(default)]
    pub added: BTreeSet<String>,
    /// The handlers of the same names that the changes replace, if they were those of kata-deploy, or are: the container
    /// runtime offers these while the changes are not there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<String, Handler>,
    /// What is not needed any more once that is so; carrying on with it later does no harm.
    pub cleanup: Vec<Step>,
    /// What is installed afterwards; `None` after a removal.
    pub next: Option<Installed>,
}

impl HostPlan {
    /// What the container runtime must say if the changes are not there.
    pub(crate) fn before(&self) -> Expect {
        let Self { expect, added, replaced, .. } = self;
        Expect { ours: replaced.clone(), kept: expect.kept.clone(), gone: added.clone() }
    }
}

/// The container runtime's configuration without us.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The program that prints it.
    pub program: String,
    /// What it printed.
    #[serde(default)]
    pub printed: String,
}

/// Something that the container runtime does not see. Every step can be repeated.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates a directory and those above it.
    MakeDir {
        /// Its path.
        path: String,
    },
    /// Renames something that is complete; nothing happens if it was done before.
    Move {
        /// From here.
        from: String,
        /// To here.
        to: String,
    },
    /// Puts an intact file of a staged payload over a damaged one.
    Repair {
        /// The staged file or link.
        from: String,
        /// The damaged one.
        to: String,
    },
    /// Brings a path of ours to a content.
    Put {
        /// The path.
        path: String,
        /// The desired content.
        content: Content,
    },
    /// Notes how the files of a payload look now, so that changes are noticed.
    Seal {
        /// The payload's folder.
        path: String,
    },
    /// Creates a folder of files and links at once; nothing happens if it is there.
    Build {
        /// Its path.
        path: String,
        /// Its content by relative path.
        content: BTreeMap<String, Content>,
    },
    /// Removes a folder with everything in it.
    RemoveTree {
        /// Its path.
        path: String,
    },
    /// Removes a folder if it is empty.
    RemoveDir {
        /// Its path.
        path: String,
    },
}

/// What is at a path.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Absent,
    /// A directory. Undone only if it is empty.
    Directory,
    /// A text file.
    File {
        /// Its content.
        text: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it points to.
        target: String,
    },
}

impl Content {
    /// The text of a file that begins with our header.
    pub(crate) fn ours(&self) -> Option<&str> {
        match self {
            Self::File { text, mode: _ } if header::is_ours(text) => Some(text),
            Self::File { .. } | Self::Absent | Self::Directory | Self::Link { .. } => None,
        }
    }
}

/// A change to one path. Precondition: the path is as `before` says. Undo: bring it back to that.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path.
    pub path: String,
    /// What is there.
    pub before: Content,
    /// The desired content.
    pub after: Content,
}

/// What the container runtime must say after the change, and again after the way back.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Our handlers, with what its configuration must say of each.
    pub ours: BTreeMap<String, Handler>,
    /// Handlers that must be gone.
    pub gone: BTreeSet<String>,
    /// Handlers that were there before and are not ours.
    pub kept: BTreeSet<String>,
}

/// A handler in the container runtime's configuration.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// The runtime's type, for example `io.containerd.kata-qemu.v2`.
    pub runtime_type: String,
    /// The shim.
    pub runtime_path: String,
    /// The configuration of the shim.
    pub config_path: String,
}

/// What is installed.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// The image that the payload came from.
    pub image: String,
    /// Digest of the payload's manifest, `sha256:…`.
    pub digest: String,
    /// Version of Kata, if the payload named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// Name of the release.
    pub release: String,
    /// The drop-in.
    pub drop_in: String,
    /// Our handlers.
    pub handlers: BTreeMap<String, Handler>,
    /// The one foreign file that was changed, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<MainFile>,
    /// Directories outside ours that we created, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<String>,
    /// Earlier releases that sandboxes still use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retained: Vec<Retained>,
    /// What kata-deploy had on the node, for the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<TakenOver>,
}

/// What kata-deploy had on the node before it was taken over. Its payload stays where it was.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TakenOver {
    /// Its drop-ins that were removed.
    pub drop_ins: BTreeMap<String, Content>,
    /// The main file with its imports, and what we made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<Change>,
    /// Those imports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
    /// The handlers that it configured.
    pub handlers: BTreeMap<String, Handler>,
    /// Whether it set the log level of containerd.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sets_log_level: bool,
    /// The sandboxes that were started from its payload.
    pub sandboxes: BTreeSet<String>,
    /// Those of which it is not known whether they were started from its payload or from ours.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub of_unknown_payload: BTreeSet<String>,
    /// The sandboxes that were started from our payload and still run although its handlers are back; `None` while the
    /// handlers are ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still_ours: Option<BTreeSet<String>>,
}

/// The container runtime's main configuration file, to which we added one import.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct MainFile {
    /// Its path.
    pub path: String,
    /// What was there before.
    pub before: Content,
    /// What we wrote.
    pub after: Content,
    /// The import that we added.
    pub import: String,
}

/// A release that is not current any more.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Its name.
    pub release: String,
    /// Digest of its payload, or the beginning of it that names the payload's folder.
    pub digest: String,
    /// Its version of Kata, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// The sandboxes that were running when it was replaced. It is kept while one of them is.
    pub sandboxes: BTreeSet<String>,
}

impl fmt::Display for HostPlan {
    /// A unified diff of files, then what happens to units, as `--plan` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.prepare {
            writeln!(f, "# prepare: {step}")?;
        }
        for change in &self.changes {
            write!(f, "{change}")?;
        }
        if self.restart {
            match &self.site.unit {
                Some(unit) => writeln!(f, "# restart unit: {unit}")?,
                None => writeln!(f, "# wait until the container runtime has read the change")?,
            }
        }
        for step in &self.cleanup {
            writeln!(f, "# clean up: {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeDir { path } => write!(f, "create directory {path}"),
            Self::Move { from, to } => write!(f, "rename {from} to {to}"),
            Self::Repair { from, to } => write!(f, "replace {to} by {from}"),
            Self::Put { path, .. } => write!(f, "put {path} back"),
            Self::Seal { path } => write!(f, "note the state of {path}"),
            Self::Build { path, content } => {
                write!(f, "create {path} with")?;
                content.keys().try_for_each(|name| write!(f, " {name}"))
            }
            Self::RemoveTree { path } => write!(f, "remove {path}"),
            Self::RemoveDir { path } => write!(f, "remove directory {path} if it is empty"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, before, after } = self;
        let side = |content: &Content| match content {
            Content::Absent => "/dev/null".to_owned(),
            Content::Directory | Content::File { .. } | Content::Link { .. } => path.clone(),
        };
        let (old, new) = (text(before), text(after));
        let diff = TextDiff::from_lines(old.as_str(), new.as_str());
        let mut diff = diff.unified_diff();
        write!(f, "{}", diff.context_radius(3).header(&side(before), &side(after)))
    }
}

fn text(content: &Content) -> String {
    match content {
        Content::Absent => String::new(),
        Content::Directory => "directory\n".to_owned(),
        Content::File { text, mode: _ } => text.clone(),
        Content::Link { target } => format!("link to {target}\n"),
    }
}
