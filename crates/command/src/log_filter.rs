//! The filter of the log: `SANDERLING_LOG`, and what is set at run time.

use std::fmt::Write;

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// The variable with the filter.
pub const VARIABLE: &str = "SANDERLING_LOG";

/// The levels, from none to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What begins the names of this program's own parts.
const OWN: &str = "sanderling_";

/// This program's parts that log.
const PARTS: [&str; 10] = [
    "bench",
    "client",
    "command",
    "datanode",
    "gateway",
    "manager",
    "namenode",
    "otlp",
    "serve",
    "transport",
];

/// Reports each request of the S3 gateway that fails, with what its client sent.
const SILENT: &str = "s3s";

/// Why a text is no filter: correct it.
#[derive(Debug, Error)]
pub enum FilterError {
    /// A word alone is no level.
    #[error("{word:?} is no level: give one of {}, or PART=LEVEL", levels())]
    NoLevel {
        /// The word.
        word: String,
    },
    /// What a part is given is no level.
    #[error("{word:?} is no level: give one of {}", levels())]
    NoPartLevel {
        /// The word.
        word: String,
    },
    /// No part of a program has such a name.
    #[error("{name:?} is no part of the program: give LEVEL or PART=LEVEL")]
    NoPart {
        /// The name.
        name: String,
    },
    /// The name begins like one of this program's parts, and none of those that log has it.
    #[error("{name:?} logs nothing: the parts that do are {}", parts())]
    SilentPart {
        /// The name.
        name: String,
    },
    /// The rest of the syntax is wrong.
    #[error(transparent)]
    Syntax(#[from] ParseError),
}

fn levels() -> String {
    LEVELS.join(", ")
}

fn parts() -> String {
    PARTS.map(|part| format!("{OWN}{part}")).join(", ")
}

/// Reads a filter: levels, and levels of parts, separated by commas.
///
/// `EnvFilter` alone takes a misspelled level for the name of a part, and logs nothing.
///
/// # Errors
/// [`FilterError`]: what the operator is to correct.
pub fn read(text: &str) -> Result<EnvFilter, FilterError> {
    let mut directives = String::new();
    for directive in text.split(',').map(str::trim) {
        check(directive)?;
        let _ = write!(directives, "{directive},");
    }
    if !text.split(',').any(|directive| directive.trim().starts_with(SILENT)) {
        directives.push_str(SILENT);
        directives.push_str("=off");
    }
    let directives = directives.trim_end_matches(',');
    Ok(EnvFilter::try_new(directives)?)
}

/// Returns the next more verbose level than a filter's first one; `trace` after `trace`, and for a
/// filter without a level that is known.
#[must_use]
pub fn louder(filter: &str) -> &'static str {
    let level = filter.split(',').find(|directive| !directive.contains('=')).unwrap_or("info");
    let at = LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level.trim()));
    let next = at.map_or(LEVELS.len(), |at| at + 1).min(LEVELS.len() - 1);
    LEVELS[next]
}

fn check(directive: &str) -> Result<(), FilterError> {
    let is_level = |text: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text));
    let Some((target, level)) = directive.split_once('=') else {
        return match is_level(directive) {
            true => Ok(()),
            false => Err(FilterError::NoLevel { word: directive.to_owned() }),
        };
    };
    if !is_level(level) {
        return Err(FilterError::NoPartLevel { word: level.to_owned() });
    }
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    if target.is_empty() || !target.chars().all(is_word) {
        return Err(FilterError::NoPart { name: target.to_owned() });
    }
    let crate_name = target.split(':').next().unwrap_or_default();
    match crate_name.strip_prefix(OWN) {
        Some(part) if !PARTS.contains(&part) => {
            Err(FilterError::SilentPart { name: crate_name.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_a_level_or_levels_of_parts() {
        for filter in ["debug", "WARN", "info,sanderling_datanode=debug", "off, hyper::proto=trace"]
        {
            assert!(read(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn misspelled_level_or_part_is_refused() {
        for filter in [
            "debgu",
            "",
            "info,",
            "info,sanderling_datanode=loud",
            "sanderlig=debug ,x",
            "sanderling_datanod=debug",
            "[span]=debug",
            "=info",
        ] {
            assert!(read(filter).is_err(), "{filter}");
        }
        assert!(
            read("loud").unwrap_err().to_string().contains("off, error, warn, info, debug, trace")
        );
    }

    #[test]
    fn requests_of_the_gateway_are_logged_only_where_they_are_named() {
        assert!(read("trace").unwrap().to_string().contains("s3s=off"));
        assert!(!read("trace,s3s=info").unwrap().to_string().contains("s3s=off"));
    }

    #[test]
    fn next_level_is_more_verbose_until_there_is_none() {
        assert_eq!(
            (louder("info"), louder("debug,a=off"), louder("trace")),
            ("debug", "trace", "trace")
        );
        assert_eq!(louder("a=off"), "debug");
    }

    #[test]
    fn parts_are_crates_that_log() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let parts = std::fs::read_dir(crates).unwrap().map(|part| part.unwrap().path());
        let logs = parts.filter(|part| logs(&part.join("src")));
        let mut logs: Vec<String> =
            logs.map(|part| part.file_name().unwrap().to_string_lossy().into_owned()).collect();
        logs.sort();
        assert_eq!(logs, PARTS);
    }

    /// Returns whether a file below a directory writes to the log.
    fn logs(directory: &std::path::Path) -> bool {
        let Ok(entries) = std::fs::read_dir(directory) else { return false };
        entries.map(|entry| entry.unwrap().path()).any(|path| {
            let is_source = path.extension().is_some_and(|it| it == "rs");
            let levels = ["error", "warn", "info", "debug", "trace"];
            let calls = |text: String| {
                levels.iter().any(|level| {
                    let call = format!("{level}!(");
                    let mut at = text.match_indices(&call).map(|(at, _)| text[..at].chars().last());
                    at.any(|before| before.is_some_and(|it| it == ' ' || it == ':'))
                })
            };
            path.is_dir() && logs(&path)
                || is_source && std::fs::read_to_string(&path).is_ok_and(calls)
        })
    }
}
