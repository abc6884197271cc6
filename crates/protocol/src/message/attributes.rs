//! What applications keep beside an object's bytes, and on what they let a name change hands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Nonce, ObjectId};
use crate::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTES_BYTES_MAX};
use crate::path::Path;
use crate::refusal::Refusal;
use crate::time::Millis;

/// The attribute with the milliseconds of work that it took to make the object, as a decimal
/// number. It orders relocation, in place of the cost that the object's job hints at.
pub const RECOMPUTE_MILLIS: &str = "sanderling.recompute-millis";

/// How the names begin that are the store's own.
const RESERVED: &str = "sanderling.";

/// Small texts, by name, that an application keeps beside an object's bytes. The store returns
/// them, and itself uses only [`RECOMPUTE_MILLIS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// Returns an empty set of attributes.
    #[must_use]
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns whether the set has no attribute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text of the attribute `name`; `None` if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets a text, in place of an older one of that name.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }

    /// Removes an attribute and returns its text, if it was there.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Sets all attributes of another set; they replace those of the same names.
    pub fn set_all(&mut self, others: &Self) {
        self.0.extend(others.0.iter().map(|(name, text)| (name.clone(), text.clone())));
    }

    /// Returns names and texts in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Returns how many bytes all names and texts have together, of at most
    /// [`ATTRIBUTES_BYTES_MAX`] for an object.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, text)| name.len() + text.len()).sum()
    }

    /// Returns what it cost to make an object of so many bytes, in milliseconds per MiB of it, if
    /// [`RECOMPUTE_MILLIS`] is set.
    #[must_use]
    pub fn recompute_millis_per_mib(&self, bytes: u64) -> Option<u64> {
        let millis: u64 = self.get(RECOMPUTE_MILLIS)?.parse().ok()?;
        let per_mib = u128::from(millis) * (1 << 20) / u128::from(bytes.max(1));
        Some(u64::try_from(per_mib).unwrap_or(u64::MAX))
    }

    /// Checks that an object may have these attributes: their sizes, and the names and texts of the
    /// store's own.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] beyond [`ATTRIBUTES_BYTES_MAX`], or of a name beyond
    /// [`ATTRIBUTE_NAME_BYTES_MAX`]; [`Refusal::BadRequest`] of an empty name, and of one of the
    /// store's own (`sanderling.`) that does not exist or has an invalid text. Drop or shorten the
    /// attribute that the refusal names.
    pub fn check(&self) -> Result<(), Refusal> {
        let refuse = |what: &str, value: usize, limit: usize| {
            let (what, value, limit) = (what.to_owned(), value as u64, limit as u64);
            Err(Refusal::TooLarge { what, value, limit })
        };
        for name in self.0.keys() {
            if name.is_empty() {
                let why = "an attribute's name is empty".to_owned();
                return Err(Refusal::BadRequest { why });
            }
            if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
                return refuse("an attribute's name", name.len(), ATTRIBUTE_NAME_BYTES_MAX);
            }
        }
        let bytes: usize = self.0.iter().map(|(name, text)| name.len() + text.len()).sum();
        if bytes > ATTRIBUTES_BYTES_MAX {
            return refuse("attributes of one object", bytes, ATTRIBUTES_BYTES_MAX);
        }
        self.0.iter().try_for_each(|(name, text)| check_reserved(name, text))
    }
}

/// Refuses a name that is the store's own and that it does not define, or a text that it cannot
/// use.
fn check_reserved(name: &str, text: &str) -> Result<(), Refusal> {
    let why = match name {
        RECOMPUTE_MILLIS if text.parse::<u64>().is_ok() => return Ok(()),
        RECOMPUTE_MILLIS => format!("attribute {name}: {text:?} is no number of milliseconds"),
        _ if name.starts_with(RESERVED) => {
            format!("attribute {name}: names that begin with {RESERVED:?} are the store's own")
        }
        _ => return Ok(()),
    };
    Err(Refusal::BadRequest { why })
}

impl<N: Into<String>, T: Into<String>> FromIterator<(N, T)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(all: I) -> Self {
        Self(all.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
    }
}

/// A condition on the object under a name, which a new object is to replace. The namenode checks it
/// when the new object is created, and again in the same step in which it takes the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Nothing; else `Exists`.
    Absent,
    /// This object and no other; else `Changed`. A replacement has another id, a rename the same.
    Is(ObjectId),
}

/// Makes one sealed file of the blocks of others, in their order. No byte moves, and the parts are
/// gone in the same step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concat {
    /// Sealed files of one job, each at most once. Only the first may have bytes in the catalog.
    pub parts: Vec<Path>,
    /// The new file, which replaces one of that name.
    pub to: Path,
    /// The condition on the object under that name; `None` for no condition.
    pub condition: Option<Condition>,
    /// Make missing directories above it.
    pub parents: bool,
    /// Whether its directory's listing shows it.
    pub is_listed: bool,
    /// Time it has; `None` to keep it.
    pub ttl: Option<Millis>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Drawn by the caller, so that a repeated request is known.
    pub writer: Nonce,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{decode_body, encode_body};

    #[test]
    fn attributes_travel_as_names_and_texts_in_order() {
        let attributes: Attributes = [("b", "2"), ("a", "")].into_iter().collect();
        assert_eq!(encode_body(&attributes), b"\x02\x01a\x00\x01b\x012");
        assert_eq!(decode_body::<Attributes>(b"\x02\x01a\x00\x01b\x012").unwrap(), attributes);
        assert_eq!(encode_body(&Attributes::none()), [0]);
    }

    #[test]
    fn too_many_too_long_and_nameless_ones_are_refused() {
        let all = |name: String, text: String| [(name, text)].into_iter().collect::<Attributes>();
        let a = |times: usize| "a".repeat(times);
        assert_eq!(all(a(1), a(ATTRIBUTES_BYTES_MAX - 1)).check(), Ok(()));
        assert!(matches!(
            all(a(1), a(ATTRIBUTES_BYTES_MAX)).check(),
            Err(Refusal::TooLarge { value, .. }) if value == ATTRIBUTES_BYTES_MAX as u64 + 1
        ));
        assert!(matches!(
            all(a(ATTRIBUTE_NAME_BYTES_MAX + 1), a(0)).check(),
            Err(Refusal::TooLarge { .. })
        ));
        assert!(matches!(all(a(0), a(1)).check(), Err(Refusal::BadRequest { .. })));
    }

    #[test]
    fn cost_to_make_an_object_is_a_number_and_no_other_name_of_the_store_is_taken() {
        let of = |name: &str, text: &str| [(name, text)].into_iter().collect::<Attributes>();
        let cost = of(RECOMPUTE_MILLIS, "3000");
        assert_eq!(cost.check(), Ok(()));
        assert_eq!(cost.recompute_millis_per_mib(2 << 20), Some(1500));
        assert_eq!(cost.recompute_millis_per_mib(0), Some(3000 << 20));
        assert_eq!(Attributes::none().recompute_millis_per_mib(1), None);
        let most = of(RECOMPUTE_MILLIS, &u64::MAX.to_string());
        assert_eq!(most.recompute_millis_per_mib(1), Some(u64::MAX));
        for text in ["", "-1", "1.5", "18446744073709551616"] {
            let refused = of(RECOMPUTE_MILLIS, text).check();
            assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{text}");
        }
        let unknown = of("sanderling.colour", "blue").check();
        assert!(matches!(unknown, Err(Refusal::BadRequest { .. })));
    }
}
