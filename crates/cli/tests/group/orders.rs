//! Orders to the leader of a group: what a command reports of them when it ends.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use sanderling_namenode::{GroupPage, MachineLife, MemberPage};
use sanderling_protocol::message::{Hello, HelloReply, MemberRole, Role};
use sanderling_protocol::{ClusterId, Header, MemberId, Refusal};
use sanderling_transport::{Handled, Response, ServeOptions, Service, serve};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::namenodes::Group;
use crate::cluster::{SOON, Server, block_on, run, sanderling, until};
use crate::faulty_files::{FaultyFiles, FileFaults};

/// How long a command that is interrupted may clean up, or goes on after its limit and cleans up
/// then.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// A leader that takes orders and carries none out: no group of real ones does so in each run.
#[derive(Default)]
struct FalseLeader {
    is_silent: bool,
    /// How often it shows itself as the leader before it shows member 2.
    leads: usize,
    shown: AtomicUsize,
    orders: AtomicUsize,
}

impl Service for FalseLeader {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: Some(ClusterId(7)), node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        // The number of the message's kind among those of a group: `Order`, and `Show`.
        match body.first() {
            Some(3) => {
                self.orders.fetch_add(1, Ordering::Relaxed);
                if self.is_silent {
                    return Handled::Later(Box::pin(std::future::pending()));
                }
                Handled::Now(Response::message(&header, &()))
            }
            Some(7) => Handled::Now(Response::message(&header, &self.page())),
            kind => panic!("an unexpected kind of message: {kind:?}"),
        }
    }
}

impl FalseLeader {
    /// Returns the group as it shows it. Its own address is another than that of its callers.
    fn page(&self) -> GroupPage {
        let is_moved = self.shown.fetch_add(1, Ordering::Relaxed) >= self.leads;
        let leader = if is_moved { 2 } else { 1 };
        let member = |id: u64| MemberPage {
            id: MemberId(id),
            address: format!("h{id}:7600"),
            http_address: String::new(),
            role: if id == leader { MemberRole::Leader } else { MemberRole::Voter },
            is_active: None,
            behind_entries: None,
            notice_left: None,
            expected_life: MachineLife::Unknown,
        };
        GroupPage {
            here: MemberId(1),
            term: 5 + u64::from(is_moved),
            generation: 0,
            generation_name: String::new(),
            members: (1..=3).map(member).collect(),
            at_risk: None,
            spares_missing: None,
        }
    }

    fn orders(&self) -> usize {
        self.orders.load(Ordering::Relaxed)
    }

    /// Serves until the guard is dropped.
    async fn serve(self) -> (Arc<Self>, String, DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let (service, stop) = (Arc::new(self), CancellationToken::new());
        let options = ServeOptions::default();
        tokio::spawn(serve(listener, Arc::clone(&service), options, stop.clone()));
        (service, address, stop.drop_guard())
    }
}

#[test]
fn move_that_was_ordered_and_did_not_come_about_fails_and_names_the_leader() {
    block_on(async {
        let leader = FalseLeader { leads: usize::MAX, ..FalseLeader::default() };
        let (leader, address, _serving) = leader.serve().await;
        let words = ["group", "move-leader", "--namenode", &address];
        let ran = run(sanderling().args(words));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("member 1 leads as before"), "{ran}");
        assert!(ran.stderr.contains(&format!("{address} group move-leader\n")), "{ran}");
        // A member may show the former leader for a moment.
        assert!(ran.took >= Duration::from_secs(2), "it gives up after {:?}", ran.took);
        let ran = run(sanderling().args(words).args(["--timeout", "1s"]));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("member 1 leads as before"), "{ran}");
        assert!(ran.took < Duration::from_millis(2400), "it goes on for {:?}", ran.took);
        assert_eq!(leader.orders(), 2, "each command orders it once");
    });
}

#[test]
fn move_to_a_member_fails_if_another_one_leads() {
    block_on(async {
        let (_leader, address, _serving) = FalseLeader::default().serve().await;
        let ran = run(sanderling().args(["group", "move-leader", "3", "--namenode", &address]));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("member 2 leads"), "{ran}");
        assert!(ran.stderr.contains(&format!("{address} group move-leader 3")), "{ran}");
    });
}

#[test]
fn move_succeeds_as_soon_as_another_member_is_shown_to_lead() {
    block_on(async {
        for named in [None, Some("2")] {
            let leader = FalseLeader { leads: 3, ..FalseLeader::default() };
            let (_leader, address, _serving) = leader.serve().await;
            let words = ["group", "move-leader", "--json", "--namenode", &address];
            let ran = run(sanderling().args(words).args(named));
            assert_eq!(ran.code, 0, "{ran}");
            let done: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
            assert_eq!(done["members"]["members"][1]["role"], "Leader", "{ran}");
        }
    });
}

#[test]
fn moved_leadership_is_shown_by_the_command_that_moved_it() {
    let group = Group::start(3, &[]);
    for through in 0..3 {
        let leader = group.leader();
        let ran = group.cli(through, &["group", "move-leader", "--json"]);
        assert_eq!(ran.code, 0, "{ran}");
        let done: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let rows = done["members"]["members"].as_array().expect("a list");
        let next = rows.iter().find(|row| row["role"] == "Leader").expect("one leads");
        assert_ne!(next["address"], group.addresses[leader].as_str(), "{ran}");
    }
}

/// The member that got it may carry it out: no other one gets it.
#[test]
fn order_that_is_sent_and_not_answered_ends_in_time_and_is_undecided() {
    block_on(async {
        let silent = FalseLeader { is_silent: true, ..FalseLeader::default() };
        let (silent, first, _serving) = silent.serve().await;
        let (other, second, _other_serving) = FalseLeader::default().serve().await;
        let addresses = format!("{first},{second}");
        for (number, order) in [&["move-leader"][..], &["remove", "2"]].iter().enumerate() {
            let words = [&["group"][..], order, &["--namenode", &addresses]].concat();
            let ran = run(sanderling().args(&words).args(["--timeout", "1s"]));
            assert_eq!(ran.code, 124, "{ran}");
            assert!(ran.stderr.contains("may have been carried out"), "{ran}");
            assert!(ran.stderr.contains(&format!("{addresses} group ls")), "{ran}");
            assert!(ran.took < Duration::from_secs(1) + CLEAN_UP, "it took {:?}", ran.took);
            let ordered = 2 * number + 2;
            let shown = interrupted(&words, || (silent.orders() == ordered).then_some(()));
            assert!(shown.contains("may have been carried out"), "{shown}");
            assert_eq!((silent.orders(), other.orders()), (ordered, 0));
        }
    });
}

/// The leader gives up after 10 s. It, or its successor, may carry the order out later.
#[test]
fn order_on_which_the_group_does_not_agree_in_time_may_have_been_carried_out() {
    let mut group = Group::start(3, &[]);
    // What the group agrees on is written there first.
    let Some(files) = FaultyFiles::build(group.directory.path(), "rounds-") else {
        return eprintln!("SKIPPED: no C compiler makes the files that fail");
    };
    let leader = group.leader();
    group.kill(leader);
    group.variables = files.variables();
    group.restart(leader);
    group.until_voters(3);
    let own = (leader + 1).to_string();
    until("it leads", SOON, || {
        if group.leader() != leader {
            group.cli(leader, &["group", "move-leader", &own]);
        }
        (group.leader() == leader).then_some(())
    });
    files.set(FileFaults { waits: true, ..FileFaults::default() });
    let removed = ((leader + 1) % 3 + 1).to_string();
    let ran = group.cli(leader, &["group", "remove", &removed]);
    files.set(FileFaults::default());
    assert_eq!(ran.code, 4, "{ran}");
    for part in ["the change may have been made", "not agreed on it in time", "group ls"] {
        assert!(ran.stderr.contains(part), "{part}: {ran}");
    }
}

#[test]
fn order_that_no_member_takes_ends_in_time() {
    let group = Group::start(3, &[]);
    group.members.iter().flatten().for_each(Server::pause);
    let addresses = group.addresses.join(",");
    let words = ["group", "remove", "2", "--namenode", &addresses, "--timeout", "1s"];
    let ran = run(sanderling().args(words));
    assert_eq!(ran.code, 4, "{ran}");
    assert!(ran.stderr.contains("cannot be reached"), "{ran}");
    assert!(!ran.stderr.contains("may have been"), "nothing was sent: {ran}");
    assert!(ran.took < Duration::from_secs(1) + CLEAN_UP, "it took {:?}", ran.took);
}

#[test]
fn order_that_is_interrupted_before_it_is_sent_is_not_reported_as_undecided() {
    // It accepts connections, as the kernel of a stopped process does, and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    silent.set_nonblocking(true).expect("set");
    let address = silent.local_addr().expect("bound").to_string();
    let mut connection = None;
    let shown = interrupted(&["group", "remove", "2", "--namenode", &address], || {
        connection = silent.accept().ok();
        connection.is_some().then_some(())
    });
    assert!(shown.contains("cannot be reached"), "{shown}");
    assert!(!shown.contains("may have been"), "nothing was sent: {shown}");
    drop(connection);
}

/// Interrupts a command once it waits for an answer. It ends before the time to clean up has
/// passed. Returns what it printed of it.
fn interrupted(words: &[&str], is_waiting: impl FnMut() -> Option<()>) -> String {
    let mut command = sanderling();
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program can be started");
    until("the command waits for an answer", SOON, is_waiting);
    let began = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let ended = child.wait_with_output().expect("its output can be read");
    let (took, shown) = (began.elapsed(), String::from_utf8_lossy(&ended.stderr).into_owned());
    assert_eq!(ended.status.code(), Some(130), "{shown}");
    assert!(took < CLEAN_UP, "it went on for {took:?}: {shown}");
    shown
}
