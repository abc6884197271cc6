//! What took a generation, and which machines can restore it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Beginnings of the names of CPU features that a process can use, or that change what is saved of
/// its registers. Features of the kernel and of virtual machines are none.
const USED_BY_PROCESSES: [&str; 24] = [
    "sse", "ssse", "avx", "amx", "fma", "f16c", "bmi", "aes", "vaes", "pclmul", "vpclmul", "sha",
    "gfni", "popcnt", "abm", "movbe", "adx", "rdrand", "rdseed", "xsave", "fxsr", "cx16", "clwb",
    "pku",
];

/// The driver that took a generation, with what a restore of it must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverRecord {
    /// The task wrote its state.
    Hook,
    /// CRIU dumped its processes.
    Criu(CriuRecord),
}

/// The properties of a dump that a restore by CRIU has to match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriuRecord {
    /// The release of CRIU.
    pub version: CriuVersion,
    /// The architecture, as the kernel names it.
    pub architecture: String,
    /// The CPU's features that processes can use, in order.
    pub cpu_features: Vec<String>,
    /// The process id of the task in its namespace.
    pub root: u32,
    /// The pipes of standard output and standard error, as `/proc` names them.
    pub output_pipes: [String; 2],
    /// Whether the task has a network of its own, with a loopback interface alone.
    pub has_own_network: bool,
}

/// A release of CRIU, as `criu --version` prints it. A machine restores images of the same major
/// release that are not newer than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CriuVersion {
    /// Changes with the format of images.
    pub major: u32,
    /// Changes with new kinds of images.
    pub minor: u32,
    /// Changes with repairs.
    pub patch: u32,
}

/// The properties of a machine that count for the restore of a dump by CRIU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineView {
    /// Its release of CRIU; `None` where CRIU cannot be used.
    pub criu: Option<CriuVersion>,
    /// Its architecture.
    pub architecture: String,
    /// The CPU's features that processes can use.
    pub cpu_features: Vec<String>,
}

/// A reason why a machine cannot restore a generation of CRIU. Another machine or another release
/// of CRIU may be able to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreRefusal {
    /// CRIU is not there.
    #[error("it was taken by CRIU {0}, and CRIU cannot be used here")]
    NoCriu(CriuVersion),
    /// CRIU is older, or of another major release.
    #[error("it was taken by CRIU {taken}, and CRIU {here} here does not read its images")]
    Version {
        /// The release that took it.
        taken: CriuVersion,
        /// The release on this machine.
        here: CriuVersion,
    },
    /// The machine is of another kind.
    #[error("it was taken on {taken}, and this machine is {here}")]
    Architecture {
        /// The architecture on which it was taken.
        taken: String,
        /// The one of this machine.
        here: String,
    },
    /// The CPU lacks what the processes may have been using.
    #[error("it was taken on a CPU with {0}, which this one does not have")]
    Cpu(String),
}

impl CriuRecord {
    /// Checks whether a machine can restore the dump: by the version of its CRIU, its architecture
    /// and the features of its CPU.
    ///
    /// # Errors
    /// [`RestoreRefusal`]: another machine may be able to.
    pub fn fits(&self, machine: &MachineView) -> Result<(), RestoreRefusal> {
        let taken = self.version;
        let here = machine.criu.ok_or(RestoreRefusal::NoCriu(taken))?;
        let release = |version: CriuVersion| (version.major, version.minor);
        if here.major != taken.major || release(here) < release(taken) {
            return Err(RestoreRefusal::Version { taken, here });
        }
        if machine.architecture != self.architecture {
            let (taken, here) = (self.architecture.clone(), machine.architecture.clone());
            return Err(RestoreRefusal::Architecture { taken, here });
        }
        let here: BTreeSet<&String> = machine.cpu_features.iter().collect();
        let missing: Vec<&str> = self
            .cpu_features
            .iter()
            .filter(|feature| !here.contains(feature))
            .map(String::as_str)
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(RestoreRefusal::Cpu(missing.join(", "))) }
    }
}

impl MachineView {
    /// Returns the features among all of a CPU that processes can use, in order. Of an
    /// architecture whose names are not listed, all are.
    #[must_use]
    pub fn used_features(architecture: &str, all: &str) -> Vec<String> {
        let is_used = |name: &&str| {
            architecture != "x86_64" || USED_BY_PROCESSES.iter().any(|it| name.starts_with(it))
        };
        let used: BTreeSet<&str> = all.split_ascii_whitespace().filter(is_used).collect();
        used.into_iter().map(str::to_owned).collect()
    }
}

impl CriuVersion {
    /// The oldest release that is used: those before dump no connections without iptables.
    pub const OLDEST: Self = Self { major: 4, minor: 0, patch: 0 };
}

impl fmt::Display for CriuVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

/// A reason why a text is not the version of a CRIU, which has two numbers at least, as `4.2.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CriuVersionError {
    /// It is empty.
    #[error("there is no version")]
    Absent,
    /// It has no dot.
    #[error("a version has two numbers at least")]
    OneNumber,
    /// A part of it does not begin with a number of 32 bits.
    #[error("a version is digits and dots")]
    NotDigits,
}

impl FromStr for CriuVersion {
    type Err = CriuVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |char: char| char.is_ascii_digit();
        let mut numbers = text.split('.').map(|part| {
            let end = part.find(|char| !is_digit(char)).unwrap_or(part.len());
            part[..end].parse::<u32>().map_err(|_| CriuVersionError::NotDigits)
        });
        let major = numbers.next().unwrap_or(Err(CriuVersionError::Absent))?;
        let minor = numbers.next().unwrap_or(Err(CriuVersionError::OneNumber))?;
        let patch = numbers.next().unwrap_or(Ok(0))?;
        Ok(Self { major, minor, patch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> CriuRecord {
        CriuRecord {
            version: CriuVersion { major: 4, minor: 2, patch: 1 },
            architecture: "x86_64".to_owned(),
            cpu_features: vec!["avx2".to_owned(), "sse2".to_owned()],
            root: 300,
            output_pipes: ["pipe:[1]".to_owned(), "pipe:[2]".to_owned()],
            has_own_network: false,
        }
    }

    fn machine(criu: &str, features: &str) -> MachineView {
        MachineView {
            criu: criu.parse().ok(),
            architecture: "x86_64".to_owned(),
            cpu_features: MachineView::used_features("x86_64", features),
        }
    }

    #[test]
    fn same_or_newer_criu_with_more_features_restores() {
        for criu in ["4.2.1", "4.2", "4.9.0"] {
            let machine = machine(criu, "avx512f sse2 avx2 ibrs");
            assert_eq!(record().fits(&machine), Ok(()), "{criu}");
        }
    }

    #[test]
    fn older_other_and_absent_criu_is_refused() {
        for criu in ["4.1.1", "3.17.1", "5.0"] {
            let refused = record().fits(&machine(criu, "sse2 avx2")).expect_err("refused");
            assert!(matches!(refused, RestoreRefusal::Version { .. }), "{criu}");
        }
        let refused = record().fits(&machine("", "sse2 avx2")).expect_err("refused");
        assert!(refused.to_string().contains("CRIU 4.2.1"), "{refused}");
    }

    #[test]
    fn lesser_cpu_is_refused_by_the_feature() {
        let refused = record().fits(&machine("4.2.1", "sse2 ibrs")).expect_err("refused");
        assert_eq!(refused, RestoreRefusal::Cpu("avx2".to_owned()));
        let other = MachineView { architecture: "aarch64".to_owned(), ..machine("4.2.1", "") };
        let refused = record().fits(&other).expect_err("refused");
        assert!(matches!(refused, RestoreRefusal::Architecture { .. }));
    }

    #[test]
    fn versions_are_read() {
        let version = |text: &str| text.parse::<CriuVersion>().map(|it| it.to_string());
        assert_eq!(version("4.2.1"), Ok("4.2.1".to_owned()));
        assert_eq!(version("4.2"), Ok("4.2.0".to_owned()));
        assert_eq!(version("4.2-rc1"), Ok("4.2.0".to_owned()));
        assert_eq!(version(""), Err(CriuVersionError::NotDigits));
        assert_eq!(version("x"), Err(CriuVersionError::NotDigits));
        assert_eq!(version("4"), Err(CriuVersionError::OneNumber));
    }
}
