//! A link with clients that read, uploads that always wait, and a timer that may be late.

use super::*;
use crate::placement::Draw;

const NOW: Instant = Instant(1_000_000_000);
const MIB: u64 = 1 << 20;

/// What comes again some time after it has left.
#[derive(Debug, Clone, Copy)]
struct Load {
    class: LinkClass,
    bytes: u64,
    /// How many there are at once.
    at_once: usize,
    /// Time from one's end to the next.
    pause: Millis,
}

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LinkEvent {
    Timer,
    /// One of this load comes.
    Comes(usize),
    /// What has this number has left.
    Left(u64),
}

/// Bytes that have left, and the longest time that one of each load waited.
#[derive(Debug, Default)]
struct Sent {
    bytes: Vec<u64>,
    longest: Vec<Millis>,
}

/// A load on a link for some time.
struct World<'a> {
    queue: LinkQueue,
    loads: &'a [Load],
    events: BTreeMap<(Instant, u64), LinkEvent>,
    next_event: u64,
    /// The load of each that waits, and when it came.
    waiting: BTreeMap<u64, (usize, Instant)>,
    timer: Option<Instant>,
    /// By how much a timer is late at most.
    late: Millis,
    draw: Draw,
    sent: Sent,
}

impl<'a> World<'a> {
    fn new(rate: u64, loads: &'a [Load]) -> Self {
        let sent = Sent { bytes: vec![0; loads.len()], longest: vec![Millis(0); loads.len()] };
        Self {
            queue: LinkQueue::new(rate),
            loads,
            events: BTreeMap::new(),
            next_event: 0,
            waiting: BTreeMap::new(),
            timer: None,
            late: Millis(0),
            draw: Draw::new(7),
            sent,
        }
    }

    fn at(&mut self, at: Instant, event: LinkEvent) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    fn run(mut self, time: Millis) -> Sent {
        for (index, load) in self.loads.iter().enumerate() {
            for _ in 0..load.at_once {
                self.at(NOW, LinkEvent::Comes(index));
            }
        }
        while let Some(((now, _), event)) = self.events.pop_first() {
            if now >= NOW + time {
                break;
            }
            match event {
                LinkEvent::Timer if self.timer != Some(now) => continue,
                LinkEvent::Timer => self.timer = None,
                LinkEvent::Comes(index) => {
                    let Load { class, bytes, .. } = self.loads[index];
                    let number = self.queue.add(now, class, bytes);
                    self.waiting.insert(number, (index, now));
                }
                LinkEvent::Left(number) => {
                    let (index, came) = self.waiting.remove(&number).expect("it waited");
                    self.sent.bytes[index] += self.loads[index].bytes;
                    let longest = &mut self.sent.longest[index];
                    *longest = (*longest).max(now.since(came));
                    self.at(now + self.loads[index].pause, LinkEvent::Comes(index));
                    continue;
                }
            }
            self.let_leave(now);
        }
        self.sent
    }

    fn let_leave(&mut self, now: Instant) {
        loop {
            match self.queue.next(now) {
                LinkTurn::Leaves { number, left_at } => {
                    self.at(left_at.unwrap_or(now), LinkEvent::Left(number));
                }
                // As the shell: it has one timer, which is not set anew for what comes.
                LinkTurn::Wait(at) if self.timer.is_none() => {
                    let late = Millis(self.draw.next() % (self.late.0 + 1));
                    self.timer = Some(at + late);
                    return self.at(at + late, LinkEvent::Timer);
                }
                LinkTurn::Wait(_) | LinkTurn::Idle => return,
            }
        }
    }
}

const fn uploads(at_once: usize) -> Load {
    Load { class: LinkClass::Upload, bytes: MIB, at_once, pause: Millis(0) }
}

const fn reads(bytes: u64, at_once: usize, pause: Millis) -> Load {
    Load { class: LinkClass::Read, bytes, at_once, pause }
}

/// Returns the thousandths of a link that bytes take in some time.
fn permille(bytes: u64, rate: u64, time: Millis) -> u64 {
    bytes * 1_000_000 / (rate * time.0)
}

#[test]
fn uploads_alone_have_the_whole_link_although_timers_are_late() {
    let (rate, time) = (8 * MIB, Millis(8_000));
    for (late, least) in [(0, 970), (20, 940)] {
        let loads = [uploads(8)];
        let mut world = World::new(rate, &loads);
        world.late = Millis(late);
        let part = permille(world.run(time).bytes[0], rate, time);
        assert!((least..=1000).contains(&part), "{late} ms late: {part}");
    }
}

/// A client has one request under way, as most do.
#[test]
fn client_that_reads_one_range_after_the_other_loses_a_fortieth_to_uploads() {
    let (rate, time) = (10 * MIB, Millis(10_000));
    for (bytes, pause) in [(64 << 10, 1), (MIB, 1), (MIB, 0), (4 * MIB, 2)] {
        let loads = [uploads(32), reads(bytes, 1, Millis(pause))];
        let beside = World::new(rate, &loads).run(time);
        let alone = World::new(rate, &loads[1..]).run(time);
        let (copied, beside, alone) = (beside.bytes[0], beside.bytes[1], alone.bytes[0]);
        assert!(beside * 100 >= alone * 95, "{bytes}: {beside} bytes beside uploads, not {alone}");
        assert!(permille(copied, rate, time) >= 10, "{bytes}: uploads have {copied} bytes");
    }
}

#[test]
fn clients_that_take_a_part_of_the_link_wait_for_a_piece_and_leave_the_rest() {
    let (rate, time) = (8 * MIB, Millis(8_000));
    // A tenth of the link.
    let loads = [uploads(32), reads(64 << 10, 1, Millis(70))];
    let sent = World::new(rate, &loads).run(time);
    let part = permille(sent.bytes[0], rate, time);
    assert!(part >= 700, "uploads have {part} of the link");
    assert!(sent.longest[1] <= Millis(8 + 5), "{:?}", sent.longest[1]);
}

#[test]
fn pushes_go_in_turn_with_reads_and_before_uploads() {
    let (rate, time) = (8 * MIB, Millis(8_000));
    let push = Load { class: LinkClass::Push, bytes: MIB, at_once: 2, pause: Millis(0) };
    let loads = [uploads(8), push, reads(MIB, 2, Millis(0))];
    let sent = World::new(rate, &loads).run(time);
    let part = |index: usize| permille(sent.bytes[index], rate, time);
    assert!(part(1) >= 430 && part(2) >= 430, "{sent:?}");
    assert!((10..=40).contains(&part(0)), "{sent:?}");
}

#[test]
fn slow_link_leaves_uploads_enough_for_an_order_to_end() {
    for rate in [512 << 10, MIB, 4 * MIB] {
        let time = Millis(64_000);
        let loads = [uploads(8), reads(256 << 10, 4, Millis(0))];
        let copied = World::new(rate, &loads).run(time).bytes[0];
        assert!(copied >= 14 * MIB, "{rate}: {copied} bytes");
    }
}

#[test]
fn node_that_leaves_sends_uploads_before_reads() {
    let (rate, time) = (8 * MIB, Millis(8_000));
    let loads = [uploads(8), reads(64 << 10, 1, Millis(1))];
    let mut world = World::new(rate, &loads);
    world.queue.set_leaving(true);
    let sent = world.run(time);
    let part = |index: usize| permille(sent.bytes[index], rate, time);
    assert!(part(0) >= 940 && part(1) >= 20, "{sent:?}");
    assert!(sent.longest[1] <= Millis(500), "{sent:?}");
}

#[test]
fn node_that_leaves_sends_pushes_in_turn_with_uploads_and_before_reads() {
    let (rate, time) = (8 * MIB, Millis(8_000));
    let push = Load { class: LinkClass::Push, bytes: MIB, at_once: 2, pause: Millis(0) };
    let loads = [uploads(32), push, reads(64 << 10, 1, Millis(1))];
    let mut world = World::new(rate, &loads);
    world.queue.set_leaving(true);
    let sent = world.run(time);
    let part = |index: usize| permille(sent.bytes[index], rate, time);
    assert!(part(0) >= 430 && part(1) >= 430, "{sent:?}");
}

/// None of them has its part in time.
#[test]
fn reads_that_wait_too_long_on_a_node_that_leaves_go_in_turn_with_uploads() {
    let (rate, time) = (8 * MIB, Millis(16_000));
    for readers in [1, 32] {
        let loads = [uploads(8), reads(512 << 10, readers, Millis(0))];
        let mut world = World::new(rate, &loads);
        world.queue.set_leaving(true);
        let sent = world.run(time);
        let part = permille(sent.bytes[0], rate, time);
        assert!(part >= 600, "{readers} readers: {sent:?}");
        let longest = Millis(1500 + readers as u64 * 250);
        assert!(sent.longest[1] <= longest, "{readers} readers: {sent:?}");
    }
}

#[test]
fn notice_and_its_end_change_what_goes_first() {
    let mut queue = LinkQueue::new(8 * MIB);
    // The link is busy for longer than is queued ahead.
    let busy = queue.add(NOW, LinkClass::Read, MIB);
    assert!(matches!(queue.next(NOW), LinkTurn::Leaves { number, .. } if number == busy));
    let upload = queue.add(NOW, LinkClass::Upload, MIB);
    let reads = [(); 2].map(|()| queue.add(NOW, LinkClass::Read, MIB));
    let next = |queue: &mut LinkQueue| {
        let mut now = NOW;
        loop {
            match queue.next(now) {
                LinkTurn::Leaves { number, .. } => return number,
                LinkTurn::Wait(at) => now = at,
                LinkTurn::Idle => panic!("nothing waits"),
            }
        }
    };
    assert_eq!(next(&mut queue), reads[0]);
    queue.set_leaving(true);
    assert_eq!(next(&mut queue), upload);
    let upload = queue.add(NOW, LinkClass::Upload, MIB);
    queue.set_leaving(false);
    assert_eq!([next(&mut queue), next(&mut queue)], [reads[1], upload]);
}

#[test]
fn what_was_given_up_takes_nothing_of_the_link() {
    let mut queue = LinkQueue::new(MIB);
    let classes = [LinkClass::Push, LinkClass::Read, LinkClass::Upload];
    let first = queue.add(NOW, LinkClass::Read, MIB);
    let left_at = Some(NOW + Millis(996));
    assert_eq!(queue.next(NOW), LinkTurn::Leaves { number: first, left_at });
    let given_up = classes.map(|class| queue.add(NOW, class, MIB));
    assert_eq!(queue.next(NOW), LinkTurn::Wait(NOW + Millis(946)));
    for number in given_up {
        queue.give_up(number);
    }
    assert_eq!(queue.next(NOW), LinkTurn::Idle);
    let next = queue.add(NOW, LinkClass::Read, MIB);
    let later = NOW + Millis(946);
    let left_at = Some(NOW + Millis(1996));
    assert_eq!(queue.next(later), LinkTurn::Leaves { number: next, left_at });
}
