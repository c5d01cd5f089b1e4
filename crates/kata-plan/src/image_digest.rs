//! References of images: to which digest a kubelet resolved one, and the reference with that digest.
//!
//! It asks no registry.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kata_api::names::node_job;

/// The registry of a reference that names none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// The digest of the image from which a Job's pod staged a payload: the one that the Job named, or else the one that
/// the kubelet reports for this repository. `None` if others cannot pull it by that: an image that was imported on
/// the node has a name of its own there, or no more than an ID.
pub(crate) fn staged(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?.init_containers.as_deref()?;
    let asked = spec.iter().find(|container| container.name == node_job::STAGE_CONTAINER)?;
    let asked = asked.image.as_deref()?;
    let status = pod.status.as_ref()?.init_container_statuses.as_deref()?;
    let staged = |status: &&ContainerStatus| status.name == node_job::STAGE_CONTAINER;
    let status = status.iter().find(staged)?;
    status.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code == 0)?;
    resolved(asked, &status.image_id)
}

/// The digest in what a kubelet reports of an image that was asked for.
fn resolved(asked: &str, reported: &str) -> Option<String> {
    let (name, digest) = match asked.split_once('@') {
        // Some container runtimes report another digest of the same image, such as that of its index.
        Some((_, digest)) => (None, digest),
        None => {
            let (name, digest) = reported.rsplit_once('@')?;
            (Some(name), digest)
        }
    };
    let hex = digest.strip_prefix("sha256:")?;
    let is_digest = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_same = name.is_none_or(|name| is_same_repository(name, asked));
    (is_digest && is_same).then(|| digest.to_owned())
}

/// The image with this digest instead of its tag.
pub(crate) fn pinned(image: &str, digest: &str) -> String {
    format!("{}@{digest}", repository(image))
}

/// A reference without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    image[name..].find(':').map_or(image, |colon| &image[..name + colon])
}

/// Whether two references are of one repository.
pub(crate) fn is_same_repository(found: &str, asked: &str) -> bool {
    is_repository(repository(found), repository(asked))
}

/// Whether a repository that a container runtime names is the one that was asked for.
fn is_repository(found: &str, asked: &str) -> bool {
    let found = found.rsplit("://").next().unwrap_or(found);
    let full = |name: &str| match name.split_once('/') {
        Some(("index.docker.io", rest)) => format!("{DEFAULT_REGISTRY}/{rest}"),
        Some((first, _)) if is_registry(first) => name.to_owned(),
        Some(_) => format!("{DEFAULT_REGISTRY}/{name}"),
        None => format!("{DEFAULT_REGISTRY}/library/{name}"),
    };
    let has_registry = asked.split_once('/').is_some_and(|(first, _)| is_registry(first));
    // CRI-O looks for a short name in the registries of its configuration.
    full(found) == full(asked) || (!has_registry && found.ends_with(&format!("/{asked}")))
}

fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    const OTHER: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

    #[test]
    fn a_digest_counts_only_for_the_repository_that_was_asked_for() {
        for (asked, name, counts) in [
            ("quay.io/kata/deploy:4.1.0", "quay.io/kata/deploy", true),
            ("quay.io/kata/deploy:4.1.0", "docker-pullable://quay.io/kata/deploy", true),
            ("r.example:5000/deploy:1", "r.example:5000/deploy", true),
            ("r.example:5000/deploy", "r.example:5000/deploy", true),
            ("localhost/deploy:1", "localhost/deploy", true),
            ("deploy:1", "docker.io/library/deploy", true),
            ("kata/deploy:1", "docker.io/kata/deploy", true),
            ("docker.io/kata/deploy:1", "index.docker.io/kata/deploy", true),
            // CRI-O's search registries.
            ("kata/deploy:1", "registry.example/kata/deploy", true),
            // `ctr images import --digests`, and an image that two repositories share.
            ("quay.io/kata/deploy:4.1.0", "docker.io/library/import-2026-01-01", false),
            ("quay.io/kata/deploy:4.1.0", "mirror.example/kata/deploy", false),
            ("quay.io/kata/deploy:4.1.0", "quay.io/kata/deploy-ci", false),
            ("deploy:1", "registry.example/otherdeploy", false),
        ] {
            let found = resolved(asked, &format!("{name}@{SHA}"));
            assert_eq!(found.as_deref(), counts.then_some(SHA), "{asked} {name}");
        }
        for reported in ["", SHA, "quay.io/kata/deploy:4.1.0", "quay.io/kata/deploy@sha256:1"] {
            assert_eq!(resolved("quay.io/kata/deploy:4.1.0", reported), None, "{reported}");
        }
        // An image that was requested by digest is that image, even if another digest is reported.
        for reported in ["", &format!("quay.io/kata/deploy@{OTHER}")] {
            let asked = format!("quay.io/kata/deploy:4.1.0@{SHA}");
            assert_eq!(resolved(&asked, reported).as_deref(), Some(SHA));
        }
    }

    #[test]
    fn the_digest_takes_the_place_of_the_tag() {
        for (image, pinned_image) in [
            ("quay.io/kata/deploy:4.1.0", "quay.io/kata/deploy"),
            ("r.example:5000/deploy:1", "r.example:5000/deploy"),
            ("r.example:5000/deploy", "r.example:5000/deploy"),
            ("deploy", "deploy"),
        ] {
            assert_eq!(pinned(image, SHA), format!("{pinned_image}@{SHA}"));
        }
    }
}
