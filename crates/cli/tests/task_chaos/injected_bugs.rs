//! Bugs injected into a store: each check must find its own.

use std::time::Duration;

use crate::cluster::{Ran, SOON, until};
use crate::judge::{Expected, all_whole, missing, newest_good, read_while_killed, went_on};
use crate::store::{Objects, newest_in, objects_below};
use crate::task::{Backend, ChaosTask};

/// A task with generations in a directory, and no runner.
struct Stored {
    task: ChaosTask,
    backend: Backend,
}

impl Stored {
    fn new() -> Self {
        let task = ChaosTask::new(None);
        let backend = Backend::directory(&task.path("store"));
        let mut runner = task.runner(&backend);
        task.until_after(&backend, 1, &mut runner);
        drop(runner);
        Self { task, backend }
    }

    fn newest(&self) -> u64 {
        newest_in(&objects_below(&self.task.path("store/count")))
    }

    fn all_whole(&self, lost_up_to: u64) -> Result<(), String> {
        all_whole(&self.task.verify(&self.backend), lost_up_to)
    }

    fn newest_good(&self, expected: Expected) -> Result<(u64, Option<u32>), String> {
        newest_good(&self.task, &self.backend, &self.task.path("restored"), expected)
    }

    /// Renames an object or a directory of the store.
    fn rename(&self, from: &str, to: &str) {
        let path = |name: &str| self.task.path(&format!("store/count/{name}"));
        std::fs::rename(path(from), path(to)).expect("renamed");
    }
}

#[test]
fn store_whose_manifest_names_a_pack_that_is_missing_is_found() {
    let stored = Stored::new();
    let newest = stored.newest();
    stored.all_whole(0).expect("all are whole");
    let expected = Expected { floor: newest, listed: newest, lost_up_to: 0 };
    assert_eq!(stored.newest_good(expected).expect("it is good").0, newest);
    // The last one may be that of a dump that was killed.
    let objects = objects_below(&stored.task.path("store/count"));
    let packs: Vec<&str> = objects.keys().filter_map(|it| it.strip_prefix("packs/")).collect();
    let found = packs.iter().filter(|pack| {
        let (here, away) = (format!("packs/{pack}"), format!("locks/{pack}"));
        stored.rename(&here, &away);
        let broken = stored.all_whole(0);
        // A datanode that was killed may have had the pack.
        stored.all_whole(newest).expect("it may be missing");
        stored.rename(&away, &here);
        broken.is_err_and(|why| why.contains("is missing"))
    });
    assert!(found.count() > 0, "no pack was named: {packs:?}");
    stored.rename("packs", "no-packs");
    stored.newest_good(expected).expect_err("no generation restores");
    stored.rename("no-packs", "packs");
    // A manifest that is cut is not passed over in silence.
    let manifest = stored.task.path(&format!("store/count/generations/{newest:010}"));
    let file = std::fs::OpenOptions::new().write(true).open(manifest).expect("a manifest");
    file.set_len(40).expect("cut");
    stored.all_whole(0).expect_err("a manifest is cut");
    let passed_over = stored.newest_good(expected).expect_err("an older one is restored");
    assert!(passed_over.contains(&format!("instead of {newest}")), "{passed_over}");
    let listed_alone = Expected { floor: 0, ..expected };
    stored.newest_good(listed_alone).expect_err("the newest one is passed over");
    let lost = Expected { lost_up_to: newest, ..listed_alone };
    let (restored, _) = stored.newest_good(lost).expect("an older one may be restored");
    assert!(restored < newest);
}

#[test]
fn state_with_another_byte_is_found() {
    let stored = Stored::new();
    stored.newest_good(Expected::default()).expect("it is good");
    let state = stored.task.path("restored");
    let mut bytes = std::fs::read(state.join("part-0")).expect("restored");
    bytes[100_000] ^= 1;
    std::fs::write(state.join("part-0"), bytes).expect("written");
    let broken = stored.task.verified(&state).expect_err("a byte is another one");
    assert!(broken.contains("part 0"), "{broken}");
}

#[test]
fn durable_object_that_the_store_does_not_have_is_found() {
    let objects = |of: &[(&str, u64)]| -> Objects {
        of.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
    };
    let durable = objects(&[("generations/0000000007", 10), ("packs/a", 20)]);
    let more = objects(&[("generations/0000000007", 10), ("packs/a", 20), ("packs/b", 30)]);
    assert_eq!(missing(&durable, &more), [] as [&str; 0]);
    assert_eq!(missing(&more, &durable), ["packs/b"]);
    let cut = objects(&[("generations/0000000007", 10), ("packs/a", 19)]);
    assert_eq!(missing(&durable, &cut), ["packs/a"]);
    assert_eq!((newest_in(&durable), newest_in(&Objects::new())), (7, 0));
}

#[test]
fn reader_that_takes_a_dead_store_for_an_empty_one_is_found() {
    let ran = |code: i32, stdout: &str| Ran {
        code,
        stdout: stdout.to_owned(),
        stderr: String::new(),
        took: Duration::ZERO,
    };
    let bad = r#"{"generations": [{"generation": 7, "is_good": false, "why": "its pack"}]}"#;
    read_while_killed(&ran(4, ""), true, 0).expect("the store was away");
    read_while_killed(&ran(3, ""), false, 0).expect("it was empty");
    read_while_killed(&ran(3, ""), true, 0).expect_err("it was not empty");
    read_while_killed(&ran(5, bad), true, 7).expect("it lost bytes with a datanode");
    read_while_killed(&ran(5, bad), true, 6).expect_err("half a list was taken for all of it");
    read_while_killed(&ran(101, ""), true, 0).expect_err("it panicked");
}

#[test]
fn count_that_is_left_out_or_begins_anew_is_found() {
    assert_eq!(went_on(&[1, 2, 3, 4, 3, 4, 5], 4, 2), Ok(3));
    assert_eq!(went_on(&[1, 2, 3, 4], 0, 0), Ok(1));
    went_on(&[1, 2, 4], 0, 0).expect_err("3 is left out");
    went_on(&[1, 2, 3, 1, 2], 3, 2).expect_err("it begins anew");
    went_on(&[1, 2], 2, 0).expect_err("it does not count");
}

/// Rounds in which it removed nothing would show nothing.
#[test]
fn collector_leaves_the_newest_generation_alone() {
    let stored = Stored::new();
    let mut collector = stored.task.collector(&stored.backend);
    let code = until("task gc ends", SOON, || collector.ended());
    assert_eq!(code, 0, "{}", stored.task.text("gc.log"));
    assert_eq!(stored.task.listed(&stored.backend), [stored.newest()]);
}
