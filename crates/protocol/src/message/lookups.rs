//! Looking many names up at once.

use serde::{Deserialize, Serialize};

use super::namespace::{BlockLocation, NodeAddress, ObjectKind};
use crate::ids::ObjectId;
use crate::path::Path;
use crate::refusal::Refusal;

/// Many paths in one piece of memory, so that none of them costs one of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub struct Paths {
    text: String,
    /// Where each path ends in the text.
    ends: Vec<u32>,
}

/// How paths travel.
#[derive(Serialize, Deserialize)]
struct Packed {
    text: String,
    lengths: Vec<u32>,
}

impl Paths {
    /// Returns the number of paths in the request.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the request has no path.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a path behind the others. A request has at most
    /// [`LOOKUPS_MAX`](crate::limits::LOOKUPS_MAX) of them: the namenode refuses a longer one.
    ///
    /// # Panics
    /// At 4 GiB of text, which many times that many paths do not have.
    pub fn push(&mut self, path: &Path) {
        self.text.push_str(path.as_str());
        self.ends.push(u32::try_from(self.text.len()).expect("fewer than 4 GiB of paths"));
    }

    /// Returns the texts in their order. From a peer they may be no valid paths; then nothing has
    /// such a name.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start as usize..*end as usize])
    }
}

impl<'a> FromIterator<&'a Path> for Paths {
    fn from_iter<I: IntoIterator<Item = &'a Path>>(paths: I) -> Self {
        let mut all = Self::default();
        paths.into_iter().for_each(|path| all.push(path));
        all
    }
}

impl From<Paths> for Packed {
    fn from(paths: Paths) -> Self {
        let starts = std::iter::once(0).chain(paths.ends.iter().copied());
        let lengths = starts.zip(&paths.ends).map(|(start, end)| end - start).collect();
        Self { text: paths.text, lengths }
    }
}

impl TryFrom<Packed> for Paths {
    type Error = Refusal;

    fn try_from(Packed { text, lengths: mut ends }: Packed) -> Result<Self, Refusal> {
        let mut end = 0_usize;
        for length in &mut ends {
            end += *length as usize;
            if !text.is_char_boundary(end) {
                return Err(Refusal::BadFrame { why: "a path ends inside a letter".to_owned() });
            }
            *length = u32::try_from(end).expect("a place in a text of one frame");
        }
        if end != text.len() {
            return Err(Refusal::BadFrame { why: "the paths' lengths are not theirs".to_owned() });
        }
        Ok(Self { text, ends })
    }
}

/// The answer for many paths: the metadata of each, then the data and blocks of all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// One for each path, in their order.
    pub found: Vec<Found>,
    /// The refusals, one for each path of which [`Found::object`] is 0, in their order.
    pub refusals: Vec<Refusal>,
    /// The values that live in the catalog, one behind the other.
    #[serde(with = "crate::byte_vec")]
    pub inline: Vec<u8>,
    /// The blocks, object by object. Blocks without bytes are left out.
    pub blocks: Vec<BlockLocation>,
    /// The addresses of the blocks' nodes, each node once.
    pub places: Vec<NodeAddress>,
}

/// The metadata of the object under one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The object; 0 when there is none.
    pub object: ObjectId,
    /// Its kind.
    pub kind: ObjectKind,
    /// Whether its writer has closed it. Directories always are.
    pub is_sealed: bool,
    /// Whether a client's first whole read deletes it.
    pub delete_after_read: bool,
    /// Published bytes; of a container 0.
    pub bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// Its number of bytes in [`Lookups::inline`].
    pub inline_bytes: u32,
    /// Its number of blocks in [`Lookups::blocks`].
    pub blocks: u32,
    /// Whether those are all; if not, a look-up of the object alone returns the rest.
    pub is_whole: bool,
}

impl Found {
    /// Returns the entry of a path without an object.
    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            object: ObjectId(0),
            kind: ObjectKind::File,
            is_sealed: false,
            delete_after_read: false,
            bytes: 0,
            lost_bytes: 0,
            inline_bytes: 0,
            blocks: 0,
            is_whole: true,
        }
    }
}

/// The result of a look-up of many paths for one of them: one part of [`Lookups`].
#[derive(Debug, Clone, Copy)]
pub struct LookedUp<'a> {
    /// Its kind.
    pub found: Found,
    /// The first of its bytes, those that live in the catalog.
    pub inline: &'a [u8],
    /// Its blocks.
    pub blocks: &'a [BlockLocation],
}

impl Lookups {
    /// Takes the answer apart, path by path. `None` when its counts do not fit together, which no
    /// namenode sends.
    ///
    /// # Errors
    /// In the place of a path whose look-up was refused, the refusal: [`Refusal::recovery`] is the
    /// next step for this path; the others are not affected.
    #[must_use]
    pub fn apart(&self) -> Option<Vec<Result<LookedUp<'_>, &Refusal>>> {
        let (mut inline, mut blocks) = (self.inline.as_slice(), self.blocks.as_slice());
        let mut refusals = self.refusals.iter();
        let mut apart = Vec::with_capacity(self.found.len());
        for found in &self.found {
            if found.object == ObjectId(0) {
                apart.push(Err(refusals.next()?));
                continue;
            }
            let (of_inline, rest) = inline.split_at_checked(found.inline_bytes as usize)?;
            let (of_blocks, left) = blocks.split_at_checked(found.blocks as usize)?;
            (inline, blocks) = (rest, left);
            apart.push(Ok(LookedUp { found: *found, inline: of_inline, blocks: of_blocks }));
        }
        Some(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{decode_body, encode_body};

    fn paths() -> Paths {
        let paths: Vec<Path> = ["/", "/a/ü", "/b"].map(|text| text.parse().unwrap()).into();
        paths.iter().collect()
    }

    #[test]
    fn paths_have_golden_bytes() {
        let golden = b"\x08//a/\xc3\xbc/b\x03\x01\x05\x02";
        assert_eq!(encode_body(&paths()), golden);
        let read: Paths = decode_body(golden).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), ["/", "/a/ü", "/b"]);
        assert_eq!(read, paths());
    }

    #[test]
    fn lengths_that_are_not_the_texts_are_refused() {
        for lengths in [vec![1, 4, 3], vec![1, 5], vec![1, 5, 3], vec![u32::MAX, 5, 2], vec![]] {
            let text = "//a/ü/b".to_owned();
            let bytes = encode_body(&Packed { text, lengths });
            assert!(matches!(decode_body::<Paths>(&bytes), Err(Refusal::BadFrame { .. })));
        }
    }

    #[test]
    fn counts_that_do_not_fit_are_no_answer() {
        let found = Found { object: ObjectId(1), inline_bytes: 2, ..Found::nothing() };
        let mut lookups = Lookups { found: vec![found], ..Lookups::default() };
        assert!(lookups.apart().is_none());
        lookups.inline = vec![1, 2];
        assert_eq!(lookups.apart().unwrap()[0].unwrap().inline, [1, 2]);
        lookups.found.push(Found::nothing());
        assert!(lookups.apart().is_none());
    }
}
