use sanderling_protocol::order::{Damage, DamagedBlock};

use super::*;

const BLOCK: BlockId = BlockId(7);
const ONE: Epoch = Epoch(1);
const TWO: Epoch = Epoch(2);

type Table = BlockTable<Vec<u8>>;

fn request(offset: u64, bytes: u32) -> WriteRequest {
    WriteRequest { block: BLOCK, epoch: ONE, tier: Tier::Dram, offset, bytes }
}

fn store(epoch: Epoch, bytes: u32) -> StoreRequest {
    StoreRequest { block: BLOCK, epoch, tier: Tier::Dram, bytes }
}

fn begin(table: &mut Table, offset: u64, bytes: u32) -> (WriteTicket, Vec<u8>) {
    match table.admit_write(&request(offset, bytes)).unwrap() {
        WriteAdmission::Append { ticket, bytes } => (ticket, bytes.unwrap_or_default()),
        WriteAdmission::AlreadyThere { .. } => panic!("an append was expected"),
    }
}

fn write(table: &mut Table, offset: u64, run: &[u8]) -> Result<u32, Refusal> {
    let bytes = u32::try_from(run.len()).unwrap();
    match table.admit_write(&request(offset, bytes))? {
        WriteAdmission::Append { ticket, bytes } => {
            let mut all = bytes.unwrap_or_default();
            all.extend_from_slice(run);
            table.wrote(ticket, all)
        }
        WriteAdmission::AlreadyThere { bytes, length } => {
            let start = usize::try_from(offset).unwrap();
            if bytes[start..].starts_with(run) {
                Ok(length)
            } else {
                Err(table.not_at_end(&request(offset, 1)))
            }
        }
    }
}

fn read(table: &Table, epoch: Epoch, bytes: u32) -> Result<Vec<u8>, Refusal> {
    table.admit_read(BLOCK, epoch, 0, bytes).map(|held| held.cloned().unwrap_or_default())
}

#[test]
fn block_grows_at_its_end_only() {
    let mut table = Table::default();
    assert_eq!(write(&mut table, 0, b"abc"), Ok(3));
    assert_eq!(write(&mut table, 3, b"de"), Ok(5));
    let gap = Refusal::NotAtEnd { block: BLOCK, length: 5, offset: 6 };
    assert_eq!(write(&mut table, 6, b"x"), Err(gap));
    let overlap = Refusal::NotAtEnd { block: BLOCK, length: 5, offset: 4 };
    assert_eq!(write(&mut table, 4, b"ef"), Err(overlap));
    assert_eq!(read(&table, ONE, 5).unwrap(), b"abcde");
    assert_eq!((table.blocks(), table.bytes()), (1, 5));
}

#[test]
fn repeated_write_is_acknowledged_when_the_bytes_are_the_same() {
    let mut table = Table::default();
    write(&mut table, 0, b"abcde").unwrap();
    assert_eq!(write(&mut table, 1, b"bc"), Ok(5));
    let differs = Refusal::NotAtEnd { block: BLOCK, length: 5, offset: 1 };
    assert_eq!(write(&mut table, 1, b"xx"), Err(differs));
}

#[test]
fn block_that_begins_in_the_middle_is_refused() {
    let mut table = Table::default();
    let refusal = Refusal::NotAtEnd { block: BLOCK, length: 0, offset: 3 };
    assert_eq!(write(&mut table, 3, b"x"), Err(refusal));
    assert_eq!(table.blocks(), 0);
}

#[test]
fn write_without_bytes_or_over_the_limit_is_refused() {
    let mut table = Table::default();
    assert!(matches!(table.admit_write(&request(0, 0)), Err(Refusal::BadRequest { .. })));
    for (offset, bytes) in
        [(0, BLOCK_BYTES_MAX + 1), (u64::from(BLOCK_BYTES_MAX), 1), (u64::MAX, 1), (1 << 32, 1)]
    {
        let refused = table.admit_write(&request(offset, bytes));
        assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{offset}+{bytes}");
    }
    assert_eq!(table.blocks(), 0);
}

#[test]
fn second_writer_at_the_same_offset_is_refused() {
    let mut table = Table::default();
    let (ticket, _) = begin(&mut table, 0, 3);
    let refusal = Refusal::NotAtEnd { block: BLOCK, length: 3, offset: 0 };
    assert_eq!(write(&mut table, 0, b"wxyz"), Err(refusal.clone()));
    let early = write(&mut table, 0, b"xyz");
    assert!(matches!(early, Err(Refusal::RetryAfter { .. })), "{early:?}");
    assert!(table.list(BlockId(0), 10).is_empty());
    assert_eq!(table.wrote(ticket, b"abc".to_vec()), Ok(3));
    assert_eq!(write(&mut table, 0, b"xyz"), Err(refusal));
    assert_eq!(read(&table, ONE, 3).unwrap(), b"abc");
}

#[test]
fn write_repeated_while_it_is_under_way_waits_and_is_acknowledged() {
    let mut table = Table::default();
    write(&mut table, 0, b"ab").unwrap();
    let (ticket, _) = begin(&mut table, 2, 3);
    let early = write(&mut table, 2, b"cde");
    assert!(matches!(early, Err(Refusal::RetryAfter { .. })), "{early:?}");
    let later = Refusal::NotAtEnd { block: BLOCK, length: 5, offset: 5 };
    assert_eq!(write(&mut table, 5, b"f"), Err(later));
    assert_eq!(table.wrote(ticket, b"abcde".to_vec()), Ok(5));
    assert_eq!(write(&mut table, 2, b"cde"), Ok(5));
}

#[test]
fn abandoned_write_leaves_the_block_as_it_was() {
    let mut table = Table::default();
    let (ticket, _) = begin(&mut table, 0, 3);
    table.abandon_write(ticket);
    assert_eq!(table.blocks(), 0);
    write(&mut table, 0, b"ab").unwrap();
    let (ticket, _) = begin(&mut table, 2, 3);
    table.abandon_write(ticket);
    assert_eq!(write(&mut table, 2, b"c"), Ok(3));
}

#[test]
fn other_epochs_do_not_write() {
    let mut table = Table::default();
    write(&mut table, 0, b"a").unwrap();
    for asked in [Epoch(0), TWO] {
        let refused = table.admit_write(&WriteRequest { epoch: asked, ..request(1, 1) });
        assert_eq!(refused, Err(Refusal::StaleEpoch { block: BLOCK, here: ONE, asked }));
    }
}

#[test]
fn fenced_node_refuses_write_and_serves_read() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    table.fence_node();
    assert_eq!(write(&mut table, 3, b"d"), Err(Refusal::Moved { block: BLOCK, length: 3 }));
    let new = WriteRequest { block: BlockId(8), ..request(0, 1) };
    let refusal = Refusal::Moved { block: BlockId(8), length: 0 };
    assert_eq!(table.admit_write(&new), Err(refusal));
    assert_eq!(read(&table, ONE, 3).unwrap(), b"abc");
    table.unfence_node();
    assert_eq!(write(&mut table, 3, b"d"), Ok(4));
}

#[test]
fn fence_between_admission_and_publication_wins() {
    type Fence = fn(&mut Table);
    let fences: [Fence; 4] = [
        |table| table.fence_node(),
        |table| assert_eq!(table.fence_block(BLOCK, TWO), 2),
        |table| assert_eq!(table.admit_push(BLOCK, ONE).unwrap().length, 2),
        |table| assert!(table.drop_block(BLOCK, TWO).is_some()),
    ];
    for fence in fences {
        let mut table = Table::default();
        write(&mut table, 0, b"ab").unwrap();
        let (ticket, _) = begin(&mut table, 2, 3);
        fence(&mut table);
        let bytes = table.bytes();
        let refused = table.wrote(ticket, b"abcde".to_vec());
        assert!(matches!(refused, Err(Refusal::Moved { .. })), "{refused:?}");
        assert_eq!(table.bytes(), bytes);
    }
}

#[test]
fn first_write_that_meets_the_fence_leaves_nothing() {
    let mut table = Table::default();
    let (ticket, _) = begin(&mut table, 0, 3);
    table.fence_node();
    assert!(table.wrote(ticket, b"abc".to_vec()).is_err());
    assert_eq!((table.blocks(), table.bytes()), (0, 0));
}

#[test]
fn fenced_block_has_its_new_epoch_and_stays_fenced() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    assert_eq!(table.fence_block(BLOCK, TWO), 3);
    let stale = Refusal::StaleEpoch { block: BLOCK, here: TWO, asked: ONE };
    assert_eq!(write(&mut table, 3, b"d"), Err(stale.clone()));
    assert_eq!(read(&table, ONE, 3), Err(stale));
    assert_eq!(read(&table, TWO, 3).unwrap(), b"abc");
    table.fence_node();
    table.unfence_node();
    let now = WriteRequest { epoch: TWO, ..request(3, 1) };
    assert_eq!(table.admit_write(&now), Err(Refusal::Moved { block: BLOCK, length: 3 }));
    assert_eq!(table.fence_block(BLOCK, ONE), 3);
    assert_eq!(table.list(BlockId(0), 1)[0].epoch, TWO);
}

#[test]
fn block_fenced_before_its_first_write_is_never_written() {
    let mut table = Table::default();
    assert_eq!(table.fence_block(BLOCK, TWO), 0);
    assert!(matches!(write(&mut table, 0, b"a"), Err(Refusal::StaleEpoch { .. })));
    let mut table = Table::default();
    let nothing = PushAdmission { length: 0, bytes: None };
    assert_eq!(table.admit_push(BLOCK, ONE), Ok(nothing));
    assert_eq!(write(&mut table, 0, b"a"), Err(Refusal::Moved { block: BLOCK, length: 0 }));
    assert_eq!(table.admit_push(BLOCK, ONE).unwrap().length, 0);
}

#[test]
fn read_names_what_is_wrong() {
    let mut table = Table::default();
    assert_eq!(read(&table, ONE, 1), Err(Refusal::UnknownBlock { block: BLOCK }));
    write(&mut table, 0, b"abc").unwrap();
    let refusal = Refusal::OutOfRange { offset: 2, bytes: 2, end: 3 };
    assert_eq!(table.admit_read(BLOCK, ONE, 2, 2), Err(refusal));
    assert!(table.admit_read(BLOCK, ONE, u64::MAX, 2).is_err());
    assert!(table.admit_read(BLOCK, ONE, 3, 0).is_ok());
}

#[test]
fn read_at_a_newer_epoch_is_served_as_far_as_the_bytes_reach() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    assert_eq!(read(&table, TWO, 3).unwrap(), b"abc");
    let refusal = Refusal::StaleEpoch { block: BLOCK, here: ONE, asked: TWO };
    assert_eq!(read(&table, TWO, 4), Err(refusal));
}

#[test]
fn pushed_block_is_readable_and_takes_no_writes() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    assert_eq!(table.admit_push(BLOCK, TWO).unwrap_err().name(), "StaleEpoch");
    assert_eq!(write(&mut table, 3, b"d"), Ok(4));
    let push = table.admit_push(BLOCK, ONE).unwrap();
    assert_eq!((push.length, push.bytes.unwrap()), (4, b"abcd".to_vec()));
    assert_eq!(write(&mut table, 4, b"e"), Err(Refusal::Moved { block: BLOCK, length: 4 }));
    assert_eq!(read(&table, ONE, 4).unwrap(), b"abcd");
    assert_eq!(table.admit_push(BLOCK, ONE).unwrap().length, 4);
}

#[test]
fn stored_block_is_sealed_and_a_repeated_store_is_recognised() {
    let mut table = Table::default();
    assert_eq!(table.admit_store(&store(TWO, 3)), Ok(StoreAdmission::Copy));
    table.stored(&store(TWO, 3), b"abc".to_vec()).unwrap();
    table.stored(&store(TWO, 3), b"abc".to_vec()).unwrap();
    assert_eq!((table.blocks(), table.bytes()), (1, 3));
    assert_eq!(table.stage(BLOCK), Some(BlockStage::Sealed));
    let again = table.admit_store(&store(TWO, 3)).unwrap();
    assert_eq!(again, StoreAdmission::AlreadyThere { bytes: b"abc".to_vec() });
    assert!(matches!(table.admit_store(&store(TWO, 4)), Err(Refusal::NotAtEnd { .. })));
    assert!(matches!(table.admit_store(&store(ONE, 3)), Err(Refusal::StaleEpoch { .. })));
    let write = WriteRequest { epoch: TWO, ..request(3, 1) };
    assert_eq!(table.admit_write(&write), Err(Refusal::Moved { block: BLOCK, length: 3 }));
}

#[test]
fn store_replaces_an_older_copy_that_is_fenced() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    let open = Refusal::StillOpen { block: BLOCK };
    assert_eq!(table.admit_store(&store(Epoch(3), 3)), Err(open));
    assert!(matches!(table.admit_store(&store(ONE, 3)), Err(Refusal::StaleEpoch { .. })));
    table.admit_push(BLOCK, ONE).unwrap();
    table.stored(&store(Epoch(3), 3), b"abc".to_vec()).unwrap();
    assert_eq!((table.blocks(), table.bytes()), (1, 3));
    assert!(matches!(read(&table, ONE, 3), Err(Refusal::StaleEpoch { .. })));
    assert_eq!(read(&table, Epoch(3), 3).unwrap(), b"abc");
}

#[test]
fn fenced_node_refuses_stores_but_acknowledges_a_repeated_one() {
    let mut table = Table::default();
    table.stored(&store(TWO, 3), b"abc".to_vec()).unwrap();
    table.fence_node();
    assert!(table.stored(&store(TWO, 3), b"abc".to_vec()).is_ok());
    assert!(matches!(table.admit_store(&store(Epoch(3), 3)), Err(Refusal::Moved { .. })));
    let other = StoreRequest { block: BlockId(9), ..store(TWO, 3) };
    assert!(matches!(table.stored(&other, b"abc".to_vec()), Err(Refusal::Moved { .. })));
}

#[test]
fn dropped_block_stays_away_but_may_be_stored_again() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    assert_eq!(table.drop_block(BLOCK, TWO), Some(b"abc".to_vec()));
    assert_eq!(table.drop_block(BLOCK, TWO), None);
    assert_eq!((table.blocks(), table.bytes()), (0, 0));
    assert_eq!(write(&mut table, 0, b"a"), Err(Refusal::Moved { block: BLOCK, length: 0 }));
    assert_eq!(table.admit_push(BLOCK, ONE), Err(Refusal::UnknownBlock { block: BLOCK }));
    assert_eq!(table.fence_block(BLOCK, TWO), 0);
    assert_eq!(table.blocks(), 0);
    let later = Epoch(3);
    table.stored(&store(later, 3), b"abc".to_vec()).unwrap();
    assert_eq!(read(&table, later, 3).unwrap(), b"abc");
}

#[test]
fn push_that_arrives_after_its_move_was_given_up_is_refused() {
    let mut table = Table::default();
    assert_eq!(table.admit_store(&store(TWO, 3)), Ok(StoreAdmission::Copy));
    assert_eq!(table.drop_block(BLOCK, TWO), None);
    let refused = table.stored(&store(TWO, 3), b"abc".to_vec());
    assert_eq!(refused, Err(Refusal::StaleEpoch { block: BLOCK, here: TWO, asked: TWO }));
    assert_eq!((table.blocks(), table.bytes()), (0, 0));
    // Reserved again it has another epoch. A drop of before that comes again changes nothing.
    table.drop_block(BLOCK, ONE);
    assert!(table.stored(&store(TWO, 3), b"abc".to_vec()).is_err());
    table.stored(&store(Epoch(3), 3), b"abc".to_vec()).unwrap();
    assert_eq!(table.drop_block(BLOCK, TWO), None);
    assert_eq!(table.blocks(), 1);
}

#[test]
fn tombstones_are_bounded() {
    let mut table = Table::default();
    for block in 0..TOMBSTONES_MAX as u64 + 10 {
        table.drop_block(BlockId(block), TWO);
    }
    assert_eq!(table.tombstones.order.len(), TOMBSTONES_MAX);
    assert_eq!(table.tombstones.blocks.len(), TOMBSTONES_MAX);
    assert!(!table.tombstones.contains(BlockId(9)));
    assert!(table.tombstones.contains(BlockId(10)));
}

#[test]
fn list_goes_on_page_by_page() {
    let mut table = Table::default();
    for block in [5, 1, 3] {
        let store = StoreRequest { block: BlockId(block), ..store(ONE, 1) };
        table.stored(&store, vec![0]).unwrap();
    }
    let ids = |page: &[HeldBlock]| page.iter().map(|held| held.block.0).collect::<Vec<_>>();
    assert_eq!(ids(&table.list(BlockId(0), 2)), [1, 3]);
    assert_eq!(ids(&table.list(BlockId(3), 2)), [5]);
    assert!(table.list(BlockId(5), 2).is_empty());
}

#[test]
fn wiped_table_is_empty_and_takes_no_write_of_its_past() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    table.fence_node();
    table.unfence_node();
    let (ticket, _) = begin(&mut table, 3, 1);
    assert_eq!(table.wipe(), [b"abc"]);
    assert_eq!((table.blocks(), table.bytes(), table.is_fenced()), (0, 0, false));
    // As many writes as before the wipe: the old ticket fits none of them.
    write(&mut table, 0, b"x").unwrap();
    let (_new, _) = begin(&mut table, 1, 1);
    assert!(table.wrote(ticket, b"abcd".to_vec()).is_err());
}

#[test]
fn next_incarnation_that_keeps_its_blocks_publishes_no_write_of_its_past() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    let (ticket, _) = begin(&mut table, 3, 1);
    let first = WriteRequest { block: BlockId(9), offset: 0, bytes: 1, ..request(0, 1) };
    let WriteAdmission::Append { ticket: unborn, .. } = table.admit_write(&first).unwrap() else {
        panic!("it is a first write");
    };
    table.revoke_writes();
    let is_moved = |answer: Result<u32, Refusal>| matches!(answer, Err(Refusal::Moved { .. }));
    assert!(is_moved(table.wrote(ticket, b"abcd".to_vec())));
    assert!(is_moved(table.wrote(unborn, b"x".to_vec())));
    assert_eq!((table.blocks(), table.bytes()), (1, 3));
    assert_eq!(read(&table, ONE, 3).unwrap(), b"abc");
    // The next incarnation may be the block's home and takes what is sent to it.
    assert_eq!(write(&mut table, 3, b"d").unwrap(), 4);
}

#[test]
fn adopted_block_is_read_as_it_is_in_the_object_tier() {
    let mut table = Table::default();
    assert_eq!(table.adopt(&store(TWO, 3), b"abc".to_vec()), Ok(None));
    assert_eq!(read(&table, TWO, 3).unwrap(), b"abc");
    assert_eq!((table.blocks(), table.bytes()), (1, 3));
    // Sent again it is there already; at an earlier epoch it is stale.
    assert_eq!(table.adopt(&store(TWO, 3), b"xyz".to_vec()), Ok(Some(b"xyz".to_vec())));
    assert!(matches!(
        table.adopt(&store(ONE, 3), b"xyz".to_vec()),
        Err(Refusal::StaleEpoch { .. })
    ));
    assert_eq!(read(&table, TWO, 3).unwrap(), b"abc");
    // A later epoch replaces it, and its bytes count no more.
    assert_eq!(table.adopt(&store(Epoch(3), 2), b"ab".to_vec()), Ok(Some(b"abc".to_vec())));
    assert_eq!((table.blocks(), table.bytes()), (1, 2));
}

#[test]
fn late_drop_spares_a_block_that_came_back() {
    let mut table = Table::default();
    table.stored(&store(TWO, 3), b"abc".to_vec()).unwrap();
    assert_eq!(table.drop_block(BLOCK, ONE), None);
    assert_eq!(table.list(BlockId(0), 9).len(), 1);
    assert!(table.drop_block(BLOCK, TWO).is_some());
}

#[test]
fn block_that_was_stored_anew_outlives_the_report_of_its_older_copy() {
    let mut table = Table::default();
    table.stored(&store(ONE, 3), b"abc".to_vec()).unwrap();
    table.stored(&store(TWO, 3), b"abc".to_vec()).unwrap();
    assert_eq!(table.drop_block_at(BLOCK, ONE), None);
    assert_eq!(table.drop_block_at(BLOCK, TWO), Some(b"abc".to_vec()));
}

#[test]
fn damaged_block_is_neither_served_nor_pushed_nor_written() {
    let mut table = Table::default();
    write(&mut table, 0, b"abc").unwrap();
    assert!(!table.mark_damaged(BLOCK, Damage::Checksum, |bytes| bytes == b"other"));
    assert_eq!(read(&table, ONE, 3).unwrap(), b"abc");
    let (ticket, mut bytes) = begin(&mut table, 3, 1);
    assert!(table.mark_damaged(BLOCK, Damage::Checksum, |bytes| bytes == b"abc"));
    assert!(!table.mark_damaged(BLOCK, Damage::Missing, |_| true), "it is known already");
    let damaged = Refusal::BlockDamaged { block: BLOCK };
    assert_eq!(read(&table, ONE, 3), Err(damaged.clone()));
    assert_eq!(read(&table, TWO, 1), Err(damaged.clone()));
    assert_eq!(table.admit_push(BLOCK, ONE), Err(damaged));
    bytes.push(b'd');
    let moved = Refusal::Moved { block: BLOCK, length: 3 };
    assert_eq!(table.wrote(ticket, bytes), Err(moved.clone()), "a write under way");
    assert_eq!(write(&mut table, 3, b"d"), Err(moved));
    let reported = table.damaged(BlockId(0), 10);
    let expected = DamagedBlock { block: BLOCK, epoch: ONE, damage: Damage::Checksum };
    assert_eq!(reported, [expected]);
    assert_eq!(table.list_bytes(BlockId(0), 10), []);
    assert_eq!(table.fence_block(BLOCK, TWO), 3, "its length was reported");
    assert_eq!(table.damaged(BlockId(0), 10)[0].epoch, TWO);
    // A good copy of it comes back.
    let good = store(Epoch(3), 3);
    assert_eq!(table.admit_store(&good), Ok(StoreAdmission::Copy));
    table.stored(&good, b"abc".to_vec()).unwrap();
    assert_eq!(read(&table, Epoch(3), 3).unwrap(), b"abc");
    assert_eq!(table.damaged(BlockId(0), 10), []);
}

#[test]
fn table_lacks_what_it_does_not_hold_as_long_as_expected() {
    let mut table = Table::default();
    let expected = |length| HeldBlock { block: BLOCK, epoch: ONE, length, tier: Tier::Dram };
    assert_eq!(table.lacks(&expected(3)), Some(Damage::Missing));
    let (ticket, _) = begin(&mut table, 0, 3);
    assert_eq!(table.lacks(&expected(3)), Some(Damage::Missing), "no byte is acknowledged");
    table.wrote(ticket, b"abc".to_vec()).unwrap();
    assert_eq!(table.lacks(&expected(3)), None);
    assert_eq!(table.lacks(&expected(2)), None, "more than was published");
    assert_eq!(table.lacks(&expected(4)), Some(Damage::Short));
    table.mark_damaged(BLOCK, Damage::Unreadable, |_| true);
    assert_eq!(table.lacks(&expected(3)), Some(Damage::Unreadable));
    table.drop_block(BLOCK, ONE);
    assert_eq!(table.lacks(&expected(3)), Some(Damage::Missing));
}
