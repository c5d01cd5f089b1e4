//! The logins that `docker login`, `podman login` and `helm registry login` keep. They are read, and never printed.
//!
//! Formats: containers-auth.json(5), and the configuration file of the Docker CLI with its credential helpers.

use std::fs;
use std::io::Write as _;
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

/// The files that may have a login, the first one first.
#[expect(clippy::disallowed_methods, reason = "xtask is a developer's tool, not the product")]
pub(crate) fn files() -> Vec<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = folder("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let podman = [
        folder("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json")),
        below_home(".config/containers/auth.json"),
    ];
    let docker = folder("DOCKER_CONFIG").or_else(|| below_home(".docker"));
    let docker = docker.map(|folder| folder.join("config.json"));
    let given = folder("REGISTRY_AUTH_FILE");
    given.into_iter().chain(podman.into_iter().flatten()).chain(docker).collect()
}

/// The login for a repository; none if no file has one.
///
/// # Errors
/// If a file cannot be read, or its login cannot be used.
pub(crate) fn find(
    files: &[PathBuf],
    registry: &str,
    repository: &str,
) -> Result<Option<Login>, String> {
    for path in files {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(format!("cannot read the logins in {}: {error}", path.display()));
            }
        };
        let wrong = |why: String| format!("the login for {registry} in {} {why}", path.display());
        // What is wrong with the text may quote it.
        let config: Value = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("cannot be read: no JSON in line {}", error.line())))?;
        if let Some(login) = of(&config, registry, repository).map_err(wrong)? {
            return Ok(Some(login));
        }
    }
    Ok(None)
}

fn of(config: &Value, registry: &str, repository: &str) -> Result<Option<Login>, String> {
    let server = if registry == "docker.io" { DOCKER_HUB } else { registry };
    let helper = config["credHelpers"][registry].as_str().or_else(|| config["credsStore"].as_str());
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
    let Some(entry) = names.iter().find_map(|name| config["auths"].get(name)) else {
        return Ok(None);
    };
    if entry["identitytoken"].as_str().is_some_and(|token| !token.is_empty()) {
        return Err(identity_token());
    }
    let Some(auth) = entry["auth"].as_str().filter(|auth| !auth.is_empty()) else {
        return Ok(None);
    };
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
        input.write_all(server.as_bytes()).map_err(failed)?;
    }
    let output = asked.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Ok(None);
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
