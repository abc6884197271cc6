//! Arguments that several commands of tasks have, and those of the simple ones.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use sanderling_command::units::{Span, UnitError};
use sanderling_core::preemption::Spec as PreemptionSpec;
use thiserror::Error;

use crate::backend::BackendSpec;
use crate::driver_args::DriverArgs;
use crate::dump_policy::DumpPolicy;
use crate::machine_notices::OnNoticeArgs;

/// The shortest time after which a lock is stale. It is renewed three times in it, each time with a
/// request of the backend. Chosen, not measured.
const LOCK_AGE_MIN: Duration = Duration::from_secs(1);

/// Which task, where it is stored, and its key.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// The task's name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: TaskName,
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
}

/// Where checkpoints are stored, and their key.
#[derive(Debug, Clone, Args)]
pub(crate) struct StorageArgs {
    /// Where checkpoints are stored: a path in Sanderling, dir:D for a directory, mount:D for one
    /// that has to be a mount point, s3://BUCKET/PREFIX, or auto for /tasks in the cluster that is
    /// configured, which is refused where none is
    #[arg(long, value_name = "BACKEND", default_value = "/tasks")]
    pub(crate) backend: BackendSpec,
    /// The file with the key that checkpoints are encrypted with; `run` makes it if it is absent
    /// [default: task.key beside the contexts]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// After how long without a renewal a runner on another machine counts as dead
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = lock_age)]
    pub(crate) lock_age: Span,
}

/// `task run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The task's name [default: the command's, with digits that depend on all its words]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<TaskName>,
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// The directory into which the task writes its state; what is in it is replaced by a restored
    /// state [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// When checkpoints are taken, and how many are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct PaceArgs {
    /// Time between two checkpoints; auto: from measured dumps and --mean-life (Young, Daly), or
    /// --lives
    #[arg(long, value_name = "auto|DURATION", default_value = "auto")]
    pub(crate) interval: IntervalArg,
    /// How long a machine lives in the mean, for --interval auto
    #[arg(long, value_name = "DURATION", default_value = "4h")]
    pub(crate) mean_life: Span,
    /// How machines end, for --interval auto, such as bathtub:typical or lifetimes:FILE: the best
    /// interval for this machine's age is searched for
    #[arg(long, value_name = "MODEL", conflicts_with = "mean_life")]
    pub(crate) lives: Option<PreemptionSpec>,
    /// Generations that are kept
    #[arg(long, value_name = "NUMBER", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) keep: u32,
    /// How long the task may take to write its state
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) hook_timeout: Span,
    /// Store chunks as they are instead of compressed
    #[arg(long)]
    pub(crate) no_compression: bool,
    /// How states are stored
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = DumpPolicy::Sanderling)]
    pub(crate) policy: DumpPolicy,
    /// Append a line of JSON to this file after each checkpoint and restore: what it took
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) driver: DriverArgs,
    #[command(flatten)]
    pub(crate) notice: OnNoticeArgs,
}

/// `task ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Where checkpoints are stored: a path in Sanderling, dir:D for a directory, mount:D for one
    /// that has to be a mount point, s3://BUCKET/PREFIX, or auto for /tasks in the cluster that is
    /// configured, which is refused where none is
    #[arg(long, value_name = "BACKEND", default_value = "/tasks")]
    pub(crate) backend: BackendSpec,
}

/// `task restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// The directory to unpack into; what is in it is replaced
    #[arg(long, value_name = "DIR")]
    pub(crate) state: PathBuf,
    /// A command to run with it, as `task run` does
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `task gc`.
#[derive(Debug, Clone, Args)]
pub struct GcArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Generations that are kept
    #[arg(long, value_name = "NUMBER", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) keep: u32,
}

/// `task child`.
#[derive(Debug, Clone, Args)]
pub struct ChildArgs {
    /// Begin a session of its own instead of ending with the parent.
    #[arg(long)]
    pub(crate) session: bool,
    /// The process id of the parent, which may have ended by now.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) parent: Option<i32>,
    /// Let the command run `task init` of this very program: these are its last words.
    #[arg(long)]
    pub(crate) init: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Characters of a task's name, at most. Chosen, not measured: file systems have 255 bytes.
const NAME_MAX: usize = 100;

/// The same of a bag's name: those of its tasks have a dot more, and the six digits of a number.
const BAG_NAME_MAX: usize = NAME_MAX - 7;

/// The name of a task: a directory of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskName(pub(crate) String);

/// Why a text is no name of a task.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TaskNameError {
    /// It is empty, too long, or begins with a dot.
    #[error("a name has 1 to {NAME_MAX} characters and does not begin with a dot")]
    Length {
        /// What was given.
        text: String,
    },
    /// It is a bag's, and the names of its tasks would be too long.
    #[error("the name of a bag has 1 to {BAG_NAME_MAX} characters: those of its tasks have 7 more")]
    BagLength {
        /// What was given.
        text: String,
    },
    /// It has a character that is in no name.
    #[error("a name has letters, digits, '-', '_' and '.' alone")]
    Character {
        /// What was given.
        text: String,
    },
}

/// The time between two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntervalArg {
    Auto,
    Fixed(Span),
}

/// Why a text is no time between two checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("auto, or {source}")]
pub(crate) struct IntervalError {
    #[from]
    source: UnitError,
}

/// A text is no number of dollars.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text} is no price: a number of dollars, such as 0.03")]
pub(crate) struct PriceError {
    text: String,
}

/// Reads the name of a bag.
pub(crate) fn bag_name(text: &str) -> Result<TaskName, TaskNameError> {
    let name: TaskName = text.parse()?;
    if name.0.len() > BAG_NAME_MAX {
        return Err(TaskNameError::BagLength { text: text.to_owned() });
    }
    Ok(name)
}

/// Reads a number of dollars.
pub(crate) fn dollars(text: &str) -> Result<f64, PriceError> {
    let price = text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    price.ok_or_else(|| PriceError { text: text.to_owned() })
}

/// Why a text is no time after which a lock is stale.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum LockAgeError {
    /// It is no time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A lock cannot be renewed in it.
    #[error("{text} is too short: a lock is renewed three times in it, and 1s is the shortest")]
    TooShort {
        /// What was given.
        text: String,
    },
}

/// Reads the time after which a lock is stale.
fn lock_age(text: &str) -> Result<Span, LockAgeError> {
    let age: Span = text.parse()?;
    if age.0 < LOCK_AGE_MIN {
        return Err(LockAgeError::TooShort { text: text.to_owned() });
    }
    Ok(age)
}

impl FromStr for TaskName {
    type Err = TaskNameError;

    fn from_str(text: &str) -> Result<Self, TaskNameError> {
        let is_allowed = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        if text.is_empty() || text.len() > NAME_MAX || text.starts_with('.') {
            return Err(TaskNameError::Length { text: text.to_owned() });
        }
        if !text.chars().all(is_allowed) {
            return Err(TaskNameError::Character { text: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for IntervalArg {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, IntervalError> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Ok(Self::Fixed(text.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_one_directory() {
        for good in ["train", "a.b-c_1"] {
            assert!(good.parse::<TaskName>().is_ok(), "{good}");
        }
        for bad in ["", ".a", "a/b", "..", "a b", "ä"] {
            assert!(bad.parse::<TaskName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_the_tasks_of_a_bag_are_names_of_tasks() {
        let longest = bag_name(&"b".repeat(93)).expect("it is short enough");
        assert!(format!("{}.{:06}", longest.0, 100_000).parse::<TaskName>().is_ok());
        let longer = bag_name(&"b".repeat(94)).expect_err("it is too long");
        assert!(longer.to_string().contains("1 to 93 characters"), "{longer}");
        assert!(bag_name(".b").is_err() && bag_name("").is_err());
    }

    #[test]
    fn lock_is_stale_after_a_second_at_least() {
        assert_eq!(lock_age("1s").map(|age| age.0), Ok(LOCK_AGE_MIN));
        for short in ["0", "0s", "1ms", "999ms"] {
            let error = lock_age(short).expect_err("it is too short");
            assert!(matches!(error, LockAgeError::TooShort { .. }), "{short}: {error}");
        }
        assert!(matches!(lock_age("soon"), Err(LockAgeError::Unit(_))));
    }

    #[test]
    fn price_is_a_finite_number_that_is_not_negative() {
        assert_eq!((dollars("0"), dollars("0.023")), (Ok(0.0), Ok(0.023)));
        for bad in ["nan", "inf", "-1", "", "$1"] {
            assert!(dollars(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn interval_is_auto_or_a_duration() {
        assert_eq!("auto".parse(), Ok(IntervalArg::Auto));
        assert!(matches!("2m".parse(), Ok(IntervalArg::Fixed(_))));
        let error = "often".parse::<IntervalArg>().expect_err("it is no duration");
        let cause = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<UnitError>());
        assert!(matches!(cause, Some(UnitError::NoNumber { .. })), "{error}");
    }
}
