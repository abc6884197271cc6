//! Key-values: entries of a table, replaced at once, the last created wins.

use bytes::Bytes;
use sanderling_protocol::Path;
use sanderling_protocol::message::{CreateKind, CreateMode, ObjectKind, ObjectStat};

use crate::client::Client;
use crate::error::ClientError;
use crate::options::PutOptions;

impl Client {
    /// Makes a table, if it does not exist.
    ///
    /// # Errors
    /// `Exists` when something else has the name.
    pub async fn make_table(&self, path: &Path) -> Result<ObjectStat, ClientError> {
        self.make_directory(path, ObjectKind::Table, true, true).await
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// `NotFound` when there is no such table, `BadPath` when the key is not a name.
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

    /// Returns the value of a key.
    ///
    /// # Errors
    /// `NotFound` when the table has no such key.
    pub async fn get_value(&self, table: &Path, key: &str) -> Result<Bytes, ClientError> {
        self.get(&table.join(key).map_err(ClientError::Refused)?).await
    }
}
