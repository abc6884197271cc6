//! Agents with several tasks whose machine gets a notice.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bag::{Place, below, has_checkpoint, kill, signal};
use crate::cluster::tasks::library;
use crate::cluster::{Killed, SOON, run, until};
use rustix::process::Signal;

/// Handles its signal as soon as there is a file `go` with its number in the place that its first
/// argument names. It writes 2 MiB that cannot be compressed then, and takes as many seconds for it
/// as its second argument.
const WRITER: &str = r#"
import os, signal, sys, time
state, number = os.environ["SANDERLING_TASK_STATE"], os.environ["SANDERLING_TASK_NUMBER"]
place, pace = sys.argv[1], float(sys.argv[2])

def named(word):
    return os.path.join(place, f"{word}.{number}")

def save(*_):
    time.sleep(pace)
    with open(os.path.join(state, "bytes"), "wb") as file:
        file.write(os.urandom(2 << 20))
    open(os.path.join(state, "done"), "w").close()

open(named("begun"), "w").close()
while not os.path.exists(named("go")):
    time.sleep(0.01)
signal.signal(signal.SIGUSR1, save)
open(named("ready"), "w").close()
while True:
    time.sleep(0.01)
"#;

/// Submits a bag with so many of these tasks.
fn submit(place: &Place, count: u32, pace: &str) {
    std::fs::write(place.path("writer.py"), WRITER).expect("written");
    let mut command = place.task("submit");
    command.args(["--count", &count.to_string(), "--time", "1h", "--deadline", "10h", "--"]);
    command.arg("python3").arg(place.path("writer.py")).arg(place.path("")).arg(pace);
    let submitted = run(&mut command);
    assert_eq!(submitted.code, 0, "{submitted}");
}

fn until_there(place: &Place, name: &str, number: u32) {
    until(name, SOON, || place.path(&format!("{name}.{number}")).exists().then_some(()));
}

fn go(place: &Place, number: u32) {
    std::fs::write(place.path(&format!("go.{number}")), "").expect("written");
}

fn stored(place: &Place, number: u32) -> PathBuf {
    place.path(&format!("backend/bag.{number:06}"))
}

/// Returns how many generations a task has.
fn generations(place: &Place, number: u32) -> usize {
    let found = std::fs::read_dir(stored(place, number).join("generations"));
    let names = found.into_iter().flatten().flatten().map(|entry| entry.file_name());
    // What is not finished begins with a dot.
    names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count()
}

/// Each dump takes two seconds while it is alone, as was measured, and ten while all are under way:
/// longer than the notice.
#[test]
fn last_dumps_that_share_a_slow_backend_are_complete_as_far_as_they_fit() {
    const TASKS: u32 = 5;
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("slow_writes.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    submit(&place, TASKS, "0");
    let (condition, below) = (place.path("slow"), "/packs/".into());
    place.variables =
        vec![("LD_PRELOAD", library), ("SLOW_IF", condition.clone()), ("SLOW_BELOW", below)];
    let flags = ["--at-once", "5", "--interval", "15s", "--on-notice", "--notice-deadline", "8s"];
    let mut agent = place.agent("spot", &flags);
    // The rates of the backend are measured before.
    (1..=TASKS).for_each(|number| until_there(&place, "begun", number));
    std::fs::write(condition, "").expect("written");
    for number in 1..=TASKS {
        go(&place, number);
        until("its first dump", SOON, || (generations(&place, number) > 0).then_some(()));
    }
    let before: Vec<usize> = (1..=TASKS).map(|number| generations(&place, number)).collect();
    signal(&agent, Signal::TERM);
    agent.wait().expect("waited for");
    let after: Vec<usize> = (1..=TASKS).map(|number| generations(&place, number)).collect();
    let saved = before.iter().zip(&after).filter(|(before, after)| after > before).count();
    assert!(saved >= 2, "{before:?} {after:?}");
    for number in 1..=TASKS {
        let verified = place.verified(number);
        assert_eq!(verified.code, 0, "{verified}");
    }
}

/// One after another they would take longer than the notice.
#[test]
fn tasks_write_their_states_at_once_at_a_notice() {
    const TASKS: u32 = 4;
    let place = Place::new();
    submit(&place, TASKS, "4");
    (1..=TASKS).for_each(|number| go(&place, number));
    let flags = ["--at-once", "4", "--interval", "1h", "--on-notice", "--notice-deadline", "12s"];
    let mut agent = place.agent("spot", &flags);
    (1..=TASKS).for_each(|number| until_there(&place, "ready", number));
    signal(&agent, Signal::TERM);
    agent.wait().expect("waited for");
    for number in 1..=TASKS {
        assert!(has_checkpoint(&stored(&place, number)), "task {number}");
        let verified = place.verified(number);
        assert_eq!(verified.code, 0, "{verified}");
    }
}

/// Google's metadata server of one machine.
#[derive(Default)]
struct Metadata {
    is_preempted: AtomicBool,
    /// Requests that were answered at once: each poller begins with one, and goes on with requests
    /// that wait for a change.
    plain: AtomicU32,
}

impl Metadata {
    /// Serves it as long as this process runs. Returns its address, too.
    fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let metadata = Arc::new(Self::default());
        let served = Arc::clone(&metadata);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                thread::spawn(move || served.answer(stream));
            }
        });
        (metadata, address)
    }

    /// Returns the version and the text of the page.
    fn page(&self) -> (&'static str, &'static str) {
        match self.is_preempted.load(Ordering::Relaxed) {
            true => ("2", "TRUE"),
            false => ("1", "FALSE"),
        }
    }

    /// Answers one request, which may wait for another version of the page.
    fn answer(&self, mut stream: TcpStream) {
        let (mut head, mut piece) = (Vec::new(), [0; 4096]);
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => head.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head);
        if !head.contains("wait_for_change") {
            self.plain.fetch_add(1, Ordering::Relaxed);
        }
        let until = Instant::now() + Duration::from_secs(5);
        let waits = || head.contains(&format!("last_etag={}", self.page().0));
        while waits() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let ((etag, text), end) = (self.page(), "connection: close\r\n\r\n");
        let length = text.len();
        let begin = format!("HTTP/1.1 200 OK\r\netag: {etag}\r\ncontent-length: {length}\r\n");
        // The client may have gone away.
        let _ = stream.write_all(format!("{begin}{end}{text}").as_bytes());
    }
}

/// Clouds allow a machine about one request a second.
#[test]
fn tasks_of_an_agent_get_the_notice_of_a_cloud_from_one_poller() {
    const TASKS: u32 = 4;
    let place = Place::new();
    submit(&place, TASKS, "0");
    (1..=TASKS).for_each(|number| go(&place, number));
    let (metadata, address) = Metadata::start();
    let url = format!("http://{address}");
    // Dumps of four tasks fit into it on any machine: only the pollers are counted here.
    let flags = ["--at-once", "4", "--interval", "1h", "--on-notice", "--notice-deadline", "10m"];
    let source = ["--notice-source", "gcp", "--notice-url", &url];
    let _agent = place.agent("spot", &[&flags[..], &source[..]].concat());
    (1..=TASKS).for_each(|number| until_there(&place, "ready", number));
    let before: Vec<usize> = (1..=TASKS).map(|number| generations(&place, number)).collect();
    assert_eq!(before, [0; TASKS as usize]);
    metadata.is_preempted.store(true, Ordering::Relaxed);
    for number in 1..=TASKS {
        until("its dump at the notice", SOON, || (generations(&place, number) > 0).then_some(()));
    }
    // A poller whose request failed on a busy machine begins again.
    let plain = metadata.plain.load(Ordering::Relaxed);
    assert!(plain < TASKS, "{plain} pollers for {TASKS} tasks");
}

/// Shows a notice of a machine that is taken after ten minutes.
fn show_notice(place: &Place) {
    std::fs::write(place.path("draft"), r#"{"deadline_seconds":600}"#).expect("written");
    std::fs::rename(place.path("draft"), place.path("notice")).expect("renamed");
}

/// Returns the flags of an agent whose only checkpoints are those of such notices.
fn at_notices(place: &Place) -> Vec<String> {
    let source = format!("file:{}", place.path("notice").display());
    let flags = ["--interval", "1h", "--on-notice", "--notice-source", &source];
    flags.map(str::to_owned).to_vec()
}

/// Starts an agent with such flags.
fn agent_at_notices(place: &Place) -> Killed {
    let flags = at_notices(place);
    place.agent("spot", &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns how often the tasks of a bag have started.
fn starts(place: &Place) -> usize {
    place.lines().iter().filter(|line| line.word == "start").count()
}

#[test]
fn agent_with_a_notice_hands_its_task_over_before_its_machine_is_taken() {
    let place = Place::new();
    let submitted = place.submit(&["--time", "1h", "--deadline", "100h"], 10);
    assert_eq!(submitted.code, 0, "{submitted}");
    place.hold();
    let mut first = agent_at_notices(&place);
    until("it runs", SOON, || (starts(&place) == 1).then_some(()));
    let mut second = place.agent("spot", &["--interval", "1h"]);
    show_notice(&place);
    until("another one starts it", SOON, || (starts(&place) == 2).then_some(()));
    assert!(first.try_wait().expect("our own child").is_none(), "its machine is still there");
    until("it ends here and runs there", SOON, || {
        (below(first.id()).is_empty() && !below(second.id()).is_empty()).then_some(())
    });
    let lines = place.lines();
    assert!(lines.iter().all(|line| line.word == "start"), "{lines:?}");
    assert!(lines[1].is_restored, "it began anew: {lines:?}");
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"], &view["failed"]), (0, &1.into(), &0.into()), "{view}");
    assert!(second.wait().expect("waited for").success());
    assert!(first.wait().expect("waited for").success());
}

#[test]
fn agent_starts_nothing_while_its_machine_has_a_notice() {
    let place = Place::new();
    let submitted = place.submit(&["--count", "3", "--time", "1h", "--deadline", "100h"], 10);
    assert_eq!(submitted.code, 0, "{submitted}");
    place.hold();
    let mut agent = agent_at_notices(&place);
    until("it runs", SOON, || (starts(&place) == 1).then_some(()));
    show_notice(&place);
    until("it has handed its task over", SOON, || below(agent.id()).is_empty().then_some(()));
    // It writes itself down every 5 s, so it has looked at the bag again and again by then.
    let seconds = || place.show(&[]).1["agents"][0]["seconds"].as_f64();
    let before = until("it has written itself down", SOON, seconds);
    until("it has looked at the bag", SOON, || (seconds()? > before + 8.0).then_some(()));
    assert_eq!(starts(&place), 1, "{:?}", place.lines());
    std::fs::remove_file(place.path("notice")).expect("it is there");
    until("it starts tasks again", SOON, || (starts(&place) >= 2).then_some(()));
    let log = std::fs::read_to_string(place.path("agents.log")).expect("a log");
    assert_eq!(log.matches("this machine has a notice").count(), 1, "{log}");
    kill(&mut agent);
}

/// The measurement writes 64 MiB.
#[test]
fn agent_measures_its_backend_once_for_all_tasks() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("count_writes.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut submit = place.task("submit");
    submit.args(["--count", "4", "--time", "1s", "--deadline", "10h", "--", "true"]);
    let submitted = run(&mut submit);
    assert_eq!(submitted.code, 0, "{submitted}");
    let (counts, below) = (place.path("counts"), "/packs/".into());
    place.variables =
        vec![("LD_PRELOAD", library), ("COUNT_TO", counts.clone()), ("COUNT_BELOW", below)];
    let mut agent = place.agent("spot", &["--interval", "1h", "--on-notice"]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"]), (0, &4.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
    let counted = std::fs::read_to_string(counts).expect("it has measured");
    let bytes: u64 = counted.lines().filter_map(|line| line.parse::<u64>().ok()).sum();
    assert!((64 << 20..96 << 20).contains(&bytes), "{bytes} bytes of packs");
}

/// As below a durable directory whose store is slow.
#[test]
fn starts_do_not_wait_for_the_record_of_the_agent() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("slow_renames.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut submit = place.task("submit");
    submit.args(["--count", "4", "--time", "1s", "--deadline", "10h", "--", "sleep", "2"]);
    let submitted = run(&mut submit);
    assert_eq!(submitted.code, 0, "{submitted}");
    place.variables = vec![("LD_PRELOAD", library), ("SLOW_RENAME", "/@bag/agents/".into())];
    let _agent = place.agent("spot", &[]);
    // Each record takes 20 s: with one before each start it would take longer.
    until("all tasks have ended", SOON, || (place.show(&[]).1["ended"] == 4).then_some(()));
}
