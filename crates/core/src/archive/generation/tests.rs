//! A store, and namenodes that claim its archive, check their generations, store and remove. Each
//! may stand still, lose an answer or die between any two requests.

use std::collections::BTreeSet;

use super::*;
use crate::placement::Draw;

const CLUSTER: ClusterId = ClusterId(7);

/// Rounds in which every namenode finds out whether it was superseded: claims that read some dozen
/// generations and start over, then checks, manifests and their removals.
const ROUNDS: usize = 200;

/// What the store or the shell does wrong, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedBug {
    /// The store replaces an object that it is to create, and the probe does not show it.
    Unconditional,
    /// Namenodes store without checking their generations.
    ChecksNothing,
    /// The marks of generations without a manifest are removed, too.
    RemovesMarks,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Answered,
    /// It is executed, and no answer comes.
    Lost,
    /// It is not executed, and no answer comes.
    Failed,
    /// The store refuses to create the object for a reason of its own; it answers other requests.
    Conflict,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Answered, Self::Lost, Self::Failed, Self::Conflict];

    const fn is_executed(self) -> bool {
        matches!(self, Self::Answered | Self::Lost)
    }

    const fn is_answered(self) -> bool {
        matches!(self, Self::Answered | Self::Conflict)
    }
}

/// What the store has of a generation.
#[derive(Debug, Clone, Default)]
struct Stored {
    has_mark: bool,
    /// Changes in its manifest.
    commands: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Object {
    Mark,
    Manifest,
}

/// What a namenode does.
#[derive(Debug, Clone)]
enum Activity {
    Claims(ArchiveClaim),
    Rests,
    Checks(GenerationCheck),
    Stores,
    /// It removes these objects, the last one first.
    Removes(Vec<(u64, Object)>),
    Ended,
}

#[derive(Debug, Clone)]
struct Namenode {
    owner: ArchiveOwner,
    generation: Option<ArchiveGeneration>,
    activity: Activity,
    has_removed: bool,
    /// The newest generation that had begun when it began its own, or its last pass.
    begun_before: u64,
}

impl Namenode {
    fn rest(&mut self) {
        // What is equal but for this is one state.
        (self.activity, self.begun_before) = (Activity::Rests, 0);
    }

    fn has_ended(&self) -> bool {
        matches!(self.activity, Activity::Ended)
    }
}

#[derive(Debug, Clone)]
struct World {
    store: BTreeMap<u64, Stored>,
    namenodes: Vec<Namenode>,
    bug: Option<InjectedBug>,
    /// The newest generation that has ever begun.
    begun: u64,
    /// Which namenode has stored in each generation.
    writers: BTreeMap<u64, usize>,
    /// Changes of a namenode, at most.
    commands_max: u64,
}

const fn of(number: u64) -> ArchiveGeneration {
    ArchiveGeneration { number, cluster: CLUSTER }
}

const fn owner(commands: u64) -> ArchiveOwner {
    ArchiveOwner { cluster: CLUSTER, commands, group: GroupGeneration(0) }
}

impl World {
    fn new(bug: Option<InjectedBug>) -> Self {
        Self {
            store: BTreeMap::new(),
            namenodes: Vec::new(),
            bug,
            begun: 0,
            writers: BTreeMap::new(),
            commands_max: u64::MAX,
        }
    }

    /// Adds a first generation with ten changes. Its namenode is dead.
    fn with_archive(mut self) -> Self {
        self.store.insert(1, Stored { has_mark: true, commands: Some(10) });
        self.begun = 1;
        self
    }

    /// Adds a namenode that has the first generation.
    fn with_incumbent(self) -> Self {
        let mut world = self.with_archive();
        world.writers.insert(1, world.namenodes.len());
        world.namenodes.push(Namenode {
            owner: owner(10),
            generation: Some(of(1)),
            activity: Activity::Rests,
            has_removed: true,
            begun_before: 0,
        });
        world
    }

    fn with_claimant(mut self, commands: u64) -> Self {
        self.start(commands);
        self
    }

    fn start(&mut self, commands: u64) {
        let owner = owner(commands);
        self.namenodes.push(Namenode {
            owner,
            generation: None,
            activity: Activity::Claims(ArchiveClaim::new(owner)),
            has_removed: false,
            begun_before: 0,
        });
    }

    /// With so many changes at most there are finitely many states.
    fn with_commands_max(self, commands_max: u64) -> Self {
        Self { commands_max, ..self }
    }

    fn generations(&self) -> Vec<ArchiveGeneration> {
        self.store.keys().map(|number| of(*number)).collect()
    }

    fn has_mark(&self, number: u64) -> bool {
        self.store.get(&number).is_some_and(|stored| stored.has_mark)
    }

    /// Returns the changes in the newest manifest.
    fn archived(&self) -> u64 {
        self.store.values().rev().find_map(|stored| stored.commands).unwrap_or_default()
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.namenodes.len()).filter(|at| !self.namenodes[*at].has_ended()).collect()
    }

    fn is_idle(&self) -> bool {
        let is_idle = |it: &Namenode| matches!(it.activity, Activity::Rests | Activity::Ended);
        self.namenodes.iter().all(is_idle)
    }

    /// Makes a namenode send its next request.
    fn step(&mut self, at: usize, outcome: Outcome) -> Result<(), String> {
        match self.namenodes[at].activity.clone() {
            Activity::Claims(claim) => self.claim(at, claim, outcome),
            Activity::Rests => {
                self.begin_pass(at);
                Ok(())
            }
            Activity::Checks(check) => self.check(at, check, outcome),
            Activity::Stores => self.store_manifest(at, outcome),
            Activity::Removes(left) => {
                self.remove(at, left, outcome);
                Ok(())
            }
            Activity::Ended => Ok(()),
        }
    }

    fn claim(
        &mut self,
        at: usize,
        mut claim: ArchiveClaim,
        outcome: Outcome,
    ) -> Result<(), String> {
        let taken = match claim.step() {
            ClaimStep::List => claim.listed(self.generations()),
            ClaimStep::ReadGroup(_) => claim.found_group(GroupGeneration::default()),
            ClaimStep::ReadManifest(it) => {
                let commands = self.store.get(&it.number).and_then(|stored| stored.commands);
                let state = |commands| ArchivedState { commands, at_unix_millis: 1 };
                claim.found_manifest(commands.map(state))
            }
            ClaimStep::ProbeCondition => claim.probed(true),
            ClaimStep::Create(it) => {
                let is_created = outcome.is_executed() && self.create(at, it.number);
                claim.created(is_created)
            }
            ClaimStep::Begun { .. } => Ok(()),
        };
        let (begun, step) = (self.begun, claim.step());
        let namenode = &mut self.namenodes[at];
        if !outcome.is_answered() {
            // The namenode does not start, and is started again.
            namenode.activity = Activity::Claims(ArchiveClaim::new(namenode.owner));
            return Ok(());
        }
        match (taken, step) {
            (Err(_), _) => namenode.activity = Activity::Ended,
            (Ok(()), ClaimStep::Begun { generation, .. }) => {
                let before = namenode.begun_before;
                if before + 1 != generation.number {
                    return Err(format!("{at} begins {generation} after {before} of {begun}"));
                }
                namenode.generation = Some(generation);
                namenode.rest();
            }
            (Ok(()), _) => namenode.activity = Activity::Claims(claim),
        }
        Ok(())
    }

    /// Creates a mark; returns whether it did.
    fn create(&mut self, at: usize, number: u64) -> bool {
        let has_mark = self.has_mark(number);
        // A mark that is created long after it was removed, while the namenode that created it
        // first has stood still since, is not covered: two namenodes would have to be that slow.
        let is_first = |it: &Namenode| it.generation == Some(of(number)) && !it.has_ended();
        if !has_mark && self.namenodes.iter().any(is_first) {
            return false;
        }
        if has_mark && self.bug != Some(InjectedBug::Unconditional) {
            return false;
        }
        self.namenodes[at].begun_before = self.begun;
        self.store.entry(number).or_default().has_mark = true;
        self.begun = self.begun.max(number);
        true
    }

    fn begin_pass(&mut self, at: usize) {
        let namenode = &mut self.namenodes[at];
        let generation = namenode.generation.expect("it has begun");
        namenode.begun_before = self.begun;
        namenode.activity = match self.bug {
            Some(InjectedBug::ChecksNothing) => Activity::Stores,
            _ => Activity::Checks(GenerationCheck::new(generation)),
        };
    }

    fn check(
        &mut self,
        at: usize,
        mut check: GenerationCheck,
        outcome: Outcome,
    ) -> Result<(), String> {
        match check.step() {
            CheckStep::FindMark(it) => check.found_mark(self.has_mark(it.number)),
            CheckStep::List => {
                check.listed(&self.generations()).map_err(|error| error.to_string())?;
            }
            CheckStep::Create(own) => return Err(format!("{at} takes {own} for emptied")),
            CheckStep::Ended(_) => {}
        }
        let namenode = &mut self.namenodes[at];
        match (outcome.is_answered(), check.step()) {
            (false, _) => namenode.rest(),
            (true, CheckStep::Ended(GenerationState::Superseded)) => {
                namenode.activity = Activity::Ended;
            }
            (true, CheckStep::Ended(_)) => namenode.activity = Activity::Stores,
            (true, _) => namenode.activity = Activity::Checks(check),
        }
        Ok(())
    }

    /// Stores a manifest: at most one namenode in each generation, and none that could have found
    /// a later one in this pass.
    fn store_manifest(&mut self, at: usize, outcome: Outcome) -> Result<(), String> {
        let namenode = &mut self.namenodes[at];
        let number = namenode.generation.expect("it has begun").number;
        if outcome.is_executed() {
            let before = namenode.begun_before;
            if before > number {
                return Err(format!("{at} stores in {number}, and {before} had begun before"));
            }
            let writer = *self.writers.entry(number).or_insert(at);
            if writer != at {
                return Err(format!("{writer} and {at} store in {number}"));
            }
            if namenode.owner.commands < self.commands_max {
                namenode.owner.commands += 1;
            }
            self.store.entry(number).or_default().commands = Some(namenode.owner.commands);
        }
        if outcome != Outcome::Answered || namenode.has_removed {
            namenode.rest();
            return Ok(());
        }
        let surplus = self.surplus(number);
        self.namenodes[at].activity = Activity::Removes(surplus);
        Ok(())
    }

    /// Returns the objects that go once a generation has a manifest, the first one last.
    fn surplus(&self, number: u64) -> Vec<(u64, Object)> {
        let there: BTreeMap<ArchiveGeneration, bool> =
            self.store.iter().map(|(it, stored)| (of(*it), stored.commands.is_some())).collect();
        let mut objects = Vec::new();
        for (generation, removal) in removals(of(number), &there) {
            let has_bug = self.bug == Some(InjectedBug::RemovesMarks);
            if removal == GenerationRemoval::Everything || has_bug {
                objects.push((generation.number, Object::Mark));
            }
            if there[&generation] {
                objects.push((generation.number, Object::Manifest));
            }
        }
        objects.reverse();
        objects
    }

    fn remove(&mut self, at: usize, mut left: Vec<(u64, Object)>, outcome: Outcome) {
        let removed = left.pop().filter(|_| outcome.is_executed());
        if let Some((number, object)) = removed {
            let stored = self.store.entry(number).or_default();
            match object {
                Object::Mark => stored.has_mark = false,
                Object::Manifest => stored.commands = None,
            }
            if !stored.has_mark && stored.commands.is_none() {
                self.store.remove(&number);
            }
        }
        let namenode = &mut self.namenodes[at];
        if outcome == Outcome::Answered && !left.is_empty() {
            namenode.activity = Activity::Removes(left);
            return;
        }
        namenode.has_removed = outcome == Outcome::Answered;
        namenode.rest();
    }

    /// Lets all that are left go on without faults: only the newest generation's namenode remains,
    /// if it is there.
    fn end(mut self) -> Result<Self, String> {
        for _ in 0..ROUNDS {
            for at in 0..self.namenodes.len() {
                self.step(at, Outcome::Answered)?;
            }
        }
        let alive = self.alive();
        let is_newest = |at: &usize| self.namenodes[*at].generation == Some(of(self.begun));
        match alive.len() <= 1 && alive.iter().all(is_newest) {
            true => Ok(self),
            false => Err(format!("{alive:?} go on, and {} is the newest", self.begun)),
        }
    }
}

/// Runs every interleaving of the requests, with so many faults at any of them. A namenode that
/// stands still, or that dies, is one whose next request comes later than all others, or never.
/// Returns the number of states.
fn explore(world: World, faults: usize) -> Result<usize, String> {
    let mut seen = BTreeSet::new();
    let mut left = vec![(world, faults)];
    while let Some((world, faults)) = left.pop() {
        if !seen.insert((format!("{world:?}"), faults)) {
            continue;
        }
        if world.is_idle() {
            world.clone().end()?;
        }
        for at in world.alive() {
            for outcome in Outcome::ALL {
                let cost = usize::from(outcome != Outcome::Answered);
                if cost > faults {
                    continue;
                }
                let mut next = world.clone();
                next.step(at, outcome)?;
                left.push((next, faults - cost));
            }
        }
    }
    Ok(seen.len())
}

fn two_claimants(bug: Option<InjectedBug>) -> World {
    World::new(bug).with_claimant(10).with_claimant(10).with_commands_max(11)
}

fn claimant_beside_an_incumbent(bug: Option<InjectedBug>) -> World {
    World::new(bug).with_incumbent().with_claimant(10).with_commands_max(11)
}

/// Runs a larger fleet, whose namenodes start, stand still and die as the seed draws.
fn run(seed: u64) -> Result<World, String> {
    let mut draw = Draw::new(seed);
    let mut world = World::new(None);
    let mut paused = BTreeSet::new();
    for _ in 0..400 {
        let alive = world.alive();
        let drawn = draw.below(24);
        if alive.is_empty() || drawn == 0 && alive.len() < 4 {
            // Recovered from the archive, or an older or a newer directory.
            let commands = world.archived() + draw.below(3) as u64;
            world.start(commands.saturating_sub(1));
            continue;
        }
        let at = alive[draw.below(alive.len())];
        match drawn {
            1 | 2 if !paused.remove(&at) => {
                paused.insert(at);
            }
            3 if draw.below(3) == 0 => world.namenodes[at].activity = Activity::Ended,
            _ if paused.contains(&at) => {}
            _ => {
                let is_faulty = draw.below(10) == 0;
                let outcome = if is_faulty { draw.below(4) } else { 0 };
                world.step(at, Outcome::ALL[outcome])?;
            }
        }
    }
    world.end()
}

fn explored(world: World, faults: usize) -> usize {
    explore(world, faults).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn one_of_two_claimants_stores_and_the_other_ends_in_every_interleaving() {
    assert!(explored(two_claimants(None), 1) > 100);
    let with_archive = two_claimants(None).with_archive();
    assert!(explored(with_archive, 1) > 100);
}

#[test]
fn namenode_that_stood_still_finds_its_successor_in_every_interleaving() {
    assert!(explored(claimant_beside_an_incumbent(None), 1) > 100);
}

#[test]
fn fleet_of_claimants_keeps_one_writer() {
    let mut begun = 0;
    for seed in 0..2000 {
        let world = run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        begun = begun.max(world.begun);
    }
    assert!(begun > 3, "generations were removed in no run");
}

#[test]
#[ignore = "minutes: 200,000 seeds"]
fn fleet_of_claimants_keeps_one_writer_for_many_seeds() {
    for seed in 0..200_000 {
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn each_injected_bug_is_found() {
    let found = |world: World, faults| explore(world, faults).expect_err("it is found");
    let unconditional = found(two_claimants(Some(InjectedBug::Unconditional)), 0);
    assert!(unconditional.contains("begins"), "{unconditional}");
    let unchecked = found(claimant_beside_an_incumbent(Some(InjectedBug::ChecksNothing)), 0);
    assert!(unchecked.contains("had begun before"), "{unchecked}");
    let unmarked = found(claimant_beside_an_incumbent(Some(InjectedBug::RemovesMarks)), 1);
    assert!(unmarked.contains("had begun before"), "{unmarked}");
}

/// Returns a claim that is about to create the mark of the second generation.
fn claim_of_the_second(commands: u64) -> ArchiveClaim {
    let mut claim = ArchiveClaim::new(owner(commands));
    claim.listed(vec![of(1)]).unwrap();
    claim.found_group(GroupGeneration::default()).unwrap();
    claim.found_manifest(None).unwrap();
    claim.probed(true).unwrap();
    assert_eq!(claim.step(), ClaimStep::Create(of(2)));
    claim
}

#[test]
fn claim_reads_the_newest_manifest_and_begins_after_all_that_are_there() {
    let mut claim = ArchiveClaim::new(owner(12));
    assert_eq!(claim.step(), ClaimStep::List);
    claim.listed(vec![of(5), of(3), of(4)]).unwrap();
    assert_eq!(claim.step(), ClaimStep::ReadGroup(of(5)));
    claim.found_group(GroupGeneration::default()).unwrap();
    assert_eq!(claim.step(), ClaimStep::ReadManifest(of(5)));
    claim.found_manifest(None).unwrap();
    assert_eq!(claim.step(), ClaimStep::ReadManifest(of(4)));
    claim.found_manifest(Some(ArchivedState { commands: 10, at_unix_millis: 7 })).unwrap();
    assert_eq!(claim.step(), ClaimStep::ProbeCondition);
    claim.probed(true).unwrap();
    assert_eq!(claim.step(), ClaimStep::Create(of(6)));
    claim.created(true).unwrap();
    assert_eq!(claim.step(), ClaimStep::List);
    claim.listed(vec![of(4), of(6), of(5)]).unwrap();
    let begun = ClaimStep::Begun { generation: of(6), whole_at_unix_millis: Some(7) };
    assert_eq!(claim.step(), begun);
}

#[test]
fn claim_that_another_one_has_outrun_starts_over_and_reads_what_that_one_has_stored() {
    let mut claim = claim_of_the_second(10);
    claim.created(false).unwrap();
    assert_eq!(claim.step(), ClaimStep::List);
    claim.listed(vec![of(1), of(2)]).unwrap();
    claim.found_group(GroupGeneration::default()).unwrap();
    assert_eq!(claim.step(), ClaimStep::ReadManifest(of(2)));
    let found = claim.found_manifest(Some(ArchivedState { commands: 11, at_unix_millis: 7 }));
    assert_eq!(found, Err(ClaimRefusal::Ahead { archived: 11 }));
    // With nothing of the other one it begins the next, and the store is not probed again.
    let mut claim = claim_of_the_second(10);
    claim.created(false).unwrap();
    claim.listed(vec![of(1), of(2)]).unwrap();
    claim.found_group(GroupGeneration::default()).unwrap();
    claim.found_manifest(Some(ArchivedState { commands: 10, at_unix_millis: 7 })).unwrap();
    assert_eq!(claim.step(), ClaimStep::Create(of(3)));
    // A store that refuses without another claimant causes no gap.
    claim.created(false).unwrap();
    claim.listed(vec![of(1), of(2)]).unwrap();
    claim.found_group(GroupGeneration::default()).unwrap();
    claim.found_manifest(Some(ArchivedState { commands: 10, at_unix_millis: 7 })).unwrap();
    assert_eq!(claim.step(), ClaimStep::Create(of(3)));
}

#[test]
fn claim_whose_mark_comes_after_later_generations_ends() {
    let mut claim = claim_of_the_second(10);
    claim.created(true).unwrap();
    let found = claim.listed(vec![of(2), of(5), of(6)]);
    assert_eq!(found, Err(ClaimRefusal::Overtaken { later: of(6) }));
}

#[test]
fn claim_is_refused_where_another_one_may_go_on() {
    let other = ArchiveGeneration { number: 1, cluster: ClusterId(8) };
    let mut claim = ArchiveClaim::new(owner(0));
    let found = claim.listed(vec![of(2), other]);
    assert_eq!(found, Err(ClaimRefusal::OtherCluster { found: ClusterId(8) }));

    let first = GroupGeneration::first(1_800_000_000);
    let (own, rival) = (first.next(5), first.next(6));
    let meets = |found: GroupGeneration| {
        let mut claim = ArchiveClaim::new(ArchiveOwner { group: own, ..owner(0) });
        claim.listed(vec![of(1)]).unwrap();
        claim.found_group(found)
    };
    assert_eq!(meets(own), Ok(()));
    assert_eq!(meets(first), Ok(()));
    assert_eq!(meets(GroupGeneration::default()), Ok(()));
    assert_eq!(meets(rival), Err(ClaimRefusal::OtherRecovery { found: rival }));
    let later = rival.next(1);
    assert_eq!(meets(later), Err(ClaimRefusal::LaterGroup { found: later }));

    let mut claim = ArchiveClaim::new(owner(0));
    claim.listed(Vec::new()).unwrap();
    assert_eq!(claim.step(), ClaimStep::ProbeCondition);
    assert_eq!(claim.probed(false), Err(ClaimRefusal::Unconditional));
}

#[test]
fn claim_ends_where_no_number_is_left_and_after_many_refusals() {
    let mut claim = ArchiveClaim::new(owner(0));
    claim.listed(vec![of(NUMBER_MAX)]).unwrap();
    claim.found_group(GroupGeneration::default()).unwrap();
    let found = claim.found_manifest(None);
    assert_eq!(found, Err(ClaimRefusal::NoNumber { generation: of(NUMBER_MAX + 1) }));

    let mut claim = ArchiveClaim::new(owner(0));
    claim.listed(Vec::new()).unwrap();
    claim.probed(true).unwrap();
    for _ in 1..CLAIMS_MAX {
        claim.created(false).unwrap();
        claim.listed(Vec::new()).unwrap();
    }
    assert_eq!(claim.created(false), Err(ClaimRefusal::NoNumber { generation: of(1) }));
}

#[test]
fn generation_is_the_newest_by_its_mark_and_superseded_by_any_later_one() {
    let mut check = GenerationCheck::new(of(4));
    assert_eq!(check.step(), CheckStep::FindMark(of(5)));
    let mut superseded = check.clone();
    superseded.found_mark(true);
    assert_eq!(superseded.step(), CheckStep::Ended(GenerationState::Superseded));
    check.found_mark(false);
    assert_eq!(check.step(), CheckStep::FindMark(of(4)));
    let mut newest = check.clone();
    newest.found_mark(true);
    assert_eq!(newest.step(), CheckStep::Ended(GenerationState::Newest));
    check.found_mark(false);
    assert_eq!(check.step(), CheckStep::List);
    let mut removed = check.clone();
    assert_eq!(removed.listed(&[of(2), of(7)]), Ok(()));
    assert_eq!(removed.step(), CheckStep::Ended(GenerationState::Superseded));
    let mut replaced = check.clone();
    let other = ArchiveGeneration { number: 1, cluster: ClusterId(8) };
    assert_eq!(replaced.listed(&[other]), Err(ArchiveReplaced));
    assert_eq!(check.listed(&[of(3)]), Ok(()));
    assert_eq!(check.step(), CheckStep::Create(of(4)));
    for (is_created, state) in [(true, GenerationState::Emptied), (false, GenerationState::Newest)]
    {
        let mut emptied = check.clone();
        emptied.created(is_created);
        assert_eq!(emptied.step(), CheckStep::Ended(state));
    }
}

#[test]
fn newest_generation_with_a_manifest_is_kept_and_the_marks_after_it() {
    use GenerationRemoval::{AllButMark, Everything};
    let there = |manifests: &[u64]| {
        (1..=6).map(|number| (of(number), manifests.contains(&number))).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(
        removals(of(6), &there(&[1, 3, 6])),
        [(of(1), Everything), (of(2), Everything), (of(4), AllButMark), (of(5), AllButMark)]
    );
    assert_eq!(
        removals(of(5), &there(&[4, 5])),
        [(of(1), Everything), (of(2), Everything), (of(3), Everything)]
    );
    assert_eq!(removals(of(3), &there(&[6])), [(of(1), Everything), (of(2), Everything)]);
    assert!(removals(of(1), &there(&[1])).is_empty());
}

#[test]
fn name_of_a_generation_is_read_back() {
    let generation = ArchiveGeneration { number: 12, cluster: ClusterId(0xab) };
    assert_eq!(ArchiveGeneration::of_name(&generation.to_string()), Some(generation));
    for text in [
        "",
        "generation-1",
        "generation-000000000x-1",
        "generation-0000000001-g",
        "generation-0000000001-1",
        "generation-0000000001-+0000000000000ab",
        "generation-0000000001-00000000000000AB",
        "generation-18446744073709551615-1",
        "other-0000000001-1",
    ] {
        assert_eq!(ArchiveGeneration::of_name(text), None, "{text}");
    }
}
