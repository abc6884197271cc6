//! Options of a new object, as a dictionary of Python's.

use pyo3::prelude::*;
use sanderling_client::PutOptions;
use sanderling_protocol::Millis;
use sanderling_protocol::message::{Affinity, CreateKind, CreateMode};

use crate::error::{path, refused};

/// What `Store.put` and `Store.open` pass on.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NewObject {
    is_key_value: bool,
    replace: bool,
    parents: bool,
    storage_class: Option<String>,
    ttl_millis: Option<u64>,
    delete_after_read: bool,
    is_listed: bool,
    affinity: Option<String>,
    expected_bytes: Option<u64>,
}

impl NewObject {
    /// Returns the client's options.
    ///
    /// # Errors
    /// `BadRequest` for an unknown storage class or a bad path of affinity.
    pub(crate) fn checked(self, py: Python<'_>) -> PyResult<PutOptions> {
        let class = match &self.storage_class {
            Some(text) => text.parse().map_err(|refusal| refused(py, &refusal))?,
            None => PutOptions::default().class,
        };
        let affinity = match self.affinity {
            Some(text) if text.starts_with('/') => Some(Affinity::Object(path(py, &text)?)),
            Some(host) => Some(Affinity::Host(host)),
            None => None,
        };
        Ok(PutOptions {
            kind: if self.is_key_value { CreateKind::KeyValue } else { CreateKind::File },
            mode: if self.replace { CreateMode::Replace } else { CreateMode::New },
            parents: self.parents,
            is_listed: self.is_listed,
            class,
            affinity,
            ttl: self.ttl_millis.map(Millis),
            delete_after_read: self.delete_after_read,
            expected_bytes: self.expected_bytes,
        })
    }
}
