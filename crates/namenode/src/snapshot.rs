//! Snapshots: the whole catalog in one file, so that the journal before it can go.
//!
//! ```text
//! 8 bytes magic, u32 version, u32 CRC32C of the body, u64 body bytes, body (postcard `Catalog`)
//! ```

use std::fs;
use std::io;
use std::path::Path;

use sanderling_core::catalog::Catalog;
use sanderling_protocol::checksum::crc32c;

use crate::directory::{Directory, Kind};
use crate::error::StartError;

const MAGIC: [u8; 8] = *b"SNDLSNAP";
const VERSION: u32 = 4;
const HEADER_BYTES: usize = 24;

/// Encodes a catalog.
pub(crate) fn encode(catalog: &Catalog) -> Result<Vec<u8>, String> {
    postcard::to_stdvec(catalog).map_err(|error| error.to_string())
}

/// Writes an encoded catalog as the snapshot after `index` commands. It is whole and on the disk
/// when this returns, or not there.
pub(crate) fn write(directory: &Directory, index: u64, body: &[u8]) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&crc32c(body).to_le_bytes());
    header[16..].copy_from_slice(&(body.len() as u64).to_le_bytes());
    directory.publish(&directory.file(Kind::Snapshot, index), &[&header, body]).map(drop)
}

/// Reads a snapshot. One that is not what was written is refused.
pub(crate) fn read(path: &Path) -> Result<Catalog, StartError> {
    let corrupt =
        |why: &str| StartError::CorruptSnapshot { path: path.to_owned(), why: why.to_owned() };
    let bytes = fs::read(path).map_err(|cause| StartError::Files {
        what: "read",
        path: path.to_owned(),
        cause,
    })?;
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(corrupt("it is shorter than its header"));
    };
    if header[..8] != MAGIC {
        return Err(corrupt("it does not start like a snapshot"));
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
    if number(8) != VERSION {
        return Err(corrupt(&format!("version {} where {VERSION} is read", number(8))));
    }
    let length = u64::from_le_bytes(header[16..].try_into().expect("eight bytes"));
    if length != body.len() as u64 {
        return Err(corrupt(&format!("{} bytes where it claims {length}", body.len())));
    }
    if crc32c(body) != number(12) {
        return Err(corrupt("its checksum is another"));
    }
    match postcard::take_from_bytes(body) {
        Ok((catalog, [])) => Ok(catalog),
        Ok(_) => Err(corrupt("bytes follow the catalog")),
        Err(error) => Err(corrupt(&format!("it holds no catalog: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{ClusterId, Millis};

    use super::*;

    #[test]
    fn snapshot_is_read_back_and_refused_with_any_byte_changed() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let catalog = Catalog::new(ClusterId(7), Millis(1000));
        write(&directory, 3, &encode(&catalog).unwrap()).unwrap();
        let path = directory.file(Kind::Snapshot, 3);
        assert_eq!(read(&path).unwrap(), catalog);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            assert!(
                matches!(read(&path), Err(StartError::CorruptSnapshot { .. })),
                "byte {at} was changed"
            );
            fs::write(&path, &whole[..at]).unwrap();
            assert!(matches!(read(&path), Err(StartError::CorruptSnapshot { .. })));
        }
    }
}
