//! What must hold after each fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_client::{Client, ClientError};
use sanderling_protocol::event::{Loss, LossReport};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{NodeId, ObjectId, Policy, Refusal};

use crate::cluster::path;
use crate::model::{Promise, State, Version, Violation};
use crate::world::World;

/// Changes that a crash of the machine takes are acknowledged within this time of each other: the
/// namenode's `--unsynced-max`, and the way of an answer on a busy machine.
const LOST_TAIL_MAX: Duration = Duration::from_millis(2000 + 1500);

/// Looks at one name until what is lost of it and what is reported are the same.
const LOOKS_MAX: u32 = 3;

/// What a reader finds under a name.
enum Seen {
    Absent,
    Holds { object: ObjectId, bytes: u64, is_sealed: bool, lost: Vec<ByteRange>, parts: Parts },
}

/// Bytes that can be read, by offset.
type Parts = Vec<(usize, Bytes)>;

/// Waits until the fleet is at rest: every datanode active and nothing else, and catalog and
/// datanodes of one mind. Returns how long it took.
pub(crate) async fn settle(world: &mut World) -> Result<Duration, Violation> {
    let began = Instant::now();
    let mut last = String::new();
    while began.elapsed() < world.rest_max {
        if let Some(ended) = world.fleet.ended_by_itself() {
            return Err(Violation::new(Promise::StaysUp, ended));
        }
        match is_at_rest(world).await? {
            None => return Ok(began.elapsed()),
            Some(why) => last = why,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let what = format!("not at rest after {:?}: {last}", world.rest_max);
    Err(Violation::new(Promise::Settles, what))
}

async fn is_at_rest(world: &mut World) -> Result<Option<String>, Violation> {
    let nodes = match world.admin.nodes(false).await {
        Ok(nodes) => nodes,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let running = world.fleet.nodes.iter().filter(|node| node.server.is_some()).count();
    let active = nodes.iter().filter(|node| node.policy == Policy::Active).count();
    if active != running || nodes.len() != running {
        let rows = nodes.iter().map(|node| format!("{} {:?}", node.name, node.policy));
        return Ok(Some(format!("{:?}", rows.collect::<Vec<_>>())));
    }
    world.ids = nodes.into_iter().map(|node| (node.name, node.id)).collect();
    let ran = world.fleet.cli(&["fsck", "--deep", "--json"]);
    let Ok(fsck) = serde_json::from_str::<serde_json::Value>(&ran.stdout) else {
        return Ok(Some(ran.to_string()));
    };
    if fsck["problems"].as_array().is_none_or(|problems| !problems.is_empty()) {
        return Err(Violation::new(Promise::Settles, format!("the catalog is broken: {fsck}")));
    }
    let is_clean = fsck["deep"]["problems"].as_array().is_some_and(Vec::is_empty);
    Ok(if is_clean && ![1, 4].contains(&ran.code) { None } else { Some(fsck["deep"].to_string()) })
}

/// Compares everything with the model. Nothing changes meanwhile.
pub(crate) async fn judge(world: &mut World) -> Result<(), Violation> {
    if world.job.as_ref().is_some_and(|job| job.has_ended()) {
        if world.tail_cut.is_none() && world.shared.model.renews_in_time() {
            return Err(Violation::new(Promise::Lease, "a job has ended although it was renewed"));
        }
        // It was the machine, and its subtree is gone: this fleet cannot be judged any more.
        world.is_void = true;
        return Ok(());
    }
    if let Some(violation) = world.shared.model.violations().into_iter().next() {
        return Err(violation);
    }
    let mut by_object = reported(world).await?;
    for seen in world.shared.model.take_seen_losses() {
        let reported = by_object.get(&seen.object).map(Vec::as_slice).unwrap_or_default();
        if !seen.ranges.iter().all(|range| holds(reported, *range)) && world.tail_cut.is_none() {
            let what = format!("a reader got the loss {seen:?}, the report has {reported:?}");
            return Err(Violation::new(Promise::Kept, what));
        }
    }
    let mut lost_acks = Vec::new();
    for name in world.shared.model.names("/") {
        if let Some(until) = judge_name(world, &name, &mut by_object).await? {
            lost_acks.push((until, name));
        }
    }
    judge_tail(world, lost_acks)?;
    judge_directories(world).await
}

/// Returns what is reported lost, after a look at the causes.
async fn reported(world: &mut World) -> Result<BTreeMap<ObjectId, Vec<ByteRange>>, Violation> {
    let report = world.admin.report().await;
    let report = report.map_err(|error| Violation::new(Promise::Settles, error.to_string()))?;
    causes(world, &report)?;
    Ok(by_object(&report))
}

/// Every new loss was on a node to which something happened that may cost it.
fn causes(world: &mut World, report: &LossReport) -> Result<(), Violation> {
    if report.is_truncated {
        return Err(Violation::new(Promise::Kept, "the report is not whole"));
    }
    for loss in &report.losses {
        let key = (loss.object, loss.node, loss.at);
        if !world.known_losses.insert(key) {
            continue;
        }
        world.lost_bytes += loss.ranges.iter().map(|range| range.bytes).sum::<u64>();
        if !world.any_loss && !world.blamed.contains(&loss.node) {
            let what = format!("nothing happened to its node that may cost it: {loss:?}");
            return Err(Violation::new(Promise::Kept, what));
        }
    }
    Ok(())
}

fn by_object(report: &LossReport) -> BTreeMap<ObjectId, Vec<ByteRange>> {
    let mut all: BTreeMap<ObjectId, Vec<ByteRange>> = BTreeMap::new();
    for Loss { object, ranges, .. } in &report.losses {
        all.entry(*object).or_default().extend(ranges);
    }
    all.values_mut().for_each(|ranges| *ranges = joined(ranges));
    all
}

/// Holds one name against the model. Returns until when it held what it holds now, if what came
/// after that is missing.
async fn judge_name(
    world: &mut World,
    name: &str,
    by_object: &mut BTreeMap<ObjectId, Vec<ByteRange>>,
) -> Result<Option<Instant>, Violation> {
    let mut looks = 0;
    let seen = loop {
        let mut looked = look(&world.admin, name).await;
        if matches!(looked, Err(ClientError::TimedOut { .. })) {
            // After a restart a missing block is believed when all nodes had time to report: as
            // long as a call may take.
            looked = look(&world.admin, name).await;
        }
        let seen = looked.map_err(|error| {
            Violation::new(Promise::Settles, format!("{name} cannot be read at rest: {error}"))
        })?;
        let Seen::Holds { object, lost, .. } = &seen else { break seen };
        let in_report = by_object.get(object).map(Vec::as_slice).unwrap_or_default();
        if *lost == in_report {
            break seen;
        }
        if looks == LOOKS_MAX {
            let what = format!("{name}, object {object}: lost {lost:?}, reported {in_report:?}");
            return Err(Violation::new(Promise::Kept, what));
        }
        // The first reader finds damage: this look, or another one beside it.
        looks += 1;
        *by_object = reported(world).await?;
    };
    let model = &world.shared.model;
    let now = model.may(name);
    if let Some(state) = matching(world, &now, &seen) {
        // A writer that failed may still be ended: nothing is final before the seal.
        if !matches!(seen, Seen::Holds { is_sealed: false, .. }) {
            model.observed(name, &settled(&state, &seen));
        }
        return Ok(None);
    }
    if world.tail_cut.is_some() {
        for (until, states) in model.past(name) {
            if let Some(state) = matching(world, &states, &seen) {
                model.observed(name, &settled(&state, &seen));
                return Ok(Some(until));
            }
        }
    }
    let what = format!("{name} must hold {now:?}, and {}", seen.describe());
    let promise = match (&seen, &now[..]) {
        // Whatever is there instead was there before.
        _ if world.tail_cut.is_some() => Promise::Kept,
        (Seen::Absent, _) => Promise::Kept,
        (Seen::Holds { .. }, [State::Absent]) => Promise::StaysDeleted,
        (Seen::Holds { bytes, .. }, [State::Holds(version)]) if *bytes > version.most as u64 => {
            Promise::Once
        }
        (Seen::Holds { .. }, _) => Promise::RightBytes,
    };
    Err(Violation::new(promise, what))
}

/// Returns what a state has become now that it is sealed.
fn settled(state: &State, seen: &Seen) -> State {
    match (state, seen) {
        (State::Holds(version), Seen::Holds { bytes, .. }) => {
            let bytes = usize::try_from(*bytes).expect("short");
            State::Holds(Version::whole(version.seed, bytes))
        }
        _ => State::Absent,
    }
}

fn matching(world: &World, may: &[State], seen: &Seen) -> Option<State> {
    let Seen::Holds { bytes, parts, .. } = seen else {
        return may.contains(&State::Absent).then_some(State::Absent);
    };
    let is_it = |state: &&State| {
        let State::Holds(version) = state else { return false };
        let length = usize::try_from(*bytes).expect("short");
        let one = [(*state).clone()];
        let find =
            |(at, part): &(usize, Bytes)| world.shared.model.find(&one, *at, part, false).is_some();
        (version.least..=version.most).contains(&length) && parts.iter().all(find)
    };
    may.iter().find(is_it).cloned()
}

impl Seen {
    fn describe(&self) -> String {
        match self {
            Self::Absent => "is not there".to_owned(),
            Self::Holds { object, bytes, is_sealed, lost, parts } => {
                let start = |(at, part): &(usize, Bytes)| {
                    let first = part.slice(..part.len().min(8)).to_vec();
                    format!("{} bytes from {at}: {first:?}...", part.len())
                };
                let starts: Vec<_> = parts.iter().map(start).collect();
                let (sealed, starts) =
                    (if *is_sealed { "sealed" } else { "open" }, starts.join(", "));
                format!("object {object}, {sealed}, has {bytes} bytes, lost {lost:?}: {starts}")
            }
        }
    }
}

async fn look(client: &Client, name: &str) -> Result<Seen, ClientError> {
    let mut looks = 0;
    loop {
        match look_once(client, name).await {
            // What was known to be lost was not all: the rest was found damaged by this look.
            Err(ClientError::DataUnavailable { .. }) if looks < LOOKS_MAX => looks += 1,
            // The end of a writer that failed has reached the namenode meanwhile.
            Err(ClientError::Refused(Refusal::ObjectGone { .. })) if looks < LOOKS_MAX => {
                looks += 1
            }
            done => return done,
        }
    }
}

async fn look_once(client: &Client, name: &str) -> Result<Seen, ClientError> {
    let reader = match client.open(&path(name)).await {
        Ok(reader) => reader,
        Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(Seen::Absent),
        Err(error) => return Err(error),
    };
    let stat = reader.stat();
    let (object, bytes, is_sealed) = (stat.object, reader.bytes(), stat.is_sealed);
    let lost = match reader.read_range(0, bytes).await {
        Ok(whole) => {
            let (lost, parts) = (Vec::new(), vec![(0, whole)]);
            return Ok(Seen::Holds { object, bytes, is_sealed, lost, parts });
        }
        Err(ClientError::DataUnavailable { ranges, .. }) => joined(&ranges),
        Err(error) => return Err(error),
    };
    let (mut parts, mut at) = (Vec::new(), 0);
    let end = ByteRange { offset: bytes, bytes: 0 };
    for range in lost.iter().chain([&end]) {
        if range.offset > at {
            let part = reader.read_range(at, range.offset - at).await?;
            parts.push((usize::try_from(at).expect("short"), part));
        }
        at = range.offset + range.bytes;
    }
    Ok(Seen::Holds { object, bytes, is_sealed, lost, parts })
}

/// After a crash of the machine: what is missing are the latest changes, and not many.
fn judge_tail(world: &World, lost_acks: Vec<(Instant, String)>) -> Result<(), Violation> {
    let Some(first) = lost_acks.into_iter().min() else { return Ok(()) };
    let Some(last) = world.shared.model.last_ack() else { return Ok(()) };
    let span = last.saturating_duration_since(first.0);
    if world.fleet.sync == "always" || span > LOST_TAIL_MAX {
        let (name, sync) = (&first.1, &world.fleet.sync);
        let what = format!("{name}: a change {span:?} before the last one is lost, --sync {sync}");
        return Err(Violation::new(Promise::Kept, what));
    }
    Ok(())
}

/// Directories show what is there and nothing else.
async fn judge_directories(world: &World) -> Result<(), Violation> {
    let model = &world.shared.model;
    for directory in &world.directories {
        let listed = match world.admin.list_all(&path(directory)).await {
            Ok(entries) => entries,
            Err(ClientError::Refused(Refusal::NotFound { .. })) => Vec::new(),
            Err(error) => return Err(Violation::new(Promise::Settles, error.to_string())),
        };
        let listed: BTreeSet<String> =
            listed.into_iter().map(|entry| format!("{directory}/{}", entry.name)).collect();
        let known: BTreeSet<String> = model.names(&format!("{directory}/")).into_iter().collect();
        if let Some(name) = listed.difference(&known).next() {
            let what = format!("{name} is listed, and was deleted or never made");
            return Err(Violation::new(Promise::StaysDeleted, what));
        }
        let is_sure = |name: &&String| !model.may(name).contains(&State::Absent);
        if let Some(name) = known.difference(&listed).find(is_sure) {
            return Err(Violation::new(Promise::Kept, format!("{name} is there and not listed")));
        }
    }
    Ok(())
}

fn holds(reported: &[ByteRange], range: ByteRange) -> bool {
    let end = range.offset + range.bytes;
    reported.iter().any(|it| it.offset <= range.offset && it.offset + it.bytes >= end)
}

fn joined(ranges: &[ByteRange]) -> Vec<ByteRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort();
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes >= range.offset => {
                let end = (range.offset + range.bytes).max(last.offset + last.bytes);
                last.bytes = end - last.offset;
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Returns the incarnation that a name has.
pub(crate) fn incarnation(world: &World, name: &str) -> Option<NodeId> {
    world.ids.get(name).copied()
}
