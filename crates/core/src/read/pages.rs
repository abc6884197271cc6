//! The layout of an object, page by page.

use std::ops::Range;

use sanderling_protocol::Request;
use sanderling_protocol::message::Layout;

/// A reader's next step after one page of an object's layout has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum AfterPage {
    /// Request the next one.
    Next(Request),
    /// It was the last one: this is the layout.
    Whole(Box<Layout>),
}

/// Gathers the layout of a range of an object, which the namenode sends in pages of blocks. Each
/// page must follow the one before; the call fails otherwise.
#[derive(Debug)]
pub struct LayoutPages {
    /// Where the page that was requested begins.
    offset: u64,
    until: u64,
    /// End of the last block so far.
    end: u64,
    whole: Option<Layout>,
}

impl LayoutPages {
    /// Returns the state before the first page of a range, in bytes of the object.
    #[must_use]
    pub const fn new(range: Range<u64>) -> Self {
        Self { offset: range.start, until: range.end, end: 0, whole: None }
    }

    /// Takes the page that was requested. `None`: the namenode sent one that does not follow the
    /// page before it, so that the call fails.
    pub fn take(&mut self, mut page: Layout) -> Option<AfterPage> {
        for block in &page.blocks {
            if block.offset < self.end {
                return None;
            }
            self.end = block.offset.checked_add(u64::from(block.length))?;
        }
        let next = page.next_offset.take();
        let whole = match self.whole.take() {
            None => page,
            Some(mut whole) if whole.stat.object == page.stat.object => {
                whole.blocks.append(&mut page.blocks);
                whole.places.append(&mut page.places);
                whole.places.sort_unstable_by_key(|place| place.node);
                whole.places.dedup_by_key(|place| place.node);
                whole
            }
            Some(_) => return None,
        };
        let Some(next) = next else { return Some(AfterPage::Whole(Box::new(whole))) };
        if next < self.end || next <= self.offset {
            return None;
        }
        let (object, bytes) = (whole.stat.object, self.until.saturating_sub(next));
        (self.offset, self.whole) = (next, Some(whole));
        Some(AfterPage::Next(Request::LookupObject { object, offset: next, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::NodeAddress;
    use sanderling_protocol::{NodeId, ObjectId};

    use super::*;
    use crate::read::tests::layout;

    fn page(offset: u64, lengths: &[u32], next_offset: Option<u64>) -> Layout {
        let blocks: Vec<_> = lengths.iter().map(|length| (*length, Some(1))).collect();
        let mut page = Layout { next_offset, ..layout(&blocks) };
        page.blocks.iter_mut().for_each(|block| block.offset += offset);
        page.places = [1, 2].map(place).to_vec();
        page
    }

    fn place(node: u32) -> NodeAddress {
        NodeAddress { node: NodeId(node), address: String::new(), host: String::new() }
    }

    #[test]
    fn pages_are_requested_to_the_end_of_the_range_and_joined() {
        let mut pages = LayoutPages::new(0..1000);
        let next = pages.take(page(0, &[100, 100], Some(200)));
        let request = Request::LookupObject { object: ObjectId(1), offset: 200, bytes: 800 };
        assert_eq!(next, Some(AfterPage::Next(request)));
        let mut last = page(200, &[50], None);
        last.places = [3, 2].map(place).to_vec();
        let Some(AfterPage::Whole(whole)) = pages.take(last) else { panic!("it is the last") };
        let offsets: Vec<u64> = whole.blocks.iter().map(|block| block.offset).collect();
        assert_eq!((offsets, whole.next_offset), (vec![0, 100, 200], None));
        assert_eq!(whole.places, [1, 2, 3].map(place));
    }

    #[test]
    fn page_that_does_not_follow_the_one_before_it_is_refused() {
        let taken = |second: Layout| {
            let mut pages = LayoutPages::new(0..u64::MAX);
            pages.take(page(0, &[100], Some(100))).expect("it is good");
            pages.take(second)
        };
        assert!(taken(page(100, &[100], Some(200))).is_some());
        assert!(taken(page(100, &[], None)).is_some());
        assert_eq!(taken(page(0, &[100], None)), None, "repeated");
        assert_eq!(taken(page(100, &[100], Some(150))), None, "the next one begins in a block");
        assert_eq!(taken(page(100, &[], Some(100))), None, "it would be requested for ever");
        assert_eq!(taken(page(u64::MAX - 1, &[100], None)), None, "no such offset");
        let mut other = page(100, &[100], None);
        other.stat.object = ObjectId(2);
        assert_eq!(taken(other), None, "another object");
        let mut reordered = page(100, &[100, 100], None);
        reordered.blocks.reverse();
        assert_eq!(taken(reordered), None);
    }
}
