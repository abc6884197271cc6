//! Access keys, their secrets and their rights.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use hyper::http::Extensions;
use hyper::{HeaderMap, Uri};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};
use sanderling_transport::{ReloadOutcome, Watched, open_regular};
use serde::Deserialize;
use thiserror::Error;

use crate::{signing, unsupported_headers};

/// The access key of a gateway without a file of keys. It is public, so that gateway listens on
/// loopback only.
pub const LOCAL_ACCESS_KEY: &str = "sanderling";
/// The secret of [`LOCAL_ACCESS_KEY`]. It is public, too.
pub const LOCAL_SECRET_KEY: &str = "sanderling";

/// Longest file of keys in bytes: thousands of keys. A path that leads to something larger is a
/// mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there are no keys.
#[derive(Debug, Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("{file}: {cause}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Others could read the secrets.
    #[error("{file} can be read by others (mode {mode:03o}): chmod 600 {file}")]
    Mode {
        /// The file.
        file: String,
        /// Its mode.
        mode: u32,
    },
    /// The text is not that of keys. The error leaves the text out: it holds secrets.
    #[error("{file}: {fault}")]
    Text {
        /// The file.
        file: String,
        /// What is wrong.
        #[source]
        fault: KeysFault,
    },
}

/// What is wrong with the text of a file of keys. It has no source: that could quote a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeysFault {
    /// It is not the JSON of keys.
    #[error(
        "line {line}, column {column}: {}",
        .field.as_deref().unwrap_or("this is not the JSON of keys")
    )]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// Which field is unknown or missing, if that is what is wrong.
        field: Option<String>,
    },
    /// It has none.
    #[error("there are no keys in it")]
    Empty,
    /// A key has no name, or a secret that could be guessed.
    #[error("key {number}: an access key, and 8 characters of a secret")]
    Short {
        /// Its number in the file, from 1.
        number: usize,
    },
    /// Two keys have one name.
    #[error("key {number}: its access key was there before")]
    Twice {
        /// The number of the second one, from 1.
        number: usize,
    },
}

/// What a key may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRights {
    /// Read and list.
    Read,
    /// That, and write and delete.
    #[default]
    ReadWrite,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    keys: Vec<KeyText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    access_key: String,
    secret_key: String,
    buckets: Option<Vec<String>>,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    rights: KeyRights,
}

/// What the holder of one key may do where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    rights: KeyRights,
    /// In these buckets; `None` in all.
    buckets: Option<Vec<String>>,
    /// With keys that begin so.
    prefix: String,
}

impl Grant {
    /// Returns whether the grant covers a bucket.
    pub(crate) fn has_bucket(&self, bucket: &str) -> bool {
        self.buckets.as_ref().is_none_or(|all| all.iter().any(|it| it == bucket))
    }

    /// Refuses what is not for this key.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn check(&self, bucket: &str, key: &str, is_write: bool) -> S3Result<()> {
        let is_allowed = self.has_bucket(bucket)
            && key.starts_with(&self.prefix)
            && (!is_write || self.rights == KeyRights::ReadWrite);
        if is_allowed {
            return Ok(());
        }
        let message = "this access key has no right to that";
        Err(S3Error::with_message(S3ErrorCode::AccessDenied, message))
    }
}

/// Returns what the request's access key may do.
pub(crate) fn grant_of(extensions: &Extensions) -> Option<Arc<Grant>> {
    extensions.get::<Arc<Grant>>().cloned()
}

/// The access key of a request whose signature the first service has checked. No peer can set it.
#[derive(Debug, Clone)]
pub(crate) struct Verified(pub(crate) String);

/// The access keys of a gateway. Clones share them.
#[derive(Clone)]
pub struct AccessKeys(KeySource);

#[derive(Clone)]
enum KeySource {
    Given(Arc<Table>),
    /// Read again when the file changes.
    File(Arc<Watched<Table, KeysError>>),
}

/// The secret and the rights of each access key.
struct Table(HashMap<String, (SecretKey, Arc<Grant>)>);

impl fmt::Debug for AccessKeys {
    /// Writes how many there are and no more.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} keys", self.table().0.len())
    }
}

impl AccessKeys {
    /// Returns the one pair of access key and secret that is public, for a gateway that only this
    /// machine reaches.
    #[must_use]
    pub fn local() -> Self {
        let secret = SecretKey::from(LOCAL_SECRET_KEY);
        let all = [(LOCAL_ACCESS_KEY.to_owned(), (secret, Arc::default()))];
        Self(KeySource::Given(Arc::new(Table(all.into()))))
    }

    /// Reads a file of keys. It is read again when it changes, before the next request is checked;
    /// a file that cannot be used changes nothing.
    ///
    /// # Errors
    /// [`KeysError`]: the caller corrects the file.
    pub fn read(path: &FilePath) -> Result<Self, KeysError> {
        let paths = vec![path.to_owned()];
        let path = path.to_owned();
        let watched = Watched::read(paths, log, move |_| Table::read(&path))?;
        Ok(Self(KeySource::File(Arc::new(watched))))
    }

    /// Reads the text of a file of keys.
    ///
    /// # Errors
    /// What is wrong, without the text.
    pub(crate) fn parse(text: &str) -> Result<Self, KeysFault> {
        Ok(Self(KeySource::Given(Arc::new(Table::parse(text)?))))
    }

    fn table(&self) -> Arc<Table> {
        match &self.0 {
            KeySource::Given(table) => Arc::clone(table),
            KeySource::File(watched) => watched.value(),
        }
    }
}

fn log(looked: ReloadOutcome<'_>) {
    match looked {
        ReloadOutcome::Taken(file) => tracing::info!(file, "access keys were read again"),
        ReloadOutcome::Refused(error) => {
            tracing::error!(%error, "access keys stay the ones before")
        }
    }
}

impl Table {
    fn read(path: &FilePath) -> Result<Self, KeysError> {
        let file = path.display().to_string();
        let io = |cause| KeysError::Io { file: file.clone(), cause };
        let opened = open_regular(path).map_err(io)?;
        let mode = opened.metadata().map_err(io)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeysError::Mode { file, mode });
        }
        let mut text = String::new();
        opened.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(io)?;
        Self::parse(&text).map_err(|fault| KeysError::Text { file, fault })
    }

    fn parse(text: &str) -> Result<Self, KeysFault> {
        let read: Text = serde_json::from_str(text).map_err(|error| {
            // The error's own text could quote a secret of the wrong type.
            let (line, column) = (error.line(), error.column());
            let unknown = error.to_string();
            let unknown = unknown.split(" at line").next().unwrap_or_default();
            let is_field = unknown.starts_with("unknown field") || unknown.starts_with("missing");
            let field = is_field.then(|| unknown.to_owned());
            KeysFault::Json { line, column, field }
        })?;
        if read.keys.is_empty() {
            return Err(KeysFault::Empty);
        }
        let mut all = HashMap::new();
        for (number, key) in read.keys.into_iter().enumerate() {
            let KeyText { access_key, secret_key, buckets, prefix, rights } = key;
            let number = number + 1;
            if access_key.is_empty() || secret_key.len() < 8 {
                return Err(KeysFault::Short { number });
            }
            let grant = Arc::new(Grant { rights, buckets, prefix });
            if all.insert(access_key, (SecretKey::from(secret_key), grant)).is_some() {
                return Err(KeysFault::Twice { number });
            }
        }
        Ok(Self(all))
    }
}

impl AccessKeys {
    /// Returns what the sender of a request may do, whose signature is right.
    ///
    /// # Errors
    /// `AccessDenied`; those of the signature, and of headers that are not supported.
    pub(crate) fn grant(
        &self,
        access_key: Option<&str>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> S3Result<Arc<Grant>> {
        let grant = self.grant_of(access_key)?;
        signing::check(uri, headers)?;
        unsupported_headers::check(uri, headers)?;
        Ok(grant)
    }

    fn grant_of(&self, access_key: Option<&str>) -> S3Result<Arc<Grant>> {
        match access_key.and_then(|it| self.table().0.get(it).cloned()) {
            Some((_, grant)) => Ok(grant),
            None => {
                let message = "the request is not signed: give your client an access key";
                Err(S3Error::with_message(S3ErrorCode::AccessDenied, message))
            }
        }
    }
}

#[async_trait::async_trait]
impl S3Auth for AccessKeys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.table().0.get(access_key) {
            Some((secret, _)) => Ok(secret.clone()),
            None => Err(S3ErrorCode::InvalidAccessKeyId.into()),
        }
    }
}

#[async_trait::async_trait]
impl S3Access for AccessKeys {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let grant = match context.extensions_mut().get::<Verified>().cloned() {
            // The sender and its signature were checked before the request was mended.
            Some(Verified(access_key)) => self.grant_of(Some(&access_key))?,
            None => {
                let access_key = context.credentials().map(|it| it.access_key.as_str());
                self.grant(access_key, context.uri(), context.headers())?
            }
        };
        let name = context.s3_op().name();
        unsupported_headers::check_conditions(name, context.uri(), context.headers())?;
        let is_write = !["Get", "Head", "List"].iter().any(|verb| name.starts_with(verb));
        let path = context.s3_path();
        if let Some(bucket) = path.get_bucket_name() {
            // What a request about the bucket alone touches is looked at where it is known.
            let is_whole = matches!(
                name,
                "CreateBucket" | "DeleteBucket" | "PutBucketCors" | "DeleteBucketCors"
            );
            let key = path.get_object_key().unwrap_or(if is_whole { "" } else { &grant.prefix });
            grant.check(bucket, key, is_write)?;
        }
        context.extensions_mut().insert(grant);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI";

    fn text(more: &str) -> String {
        format!(r#"{{"keys": [{{"access_key": "a", "secret_key": "{SECRET}"{more}}}]}}"#)
    }

    #[test]
    fn grant_bounds_bucket_prefix_and_rights() {
        let keys =
            AccessKeys::parse(&text(r#", "buckets": ["b"], "prefix": "p/", "rights": "read""#))
                .unwrap();
        let grant = &keys.table().0["a"].1;
        grant.check("b", "p/x", false).unwrap();
        assert!(grant.check("b", "p/x", true).is_err());
        assert!(grant.check("b", "q", false).is_err());
        assert!(grant.check("c", "p/x", false).is_err());
        assert!(!format!("{keys:?}").contains(SECRET));
    }

    #[test]
    fn wrong_files_are_refused_without_printing_secrets() {
        for more in [r#", "right": "read""#, r#", "rights": "all""#, r#", "prefix": 7"#, "}"] {
            let why = AccessKeys::parse(&text(more)).unwrap_err().to_string();
            assert!(!why.contains(SECRET), "{why}");
            assert!(why.contains("line 1"), "{why}");
        }
        assert_eq!(AccessKeys::parse(r#"{"keys": []}"#).unwrap_err(), KeysFault::Empty);
        assert!(
            AccessKeys::parse(&format!(r#"{{"keys": [{{"access_key": "{SECRET}"}}]}}"#)).is_err()
        );
    }

    #[test]
    fn file_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("sanderling-keys-{}", std::process::id()));
        std::fs::write(&path, text("")).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
        mode(0o640).unwrap();
        assert!(matches!(AccessKeys::read(&path), Err(KeysError::Mode { mode: 0o640, .. })));
        mode(0o600).unwrap();
        AccessKeys::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
