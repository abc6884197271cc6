//! Secrets, tokens and certificates of a secure cluster's servers and of its user.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sanderling_command::credentials::{secret, tls_failed};
use sanderling_command::failure::Failure;
use sanderling_core::access::{Claims, Lineage, Rights, TokenRole};
use sanderling_keys::{tls, token, write_private};
use sanderling_transport::{ClientTls, Credentials, TLS_NAME, TokenSource, unix_seconds};
use serde::{Deserialize, Serialize};

/// Lifetime of the token and the certificates, 30 days: longer than any trial of a cluster. Chosen,
/// not measured.
const HOLDS: Duration = Duration::from_secs(30 * 24 * 3600);

/// The file with an admin's token.
const TOKEN_FILE: &str = "admin.token";

/// The file with the secret.
const SECRET_FILE: &str = "secret";

/// All files that [`KeyFiles::make`] makes.
pub(super) const KEY_FILES: [&str; 6] =
    [TOKEN_FILE, SECRET_FILE, tls::CA_FILE, tls::CA_KEY_FILE, tls::NODE_FILE, tls::NODE_KEY_FILE];

/// The files of a secure cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeyFiles {
    /// An admin's token.
    pub(super) token_file: PathBuf,
    /// The authority of the servers' certificate.
    pub(super) tls_ca: PathBuf,
    secret_file: PathBuf,
    tls_cert: PathBuf,
    tls_key: PathBuf,
}

impl KeyFiles {
    /// Returns the paths of all files, to change them.
    pub(super) fn paths_mut(&mut self) -> [&mut PathBuf; 5] {
        let Self { token_file, tls_ca, secret_file, tls_cert, tls_key } = self;
        [token_file, tls_ca, secret_file, tls_cert, tls_key]
    }

    /// Makes all of them in an empty directory.
    pub(super) fn make(directory: &Path) -> Result<Self, Failure> {
        let keys = Self {
            token_file: directory.join(TOKEN_FILE),
            tls_ca: directory.join(tls::CA_FILE),
            secret_file: directory.join(SECRET_FILE),
            tls_cert: directory.join(tls::NODE_FILE),
            tls_key: directory.join(tls::NODE_KEY_FILE),
        };
        write_private(&keys.secret_file, token::random_text()?.as_bytes())?;
        tls::make(directory, TLS_NAME, HOLDS)?;
        let admin = Claims {
            subject: "local".to_owned(),
            role: TokenRole::Admin,
            subtree: sanderling_protocol::Path::root(),
            rights: Rights::ALL,
            expires_at: unix_seconds() + HOLDS.as_secs(),
            // The cluster does not exist yet, and no other has this secret.
            lineage: Lineage { id: Some(token::token_id()?), ..Lineage::default() },
        };
        let admin = secret(&keys.secret_file)?.sign(&admin);
        write_private(&keys.token_file, format!("{}\n", admin.reveal()).as_bytes())?;
        Ok(keys)
    }

    /// Returns the credentials of a client of this cluster: its token, and the authority of
    /// servers.
    pub(super) fn shown(&self) -> Result<Credentials, Failure> {
        let tls = ClientTls::read(&self.tls_ca, TLS_NAME).map_err(tls_failed)?;
        let token = Some(TokenSource::File(self.token_file.clone()));
        Ok(Credentials { token, tls: Some(tls) })
    }

    /// Returns the flags of a server.
    pub(super) fn words(&self) -> Vec<OsString> {
        let flags = [
            ("--secret-file", &self.secret_file),
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
        ];
        flags.into_iter().flat_map(|(flag, file)| [flag.into(), file.clone().into()]).collect()
    }
}
