//! Options of a new object.

use pyo3::prelude::*;
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::Millis;
use sanderling_protocol::message::{CreateKind, CreateMode};

use crate::error::raised;

/// Options of `Store.put` and `Store.open`: checked once, used for many objects.
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
        let refused = |refusal| raised(py, &ClientError::Refused(refusal));
        let class = storage_class.map(str::parse).transpose().map_err(refused)?;
        let affinity = affinity.map(sanderling_native::affinity).transpose().map_err(refused)?;
        let default = PutOptions::default();
        Ok(Self(PutOptions {
            kind: if is_key_value { CreateKind::KeyValue } else { CreateKind::File },
            mode: if replace { CreateMode::Replace } else { CreateMode::New },
            condition: condition.map(sanderling_native::condition),
            parents,
            is_listed,
            class: class.unwrap_or(default.class),
            affinity,
            ttl: ttl_millis.map(Millis),
            delete_after_read,
            attributes: attributes.into_iter().collect(),
            is_inline_allowed,
            ..default
        }))
    }
}
