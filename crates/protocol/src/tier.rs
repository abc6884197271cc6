//! Tiers and storage classes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The medium on which a datanode keeps a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Tier {
    /// The pre-faulted memory arena.
    Dram = 1,
    /// A directory with a size.
    Disk = 2,
    /// A store outside of the fleet, a directory or a bucket, that every node with this tier
    /// shares: its bytes survive the node. Blocks get there by relocation and precopy only.
    Object = 3,
}

impl Tier {
    /// Every tier, the fastest first.
    pub const ALL: [Self; 3] = [Self::Dram, Self::Disk, Self::Object];

    /// Returns the tier with this number on the wire; `None` for a number that no tier has.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Dram),
            2 => Some(Self::Disk),
            3 => Some(Self::Object),
            _ => None,
        }
    }

    /// Returns the next slower tier; `None` for the slowest.
    #[must_use]
    pub const fn slower(self) -> Option<Self> {
        match self {
            Self::Dram => Some(Self::Disk),
            Self::Disk => Some(Self::Object),
            Self::Object => None,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Dram => "dram",
            Self::Disk => "disk",
            Self::Object => "object",
        })
    }
}

/// The choice of a tier when the preferred one has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// Take the next slower tier.
    FallThrough,
    /// Try again until the call's deadline: the refusal is [`Refusal::RetryAfter`].
    Wait,
    /// Refuse at once with [`Refusal::Full`].
    Refuse,
}

/// The tier that an object prefers and what happens when it is full.
///
/// Written `dram`, `disk` (both fall through), or `TIER:fall-through`, `TIER:wait`, `TIER:refuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StorageClass {
    /// The preferred tier. Never [`Tier::Object`]: writers do not append there.
    pub tier: Tier,
    /// The choice of a tier when the preferred one is full.
    pub when_full: WhenFull,
}

impl Default for StorageClass {
    /// Memory first and what is slower when it is full, as an ephemeral store's users expect.
    fn default() -> Self {
        Self { tier: Tier::Dram, when_full: WhenFull::FallThrough }
    }
}

impl fmt::Display for StorageClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when_full = match self.when_full {
            WhenFull::FallThrough => "fall-through",
            WhenFull::Wait => "wait",
            WhenFull::Refuse => "refuse",
        };
        write!(formatter, "{}:{when_full}", self.tier)
    }
}

impl FromStr for StorageClass {
    type Err = Refusal;

    /// # Errors
    /// [`Refusal::UnknownStorageClass`] when the text is none of the known classes; it is never
    /// taken for "any".
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let unknown = || Refusal::UnknownStorageClass { class: text.to_owned() };
        let (tier, when_full) = text.split_once(':').unwrap_or((text, "fall-through"));
        let tier = match tier {
            "dram" => Tier::Dram,
            "disk" => Tier::Disk,
            _ => return Err(unknown()),
        };
        let when_full = match when_full {
            "fall-through" => WhenFull::FallThrough,
            "wait" => WhenFull::Wait,
            "refuse" => WhenFull::Refuse,
            _ => return Err(unknown()),
        };
        Ok(Self { tier, when_full })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_class_is_read_back_as_written() {
        for text in ["dram:fall-through", "dram:wait", "disk:refuse"] {
            assert_eq!(text.parse::<StorageClass>().unwrap().to_string(), text);
        }
        assert_eq!("dram".parse::<StorageClass>().unwrap(), StorageClass::default());
    }

    #[test]
    fn unknown_storage_class_is_refused() {
        for text in ["", "any", "dram:", "nvme", "dram:maybe"] {
            assert!(matches!(
                text.parse::<StorageClass>(),
                Err(Refusal::UnknownStorageClass { .. })
            ));
        }
    }
}
