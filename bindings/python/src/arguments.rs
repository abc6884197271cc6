//! Arguments of calls, read from Python's objects.

use std::ops::Deref;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use sanderling_client::{PutOptions, Reader};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::refusal::ByteRange;

use crate::buffer::{ReadBuffer, WriteBuffer, release_pending};
use crate::error::path;
use crate::files::PyReader;
use crate::options::PyOptions;

/// An argument of a call, converted from a Python object to this type of the client.
pub(crate) struct Argument<T>(pub(crate) T);

impl<T> Deref for Argument<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Reads each argument with a function of Python's object.
macro_rules! arguments {
    ($($type:ty => |$object:ident| $read:expr;)*) => {$(
        impl<'py> FromPyObject<'_, 'py> for $type {
            type Error = PyErr;

            fn extract($object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
                $read
            }
        }
    )*};
}

arguments! {
    Argument<Path> => |text| path(text.py(), &text.extract::<PyBackedStr>()?).map(Self);
    Argument<Vec<Path>> => |texts| {
        let texts: Vec<Argument<Path>> = texts.extract()?;
        Ok(Self(texts.into_iter().map(|text| text.0).collect()))
    };
    Argument<Bytes> => |data| ReadBuffer::of(&data).map(|data| Self(data.into_bytes()));
    Argument<Vec<(Path, Bytes)>> => |objects| {
        let found = objects.extract::<Vec<(Argument<Path>, Argument<Bytes>)>>();
        // Some may be open when one is refused.
        let found = found.inspect_err(|_| release_pending(objects.py()))?;
        Ok(Self(found.into_iter().map(|(path, data)| (path.0, data.0)).collect()))
    };
    Argument<PutOptions> => |options| Ok(Self(options.cast::<PyOptions>()?.get().0.clone()));
    Argument<Vec<ByteRange>> => |pairs| {
        let pairs: Vec<(u64, u64)> = pairs.extract()?;
        Ok(Self(pairs.into_iter().map(|(offset, bytes)| ByteRange { offset, bytes }).collect()))
    };
    Argument<Vec<(Reader, Vec<ByteRange>)>> => |wanted| {
        let wanted: Vec<(PyRef<'py, PyReader>, Argument<Vec<ByteRange>>)> = wanted.extract()?;
        let wanted = wanted.into_iter();
        Ok(Self(wanted.map(|(file, ranges)| (file.reader().clone(), ranges.0)).collect()))
    };
    Argument<ObjectKind> => |kind| match kind.extract::<PyBackedStr>()?.as_ref() {
        "directory" => Ok(Self(ObjectKind::Directory)),
        "multifile" => Ok(Self(ObjectKind::Multifile)),
        "table" => Ok(Self(ObjectKind::Table)),
        other => {
            let text = format!("kind {other:?} is none of directory, multifile, table");
            Err(PyValueError::new_err(text))
        }
    };
    WriteBuffer => |buffer| Self::of(&buffer);
}
