//! Changes that wait for room that is being freed: whose places are bounded, and when they end.

use sanderling_protocol::message::{Change, ClientId, Create, Once};
use sanderling_protocol::{Millis, Nonce, Refusal, Reply, Request};

use super::once::{once, open};
use super::reaping::full_directory;
use super::{MIB, Rig, path};

/// Most changes of one client that wait by their own account.
const CLIENT_MAX: u64 = 1024;

/// A rig without room in which something is being freed, in slices of so many entries.
fn full_rig(slice: u32) -> Rig {
    let mut rig = Rig::with_slices(1, slice);
    for number in 0..64 {
        rig.put(&format!("/kept/{number}"), MIB);
    }
    delete_full(&mut rig, "/deleted");
    rig
}

fn delete_full(rig: &mut Rig, name: &str) {
    full_directory(rig, name);
    rig.delete(name, true).unwrap();
}

impl Rig {
    /// Sends a create as this change of a client. Returns whether the client is to send it again.
    fn waits(&mut self, client: ClientId, sequence: u64) -> bool {
        let create = Request::Create(self.file("/new"));
        self.sent_waits(once(client, sequence, create))
    }

    fn sent_waits(&mut self, request: Request) -> bool {
        match self.call(request) {
            Err(Refusal::RetryAfter { .. }) => true,
            Err(Refusal::Full { .. }) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Frees slices until the first so many deletions are freed. Each takes a millisecond.
    fn reap_first(&mut self, deletions: u64) -> u64 {
        let mut slices = 0;
        while self.namenode.catalog().is_freeing_one_of(deletions) {
            self.pass(Millis(1));
            slices += 1;
        }
        slices
    }

    fn waiting(&self) -> usize {
        self.namenode.room_waits.len()
    }
}

#[test]
fn many_changes_of_others_leave_a_change_the_end_of_its_wait() {
    let mut rig = full_rig(4);
    for _ in 0..17 {
        let greedy = open(&mut rig);
        for sequence in 1..=CLIENT_MAX {
            assert!(rig.waits(greedy, sequence));
        }
    }
    let client = open(&mut rig);
    let mut waited = 0;
    while rig.waits(client, 1) {
        // Another deletes without a pause, and what frees no room.
        delete_full(&mut rig, &format!("/others/{waited}"));
        rig.pass(Millis(1));
        waited += 1;
        assert!(waited < 50, "it waits for later deletions");
    }
    assert!(waited > 0, "it is refused while something is being freed");
}

#[test]
fn change_without_a_sequence_waits_until_nothing_is_being_freed() {
    let mut rig = full_rig(4);
    for number in 0..50 {
        delete_full(&mut rig, &format!("/later/{number}"));
        let create = Request::Create(rig.file("/new"));
        assert!(rig.sent_waits(create), "its repeat is not recognized");
        rig.pass(Millis(1));
    }
    assert!(!rig.namenode.catalog().is_freeing_one_of(1), "others would be refused");
    rig.reap_first(u64::MAX);
    let create = Request::Create(rig.file("/new"));
    assert!(!rig.sent_waits(create));
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn change_of_a_client_with_too_many_waits_while_anything_is_being_freed() {
    let mut rig = full_rig(8);
    let client = open(&mut rig);
    for sequence in 1..=CLIENT_MAX + 10 {
        assert!(rig.waits(client, sequence));
    }
    assert_eq!(rig.waiting(), 1024);
    delete_full(&mut rig, "/later");
    rig.reap_first(1);
    assert!(!rig.waits(client, CLIENT_MAX), "it has waited");
    assert_eq!(rig.waiting(), 1023);
    assert!(rig.waits(client, CLIENT_MAX + 10));
    rig.reap_first(2);
    assert!(!rig.waits(client, CLIENT_MAX + 10), "nothing is being freed");
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn full_table_takes_a_place_only_of_a_client_that_keeps_as_many_as_the_other_gets() {
    let mut rig = full_rig(8);
    let few = open(&mut rig);
    assert!(rig.waits(few, 1));
    let next = open(&mut rig);
    for sequence in 1..CLIENT_MAX {
        assert!(rig.waits(next, sequence));
    }
    let full: Vec<ClientId> = (0..15).map(|_| open(&mut rig)).collect();
    for (client, sequence) in full.iter().flat_map(|it| (1..=CLIENT_MAX).map(|at| (*it, at))) {
        assert!(rig.waits(client, sequence));
    }
    assert_eq!(rig.waiting(), 16_384);
    // With its place this client would have as many as the others, and they one less.
    assert!(rig.waits(next, CLIENT_MAX));
    // This one has far fewer.
    assert!(rig.waits(few, 2));
    assert_eq!(rig.waiting(), 16_384);
    delete_full(&mut rig, "/later");
    rig.reap_first(1);
    let last = *full.last().unwrap();
    let mut has_place = |client, sequence| !rig.waits(client, sequence);
    assert!(!has_place(next, CLIENT_MAX), "it has taken a place");
    assert!(has_place(few, 2), "it has taken no place");
    assert!(!has_place(last, CLIENT_MAX), "it has given its latest place up");
    assert!(has_place(last, CLIENT_MAX - 1), "it has given up more than one place");
    assert!(full[..14].iter().all(|client| has_place(*client, CLIENT_MAX)));
}

#[test]
fn ended_waits_are_searched_for_once_in_20_ms() {
    let mut rig = full_rig(8);
    let client = open(&mut rig);
    let searched_at = rig.now;
    for sequence in 1..=CLIENT_MAX + 1 {
        rig.waits(client, sequence);
    }
    for number in 0..40 {
        delete_full(&mut rig, &format!("/later/{number}"));
    }
    assert!((1..20).contains(&rig.reap_first(1)));
    assert!(rig.waits(client, CLIENT_MAX + 2));
    assert_eq!(rig.waiting(), 1024, "it was searched again");
    rig.now = searched_at + Millis(20);
    assert!(rig.waits(client, CLIENT_MAX + 3));
    assert_eq!(rig.waiting(), 1);
}

#[test]
fn change_that_has_ended_waits_no_longer() {
    let mut rig = full_rig(4);
    for number in 0..10 {
        delete_full(&mut rig, &format!("/deleted-too/{number}"));
    }
    let client = open(&mut rig);
    for sequence in 1..=5 {
        assert!(rig.waits(client, sequence));
    }
    assert_eq!(rig.waiting(), 5);
    // Given up: its client has settled it.
    let (settled_below, change) = (3, Change::new(Request::Create(rig.file("/new"))));
    let later = Once { client, sequence: 5, settled_below, change };
    assert!(rig.sent_waits(Request::Once(Box::new(later))));
    assert_eq!(rig.waiting(), 3);
    rig.delete("/kept/1", false).unwrap();
    rig.delete("/kept/2", false).unwrap();
    while rig.used_bytes() > u64::from(62 * MIB) {
        rig.pass(Millis(1));
    }
    let create = |rig: &Rig| Request::Create(Create::new(path("/made"), Nonce(rig.next_nonce)));
    let made = rig.call(once(client, 3, create(&rig)));
    let Ok(Reply::Grant(grant)) = made else { panic!("{made:?}") };
    assert_eq!(rig.waiting(), 2, "made");
    rig.seal(&grant, &[10]).unwrap();
    rig.next_nonce += 1;
    let refused = rig.call(once(client, 4, create(&rig)));
    assert!(matches!(refused, Err(Refusal::Exists { .. })), "{refused:?}");
    assert_eq!(rig.waiting(), 1, "refused for good");
    assert!(rig.namenode.catalog().reaping_count() > 0);
}
