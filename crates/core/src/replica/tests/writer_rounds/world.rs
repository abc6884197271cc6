//! The writers of three members, drawn from a seed: members are cut off, killed, started again and
//! ended in order, files fail, the leadership moves, entries are lost while heartbeats arrive, and
//! writers are busy while messages go on. The decisions are those of `Replica`, `WriterRounds` and
//! `applied_commands`; the world carries messages, writes, and applies rounds as a server does.

use std::collections::BTreeSet;

use super::*;
use crate::placement::Draw;

/// From when on nothing fails any more.
const FAULTS_END: Instant = Instant(13_000_000);

/// Until when writers begin rounds. What fails lasts for less than 3 s.
const ROUNDS_END: Instant = Instant(18_000_000);

/// When the members are compared. A follower has what is agreed by the next heartbeat.
const END: Instant = Instant(20_000_000);

/// How long a round may be under way when its process ends.
const GIVEN_UP_AFTER: Millis = Millis(500);

/// How long a process that ends goes on: it gives up one round, and proposes others.
const ENDING: Millis = Millis(1200);

/// What the world does wrong in place of the machine, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterBug {
    /// A leader that has given up a round goes on in its term.
    BarForgotten,
    /// The callers of a round that was proposed are refused as if it was not.
    ProposedRefused,
    /// What is agreed of a round that is lost is not applied.
    PiecesDropped,
    /// It is applied behind the entry of another leader.
    PiecesLast,
    /// An image is taken while the catalog lacks pieces.
    ImageBetweenPieces,
    /// That the process ends does not count.
    EndUnseen,
    /// A round counts as one with which the leader's term begins.
    TakeOverSkipped,
}

/// Set in the number of a command with which a term begins.
const TAKES_OVER: u64 = 1 << 63;

/// The round that a writer has made, and that is under way.
struct MadeRound {
    first: u64,
    commands: Vec<u64>,
    /// The term that it begins, if it does.
    begins: Option<u64>,
    /// When it must have been given up.
    ended_by: Option<Instant>,
}

/// A machine with a member, its disk and its writer. The catalog is a list of commands.
struct WriterSeat {
    replica: Option<Replica>,
    /// Counts the starts.
    start: u64,
    record: MemberRecord,
    log: BTreeMap<u64, LogEntry>,
    writing: Vec<Persist>,
    written_at: Instant,
    rounds: WriterRounds,
    /// What the journal has: it survives the process.
    catalog: Vec<u64>,
    /// Commands that it had at the start.
    restored: u64,
    /// The last entry that the writer has taken.
    applied: u64,
    made: Option<MadeRound>,
    /// Whether each round has a command with which a term begins, until one of them is agreed.
    leads_with: bool,
    phase: ProcessPhase,
    killed_at: Option<Instant>,
    launched_at: Option<Instant>,
    /// Until when nothing reaches it, nor leaves it.
    cut_until: Instant,
    /// Until when the entries that it sends or gets are lost.
    starved_until: Instant,
    /// Until when its writer does not look.
    busy_until: Instant,
}

#[derive(Debug, Default)]
struct WriterCounts {
    agreed: u64,
    refused: u64,
    undecided: u64,
    /// Rounds whose agreed pieces were applied as another leader's.
    handed_over: u64,
    /// Of those, rounds that another leader's entry has ended.
    overtaken: u64,
}

impl WriterCounts {
    fn add(&mut self, other: &Self) {
        self.agreed += other.agreed;
        self.refused += other.refused;
        self.undecided += other.undecided;
        self.handed_over += other.handed_over;
        self.overtaken += other.overtaken;
    }
}

struct RoundsWorld {
    draw: Draw,
    now: Instant,
    bug: Option<WriterBug>,
    seats: BTreeMap<MemberId, WriterSeat>,
    /// Messages on their way, by when they arrive.
    sent: BTreeMap<(Instant, u64), Envelope>,
    sent_count: u64,
    made_count: u64,
    /// The agreed commands in their order, by what the members have applied.
    order: Vec<u64>,
    /// How many commands there are up to an entry.
    ends: BTreeMap<u64, u64>,
    /// The terms of which a round is agreed.
    terms: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    acknowledged_at: Instant,
    refused: BTreeSet<u64>,
    violation: Option<(&'static str, String)>,
    counts: WriterCounts,
}

fn len(commands: &[u64]) -> u64 {
    u64::try_from(commands.len()).unwrap()
}

fn encode(first: u64, commands: &[u64]) -> Bytes {
    std::iter::once(first).chain(commands.iter().copied()).flat_map(u64::to_le_bytes).collect()
}

fn decode(piece: &[u8]) -> (u64, Vec<u64>) {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let mut words = piece.chunks_exact(8).map(word);
    (words.next().unwrap(), words.collect())
}

/// Returns the number behind the last command of an entry; `None` if it has none.
fn end_of(payload: &Payload) -> Option<u64> {
    let Payload::Round { commands, .. } = payload else { return None };
    let (first, commands) = decode(commands);
    Some(first + len(&commands))
}

impl WriterSeat {
    fn new(restored: Restored) -> Self {
        let Restored { vote, start, group, .. } = restored;
        Self {
            replica: None,
            start: 0,
            record: MemberRecord { vote, start, group },
            log: BTreeMap::new(),
            writing: Vec::new(),
            written_at: Instant(0),
            rounds: WriterRounds::default(),
            catalog: Vec::new(),
            restored: 0,
            applied: 0,
            made: None,
            leads_with: false,
            phase: RUNS,
            killed_at: None,
            launched_at: None,
            cut_until: Instant(0),
            starved_until: Instant(0),
            busy_until: Instant(0),
        }
    }

    /// Starts the process on what the disk has.
    fn launch(&mut self, now: Instant, id: MemberId, seed: u64) {
        self.start += 1;
        self.launched_at = None;
        self.restored = len(&self.catalog);
        self.applied = self.record.start.index;
        let entries: Vec<LogEntry> = self.log.values().cloned().collect();
        let is_applied = |it: &&LogEntry| end_of(&it.payload).is_some_and(|it| it <= self.restored);
        let applied = entries.iter().filter(is_applied).map(|it| it.place.index).max();
        let time = |it: &LogEntry| match it.payload {
            Payload::Round { at, .. } => Some(at),
            _ => None,
        };
        let floor = entries.iter().filter_map(time).max().unwrap_or_default();
        let restored = self.record.restored(entries, applied.unwrap_or(0));
        let options =
            ReplicaOptions { incarnation: self.start, ..ReplicaOptions::new(CLUSTER, id, seed) };
        let wall = Instant(1_700_000_000_000_000 + now.0);
        self.replica = Some(Replica::new(options, restored, now, (floor, wall)));
    }

    /// Ends the process. What it was writing is lost.
    fn kill(&mut self, launched_at: Instant) {
        if self.replica.take().is_none() {
            return;
        }
        self.writing.clear();
        self.rounds = WriterRounds::default();
        self.made = None;
        self.leads_with = false;
        self.phase = RUNS;
        self.killed_at = None;
        self.launched_at = Some(launched_at);
    }

    /// Does the writes that wait.
    fn write(&mut self, now: Instant) {
        for persist in std::mem::take(&mut self.writing) {
            let number = persist.number;
            for step in self.record.persist(persist) {
                let PersistStep::Append(entries) = step else { continue };
                if let Some(first) = entries.first() {
                    self.log.split_off(&first.place.index);
                }
                self.log.extend(entries.into_iter().map(|entry| (entry.place.index, entry)));
            }
            if let Some(replica) = &mut self.replica {
                replica.persisted(now, number);
            }
        }
    }
}

impl RoundsWorld {
    fn new(seed: u64, bug: Option<WriterBug>) -> Self {
        let group = Group::of_voters(1, (1..=3).map(address).collect());
        let seat = |id| (MemberId(id), WriterSeat::new(Restored::first(group.clone())));
        let mut world = Self {
            draw: Draw::new(seed),
            now: Instant(1_000_000),
            bug,
            seats: (1..=3).map(seat).collect(),
            sent: BTreeMap::new(),
            sent_count: 0,
            made_count: 0,
            order: Vec::new(),
            ends: BTreeMap::new(),
            terms: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            acknowledged_at: Instant(0),
            refused: BTreeSet::new(),
            violation: None,
            counts: WriterCounts::default(),
        };
        for id in Self::ids() {
            world.launch(id);
        }
        world
    }

    fn ids() -> [MemberId; 3] {
        [1, 2, 3].map(MemberId)
    }

    fn below(&mut self, bound: usize) -> u64 {
        u64::try_from(self.draw.below(bound)).unwrap()
    }

    fn chance(&mut self, permille: usize) -> bool {
        self.draw.below(1000) < permille
    }

    fn seat(&mut self, id: MemberId) -> &mut WriterSeat {
        self.seats.get_mut(&id).unwrap()
    }

    fn violate(&mut self, check: &'static str, message: String) {
        self.violation.get_or_insert((check, message));
    }

    fn launch(&mut self, id: MemberId) {
        let (now, seed) = (self.now, self.draw.next());
        self.seat(id).launch(now, id, seed);
        self.drain(id);
    }

    fn kill(&mut self, id: MemberId) {
        let launched_at = self.now + Millis(50 + self.below(1000));
        self.seat(id).kill(launched_at);
    }

    fn fault(&mut self) {
        let (kind, id) = (self.below(1000), MemberId(1 + self.below(3)));
        let (now, until) = (self.now, self.now + Millis(100 + self.below(1500)));
        let seat = self.seat(id);
        let runs = seat.phase == RUNS && seat.replica.is_some();
        match kind {
            0..8 => seat.cut_until = until,
            8..16 => seat.starved_until = until,
            16..22 => seat.busy_until = until,
            22..26 => self.kill(id),
            26..36 if runs => (seat.phase, seat.killed_at) = (ENDS, Some(now + ENDING)),
            36..38 if runs => (seat.phase, seat.killed_at) = (FAILED, Some(now + Millis(100))),
            38..46 => self.transfer(id),
            _ => {}
        }
    }

    fn transfer(&mut self, to: MemberId) {
        let now = self.now;
        for id in Self::ids() {
            let Some(replica) = &mut self.seat(id).replica else { continue };
            if replica.is_serving() && replica.transfer(now, to).is_ok() {
                self.drain(id);
            }
        }
    }

    fn step(&mut self) {
        self.now = self.now + Millis(2 + self.below(7));
        let now = self.now;
        if now < FAULTS_END {
            self.fault();
        }
        for id in Self::ids() {
            if self.seat(id).killed_at.is_some_and(|at| at <= now) {
                self.kill(id);
            }
            if self.seat(id).launched_at.is_some_and(|at| at <= now) {
                self.launch(id);
            }
        }
        self.deliver();
        for id in Self::ids() {
            let seat = self.seat(id);
            if seat.phase != FAILED {
                if let Some(replica) = &mut seat.replica {
                    replica.handle_deadline(now);
                }
                if seat.written_at <= now {
                    seat.write(now);
                }
                self.drain(id);
            }
            self.work(id);
        }
    }

    fn deliver(&mut self) {
        while let Some(first) = self.sent.first_entry() {
            if first.key().0 > self.now {
                return;
            }
            let envelope = first.remove();
            let (now, id) = (self.now, envelope.to);
            let seat = self.seat(id);
            let is_lost = seat.phase == FAILED || now < seat.cut_until;
            if let Some(replica) = seat.replica.as_mut().filter(|_| !is_lost) {
                let _ = replica.receive(now, envelope);
                self.drain(id);
            }
        }
    }

    fn send(&mut self, envelope: Envelope) {
        let (now, ends) = (self.now, [envelope.from, envelope.to]);
        let has_entries =
            matches!(&envelope.body, Body::Append { entries, .. } if !entries.is_empty());
        let loses =
            |seat: &WriterSeat| now < seat.cut_until || (has_entries && now < seat.starved_until);
        let is_lost = ends.iter().any(|id| loses(&self.seats[id]));
        if is_lost || (now < FAULTS_END && self.chance(10)) {
            return;
        }
        let times = if self.chance(10) { 2 } else { 1 };
        for _ in 0..times {
            let due = now + Millis(1 + self.below(4));
            self.sent_count += 1;
            self.sent.insert((due, self.sent_count), envelope.clone());
        }
    }

    /// Does what a member puts out. One whose file has failed does nothing any more.
    fn drain(&mut self, id: MemberId) {
        loop {
            self.look_at_image(id);
            let now = self.now;
            let seat = self.seat(id);
            let replica = seat.replica.as_mut().filter(|_| seat.phase != FAILED);
            let Some(output) = replica.and_then(Replica::poll_output) else { return };
            match output {
                ReplicaOutput::Persist(persist) => {
                    let is_first = seat.writing.is_empty();
                    seat.writing.push(persist);
                    // Half of the writes are done at once.
                    let takes = Millis(self.below(16).saturating_sub(8));
                    let seat = self.seat(id);
                    if is_first {
                        seat.written_at = now + takes;
                    }
                    if seat.written_at <= now {
                        seat.write(now);
                    }
                }
                ReplicaOutput::Send(envelope) => self.send(envelope),
                ReplicaOutput::Apply(entries) => self.apply(id, entries),
                _ => {}
            }
        }
    }

    fn apply(&mut self, id: MemberId, entries: Vec<LogEntry>) {
        for LogEntry { place, payload } in entries {
            if let Some(end) = end_of(&payload) {
                self.ends.insert(place.index, end);
                self.check_term(id, place.term, &payload);
            }
            let bug = self.bug;
            let seat = self.seat(id);
            seat.applied = place.index;
            let mut pieces = seat.rounds.agreed(place, &payload);
            if pieces.len() > 1 {
                match bug {
                    Some(WriterBug::PiecesDropped) => drop(pieces.drain(..pieces.len() - 1)),
                    Some(WriterBug::PiecesLast) => pieces.rotate_right(1),
                    _ => {}
                }
                self.counts.handed_over += 1;
                self.counts.overtaken += 1;
            }
            for piece in pieces {
                self.apply_piece(id, &piece);
            }
        }
        let now = self.now;
        let seat = self.seat(id);
        let last = seat.applied;
        if let Some(replica) = &mut seat.replica {
            replica.applied(now, last);
        }
    }

    /// Checks that the first round of a term is the one with which its leader takes over.
    fn check_term(&mut self, id: MemberId, term: u64, payload: &Payload) {
        let Payload::Round { commands, .. } = payload else { return };
        let takes_over = decode(commands).1.first().is_some_and(|it| it & TAKES_OVER != 0);
        if self.terms.insert(term) && !takes_over {
            self.violate("take-over", format!("member {id} has another round first in {term}"));
        }
    }

    /// Applies a piece as another leader's.
    fn apply_piece(&mut self, id: MemberId, piece: &[u8]) {
        let (first, commands) = decode(piece);
        let seat = self.seat(id);
        match applied_commands(first, len(&seat.catalog), seat.restored) {
            Ok(applied) => {
                let applied = usize::try_from(applied).unwrap();
                self.extend(id, commands.get(applied..).unwrap_or_default());
            }
            Err(error) => self.violate("order", format!("member {id}: {error}")),
        }
    }

    fn extend(&mut self, id: MemberId, commands: &[u64]) {
        for command in commands {
            let seat = self.seat(id);
            let at = seat.catalog.len();
            seat.catalog.push(*command);
            match self.order.get(at).copied() {
                None => self.order.push(*command),
                Some(there) if there == *command => {}
                Some(there) => {
                    let message = format!("member {id} applies {command} where {there} is");
                    self.violate("catalogs", message);
                }
            }
        }
    }

    /// Checks that an image of the catalog would have all commands up to the last entry.
    fn look_at_image(&mut self, id: MemberId) {
        let seat = &self.seats[&id];
        let is_between = seat.rounds.is_between_pieces();
        let is_taken = !is_between || self.bug == Some(WriterBug::ImageBetweenPieces);
        let (commands, last) = (len(&seat.catalog), seat.applied);
        let needed = self.ends.range(..=last).next_back().map_or(0, |(_, end)| *end);
        let runs = seat.replica.is_some() && seat.phase != FAILED;
        if is_taken && runs && commands < needed {
            let message = format!("member {id} has {commands} commands of {needed}");
            self.violate("image", message);
        }
    }

    /// Lets the writer of a member begin a round, or go on with the one that is under way.
    fn work(&mut self, id: MemberId) {
        // A batch of several rounds goes on for a moment where another member leads.
        let (begins, begins_anyway) = (self.chance(400), self.chance(20));
        let now = self.now;
        let seat = self.seat(id);
        let is_busy = now < seat.busy_until;
        let Some(replica) = seat.replica.as_ref().filter(|_| !is_busy) else { return };
        if seat.made.is_none() {
            let takes_over = seat.rounds.is_to_take_over(replica) && !begins_anyway;
            let begins = takes_over || begins_anyway || (begins && seat.rounds.serves(replica));
            if !begins || seat.phase == FAILED || now >= ROUNDS_END {
                return;
            }
            self.begin(id, takes_over);
        }
        let seat = self.seat(id);
        if let Some(replica) = &mut seat.replica {
            seat.rounds.propose(now, replica);
        }
        self.drain(id);
        self.look_at_round(id);
    }

    /// Makes a round of one to four pieces, of one to three commands each.
    fn begin(&mut self, id: MemberId, takes_over: bool) {
        let seat = self.seat(id);
        seat.leads_with |= takes_over;
        let mark = if seat.leads_with { TAKES_OVER } else { 0 };
        let first = len(&seat.catalog);
        let (mut commands, mut pieces) = (Vec::<u64>::new(), Vec::new());
        for _ in 0..=self.below(3) {
            let numbers = 0..=self.below(2);
            let piece: Vec<u64> = numbers.map(|at| mark | (self.made_count + 1 + at)).collect();
            self.made_count += len(&piece);
            pieces.push(encode(first + len(&commands), &piece));
            commands.extend(piece);
        }
        let now = self.now;
        let is_skipped = self.bug == Some(WriterBug::TakeOverSkipped);
        let seat = self.seat(id);
        let Some(replica) = &seat.replica else { return };
        if takes_over || is_skipped {
            seat.rounds.begin_term(replica);
        }
        seat.rounds.begin(replica.time(now), pieces, replica);
        let begins = takes_over.then(|| replica.term());
        seat.made = Some(MadeRound { first, commands, begins, ended_by: None });
    }

    fn look_at_round(&mut self, id: MemberId) {
        let (now, bug) = (self.now, self.bug);
        let seat = self.seat(id);
        let (Some(replica), Some(made)) = (&seat.replica, &mut seat.made) else { return };
        let is_unseen = seat.phase == ENDS && bug == Some(WriterBug::EndUnseen);
        let seen = if is_unseen { RUNS } else { seat.phase };
        let progress = seat.rounds.look(now, replica, seen);
        if let Some(term) = made.begins.filter(|_| progress != RoundProgress::UnderWay) {
            seat.rounds.serve(term, replica);
        }
        match progress {
            RoundProgress::UnderWay if seat.phase == ENDS => {
                if now > *made.ended_by.get_or_insert(now + GIVEN_UP_AFTER) {
                    self.violate("ends", format!("member {id} still waits for its round"));
                }
            }
            RoundProgress::UnderWay => {}
            RoundProgress::Agreed => self.agree(id),
            RoundProgress::Ended { agreed, loss } => self.lose(id, &agreed, loss),
        }
    }

    /// Applies the round of a writer as its own, and acknowledges it.
    fn agree(&mut self, id: MemberId) {
        let seat = self.seat(id);
        let commands = len(&seat.catalog);
        let Some(made) = seat.made.take() else { return };
        seat.leads_with = false;
        if made.first != commands {
            self.violate("order", format!("member {id} is at {commands}, not {}", made.first));
        }
        self.extend(id, &made.commands);
        self.acknowledged.extend(made.commands);
        self.acknowledged_at = self.now;
        self.counts.agreed += 1;
    }

    fn lose(&mut self, id: MemberId, agreed: &[Bytes], loss: RoundLoss) {
        let bug = self.bug;
        let seat = self.seat(id);
        let Some(made) = seat.made.take() else { return };
        if bug == Some(WriterBug::BarForgotten) {
            seat.rounds = WriterRounds::default();
        }
        self.counts.handed_over += u64::from(!agreed.is_empty());
        if bug != Some(WriterBug::PiecesDropped) {
            for piece in agreed {
                self.apply_piece(id, piece);
            }
        }
        match loss {
            RoundLoss::Undecided if bug != Some(WriterBug::ProposedRefused) => {
                self.counts.undecided += 1;
            }
            RoundLoss::Undecided | RoundLoss::NotLeader => {
                self.counts.refused += 1;
                self.refused.extend(made.commands);
            }
            RoundLoss::TooLong { bytes } => self.violate("length", format!("{bytes} bytes")),
        }
    }

    fn check_end(&mut self) {
        let there: BTreeSet<u64> = self.order.iter().copied().collect();
        let lost = self.acknowledged.difference(&there).next().copied();
        if let Some(lost) = lost {
            self.violate("acknowledged", format!("command {lost} is not there"));
        }
        let made = self.refused.intersection(&there).next().copied();
        if let Some(made) = made {
            self.violate("refused", format!("command {made} was refused and is there"));
        }
        if self.acknowledged_at < FAULTS_END {
            self.violate("stuck", "no round was agreed since the faults ended".to_owned());
        }
        for id in Self::ids() {
            let (commands, all) = (self.seat(id).catalog.len(), self.order.len());
            if commands != all {
                self.violate("catalogs", format!("member {id} has {commands} of {all}"));
            }
        }
    }
}

fn played(seed: u64, bug: Option<WriterBug>) -> RoundsWorld {
    let mut world = RoundsWorld::new(seed, bug);
    while world.now < END && world.violation.is_none() {
        world.step();
    }
    if world.violation.is_none() {
        world.check_end();
    }
    world
}

#[test]
fn what_is_acknowledged_is_applied_once_by_all_and_what_is_refused_by_none_whatever_fails() {
    let mut all = WriterCounts::default();
    for seed in 0..400 {
        let world = played(seed, None);
        assert_eq!(world.violation, None, "seed {seed}");
        all.add(&world.counts);
    }
    // The checks had something to look at.
    assert!(all.agreed > 1000 && all.refused > 100 && all.undecided > 20, "{all:?}");
    assert!(all.handed_over > 5 && all.overtaken > 2, "{all:?}");
}

#[test]
fn each_injected_bug_is_found_by_its_check() {
    let all = [
        (WriterBug::BarForgotten, "order"),
        (WriterBug::ProposedRefused, "refused"),
        (WriterBug::PiecesDropped, "order"),
        (WriterBug::PiecesLast, "order"),
        (WriterBug::ImageBetweenPieces, "image"),
        (WriterBug::EndUnseen, "ends"),
        (WriterBug::TakeOverSkipped, "take-over"),
    ];
    for (bug, check) in all {
        let finds = |seed: u64| {
            let violation = played(seed, Some(bug)).violation;
            violation.is_some_and(|(found, _)| found == check)
        };
        assert!((0..300).any(finds), "{bug:?} was not found");
    }
}
