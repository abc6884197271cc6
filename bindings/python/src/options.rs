//! Options of a new object.

use pyo3::prelude::*;
use sanderling_client::PutOptions;
use sanderling_protocol::message::{Affinity, Condition, CreateKind, CreateMode};
use sanderling_protocol::{Millis, ObjectId};

use crate::error::{path, refused};

/// What `Store.put` and `Store.open` pass on: made once, used for many objects.
#[pyclass(frozen, name = "Options")]
pub(crate) struct PyOptions(pub(crate) PutOptions);

#[pymethods]
impl PyOptions {
    /// Raises `BadRequest` for an unknown storage class or a bad path of affinity.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are the keywords of Python's put")]
    fn new(
        py: Python<'_>,
        replace: bool,
        parents: bool,
        storage_class: Option<&str>,
        ttl_millis: Option<u64>,
        delete_after_read: bool,
        is_listed: bool,
        affinity: Option<&str>,
        is_key_value: bool,
        attributes: Vec<(String, String)>,
        condition: Option<u64>,
        is_inline_allowed: bool,
    ) -> PyResult<Self> {
        let class = match storage_class {
            Some(text) => text.parse().map_err(|refusal| refused(py, &refusal))?,
            None => PutOptions::default().class,
        };
        let affinity = match affinity {
            Some(text) if text.starts_with('/') => Some(Affinity::Object(path(py, text)?)),
            Some(host) => Some(Affinity::Host(host.to_owned())),
            None => None,
        };
        Ok(Self(PutOptions {
            kind: if is_key_value { CreateKind::KeyValue } else { CreateKind::File },
            mode: if replace { CreateMode::Replace } else { CreateMode::New },
            condition: condition.map(wanted),
            parents,
            is_listed,
            class,
            affinity,
            ttl: ttl_millis.map(Millis),
            delete_after_read,
            attributes: attributes.into_iter().collect(),
            is_inline_allowed,
            ..PutOptions::default()
        }))
    }
}

/// Returns what must be under a name: an object, or with the id that no object has, nothing.
fn wanted(object: u64) -> Condition {
    if object == 0 { Condition::Absent } else { Condition::Is(ObjectId(object)) }
}
