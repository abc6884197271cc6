//! `sanderling tls`: certificates.

use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use sanderling_transport::unix_seconds;
use serde_json::json;

use crate::args::Global;
use crate::args::security::{NewTls, Tls};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::security::write_private;

/// How long before now certificates hold: clocks of machines differ.
const BEFORE: Duration = Duration::from_secs(24 * 3600);

/// Longest time that certificates hold: what comes after the year 9999 cannot be written.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Runs `sanderling tls ...`.
///
/// # Errors
/// A file exists or cannot be written.
pub(crate) fn run(global: &Global, command: Tls) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet };
    let Tls::New(NewTls { out, expires }) = command;
    make(&out, &global.shown.tls_name, expires.0)?;
    let file = |name: &str| out.join(name);
    output.note(format_args!("wrote ca.pem, ca.key, node.pem and node.key to {}", out.display()));
    for (name, variable) in
        [("ca.pem", "TLS_CA"), ("node.pem", "TLS_CERT"), ("node.key", "TLS_KEY")]
    {
        output.note(format_args!("export SANDERLING_{variable}={}", file(name).display()));
    }
    let document = json!({
        "tls_ca": file("ca.pem"), "tls_ca_key": file("ca.key"),
        "tls_cert": file("node.pem"), "tls_key": file("node.key"),
    });
    output.result(&document, |_| Ok(()))
}

/// Makes an authority and a certificate for servers, signed by it, in a directory.
///
/// # Errors
/// A file exists or cannot be written.
pub(crate) fn make(directory: &Path, name: &str, holds: Duration) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, &error))?;
    let [ca, ca_key, node, node_key] = certificates(name, holds)
        .map_err(|error| Failure::new(Exit::Failure, "BadCertificate", error))?;
    write_private(&directory.join("ca.key"), ca_key.as_bytes())?;
    write_private(&directory.join("node.key"), node_key.as_bytes())?;
    for (name, pem) in [("ca.pem", ca), ("node.pem", node)] {
        let path = directory.join(name);
        std::fs::write(&path, pem).map_err(|error| Failure::file(&path, &error))?;
    }
    Ok(())
}

/// Returns the authority's certificate and key, and the servers' certificate and key.
fn certificates(name: &str, holds: Duration) -> Result<[String; 4], rcgen::Error> {
    let params = |names: &[String], common: String| {
        let mut params = CertificateParams::new(names)?;
        let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(unix_seconds());
        params.not_before = now - BEFORE;
        params.not_after = now + holds.min(LONGEST);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        Ok::<_, rcgen::Error>(params)
    };
    let mut authority = params(&[], format!("{name} authority"))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate()?;
    let certificate = authority.self_signed(&authority_key)?.pem();
    let mut server = params(&[name.to_owned()], name.to_owned())?;
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_key = KeyPair::generate()?;
    let issuer = Issuer::from_params(&authority, &authority_key);
    let signed = server.signed_by(&server_key, &issuer)?.pem();
    Ok([certificate, authority_key.serialize_pem(), signed, server_key.serialize_pem()])
}
