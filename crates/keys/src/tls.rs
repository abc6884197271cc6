//! `sanderling tls`: certificates.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SigningKey, date_time_ymd,
};
use sanderling_command::credentials::tls_failed;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::units::Span;
use sanderling_transport::{ClientTls, read_private, read_validities, unix_seconds, worst};
use serde_json::json;

use crate::private_file::write_private;

/// Make certificates.
#[derive(Debug, Subcommand)]
pub enum Tls {
    /// Make an authority and a certificate for the cluster's servers
    New(NewTls),
    /// Make another certificate for the cluster's servers, by an authority of `tls new`
    Renew(RenewTls),
}

/// The flags of `sanderling tls new`, which makes an authority and a certificate.
#[derive(Debug, Args)]
pub struct NewTls {
    /// The directory to write ca.pem, ca.key, node.pem and node.key to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How long the certificates are valid
    #[arg(long, value_name = "DURATION", default_value = "365d")]
    pub(crate) expires: Span,
}

/// The flags of `sanderling tls renew`, which makes a certificate by an authority that is there.
#[derive(Debug, Args)]
pub struct RenewTls {
    /// The directory with the authority's ca.pem and ca.key
    #[arg(long, value_name = "DIR")]
    pub(crate) authority: PathBuf,
    /// The directory to write node.pem and node.key to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How long the certificate is valid, at most as long as the authority
    #[arg(long, value_name = "DURATION", default_value = "365d")]
    pub(crate) expires: Span,
}

/// The file with the authority's certificate.
pub const CA_FILE: &str = "ca.pem";

/// The file with its key.
pub const CA_KEY_FILE: &str = "ca.key";

/// The file with the servers' certificate.
pub const NODE_FILE: &str = "node.pem";

/// The file with its key.
pub const NODE_KEY_FILE: &str = "node.key";

/// How long before now certificates hold, a day: clocks of machines differ, by less than that
/// unless they are wrong. Chosen, not measured.
const BEFORE: Duration = Duration::from_secs(24 * 3600);

/// Longest time that certificates hold, a hundred years: what comes after the year 9999 cannot be
/// written (RFC 5280, section 4.1.2.5), and `--expires` allows as much (`SPAN_MAX`).
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Runs `sanderling tls ...`.
///
/// # Errors
/// A file exists or cannot be written: end the command with the failure, which names the file.
pub fn run(global: &Global, command: Tls) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    let NewTls { out, expires } = match command {
        Tls::New(args) => args,
        Tls::Renew(args) => return renew(output, &global.shown.tls_name, &args),
    };
    make(&out, &global.shown.tls_name, expires.0)?;
    let file = |name: &str| out.join(name);
    let names = format!("{CA_FILE}, {CA_KEY_FILE}, {NODE_FILE} and {NODE_KEY_FILE}");
    output.note(format_args!("wrote {names} to {}", out.display()));
    for (name, variable) in
        [(CA_FILE, "TLS_CA"), (NODE_FILE, "TLS_CERT"), (NODE_KEY_FILE, "TLS_KEY")]
    {
        output.note(format_args!("export SANDERLING_{variable}={}", file(name).display()));
    }
    let document = json!({
        "tls_ca": file(CA_FILE), "tls_ca_key": file(CA_KEY_FILE),
        "tls_cert": file(NODE_FILE), "tls_key": file(NODE_KEY_FILE),
    });
    output.result(&document, |_| Ok(()))
}

/// Makes an authority and a certificate for servers, signed by it, in a directory.
///
/// # Errors
/// A file exists: choose another directory. It cannot be written: free room, or correct the path.
pub fn make(directory: &Path, name: &str, holds: Duration) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
    let [ca, ca_key, node, node_key] = certificates(name, holds)
        .map_err(|error| Failure::caused(Exit::Failure, FailureKind::BadCertificate, error))?;
    write_private(&directory.join(CA_KEY_FILE), ca_key.as_bytes())?;
    write_private(&directory.join(NODE_KEY_FILE), node_key.as_bytes())?;
    for (name, pem) in [(CA_FILE, ca), (NODE_FILE, node)] {
        let path = directory.join(name);
        std::fs::write(&path, pem).map_err(|error| Failure::file(&path, error))?;
    }
    Ok(())
}

/// Makes another certificate for servers by an authority that exists, and a key of its own.
fn renew(output: Output, name: &str, args: &RenewTls) -> Result<(), Failure> {
    let (ca, ca_key) = (args.authority.join(CA_FILE), args.authority.join(CA_KEY_FILE));
    let bad =
        |error: rcgen::Error| Failure::caused(Exit::Failure, FailureKind::BadCertificate, error);
    let now = unix_seconds();
    let dates = read_validities(&ca).map_err(tls_failed)?;
    let left = worst(&dates, now).map_or(0, |it| it.ends.saturating_sub_unsigned(now));
    let Ok(left @ 1..) = u64::try_from(left) else {
        let cause = format!("the authority in {} has ended", ca.display());
        return Err(Failure::new(Exit::Failure, FailureKind::BadCertificate, cause)
            .next("sanderling tls new --out DIR, and both authorities in --tls-ca for a while"));
    };
    let pem = std::fs::read_to_string(&ca).map_err(|error| Failure::file(&ca, error))?;
    let key = read_private(&ca_key).map_err(|error| tls_failed(error.into()))?;
    let key = KeyPair::from_pem(&String::from_utf8_lossy(&key)).map_err(bad)?;
    let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(bad)?;
    let holds = args.expires.0.min(Duration::from_secs(left));
    let [node, node_key] = node(name, holds, &issuer).map_err(bad)?;
    let file = |name: &str| args.out.join(name);
    // With a key that is not the authority's, no peer would accept the certificate.
    let tls = ClientTls::read(&ca, name).map_err(tls_failed)?;
    tls.check(&file(NODE_FILE), node.as_bytes()).map_err(tls_failed)?;
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::file(&args.out, error))?;
    write_private(&file(NODE_KEY_FILE), node_key.as_bytes())?;
    std::fs::write(file(NODE_FILE), node).map_err(|error| Failure::file(&args.out, error))?;
    let out = args.out.display();
    output.note(format_args!("wrote {NODE_FILE} and {NODE_KEY_FILE} to {out}"));
    let document = json!({ "tls_cert": file(NODE_FILE), "tls_key": file(NODE_KEY_FILE) });
    output.result(&document, |_| Ok(()))
}

/// Returns the authority's certificate and key, and the servers' certificate and key.
fn certificates(name: &str, holds: Duration) -> Result<[String; 4], rcgen::Error> {
    let mut authority = params(&[], format!("{name} authority"), holds)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate()?;
    let certificate = authority.self_signed(&authority_key)?.pem();
    let [signed, key] = node(name, holds, &Issuer::from_params(&authority, &authority_key))?;
    Ok([certificate, authority_key.serialize_pem(), signed, key])
}

/// Returns a certificate and key for servers.
fn node<S: SigningKey>(
    name: &str,
    holds: Duration,
    issuer: &Issuer<'_, S>,
) -> Result<[String; 2], rcgen::Error> {
    let mut server = params(&[name.to_owned()], name.to_owned(), holds)?;
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok([server.signed_by(&key, issuer)?.pem(), key.serialize_pem()])
}

fn params(
    names: &[String],
    common: String,
    holds: Duration,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(unix_seconds());
    params.not_before = now - BEFORE;
    params.not_after = now + holds.min(LONGEST);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    Ok(params)
}
