//! The blocks of one object: none or one without memory of their own.

use sanderling_protocol::BlockId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Blocks in the order of their bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockList(BlockIds);

#[derive(Debug, Clone, Default)]
#[allow(clippy::box_collection, reason = "most objects have one block: the rest pays the step")]
enum BlockIds {
    #[default]
    None,
    One(BlockId),
    Many(Box<Vec<BlockId>>),
}

impl BlockList {
    pub(crate) fn as_slice(&self) -> &[BlockId] {
        match &self.0 {
            BlockIds::None => &[],
            BlockIds::One(block) => std::slice::from_ref(block),
            BlockIds::Many(blocks) => blocks,
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, BlockId> {
        self.as_slice().iter()
    }

    pub(crate) fn push(&mut self, block: BlockId) {
        match &mut self.0 {
            BlockIds::None => self.0 = BlockIds::One(block),
            BlockIds::One(first) => self.0 = BlockIds::Many(Box::new(vec![*first, block])),
            BlockIds::Many(blocks) => blocks.push(block),
        }
    }

    pub(crate) fn remove(&mut self, block: BlockId) {
        match &mut self.0 {
            BlockIds::One(only) if *only == block => self.0 = BlockIds::None,
            BlockIds::None | BlockIds::One(_) => {}
            BlockIds::Many(blocks) => {
                // What is given back was mostly reserved last.
                if let Some(place) = blocks.iter().rposition(|it| *it == block) {
                    blocks.remove(place);
                }
                if let [only] = blocks.as_slice() {
                    self.0 = BlockIds::One(*only);
                }
            }
        }
    }
}

impl PartialEq for BlockList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for BlockList {}

impl Serialize for BlockList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BlockList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let blocks = Vec::<BlockId>::deserialize(deserializer)?;
        Ok(Self(match blocks.as_slice() {
            [] => BlockIds::None,
            [only] => BlockIds::One(*only),
            _ => BlockIds::Many(Box::new(blocks)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_and_go_in_their_order() {
        let mut list = BlockList::default();
        for block in 1..=3 {
            list.push(BlockId(block));
        }
        list.remove(BlockId(2));
        assert_eq!(list.as_slice(), [BlockId(1), BlockId(3)]);
        list.remove(BlockId(7));
        list.remove(BlockId(1));
        assert_eq!(list.as_slice(), [BlockId(3)]);
        list.remove(BlockId(3));
        assert_eq!(list, BlockList::default());
        assert_eq!(size_of::<BlockList>(), 16);
    }
}
