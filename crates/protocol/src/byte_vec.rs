//! Bytes as one piece, where serde would take them one by one. The encoding is the same.

use serde::de::Visitor;
use serde::{Deserializer, Serializer};

/// Writes bytes.
pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Reads bytes.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_byte_buf(ByteVecVisitor)
}

struct ByteVecVisitor;

impl Visitor<'_> for ByteVecVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }
}

pub(crate) mod optional {
    //! Bytes as one piece that may be missing. The encoding is that of `Option<Vec<u8>>`.

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Piece(#[serde(with = "super")] Vec<u8>);

    #[derive(Serialize)]
    #[serde(transparent)]
    struct Borrowed<'a>(#[serde(serialize_with = "borrowed")] &'a [u8]);

    fn borrowed<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(bytes, serializer)
    }

    /// Writes bytes, if there are any.
    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(Borrowed).serialize(serializer)
    }

    /// Reads bytes, if there are any.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<Piece>::deserialize(deserializer)?.map(|piece| piece.0))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use crate::frame::{decode_body, encode_body};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Pieces {
        #[serde(with = "super")]
        whole: Vec<u8>,
        #[serde(with = "super::optional")]
        maybe: Option<Vec<u8>>,
    }

    #[test]
    fn bytes_are_written_as_a_list_of_bytes_is() {
        for maybe in [None, Some(vec![200, 1])] {
            let list = (vec![7_u8, 255], maybe.clone());
            let pieces = Pieces { whole: vec![7, 255], maybe };
            assert_eq!(encode_body(&pieces), encode_body(&list));
            assert_eq!(decode_body::<Pieces>(&encode_body(&list)).unwrap(), pieces);
        }
    }
}
