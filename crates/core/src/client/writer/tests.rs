use sanderling_protocol::{Epoch, Tier};

use super::*;

const MIB: u32 = 1 << 20;

fn block(id: u64, node: u32) -> GrantedBlock {
    let (epoch, tier) = (Epoch(1), Tier::Dram);
    GrantedBlock { block: BlockId(id), epoch, node: NodeId(node), tier, bytes_max: 100 }
}

fn length(id: u64, length: u32) -> BlockLength {
    BlockLength { block: BlockId(id), length }
}

fn machine_with(window: usize, blocks: &[GrantedBlock]) -> WriteMachine<char> {
    WriteMachine::new(0, blocks, window)
}

fn machine(blocks: &[GrantedBlock]) -> WriteMachine<char> {
    machine_with(8, blocks)
}

fn send(machine: &mut WriteMachine<char>) -> (Placed, char) {
    match machine.next(WriteGoal::Settled) {
        WriteStep::Send(placed, payload) => (placed, payload),
        other => panic!("no write: {other:?}"),
    }
}

fn write(machine: &mut WriteMachine<char>, payload: char, length: u32) -> Placed {
    machine.push(payload, length);
    send(machine).0
}

fn requested(machine: &mut WriteMachine<char>) -> BlockRequest {
    match machine.next(WriteGoal::Settled) {
        WriteStep::AddBlocks(request) => request,
        other => panic!("no request: {other:?}"),
    }
}

fn fence(block: u64) -> Refusal {
    Refusal::Moved { block: BlockId(block), length: 0 }
}

fn full() -> Refusal {
    Refusal::NodeFull { tier: "dram".to_owned(), bytes: 100 }
}

fn refuse(machine: &mut WriteMachine<char>, placed: &Placed, refusal: &Refusal) -> AfterFailure {
    machine.refused(placed.number, &AttemptFailure::refused(refusal))
}

#[test]
fn pieces_fill_blocks_in_order_and_one_write_of_a_block_follows_the_other() {
    let mut machine = machine(&[block(1, 1), block(2, 2)]);
    let first = write(&mut machine, 'a', 100);
    let second = write(&mut machine, 'b', 60);
    assert_eq!((first.block.block, second.block.block), (BlockId(1), BlockId(2)));
    machine.push('c', 40);
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Wait, "block 2 has a write in flight");
    machine.acknowledged(second.number);
    assert_eq!(machine.lengths(), [length(1, 0)]);
    assert_eq!(machine.unsettled_bytes(), 200);
    machine.acknowledged(first.number);
    assert_eq!(machine.lengths(), [length(1, 100), length(2, 60)]);
    let (third, payload) = send(&mut machine);
    assert_eq!((third.block.block, third.offset, payload), (BlockId(2), 60, 'c'));
    machine.acknowledged(third.number);
    assert_eq!(machine.final_lengths(), Some(vec![length(1, 100), length(2, 100)]));
    assert_eq!(machine.unsettled_bytes(), 0);
}

#[test]
fn piece_is_cut_where_its_block_ends_also_a_second_time() {
    let mut machine = machine(&[block(1, 1), block(2, 2), block(3, 3)]);
    let first = write(&mut machine, 'a', 250);
    let (second, _) = send(&mut machine);
    let (third, payload) = send(&mut machine);
    let parts = [first, second, third].map(|it| (it.from, it.length, it.offset));
    assert_eq!((parts, payload), ([(0, 100, 0), (100, 100, 0), (200, 50, 0)], 'a'));
    refuse(&mut machine, &second, &fence(2));
    machine.granted(&[GrantedBlock { bytes_max: 70, ..block(4, 4) }, block(5, 5)]);
    let (again, _) = send(&mut machine);
    let (behind, _) = send(&mut machine);
    assert_eq!((again.from, again.length, again.block.block), (100, 70, BlockId(4)));
    assert_eq!((behind.from, behind.length, behind.block.block), (170, 30, BlockId(5)));
}

#[test]
fn window_bounds_writes_in_flight_and_goals_differ_in_what_they_wait_for() {
    let mut machine = machine_with(2, &[block(1, 1), block(2, 2), block(3, 3)]);
    let first = write(&mut machine, 'a', 100);
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Done);
    assert_eq!(machine.next(WriteGoal::Settled), WriteStep::Wait);
    let second = write(&mut machine, 'b', 100);
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Wait);
    machine.push('c', 100);
    assert_eq!(machine.next(WriteGoal::Settled), WriteStep::Wait, "the window is full");
    machine.acknowledged(first.number);
    let (third, _) = send(&mut machine);
    machine.acknowledged(second.number);
    machine.acknowledged(third.number);
    assert_eq!(machine.next(WriteGoal::Settled), WriteStep::Done);
}

#[test]
fn writer_that_failed_keeps_no_bytes() {
    let bytes = std::rc::Rc::new([0; 100]);
    let mut machine = WriteMachine::new(0, &[block(1, 1)], 8);
    (0..3).for_each(|_| machine.push(std::rc::Rc::clone(&bytes), 100));
    let WriteStep::Send(placed, sent) = machine.next(WriteGoal::Settled) else { panic!() };
    drop(sent);
    assert_eq!(std::rc::Rc::strong_count(&bytes), 4);
    machine.failed();
    assert_eq!(std::rc::Rc::strong_count(&bytes), 1);
    assert!(!machine.acknowledged(placed.number), "its answer means nothing");
    assert_eq!(machine.begin(), Err(ClosedWriter::Failed));
}

#[test]
fn window_is_bounded_whatever_is_configured() {
    let mut machine = machine_with(usize::MAX, &[]);
    for id in 1..=WINDOW_MAX as u64 {
        machine.granted(&[block(id, 1)]);
        write(&mut machine, 'a', 100);
    }
    machine.granted(&[block(WINDOW_MAX as u64 + 1, 1)]);
    machine.push('a', 100);
    assert_eq!(machine.next(WriteGoal::Settled), WriteStep::Wait);
}

#[test]
fn refused_block_ends_where_it_was_acknowledged_and_the_rest_is_written_again() {
    let mut machine = machine(&[block(1, 1), block(2, 2), block(3, 1), block(4, 3)]);
    let first = write(&mut machine, 'a', 40);
    machine.acknowledged(first.number);
    let second = write(&mut machine, 'b', 60);
    let third = write(&mut machine, 'c', 100);
    machine.acknowledged(third.number);
    let gone = machine.refused(second.number, &AttemptFailure::NO_ANSWER);
    assert_eq!(gone, AfterFailure::Pause);
    assert_eq!(machine.final_lengths(), None);
    let (again, payload) = send(&mut machine);
    assert_eq!((again.block.block, payload), (BlockId(4), 'b'), "block 3 is on the node, too");
    machine.acknowledged(again.number);
    let lengths = [length(1, 40), length(2, 0), length(3, 0), length(4, 60)];
    assert_eq!(machine.lengths(), lengths);
    let (last, payload) = send(&mut machine);
    assert_eq!((last.offset, last.length, payload), (60, 40, 'c'), "it was acknowledged in vain");
    machine.acknowledged(last.number);
    let request = requested(&mut machine);
    assert_eq!((request.avoid, request.count), (vec![NodeId(1)], 1));
    assert_eq!(request.ended, [length(1, 40), length(2, 0), length(3, 0), length(4, 100)]);
}

#[test]
fn bytes_behind_a_refused_block_are_written_again_though_their_own_block_had_ended() {
    let mut machine = machine(&[block(1, 1), block(2, 2), block(3, 3)]);
    let first = write(&mut machine, 'a', 100);
    let second = write(&mut machine, 'b', 30);
    machine.acknowledged(second.number);
    let third = write(&mut machine, 'c', 70);
    refuse(&mut machine, &third, &fence(2));
    assert_eq!(machine.lengths(), [length(1, 0)], "nothing behind a gap is reported");
    let (third, _) = send(&mut machine);
    assert_eq!(third.block.block, BlockId(3));
    refuse(&mut machine, &first, &fence(1));
    assert_eq!(machine.lengths(), [length(1, 0), length(2, 0), length(3, 0)]);
    machine.granted(&[block(4, 4), block(5, 5)]);
    let (again, payload) = send(&mut machine);
    assert_eq!((again.block.block, payload), (BlockId(4), 'a'));
    assert_eq!(send(&mut machine).1, 'b');
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Wait, "c is behind b, in one block");
}

#[test]
fn late_and_repeated_answers_mean_nothing_but_are_waited_for() {
    let mut machine = machine_with(2, &[block(1, 1), block(2, 2), block(3, 3)]);
    let first = write(&mut machine, 'a', 100);
    let second = write(&mut machine, 'b', 100);
    refuse(&mut machine, &first, &fence(1));
    let (again, payload) = send(&mut machine);
    assert_eq!((again.block.block, payload), (BlockId(3), 'a'));
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Wait, "two writes are in flight");
    machine.acknowledged(first.number);
    assert_eq!(refuse(&mut machine, &first, &full()), AfterFailure::Late);
    assert!(!machine.acknowledged(second.number));
    assert_eq!(machine.lengths(), [length(1, 0), length(2, 0), length(3, 0)]);
    machine.acknowledged(again.number);
    machine.acknowledged(again.number);
    assert_eq!(refuse(&mut machine, &again, &full()), AfterFailure::Late);
    machine.acknowledged(u64::MAX);
    assert_eq!(machine.unsettled_bytes(), 100, "b waits for a block");
    let request = requested(&mut machine);
    assert_eq!(request.ended, [length(1, 0), length(2, 0), length(3, 100)]);
}

#[test]
fn object_is_not_sealed_while_an_abandoned_write_is_in_flight() {
    let mut machine = machine(&[block(1, 1), block(2, 2), block(3, 3), block(4, 4)]);
    let first = write(&mut machine, 'a', 100);
    let second = write(&mut machine, 'b', 100);
    refuse(&mut machine, &first, &fence(1));
    for _ in 0..2 {
        let (again, _) = send(&mut machine);
        machine.acknowledged(again.number);
    }
    assert_eq!(machine.next(WriteGoal::Settled), WriteStep::Wait);
    assert_eq!(machine.final_lengths(), None);
    assert_eq!(refuse(&mut machine, &second, &full()), AfterFailure::Late);
    assert_eq!(machine.next(WriteGoal::Settled), WriteStep::Done);
    let lengths = vec![length(1, 0), length(2, 0), length(3, 100), length(4, 100)];
    assert_eq!(machine.final_lengths(), Some(lengths));
}

#[test]
fn lengths_of_a_request_that_failed_are_reported_with_the_next_one() {
    let mut machine = machine(&[block(1, 1)]);
    let first = write(&mut machine, 'a', 100);
    machine.push('b', 100);
    let ahead = requested(&mut machine);
    assert_eq!(ahead.ended, [], "the block is not acknowledged yet");
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Wait, "one request at a time");
    machine.acknowledged(first.number);
    machine.not_granted();
    assert_eq!(requested(&mut machine).ended, [length(1, 100)]);
    assert_eq!(machine.lengths(), [length(1, 100)]);
    machine.not_granted();
    assert_eq!(requested(&mut machine).ended, [length(1, 100)]);
    assert!(machine.granted(&[block(2, 2)]));
    assert_eq!(machine.lengths(), [], "the namenode has it");
    machine.not_granted();
    assert_eq!(machine.lengths(), [], "there was no such request");
}

#[test]
fn grant_without_a_block_that_can_be_filled_is_none() {
    let mut machine = machine(&[block(2, 1)]);
    let empty = GrantedBlock { bytes_max: 0, ..block(3, 1) };
    assert!(!machine.granted(&[]));
    assert!(!machine.granted(&[empty, block(2, 1), block(1, 1)]), "empty, repeated, out of order");
    assert!(!machine.granted(&[block(3, 1)]), "it came without room before");
    assert!(machine.granted(&[block(4, 1), block(4, 2), block(5, 1)]));
    let blocks = ['a', 'b', 'c'].map(|it| write(&mut machine, it, 100).block.block.0);
    assert_eq!(blocks, [2, 4, 5]);
    machine.push('d', 1);
    assert_eq!(requested(&mut machine).ended, [length(3, 0)], "no block is left out");
}

#[test]
fn lengths_that_a_grant_without_a_block_took_are_reported_again() {
    let mut machine = machine(&[block(1, 1)]);
    let first = write(&mut machine, 'a', 100);
    machine.push('b', 100);
    machine.acknowledged(first.number);
    assert_eq!(requested(&mut machine).ended, [length(1, 100)]);
    assert!(!machine.granted(&[]));
    assert_eq!(machine.lengths(), [length(1, 100)], "its log may lose them unseen");
    assert_eq!(requested(&mut machine).ended, [length(1, 100)]);
    assert!(machine.granted(&[block(2, 2)]));
    assert_eq!(machine.lengths(), []);
}

#[test]
fn blocks_are_requested_for_what_waits_and_ahead_for_a_large_object() {
    let mut machine = machine(&[]);
    machine.passed(50);
    machine.push('a', 50);
    assert_eq!(requested(&mut machine).count, 1);
    machine.not_granted();
    machine.push('b', MIB);
    assert_eq!(requested(&mut machine).count, 2);
    machine.not_granted();
    machine.passed(u64::from(3 * MIB));
    assert_eq!(requested(&mut machine).count, BLOCKS_AHEAD);
    assert_eq!(machine.position(), 50 + u64::from(3 * MIB));
    let mut small = machine_with(8, &[]);
    (0..100).for_each(|_| small.push('c', MIB));
    assert_eq!(requested(&mut small).count, BLOCKS_AHEAD);
}

#[test]
fn fences_are_followed_at_once_until_too_many_come_without_progress() {
    let mut machine = machine_with(1, &[]);
    machine.push('a', 10);
    let mut last = 0;
    let mut fenced = |machine: &mut WriteMachine<char>| {
        last += 1;
        machine.granted(&[block(last, last as u32)]);
        let (placed, _) = send(machine);
        (placed, refuse(machine, &placed, &fence(last)))
    };
    for _ in 0..FENCES_MAX {
        assert_eq!(fenced(&mut machine).1, AfterFailure::GoOn);
    }
    assert_eq!(fenced(&mut machine).1, AfterFailure::Pause);
    last += 1;
    machine.granted(&[block(last, 1)]);
    let (placed, _) = send(&mut machine);
    machine.acknowledged(placed.number);
    machine.push('b', 100);
    let (placed, _) = send(&mut machine);
    assert_eq!(refuse(&mut machine, &placed, &fence(last)), AfterFailure::GoOn);
}

#[test]
fn only_a_write_that_arrived_wrong_leaves_the_other_blocks_of_its_node_in_use() {
    let id = BlockId(1);
    let damaged = Refusal::ChecksumMismatch { block: id, expected: 1, computed: 2 };
    let misplaced = Refusal::NotAtEnd { block: id, length: 1, offset: 0 };
    let stale = Refusal::StaleEpoch { block: id, here: Epoch(2), asked: Epoch(1) };
    for (refusal, next) in [(damaged, 2), (misplaced, 2), (stale, 3), (full(), 3), (fence(1), 3)] {
        let mut machine = machine(&[block(1, 1), block(2, 1), block(3, 2)]);
        let placed = write(&mut machine, 'a', 100);
        refuse(&mut machine, &placed, &refusal);
        assert_eq!(send(&mut machine).0.block.block, BlockId(next), "{refusal}");
        assert!(machine.acknowledged(1), "{refusal}");
        let ended = machine.lengths().len();
        assert_eq!(ended as u64, next, "{refusal}: an unused block ends without bytes");
    }
}

#[test]
fn excluded_nodes_are_bounded_and_each_is_named_once() {
    let mut machine = machine_with(1, &[]);
    machine.push('a', 10);
    for id in 1..=40 {
        machine.granted(&[block(id, id as u32 / 2)]);
        let (placed, _) = send(&mut machine);
        refuse(&mut machine, &placed, &full());
    }
    let avoid = requested(&mut machine).avoid;
    assert_eq!(avoid, (5..=20).map(NodeId).collect::<Vec<_>>());
}

#[test]
fn writer_that_was_held_up_goes_on_with_a_write_sent_after_the_failure() {
    let mut machine = machine(&[block(1, 1), block(2, 2), block(3, 3), block(4, 4)]);
    let first = write(&mut machine, 'a', 100);
    let second = write(&mut machine, 'b', 100);
    refuse(&mut machine, &second, &fence(2));
    assert!(!machine.acknowledged(first.number), "it was sent before");
    let (again, _) = send(&mut machine);
    assert!(machine.acknowledged(again.number));
    let third = write(&mut machine, 'c', 100);
    assert!(!machine.acknowledged(third.number), "nothing failed since");
}

#[test]
fn writer_takes_no_call_after_one_that_failed_or_did_not_end() {
    let mut cancelled = machine(&[]);
    assert_eq!(cancelled.begin(), Ok(()));
    assert_eq!(cancelled.begin(), Err(ClosedWriter::Cancelled));
    assert!(!cancelled.is_ended(), "it is aborted when it is dropped");
    cancelled.succeeded();
    assert_eq!(cancelled.begin(), Ok(()));
    cancelled.failed();
    assert_eq!(cancelled.begin(), Err(ClosedWriter::Failed));
    cancelled.ended();
    assert!(cancelled.is_ended() && cancelled.begin().is_err());
}

#[test]
fn refused_seal_leaves_the_object_to_be_aborted_unless_its_bytes_are_lost() {
    let mut machine = machine(&[]);
    machine.not_sealed(Recovery::Fix);
    assert!(!machine.is_ended() && machine.begin().is_err());
    machine.not_sealed(Recovery::Recompute);
    assert!(machine.is_ended());
}

#[test]
fn busy_node_gets_the_same_write_again_while_there_is_time() {
    let busy = |after| Refusal::RetryAfter { after: Millis(after), why: String::new() };
    assert_eq!(repeat_in_place(&busy(20), Millis(21)), Some(Millis(20)));
    assert_eq!(repeat_in_place(&busy(20), Millis(20)), None);
    assert_eq!(repeat_in_place(&busy(u64::MAX), Millis(10_000)), None);
    assert_eq!(repeat_in_place(&busy(0), Millis(10_000)), Some(PAUSE_MIN), "not without end");
    assert_eq!(repeat_in_place(&full(), Millis(10_000)), None);
}

#[test]
fn write_that_is_not_answered_bounds_the_bytes_kept_behind_it() {
    let blocks: Vec<_> = (1..=100).map(|id| block(id, id as u32)).collect();
    let mut machine = machine_with(2, &blocks);
    let first = write(&mut machine, 'a', 100);
    for _ in 1..2 * KEPT_PER_WRITE {
        let placed = write(&mut machine, 'b', 100);
        machine.acknowledged(placed.number);
    }
    machine.push('c', 100);
    assert_eq!(machine.next(WriteGoal::Room), WriteStep::Wait);
    machine.acknowledged(first.number);
    assert_eq!(machine.unsettled_bytes(), 100, "only c is kept");
    assert_eq!(send(&mut machine).1, 'c');
}
