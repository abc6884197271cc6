//! The rules one by one, and a world in which renewals and their answers get lost.

use super::*;
use crate::placement::Draw;

const NOW: Instant = Instant(1_000_000);
const LEASE: Millis = Millis(3000);

const fn grant(object: u64, lease: u64, lease_millis: Millis) -> Grant {
    Grant {
        object: ObjectId(object),
        lease: LeaseId(lease),
        lease_millis,
        bytes: 0,
        blocks: Vec::new(),
        places: Vec::new(),
    }
}

/// Returns leases of writers that are named by their leases, opened at [`NOW`].
fn opened(leases: &[(u64, u64)]) -> LeaseRenewals<u64> {
    let mut renewals = LeaseRenewals::default();
    for (object, lease) in leases {
        renewals.open(NOW, &grant(*object, *lease, LEASE), *lease);
    }
    renewals
}

/// Sends the request that is due `now`; returns its number, and the leases in it.
fn sent(renewals: &mut LeaseRenewals<u64>, now: Instant) -> (u64, Vec<u64>) {
    let request = renewals.poll_request(now).expect("a request is due");
    (request.number, request.leases.iter().map(|(_, lease)| lease.0).collect())
}

#[test]
fn third_renewal_begins_before_the_end_of_a_lease_of_which_two_failed() {
    for lease in [30, 31, 45, 90, 700, 1000, 3000, 10_000, 60_000, 3_600_000, u64::MAX] {
        let lease = Millis(lease);
        let mut job = RenewalTimer::of_job(NOW, lease);
        let mut writers = LeaseRenewals::default();
        writers.open(NOW, &grant(1, 1, lease), 1);
        let mut now = [NOW, NOW];
        for _ in 0..2 {
            now[0] = job.deadline().unwrap();
            now[0] = now[0] + job.poll(now[0]).unwrap();
            job.failed(now[0]);
            now[1] = writers.deadline().unwrap();
            let request = writers.poll_request(now[1]).unwrap();
            now[1] = now[1] + request.within;
            writers.failed(request.number);
            assert_eq!(writers.poll_request(now[1]), None, "the round is over");
        }
        let third = [job.deadline().unwrap(), writers.deadline().unwrap()];
        let within = writers.poll_request(third[1]).unwrap().within;
        assert_eq!(job.poll(third[0]), Some(within));
        assert!(third.iter().all(|third| *third + within <= NOW + lease), "{lease}: {third:?}");
    }
}

#[test]
fn job_is_renewed_at_each_third_of_its_lease_counted_from_when_renewals_were_sent() {
    let mut timer = RenewalTimer::of_job(NOW, Millis(3_600_000));
    let due = NOW + Millis(1_200_000);
    assert_eq!((timer.deadline(), timer.poll(NOW + Millis(1_199_999))), (Some(due), None));
    assert!(timer.poll(due).is_some());
    assert_eq!((timer.deadline(), timer.poll(due + LEASE)), (None, None), "one at a time");
    timer.renewed();
    assert_eq!(timer.deadline(), Some(due + Millis(1_200_000)));
    timer.renewed();
    assert!(!timer.failed(due), "none is under way");
    assert_eq!(timer.deadline(), Some(due + Millis(1_200_000)));
}

#[test]
fn job_that_cannot_be_renewed_is_tried_ever_less_often_but_every_two_seconds() {
    let mut timer = RenewalTimer::of_job(NOW, Millis(3_600_000));
    let mut now = NOW + Millis(1_200_000);
    for (index, pause) in [50, 100, 200, 400, 800, 1600, 2000, 2000].into_iter().enumerate() {
        assert!(timer.poll(now).is_some());
        assert_eq!(timer.failed(now), index == 0, "the first in a row is distinguished");
        now = now + Millis(pause);
        assert_eq!(timer.deadline(), Some(now));
    }
    assert!(timer.poll(now).is_some());
    timer.renewed();
    now = now + Millis(1_200_000);
    assert!(timer.poll(now).is_some());
    assert!(timer.failed(now));
    assert_eq!(timer.deadline(), Some(now + Millis(50)), "the row is over");
}

#[test]
fn pause_and_time_of_a_renewal_follow_the_lease() {
    let pace = |lease| {
        let (job, writer) =
            (RenewalPace::of_job(Millis(lease)), RenewalPace::of_writer(Millis(lease)));
        assert_eq!(job.within, writer.within);
        (job.pause.0, writer.pause.0, job.within.0)
    };
    assert_eq!(pace(0), (10, 10, 5));
    assert_eq!(pace(90), (30, 30, 15));
    assert_eq!(pace(6000), (2000, 2000, 1000));
    assert_eq!(pace(10_000), (3333, 2000, 1666));
    assert_eq!(pace(3_600_000), (1_200_000, 2000, 600_000));
}

#[test]
fn all_leases_are_renewed_together_when_the_first_is_due() {
    let mut renewals = LeaseRenewals::default();
    assert_eq!((renewals.deadline(), renewals.poll_request(NOW)), (None, None));
    assert!(renewals.open(NOW, &grant(5, 1, LEASE), 1));
    assert!(!renewals.open(NOW + Millis(10), &grant(6, 2, LEASE), 2), "it is due later");
    assert!(renewals.open(NOW, &grant(7, 3, Millis(900)), 3), "it is due before");
    let due = NOW + Millis(300);
    assert_eq!(renewals.deadline(), Some(due));
    assert_eq!(renewals.poll_request(due - Millis(1)), None);
    let request = renewals.poll_request(due).unwrap();
    let leases = [(5, 1), (6, 2), (7, 3)].map(|(object, lease)| (ObjectId(object), LeaseId(lease)));
    assert_eq!((request.leases, request.within), (leases.to_vec(), Millis(150)));
    assert_eq!((renewals.deadline(), renewals.poll_request(due + LEASE)), (None, None));
    assert_eq!(renewals.answered(request.number, &[]), [0; 0]);
    assert_eq!(renewals.poll_request(due + Millis(20)), None);
    assert_eq!(renewals.deadline(), Some(due + Millis(300)), "counted from when it was sent");
}

#[test]
fn closed_writers_are_renewed_no_more_and_without_any_nothing_is_due() {
    let mut renewals = opened(&[(1, 1), (2, 2)]);
    renewals.close(ObjectId(1), LeaseId(1));
    let due = renewals.deadline().unwrap();
    let (number, leases) = sent(&mut renewals, due);
    assert_eq!(leases, [2]);
    renewals.answered(number, &[]);
    assert_eq!(renewals.poll_request(due), None);
    renewals.close(ObjectId(2), LeaseId(2));
    let due = renewals.deadline().unwrap();
    assert_eq!(renewals.poll_request(due), None);
    assert_eq!(renewals.deadline(), None);
}

#[test]
fn writers_of_leases_that_ended_are_returned_once() {
    let mut renewals = opened(&[(1, 1), (2, 2), (3, 3)]);
    let due = renewals.deadline().unwrap();
    let (number, _) = sent(&mut renewals, due);
    renewals.close(ObjectId(3), LeaseId(3));
    assert_eq!(renewals.answered(number, &[ObjectId(2), ObjectId(3), ObjectId(9)]), [2]);
    assert_eq!(renewals.poll_request(due), None);
    let due = renewals.deadline().unwrap();
    let (number, leases) = sent(&mut renewals, due);
    assert_eq!(leases, [1], "there is nothing left to renew of the others");
    assert_eq!(renewals.answered(number, &[ObjectId(2)]), [0; 0]);
}

#[test]
fn end_of_a_lease_is_none_of_the_lease_that_was_granted_on_the_object_since() {
    let mut renewals = opened(&[(1, 1)]);
    let due = renewals.deadline().unwrap();
    let (number, leases) = sent(&mut renewals, due);
    assert_eq!(leases, [1]);
    // The writer seals the file while it is being renewed, and another one appends to it.
    renewals.close(ObjectId(1), LeaseId(1));
    renewals.open(due, &grant(1, 2, LEASE), 2);
    renewals.close(ObjectId(1), LeaseId(1));
    assert_eq!(renewals.answered(number, &[ObjectId(1)]), [0; 0]);
    assert_eq!(renewals.poll_request(due), None);
    let due = renewals.deadline().unwrap();
    let (number, leases) = sent(&mut renewals, due);
    assert_eq!(leases, [2]);
    assert_eq!(renewals.answered(number, &[ObjectId(1)]), [2]);
}

#[test]
fn answer_to_a_request_that_was_given_up_changes_nothing() {
    let mut renewals = opened(&[(1, 1)]);
    let due = renewals.deadline().unwrap();
    let (first, _) = sent(&mut renewals, due);
    renewals.failed(first);
    assert_eq!(renewals.answered(first, &[ObjectId(1)]), [0; 0]);
    assert_eq!(renewals.poll_request(due), None);
    let again = renewals.deadline().unwrap();
    assert_eq!(again, due + Millis(50));
    let (second, _) = sent(&mut renewals, again);
    assert_eq!(renewals.answered(first, &[ObjectId(1)]), [0; 0]);
    renewals.failed(first);
    assert_eq!(renewals.poll_request(again), None, "the second is under way");
    assert_eq!(renewals.answered(second, &[]), [0; 0]);
    assert_eq!(renewals.poll_request(again), None);
    assert_eq!(renewals.deadline(), Some(again + Millis(1000)), "the row is over");
}

#[test]
fn lease_that_is_granted_during_an_outage_or_a_request_has_all_of_its_renewals() {
    let mut renewals = opened(&[(1, 1)]);
    let mut now = NOW;
    for _ in 0..6 {
        now = renewals.deadline().unwrap();
        let (number, _) = sent(&mut renewals, now);
        renewals.failed(number);
        assert_eq!(renewals.poll_request(now), None);
    }
    assert_eq!(renewals.deadline(), Some(now + Millis(1000)), "the pauses have grown");
    renewals.open(now, &grant(2, 2, LEASE), 2);
    now = renewals.deadline().unwrap();
    let (number, _) = sent(&mut renewals, now);
    let granted = now + Millis(100);
    assert!(!renewals.open(granted, &grant(3, 3, Millis(30)), 3), "a request is under way");
    renewals.failed(number);
    assert_eq!(renewals.poll_request(granted), None, "it has the next round");
    let due = granted + Millis(1);
    assert_eq!(renewals.deadline(), Some(due), "of its short lease");
    assert_eq!(sent(&mut renewals, due).1, [1, 2, 3]);
}

/// A client that creates one small file after the other would repeat one round for ever.
#[test]
fn files_that_are_created_during_each_request_hold_up_no_older_lease() {
    let mut renewals = opened(&[(1, 1)]);
    for round in 0..20 {
        let due = renewals.deadline().unwrap();
        let (number, named) = sent(&mut renewals, due);
        assert_eq!(named.first(), Some(&1), "round {round}");
        renewals.open(due + Millis(1), &grant(2 + round, 2 + round, LEASE), 2 + round);
        renewals.answered(number, &[]);
        assert_eq!(renewals.poll_request(due + Millis(2)), None, "round {round}");
        renewals.close(ObjectId(2 + round), LeaseId(2 + round));
    }
}

#[test]
fn leases_that_are_too_many_for_a_request_are_in_another_one_that_follows_at_once() {
    let leases: Vec<(u64, u64)> =
        (1..=LEASES_PER_RENEWAL_MAX as u64 + 1).map(|id| (id, id)).collect();
    for has_failed in [false, true] {
        let mut renewals = opened(&leases);
        let due = renewals.deadline().unwrap();
        let (number, first) = sent(&mut renewals, due);
        assert_eq!(first.len(), LEASES_PER_RENEWAL_MAX);
        if has_failed {
            renewals.failed(number);
        } else {
            renewals.answered(number, &[]);
        }
        let (number, rest) = sent(&mut renewals, due);
        assert_eq!(rest, [LEASES_PER_RENEWAL_MAX as u64 + 1]);
        renewals.answered(number, &[]);
        assert_eq!(renewals.poll_request(due), None);
        let next = if has_failed { Millis(50) } else { Millis(1000) };
        assert_eq!(renewals.deadline(), Some(due + next));
    }
}

/// A request on its way.
struct SentRenewal {
    request: RenewalRequest,
    /// When it arrives; `None` if it gets lost.
    arrives: Option<Instant>,
    /// What the namenode has answered, once it has arrived.
    ended: Option<Vec<ObjectId>>,
    /// When the client gets the answer, or gives the request up.
    ends: Instant,
    /// Whether the answer reaches the client.
    has_answer: bool,
}

/// A client whose writers open, seal and append, a namenode that takes leases away now and then,
/// and a network that loses at most two renewals in a row.
struct RenewalWorld {
    draw: Draw,
    now: Instant,
    lease: Millis,
    renewals: LeaseRenewals<u64>,
    /// Of the client's writers: the lease of each object.
    writers: BTreeMap<ObjectId, LeaseId>,
    /// Of the namenode: the lease of each object, and its end.
    held: BTreeMap<ObjectId, (LeaseId, Instant)>,
    /// When the namenode took a lease away, as long as its writer is not returned.
    taken: BTreeMap<LeaseId, Instant>,
    sent: Option<SentRenewal>,
    lost_in_a_row: u32,
    last_lease: u64,
    counts: RenewalCounts,
}

/// What has happened, so that no run is empty.
#[derive(Debug, Default)]
struct RenewalCounts {
    renewed: u32,
    lost: u32,
    ended: u32,
    /// Of leases that ended when another one was on the object already.
    outdated: u32,
}

impl RenewalWorld {
    fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let lease = Millis([30, 300, 3000, 30_000][draw.below(4)]);
        Self {
            draw,
            now: NOW,
            lease,
            renewals: LeaseRenewals::default(),
            writers: BTreeMap::new(),
            held: BTreeMap::new(),
            taken: BTreeMap::new(),
            sent: None,
            lost_in_a_row: 0,
            last_lease: 0,
            counts: RenewalCounts::default(),
        }
    }

    /// Lets an application open, seal or append, or the namenode take a lease away.
    fn change(&mut self) {
        let object = ObjectId(self.draw.below(6) as u64);
        match (self.writers.get(&object).copied(), self.draw.below(8)) {
            (None, _) => self.open(object),
            (Some(lease), 0) => {
                if self.held.remove(&object).is_some() {
                    self.taken.insert(lease, self.now);
                }
            }
            (Some(lease), _) => {
                self.held.remove(&object);
                self.taken.remove(&lease);
                self.writers.remove(&object);
                self.renewals.close(object, lease);
                if self.draw.below(2) == 0 {
                    self.open(object);
                }
            }
        }
    }

    fn open(&mut self, object: ObjectId) {
        self.last_lease += 1;
        let lease = LeaseId(self.last_lease);
        self.held.insert(object, (lease, self.now + self.lease));
        self.writers.insert(object, lease);
        let grant = grant(object.0, lease.0, self.lease);
        self.renewals.open(self.now, &grant, lease.0);
    }

    fn send(&mut self) {
        if self.sent.is_some() {
            return;
        }
        let Some(request) = self.renewals.poll_request(self.now) else { return };
        let half = request.within.0 * 500;
        let [there, back] = [0; 2].map(|_| self.draw.below(half as usize) as u64);
        let fate = if self.lost_in_a_row == 2 { 2 } else { self.draw.below(4) };
        let arrives = (fate != 0).then_some(Instant(self.now.0 + there));
        let has_answer = fate > 1;
        self.lost_in_a_row = if has_answer { 0 } else { self.lost_in_a_row + 1 };
        let ends = match arrives {
            Some(arrives) if has_answer => Instant(arrives.0 + back),
            _ => self.now + request.within,
        };
        self.sent = Some(SentRenewal { request, arrives, ended: None, ends, has_answer });
    }

    /// Lets the request arrive and end, if it is time.
    fn go_on(&mut self) {
        let Some(sent) = &mut self.sent else { return };
        if let Some(arrives) = sent.arrives.filter(|arrives| *arrives <= self.now) {
            sent.arrives = None;
            let mut ended = Vec::new();
            for (object, lease) in &sent.request.leases {
                match self.held.get_mut(object).filter(|(held, _)| held == lease) {
                    Some((_, until)) => *until = arrives + self.lease,
                    None => ended.push(*object),
                }
            }
            sent.ended = Some(ended);
        }
        let Some(sent) = self.sent.take_if(|sent| sent.ends <= self.now) else { return };
        let number = sent.request.number;
        let Some(ended) = sent.ended.filter(|_| sent.has_answer) else {
            self.counts.lost += 1;
            return self.renewals.failed(number);
        };
        self.counts.renewed += 1;
        let named: BTreeMap<_, _> = sent.request.leases.into_iter().collect();
        for object in &ended {
            let open = self.writers.get(object);
            let is_outdated = open.is_some_and(|open| Some(open) != named.get(object));
            self.counts.outdated += u32::from(is_outdated);
        }
        for writer in self.renewals.answered(number, &ended) {
            let lease = LeaseId(writer);
            self.counts.ended += 1;
            assert!(self.taken.remove(&lease).is_some(), "lease {lease} is held");
            self.writers.retain(|_, open| *open != lease);
        }
    }

    fn check(&self) {
        for (object, (lease, until)) in &self.held {
            assert!(self.now < *until, "lease {lease} of open object {object} has ended");
        }
        for (lease, taken) in &self.taken {
            // Two renewals get lost, and the third one is under way.
            assert!(self.now <= *taken + self.lease, "lease {lease} counts as held");
        }
    }

    fn run(mut self) -> RenewalCounts {
        // About 20 leases long, in steps that are short against the pauses of the shortest one.
        let step = self.lease.0 * 1000 / 200;
        for _ in 0..4000 {
            if self.draw.below(40) == 0 {
                self.change();
            }
            self.go_on();
            self.send();
            self.check();
            let sent = self.sent.iter().flat_map(|it| it.arrives.into_iter().chain([it.ends]));
            let last = Instant(self.now.0 + step);
            let next = self.renewals.deadline().into_iter().chain(sent).min().unwrap_or(last);
            self.now = next.clamp(self.now, last);
        }
        self.counts
    }
}

#[test]
fn no_open_writer_loses_its_lease_and_each_that_lost_it_is_returned() {
    let mut all = RenewalCounts::default();
    for seed in 0..200 {
        let counts = RenewalWorld::new(seed).run();
        all.renewed += counts.renewed;
        all.lost += counts.lost;
        all.ended += counts.ended;
        all.outdated += counts.outdated;
    }
    assert!(all.renewed > 1000 && all.lost > 1000 && all.ended > 100, "{all:?}");
    assert!(all.outdated > 10, "{all:?}");
}
