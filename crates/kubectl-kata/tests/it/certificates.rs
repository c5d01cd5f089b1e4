//! Certificates for tests of TLS: X.509 v3 with ECDSA over P-256, as little of it as a verifier wants to see
//! (RFC 5280).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

/// A certificate and its key.
pub(crate) struct Certificate {
    name: String,
    pub(crate) der: Vec<u8>,
    pub(crate) key_der: Vec<u8>,
}

/// When a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Good {
    /// From 2020 to the end of 2049.
    Now,
    /// In 2020.
    Once,
}

impl Certificate {
    /// A certificate authority.
    pub(crate) fn authority(name: &str) -> Self {
        let key_der = new_key();
        let der = certificate(name, name, &key(&key_der), &key(&key_der), &[], Good::Now);
        Self { name: name.to_owned(), der, key_der }
    }

    /// A certificate that this one signs, for these names: host names, or addresses of four numbers.
    pub(crate) fn sign(&self, name: &str, names: &[&str], good: Good) -> Self {
        let key_der = new_key();
        let alternatives: Vec<Vec<u8>> = names
            .iter()
            .map(|name| match name.parse::<std::net::Ipv4Addr>() {
                Ok(address) => tlv(0x87, &address.octets()),
                Err(_) => tlv(0x82, name.as_bytes()),
            })
            .collect();
        let names = tlv(0x30, &alternatives.concat());
        let der = certificate(name, &self.name, &key(&key_der), &key(&self.key_der), &names, good);
        Self { name: name.to_owned(), der, key_der }
    }

    /// The certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// The key as PEM.
    pub(crate) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key_der)
    }
}

fn new_key() -> Vec<u8> {
    let random = SystemRandom::new();
    EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
        .unwrap()
        .as_ref()
        .to_vec()
}

fn key(der: &[u8]) -> EcdsaKeyPair {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &SystemRandom::new()).unwrap()
}

/// A certificate for `names`, or, without any, of an authority.
fn certificate(
    subject: &str,
    issuer: &str,
    key: &EcdsaKeyPair,
    signer: &EcdsaKeyPair,
    names: &[u8],
    good: Good,
) -> Vec<u8> {
    let common_name = |name: &str| {
        let attribute = [tlv(6, &[0x55, 4, 3]), tlv(0x0c, name.as_bytes())].concat();
        tlv(0x30, &tlv(0x31, &tlv(0x30, &attribute)))
    };
    // ecdsa-with-SHA256; id-ecPublicKey on prime256v1.
    let algorithm = tlv(0x30, &tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]));
    let curve = tlv(
        0x30,
        &[
            tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]),
            tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]),
        ]
        .concat(),
    );
    let public = tlv(0x30, &[curve, bits(key.public_key().as_ref())].concat());
    let end = match good {
        Good::Now => "491231235959Z",
        Good::Once => "201231235959Z",
    };
    let validity = [tlv(0x17, b"200101000000Z"), tlv(0x17, end.as_bytes())].concat();
    let extension = match names {
        // basicConstraints: critical, of an authority.
        [] => [tlv(6, &[0x55, 0x1d, 19]), tlv(1, &[0xff]), tlv(4, &tlv(0x30, &tlv(1, &[0xff])))]
            .concat(),
        // subjectAltName.
        names => [tlv(6, &[0x55, 0x1d, 17]), tlv(4, names)].concat(),
    };
    let extensions = tlv(0xa3, &tlv(0x30, &tlv(0x30, &extension)));
    let body = tlv(
        0x30,
        &[
            // Version 3, serial number 1.
            tlv(0xa0, &tlv(2, &[2])),
            tlv(2, &[1]),
            algorithm.clone(),
            common_name(issuer),
            tlv(0x30, &validity),
            common_name(subject),
            public,
            extensions,
        ]
        .concat(),
    );
    let signature = signer.sign(&SystemRandom::new(), &body).unwrap();
    tlv(0x30, &[body, algorithm, bits(signature.as_ref())].concat())
}

/// A BIT STRING of whole bytes.
fn bits(bytes: &[u8]) -> Vec<u8> {
    tlv(3, &[&[0], bytes].concat())
}

/// A tag, a length and a value, as DER writes them.
fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = match u8::try_from(value.len()) {
        Ok(short @ ..0x80) => vec![short],
        Ok(one) => vec![0x81, one],
        Err(_) => [&[0x82], &u16::try_from(value.len()).unwrap().to_be_bytes()[..]].concat(),
    };
    [&[tag], &length[..], value].concat()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
