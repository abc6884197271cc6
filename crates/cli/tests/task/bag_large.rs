//! Bags with many tasks, and backends that are slow: what is read of a bag, and how often.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bag::Place;
use crate::cluster::tasks::library;
use crate::cluster::{SOON, run, take_away, until};

/// Submits a bag of so many tasks, all of which have begun.
fn submit_begun(place: &Place, count: u32) {
    let mut submit = place.task("submit");
    submit.args(["--count", &count.to_string(), "--time", "1s", "--deadline", "10h", "--", "true"]);
    let submitted = run(&mut submit);
    assert_eq!(submitted.code, 0, "{submitted}");
    for number in 1..=count {
        let record = place.path(&format!("backend/@bag/progress/{number:06}"));
        std::fs::write(record, r#"{"worked":0,"failures":0}"#).expect("written");
    }
}

/// The progress of one task after another would be read for 80 s.
#[test]
fn agent_of_a_large_bag_reports_and_finds_it_removed_however_slow_its_reads_are() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("slow_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    submit_begun(&place, 200);
    let below = "/@bag/progress/".into();
    place.variables =
        vec![("LD_PRELOAD", library), ("SLOW_BELOW", below), ("SLOW_EACH", "400".into())];
    // No task is urgent, so that it has room and starts none.
    let mut agent = place.agent("on-demand", &[]);
    let mut records = vec![until("it reports", SOON, || place.ran())];
    until("it has reported for 25 s", SOON, || {
        let newest = place.ran()?;
        if records.last() != Some(&newest) {
            records.push(newest);
        }
        (newest > 25_000).then_some(())
    });
    let longest = records.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest < Some(20_000), "it counts as silent: {records:?}");
    let removed = Instant::now();
    take_away(place.path("backend/@bag"));
    let ended = until("it ends", SOON, || agent.try_wait().expect("waited for"));
    assert_eq!(ended.code(), Some(3));
    let took = removed.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn bag_that_is_waited_for_is_read_once() {
    let place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("count_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    submit_begun(&place, 3);
    let end = |number: u32| {
        let (draft, record) = (place.path("draft"), format!("backend/@bag/ended/{number:06}"));
        let text = r#"{"at":1000000,"agent":"a","market":"spot","failed":null}"#;
        std::fs::write(&draft, text).expect("written");
        std::fs::rename(draft, place.path(&record)).expect("renamed");
    };
    [1, 2].into_iter().for_each(end);
    let counts = place.path("counts");
    let reads = |part: &str| {
        let text = std::fs::read_to_string(&counts).unwrap_or_default();
        text.lines().filter(|path| path.contains(part)).count()
    };
    let mut wait = place.task("bag");
    wait.arg("--wait").stdout(Stdio::null()).env("LD_PRELOAD", library);
    wait.env("COUNT_TO", &counts).env("COUNT_BELOW", "/@bag/");
    let mut wait = wait.spawn().expect("started");
    // It looks whether the bag is there each time.
    until("it has looked three times", SOON, || (reads("/@bag/bag") > 3).then_some(()));
    end(3);
    assert_eq!(wait.wait().expect("waited for").code(), Some(0));
    assert_eq!([reads("/progress/"), reads("/ended/")], [3, 3]);
}
