//! Runners and agents on machines whose clocks differ and jump: locks are neither taken early nor
//! late, generations follow their numbers, and agents go by the clock of their own machine.

#[path = "../clock/mod.rs"]
mod clock;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::tasks::{TaskPlace, is_root};
use crate::cluster::{SOON, run, sanderling, until};
use clock::Clock;
use serde_json::Value;
use tempfile::TempDir;

/// How a runner is started that cannot be seen from here, as one on another machine.
const ELSEWHERE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];

const LOCK_AGE: [&str; 2] = ["--lock-age", "3s"];

fn backend(place: &TempDir) -> std::path::PathBuf {
    place.path().join("backend")
}

#[test]
fn clocks_that_differ_and_jump_change_neither_the_lock_nor_the_order() {
    let Some(first) = Clock::ahead_by_hours(5) else { return eprintln!("SKIPPED: no C compiler") };
    let second = Clock::ahead_by_hours(-24 * 400).expect("it was built before");
    if !is_root("clocks_that_differ_and_jump") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let mut place = TaskPlace::in_directory(&backend(&directory), 10_000);
    place.variables = first.variables();
    let mut a = place.runner("a", &ELSEWHERE, &[&LOCK_AGE[..], &["--keep", "3"]].concat());
    let mut newest = place.until_after(1, &mut a);
    // Another runner, whose clock is a year behind, while the first one's jumps back and forth.
    place.variables = second.variables();
    for hours in [-10, 30, 0, -9000, 100_000] {
        first.set_hours(hours);
        newest = place.until_after(newest, &mut a);
        let mut b = place.runner("b", &ELSEWHERE, &LOCK_AGE);
        let refused = until("the second one ends", SOON, || b.ended());
        assert!(b.log().contains("another runner has the task"), "{refused} {}", b.log());
        assert_eq!(a.ended(), None, "the first one goes on: {}", a.log());
    }
    // The newest by its number is in the past by its date: the clock was seen to jump.
    newest = place.until_after(newest, &mut a);
    first.set_hours(-24 * 800);
    let (_, before) = place.restored();
    newest = place.until_after(newest + 1, &mut a);
    assert_eq!(a.ended(), None, "the first one goes on: {}", a.log());
    a.kill();
    let died = Instant::now();
    let (restored, count) = place.restored();
    assert!(restored >= newest && count > before, "{restored} {newest} {count} {before}");
    let listed = run(&mut place.task("verify"));
    assert!(listed.code == 0 && first_year(&listed.stdout) < year_now(), "{listed}");
    // It is waited for as long as always, and goes on from the newest number.
    let mut b = place.runner("b", &ELSEWHERE, &LOCK_AGE);
    place.until_after(restored, &mut b);
    assert!(died.elapsed() >= Duration::from_secs(2), "taken after {:?}", died.elapsed());
    assert!(b.log().contains(&format!("restored generation {restored}")), "{}", b.log());
    b.kill();
    let (later, more) = place.restored();
    assert!(later > restored && more >= count, "{later} {restored} {more} {count}");
}

/// Returns the year of the first generation that is listed.
fn first_year(listed: &str) -> i64 {
    let dates = listed.split_whitespace().filter_map(|word| word.split_once('-'));
    dates.filter_map(|(year, _)| year.parse().ok()).next().expect("a date")
}

fn year_now() -> i64 {
    let now = run(Command::new("date").arg("+%Y"));
    now.stdout.trim().parse().expect("a year")
}

/// A bag of one task that takes a second and has to be done within an hour.
struct Bag(TempDir);

impl Bag {
    fn submitted() -> Self {
        let bag = Self(TempDir::new().expect("a directory"));
        let mut submit = bag.task("submit");
        submit.args(["--time", "1s", "--deadline", "1h", "--", "true"]);
        let submitted = run(&mut submit);
        assert_eq!(submitted.code, 0, "{submitted}");
        bag
    }

    fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        let backend = format!("dir:{}", backend(&self.0).display());
        command.args(["task", verb, "--bag", "bag", "--backend", &backend]);
        command
    }

    fn agent(&self, market: &str, clock: &Clock) -> Child {
        let mut command = self.task("agent");
        command.args(["--market", market, "--key"]).arg(self.0.path().join("key"));
        command.envs(clock.variables()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("started")
    }

    fn show(&self) -> Value {
        let ran = run(self.task("bag").arg("--json"));
        serde_json::from_str(&ran.stdout).expect("JSON")
    }

    /// Waits until the first agent has looked at the bag for some seconds of its own clock.
    fn until_looked(&self) {
        until("the agent looked", SOON, || {
            (self.show()["agents"][0]["seconds"].as_f64()? > 2.0).then_some(())
        });
    }
}

#[test]
fn agent_on_demand_goes_by_the_clock_of_its_machine() {
    let Some(clock) = Clock::ahead_by_hours(-3) else { return eprintln!("SKIPPED: no compiler") };
    let bag = Bag::submitted();
    let mut agent = bag.agent("on-demand", &clock);
    bag.until_looked();
    assert_eq!(bag.show()["tasks"][0]["state"], "waits", "an hour is left, by its clock four");
    clock.set_hours(1);
    // Its clock shows the deadline: the task is urgent.
    let ended = agent.wait().expect("waited for");
    assert!(ended.success(), "{ended}");
    let view = bag.show();
    assert_eq!(view["tasks"][0]["state"], "done", "{view}");
    assert_eq!(view["tasks"][0]["market"], "on-demand", "{view}");
    // What it records is its own time.
    assert_eq!(view["late"], 1, "{view}");
}

#[test]
fn spot_agent_does_its_tasks_whatever_its_clock_shows() {
    for hours in [-10_000, 10_000] {
        let Some(clock) = Clock::ahead_by_hours(hours) else { return eprintln!("SKIPPED: no cc") };
        let bag = Bag::submitted();
        let ended = bag.agent("spot", &clock).wait().expect("waited for");
        assert!(ended.success(), "{ended}");
        let view = bag.show();
        assert_eq!(view["tasks"][0]["state"], "done", "{view}");
        assert_eq!(view["late"], i64::from(hours > 0), "{view}");
    }
}

#[test]
fn clock_that_jumps_changes_no_cost() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no compiler") };
    let bag = Bag::submitted();
    let mut agent = bag.agent("on-demand", &clock);
    bag.until_looked();
    // Behind the time of its first record: the task is not urgent.
    for hours in [-48, -24] {
        clock.set_hours(hours);
        let seconds = || bag.show()["agents"][0]["seconds"].as_f64();
        let before = until("the agent looks", SOON, seconds);
        let later = until("it looks again", SOON, || seconds().filter(|now| *now > before));
        assert!(later < 3600.0, "{later}");
    }
    clock.set_hours(24);
    assert!(agent.wait().expect("waited for").success(), "the task is urgent by its clock");
    let view = bag.show();
    let seconds = view["agents"][0]["seconds"].as_f64().expect("a number");
    assert!(seconds > 2.0 && seconds < 3600.0, "{view}");
}
