//! What a datanode decides about itself: when it registers, beats and reports, what each answer
//! means, when it refuses writes, and what of its blocks it reports.
//!
//! About single blocks decides [`crate::fence`], about notices [`crate::notices`].

pub mod damages;
pub mod known_log;
pub mod member;
pub mod repeat;
pub mod report;
pub mod standing;

pub use damages::{DAMAGE_AGAIN, DamageReport, Damages};
pub use known_log::{KnownLog, LostEnd};
pub use member::{
    Beaten, BlockTotals, CallFailure, Joining, Member, MemberOptions, Registration, Step,
};
pub use member::{Start, Welcome};
pub use report::{Report, ReportStep};
pub use standing::{Asked, Standing};
