//! What the catalogue says of a finding. The findings themselves are not here.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong, but the admin may want to know.
    Info,
    /// Something is not as desired; everything else continues.
    Warning,
    /// Something does not work until an admin acts.
    Error,
}

impl Severity {
    /// The word for it, such as `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The severity with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Info, Self::Warning, Self::Error].into_iter().find(|it| it.as_str() == word)
    }
}

/// The people who can remove the cause of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// Those who run the cluster.
    ClusterAdministrator,
    /// Those who run the pod.
    ApplicationTeam,
}

impl Who {
    /// The words for them, such as `application team`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterAdministrator => "cluster administrator",
            Self::ApplicationTeam => "application team",
        }
    }
}

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The code, such as `KATA2104`.
    pub code: &'static str,
    /// A short CamelCase name; the reason in conditions and Events.
    pub reason: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Why it happens, in one sentence.
    pub cause: &'static str,
    /// What to do, in one sentence.
    pub fix: &'static str,
}
