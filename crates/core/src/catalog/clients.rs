//! The answers to changes, kept until their clients need them no longer.
//!
//! The answer is kept in the step that makes the change, so whoever applies the same log gives the
//! same answer to a repeat. Everything here has a bound, and beyond each bound a repeat is refused
//! rather than made a second time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanderling_protocol::message::{ClientId, JobInfo, ObjectStat};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{BlockId, Instant, LeaseId, NodeId, Nonce, ObjectId, Refusal, Reply};
use serde::{Deserialize, Serialize};

use super::limits::CatalogLimits;

/// Most clients that are known. Beyond it the one that was silent for longest is forgotten: mostly
/// a command that has ended. Four times as many as a namenode has places for connections.
pub(crate) const CLIENTS_MAX: usize = 16_384;

/// Memory that the answers of one client may take: 32,768 answers
/// (`CatalogLimits::answers_per_client_max`) of 128 bytes.
const CLIENT_BYTES_MAX: u64 = 4 << 20;

/// Memory that those of all may take. It is a part of each snapshot, and a client settles its
/// answers with its next change. Four clients that never do fill it.
const BYTES_MAX: u64 = 16 << 20;

/// How long a silent client is known: calls of clients last seconds. A change of a forgotten client
/// that is in doubt stays so (`OutcomeUnknown`). Chosen, not measured.
const SILENCE_MINUTES_MAX: u64 = 60;

/// Microseconds in which the last use is counted, so that few changes touch the order of use.
const MINUTE_MICROS: u64 = 60_000_000;

/// Clients that change things, and what they were answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clients {
    /// The number of the last one. Numbers are not given again.
    last: u64,
    known: BTreeMap<u64, ClientRecord>,
    /// The minute of the last change and the client, the longest silent first.
    by_use: BTreeSet<(u64, u64)>,
    /// Memory of all answers.
    bytes: u64,
    /// Answers that are kept for one client.
    #[serde(skip)]
    answers_max: AnswersMax,
}

/// Configured, not remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AnswersMax(usize);

impl Default for AnswersMax {
    fn default() -> Self {
        Self(CatalogLimits::DEFAULT.answers_per_client_max)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ClientRecord {
    key: Nonce,
    minute: u64,
    /// Changes with smaller numbers are refused.
    settled_below: u64,
    /// Memory of the answers.
    bytes: u64,
    /// In the order of their sequences.
    answers: VecDeque<AppliedChange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AppliedChange {
    sequence: u64,
    fingerprint: u64,
    outcome: ChangeOutcome,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ChangeOutcome {
    Done,
    Deleted {
        objects: u64,
        freed_bytes: u64,
    },
    Stat(Box<ObjectStat>),
    /// Where the blocks are is looked up again: they may have moved.
    Grant {
        object: ObjectId,
        lease: LeaseId,
        blocks: Vec<BlockId>,
    },
    Job(Box<JobInfo>),
    /// Its row as it is by then.
    Node(NodeId),
    Reply(Box<Reply>),
    Refused(Box<Refusal>),
}

/// Which of a client's changes is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeKey {
    pub(crate) client: ClientId,
    pub(crate) sequence: u64,
    pub(crate) settled_below: u64,
    pub(crate) fingerprint: u64,
}

impl ChangeOutcome {
    /// Returns what is kept of an answer; nothing of a refusal that changed nothing and that the
    /// client meets by sending the change again.
    pub(super) fn of(result: &Result<Reply, Refusal>) -> Option<Self> {
        Some(match result {
            Ok(Reply::Done) => Self::Done,
            Ok(Reply::Deleted { objects, freed_bytes }) => {
                Self::Deleted { objects: *objects, freed_bytes: *freed_bytes }
            }
            Ok(Reply::Stat(stat)) => Self::Stat(Box::new(stat.clone())),
            Ok(Reply::Grant(grant)) => Self::Grant {
                object: grant.object,
                lease: grant.lease,
                blocks: grant.blocks.iter().map(|granted| granted.block).collect(),
            },
            Ok(Reply::Job(job)) => Self::Job(Box::new(job.clone())),
            Ok(Reply::Node(info)) => Self::Node(info.id),
            Ok(reply) => Self::Reply(Box::new(reply.clone())),
            Err(refusal) if is_passing(refusal) => return None,
            Err(refusal) => Self::Refused(Box::new(refusal.clone())),
        })
    }

    /// Returns about how much memory it takes besides its place in the list.
    fn bytes(&self) -> u64 {
        match self {
            Self::Done | Self::Deleted { .. } | Self::Node(_) => 0,
            Self::Stat(stat) => {
                let texts = stat.attributes.iter().map(|(name, text)| name.len() + text.len() + 64);
                let texts: usize = texts.sum();
                (size_of::<ObjectStat>() + stat.path.as_str().len() + texts) as u64
            }
            Self::Grant { blocks, .. } => (blocks.len() * size_of::<BlockId>()) as u64,
            Self::Job(job) => (size_of::<JobInfo>() + job.path.as_str().len()) as u64,
            // Both are rare, and what they hold may be long.
            Self::Reply(reply) => encoded_bytes::<Reply>(reply),
            Self::Refused(refusal) => encoded_bytes::<Refusal>(refusal),
        }
    }
}

fn encoded_bytes<T: Serialize>(value: &T) -> u64 {
    let encoded = sanderling_protocol::frame::encode_body(value).len();
    (size_of::<T>() + 2 * encoded) as u64
}

/// Returns whether a refusal requests that the client retry the same change after a while. A change
/// refused like this has had no effect.
pub(crate) const fn is_passing(refusal: &Refusal) -> bool {
    matches!(refusal.recovery(), Recovery::RetryAfter(_))
}

impl AppliedChange {
    fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.outcome.bytes()
    }
}

impl ClientRecord {
    /// Forgets the answers that are needed no longer. Returns the memory that they took.
    fn settle(&mut self, below: u64) -> u64 {
        self.settled_below = self.settled_below.max(below);
        let mut freed = 0;
        while let Some(answer) = self.answers.front()
            && answer.sequence < self.settled_below
        {
            freed += answer.bytes();
            self.answers.pop_front();
        }
        self.bytes -= freed;
        freed
    }

    /// Keeps an answer. What is beyond the bounds is forgotten, the oldest change first; returns
    /// the memory that was taken and the memory that was freed.
    fn keep(&mut self, answer: AppliedChange, answers_max: usize) -> (u64, u64) {
        let taken = answer.bytes();
        if self.answers.back().is_none_or(|last| last.sequence < answer.sequence) {
            self.answers.push_back(answer);
        } else {
            let place = self.answers.partition_point(|kept| kept.sequence < answer.sequence);
            self.answers.insert(place, answer);
        }
        self.bytes += taken;
        let mut freed = 0;
        while self.answers.len() > answers_max || self.bytes > CLIENT_BYTES_MAX {
            let Some(first) = self.answers.front().map(|answer| answer.sequence) else { break };
            freed += self.settle(first + 1);
        }
        (taken, freed)
    }

    fn find(&self, sequence: u64) -> Option<&AppliedChange> {
        let place = self.answers.binary_search_by_key(&sequence, |answer| answer.sequence);
        place.ok().map(|place| &self.answers[place])
    }
}

impl Clients {
    pub(super) const fn set_answers_max(&mut self, answers_max: usize) {
        self.answers_max = AnswersMax(answers_max);
    }

    /// Returns the number of a new client.
    pub(super) fn open(&mut self, now: Instant, key: Nonce) -> u64 {
        self.last += 1;
        let (minute, number) = (now.0 / MINUTE_MICROS, self.last);
        let (settled_below, bytes, answers) = (0, 0, VecDeque::new());
        self.known.insert(number, ClientRecord { key, minute, settled_below, bytes, answers });
        self.by_use.insert((minute, number));
        self.forget(minute, number);
        number
    }

    /// Forgets clients: those that were silent for long, and whoever was silent for longest as
    /// long as there are too many, or too much is kept. `but` is spared.
    fn forget(&mut self, minute: u64, but: u64) {
        while let Some((used, number)) = self.by_use.iter().copied().find(|(_, it)| *it != but) {
            let is_silent = used + SILENCE_MINUTES_MAX < minute;
            if !is_silent && self.known.len() <= CLIENTS_MAX && self.bytes <= BYTES_MAX {
                return;
            }
            self.by_use.remove(&(used, number));
            if let Some(known) = self.known.remove(&number) {
                self.bytes -= known.bytes;
            }
        }
    }

    /// Returns what came of a change before; `None` if it is new.
    pub(super) fn find(&self, sent: &ChangeKey) -> Result<Option<&ChangeOutcome>, Refusal> {
        let ChangeKey { client, sequence, settled_below, fingerprint } = *sent;
        let unknown = Refusal::OutcomeUnknown { client: client.number, sequence };
        let known = self.known.get(&client.number).filter(|known| known.key == client.key);
        let Some(known) = known else { return Err(unknown) };
        if sequence < settled_below {
            let why = format!(
                "change {sequence} was reported as settled: those below {settled_below} are"
            );
            return Err(Refusal::BadRequest { why });
        }
        match known.find(sequence) {
            Some(answer) if answer.fingerprint != fingerprint => {
                let why = format!("change {sequence} was another one before");
                Err(Refusal::BadRequest { why })
            }
            Some(answer) => Ok(Some(&answer.outcome)),
            None if sequence < known.settled_below => Err(unknown),
            None => Ok(None),
        }
    }

    /// Returns whether a client is known and was noted to live in the minute of `now`.
    pub(super) fn is_noted(&self, now: Instant, client: ClientId) -> bool {
        let known = self.known.get(&client.number).filter(|known| known.key == client.key);
        known.is_some_and(|known| known.minute == now.0 / MINUTE_MICROS)
    }

    /// Keeps what came of a change, and notes that its client lives.
    pub(super) fn keep(&mut self, now: Instant, sent: &ChangeKey, outcome: Option<ChangeOutcome>) {
        let number = sent.client.number;
        let minute = now.0 / MINUTE_MICROS;
        let Some(known) = self.known.get_mut(&number) else { return };
        self.bytes -= known.settle(sent.settled_below);
        if let Some(outcome) = outcome {
            let (sequence, fingerprint) = (sent.sequence, sent.fingerprint);
            let answer = AppliedChange { sequence, fingerprint, outcome };
            let (taken, freed) = known.keep(answer, self.answers_max.0);
            self.bytes = self.bytes + taken - freed;
        }
        let before = std::mem::replace(&mut known.minute, minute);
        if before != minute {
            self.by_use.remove(&(before, number));
            self.by_use.insert((minute, number));
        }
        if before != minute || self.bytes > BYTES_MAX {
            self.forget(minute, number);
        }
    }

    /// Returns whether a client is known.
    pub(super) fn is_known(&self, number: u64) -> bool {
        self.known.contains_key(&number)
    }

    /// Appends a problem if the sum of bytes or the order of use contradicts the clients. Cost:
    /// linear in the clients.
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let bytes: u64 = self.known.values().map(|known| known.bytes).sum();
        let is_listed =
            |(number, known): (&u64, &ClientRecord)| self.by_use.contains(&(known.minute, *number));
        let is_listed = self.known.iter().all(is_listed) && self.by_use.len() == self.known.len();
        if bytes != self.bytes || !is_listed {
            problems.push("the sums over clients are not what they have".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Nonce = Nonce(5);

    fn sent(number: u64, sequence: u64, settled_below: u64) -> ChangeKey {
        let client = ClientId { number, key: KEY };
        ChangeKey { client, sequence, settled_below, fingerprint: sequence }
    }

    fn is_unknown(clients: &Clients, sent: &ChangeKey) -> bool {
        matches!(clients.find(sent), Err(Refusal::OutcomeUnknown { .. }))
    }

    fn check(clients: &Clients) {
        let of = |known: &ClientRecord| known.answers.iter().map(AppliedChange::bytes).sum::<u64>();
        assert!(clients.known.values().all(|known| known.bytes == of(known)));
        let mut problems = Vec::new();
        clients.check(&mut problems);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn answer_is_kept_until_the_client_needs_it_no_longer() {
        let mut clients = Clients::default();
        let number = clients.open(Instant(0), KEY);
        for sequence in [2, 1, 3] {
            assert_eq!(clients.find(&sent(number, sequence, 0)), Ok(None));
            clients.keep(Instant(0), &sent(number, sequence, 0), Some(ChangeOutcome::Done));
        }
        assert_eq!(clients.find(&sent(number, 1, 0)), Ok(Some(&ChangeOutcome::Done)));
        clients.keep(Instant(0), &sent(number, 4, 3), None);
        assert!(is_unknown(&clients, &sent(number, 1, 0)));
        assert!(is_unknown(&clients, &sent(number, 2, 0)));
        assert_eq!(clients.find(&sent(number, 3, 3)), Ok(Some(&ChangeOutcome::Done)));
        // It was refused for a while only: it may come again.
        assert_eq!(clients.find(&sent(number, 4, 3)), Ok(None));
        check(&clients);
    }

    #[test]
    fn other_change_of_the_same_number_and_other_clients_are_refused() {
        let mut clients = Clients::default();
        let number = clients.open(Instant(0), KEY);
        clients.keep(Instant(0), &sent(number, 1, 0), Some(ChangeOutcome::Done));
        let other = ChangeKey { fingerprint: 77, ..sent(number, 1, 0) };
        assert!(matches!(clients.find(&other), Err(Refusal::BadRequest { .. })));
        let other_key = ClientId { number, key: Nonce(6) };
        assert!(is_unknown(&clients, &ChangeKey { client: other_key, ..sent(number, 1, 0) }));
        assert!(is_unknown(&clients, &sent(number + 1, 1, 0)));
        assert!(matches!(clients.find(&sent(number, 1, 2)), Err(Refusal::BadRequest { .. })));
    }

    #[test]
    fn beyond_each_bound_a_repeat_is_refused() {
        let mut clients = Clients::default();
        let first = clients.open(Instant(0), KEY);
        let long =
            || ChangeOutcome::Refused(Box::new(Refusal::BadRequest { why: "x".repeat(1 << 16) }));
        for sequence in 1..100 {
            clients.keep(Instant(0), &sent(first, sequence, 0), Some(long()));
        }
        check(&clients);
        assert!(clients.bytes <= CLIENT_BYTES_MAX);
        assert!(is_unknown(&clients, &sent(first, 1, 0)));
        assert_eq!(clients.find(&sent(first, 99, 0)), Ok(Some(&long())));
        // Too much for all together: the one that was silent for longest goes.
        for _ in 0..8 {
            let number = clients.open(Instant(MINUTE_MICROS), KEY);
            for sequence in 1..30 {
                let at = Instant(MINUTE_MICROS);
                clients.keep(at, &sent(number, sequence, 0), Some(long()));
            }
        }
        check(&clients);
        assert!(clients.bytes <= BYTES_MAX);
        assert!(is_unknown(&clients, &sent(first, 99, 0)));
        assert!(is_unknown(&clients, &sent(first, 100, 0)));
        // Too many.
        let before = clients.open(Instant(2 * MINUTE_MICROS), KEY);
        for _ in 0..CLIENTS_MAX {
            clients.open(Instant(3 * MINUTE_MICROS), KEY);
        }
        assert!(is_unknown(&clients, &sent(before, 1, 0)));
        assert_eq!(clients.known.len(), CLIENTS_MAX);
        // Silent for too long.
        clients.open(Instant(100 * MINUTE_MICROS), KEY);
        assert_eq!(clients.known.len(), 1);
        check(&clients);
    }

    #[test]
    fn most_answers_of_one_client_are_bounded() {
        let mut clients = Clients::default();
        let number = clients.open(Instant(0), KEY);
        let last = 2 * CatalogLimits::DEFAULT.answers_per_client_max as u64;
        for sequence in 1..=last {
            clients.keep(Instant(0), &sent(number, sequence, 0), Some(ChangeOutcome::Done));
        }
        assert!(
            clients.known[&number].answers.len() <= CatalogLimits::DEFAULT.answers_per_client_max
        );
        assert!(is_unknown(&clients, &sent(number, 1, 0)));
        assert_eq!(clients.find(&sent(number, last, 0)), Ok(Some(&ChangeOutcome::Done)));
        check(&clients);
    }

    #[test]
    fn an_answer_takes_little_more_than_a_cache_line() {
        assert!(size_of::<AppliedChange>() <= 72, "{}", size_of::<AppliedChange>());
    }
}
