//! Signatures of what is in a registry, in the format of cosign: a manifest under a tag that the digest gives, with a text that
//! names the digest, and the signature of that text. A public key verifies them without another server.
//!
//! Upstream's document COSIGN_SIGNATURE_SPEC has the format. Nothing is entered into a log of signatures.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::{Artifact, Blob, CONFIG, Labels};

const TEXT: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// How a key is made.
const HOW: &str = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out FILE";

/// A private key.
#[derive(Debug)]
pub(crate) struct Key(EcdsaKeyPair);

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    /// `REGISTRY/PATH`.
    pub(crate) place: &'a str,
    pub(crate) digest: &'a str,
}

impl Signed<'_> {
    /// The tag of its signatures.
    pub(crate) fn tag(&self) -> String {
        format!("{}.sig", self.digest.replace(':', "-"))
    }

    fn text(&self) -> Blob {
        let text = json!({
            "critical": {
                "identity": {"docker-reference": self.place},
                "image": {"docker-manifest-digest": self.digest},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        Blob::new(TEXT, text.to_string().into_bytes())
    }
}

impl Key {
    /// Reads a key of the curve P-256, as PEM of PKCS #8.
    ///
    /// # Errors
    /// If the file has none, with the command that makes one.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("{} has no private key to sign with: {why}; `{HOW}` makes one", path.display())
        };
        let text = fs::read(path).map_err(|error| wrong(&error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(&text)
            .map_err(|error| wrong(&format!("it has no section BEGIN PRIVATE KEY ({error})")))?;
        EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            key.secret_pkcs8_der(),
            &SystemRandom::new(),
        )
        .map(Self)
        .map_err(|error| wrong(&format!("it is none of the curve P-256 ({error})")))
    }

    /// The signature, to be pushed under [`Signed::tag`]. It is another one each time.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn sign(&self, signed: Signed<'_>) -> Result<Artifact, String> {
        let mut text = signed.text();
        let signature = self
            .0
            .sign(&SystemRandom::new(), &text.bytes)
            .map_err(|error| format!("cannot sign with random numbers of the system: {error}"))?;
        let signature = STANDARD.encode(signature.as_ref());
        text.descriptor.annotations = Labels::from([(SIGNATURE.to_owned(), signature)]);
        let config = json!({
            "architecture": "", "os": "", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [text.digest()]},
        });
        let config = Blob::new(CONFIG, config.to_string().into_bytes());
        Artifact::single(config, text, None, None, Labels::new())
    }

    /// Whether a manifest has a signature by this key.
    pub(crate) fn has_signed(&self, signed: Signed<'_>, manifest: &[u8]) -> bool {
        let text = signed.text();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.0.public_key().as_ref());
        let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
        manifest["layers"].as_array().into_iter().flatten().any(|layer| {
            let signature = layer["annotations"][SIGNATURE].as_str().unwrap_or_default();
            layer["digest"] == text.digest()
                && STANDARD
                    .decode(signature)
                    .is_ok_and(|signature| key.verify(&text.bytes, &signature).is_ok())
        })
    }
}
