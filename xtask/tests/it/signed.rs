//! Signatures, as OpenSSL and a reader of cosign's format verify them. That Podman's and CRI-O's policy takes them was seen once
//! with skopeo 1.22, which has their check; Debian's is built without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::Value;

use crate::lab::{Folder, OCI, Registry, image};

/// What precedes the point of the curve P-256 in a public key (RFC 5480).
const PUBLIC: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Writes a new private key, and its public one.
pub(crate) fn keys(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let random = SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).unwrap();
    let public = [&PUBLIC[..], pair.public_key().as_ref()].concat();
    let write = |kind: &str, bytes: &[u8]| {
        let text = STANDARD.encode(bytes);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let path = folder.join(format!("{name}.{kind}"));
        let kind = kind.to_uppercase();
        let pem =
            format!("-----BEGIN {kind} KEY-----\n{}\n-----END {kind} KEY-----\n", lines.join("\n"));
        fs::write(&path, pem).unwrap();
        path
    };
    (write("private", private.as_ref()), write("public", &public))
}

/// Whether what has a digest in a repository, and each manifest below it, is signed by a key, as container runtimes ask: OpenSSL
/// verifies the signature of the text, and the text names both. With what OpenSSL said, or what is not there.
pub(crate) fn verify(
    folder: &Path,
    registry: &Registry,
    repository: &str,
    digest: &str,
    key: &Path,
) -> Result<(), String> {
    let index = registry.json(&format!("{repository}/manifests/{digest}"), OCI);
    let below = index["manifests"].as_array().into_iter().flatten();
    let below = below.map(|manifest| manifest["digest"].as_str().unwrap());
    for digest in [digest].into_iter().chain(below) {
        let tag = digest.replace(':', "-");
        let manifest = registry.json(&format!("{repository}/manifests/{tag}.sig"), OCI);
        let layer = &manifest["layers"][0];
        if layer["mediaType"] != "application/vnd.dev.cosign.simplesigning.v1+json" {
            return Err(format!("no signature: {manifest}"));
        }
        let text = layer["digest"].as_str().unwrap();
        let text = registry.get(&format!("{repository}/blobs/{text}"), "*/*");
        let critical = serde_json::from_slice::<Value>(&text).unwrap()["critical"].take();
        assert_eq!(critical["type"], "cosign container image signature");
        assert_eq!(critical["image"]["docker-manifest-digest"], digest);
        let place = format!("{}/{repository}", registry.name);
        assert_eq!(critical["identity"]["docker-reference"], place);
        let signature = layer["annotations"]["dev.cosignproject.cosign/signature"].as_str();
        let signature = STANDARD.decode(signature.unwrap()).unwrap();
        fs::write(folder.join("text"), text).unwrap();
        fs::write(folder.join("signature"), signature).unwrap();
        let mut openssl = Command::new(std::env::var("KATA_TEST_OPENSSL").expect("openssl"));
        openssl
            .args(["dgst", "-sha256", "-signature", "signature", "-verify"])
            .arg(key)
            .arg("text");
        let ended = openssl.current_dir(folder).output().unwrap();
        if !ended.status.success() {
            return Err(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs docker-registry and openssl"]
fn a_signature_is_taken_with_its_key_alone() {
    let folder = Folder::new("signed");
    let programs = folder.programs("one");
    let registry = Registry::start(&folder.0, None);
    let name = format!("{}/kata/kata-operator:v1", registry.name);
    let (private, public) = keys(&folder.0, "one");
    let (other_private, other_public) = keys(&folder.0, "other");
    let push = |key: &[&str]| image(&folder.0, &programs, &[&["--push", &name], key].concat());
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();

    let digest = push(&[]).digest();
    let verify = |key| verify(&folder.0, &registry, "kata/kata-operator", &digest, key);
    assert!(verify(&public).unwrap_err().contains("no signature"));

    push(&["--sign-key", &path(&private)]).says(true, &[&format!("{name}: signed")]);
    verify(&public).unwrap();
    assert!(verify(&other_public).unwrap_err().contains("Verification failure"));

    // Nothing is signed twice, and a signature by another key stays.
    push(&["--sign-key", &path(&private)]).says(true, &["0 blobs pushed, 2 were there", "signed"]);
    push(&["--sign-key", &path(&other_private)])
        .says(false, &[".sig is not a signature by this key"]);
    verify(&public).unwrap();
}

#[test]
fn what_is_no_key_is_said_before_the_build() {
    let folder = Folder::new("keys");
    let programs = folder.programs("one");
    let push = |key: &Path| {
        let name = "localhost:1/kata/kata-operator:v1";
        image(&folder.0, &programs, &["--push", name, "--sign-key", key.to_str().unwrap()])
    };
    let how = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256";
    push(&folder.0.join("none")).says(false, &["has no private key to sign with", how]);
    let (_, public) = keys(&folder.0, "one");
    push(&public).says(false, &["no section BEGIN PRIVATE KEY", how]);
    let wrong = folder.0.join("wrong");
    let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n";
    fs::write(&wrong, pem).unwrap();
    push(&wrong).says(false, &["none of the curve P-256", how]);
}
