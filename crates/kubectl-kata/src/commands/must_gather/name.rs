//! Names of files of the collection. Names of objects come from a server and can contain any character.

/// Most bytes of the part of a name that comes from a server.
const MOST: usize = 150;

/// A path below the collection's folder: letters, digits, `.`, `_` and `-` in at most one folder of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemName(String);

impl ItemName {
    /// A name of ours.
    pub(super) fn of(name: &'static str) -> Self {
        Self(name.to_owned())
    }

    /// A file in a folder of ours, called as an object of the server's.
    pub(super) fn within(folder: &'static str, name: &str, ending: &'static str) -> Self {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let plain = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MOST);
        let name: String = plain.collect();
        // With its ending, no name is `.` or `..`; one that begins with a point would be hidden.
        let hidden = name.is_empty() || name.starts_with('.');
        Self(format!("{folder}/{}{name}.{ending}", if hidden { "_" } else { "" }))
    }

    /// The same with a number, for one that is taken.
    pub(super) fn numbered(&self, number: usize) -> Self {
        match self.0.rsplit_once('.') {
            Some((name, ending)) => Self(format!("{name}-{number}.{ending}")),
            None => Self(format!("{}-{number}", self.0)),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_server_stays_in_its_folder() {
        for (name, expected) in [
            ("kata-operator-0.a", "logs/kata-operator-0.a.log"),
            ("../../etc/passwd", "logs/_.._.._etc_passwd.log"),
            ("/etc/passwd", "logs/_etc_passwd.log"),
            ("..", "logs/_...log"),
            ("", "logs/_.log"),
            ("a\nb\u{1b}[31m\\ü", "logs/a_b__31m__.log"),
        ] {
            assert_eq!(ItemName::within("logs", name, "log").as_str(), expected);
        }
        let long = ItemName::within("logs", &"a".repeat(300), "log");
        assert_eq!(long.as_str().len(), "logs/".len() + MOST + ".log".len());
        assert_eq!(ItemName::of("pods.yaml").numbered(2).as_str(), "pods-2.yaml");
    }
}
