//! The decisions of an agent one by one, in a bag of which a backend shows everything at once.
//! `world` has several agents of one bag, to which everything happens.

use super::*;

mod world;

const SECOND: u64 = 1000;

/// What the backend of a bag shows.
#[derive(Debug, Clone, Default)]
struct Shown {
    ended: BTreeSet<u32>,
    progress: BTreeMap<u32, TaskProgress>,
    /// Tasks that have a runner elsewhere.
    held: BTreeSet<u32>,
    agents: Vec<AgentStatus>,
}

/// A bag of tasks of 10 s that are far from urgent.
const SETTINGS: AgentSettings = AgentSettings {
    bag: BagTerms {
        tasks: 4,
        time: Millis(10 * SECOND),
        memory_bytes: 10,
        deadline: Instant(1_000_000 * 1_000_000),
    },
    market: Market::Spot,
    memory_bytes: 100,
    at_once: 2,
    margin: Millis(60 * SECOND),
    lock_age: Millis(30 * SECOND),
};

/// Settings with which all tasks are urgent.
const URGENT: AgentSettings =
    AgentSettings { bag: BagTerms { deadline: Instant(0), ..SETTINGS.bag }, ..SETTINGS };

fn at(millis: u64) -> AgentView {
    let now = Instant(0) + Millis(millis);
    AgentView { now, wall: now, ..AgentView::default() }
}

fn noticed(millis: u64) -> AgentView {
    AgentView { is_noticed: true, ..at(millis) }
}

fn begun(settings: AgentSettings) -> BagAgent {
    BagAgent::new(&at(0), settings)
}

fn outputs(agent: &mut BagAgent) -> Vec<AgentOutput> {
    std::iter::from_fn(|| agent.poll_output()).collect()
}

/// Hands an input over; returns what the agent puts out.
fn handle(agent: &mut BagAgent, view: &AgentView, input: AgentInput) -> Vec<AgentOutput> {
    agent.handle(view, input);
    outputs(agent)
}

/// Goes on until the agent waits or ends; returns what it puts out, and the locks that it looks at.
fn go_on(agent: &mut BagAgent, view: &AgentView, shown: &Shown) -> (Vec<AgentOutput>, Vec<u32>) {
    let (mut put_out, mut looked) = (outputs(agent), Vec::new());
    loop {
        let input = match agent.work() {
            AgentWork::LookAtBag => AgentInput::BagSeen { is_there: true },
            AgentWork::ListEnded => AgentInput::EndedListed(shown.ended.clone()),
            AgentWork::ListBegun => {
                AgentInput::BegunListed(shown.progress.keys().copied().collect())
            }
            AgentWork::ReadProgress => AgentInput::ProgressRead(shown.progress.clone()),
            AgentWork::LookAtLock(task) => {
                looked.push(task);
                let is_held = shown.held.contains(&task);
                AgentInput::LockSeen(if is_held { LockView::Held } else { LockView::Free })
            }
            AgentWork::ReadAgents => AgentInput::AgentsRead(shown.agents.clone()),
            AgentWork::LookAtPlace(_) => AgentInput::PlaceSeen { is_blocked: false },
            AgentWork::RecordBlocked(_) => AgentInput::BlockedRecorded,
            AgentWork::Wait { .. } | AgentWork::End(_) => return (put_out, looked),
        };
        put_out.extend(handle(agent, view, input));
    }
}

/// Plays a round; returns what the agent puts out.
fn round(agent: &mut BagAgent, view: &AgentView, shown: &Shown) -> Vec<AgentOutput> {
    let mut put_out = handle(agent, view, AgentInput::Waited);
    put_out.extend(go_on(agent, view, shown).0);
    put_out
}

fn starts(outputs: &[AgentOutput]) -> Vec<u32> {
    let start = |output: &AgentOutput| match output {
        AgentOutput::Start(task) => Some(*task),
        _ => None,
    };
    outputs.iter().filter_map(start).collect()
}

fn notes(outputs: &[AgentOutput]) -> Vec<AgentNote> {
    let note = |output: &AgentOutput| match output {
        AgentOutput::Note(note) => Some(*note),
        _ => None,
    };
    outputs.iter().filter_map(note).collect()
}

fn records(outputs: &[AgentOutput]) -> Vec<AgentLoad> {
    let load = |output: &AgentOutput| match output {
        AgentOutput::WriteRecord(load) => Some(load.clone()),
        _ => None,
    };
    outputs.iter().filter_map(load).collect()
}

const fn stored() -> AgentInput {
    AgentInput::RecordEnded { is_stored: true }
}

const fn ended(task: u32, end: TaskRunEnd) -> AgentInput {
    AgentInput::RunEnded { task, end }
}

#[test]
fn agent_runs_as_many_tasks_as_it_has_room_for() {
    let (mut agent, mut shown) = (begun(SETTINGS), Shown::default());
    shown.held.insert(1);
    let (put_out, looked) = go_on(&mut agent, &at(0), &shown);
    assert_eq!((starts(&put_out), looked), (vec![2, 3], vec![1, 2, 3]));
    assert_eq!(agent.work(), AgentWork::Wait { until: at(500).now });
    assert_eq!(agent.running(), 2);
    shown.ended.insert(2);
    // A run that ends begins a round at once.
    handle(&mut agent, &at(100), ended(2, TaskRunEnd::Ended));
    assert_eq!(agent.work(), AgentWork::ListEnded);
    assert_eq!(starts(&go_on(&mut agent, &at(100), &shown).0), [4]);
    assert_eq!((agent.running(), agent.finished()), (2, 1));
}

#[test]
fn memory_bounds_the_tasks_that_run() {
    let mut agent = begun(AgentSettings { memory_bytes: 19, ..SETTINGS });
    assert_eq!(starts(&go_on(&mut agent, &at(0), &Shown::default()).0), [1]);
    let mut small = begun(AgentSettings { memory_bytes: 9, ..SETTINGS });
    let (put_out, looked) = go_on(&mut small, &at(0), &Shown::default());
    assert_eq!((notes(&put_out), looked), (vec![AgentNote::TooLarge], vec![]));
    assert!(!records(&put_out)[0].has_room, "{put_out:?}");
}

#[test]
fn agent_starts_no_task_while_its_machine_has_a_notice() {
    let (mut agent, shown) = (begun(SETTINGS), Shown::default());
    let put_out = round_of_notice(&mut agent, &shown);
    assert_eq!((notes(&put_out), starts(&put_out)), (vec![AgentNote::Noticed], vec![]));
    assert!(!records(&put_out)[0].has_room, "{put_out:?}");
    let put_out = round(&mut agent, &noticed(2500), &shown);
    assert_eq!((notes(&put_out), starts(&put_out)), (vec![], vec![]), "it is printed once");
    let put_out = round(&mut agent, &at(3000), &shown);
    assert_eq!((notes(&put_out), starts(&put_out)), (vec![AgentNote::Withdrawn], vec![1, 2]));
}

/// Plays the first round, in which all tasks have runners, and one with a notice, when the looks at
/// their locks hold no more.
fn round_of_notice(agent: &mut BagAgent, shown: &Shown) -> Vec<AgentOutput> {
    let held = Shown { held: (1..=4).collect(), ..shown.clone() };
    assert!(starts(&go_on(agent, &at(0), &held).0).is_empty());
    handle(agent, &at(100), stored());
    let put_out = round(agent, &noticed(2000), shown);
    assert_eq!(agent.work(), AgentWork::Wait { until: at(2500).now });
    put_out
}

#[test]
fn notice_during_a_round_ends_its_starts() {
    let mut agent = begun(SETTINGS);
    let put_out = go_on(&mut agent, &noticed(0), &Shown::default()).0;
    // The agent prints it at the begin of the next round.
    assert_eq!((notes(&put_out), starts(&put_out)), (vec![], vec![]));
    let put_out = round(&mut agent, &noticed(500), &Shown::default());
    assert_eq!(notes(&put_out), [AgentNote::Noticed]);
}

#[test]
fn notice_during_a_look_at_a_lock_or_at_the_agents_leaves_the_task() {
    for settings in [SETTINGS, URGENT] {
        let mut agent = begun(settings);
        handle(&mut agent, &at(0), AgentInput::BagSeen { is_there: true });
        handle(&mut agent, &at(0), AgentInput::EndedListed(BTreeSet::new()));
        handle(&mut agent, &at(0), AgentInput::BegunListed(BTreeSet::new()));
        assert_eq!(agent.work(), AgentWork::LookAtLock(1));
        let mut put_out = handle(&mut agent, &noticed(0), AgentInput::LockSeen(LockView::Free));
        if settings == URGENT {
            assert_eq!(agent.work(), AgentWork::ReadAgents);
            put_out = handle(&mut agent, &noticed(0), AgentInput::AgentsRead(Vec::new()));
        }
        assert_eq!(
            (agent.work(), starts(&put_out)),
            (AgentWork::Wait { until: at(500).now }, vec![])
        );
    }
}

#[test]
fn spot_agent_leaves_an_urgent_task_to_an_idle_agent_on_demand_for_ten_seconds() {
    let settings = AgentSettings { bag: BagTerms { tasks: 1, ..URGENT.bag }, ..URGENT };
    let started = |settings: AgentSettings, idle: AgentStatus| {
        let mut agent = begun(settings);
        let (first, _) =
            go_on(&mut agent, &at(0), &Shown { agents: vec![idle], ..Shown::default() });
        let mut now = 0;
        let mut put_out = first;
        while starts(&put_out).is_empty() {
            now += 500;
            assert!(now < 60 * SECOND, "it never starts");
            // It writes its record again and again.
            let agents = vec![AgentStatus { seen: at(now).wall, ..idle }];
            put_out = round(&mut agent, &at(now), &Shown { agents, ..Shown::default() });
        }
        now
    };
    let idle = AgentStatus { market: Market::OnDemand, has_room: true, seen: at(0).wall };
    assert_eq!(started(settings, idle), 10 * SECOND);
    assert_eq!(started(settings, AgentStatus { has_room: false, ..idle }), 0);
    assert_eq!(started(settings, AgentStatus { market: Market::Spot, ..idle }), 0);
    let on_demand = AgentSettings { market: Market::OnDemand, ..settings };
    assert_eq!(started(on_demand, idle), 0, "it is there for such tasks");
    let far = AgentSettings { bag: BagTerms { tasks: 1, ..SETTINGS.bag }, ..SETTINGS };
    assert_eq!(started(far, idle), 0, "it is not urgent");
}

#[test]
fn look_at_the_other_agents_holds_for_two_seconds() {
    let mut agent = begun(URGENT);
    let idle = AgentStatus { market: Market::OnDemand, has_room: true, seen: at(0).wall };
    let mut reads = Vec::new();
    for millis in (0..=4000).step_by(500) {
        let view = at(millis);
        loop {
            match agent.work() {
                AgentWork::ReadAgents => {
                    reads.push(millis);
                    handle(&mut agent, &view, AgentInput::AgentsRead(vec![idle]));
                }
                AgentWork::Wait { .. } => break,
                AgentWork::LookAtLock(_) => {
                    handle(&mut agent, &view, AgentInput::LockSeen(LockView::Free));
                }
                AgentWork::LookAtBag => {
                    handle(&mut agent, &view, AgentInput::BagSeen { is_there: true });
                }
                AgentWork::ListEnded => {
                    handle(&mut agent, &view, AgentInput::EndedListed(BTreeSet::new()));
                }
                _ => {
                    handle(&mut agent, &view, AgentInput::BegunListed(BTreeSet::new()));
                }
            }
        }
        agent.handle(&at(millis + 500), AgentInput::Waited);
    }
    assert_eq!(reads, [0, 2000, 4000], "four tasks are left each time");
}

#[test]
fn agent_on_demand_starts_urgent_tasks_alone() {
    let settings = AgentSettings { market: Market::OnDemand, ..SETTINGS };
    let (mut agent, mut shown) = (begun(settings), Shown::default());
    let (put_out, looked) = go_on(&mut agent, &at(0), &shown);
    assert_eq!((starts(&put_out), looked), (vec![], vec![]));
    handle(&mut agent, &at(0), stored());
    // 1,000,000 s less the 10 s that a task runs and the margin.
    let latest = 999_930 * SECOND;
    assert!(starts(&round(&mut agent, &at(latest - 1), &shown)).is_empty());
    // The work in its checkpoint is not left to be done.
    shown.progress.insert(1, TaskProgress { worked: Millis(1), failures: 0 });
    handle(&mut agent, &at(latest), stored());
    assert_eq!(starts(&round(&mut agent, &at(latest), &shown)), [2, 3]);
}

#[test]
fn round_looks_at_few_locks_of_a_large_bag() {
    let bag = BagTerms { tasks: 1000, ..SETTINGS.bag };
    let mut agent = begun(AgentSettings { bag, ..SETTINGS });
    let shown = Shown { held: (1..=1000).collect(), ..Shown::default() };
    let (_, looked) = go_on(&mut agent, &at(0), &shown);
    assert_eq!(looked.len(), LOOKS_PER_ROUND);
    agent.handle(&at(500), AgentInput::Waited);
    let (_, next) = go_on(&mut agent, &at(500), &shown);
    assert!(next.iter().all(|task| !looked.contains(task)), "{next:?}");
}

/// Settings of an agent in a bag with so many tasks, all of which have begun.
fn large(tasks: u32) -> (AgentSettings, Shown) {
    let bag = BagTerms { tasks, ..SETTINGS.bag };
    let progress = |task| (task, TaskProgress { worked: Millis(1), failures: 0 });
    let progress = (1..=tasks).map(progress).collect();
    (AgentSettings { bag, ..SETTINGS }, Shown { progress, ..Shown::default() })
}

#[test]
fn record_and_look_at_the_bag_do_not_wait_for_the_end_of_a_long_round() {
    let (settings, shown) = large(200);
    let mut agent = begun(settings);
    let (mut millis, mut looks, mut written) = (0, Vec::new(), Vec::new());
    loop {
        let put_out = outputs(&mut agent);
        if !records(&put_out).is_empty() {
            written.push(millis);
            handle(&mut agent, &at(millis), stored());
        }
        let input = match agent.work() {
            AgentWork::LookAtBag => {
                looks.push(millis);
                AgentInput::BagSeen { is_there: true }
            }
            AgentWork::ListEnded => AgentInput::EndedListed(BTreeSet::new()),
            AgentWork::ListBegun => {
                AgentInput::BegunListed(shown.progress.keys().copied().collect())
            }
            AgentWork::ReadProgress => {
                assert!(agent.next_reads().len() <= READS_AT_ONCE);
                millis += 3000;
                AgentInput::ProgressRead(shown.progress.clone())
            }
            AgentWork::LookAtLock(_) => {
                millis += 3000;
                AgentInput::LockSeen(LockView::Held)
            }
            _ => break,
        };
        agent.handle(&at(millis), input);
    }
    // Seven reads and 32 looks, of which each second one ends when both are due.
    assert_eq!(millis, 39 * 3000);
    let expected: Vec<u64> = (0..=millis).step_by(6000).collect();
    assert_eq!((&looks, &written), (&expected, &expected));
}

#[test]
fn progress_is_read_of_all_that_have_begun_and_not_ended_if_one_may_start() {
    let (settings, mut shown) = large(200);
    shown.ended.extend([7, 200]);
    let mut agent = begun(settings);
    let mut read: Vec<u32> = Vec::new();
    let listed = |agent: &mut BagAgent, view: &AgentView| {
        handle(agent, view, AgentInput::BagSeen { is_there: true });
        handle(agent, view, AgentInput::EndedListed(shown.ended.clone()));
    };
    listed(&mut agent, &at(0));
    handle(&mut agent, &at(0), AgentInput::BegunListed((1..=200).collect()));
    while agent.work() == AgentWork::ReadProgress {
        read.extend(agent.next_reads());
        handle(&mut agent, &at(0), AgentInput::ProgressRead(shown.progress.clone()));
    }
    read.sort_unstable();
    let expected: Vec<u32> = (1..200).filter(|task| *task != 7).collect();
    assert_eq!(read, expected);
    let mut small = begun(AgentSettings { memory_bytes: 9, ..settings });
    listed(&mut small, &at(0));
    assert_eq!(small.work(), AgentWork::Wait { until: at(500).now }, "it has no room");
}

#[test]
fn progress_whose_record_cannot_be_read_any_more_counts_as_none() {
    let settings = AgentSettings { market: Market::OnDemand, ..SETTINGS };
    let (mut agent, mut shown) = (begun(settings), large(4).1);
    shown.progress.values_mut().for_each(|it| it.worked = Millis(10 * SECOND));
    go_on(&mut agent, &at(0), &shown);
    handle(&mut agent, &at(0), stored());
    // The latest start of a task without progress: what is left of one with it takes no time.
    let latest = 999_930 * SECOND;
    assert!(starts(&round(&mut agent, &at(latest), &shown)).is_empty());
    handle(&mut agent, &at(latest + 500), AgentInput::Waited);
    handle(&mut agent, &at(latest + 500), AgentInput::EndedListed(BTreeSet::new()));
    handle(&mut agent, &at(latest + 500), AgentInput::BegunListed((1..=4).collect()));
    assert_eq!(agent.work(), AgentWork::ReadProgress);
    shown.progress.remove(&2);
    let read = AgentInput::ProgressRead(shown.progress.clone());
    handle(&mut agent, &at(latest + 500), read);
    assert_eq!(agent.work(), AgentWork::LookAtLock(2));
}

#[test]
fn record_is_written_beside_the_rounds_and_one_that_fails_again() {
    let shown = Shown { held: (1..=4).collect(), ..Shown::default() };
    let mut agent = begun(SETTINGS);
    let idle = AgentLoad { running: vec![], has_room: true };
    assert_eq!(records(&go_on(&mut agent, &at(0), &shown).0), std::slice::from_ref(&idle));
    assert!(records(&round(&mut agent, &at(6000), &shown)).is_empty(), "one is under way");
    let failed = AgentInput::RecordEnded { is_stored: false };
    assert_eq!(notes(&handle(&mut agent, &at(6000), failed)), [AgentNote::Unrecorded]);
    assert_eq!(records(&round(&mut agent, &at(6500), &shown)), std::slice::from_ref(&idle));
    assert!(handle(&mut agent, &at(7000), stored()).is_empty());
    assert!(records(&round(&mut agent, &at(11_999), &shown)).is_empty());
    assert_eq!(records(&round(&mut agent, &at(12_000), &shown)), [idle]);
    handle(&mut agent, &at(12_000), stored());
    // A task that it starts is in the record of the next round.
    let free = Shown { held: (2..=4).collect(), ..Shown::default() };
    let put_out = round(&mut agent, &at(14_500), &free);
    assert_eq!((starts(&put_out), records(&put_out)), (vec![1], vec![]));
    let load = AgentLoad { running: vec![1], has_room: true };
    assert_eq!(records(&round(&mut agent, &at(15_000), &free)), [load]);
}

#[test]
fn no_task_starts_when_the_record_has_waited_for_two_thirds_of_the_lock_age() {
    let held = Shown { held: (1..=4).collect(), ..Shown::default() };
    let started = |settings: AgentSettings, millis: u64| {
        let mut agent = begun(settings);
        go_on(&mut agent, &at(0), &held);
        let put_out = round(&mut agent, &at(millis), &Shown::default());
        (agent, starts(&put_out))
    };
    assert_eq!(started(SETTINGS, 19_999).1, [1, 2]);
    let (mut agent, none) = started(SETTINGS, 20_000);
    assert!(none.is_empty());
    // What runs goes on, and starts go on when the record is written.
    handle(&mut agent, &at(20_400), stored());
    assert_eq!(starts(&round(&mut agent, &at(20_500), &Shown::default())), [1, 2]);
}

#[test]
fn bag_is_looked_at_every_five_seconds_and_nothing_starts_while_it_is_absent() {
    let shown = Shown::default();
    let mut agent = begun(SETTINGS);
    assert_eq!(agent.work(), AgentWork::LookAtBag);
    let absent = AgentInput::BagSeen { is_there: false };
    assert!(handle(&mut agent, &at(0), absent).is_empty(), "not even a record is written");
    assert_eq!(agent.work(), AgentWork::Wait { until: at(500).now });
    agent.handle(&at(500), AgentInput::Waited);
    assert_eq!(agent.work(), AgentWork::LookAtBag);
    assert_eq!(starts(&go_on(&mut agent, &at(500), &shown).0), [1, 2]);
    agent.handle(&at(5499), AgentInput::Waited);
    assert_eq!(agent.work(), AgentWork::ListEnded);
    go_on(&mut agent, &at(5499), &shown);
    agent.handle(&at(5500), AgentInput::Waited);
    assert_eq!(agent.work(), AgentWork::LookAtBag);
    agent.handle(&at(5500), AgentInput::BagGone);
    assert_eq!(agent.work(), AgentWork::End(AgentEnd::BagGone));
}

#[test]
fn failure_of_the_backend_ends_the_round_and_nothing_else() {
    let steps = [
        AgentInput::BagSeen { is_there: true },
        AgentInput::EndedListed(BTreeSet::new()),
        AgentInput::BegunListed(BTreeSet::from([1])),
    ];
    for count in 0..=steps.len() {
        let mut agent = begun(SETTINGS);
        for step in &steps[..count] {
            handle(&mut agent, &at(0), step.clone());
        }
        let put_out = handle(&mut agent, &at(100), AgentInput::Failed);
        assert_eq!(put_out, [AgentOutput::Note(AgentNote::WorkFailed)], "after {count} steps");
        assert_eq!(agent.work(), AgentWork::Wait { until: at(600).now });
        // Only what has read all that it needs ends the outage.
        handle(&mut agent, &at(600), AgentInput::Waited);
        let put_out = handle(&mut agent, &at(600), AgentInput::Failed);
        assert_eq!(notes(&put_out), [AgentNote::WorkFailed], "after {count} steps");
        let put_out = round(&mut agent, &at(1100), &Shown::default());
        assert_eq!(notes(&put_out), [AgentNote::WorksAgain], "after {count} steps");
        assert_eq!(starts(&put_out), [1, 2]);
        assert!(notes(&round(&mut agent, &at(1600), &Shown::default())).is_empty());
    }
}

#[test]
fn task_whose_lock_cannot_be_read_is_left_and_has_failed_if_its_place_is_blocked() {
    for is_blocked in [false, true] {
        let mut agent = begun(SETTINGS);
        handle(&mut agent, &at(0), AgentInput::BagSeen { is_there: true });
        handle(&mut agent, &at(0), AgentInput::EndedListed(BTreeSet::new()));
        handle(&mut agent, &at(0), AgentInput::BegunListed(BTreeSet::new()));
        assert_eq!(agent.work(), AgentWork::LookAtLock(1));
        let put_out = handle(&mut agent, &at(0), AgentInput::Failed);
        assert_eq!(put_out, [AgentOutput::Note(AgentNote::TaskFailed(1))]);
        assert_eq!(agent.work(), AgentWork::LookAtPlace(1));
        handle(&mut agent, &at(0), AgentInput::PlaceSeen { is_blocked });
        if is_blocked {
            assert_eq!(agent.work(), AgentWork::RecordBlocked(1));
            let mut unrecorded = agent.clone();
            let put_out = handle(&mut unrecorded, &at(0), AgentInput::Failed);
            assert_eq!(put_out, [AgentOutput::Note(AgentNote::Unrecorded)]);
            assert_eq!(unrecorded.work(), AgentWork::Wait { until: at(500).now });
            handle(&mut agent, &at(0), AgentInput::BlockedRecorded);
        }
        assert_eq!(agent.work(), AgentWork::Wait { until: at(500).now });
        assert_eq!(starts(&round(&mut agent, &at(500), &Shown::default())), [2, 3]);
    }
}

#[test]
fn agent_ends_when_all_tasks_have_ended_or_it_has_to() {
    let mut agent = begun(SETTINGS);
    go_on(&mut agent, &at(0), &Shown::default());
    let mut stopped = agent.clone();
    let all = Shown { ended: (1..=4).collect(), ..Shown::default() };
    assert!(starts(&round(&mut agent, &at(500), &all)).is_empty());
    assert_eq!(agent.work(), AgentWork::End(AgentEnd::Over));
    // Runs end yet, and begin no round.
    handle(&mut agent, &at(600), ended(1, TaskRunEnd::Ended));
    assert_eq!((agent.work(), agent.finished()), (AgentWork::End(AgentEnd::Over), 1));
    let view = AgentView { has_to_end: true, ..at(500) };
    handle(&mut stopped, &view, AgentInput::Stop);
    assert_eq!(stopped.work(), AgentWork::End(AgentEnd::Over));
    handle(&mut stopped, &view, ended(1, TaskRunEnd::Ended));
    handle(&mut stopped, &view, ended(2, TaskRunEnd::Stopped));
    assert_eq!((stopped.finished(), stopped.running()), (0, 0), "its end may not be recorded");
}

/// The end of a run may be handed over before the signal.
#[test]
fn agent_that_has_to_end_begins_nothing() {
    let has_to_end = |millis| AgentView { has_to_end: true, ..at(millis) };
    let over = AgentWork::End(AgentEnd::Over);
    for end in [TaskRunEnd::Ended, TaskRunEnd::Stopped, TaskRunEnd::Failed] {
        let mut agent = begun(SETTINGS);
        go_on(&mut agent, &at(0), &Shown::default());
        let put_out = handle(&mut agent, &has_to_end(100), ended(1, end));
        assert_eq!((agent.work(), starts(&put_out)), (over, vec![]), "{end:?}");
    }
    let steps = [
        AgentInput::BagSeen { is_there: true },
        AgentInput::EndedListed(BTreeSet::new()),
        AgentInput::BegunListed(BTreeSet::from([1])),
        AgentInput::ProgressRead(BTreeMap::new()),
        AgentInput::LockSeen(LockView::Free),
    ];
    for count in 0..steps.len() {
        let mut agent = begun(SETTINGS);
        for step in &steps[..count] {
            assert!(starts(&handle(&mut agent, &at(0), step.clone())).is_empty());
        }
        let put_out = handle(&mut agent, &has_to_end(0), steps[count].clone());
        assert_eq!((agent.work(), put_out), (over, vec![]), "after {count} steps");
    }
    assert_eq!(BagAgent::new(&has_to_end(0), SETTINGS).work(), over);
}

#[test]
fn task_whose_run_did_not_end_it_is_left_for_a_while() {
    use TaskRunEnd::{CommandFailed, EndedBefore, Failed, NoGeneration, Taken, Unrestorable};
    let about = |note| vec![AgentOutput::Note(note)];
    let cases = [
        (Taken, vec![], 2000),
        (EndedBefore, vec![], 2000),
        (Failed, about(AgentNote::TaskFailed(1)), 2000),
        (NoGeneration, about(AgentNote::TaskFailed(1)), 2000),
        (CommandFailed, about(AgentNote::CommandFailed(1)), 2000),
        (Unrestorable, about(AgentNote::TaskFailed(1)), 10_000),
    ];
    let bag = BagTerms { tasks: 1, ..SETTINGS.bag };
    for (end, expected, pause) in cases {
        let (mut agent, shown) = (begun(AgentSettings { bag, ..SETTINGS }), Shown::default());
        assert_eq!(starts(&go_on(&mut agent, &at(0), &shown).0), [1]);
        handle(&mut agent, &at(100), stored());
        let now = 6000;
        let mut put_out = handle(&mut agent, &at(now), ended(1, end));
        put_out.retain(|output| matches!(output, AgentOutput::Note(_)));
        assert_eq!(put_out, expected, "{end:?}");
        assert!(starts(&go_on(&mut agent, &at(now), &shown).0).is_empty(), "{end:?}");
        assert!(starts(&round(&mut agent, &at(now + pause - 1), &shown)).is_empty(), "{end:?}");
        assert_eq!(starts(&round(&mut agent, &at(now + pause), &shown)), [1], "{end:?}");
        assert_eq!(agent.finished(), 0);
    }
}

#[test]
fn failed_run_brings_a_look_at_the_bag() {
    for (end, is_due) in [(TaskRunEnd::Failed, true), (TaskRunEnd::Taken, false)] {
        let mut agent = begun(SETTINGS);
        go_on(&mut agent, &at(0), &Shown::default());
        agent.handle(&at(100), ended(1, end));
        assert_eq!(agent.work() == AgentWork::LookAtBag, is_due, "{end:?}");
    }
}
