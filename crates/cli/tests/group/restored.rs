//! A group that is restored from a backup, or recovered from an archive of before it: datanodes and
//! clients that remember the group go on with what was restored, and refuse what is older.

use std::fs;
use std::path::PathBuf;

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, OpenClient, until_up, up};
use crate::cluster::{
    Port, Ran, SOON, Server, bytes_of, path, run, sanderling, until, until_drained, until_node,
};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::{NodeSelector, Policy};
use tempfile::TempDir;

/// More than a value in the catalog: the bytes are on a datanode.
const BYTES: usize = 20_000;

/// Takes a backup of the namenode that leads; returns its file.
fn backup(group: &Group) -> String {
    let file = text(group.directory.path().join("catalog.backup"));
    let leader = group.leader();
    let http = group.members[leader].as_ref().expect("it runs").http_address.clone();
    let taken = group.cli(leader, &["namenode", "backup", "--to", &file, "--http", &http]);
    assert_eq!(taken.code, 0, "{taken}");
    file
}

/// Restores a backup into the directory of the member at a place. Returns the number of the
/// generation that begins.
fn restore(group: &Group, place: usize, file: &str, flags: &[&str]) -> u64 {
    let directory = text(group.catalog(place));
    let words = ["namenode", "restore", "--json", "--from", file, "--dir", &directory];
    begun(&run(sanderling().args(words).args(flags)))
}

/// Recovers an archive into the directory of the member at a place, as a namenode alone. Returns
/// the number of the generation that begins.
fn recover(group: &Group, place: usize, archive: &str, flags: &[&str]) -> u64 {
    let directory = text(group.catalog(place));
    let words = ["namenode", "recover", "--json", "--archive", archive, "--dir", &directory];
    begun(&run(sanderling().args(words).args(flags)))
}

fn begun(ran: &Ran) -> u64 {
    assert_eq!(ran.code, 0, "{ran}");
    let shown: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    shown["group"].as_u64().expect("a number")
}

fn move_leader(group: &Group) {
    let leader = group.leader();
    let moved = group.cli(leader, &["group", "move-leader"]);
    assert_eq!(moved.code, 0, "{moved}");
    until("another member leads", SOON, || (group.leader() != leader).then_some(()));
}

async fn store(client: &Client, seed: u64) {
    let to = path(&format!("/{seed}"));
    client.put(&to, bytes_of(seed, BYTES), &PutOptions::default()).await.expect("stored");
}

async fn assert_stored(client: &Client, seed: u64) {
    let read = client.get(&path(&format!("/{seed}"))).await.expect("readable");
    assert!(read == bytes_of(seed, BYTES), "/{seed} has other bytes");
}

/// A group that an operator has begun anew, with two datanodes and a client that stays open.
struct Fleet {
    group: Group,
    _datanodes: [Server; 2],
    open: OpenClient,
    /// The member from whose directory the group was begun anew.
    first: usize,
    /// A backup of the first namenode, before others joined it. It has `/0`.
    backup_alone: String,
    /// Its archive, which it has closed before others joined it. It has `/0`.
    archive_alone: String,
    /// The seeds of what is stored.
    stored: Vec<u64>,
}

impl Fleet {
    fn start() -> Self {
        let mut group = Group::start(0, &[]);
        let ports = [Port::new(), Port::new(), Port::new()];
        let addresses = ports.each_ref().map(Port::address);
        group.ports.extend(ports);
        let archive_alone = text(group.directory.path().join("archive"));
        group.add(&addresses[0], None, &["--archive", &archive_alone]);
        let all = addresses.join(",");
        let datanodes = ["one", "two"].map(|name| group.datanode(name, &all, &[]));
        let open = OpenClient::connect(&all);
        open.block_on(store(&open.client, 0));
        let backup_alone = format!("{}.alone", backup(&group));
        fs::rename(group.directory.path().join("catalog.backup"), &backup_alone).expect("renamed");
        let mut alone = group.members[0].take().expect("it runs");
        alone.terminate();
        assert!(alone.wait(SOON).success(), "{}", alone.log());
        drop(alone);
        group.restart(0);
        for address in &addresses[1..] {
            group.add(address, Some(&addresses[0]), &[]);
        }
        group.until_voters(3);
        let first = group.leader();
        (0..3).for_each(|place| group.kill(place));
        let directory = text(group.catalog(first));
        let recovered = run(sanderling().args(["group", "recover", "--dir", &directory]));
        assert_eq!(recovered.code, 0, "{recovered}");
        group.restart(first);
        let (stored, _datanodes) = (vec![0], datanodes);
        let mut fleet =
            Self { group, _datanodes, open, first, backup_alone, archive_alone, stored };
        fleet.join(first);
        fleet.store(1);
        fleet
    }

    /// Starts two namenodes that join the one at a place.
    fn join(&mut self, place: usize) {
        let address = self.group.addresses[place].clone();
        for _ in 0..2 {
            self.group.add("127.0.0.1:0", Some(&address), &[]);
        }
        self.group.until_voters(3);
    }

    /// Stores one more object, and reads all.
    fn store(&mut self, seed: u64) {
        self.stored.push(seed);
        self.open.block_on(async {
            store(&self.open.client, seed).await;
            for seed in &self.stored {
                assert_stored(&self.open.client, *seed).await;
            }
        });
    }

    /// Empties a datanode, which takes orders, and takes it back.
    fn empty(&self, name: &str) {
        let client = &self.open.client;
        self.open.block_on(async {
            let node = NodeSelector(name.to_owned());
            client.decommission(&node, "a test").await.expect("taken");
            until_drained(client, name).await;
            client.cancel(&node).await.expect("taken back");
            until_node(client, name, "active", |node| node.policy == Policy::Active).await;
        });
    }

    /// Loses all namenodes with their directories, and starts one on a copy of a catalog at the
    /// address of one of them. Returns its place, and the number of the generation that it begins.
    fn start_on(
        &mut self,
        copy: &str,
        restore: fn(&Group, usize, &str, &[&str]) -> u64,
    ) -> (usize, u64) {
        self.kill_all();
        let place = self.group.members.len();
        for lost in 0..place {
            let _ = fs::remove_dir_all(self.group.catalog(lost));
        }
        let begun = restore(&self.group, place, copy, &[]);
        let address = self.group.addresses[self.first].clone();
        self.group.add(&address, None, &[]);
        (place, begun)
    }

    fn kill_all(&mut self) {
        let running: Vec<usize> = self.group.running().collect();
        for place in running {
            self.group.kill(place);
        }
    }

    /// Checks that what was restored at a place becomes a group, with the datanodes and the client.
    fn assert_goes_on(&mut self, place: usize) {
        self.store(2);
        self.empty("two");
        self.join(place);
        // Greetings of the next leader name the generation.
        move_leader(&self.group);
        self.store(3);
        self.empty("one");
        self.store(4);
    }
}

#[test]
fn restored_group_goes_on_with_datanodes_and_clients_that_remember_a_recovery() {
    let mut fleet = Fleet::start();
    // Datanodes get orders of a later election than the recovery's.
    move_leader(&fleet.group);
    fleet.empty("one");
    let file = backup(&fleet.group);
    let (place, begun) = fleet.start_on(&file, restore);
    assert!(begun > 1, "generation {begun}");
    fleet.assert_goes_on(place);
}

#[test]
fn directory_of_a_recovered_group_that_is_replaced_by_its_backup_begins_a_later_generation() {
    let mut fleet = Fleet::start();
    move_leader(&fleet.group);
    fleet.empty("one");
    let file = backup(&fleet.group);
    fleet.kill_all();
    let place = fleet.first;
    let begun = restore(&fleet.group, place, &file, &["--replace"]);
    assert!(begun > 1, "generation {begun}");
    fleet.group.restart(place);
    // A member of the older generation finds the later one, and ends.
    let older = (0..fleet.group.members.len()).rfind(|it| *it != place).expect("it had others");
    fleet.group.restart(older);
    let mut back = fleet.group.members[older].take().expect("it was started");
    assert!(!back.wait(SOON).success(), "{}", back.log());
    assert!(back.log().contains("begun the group anew"), "{}", back.log());
    fleet.assert_goes_on(place);
}

#[test]
fn restored_backup_from_before_the_group_founds_one_that_its_datanodes_and_clients_take() {
    let mut fleet = Fleet::start();
    let file = fleet.backup_alone.clone();
    let (place, begun) = fleet.start_on(&file, restore);
    assert_eq!(begun, 0, "the backup is of a namenode alone");
    // What came after the backup is gone.
    fleet.stored.truncate(1);
    fleet.assert_goes_on(place);
}

#[test]
fn recovered_archive_from_before_the_group_founds_one_that_its_datanodes_and_clients_take() {
    let mut fleet = Fleet::start();
    let archive = fleet.archive_alone.clone();
    let (place, begun) = fleet.start_on(&archive, recover);
    assert_eq!(begun, 0, "the archive is of a namenode alone");
    // What came after its end is gone.
    fleet.stored.truncate(1);
    fleet.assert_goes_on(place);
}

#[test]
fn recovery_of_a_generation_from_before_the_group_of_its_archive_begins_a_later_one() {
    let archive = TempDir::new().expect("a directory");
    let place = text(archive.path().join("a"));
    let alone = ["--voters", "1"];
    let archived = ["--voters", "1", "--archive", place.as_str()];
    let mut group = Group::start(1, &archived);
    let first = group.addresses[0].clone();
    let mut server = group.members[0].take().expect("it runs");
    server.terminate();
    assert!(server.wait(SOON).success(), "{}", server.log());
    drop(server);
    // It founds a group without the archive, which the group's leader continues.
    group.members[0] = Some(group.spawn(0, &first, None, &alone));
    group.add("127.0.0.1:0", Some(&first), &alone);
    until("the spare is a member", SOON, || (group.roles(0).len() == 2).then_some(()));
    group.kill(1);
    group.kill(0);
    group.members[0] = Some(group.spawn(0, &first, None, &archived));
    until("a manifest of the group", SOON, || {
        let paths = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let mut generations = paths(PathBuf::from(&place)).map(|entry| entry.path());
        let second = generations.find(|path| text(path.clone()).contains("-0000000002-"))?;
        let mut names = paths(second).map(|entry| text(entry.file_name().into()));
        names.any(|name| name.starts_with("manifest-")).then_some(())
    });
    group.kill(0);
    let anew = group.members.len();
    let number = recover(&group, anew, &place, &["--generation", "1"]);
    assert!(number > 1, "generation {number}");
    // The archive has none of that number.
    let directory = text(group.catalog(anew));
    let words = ["group", "recover", "--json", "--archive", &place, "--dir", &directory];
    let later = begun(&run(sanderling().args(words).arg("--replace")));
    assert!(later > number, "generation {later} in a directory that had begun {number}");
}

/// An operator finds that the backup is too old, and that a member's directory has survived.
#[test]
fn survivor_that_is_recovered_after_a_restore_begins_a_generation_that_follows_it() {
    let mut fleet = Fleet::start();
    let file = backup(&fleet.group);
    fleet.store(9);
    let survivor = fleet.group.leader();
    fleet.kill_all();
    let place = fleet.group.members.len();
    let number = restore(&fleet.group, place, &file, &[]);
    let address = fleet.group.addresses[fleet.first].clone();
    fleet.group.add(&address, None, &[]);
    until_up(&address, 2);
    fleet.open.block_on(assert_stored(&fleet.open.client, 0));
    fleet.group.kill(place);
    let (directory, after) = (text(fleet.group.catalog(survivor)), number.to_string());
    let words = ["group", "recover", "--json", "--dir", &directory, "--after", &after];
    assert_eq!(begun(&run(sanderling().args(words))), number + 1);
    fleet.group.addresses[survivor] = address;
    fleet.group.restart(survivor);
    fleet.assert_goes_on(survivor);
}

#[test]
fn members_that_run_beside_the_restored_backup_of_their_group_are_refused() {
    let mut group = Group::start(3, &[]);
    // The backup is restored where no older member looks for it.
    let port = Port::new();
    let anew = port.address();
    let all = format!("{},{anew}", group.addresses.join(","));
    let _datanode = group.datanode("one", &all, &[]);
    let open = OpenClient::connect(&all);
    open.block_on(store(&open.client, 0));
    let file = backup(&group);
    (0..3).for_each(|place| group.kill(place));
    let restored = group.members.len();
    let begun = restore(&group, restored, &file, &[]);
    assert!(begun > 1, "generation {begun}");
    group.add(&anew, None, &[]);
    open.block_on(async {
        store(&open.client, 1).await;
        assert_stored(&open.client, 0).await;
    });
    until_up(&anew, 1);
    // Two of the three have a majority, elect, and answer any client that has met no generation.
    for place in [1, 2] {
        group.restart(place);
    }
    let old = until("an older member leads", SOON, || {
        let leader = group.leader_seen_by(1)?;
        (leader < 3 && group.answers(leader)).then_some(leader)
    });
    let old = group.addresses[old].clone();
    group.kill(restored);
    open.assert_stores_nothing_at(&old);
    // The datanode sends its heartbeats to none of them.
    until("the older members have no datanode", SOON, || (up(&old) == 0).then_some(()));
}
