//! A group whose majority is gone: what its archive or a surviving directory has, and that older
//! members are refused once the group has begun anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::guarded::text;
use crate::cluster::http;
use crate::cluster::namenodes::{self, Group};
use crate::cluster::{
    Ran, SOON, Server, block_on, bytes_of, path, run, sanderling, spawn_with, until,
};
use sanderling_client::{Client, ClientConfig, PutOptions};

/// More than a value in the catalog: the bytes are on a datanode.
const BYTES: usize = 20_000;

/// Longest call: it waits until the group has begun anew.
fn config() -> ClientConfig {
    ClientConfig { call_deadline: Duration::from_secs(90), ..ClientConfig::default() }
}

async fn store(client: &Client, seed: u64) {
    let to = path(&format!("/{seed}"));
    client.put(&to, bytes_of(seed, BYTES), &PutOptions::default()).await.expect("stored");
}

async fn store_value(client: &Client, to: &str) -> Result<(), sanderling_client::ClientError> {
    let value = bytes::Bytes::from_static(b"a value");
    client.put(&path(to), value, &PutOptions::default()).await.map(drop)
}

fn assert_stored(address: &str, seeds: std::ops::Range<u64>) {
    block_on(async {
        let client = Client::connect(address, config()).await.expect("one leads");
        for seed in seeds {
            let read = client.get(&path(&format!("/{seed}"))).await.expect("readable");
            assert!(read == bytes_of(seed, BYTES), "/{seed} has other bytes");
        }
    });
}

/// Stores one object after the other through one client that stays open, until it is stopped.
struct Load {
    is_stopped: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    fn start(addresses: &[String]) -> Self {
        let addresses = addresses.join(",");
        let (is_stopped, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (Arc::clone(&is_stopped), Arc::clone(&stored));
        let thread = std::thread::spawn(move || {
            block_on(async {
                let client = Client::connect(&addresses, config()).await.expect("one leads");
                while !stop.load(Ordering::Relaxed) {
                    store(&client, count.load(Ordering::Relaxed)).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        let load = Self { is_stopped, stored, thread };
        load.until_more(20);
        load
    }

    fn until_more(&self, count: u64) {
        let goal = self.stored.load(Ordering::Relaxed) + count;
        until("objects are stored", SOON, || {
            (self.stored.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    fn stop(self) -> u64 {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.join().expect("no caller got an error");
        self.stored.load(Ordering::Relaxed)
    }
}

/// Three namenodes, each with these flags and a file for its notices, and datanodes.
struct Fleet {
    group: Group,
    _datanodes: Vec<Server>,
}

impl Fleet {
    fn start(archive: Option<&Path>) -> Self {
        let mut group = Group::start(0, &[]);
        for place in 0..3 {
            let first = group.addresses.first().cloned();
            let notices = format!("file:{}", text(Self::notice_file(&group, place)));
            let mut flags = vec!["--notice-source".to_owned(), notices];
            flags.extend(archive.iter().flat_map(|it| ["--archive".to_owned(), text(it.into())]));
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            group.add("127.0.0.1:0", first.as_deref(), &flags);
        }
        group.until_voters(3);
        let addresses = group.addresses.join(",");
        let datanodes = ["one", "two"].map(|name| group.datanode(name, &addresses, &[])).into();
        Self { group, _datanodes: datanodes }
    }

    fn notice_file(group: &Group, place: usize) -> PathBuf {
        group.directory.path().join(format!("notice-{place}"))
    }

    fn catalog(&self, place: usize) -> PathBuf {
        self.group.catalog(place)
    }

    /// Starts a namenode on a directory, at the address that a member had.
    fn begin(&self, directory: &Path, place: usize, flags: &[&str]) -> Server {
        let name = format!("anew-{place}");
        let catalog = text(directory.to_owned());
        let listen = &self.group.addresses[place];
        let words = ["namenode", "--listen", listen, "--http", "127.0.0.1:0", "--dir", &catalog];
        let words = [&words[..], flags].concat();
        spawn_with(self.group.directory.path(), &name, &words, &[]).serves()
    }

    /// Starts namenodes that join, and waits until three vote.
    fn join(&mut self, place: usize) {
        let address = self.group.addresses[place].clone();
        for _ in 0..2 {
            self.group.add("127.0.0.1:0", Some(&address), &[]);
        }
        self.group.until_voters(3);
    }

    fn kill_all(&mut self) {
        for place in 0..3 {
            if self.group.members[place].is_some() {
                self.group.kill(place);
            }
        }
    }
}

fn recover(words: &[&str]) -> Ran {
    run(sanderling().args(["group", "recover"]).args(words))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("listed").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// Waits until the archive has everything that was acknowledged by now.
fn until_archived(server: &Server) {
    let acknowledged = Instant::now();
    until("the archive is up to date", SOON, || {
        let page = block_on(http::page(&server.http_address, "/metrics"));
        let name = "sanderling_namenode_archive_lag_seconds ";
        let lag = page.lines().find_map(|line| line.strip_prefix(name))?;
        let lag = Duration::from_secs_f64(lag.parse().expect("a number"));
        (lag < acknowledged.elapsed()).then_some(())
    });
}

#[test]
fn last_of_three_noticed_namenodes_closes_the_archive_and_the_group_begins_anew_from_it() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let mut fleet = Fleet::start(Some(archive.path()));
    let load = Load::start(&fleet.group.addresses);
    for place in 0..3 {
        let notice = "{\"deadline_seconds\": 18}";
        fs::write(Fleet::notice_file(&fleet.group, place), notice).expect("written");
    }
    let noticed = Instant::now();
    let mut closed = 0;
    for place in 0..3 {
        let mut server = fleet.group.members[place].take().expect("it runs");
        assert!(server.wait(SOON).success(), "{}", server.log());
        closed += usize::from(server.log().contains("the archive is closed"));
        let given_on = server.log().matches("another member leads").count();
        assert!(given_on <= 2, "the leadership moves to and fro: {}", server.log());
    }
    assert!(noticed.elapsed() < Duration::from_secs(18), "{:?}", noticed.elapsed());
    assert_eq!(closed, 1, "the last one closes the archive");
    let (place, directory) = (text(archive.path().into()), fleet.group.directory.path());
    let anew = directory.join("anew");
    let alone = ["namenode", "recover", "--archive", &place, "--dir", &text(anew.clone())];
    let refused = run(sanderling().args(alone));
    assert!(refused.code == 1 && refused.stderr.contains("group recover"), "{refused}");
    let recovered = recover(&["--archive", &place, "--dir", &text(anew.clone())]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
    assert!(recovered.stdout.contains("as generation 1"), "{recovered}");
    let server = fleet.begin(&anew, 0, &["--archive", &place]);
    fleet.group.members[0] = Some(server);
    load.until_more(20);
    fleet.join(0);
    let stored = load.stop();
    assert_stored(&fleet.group.addresses[0], 0..stored);
}

#[test]
fn group_begins_anew_from_a_surviving_directory_and_refuses_older_members() {
    let mut fleet = Fleet::start(None);
    let load = Load::start(&fleet.group.addresses);
    load.until_more(50);
    let stored = load.stop();
    let leader = fleet.group.leader();
    until("all have everything", SOON, || {
        let page = fleet.group.cli(leader, &["group", "ls", "--json"]).stdout;
        let page: serde_json::Value = serde_json::from_str(&page).ok()?;
        let rows = page["members"].as_array()?;
        rows.iter().all(|row| row["behind_entries"] == 0).then_some(())
    });
    let (survivor, other) = ((leader + 1) % 3, (leader + 2) % 3);
    for place in [leader, other] {
        fleet.group.kill(place);
    }
    let old = fleet.group.directory.path().join("old");
    copy(&fleet.catalog(other), &old);
    for place in [leader, other] {
        fs::remove_dir_all(fleet.catalog(place)).expect("removed");
    }
    let directory = fleet.catalog(survivor);
    let running = recover(&["--dir", &text(directory.clone())]);
    assert!(running.code == 1 && running.stderr.contains("in use"), "{running}");
    fleet.group.kill(survivor);
    // A directory whose name is several words to a shell.
    let named = fleet.group.directory.path().join("copy; touch b");
    copy(&directory, &named);
    let of_copy = recover(&["--dir", &text(named.clone())]);
    let next = format!("next: sanderling namenode --dir '{}'\n", named.display());
    assert!(of_copy.code == 0 && of_copy.stdout.contains(&next), "{of_copy}");
    let recovered = recover(&["--dir", &text(directory.clone())]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("are missing"), "{recovered}");
    let again = recover(&["--dir", &text(directory.clone())]);
    assert!(again.code == 1 && again.stderr.contains("no directory of"), "{again}");
    let server = fleet.begin(&directory, survivor, &[]);
    let mut back = fleet.begin(&old, other, &[]);
    assert!(!back.wait(SOON).success(), "{}", back.log());
    assert!(back.log().contains("begun the group anew"), "{}", back.log());
    fleet.group.members[survivor] = Some(server);
    assert_stored(&fleet.group.addresses[survivor], 0..stored);
    fleet.join(survivor);
    // Also once the group of the later generation has several members.
    let mut back = fleet.begin(&old, other, &[]);
    assert!(!back.wait(SOON).success(), "{}", back.log());
    block_on(async {
        let address = &fleet.group.addresses[survivor];
        let client = Client::connect(address, config()).await.expect("it leads");
        store(&client, stored).await;
    });
}

#[test]
fn recovery_of_a_directory_that_is_no_members_changes_nothing_in_it() {
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("notes.tmp"), b"of another program").expect("written");
    let refused = recover(&["--dir", &text(place.path().into())]);
    assert!(refused.code == 1 && refused.stderr.contains("no directory of"), "{refused}");
    let entries = fs::read_dir(place.path()).expect("listed").flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["notes.tmp"]);
}

#[test]
fn each_leader_writes_the_archive_and_a_later_generation_ends_the_older() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let place = text(archive.path().into());
    let mut fleet = Fleet::start(Some(archive.path()));
    let load = Load::start(&fleet.group.addresses);
    fleet.group.kill(fleet.group.leader());
    load.until_more(20);
    let stored = load.stop();
    until_archived(fleet.group.members[fleet.group.leader()].as_ref().expect("it runs"));
    fleet.kill_all();
    let anew = fleet.group.directory.path().join("anew");
    let recovered = recover(&["--archive", &place, "--dir", &text(anew.clone())]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("may be missing"), "{recovered}");
    // At an address that no older member has.
    let listen = "127.0.0.1:0";
    let words = ["namenode", "--listen", listen, "--http", "none", "--dir", &text(anew.clone())];
    let words = [&words[..], &["--archive", &place]].concat();
    let mut server = spawn_with(fleet.group.directory.path(), "anew", &words, &[]).serves();
    let mut old: Vec<Server> =
        (0..3).map(|at| fleet.begin(&fleet.catalog(at), at, &["--archive", &place])).collect();
    // Whichever leads finds the later generation in the archive, and so does the next.
    until("two of the older members have ended", SOON, || {
        (old.iter_mut().filter_map(Server::ended).count() >= 2).then_some(())
    });
    assert!(server.ended().is_none(), "{}", server.log());
    let address = server.address.clone();
    block_on(async {
        let client = Client::connect(&address, config()).await.expect("it leads");
        for seed in 0..stored {
            client.stat(&path(&format!("/{seed}"))).await.expect("there");
        }
    });
}

/// Stores objects until a call fails; returns how many were acknowledged by now.
fn store_until_refused(addresses: &[String]) -> Arc<AtomicU64> {
    let (addresses, stored) = (addresses.join(","), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&stored);
    std::thread::spawn(move || {
        let config = ClientConfig { call_deadline: Duration::from_secs(20), ..config() };
        block_on(async {
            let client = Client::connect(&addresses, config).await.expect("one leads");
            loop {
                let seed = count.load(Ordering::Relaxed);
                let to = path(&format!("/{seed}"));
                let put = client.put(&to, bytes_of(seed, BYTES), &PutOptions::default()).await;
                if put.is_err() {
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    stored
}

#[test]
fn archive_follows_each_leader_under_writes() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let place = text(archive.path().into());
    let mut fleet = Fleet::start(Some(archive.path()));
    let stored = store_until_refused(&fleet.group.addresses);
    let until_stored = |count: u64| {
        until("objects are stored", SOON, || {
            (stored.load(Ordering::Relaxed) >= count).then_some(())
        });
    };
    until_stored(50);
    fleet.group.kill(fleet.group.leader());
    // What its predecessor had not stored is the new leader's to store, while writes go on.
    let acknowledged = stored.load(Ordering::Relaxed);
    until_stored(acknowledged + 50);
    let acknowledged = stored.load(Ordering::Relaxed);
    until_archived(fleet.group.members[fleet.group.leader()].as_ref().expect("it runs"));
    fleet.kill_all();
    let anew = text(fleet.group.directory.path().join("anew"));
    let recovered = recover(&["--archive", &place, "--dir", &anew]);
    assert_eq!(recovered.code, 0, "{recovered}");
    // At an address that datanodes have: they hold more than the archive has.
    let server = fleet.begin(Path::new(&anew), 0, &["--archive", &place]);
    assert_stored(&server.address, 0..acknowledged);
}

/// The leader of two that answer may not remove the other one: the dead one is a voter, too.
#[test]
fn noticed_voters_decide_until_their_machines_are_taken_while_the_third_is_dead() {
    let mut fleet = Fleet::start(None);
    let leader = fleet.group.leader();
    let (dead, other) = ((leader + 1) % 3, (leader + 2) % 3);
    fleet.group.kill(dead);
    let load = Load::start(&fleet.group.addresses);
    for place in [leader, other] {
        let notice = "{\"deadline_seconds\": 14}";
        fs::write(Fleet::notice_file(&fleet.group, place), notice).expect("written");
    }
    let noticed = Instant::now();
    until("both notices are shown", SOON, || {
        let page = fleet.group.cli(leader, &["group", "ls", "--json"]).stdout;
        let page: serde_json::Value = serde_json::from_str(&page).ok()?;
        let rows = page["members"].as_array()?;
        (rows.iter().filter(|row| row["notice_left"].is_u64()).count() == 2).then_some(())
    });
    while noticed.elapsed() < Duration::from_secs(6) {
        load.until_more(5);
    }
    let stored = load.stop();
    assert!(noticed.elapsed() < Duration::from_secs(14), "{:?}", noticed.elapsed());
    assert_stored(&fleet.group.addresses[leader], 0..stored);
}

#[test]
fn machine_that_is_not_taken_leads_after_a_notice() {
    let mut group = Group::start(0, &[]);
    for (place, flags) in [&[][..], &[], &["--steady"]].iter().enumerate() {
        let first = group.addresses.first().cloned();
        let notices = format!("file:{}", text(Fleet::notice_file(&group, place)));
        let flags = [*flags, &["--notice-source", &notices]].concat();
        group.add("127.0.0.1:0", first.as_deref(), &flags);
    }
    group.until_voters(3);
    until("the first leads", SOON, || {
        group.cli(0, &["group", "move-leader", "1"]);
        (group.leader() == 0).then_some(())
    });
    until("its life is shown", SOON, || {
        group.cli(0, &["group", "ls"]).stdout.contains("steady").then_some(())
    });
    fs::write(Fleet::notice_file(&group, 0), "{\"deadline_seconds\": 600}").expect("written");
    until("the steady one leads", SOON, || (group.leader_seen_by(1) == Some(2)).then_some(()));
}

#[test]
fn machine_that_is_not_taken_leads_after_a_while() {
    let mut group = Group::start(0, &[]);
    for flags in [&[][..], &[], &["--steady"]] {
        let first = group.addresses.first().cloned();
        group.add("127.0.0.1:0", first.as_deref(), flags);
    }
    group.until_voters(3);
    until("the steady one leads", SOON, || (group.leader_seen_by(1) == Some(2)).then_some(()));
    // It comes back to it also after a restart, and gives it to a voter meanwhile.
    let server = group.members[2].as_mut().expect("it runs");
    server.terminate();
    assert!(server.wait(SOON).success(), "{}", server.log());
    group.members[2] = None;
    group.leader();
    let address = group.addresses[2].clone();
    group.members[2] = Some(group.spawn(2, &address, None, &["--steady"]));
    until("the steady one leads", SOON + SOON, || {
        (group.leader_seen_by(1) == Some(2)).then_some(())
    });
}

/// A signal that comes while a member takes the lead over. It may have proposed a round whose
/// answers it does not receive any more: the next round would begin at the same number.
#[test]
fn member_that_is_terminated_as_it_begins_to_lead_ends_no_other_one() {
    let mut group = Group::start(3, &[]);
    for round in 0..8 {
        let leader = group.leader();
        let next = (leader + 1) % 3;
        let mut server = group.members[next].take().expect("it runs");
        let elections = |server: &Server| server.log().matches("role=Leader").count();
        let before = elections(&server);
        // Members have the numbers in which they joined.
        let number = (next + 1).to_string();
        let mut order = sanderling();
        order.args(["group", "move-leader", &number, "--namenode", &group.addresses[leader]]);
        let ordered = std::thread::spawn(move || run(&mut order));
        let limit = Instant::now() + SOON;
        while elections(&server) == before {
            assert!(Instant::now() < limit, "member {number} is not elected: {}", server.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        server.terminate();
        let status = server.wait(SOON);
        assert!(status.success(), "{}", server.log());
        // Whether the order was carried out may be unknown to its command by now.
        ordered.join().expect("the command ends");
        let leader = group.leader();
        block_on(async {
            namenodes::put(&namenodes::client(&group.addresses[leader]).await, round).await
        });
        assert_eq!(group.running().count(), 2);
        for place in group.running().collect::<Vec<_>>() {
            assert!(group.leader_seen_by(place).is_some(), "member {} has ended", place + 1);
        }
        group.restart(next);
        group.until_voters(3);
    }
}

#[test]
fn namenode_alone_closes_its_archive_before_its_machine_is_taken() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let place = text(archive.path().into());
    let mut group = Group::start(0, &[]);
    let notices = format!("file:{}", text(Fleet::notice_file(&group, 0)));
    group.add("127.0.0.1:0", None, &["--archive", &place, "--notice-source", &notices]);
    fs::write(Fleet::notice_file(&group, 0), "{\"deadline_seconds\": 12}").expect("written");
    let mut server = group.members[0].take().expect("it runs");
    assert!(server.wait(SOON).success(), "{}", server.log());
    assert!(server.log().contains("the archive is closed"), "{}", server.log());
    let directory = text(group.directory.path().join("anew"));
    let words = ["namenode", "recover", "--archive", &place, "--dir", &directory];
    let recovered = run(sanderling().args(words));
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
}

#[test]
fn voter_that_stays_goes_on_alone_when_two_machines_are_taken_and_closes_the_archive() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let mut fleet = Fleet::start(Some(archive.path()));
    let load = Load::start(&fleet.group.addresses);
    let leader = fleet.group.leader();
    for place in [leader, (leader + 1) % 3] {
        let notice = "{\"deadline_seconds\": 17}";
        fs::write(Fleet::notice_file(&fleet.group, place), notice).expect("written");
    }
    for place in [leader, (leader + 1) % 3] {
        let mut server = fleet.group.members[place].take().expect("it runs");
        assert!(server.wait(SOON).success(), "{}", server.log());
    }
    load.until_more(20);
    let stored = load.stop();
    let alone = (leader + 2) % 3;
    assert_stored(&fleet.group.addresses[alone], 0..stored);
    // Its own machine is taken, too.
    let notice = "{\"deadline_seconds\": 12}";
    fs::write(Fleet::notice_file(&fleet.group, alone), notice).expect("written");
    let mut server = fleet.group.members[alone].take().expect("it runs");
    assert!(server.wait(SOON).success(), "{}", server.log());
    let anew = fleet.group.directory.path().join("anew");
    let recovered = recover(&["--archive", &text(archive.path().into()), "--dir", &text(anew)]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
}

#[test]
fn change_that_no_majority_had_is_kept_and_counted() {
    // Without datanodes: of their heartbeats, too, one round is under way at a time.
    let mut fleet = Fleet { group: Group::start(3, &[]), _datanodes: Vec::new() };
    let leader = fleet.group.leader();
    let address = fleet.group.addresses[leader].clone();
    block_on(async {
        let hasty = ClientConfig { call_deadline: Duration::from_secs(1), ..config() };
        let client = Client::connect(&address, hasty).await.expect("it leads");
        store_value(&client, "/first").await.expect("stored");
        for place in (0..3).filter(|place| *place != leader) {
            fleet.group.members[place].as_ref().expect("it runs").pause();
        }
        let put = store_value(&client, "/kept").await;
        assert!(put.is_err(), "no majority has it");
    });
    fleet.kill_all();
    let directory = fleet.catalog(leader);
    let recovered = recover(&["--dir", &text(directory.clone()), "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&recovered.stdout).unwrap_or_default();
    assert!(shown["unconfirmed"].as_u64() > Some(0), "{recovered}");
    let server = fleet.begin(&directory, leader, &[]);
    let commands = format!("commands={}", shown["commands"]);
    assert!(server.log().contains(&commands), "{recovered}{}", server.log());
    block_on(async {
        let client = Client::connect(&server.address, config()).await.expect("it leads");
        for kept in ["/first", "/kept"] {
            assert_eq!(client.get(&path(kept)).await.expect("readable"), &b"a value"[..]);
        }
    });
}
