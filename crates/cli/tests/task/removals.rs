//! What `task gc` and runners remove where a generation cannot be read.

use std::fs;
use std::path::{Path as LocalPath, PathBuf};

use crate::cluster::tasks::{TaskPlace, library};
use crate::cluster::{SOON, run, sanderling, until};
use tempfile::TempDir;

/// A task with three generations or more in a directory, and no runner.
struct Stored {
    directory: TempDir,
    place: TaskPlace,
}

impl Stored {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
        let mut runner = place.runner("publish", &[], &["--keep", "3"]);
        place.until_after(2, &mut runner);
        runner.kill();
        Self { directory, place }
    }

    fn below(&self, name: &str) -> PathBuf {
        self.directory.path().join("backend/count").join(name)
    }

    fn newest_manifest(&self) -> PathBuf {
        self.below(&format!("generations/{:010}", self.place.newest()))
    }
}

/// A manifest that cannot be read for a while, as by a mount that is half there.
struct Away(PathBuf, PathBuf);

impl Away {
    fn new(path: &LocalPath, elsewhere: &LocalPath) -> Self {
        fs::rename(path, elsewhere).expect("renamed");
        fs::create_dir(path).expect("made");
        Self(path.to_owned(), elsewhere.to_owned())
    }

    fn comes_back(self) {
        fs::remove_dir(&self.0).expect("it stays");
        fs::rename(&self.1, &self.0).expect("renamed");
    }
}

#[test]
fn collection_keeps_the_packs_of_a_generation_that_cannot_be_read_now() {
    let stored = Stored::new();
    let newest = stored.place.newest();
    let elsewhere = stored.directory.path().join("elsewhere");
    let away = Away::new(&stored.newest_manifest(), &elsewhere);
    let collected = run(stored.place.task("gc").args(["--json", "--keep", "1"]));
    assert_eq!(collected.code, 5, "{collected}");
    let named = format!("generation {newest} of count is refused");
    assert!(collected.stderr.contains(&named), "{collected}");
    let listed = format!(r#""refused_generations":[{newest}]"#);
    let is_listed = collected.stdout.replace(' ', "").contains(&listed);
    assert!(is_listed && collected.stderr.contains("task verify"), "{collected}");
    away.comes_back();
    let verified = stored.place.verified();
    assert_eq!(verified.code, 0, "{verified}");
    assert_eq!(stored.place.generations(), [newest, newest - 1]);
    let collected = run(stored.place.task("gc").args(["--keep", "1"]));
    assert_eq!(collected.code, 0, "{collected}");
    assert_eq!(fs::read_dir(stored.below("packs")).expect("packs").count(), 1);
}

#[test]
fn runner_keeps_the_packs_of_a_generation_that_cannot_be_read_now() {
    let stored = Stored::new();
    let newest = stored.place.newest();
    let elsewhere = stored.directory.path().join("elsewhere");
    let away = Away::new(&stored.newest_manifest(), &elsewhere);
    let mut runner = stored.place.runner("runner", &[], &["--keep", "100"]);
    stored.place.until_after(newest + 1, &mut runner);
    runner.kill();
    away.comes_back();
    let verified = stored.place.verified();
    assert_eq!(verified.code, 0, "{verified}");
}

/// It cannot be deleted as a manifest is, by a runner or by `task gc`.
#[test]
fn directory_in_place_of_an_old_manifest_holds_no_other_removal_up() {
    let stored = Stored::new();
    let oldest = *stored.place.generations().last().expect("three generations");
    let place = stored.below(&format!("generations/{oldest:010}"));
    fs::remove_file(&place).expect("a manifest");
    fs::create_dir(&place).expect("made");
    fs::write(place.join("file"), "of another program").expect("written");
    let mut runner = stored.place.runner("runner", &[], &["--keep", "1"]);
    let newest = stored.place.until_after(stored.place.newest() + 3, &mut runner);
    // What is dumped meanwhile comes and goes.
    let left = until("old generations are removed", SOON, || {
        let left = stored.place.generations();
        let packs = fs::read_dir(stored.below("packs")).expect("packs").count();
        (left.len() <= 3 && packs <= 3).then_some(left)
    });
    assert!(left.contains(&oldest) && left[0] >= newest, "{left:?}");
    let log = runner.log();
    let named = format!("generation {oldest} cannot be removed: ");
    assert_eq!(log.matches(&named).count(), 1, "{log}");
    runner.kill();
    let collected = run(stored.place.task("gc").args(["--json", "--keep", "1"]));
    assert_eq!(collected.code, 5, "{collected}");
    let named = format!("generation {oldest} of count cannot be removed: {}", place.display());
    assert!(collected.stderr.contains(&named), "{collected}");
    assert!(collected.stderr.contains("; 1 generation cannot be restored"), "{collected}");
    for what in ["refused", "stuck"] {
        let listed = format!(r#""{what}_generations":[{oldest}]"#);
        assert!(collected.stdout.replace(' ', "").contains(&listed), "{collected}");
    }
    let left = stored.place.generations();
    assert!(left.len() == 2 && left[1] == oldest, "{left:?}");
    assert_eq!(fs::read_dir(stored.below("packs")).expect("packs").count(), 1);
    assert!(place.join("file").exists(), "it is no runner's");
    assert_eq!(stored.place.restored().0, left[0]);
    fs::remove_dir_all(&place).expect("it stays");
    let collected = run(stored.place.task("gc").args(["--keep", "1"]));
    assert_eq!(collected.code, 0, "{collected}");
}

/// The runner counts generations that no other process finds.
#[test]
fn generations_that_the_backend_has_lost_cost_none_before_them() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("vanished_manifest.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let condition = directory.path().join("fails");
    place.variables = vec![("LD_PRELOAD", library), ("FAIL_IF", condition.clone())];
    let mut runner = place.runner("runner", &[], &["--keep", "1"]);
    place.until_after(1, &mut runner);
    fs::write(&condition, "").expect("written");
    let dumps = runner.log().matches(" taken by ").count();
    // What follows the dump of one is done before the next one.
    runner.until_logged(" taken by ", dumps + 4);
    let log = runner.log();
    runner.kill();
    let newest = place.newest();
    assert!(newest > 0, "nothing is left: {log}");
    assert_eq!(place.restored().0, newest, "{log}");
    let verified = place.verified();
    assert_eq!(verified.code, 0, "{verified}");
}

#[test]
fn collection_with_the_key_of_another_task_is_refused() {
    let stored = Stored::new();
    let before = stored.place.generations();
    let path = |name: &str| stored.directory.path().join(name);
    let task = |verb: &str, name: &str, backend: &str| {
        let mut command = sanderling();
        command.args(["task", verb, "--name", name, "--key"]).arg(path("other.key"));
        command.arg("--backend").arg(format!("dir:{}", path(backend).display()));
        command
    };
    let ran = run(task("run", "other", "other").args(["--", "true"]));
    assert_eq!(ran.code, 0, "{ran}");
    let refused = run(task("gc", "count", "backend").args(["--keep", "1"]));
    assert!(refused.code == 5 && refused.stdout.is_empty(), "{refused}");
    assert!(refused.stderr.contains("encrypted with another key"), "{refused}");
    assert!(refused.stderr.contains("the same with the --key"), "{refused}");
    assert_eq!(stored.place.generations(), before);
    assert_eq!(stored.place.verified().code, 0);
}

#[test]
fn newest_generation_with_a_cut_pack_does_not_count_among_those_kept() {
    let stored = Stored::new();
    let newest = stored.place.newest();
    let packs = fs::read_dir(stored.below("packs")).expect("packs").flatten();
    let written = |path: &PathBuf| fs::metadata(path).and_then(|it| it.modified()).expect("there");
    let pack = packs.map(|entry| entry.path()).max_by_key(written).expect("a pack");
    let file = fs::OpenOptions::new().write(true).open(pack).expect("a pack");
    file.set_len(100).expect("cut");
    let collected = run(stored.place.task("gc").args(["--keep", "1"]));
    assert!(collected.code == 5 && collected.stderr.contains("is cut"), "{collected}");
    assert_eq!(stored.place.restored().0, newest - 1);
}

/// Their numbers begin anew then, below those that generations show.
#[test]
fn generation_of_a_runner_whose_former_locks_are_gone_is_the_newest() {
    let stored = Stored::new();
    let before = stored.place.newest();
    let mut runner = stored.place.runner("second", &[], &["--keep", "3"]);
    stored.place.until_after(before + 1, &mut runner);
    runner.kill();
    fs::remove_dir_all(stored.below("locks")).expect("they are there");
    let before = stored.place.newest();
    let mut runner = stored.place.runner("third", &[], &["--keep", "1"]);
    stored.place.until_after(before + 1, &mut runner);
    runner.kill();
    let newest = stored.place.newest();
    assert!(newest > before, "{newest}, and {before} was there");
    assert_eq!(stored.place.restored().0, newest);
}
