//! Stores of durable directories: what a datanode does there, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Caller, Served, until};
use sanderling_datanode::{DatanodeServer, DurableOptions};
use sanderling_protocol::order::{StoreChange, UploadBlock, UploadOrder, UploadPart};
use sanderling_protocol::{BlockId, Epoch, NodeId, ObjectId, Order, OrderReply, Refusal};

const DIRECTORY: ObjectId = ObjectId(7);

/// Starts a datanode that reaches the store `s` in a directory.
async fn datanode(served: &Served, place: &Path) -> DatanodeServer {
    let mut options = served.options();
    let url = format!("file://{}", place.display());
    options.durable = vec![DurableOptions { name: "s".to_owned(), url, settings: Vec::new() }];
    DatanodeServer::start(options).await.unwrap()
}

/// Orders the upload of a small object.
async fn upload(caller: &Caller, key: &str, value: &[u8]) -> Result<String, Refusal> {
    upload_to(caller, key, value, true).await
}

async fn upload_to(
    caller: &Caller,
    key: &str,
    value: &[u8],
    may_claim: bool,
) -> Result<String, Refusal> {
    let part = UploadPart { number: 0, offset: 0, inline: value.to_vec(), blocks: Vec::new() };
    let (store, key) = ("s".to_owned(), key.to_owned());
    let (directory, upload, parts) = (DIRECTORY, None, vec![part]);
    let order = UploadOrder { directory, may_claim, store, key, upload, parts };
    match caller.order_in(0, Order::Upload(Box::new(order))).await {
        Ok(OrderReply::Uploaded { upload, .. }) => Ok(upload),
        Err(sanderling_transport::CallError::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

async fn change(caller: &Caller, change: StoreChange) -> Result<(), Refusal> {
    let (directory, store) = (DIRECTORY, "s".to_owned());
    match caller.order(Order::ChangeStore { directory, store, changes: vec![change] }).await {
        OrderReply::StoreChanged { done: 1, failure: None } => Ok(()),
        OrderReply::StoreChanged { done: 0, failure: Some(failure) } => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn complete(key: &str, upload: &str, bytes: u64) -> StoreChange {
    let (key, upload) = (key.to_owned(), upload.to_owned());
    StoreChange::Complete { key, upload, parts: vec![String::new()], bytes }
}

async fn put(caller: &Caller, key: &str, value: &[u8]) {
    let sent = upload(caller, key, value).await.unwrap();
    change(caller, complete(key, &sent, value.len() as u64)).await.unwrap();
}

#[tokio::test]
async fn removal_that_does_not_wait_any_more_removes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, place.path()).await;
    let caller = Caller::new(&server);
    put(&caller, "d/x", b"newer").await;
    let file = place.path().join("d/x");
    let remove = || StoreChange::Remove { number: 5, key: "d/x".to_owned() };
    let remove_all = || StoreChange::RemoveTree { number: 6, key: "d".to_owned() };
    // An order that was late: another node has done it, and the name has a newer object.
    change(&caller, remove()).await.unwrap_err();
    change(&caller, remove_all()).await.unwrap_err();
    assert_eq!(std::fs::read(&file).unwrap(), b"newer");
    // The same while the namenode does not answer.
    served.namenode.state.lock().waiting = [(DIRECTORY, 5), (DIRECTORY, 6)].into();
    served.namenode.state.lock().is_deaf = true;
    change(&caller, remove()).await.unwrap_err();
    assert!(file.exists());
    served.namenode.state.lock().is_deaf = false;
    change(&caller, remove()).await.unwrap();
    assert!(!file.exists());
    change(&caller, remove_all()).await.unwrap();
    assert!(!place.path().join("d").exists());
    server.stop().await;
}

#[tokio::test]
async fn upload_that_was_ended_or_completed_is_never_completed_again() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, place.path()).await;
    let caller = Caller::new(&server);
    let late = upload(&caller, "x", b"older").await.unwrap();
    assert!(!place.path().join("x").exists(), "it is visible before it is completed");
    let (directory, store) = (DIRECTORY, "s".to_owned());
    let uploads = vec![("x".to_owned(), late.clone())];
    for _ in 0..2 {
        let (store, uploads) = (store.clone(), uploads.clone());
        let ended = caller.order(Order::AbortUploads { directory, store, uploads }).await;
        assert_eq!(ended, OrderReply::Done, "what was ended is ended");
    }
    let first = upload(&caller, "x", b"first").await.unwrap();
    change(&caller, complete("x", &first, 5)).await.unwrap();
    put(&caller, "x", b"newer").await;
    for upload in [&late, &first] {
        change(&caller, complete("x", upload, 5)).await.unwrap_err();
    }
    assert_eq!(std::fs::read(place.path().join("x")).unwrap(), b"newer");
    // What is shorter than it must be is not made visible.
    let short = upload(&caller, "y", b"short").await.unwrap();
    change(&caller, complete("y", &short, 6)).await.unwrap_err();
    assert!(!place.path().join("y").exists());
    server.stop().await;
}

/// The manager has no record of the upload, and neither has the next one.
#[tokio::test]
async fn upload_whose_manager_is_gone_before_the_end_of_its_order_is_ended() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, place.path()).await;
    put(&Caller::new(&server), "x", b"value").await;
    // The home of the block answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (node, address) = (NodeId(77), silent.local_addr().unwrap().to_string());
    let block = UploadBlock { block: BlockId(1), epoch: Epoch(1), length: 5, node, address };
    let part = UploadPart { number: 0, offset: 0, inline: Vec::new(), blocks: vec![block] };
    let (store, key, directory) = ("s".to_owned(), "y".to_owned(), DIRECTORY);
    let (may_claim, upload, parts) = (false, None, vec![part]);
    let order = UploadOrder { directory, may_claim, store, key, upload, parts };
    let manager = Caller::new(&server);
    let ordered =
        tokio::spawn(async move { manager.order_in(0, Order::Upload(Box::new(order))).await });
    let uploads = place.path().join(".sanderling/uploads");
    let count = || std::fs::read_dir(&uploads).unwrap().count();
    until("the upload begins", || count() == 1).await;
    ordered.abort();
    until("the upload is ended", || count() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn names_that_lead_out_of_the_store_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let inside = place.path().join("store");
    std::fs::create_dir(&inside).unwrap();
    let served = Served::start().await;
    let server = datanode(&served, &inside).await;
    let caller = Caller::new(&server);
    put(&caller, "x", b"value").await;
    let outside = place.path().join("outside");
    std::fs::write(&outside, "precious").unwrap();
    let absolute = outside.display().to_string();
    let sent = upload(&caller, "x", b"value").await.unwrap();
    served.namenode.state.lock().waiting = [(DIRECTORY, 1)].into();
    for key in ["../outside", "d/../../outside", &absolute, "", ".", ".sanderling/owner", "a//b"] {
        let key = || key.to_owned();
        change(&caller, complete(&key(), &sent, 5)).await.unwrap_err();
        change(&caller, StoreChange::Remove { number: 1, key: key() }).await.unwrap_err();
        change(&caller, StoreChange::RemoveTree { number: 1, key: key() }).await.unwrap_err();
    }
    change(&caller, complete("y", "../../../outside", 8)).await.unwrap_err();
    assert_eq!(std::fs::read(&outside).unwrap(), b"precious");
    assert!(inside.join(".sanderling/owner").exists());
    server.stop().await;
}

#[tokio::test]
async fn datanode_starts_although_its_store_is_away_and_never_makes_it() {
    let place = tempfile::tempdir().unwrap();
    let mounted = place.path().join("store");
    let served = Served::start().await;
    let server = datanode(&served, &mounted).await;
    let caller = Caller::new(&server);
    until("it reports its store", || !served.namenode.state.lock().stores.is_empty()).await;
    let refused = upload(&caller, "x", b"value").await.unwrap_err();
    assert!(matches!(refused, Refusal::TierFailed { .. }), "{refused}");
    assert!(!mounted.exists());
    std::fs::create_dir(&mounted).unwrap();
    std::fs::set_permissions(&mounted, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Empty, but the directory's store is not.
    upload_to(&caller, "x", b"value", false).await.unwrap_err();
    assert_eq!(std::fs::read_dir(&mounted).unwrap().count(), 0);
    put(&caller, "d/x", b"value").await;
    // Other users read it as they read the store's own directory.
    let mode =
        |path: &str| std::fs::metadata(mounted.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("d"), mode("d/x")), (0o755, 0o644));
    server.stop().await;
}

/// Takes the lock of the store as a datanode of another process does, which then pauses.
fn locked(place: &Path, is_alone: bool) -> File {
    let file = OpenOptions::new().write(true).open(place.join(".sanderling/lock")).unwrap();
    let locked = if is_alone { file.try_lock() } else { file.try_lock_shared() };
    locked.expect("nothing is under way");
    file
}

async fn take(caller: &Caller) -> Result<(), Refusal> {
    let order = Order::TakeStore { directory: DIRECTORY, store: "s".to_owned() };
    match caller.order_in(0, order).await {
        Ok(OrderReply::StoreTaken { .. }) => Ok(()),
        Err(sanderling_transport::CallError::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn order_to_adopt_that_is_late_takes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, place.path()).await;
    let caller = Caller::new(&server);
    put(&caller, "x", b"value").await;
    let owner = place.path().join(".sanderling/owner");
    let other = "cluster 1 directory 1\n";
    std::fs::write(&owner, other).unwrap();
    // Its adoption went on with another node, and another cluster has adopted the store since.
    let refused = take(&caller).await.unwrap_err();
    assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
    assert_eq!(std::fs::read_to_string(&owner).unwrap(), other);
    // The same while the namenode does not answer.
    served.namenode.state.lock().to_take = [DIRECTORY].into();
    served.namenode.state.lock().is_deaf = true;
    take(&caller).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&owner).unwrap(), other);
    served.namenode.state.lock().is_deaf = false;
    take(&caller).await.unwrap();
    let named = std::fs::read_to_string(&owner).unwrap();
    assert!(named.ends_with("adopted from cluster 1 directory 1\n"), "{named}");
    server.stop().await;
}

#[tokio::test]
async fn store_is_not_adopted_while_its_owner_changes_it() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, place.path()).await;
    let caller = Caller::new(&server);
    put(&caller, "x", b"value").await;
    let owner = place.path().join(".sanderling/owner");
    std::fs::write(&owner, "cluster 1 directory 1\n").unwrap();
    served.namenode.state.lock().to_take = [DIRECTORY].into();
    // A datanode of the former owner has looked at the owner, pauses, and will remove a name.
    let paused = locked(place.path(), false);
    let refused = take(&caller).await.unwrap_err();
    assert!(refused.to_string().contains("a change of its owner is under way"), "{refused}");
    assert_eq!(std::fs::read_to_string(&owner).unwrap(), "cluster 1 directory 1\n");
    drop(paused);
    take(&caller).await.unwrap();
    // Another adoption is under way: what is in flight of this owner is not made.
    let sent = upload(&caller, "y", b"value").await.unwrap();
    let paused = locked(place.path(), true);
    let refused = change(&caller, complete("y", &sent, 5)).await.unwrap_err();
    assert!(refused.to_string().contains("an adoption is under way"), "{refused}");
    drop(paused);
    change(&caller, complete("y", &sent, 5)).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn store_whose_owner_changes_it_all_the_time_is_adopted() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, place.path()).await;
    let caller = Caller::new(&server);
    put(&caller, "x", b"value").await;
    served.namenode.state.lock().to_take = [DIRECTORY].into();
    // Two datanodes, one of which always has a change under way, by the protocol of the lock.
    let (own, ending) = (place.path().join(".sanderling"), Arc::new(AtomicBool::new(false)));
    let is_ending = Arc::clone(&ending);
    let changes = thread::spawn(move || {
        let open = |name: &str| OpenOptions::new().write(true).open(own.join(name)).unwrap();
        let mut held = None;
        while !is_ending.load(Ordering::SeqCst) {
            let (gate, lock) = (open("gate"), open("lock"));
            if gate.try_lock_shared().is_ok() && lock.try_lock_shared().is_ok() {
                held = Some(lock);
            } else {
                // It ends what it has begun, and waits for the adoption.
                held = None;
            }
            drop(gate);
            thread::sleep(Duration::from_millis(30));
        }
        drop(held);
    });
    let taken = take(&caller).await;
    ending.store(true, Ordering::SeqCst);
    changes.join().unwrap();
    taken.unwrap();
    server.stop().await;
}

/// A file system of 64 KiB, where the right to make one is given.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(place.path());
        let mounted = mount.stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(place))
    }

    /// Fills it; returns the file that does.
    fn fill(&self) -> PathBuf {
        let filler = self.0.path().join("filler");
        let mut file = File::create(&filler).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        filler
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Returns how many drafts of the file that names the owner are in a store.
fn drafts(store: &Path) -> usize {
    let entries = std::fs::read_dir(store.join(".sanderling")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(b"owner-")).count()
}

#[tokio::test]
async fn claims_and_adoptions_of_a_full_store_leave_no_drafts() {
    let Some(disk) = TinyDisk::mount() else {
        eprintln!("SKIPPED: no right to mount a small file system here");
        return;
    };
    let store = disk.0.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let served = Served::start().await;
    let server = datanode(&served, &store).await;
    let caller = Caller::new(&server);
    let filler = disk.fill();
    for _ in 0..3 {
        let refused = upload(&caller, "x", b"value").await.unwrap_err();
        assert!(matches!(refused, Refusal::NodeFull { .. }), "{refused}");
        assert_eq!(drafts(&store), 0);
    }
    std::fs::remove_file(&filler).unwrap();
    put(&caller, "x", b"value").await;
    let owner = store.join(".sanderling/owner");
    std::fs::write(&owner, "cluster 1 directory 1\n").unwrap();
    served.namenode.state.lock().to_take = [DIRECTORY].into();
    disk.fill();
    for _ in 0..3 {
        let refused = take(&caller).await.unwrap_err();
        assert!(matches!(refused, Refusal::NodeFull { .. }), "{refused}");
        assert_eq!(drafts(&store), 0);
    }
    std::fs::remove_file(&filler).unwrap();
    take(&caller).await.unwrap();
    assert_eq!(drafts(&store), 0);
    server.stop().await;
}
