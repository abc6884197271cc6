//! Key-values: entries of a table, replaced at once, the last created wins.

use bytes::Bytes;
use sanderling_protocol::Path;
use sanderling_protocol::message::{CreateKind, CreateMode, ObjectKind, ObjectStat};

use crate::client::Client;
use crate::error::ClientError;
use crate::options::PutOptions;

impl Client {
    /// Makes an empty table of key-values and the missing directories above it, and returns its
    /// metadata. A table that exists stays as it is.
    ///
    /// # Errors
    /// `Exists` when something else has the name: choose another one.
    pub async fn make_table(&self, path: &Path) -> Result<ObjectStat, ClientError> {
        self.make_directory(path, ObjectKind::Table, true, true).await
    }

    /// Sets the value of a key in a table, in one step and in place of an earlier one. Returns the
    /// metadata of the key-value.
    ///
    /// # Errors
    /// `NotFound` when there is no such table: make it first. `BadPath` when the key is not a name:
    /// correct it.
    pub async fn put_value(
        &self,
        table: &Path,
        key: &str,
        value: Bytes,
    ) -> Result<ObjectStat, ClientError> {
        let path = table.join(key).map_err(ClientError::Refused)?;
        let (kind, mode) = (CreateKind::KeyValue, CreateMode::Replace);
        self.put(&path, value, &PutOptions { kind, mode, ..PutOptions::default() }).await
    }

    /// Returns the whole value of a key in a table.
    ///
    /// # Errors
    /// `NotFound` when the table has no such key: check the key; a retry does not help.
    pub async fn get_value(&self, table: &Path, key: &str) -> Result<Bytes, ClientError> {
        self.get(&table.join(key).map_err(ClientError::Refused)?).await
    }
}
