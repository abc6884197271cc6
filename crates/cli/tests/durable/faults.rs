//! Stores of durable directories that fail: the reason names what failed, nothing that came later
//! is visible, and the copying goes on by itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path as LocalPath, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::stores::{add, files, fleet, make, put};
use crate::cluster::tasks::{SmallDisk, is_root};
use crate::cluster::{
    Cluster, SOON, Shape, block_on, bytes_of, run, sanderling, until, until_gone,
};

/// A store, its directory `/out`, and how many objects were put there.
struct Faulty {
    cluster: Cluster,
    store: PathBuf,
    made: u64,
}

impl Faulty {
    fn new(cluster: Cluster, store: PathBuf) -> Self {
        make(&cluster, "/out");
        let mut faulty = Self { cluster, store, made: 0 };
        faulty.put(5000);
        faulty.synced();
        faulty
    }

    fn name(number: u64) -> String {
        format!("{number:02}")
    }

    fn put(&mut self, bytes: usize) {
        let name = format!("/out/{}", Self::name(self.made));
        block_on(async { put(&self.cluster.client().await, &name, self.made, bytes).await });
        self.made += 1;
    }

    fn stalled(&self) -> Option<String> {
        let shown = self.cluster.json(&["fs", "stat", "/out"]);
        let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
        Some(why.to_owned()).filter(|why| !why.is_empty())
    }

    fn synced(&self) {
        let synced = self.cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
        assert_eq!(synced.code, 0, "{synced}");
        let found: Vec<String> = files(&self.store).into_keys().collect();
        let made: Vec<String> = (0..self.made).map(Self::name).collect();
        assert_eq!(found, made);
    }

    /// Puts two objects while the store fails, and looks at the reason.
    fn fails(&mut self, bytes: usize, expected: &[&str]) {
        let durable = self.made;
        self.put(bytes);
        self.put(10);
        let why = until(&format!("the reason {expected:?}"), SOON, || {
            self.stalled().filter(|why| expected.iter().all(|part| why.contains(part)))
        });
        assert!(!why.contains('\n') && why.contains(&self.store.display().to_string()), "{why}");
        for number in durable..self.made {
            assert!(!self.store.join(Self::name(number)).is_file(), "{number} is there: {why}");
        }
    }
}

#[test]
fn names_that_something_else_has_taken_stall_with_their_names() {
    let (cluster, store) = fleet(2);
    let mut faulty = Faulty::new(cluster, store.clone());
    // A directory in the place of a name.
    let taken = store.join(Faulty::name(faulty.made));
    fs::create_dir_all(taken.join("below")).expect("made");
    faulty.fails(3000, &[&format!("{}: Is a directory", Faulty::name(faulty.made))]);
    fs::remove_dir_all(&taken).expect("removed");
    faulty.synced();
    // Where the uploads are.
    let uploads = store.join(".sanderling/uploads");
    fs::rename(&uploads, store.join(".sanderling/elsewhere")).expect("moved");
    faulty.fails(3000, &[".sanderling/uploads: No such file"]);
    fs::rename(store.join(".sanderling/elsewhere"), &uploads).expect("moved");
    faulty.synced();
    // The file that names the owner.
    let owner = store.join(".sanderling/owner");
    let text = fs::read_to_string(&owner).expect("there");
    for (wrong, expected) in
        [("", "which names its owner, is empty"), ("cluster x\n", "it belongs to cluster x")]
    {
        fs::write(&owner, wrong).expect("written");
        faulty.fails(3000, &[expected]);
        fs::write(&owner, &text).expect("written");
        faulty.synced();
    }
}

#[test]
fn symbolic_links_in_a_store_lead_no_change_out_of_it() {
    let (cluster, store) = fleet(2);
    let elsewhere = store.with_extension("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    let faulty = Faulty::new(cluster, store.clone());
    let is_stalled = |name: &str| {
        let reason = format!("{name} is a symbolic link");
        until(&reason, SOON, || faulty.stalled().filter(|why| why.contains(&reason)));
    };
    let sync = || {
        let synced = faulty.cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
        assert_eq!(synced.code, 0, "{synced}");
    };
    // What is put below a link.
    let linked = store.join("linked");
    symlink(&elsewhere, &linked).expect("linked");
    block_on(async { put(&faulty.cluster.client().await, "/out/linked/a/x", 1, 5000).await });
    is_stalled("linked");
    assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0, "it was written through");
    fs::remove_file(&linked).expect("removed");
    sync();
    assert!(fs::read(linked.join("a/x")).expect("it is there") == bytes_of(1, 5000));
    // What is deleted and replaced below one.
    fs::rename(&linked, elsewhere.join("moved")).expect("moved");
    symlink(elsewhere.join("moved"), &linked).expect("linked");
    let removed = faulty.cluster.cli(&["fs", "rm", "/out/linked/a/x"]);
    assert_eq!(removed.code, 0, "{removed}");
    block_on(async { put(&faulty.cluster.client().await, "/out/linked/a/y", 2, 10).await });
    is_stalled("linked");
    assert!(elsewhere.join("moved/a/x").is_file(), "it was removed through the link");
    fs::remove_file(&linked).expect("removed");
    sync();
    assert!(fs::read(linked.join("a/y")).expect("it is there") == bytes_of(2, 10));
    // A directory that is removed whole: the link goes, and not what it leads to.
    fs::rename(&linked, elsewhere.join("whole")).expect("moved");
    symlink(elsewhere.join("whole"), &linked).expect("linked");
    let removed = faulty.cluster.cli(&["fs", "rm", "-r", "/out/linked"]);
    assert_eq!(removed.code, 0, "{removed}");
    sync();
    assert!(fs::symlink_metadata(&linked).is_err() && elsewhere.join("whole/a/y").is_file());
}

#[test]
fn store_in_whose_place_is_another_ones_is_not_written_to() {
    let (other, others) = fleet(1);
    make(&other, "/theirs");
    block_on(async { put(&other.client().await, "/theirs/00", 77, 5000).await });
    assert_eq!(other.cli(&["fs", "sync", "/theirs"]).code, 0);
    let (cluster, store) = fleet(2);
    let mut faulty = Faulty::new(cluster, store.clone());
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("away");
    fs::rename(&others, &store).expect("in its place");
    let before = files(&store);
    faulty.fails(3000, &["it belongs to cluster", "choose another place"]);
    assert!(files(&store) == before, "the other one's store was changed");
    fs::rename(&store, &others).expect("back");
    fs::rename(&away, &store).expect("back");
    faulty.synced();
}

fn remount(place: &LocalPath, options: &str) {
    let mut mount = Command::new("mount");
    let mounted = run(mount.args(["-o", &format!("remount,{options}")]).arg(place));
    assert_eq!(mounted.code, 0, "{mounted}");
}

/// Returns a store on a disk of so many MiB.
fn on_small_disk(mebibytes: u32) -> (SmallDisk, Faulty) {
    let disk = SmallDisk::of(mebibytes);
    let store = disk.path().join("store");
    fs::create_dir(&store).expect("made");
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    for name in ["d0", "d1"] {
        add(&mut cluster, name, &store);
    }
    (disk, Faulty::new(cluster, store))
}

/// Returns the bytes of each upload in a store.
fn uploads(store: &LocalPath) -> Vec<u64> {
    let found = fs::read_dir(store.join(".sanderling/uploads")).expect("there");
    // One may end meanwhile.
    found.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).collect()
}

#[test]
fn full_and_read_only_stores_stall_and_go_on() {
    if !is_root("full_and_read_only_stores") {
        return;
    }
    let (disk, mut faulty) = on_small_disk(8);
    let store = faulty.store.clone();
    // There is room for what comes later, and it has to wait.
    disk.fill_but(1 << 20);
    faulty.fails(3 << 20, &["has no room for"]);
    disk.empty();
    faulty.synced();
    remount(disk.path(), "ro");
    faulty.fails(3000, &["Read-only file system"]);
    remount(disk.path(), "rw");
    faulty.synced();
    // What the failed uploads took is free again.
    until("no uploads are left", SOON, || uploads(&store).is_empty().then_some(()));
}

#[test]
fn store_with_room_only_in_the_order_of_the_changes_goes_on() {
    if !is_root("store_with_room_only_in_the_order") {
        return;
    }
    let (disk, mut faulty) = on_small_disk(16);
    let store = faulty.store.clone();
    for _ in 0..3 {
        faulty.put(3 << 20);
    }
    faulty.synced();
    let remove = |faulty: &Faulty, number: u64| {
        let removed = faulty.cluster.cli(&["fs", "rm", &format!("/out/{}", Faulty::name(number))]);
        assert_eq!(removed.code, 0, "{removed}");
    };
    // There is room for the second object, and none for the first one, nor for both at once.
    disk.fill_but(9 << 19);
    faulty.put(5 << 20);
    remove(&faulty, 1);
    faulty.put(4 << 20);
    remove(&faulty, 2);
    until("the first one fails", SOON, || {
        faulty.stalled().filter(|why| why.contains("has no room for"))
    });
    // The second one is sent at once, or not at all if the first one has failed twice before.
    let limit = Instant::now() + Duration::from_secs(3);
    while !uploads(&store).contains(&(4 << 20)) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(10));
    }
    disk.empty();
    let synced = faulty.cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    let found = files(&store);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["00", "03", "04", "05"]);
    assert!(found["04"] == bytes_of(4, 5 << 20) && found["05"] == bytes_of(5, 4 << 20));
    until("no uploads are left", SOON, || uploads(&store).is_empty().then_some(()));
}

#[test]
fn store_whose_lock_another_process_holds_stalls_until_it_is_free() {
    let (cluster, store) = fleet(2);
    let mut faulty = Faulty::new(cluster, store.clone());
    let lock = fs::File::options().write(true).open(store.join(".sanderling/lock"));
    let lock = lock.expect("a change has made it");
    lock.lock().expect("it is free");
    faulty.fails(3000, &["an adoption is under way for 5.00 s", "may be paused"]);
    lock.unlock().expect("unlocked");
    faulty.synced();
}

#[test]
fn deleted_directory_gives_up_what_waits_and_its_event_has_the_number() {
    let (cluster, store) = fleet(2);
    let mut faulty = Faulty::new(cluster, store.clone());
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("moved");
    faulty.put(3000);
    faulty.put(10);
    until("the directory stalls", SOON, || faulty.stalled());
    let removed = faulty.cluster.cli(&["fs", "rm", "-r", "/out"]);
    assert_eq!(removed.code, 0, "{removed}");
    let shown = faulty.cluster.cli(&["events", "--kind", "durable_dropped"]);
    assert!(shown.code == 0 && shown.stdout.lines().count() == 1, "{shown}");
    assert!(shown.stdout.contains("/out") && shown.stdout.contains("2 changes"), "{shown}");
    fs::rename(&away, &store).expect("moved");
    // The store keeps what it has, and gets nothing of what waited.
    let found: Vec<String> = files(&store).into_keys().collect();
    assert_eq!(found, ["00"]);
}

#[test]
fn store_that_no_datanode_reaches_any_more_is_reported() {
    let (cluster, store) = fleet(1);
    let mut faulty = Faulty::new(cluster, store.clone());
    faulty.cluster.add("without", &["--dram", "64MiB"]);
    // The reason of a failure names the store's datanode, which then ends.
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("away");
    let mut gone = faulty.cluster.datanodes.remove(0);
    gone.kill();
    fs::rename(&away, &store).expect("back");
    faulty.put(3000);
    let why = until("the reason", SOON, || {
        faulty.stalled().filter(|why| why.contains("no datanode reaches the store"))
    });
    assert!(!why.contains(&gone.address), "{why}");
    add(&mut faulty.cluster, "d1", &store);
    faulty.synced();
    assert_eq!(faulty.stalled(), None);
}

/// A removal that was begun may take effect 30 s later, and nothing becomes visible until then. One
/// for which the store was away was not begun.
#[test]
fn removal_that_a_store_away_did_not_get_holds_up_nothing_when_it_is_back() {
    let (cluster, store) = fleet(2);
    let faulty = Faulty::new(cluster, store.clone());
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("away");
    let removed = faulty.cluster.cli(&["fs", "rm", "/out/00"]);
    assert_eq!(removed.code, 0, "{removed}");
    block_on(async { put(&faulty.cluster.client().await, "/out/after", 1, 5000).await });
    until("the directory stalls", SOON, || faulty.stalled());
    fs::rename(&away, &store).expect("back");
    let synced = faulty.cluster.cli(&["fs", "sync", "/out", "--timeout", "20s"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert_eq!(files(&store).keys().collect::<Vec<_>>(), ["after"]);
}

/// Its connections stay open and nothing is answered, as with a machine that was taken. Without the
/// namenode's view of it the manager would wait for its answer for 64 s.
#[test]
fn datanode_that_is_gone_without_an_answer_does_not_hold_up_the_others() {
    let (cluster, store) = fleet(1);
    let mut faulty = Faulty::new(cluster, store.clone());
    faulty.cluster.datanode("d0").pause();
    // The catalog has its bytes, and the only node with the store is to send them.
    faulty.put(100);
    add(&mut faulty.cluster, "d1", &store);
    block_on(async { until_gone(&faulty.cluster.client().await, "d0").await });
    let synced = faulty.cluster.cli(&["fs", "sync", "/out", "--timeout", "30s"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert!(files(&store)["01"] == bytes_of(1, 100));
}

/// Starts a datanode with two stores, which it refuses.
fn refused_stores(cluster: &Cluster, one: &LocalPath, other: &LocalPath) -> String {
    let (one, other) = (format!("one=file://{}", one.display()), other.display());
    let mut command = sanderling();
    command.args(["datanode", "--namenode", &cluster.namenode.address, "--dram", "64MiB"]);
    command.args(["--listen", "127.0.0.1:0", "--http", "none", "--durable", &one]);
    let refused = run(command.arg("--durable").arg(format!("other=file://{other}")));
    assert_eq!(refused.code, 1, "{refused}");
    refused.stderr
}

/// An object of one would have the name of an object of the other.
#[test]
fn datanode_with_one_store_in_another_does_not_start() {
    let cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let (outer, link, bound) = (cluster.path("outer"), cluster.path("link"), cluster.path("bound"));
    let inner = outer.join("inner");
    fs::create_dir_all(&inner).expect("made");
    symlink(&inner, &link).expect("linked");
    let check = |refused: &str| {
        let next = "next:  the same with a place of its own for each --durable";
        assert!(refused.contains("lies in the store") && refused.contains(next), "{refused}");
    };
    check(&refused_stores(&cluster, &outer, &outer));
    check(&refused_stores(&cluster, &outer, &inner));
    check(&refused_stores(&cluster, &inner, &outer));
    check(&refused_stores(&cluster, &outer, &link));
    check(&refused_stores(&cluster, &link, &outer.join("inner/missing")));
    if is_root("datanode_with_one_store_in_another") {
        fs::create_dir(&bound).expect("made");
        let mounted = run(Command::new("mount").arg("--bind").args([&outer, &bound]));
        assert_eq!(mounted.code, 0, "{mounted}");
        let refused = refused_stores(&cluster, &bound, &inner);
        let unmounted = run(Command::new("umount").arg("-l").arg(&bound));
        assert_eq!(unmounted.code, 0, "{unmounted}");
        check(&refused);
    }
}

/// A file system that answers no call, as one whose server is away. In the end all calls fail.
struct SilentMount {
    path: PathBuf,
    device: Option<fs::File>,
}

impl SilentMount {
    /// Mounts one that no process serves; `None` where that cannot be done.
    fn on(path: PathBuf, test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        let device = fs::File::options().read(true).write(true).open("/dev/fuse");
        let noted = device.inspect_err(|error| eprintln!("SKIPPED {test}: no /dev/fuse: {error}"));
        let device = noted.ok()?;
        fs::create_dir(&path).expect("made");
        // The descriptor is the standard input of `mount`.
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "-o", options, "none"]).arg(&path);
        let mounted = mount.stdin(device.try_clone().expect("cloned")).status().expect("started");
        if !mounted.success() {
            eprintln!("SKIPPED {test}: a file system of FUSE cannot be mounted here: {mounted}");
            return None;
        }
        Some(Self { path, device: Some(device) })
    }
}

impl Drop for SilentMount {
    fn drop(&mut self) {
        drop(self.device.take());
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// Two of the stores are one directory, by a symbolic link: their URLs do not show that.
#[test]
fn datanode_starts_with_a_warning_beside_a_store_that_does_not_answer() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let (store, link) = (cluster.path("store"), cluster.path("link"));
    fs::create_dir(&store).expect("made");
    symlink(&store, &link).expect("linked");
    let test = "datanode_starts_with_a_warning_beside_a_store";
    let Some(silent) = SilentMount::on(cluster.path("silent"), test) else { return };
    let refused = refused_stores(&cluster, &silent.path, &silent.path.join("inner"));
    assert!(refused.contains("lies in the store"), "{refused}");
    let place = |name: &str, at: &LocalPath| format!("{name}=file://{}", at.display());
    let places = [place("silent", &silent.path), place("archive", &store), place("linked", &link)];
    let flags = places.iter().flat_map(|place| ["--durable", place.as_str()]);
    let began = Instant::now();
    let log = cluster.add("d0", &flags.collect::<Vec<_>>()).log();
    // It waits 5 s for the look, and a busy machine adds to that.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5) && took < SOON / 2, "{took:?}: {log}");
    let warned = "WARN a durable store does not answer: not checked whether one is in another one";
    assert_eq!(log.matches(warned).count(), 1, "{log}");
    // The other store is used.
    make(&cluster, "/out");
    block_on(async { put(&cluster.client().await, "/out/x", 1, 5000).await });
    let synced = cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert!(files(&store)["x"] == bytes_of(1, 5000));
    assert_eq!(cluster.datanodes[0].log().matches(warned).count(), 1, "it is warned of once");
}

/// The two stores are those of different datanodes: none has both places.
#[test]
fn store_below_another_one_is_neither_claimed_nor_adopted() {
    let (mut cluster, store) = fleet(1);
    make(&cluster, "/out");
    block_on(async { put(&cluster.client().await, "/out/inner/x", 1, 5000).await });
    let sync = |cluster: &Cluster| {
        let synced = cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
        assert_eq!(synced.code, 0, "{synced}");
    };
    sync(&cluster);
    let (inner, empty) = (store.join("inner"), store.join("empty"));
    fs::create_dir(&empty).expect("made");
    for (name, place) in [("inner", &inner), ("empty", &empty)] {
        let place = format!("{name}=file://{}", place.display());
        cluster.add(name, &["--durable", &place, "--dram", "64MiB"]);
    }
    let make = |words: &[&str]| {
        until("a datanode reports its store", SOON, || {
            let made = cluster.cli(&[&["fs", "mkdir", "--timeout", "5s"], words].concat());
            (!made.stderr.contains("no datanode has a store")).then_some(made)
        })
    };
    let made = make(&["/empty", "--durable", "empty"]);
    assert_eq!(made.code, 0, "{made}");
    block_on(async { put(&cluster.client().await, "/empty/x", 2, 5000).await });
    let adopted = make(&["/inner", "--durable", "inner", "--adopt"]);
    assert_ne!(adopted.code, 0, "{adopted}");
    for directory in ["/empty", "/inner"] {
        let reason = format!("it is below {}, the store of cluster", store.display());
        until(&format!("{directory}: {reason}"), SOON, || {
            let shown = cluster.json(&["fs", "stat", directory]);
            let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
            why.contains(&reason).then_some(())
        });
    }
    assert_eq!(fs::read_dir(&empty).expect("there").count(), 0);
    assert!(!inner.join(".sanderling").exists(), "it has no other owner");
    block_on(async { put(&cluster.client().await, "/out/inner/y", 3, 5000).await });
    sync(&cluster);
    let there = files(&store);
    assert_eq!(there.keys().collect::<Vec<_>>(), ["inner/x", "inner/y"]);
    assert!(there["inner/x"] == bytes_of(1, 5000) && there["inner/y"] == bytes_of(3, 5000));
}
