//! Leaders whose journal fails while the log of the group works: they end, and the others go on
//! with all that was agreed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, assert_there, client, put};
use crate::cluster::{SOON, Server, block_on, spawn_with, until};
use crate::disk::{EIO, ENOSPC};
use crate::errors::member;
use crate::faulty_files::{FaultyFiles, FileFaults};

/// Connections of the writers.
const CLIENTS: u64 = 4;

/// Writers of each connection, each of which puts one value after the other.
const PER_CLIENT: u64 = 4;

/// Numbers that each writer has for its values.
const NUMBERS: u64 = 100_000;

/// Writers at once: while a round is refused, others wait for the next one.
struct Writers {
    first: u64,
    is_stopped: Arc<AtomicBool>,
    stored: Arc<Vec<AtomicU64>>,
    thread: Option<JoinHandle<()>>,
}

impl Writers {
    /// Starts writers whose values have numbers from `first` on.
    fn start(addresses: &str, first: u64) -> Self {
        let counts: Vec<_> = (0..CLIENTS * PER_CLIENT).map(|_| AtomicU64::new(0)).collect();
        let (is_stopped, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(counts));
        let (addresses, stop, counts) =
            (addresses.to_owned(), Arc::clone(&is_stopped), Arc::clone(&stored));
        let thread = std::thread::spawn(move || {
            block_on(async {
                let writers = (0..CLIENTS).map(|number| {
                    let places = number * PER_CLIENT..(number + 1) * PER_CLIENT;
                    write(&addresses, first, places, &stop, &counts)
                });
                futures_util::future::join_all(writers).await;
            });
        });
        let writers = Self { first, is_stopped, stored, thread: Some(thread) };
        writers.until_more(100);
        writers
    }

    fn count(&self) -> u64 {
        self.stored.iter().map(|it| it.load(Ordering::Relaxed)).sum()
    }

    /// Waits until so many more values are stored.
    fn until_more(&self, count: u64) {
        let goal = self.count() + count;
        until("values are stored", SOON, || {
            let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!is_over, "a caller got an error");
            (self.count() >= goal).then_some(())
        });
    }

    /// Ends them. Returns the numbers of the values that are stored, by writer.
    fn stop(mut self) -> Vec<std::ops::Range<u64>> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.take().expect("they run").join().expect("no caller got an error");
        let counts = self.stored.iter().map(|it| it.load(Ordering::Relaxed));
        let begins = (0..).map(|place| self.first + place * NUMBERS);
        begins.zip(counts).map(|(begin, count)| begin..begin + count).collect()
    }
}

/// Puts values by one connection, until it is stopped.
async fn write(
    addresses: &str,
    first: u64,
    places: std::ops::Range<u64>,
    stop: &AtomicBool,
    counts: &[AtomicU64],
) {
    let client = client(addresses).await;
    let writers = places.map(|place| {
        let (client, count) = (&client, &counts[usize::try_from(place).expect("few")]);
        async move {
            while !stop.load(Ordering::Relaxed) {
                let stored = count.load(Ordering::Relaxed);
                put(client, first + place * NUMBERS + stored).await;
                count.store(stored + 1, Ordering::Relaxed);
            }
        }
    });
    futures_util::future::join_all(writers).await;
}

/// Lets a member lead.
pub(crate) fn lead(group: &Group, place: usize) {
    let address = &group.addresses[place];
    let others = || group.running().find(|it| *it != place).expect("another one runs");
    let leads = || group.roles(others()).contains(&(address.clone(), "Leader".to_owned()));
    until("it leads", SOON, || {
        if !leads() {
            group.cli(others(), &["group", "move-leader", &member(group, address)]);
        }
        leads().then_some(())
    });
}

/// Starts a member again, with files that can be made to fail.
fn with_faults(group: &mut Group, files: &FaultyFiles, place: usize, sync: &str) -> Server {
    group.kill(place);
    let (listen, there) = (group.addresses[place].clone(), text(group.catalog(place)));
    let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &there];
    let words = [&words[..], &["--sync", sync]].concat();
    let variables = files.variables();
    let variables: Vec<(&str, &Path)> =
        variables.iter().map(|(key, value)| (*key, value.as_path())).collect();
    let name = format!("namenode-{place}");
    let server = spawn_with(group.directory.path(), &name, &words, &variables).serves();
    group.until_voters(3);
    lead(group, place);
    server
}

/// A leader that went on would give its next round the numbers of the one that it did not write:
/// the others would end, or have other changes than it has acknowledged.
#[test]
fn leader_whose_journal_fails_ends_and_nothing_that_was_agreed_is_lost() {
    let mut group = Group::start(3, &[]);
    let Some(files) = FaultyFiles::build(group.directory.path(), "journal-") else {
        eprintln!("SKIPPED: no C compiler makes the files that fail");
        return;
    };
    let all = group.addresses.join(",");
    let one = FileFaults { left: 1, ..FileFaults::default() };
    let every = FileFaults { left: FileFaults::ALL, ..FileFaults::default() };
    let faults = [
        // It is taken back, and the next write succeeds.
        ("os", FileFaults { on_write: ENOSPC, ..one }),
        ("os", FileFaults { on_write: ENOSPC, ..every }),
        ("os", FileFaults { on_sync: EIO, ..every }),
        ("always", FileFaults { on_sync: EIO, ..one }),
    ];
    for (first, (sync, faults)) in (0..).step_by(10_000_000).zip(faults) {
        let place = group.leader();
        let mut server = with_faults(&mut group, &files, place, sync);
        let before = server.log().len();
        let writers = Writers::start(&all, first);
        files.set(faults);
        assert!(!server.wait(SOON).success(), "{}", server.log());
        let log = server.log();
        let log = log.get(before..).unwrap_or_default();
        for part in ["the journal cannot follow the group: this member ends", "/journal-"] {
            assert!(log.contains(part), "{part}: {log}");
        }
        writers.until_more(200);
        let stored = writers.stop();
        files.set(FileFaults::default());
        group.restart(place);
        group.until_voters(3);
        // It has what its journal did not take, and so have all others.
        lead(&group, place);
        for server in group.members.iter_mut().flatten() {
            assert!(server.ended().is_none(), "{sync} {faults:?}: {}", server.log());
        }
        block_on(async {
            let client = client(&all).await;
            for numbers in stored {
                assert_there(&client, numbers).await;
            }
        });
    }
}
