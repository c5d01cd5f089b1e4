//! Names of images: `REGISTRY/PATH:TAG`.

use std::fmt;

use super::Artifact;

/// Where something is pushed to. Unlike with `docker pull`, nothing is left out: what one publishes has a registry and
/// a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host and port.
    pub(crate) registry: String,
    pub(crate) repository: String,
    pub(crate) tag: String,
}

impl Reference {
    /// `REGISTRY/PATH` and a tag.
    ///
    /// # Errors
    /// If one of them is none.
    pub(crate) fn new(place: &str, tag: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{place} is no place in a registry: {why}");
        let (registry, repository) = place
            .split_once('/')
            .ok_or_else(|| wrong("write REGISTRY/PATH, such as registry.example.com/kata"))?;
        let is_host = registry == "localhost" || registry.contains(['.', ':']);
        let of_host = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
        if !is_host || !registry.chars().all(of_host) {
            return Err(wrong(&format!(
                "{registry:?} is not the name of a registry; that of Docker is docker.io"
            )));
        }
        let is_part = |part: &str| {
            let of_part =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
            let at_end = |c: char| c.is_ascii_alphanumeric();
            part.chars().all(of_part) && part.starts_with(at_end) && part.ends_with(at_end)
        };
        if let Some(part) = repository.split('/').find(|part| !is_part(part)) {
            return Err(wrong(&format!(
                "{part:?} may have small letters, digits, and -._ between them"
            )));
        }
        let of_tag = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let begins = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if !begins || !tag.chars().all(of_tag) || tag.len() > 128 {
            return Err(format!("{tag:?} is no tag: it may have 128 letters, digits, and -._"));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        })
    }

    /// `REGISTRY/PATH:TAG`.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            return Err(format!("{text} has a digest, which is known after the build only"));
        }
        match text.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((place, tag)) => Self::new(place, tag),
            None => Err(format!("{text} has no tag: write {text}:TAG")),
        }
    }
}

impl Reference {
    /// `REGISTRY/PATH`.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The name by which an artifact that is pushed here is the same for ever.
    pub(crate) fn by(&self, artifact: &Artifact) -> String {
        format!("{}@{}", self.place(), artifact.root.digest())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::Reference;

    #[test]
    fn a_name_has_registry_path_and_tag() {
        for text in ["localhost:5000/kata:v1", "ghcr.io/a/b-c/d:v0.1.0", "[::1]:5000/kata:latest"] {
            assert_eq!(Reference::parse(text).map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for (text, why) in [
            ("kata:v1", "write REGISTRY/PATH"),
            ("kata/operator:v1", "that of Docker is docker.io"),
            ("localhost:5000/kata", "has no tag"),
            ("localhost/Kata:v1", "\"Kata\" may have small letters"),
            ("localhost/kata//a:v1", "\"\" may have"),
            ("localhost/../a:v1", "\"..\" may have"),
            ("localhost/kata:a b", "is no tag"),
            ("localhost/kata@sha256:1", "has a digest"),
            ("user@host.example/kata:v1", "has a digest"),
        ] {
            let error = Reference::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
