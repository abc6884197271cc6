//! Which namenode may write an archive.
//!
//! Each start of a namenode, and each leader of a group, begins a generation of its own: it creates
//! the generation's mark, an object that the store creates for one of several at most.
//! [`ArchiveClaim`] decides whether a namenode begins a generation, [`GenerationCheck`] whether it
//! still has the newest, and [`removals`] what goes of those before. They do no input or output:
//! each returns what to list, read or create next, and takes what was found.
//!
//! Two properties keep a namenode that was paused for any time from taking itself for the newest:
//! numbers have no gaps, and while a generation's mark is there, so are those of all later ones. So
//! the mark of the next generation, or the absence of its own, shows to a namenode that it was
//! superseded. They do not hold for a mark that is created after it was removed: a claim that was
//! paused that long finds the later generations and ends.

use std::collections::BTreeMap;
use std::fmt;

use sanderling_protocol::ClusterId;
use sanderling_protocol::token::read_hex;
use thiserror::Error;

use crate::group_generation::GroupGeneration;

/// Digits of a generation's number: a start each second for three centuries.
const NUMBER_DIGITS: usize = 10;

/// The last number with so many.
const NUMBER_MAX: u64 = 9_999_999_999;

/// Generations of others that begin while one namenode claims the archive, at most: more is no
/// coincidence. Two supervisors that start the same namenode cause one.
const CLAIMS_MAX: u64 = 16;

/// What one start of a namenode has stored in an archive, below a name of its own
/// ([`fmt::Display`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchiveGeneration {
    /// Later ones have higher numbers.
    pub number: u64,
    /// The cluster of the namenode.
    pub cluster: ClusterId,
}

impl ArchiveGeneration {
    /// Reads a name that [`fmt::Display`] has written; `None` for any other text.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (number, cluster) = name.strip_prefix("generation-")?.split_once('-')?;
        // A longer number is none of ours, and the one after it might not exist.
        (number.len() == NUMBER_DIGITS).then_some(())?;
        let cluster = ClusterId(read_hex(cluster)?);
        Some(Self { number: number.parse().ok()?, cluster })
    }

    const fn next(self) -> Self {
        Self { number: self.number + 1, cluster: self.cluster }
    }
}

impl fmt::Display for ArchiveGeneration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "generation-{:0NUMBER_DIGITS$}-{:016x}", self.number, self.cluster.0)
    }
}

/// The namenode that begins a generation, as its own directory shows it. A claim compares it with
/// what the archive has, and refuses an archive that is another cluster's or further on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveOwner {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Changes in its directory.
    pub commands: u64,
    /// The generation of its group; the default for a namenode alone.
    pub group: GroupGeneration,
}

/// The state of a catalog that a manifest describes: how many changes it has, and of when it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchivedState {
    /// Changes in it since the cluster began: exactly, or at least so many.
    pub commands: u64,
    /// When the manifest was written, in milliseconds since 1970 by the namenode's clock.
    pub at_unix_millis: u64,
}

/// What a namenode does next to begin a generation, and the function that takes the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// List the generations, also once the mark is created: [`ArchiveClaim::listed`].
    List,
    /// Read which generation of a group has begun this one: [`ArchiveClaim::found_group`].
    ReadGroup(ArchiveGeneration),
    /// Read its newest manifest: [`ArchiveClaim::found_manifest`].
    ReadManifest(ArchiveGeneration),
    /// Find out whether the store refuses to create an object that exists:
    /// [`ArchiveClaim::probed`].
    ProbeCondition,
    /// Create its mark if there is none: [`ArchiveClaim::created`].
    Create(ArchiveGeneration),
    /// Write: this generation has begun.
    Begun {
        /// The generation.
        generation: ArchiveGeneration,
        /// When the newest state that the archive has whole was written, if the namenode has a
        /// newer one.
        whole_at_unix_millis: Option<u64>,
    },
}

/// A reason why a namenode begins no generation, and writes nothing: start it with another archive,
/// or recover its directory from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClaimRefusal {
    /// The archive is another cluster's.
    #[error("the archive is of cluster {:016x}", .found.0)]
    OtherCluster {
        /// That cluster.
        found: ClusterId,
    },
    /// The group was begun anew, and continues in the archive.
    #[error("the archive is of the later generation {found} of the group")]
    LaterGroup {
        /// That generation.
        found: GroupGeneration,
    },
    /// Another recovery has begun the same generation of the group.
    #[error("the archive is of {found}, another recovery of the group")]
    OtherRecovery {
        /// That generation.
        found: GroupGeneration,
    },
    /// The archive has changes that the directory lacks: the namenode would continue without
    /// changes that were acknowledged.
    #[error("the archive has {archived} changes")]
    Ahead {
        /// Changes in the archive.
        archived: u64,
    },
    /// The store replaces an object that it should create only if there is none: two namenodes
    /// could begin the same generation.
    #[error("the store replaces an object under the condition that it is absent")]
    Unconditional,
    /// Another namenode has begun a later generation while this one was created.
    #[error("{later} has begun")]
    Overtaken {
        /// The newest generation.
        later: ArchiveGeneration,
    },
    /// No number is left, or many namenodes have begun meanwhile.
    #[error("{generation} cannot begin")]
    NoNumber {
        /// The generation that would have been next.
        generation: ArchiveGeneration,
    },
}

/// Begins the generation after all that are there, for one namenode.
///
/// A claim whose store fails ends without a generation. It may have created a mark; the next claim
/// begins the generation after that.
#[derive(Debug, Clone)]
pub struct ArchiveClaim {
    owner: ArchiveOwner,
    step: ClaimStep,
    /// Generations whose manifests have not been read, ascending.
    unread: Vec<ArchiveGeneration>,
    /// The number after all that were there.
    number: u64,
    /// Marks that could not be created.
    refused: u64,
    /// The generation whose mark was created.
    marked: Option<ArchiveGeneration>,
    whole_at_unix_millis: Option<u64>,
    is_conditional: bool,
}

impl ArchiveClaim {
    /// Begins a claim, once at the start of a namenode. Call [`Self::step`], do what it returns at
    /// the store, and hand the outcome to the function that the step names, until it is
    /// [`ClaimStep::Begun`]. Store no changes in the archive before.
    #[must_use]
    pub const fn new(owner: ArchiveOwner) -> Self {
        Self {
            owner,
            step: ClaimStep::List,
            unread: Vec::new(),
            number: 1,
            refused: 0,
            marked: None,
            whole_at_unix_millis: None,
            is_conditional: false,
        }
    }

    /// Returns what to do next at the store. It is the same until the outcome was handed over, so a
    /// request that failed may be made again.
    #[must_use]
    pub const fn step(&self) -> ClaimStep {
        self.step
    }

    /// Takes the generations that are there, in any order.
    ///
    /// # Errors
    /// [`ClaimRefusal::OtherCluster`] or [`ClaimRefusal::NoNumber`]: use another place.
    /// [`ClaimRefusal::Overtaken`]: end this namenode, or the other one.
    pub fn listed(&mut self, mut there: Vec<ArchiveGeneration>) -> Result<(), ClaimRefusal> {
        there.sort_unstable();
        if let Some(other) = there.iter().find(|it| it.cluster != self.owner.cluster) {
            return Err(ClaimRefusal::OtherCluster { found: other.cluster });
        }
        let newest = there.last().copied();
        if let Some(generation) = self.marked {
            return self.confirmed(generation, newest);
        }
        self.number = newest.map_or(1, |newest| newest.number + 1);
        (self.unread, self.whole_at_unix_millis) = (there, None);
        self.step = match newest {
            Some(newest) => ClaimStep::ReadGroup(newest),
            None => self.creation()?,
        };
        Ok(())
    }

    /// Takes the generation of the group that has begun the newest generation of the archive: the
    /// default if that was a namenode alone.
    ///
    /// # Errors
    /// [`ClaimRefusal::LaterGroup`] or [`ClaimRefusal::OtherRecovery`]: end this namenode, or the
    /// other recovery. [`ClaimRefusal::NoNumber`]: use another place.
    pub fn found_group(&mut self, found: GroupGeneration) -> Result<(), ClaimRefusal> {
        let own = self.owner.group;
        if found != own && !own.is_after(found) {
            return Err(match found.is_after(own) {
                true => ClaimRefusal::LaterGroup { found },
                false => ClaimRefusal::OtherRecovery { found },
            });
        }
        self.read_next()
    }

    /// Takes what the newest manifest of a generation describes; `None` where it has none. The
    /// first one that is found counts.
    ///
    /// # Errors
    /// [`ClaimRefusal::Ahead`]: recover from the archive. [`ClaimRefusal::NoNumber`]: use another
    /// place.
    pub fn found_manifest(&mut self, found: Option<ArchivedState>) -> Result<(), ClaimRefusal> {
        let Some(ArchivedState { commands: archived, at_unix_millis }) = found else {
            return self.read_next();
        };
        if archived > self.owner.commands {
            return Err(ClaimRefusal::Ahead { archived });
        }
        self.whole_at_unix_millis = (archived < self.owner.commands).then_some(at_unix_millis);
        self.step = self.creation()?;
        Ok(())
    }

    /// Takes the outcome of [`ClaimStep::ProbeCondition`]; `is_refused` if the store refused to
    /// create an object that exists.
    ///
    /// # Errors
    /// [`ClaimRefusal::Unconditional`]: use another store. [`ClaimRefusal::NoNumber`]: use another
    /// place.
    pub fn probed(&mut self, is_refused: bool) -> Result<(), ClaimRefusal> {
        if !is_refused {
            return Err(ClaimRefusal::Unconditional);
        }
        self.is_conditional = true;
        self.step = self.creation()?;
        Ok(())
    }

    /// Takes whether the mark was created. If it was not, another namenode has begun meanwhile, or
    /// the store refused for another reason: the claim starts over, because the other one may have
    /// stored changes since, and because a number that was skipped would be a gap.
    ///
    /// # Errors
    /// [`ClaimRefusal::NoNumber`]: too many others have begun. Try again later.
    pub fn created(&mut self, is_created: bool) -> Result<(), ClaimRefusal> {
        let generation = self.wanted();
        debug_assert_eq!(self.step, ClaimStep::Create(generation), "this mark was to be created");
        self.step = ClaimStep::List;
        if is_created {
            self.marked = Some(generation);
            return Ok(());
        }
        self.refused += 1;
        match self.refused {
            CLAIMS_MAX.. => Err(ClaimRefusal::NoNumber { generation }),
            _ => Ok(()),
        }
    }

    /// Ends the claim, once the mark is there. If a later generation is there, too, the mark of
    /// this one may have been created and removed before: the namenode would not find the next one.
    fn confirmed(
        &mut self,
        generation: ArchiveGeneration,
        newest: Option<ArchiveGeneration>,
    ) -> Result<(), ClaimRefusal> {
        if let Some(later) = newest.filter(|newest| newest.number > generation.number) {
            return Err(ClaimRefusal::Overtaken { later });
        }
        let whole_at_unix_millis = self.whole_at_unix_millis;
        self.step = ClaimStep::Begun { generation, whole_at_unix_millis };
        Ok(())
    }

    fn read_next(&mut self) -> Result<(), ClaimRefusal> {
        self.step = match self.unread.pop() {
            Some(generation) => ClaimStep::ReadManifest(generation),
            None => self.creation()?,
        };
        Ok(())
    }

    /// Returns how the claim continues when nothing that is there refuses it.
    fn creation(&self) -> Result<ClaimStep, ClaimRefusal> {
        let generation = self.wanted();
        if generation.number > NUMBER_MAX {
            return Err(ClaimRefusal::NoNumber { generation });
        }
        Ok(match self.is_conditional {
            true => ClaimStep::Create(generation),
            false => ClaimStep::ProbeCondition,
        })
    }

    const fn wanted(&self) -> ArchiveGeneration {
        ArchiveGeneration { number: self.number, cluster: self.owner.cluster }
    }
}

/// The state of a generation of the archive, as its namenode finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationState {
    /// It is the newest.
    Newest,
    /// A later one has begun.
    Superseded,
    /// All of it is gone. The generation has begun once more, with nothing in it.
    Emptied,
}

/// What a namenode does next to find the state of its generation, and the function that takes the
/// outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStep {
    /// Find out whether the generation has a mark: [`GenerationCheck::found_mark`].
    FindMark(ArchiveGeneration),
    /// List the generations: [`GenerationCheck::listed`].
    List,
    /// Create its mark if there is none: [`GenerationCheck::created`].
    Create(ArchiveGeneration),
    /// Act on this state.
    Ended(GenerationState),
}

/// Another cluster has taken the archive from the one that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("there is a generation of another cluster in its place")]
pub struct ArchiveReplaced;

/// Finds the state of a namenode's generation: before it stores anything, and twice a second.
///
/// Its own mark is looked for, too: once a later generation has stored a manifest, the mark may be
/// removed, with those of generations in between.
#[derive(Debug, Clone)]
pub struct GenerationCheck {
    generation: ArchiveGeneration,
    step: CheckStep,
}

impl GenerationCheck {
    /// Begins to check a generation that this namenode has claimed. Use one check for each look: it
    /// costs two requests while the generation is the newest.
    #[must_use]
    pub const fn new(generation: ArchiveGeneration) -> Self {
        Self { generation, step: CheckStep::FindMark(generation.next()) }
    }

    /// Returns what to do next at the store, or the state that was found ([`CheckStep::Ended`]). It
    /// is the same until the outcome was handed over.
    #[must_use]
    pub const fn step(&self) -> CheckStep {
        self.step
    }

    /// Takes whether the mark of the generation that [`CheckStep::FindMark`] names is there: first
    /// that of the next generation, then the own one. Hand it over for an answer of the store only;
    /// after an error, make the request again.
    pub fn found_mark(&mut self, is_there: bool) {
        let is_own = self.step == CheckStep::FindMark(self.generation);
        self.step = match (is_own, is_there) {
            (false, true) => CheckStep::Ended(GenerationState::Superseded),
            (false, false) => CheckStep::FindMark(self.generation),
            (true, true) => CheckStep::Ended(GenerationState::Newest),
            (true, false) => CheckStep::List,
        };
    }

    /// Takes the generations that are there, where the own mark is not.
    ///
    /// # Errors
    /// [`ArchiveReplaced`]: store nothing, and check again.
    pub fn listed(&mut self, there: &[ArchiveGeneration]) -> Result<(), ArchiveReplaced> {
        if there.iter().any(|it| it.number > self.generation.number) {
            self.step = CheckStep::Ended(GenerationState::Superseded);
            return Ok(());
        }
        // Those before it may be there: they are removed once this one has a whole copy.
        if there.iter().any(|it| it.cluster != self.generation.cluster) {
            return Err(ArchiveReplaced);
        }
        self.step = CheckStep::Create(self.generation);
        Ok(())
    }

    /// Takes whether the own mark was created again, in answer to [`CheckStep::Create`]. If it was,
    /// all of the generation was gone: store the whole copy anew ([`GenerationState::Emptied`]). If
    /// it exists already, the list was late, and the generation is the newest.
    pub const fn created(&mut self, is_created: bool) {
        self.step = CheckStep::Ended(match is_created {
            true => GenerationState::Emptied,
            false => GenerationState::Newest,
        });
    }
}

/// How much of a generation is removed. Its mark stays where a paused namenode may look for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationRemoval {
    /// All of its objects.
    Everything,
    /// All but its mark.
    AllButMark,
}

/// Returns what goes of the generations before one that has a manifest, in the order in which it is
/// to be removed. `there` has the generations, each with whether it has a manifest. The newest of
/// them with a manifest is kept, for the case that the one after it is damaged.
///
/// A generation after the one that is kept has no manifest, and its mark stays: a namenode that
/// wrote the one that is kept, and was paused since, looks for it. The oldest go first, so that
/// no mark is there without the one after it.
#[must_use]
pub fn removals(
    own: ArchiveGeneration,
    there: &BTreeMap<ArchiveGeneration, bool>,
) -> Vec<(ArchiveGeneration, GenerationRemoval)> {
    let number = own.number;
    let older = || there.iter().filter(move |(it, _)| it.number < number);
    let with_manifest = older().filter(|(_, has_manifest)| **has_manifest);
    let kept = with_manifest.map(|(it, _)| it.number).max().unwrap_or(number);
    let others = older().map(|(it, _)| *it).filter(|it| it.number != kept);
    let removal = |it: ArchiveGeneration| match it.number < kept {
        true => (it, GenerationRemoval::Everything),
        false => (it, GenerationRemoval::AllButMark),
    };
    others.map(removal).collect()
}

#[cfg(test)]
mod tests;
