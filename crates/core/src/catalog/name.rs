//! Names inside a container, small ones without memory of their own.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest name that needs no memory of its own: what fits beside the length in three words.
const SHORT_BYTES_MAX: usize = 22;

/// One component of a path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Name(NameRepr);

#[derive(Clone, PartialEq, Eq)]
enum NameRepr {
    Short { length: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<str>),
}

impl Name {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            NameRepr::Short { length, bytes } => &bytes[..usize::from(*length)],
            NameRepr::Long(text) => text.as_bytes(),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            NameRepr::Short { .. } => std::str::from_utf8(self.as_bytes()).expect("made of a str"),
            NameRepr::Long(text) => text,
        }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        if text.len() > SHORT_BYTES_MAX {
            return Self(NameRepr::Long(Box::from(text)));
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self(NameRepr::Short { length: text.len() as u8, bytes })
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_are_kept_and_take_three_words() {
        assert_eq!(size_of::<Name>(), 24);
        for length in [0, 1, SHORT_BYTES_MAX - 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 255] {
            let text = "ü".repeat(length / 2) + &"x".repeat(length % 2);
            assert_eq!(Name::from(text.as_str()).as_str(), text);
        }
    }
}
