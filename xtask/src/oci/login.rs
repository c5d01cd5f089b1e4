//! The logins that `docker login`, `podman login` and `helm registry login` keep. They are read, and never printed.
//!
//! Formats: containers-auth.json(5), and the configuration file of the Docker CLI with its credential helpers.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::command;

/// How Docker's configuration names its own registry.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// The user of a login with an identity token, as credential helpers say it.
const TOKEN_USER: &str = "<token>";

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

impl Login {
    /// The value of the header Authorization.
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

/// The files that may have a login, the first one first: what a variable names, then what podman, docker and helm write.
#[expect(clippy::disallowed_methods, reason = "xtask is a developer's tool, not the product")]
pub(crate) fn files() -> Vec<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let config = variable("XDG_CONFIG_HOME").or_else(|| below_home(".config"));
    let user = fs::metadata("/proc/self").map(|process| process.uid()).ok();
    let runtime = variable("XDG_RUNTIME_DIR")
        .map(|folder| folder.join("containers/auth.json"))
        .or_else(|| user.map(|user| format!("/run/containers/{user}/auth.json").into()));
    let below_config = |path: &str| config.as_ref().map(|config| config.join(path));
    [
        variable("REGISTRY_AUTH_FILE"),
        variable("DOCKER_CONFIG").map(|folder| folder.join("config.json")),
        runtime,
        below_config("containers/auth.json"),
        below_home(".docker/config.json"),
        variable("HELM_REGISTRY_CONFIG").or_else(|| below_config("helm/registry/config.json")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The login for a repository; none if no file has one.
///
/// # Errors
/// If there is none, and a file cannot be read or has one that cannot be used.
pub(crate) fn find(
    files: &[PathBuf],
    registry: &str,
    repository: &str,
) -> Result<Option<Login>, String> {
    let mut problem = None;
    for path in files {
        match read(path, registry, repository) {
            Ok(None) => {}
            Ok(login) => return Ok(login),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    problem.map_or(Ok(None), Err)
}

fn read(path: &Path, registry: &str, repository: &str) -> Result<Option<Login>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => return Ok(None),
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read the logins in {}: {error}", path.display())),
    };
    let wrong = |why: String| format!("the login for {registry} in {} {why}", path.display());
    // What is wrong with the text may quote it.
    let config: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("cannot be read: no JSON in line {}", error.line())))?;
    of(&config, registry, repository).map_err(wrong)
}

fn of(config: &Value, registry: &str, repository: &str) -> Result<Option<Login>, String> {
    let server = if registry == "docker.io" { DOCKER_HUB } else { registry };
    let helpers = &config["credHelpers"];
    let helper = helpers[server].as_str().or_else(|| helpers[registry].as_str());
    let helper = helper.or_else(|| config["credsStore"].as_str());
    if let Some(helper) = helper
        && let Some(login) = helped(helper, server)?
    {
        return Ok(Some(login));
    }
    // podman keeps logins for a part of a registry: the longest that fits counts.
    let whole = format!("{registry}/{repository}");
    let mut names: Vec<&str> = vec![&whole];
    names.extend(whole.match_indices('/').rev().filter_map(|(end, _)| whole.get(..end)));
    let older =
        [DOCKER_HUB.to_owned(), format!("https://{registry}"), format!("https://{registry}/v1/")];
    let older = older.iter().skip(usize::from(registry != "docker.io"));
    names.extend(older.map(String::as_str));
    let has = |entry: &Value, field: &str| entry[field].as_str().is_some_and(|it| !it.is_empty());
    let entries = names.iter().filter_map(|name| config["auths"].get(name));
    let mut logins = entries
        .filter(|it| ["auth", "identitytoken", "username"].iter().any(|field| has(it, field)));
    let Some(entry) = logins.next() else { return Ok(None) };
    if has(entry, "identitytoken") {
        return Err(identity_token());
    }
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    if !has(entry, "auth") {
        return Ok(Some(Login { user: text("username"), password: text("password") }));
    }
    let auth = text("auth");
    let bytes = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = bytes.ok_or("is not in base64")?;
    let (user, password) = text.split_once(':').ok_or("has no password")?;
    Ok(Some(Login { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() }))
}

fn identity_token() -> String {
    "is an identity token, which is not supported: log in with a user and a password or an access token"
        .to_owned()
}

/// Asks the program that keeps logins; none if it has none.
fn helped(helper: &str, server: &str) -> Result<Option<Login>, String> {
    let program = format!("docker-credential-{helper}");
    let failed = |error: std::io::Error| format!("cannot be asked for: {program}: {error}");
    let mut asked = command(Path::new("."), &program);
    asked.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = asked.spawn().map_err(failed)?;
    if let Some(mut input) = asked.stdin.take() {
        match input.write_all(server.as_bytes()) {
            // It ended without reading, and its answer says why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.map_err(failed)?,
        }
    }
    let output = asked.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        // It says why on its standard output, and then nothing secret.
        let said = String::from_utf8_lossy(&output.stdout);
        return if said.contains("credentials not found") {
            Ok(None)
        } else {
            let said = said.lines().next().unwrap_or_default();
            Err(format!("cannot be asked for: {program} fails: {said}"))
        };
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match (answer["Username"].as_str(), answer["Secret"].as_str()) {
        (Some(TOKEN_USER), _) => Err(identity_token()),
        (Some(user), Some(password)) => {
            Ok(Some(Login { user: user.to_owned(), password: password.to_owned() }))
        }
        _ => Err(format!("cannot be asked for: {program} prints no user and secret")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Login, of};

    /// Base64 of `kata:secret`.
    const AUTH: &str = "a2F0YTpzZWNyZXQ=";

    #[test]
    fn logins_are_found_as_docker_and_podman_keep_them() {
        let login = Login { user: "kata".to_owned(), password: "secret".to_owned() };
        let auth = json!({"auth": AUTH});
        for (auths, registry) in [
            (json!({"ghcr.io": auth}), "ghcr.io"),
            (json!({"ghcr.io/kata": auth}), "ghcr.io"),
            (
                json!({"ghcr.io/kata/operator": auth, "ghcr.io": {"auth": "b3RoZXI6eA=="}}),
                "ghcr.io",
            ),
            (json!({"https://ghcr.io/v1/": auth}), "ghcr.io"),
            (json!({"https://index.docker.io/v1/": auth}), "docker.io"),
            (json!({"docker.io": {}, "https://index.docker.io/v1/": auth}), "docker.io"),
            (json!({"ghcr.io": {"username": "kata", "password": "secret"}}), "ghcr.io"),
        ] {
            let found = of(&json!({"auths": auths}), registry, "kata/operator");
            assert_eq!(found, Ok(Some(login.clone())), "{auths}");
        }
        for auths in [
            json!(null),
            json!({"ghcr.io": {}}),
            json!({"ghcr.io/other": auth}),
            json!({"https://index.docker.io/v1/": auth}),
        ] {
            assert_eq!(
                of(&json!({"auths": auths}), "ghcr.io", "kata/operator"),
                Ok(None),
                "{auths}"
            );
        }
        for entry in [json!({"identitytoken": "t"}), json!({"auth": "?"}), json!({"auth": "eA=="})]
        {
            let auths = json!({"auths": {"ghcr.io": entry}});
            assert!(of(&auths, "ghcr.io", "kata/operator").is_err(), "{auths}");
        }
        assert_eq!(format!("{login:?}"), "Login(kata)");
    }
}
