//! `top` on terminals, over real servers.

mod cluster;

use std::process::Command;
use std::time::Duration;

use cluster::pty::OnTerminal;
use cluster::stubs::Stubs;
use cluster::{Cluster, SOON, block_on, block_on_within, bytes_of, http, sanderling, until};
use rustix::process::Signal;

/// Returns `sanderling` with these words, for a cluster, with colours.
fn command(cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = sanderling();
    command.args(words).env("SANDERLING_NAMENODE", &cluster.namenode.address);
    command.env_remove("NO_COLOR");
    command
}

fn top(cluster: &Cluster, words: &[&str], columns: u16, rows: u16) -> OnTerminal {
    let words = [&["top", "--interval", "100ms"], words].concat();
    OnTerminal::start(command(cluster, &words), columns, rows)
}

fn put(cluster: &Cluster, path: &str, bytes: usize) {
    let local = cluster.path("local");
    std::fs::write(&local, bytes_of(1, bytes)).expect("written");
    let ran = cluster.cli(&["fs", "put", local.to_str().expect("UTF-8"), path]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn drain_jobs_and_events_are_seen_and_q_gives_the_terminal_back() {
    let cluster = Cluster::of(3);
    let ran = cluster.cli(&["job", "new", "/batch", "--quota", "32MiB"]);
    assert_eq!(ran.code, 0, "{ran}");
    put(&cluster, "/batch/data", 6 << 20);
    let mut top = top(&cluster, &[], 80, 24);
    top.until_line(&["3 of 3 nodes active"]);
    top.until_line(&["n1", "active", "MiB"]);
    top.assert_taken();
    let ran = cluster.cli(&["node", "notice", "n1", "--deadline", "100s", "--wait"]);
    assert_eq!(ran.code, 0, "{ran}");
    top.until_line(&["n1", "drained"]);
    assert_eq!(top.colour_of("drained"), Some(vt100::Color::Idx(3)), "yellow");
    top.keys("2");
    top.until_line(&["n1", "100%", "drained"]);
    assert!(!top.screen().contains("n2"), "{}", top.screen());
    top.keys("3");
    top.until_line(&["n2", "B/s"]);
    top.keys("\t");
    top.until_line(&["/batch", "6.00 MiB", "32.0 MiB"]);
    top.keys("5");
    top.until_line(&["warning", "(n1) got a notice"]);
    // Where the event has the id alone.
    top.until_line(&["node", "(n1) takes no more writes"]);
    top.keys("/NOTICE\r");
    top.until("other events are hidden", |screen| !screen.contains("takes no more"));
    top.keys("q");
    assert_eq!(top.wait().code(), Some(0));
    top.assert_given_back();
}

#[test]
fn terminal_is_given_back_after_ctrl_c_and_signals() {
    let cluster = Cluster::of(1);
    for end in ["ctrl-c", "SIGTERM", "SIGINT"] {
        let mut top = top(&cluster, &[], 80, 12);
        top.until_line(&["n0", "active"]);
        match end {
            "ctrl-c" => top.keys("\u{3}"),
            "SIGTERM" => top.signal(Signal::TERM),
            _ => top.signal(Signal::INT),
        }
        assert_eq!(top.wait().code(), Some(130), "{end}");
        top.assert_given_back();
    }
    let mut top = top(&cluster, &["--timeout", "1500ms"], 80, 12);
    assert_eq!(top.wait().code(), Some(0), "the end of the time is no failure");
    top.assert_given_back();
}

#[test]
fn screen_follows_the_size_of_the_terminal() {
    let cluster = Cluster::of(2);
    let mut top = top(&cluster, &[], 20, 10);
    let screen = top.until_line(&["n1", "active"]);
    assert!(screen.lines().all(|line| line.chars().count() <= 20), "{screen}");
    top.resize(4, 2);
    top.until("a sentence in place of the list", |screen| !screen.contains("n1"));
    top.resize(120, 20);
    top.until_line(&["name", "health", "blocks", "read"]);
    top.keys("?");
    top.until_line(&["q", "quit"]);
    top.keys("?q");
    assert_eq!(top.wait().code(), Some(0));
}

#[test]
fn namenode_that_restarts_is_reported_and_followed_again() {
    let mut cluster = Cluster::of(1);
    let mut top = top(&cluster, &[], 80, 12);
    top.until_line(&["n0", "active"]);
    cluster.namenode.kill();
    let screen = top.until_line(&["NO NAMENODE", "trying again"]);
    assert!(screen.contains("n0"), "what was known stays: {screen}");
    cluster.restart_namenode();
    top.until_line(&["the namenode is back after"]);
    top.until_line(&["n0", "active"]);
    top.keys("5");
    // The events go on where they ended.
    top.until("both starts", |screen| screen.matches("namenode started").count() == 2);
    top.keys("pq");
    assert_eq!(top.wait().code(), Some(0));
}

/// Returns how many requests of a kind the namenode has answered.
fn answered(cluster: &Cluster, kind: &str) -> u64 {
    let page = block_on(http::page(&cluster.namenode.http_address, "/metrics"));
    let sample = format!("sanderling_namenode_requests_total{{kind=\"{kind}\"}} ");
    let found = page.lines().find_map(|line| line.strip_prefix(&sample));
    found.map_or(0, |figure| figure.parse().expect("a whole number"))
}

/// Waits until the datanode has sent so many more heartbeats, one a second.
fn until_heartbeats(cluster: &Cluster, count: u64) {
    let wanted = answered(cluster, "beat") + count;
    until("heartbeats", SOON, || (answered(cluster, "beat") >= wanted).then_some(()));
}

#[test]
fn paused_screen_sends_no_requests_until_it_goes_on() {
    // Of these kinds the servers themselves send none.
    const KINDS: [&str; 3] = ["nodes", "room", "jobs"];
    let cluster = Cluster::of(1);
    let requests = || KINDS.map(|kind| answered(&cluster, kind));
    let mut top = top(&cluster, &[], 80, 12);
    top.until_line(&["n0", "active"]);
    let first = requests();
    until("requests before the pause", SOON, || (requests()[0] > first[0] + 1).then_some(()));
    top.keys("p");
    top.until_line(&["PAUSED"]);
    // A request that was in progress is answered meanwhile.
    until_heartbeats(&cluster, 2);
    let paused = requests();
    // That view has other requests, which would be sent at once without the pause.
    top.keys("4");
    top.until_line(&["quota", "lease"]);
    until_heartbeats(&cluster, 3);
    assert_eq!(requests(), paused, "{KINDS:?}: {}", top.screen());
    top.keys("p");
    until("requests after the pause", SOON, || {
        let now = requests();
        (now[0] > paused[0] && now[2] > paused[2]).then_some(())
    });
    top.keys("q");
    assert_eq!(top.wait().code(), Some(0));
}

#[test]
fn without_a_terminal_frames_are_text_or_json() {
    let cluster = Cluster::of(2);
    put(&cluster, "/data", 4 << 20);
    let ran = cluster.cli(&["top"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("a terminal") && ran.stderr.contains("--batch"), "{ran}");
    let words = ["top", "--batch", "--frames", "2", "--interval", "700ms", "--sort", "exposure"];
    let ran = cluster.cli(&words);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(ran.stdout.matches("sanderling top").count(), 2, "{ran}");
    assert!(ran.stdout.contains("read 0 B/s"), "{ran}");
    assert!(!ran.stdout.contains('\u{1b}'), "{ran}");
    let frame = cluster.json(&["top", "--frames", "1", "--interval", "700ms"]);
    assert_eq!(frame["nodes"].as_array().map(Vec::len), Some(2), "{frame}");
    assert_eq!(frame["nodes"][0]["traffic"]["read_bytes_per_second"], 0, "{frame}");
    assert_eq!(frame["events"][0]["severity"], "info", "{frame}");
    let ran = cluster.cli(&["top", "--batch", "--frames", "1", "--sort", "colour"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("use name, state"), "{ran}");
}

/// Returns the processor time that a process has taken.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>());
    let ticks: u64 = ticks.map(|ticks| ticks.expect("a number")).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Prints what `top` costs at its usual interval.
#[test]
#[ignore = "it takes a minute and measures"]
fn thousand_nodes_are_shown_and_what_that_costs_is_printed() {
    const NODES: u32 = 1000;
    const MEASURED: Duration = Duration::from_secs(20);
    let cluster = Cluster::of(0);
    block_on_within(Duration::from_secs(600), async {
        let stubs = Stubs::register(&cluster.namenode.address, NODES).await;
        let living = tokio::spawn(async move { stubs.live().await });
        for view in ["nodes", "throughput", "events"] {
            let top = OnTerminal::start(command(&cluster, &["top", "--view", view]), 120, 40);
            let until = |text: &str| top.until_line(&[text]);
            until("1000 of 1000 nodes active");
            until(if view == "events" { "joined" } else { "MiB/s" });
            let before = processor_time(top.pid());
            tokio::time::sleep(MEASURED).await;
            let taken = (processor_time(top.pid()) - before).as_secs_f64();
            println!("{view}: {:.2} % of a core", taken / MEASURED.as_secs_f64() * 100.0);
        }
        living.abort();
    });
}
