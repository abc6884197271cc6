//! Generations in a format that this release does not read: none before them is taken. One whose
//! version is damaged is none of these.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bag::Place;
use crate::cluster::tasks::TaskPlace;
use crate::cluster::{SOON, run, until};
use sanderling_core::checkpoint::release_checksum;
use tempfile::TempDir;

/// Where the version of the encryption is in a manifest.
const VERSION_AT: usize = 7;

/// A manifest, and the bytes that it had before it was replaced.
struct Replaced(PathBuf, Vec<u8>);

impl Replaced {
    /// Replaces a manifest by one with a later version and its checksum.
    fn by_later_release(manifest: PathBuf) -> Self {
        Self::by(manifest, |bytes| {
            bytes[VERSION_AT] += 1;
            bytes.extend(release_checksum(bytes));
        })
    }

    fn by(manifest: PathBuf, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let before = fs::read(&manifest).expect("a manifest");
        let mut bytes = before.clone();
        change(&mut bytes);
        write_at_once(&manifest, &bytes);
        Self(manifest, before)
    }

    fn undo(self) {
        write_at_once(&self.0, &self.1);
    }
}

/// Replaces a manifest in one step.
fn write_at_once(manifest: &Path, bytes: &[u8]) {
    let task = manifest.parent().and_then(Path::parent).expect("it is in a task");
    let changed = task.join("changed");
    fs::write(&changed, bytes).expect("written");
    fs::rename(&changed, manifest).expect("renamed");
}

/// A task with generations of which an older one could be restored, and no runner.
fn stored(directory: &TempDir) -> (TaskPlace, Vec<u64>) {
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let mut runner = place.runner("publish", &[], &["--keep", "3"]);
    place.until_after(2, &mut runner);
    runner.kill();
    let generations = place.generations();
    assert!(generations.len() >= 2, "an older one could be restored: {generations:?}");
    (place, generations)
}

fn manifest_of(directory: &TempDir, generation: u64) -> PathBuf {
    directory.path().join(format!("backend/count/generations/{generation:010}"))
}

#[test]
fn newest_generation_of_a_later_release_is_named_and_no_older_one_restored() {
    let directory = TempDir::new().expect("a directory");
    let (place, before) = stored(&directory);
    let newest = before[0];
    let replaced = Replaced::by_later_release(manifest_of(&directory, newest));
    let (to, started) = (place.path("to"), place.path("started"));
    let mut restore = place.task("restore");
    restore.arg("--state").arg(&to);
    let mut start = place.task("run");
    start.args(["--", "touch"]).arg(&started);
    let mut collection = place.task("gc");
    collection.args(["--keep", "1"]);
    let named = format!("generation {newest} of count was written by another release");
    for mut command in [restore, start, collection] {
        let ran = run(&mut command);
        assert!(ran.code == 1 && ran.stderr.contains(&named), "{ran}");
        let versions = "its encryption has version 2, and this program reads version 1";
        assert!(ran.stderr.contains(versions), "{ran}");
        assert!(!ran.stderr.contains("restored generation"), "{ran}");
    }
    assert!(!started.exists(), "the task began anew");
    assert_eq!(place.generations(), before, "something was removed");
    let verified = place.verified();
    assert!(verified.code == 5 && verified.stdout.contains(&named), "{verified}");
    replaced.undo();
    assert_eq!(place.restored().0, newest);
}

/// No release has written such a manifest: one of another version ends with its checksum.
#[test]
fn generation_whose_version_is_damaged_is_refused_for_the_one_before() {
    let directory = TempDir::new().expect("a directory");
    let (place, before) = stored(&directory);
    let (newest, older) = (before[0], before[1]);
    let manifest = manifest_of(&directory, newest);
    let damaged = Replaced::by(manifest, |bytes| bytes[VERSION_AT] ^= 0x40);
    let mut restore = place.task("restore");
    restore.arg("--state").arg(place.path("to"));
    let mut start = place.task("run");
    start.args(["--driver", "hook", "--", "true"]);
    let named = format!("generation {newest} of count is refused: its manifest is damaged");
    for mut command in [restore, start] {
        let ran = run(&mut command);
        assert!(ran.code == 0 && ran.stderr.contains(&named), "{ran}");
        assert!(ran.stderr.contains(&format!("restored generation {older}")), "{ran}");
    }
    let verified = place.verified();
    assert!(verified.code == 5 && verified.stdout.contains(&named), "{verified}");
    let collected = run(place.task("gc").args(["--keep", "1"]));
    assert!(collected.code == 5 && collected.stderr.contains(&named), "{collected}");
    damaged.undo();
    assert_eq!(place.restored().0, newest);
    assert_eq!(place.verified().code, 0);
}

/// The key fits another task of the bag, so that it cannot be the reason.
#[test]
fn task_of_a_bag_whose_generations_are_of_a_later_release_has_not_failed() {
    let place = Place::new();
    let tasks = place.two_checkpoints();
    let manifests = || {
        let entries = fs::read_dir(tasks[0].join("generations")).expect("there").flatten();
        let whole = entries.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
        whole.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let replaced: Vec<Replaced> = manifests().into_iter().map(Replaced::by_later_release).collect();
    let mut second = place.agent("spot", &["--at-once", "2", "--retries", "0"]);
    // An agent prints how a run has ended after it has recorded that.
    until("the other release is named", SOON, || {
        let log = fs::read_to_string(place.path("agents.log")).unwrap_or_default();
        log.contains("of bag.000001 was written by another release").then_some(())
    });
    assert!(!place.path("backend/@bag/ended/000001").exists(), "the task was given up");
    replaced.into_iter().for_each(Replaced::undo);
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (0, &0.into()), "{view}");
    assert_eq!(view["tasks"][0]["failures"], 0, "{view}");
    assert!(second.wait().expect("waited for").success());
}
