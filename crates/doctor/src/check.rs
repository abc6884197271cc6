//! One finding of the doctor: its level, what was found, and the next step.

use serde::Serialize;

/// Names that a line has before it counts the others: they fit into one line of a terminal. Chosen,
/// not measured.
const NAMES_SHOWN: usize = 3;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckLevel {
    Ok,
    /// It works, less well than it could.
    Warn,
    /// It does not work, or data is lost or will be.
    Fail,
}

/// One line of the doctor's.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    /// The condition, for scripts: it stays the same from release to release.
    pub(super) id: &'static str,
    /// The part of the id before its dot.
    pub(super) name: &'static str,
    pub(super) verdict: CheckLevel,
    pub(super) found: String,
    /// The next step.
    pub(super) mend: Option<String>,
    /// The command that mends it, if one does.
    #[serde(skip)]
    pub(super) next: Option<String>,
    /// Every node that it is about; the text names the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<String>,
    #[serde(flatten)]
    pub(super) dates: Option<Dates>,
}

/// When a certificate ends.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Dates {
    /// Seconds since 1970.
    pub(super) ends_unix_seconds: i64,
    /// Whole days, negative once it has ended.
    pub(super) days_left: i64,
}

impl Check {
    pub(super) fn ok(id: &'static str, found: impl Into<String>) -> Self {
        let name = id.split('.').next().unwrap_or(id);
        let (verdict, found) = (CheckLevel::Ok, found.into());
        let (mend, next, nodes, dates) = (None, None, Vec::new(), None);
        Self { id, name, verdict, found, mend, next, nodes, dates }
    }

    pub(super) fn warn(
        id: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { verdict: CheckLevel::Warn, mend: Some(mend.into()), ..Self::ok(id, found) }
    }

    pub(super) fn fail(
        id: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { verdict: CheckLevel::Fail, ..Self::warn(id, found, mend) }
    }

    pub(super) fn with_next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// Adds a next step to what is in order, such as an upgrade that goes on.
    pub(super) fn with_mend(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }

    pub(super) fn about(self, nodes: Vec<String>) -> Self {
        Self { nodes, ..self }
    }
}

/// Lists the first names and counts the others: `a, b, c and 34 more`.
pub(super) fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns a check about some nodes: `2 nodes WHAT: a, b`; `None` without any. `details` are the
/// names with what was found of each, in the order in which they are shown.
pub(super) fn of_nodes(
    make: impl FnOnce(String) -> Check,
    (one, many): (&str, &str),
    details: Vec<(String, String)>,
) -> Option<Check> {
    if details.is_empty() {
        return None;
    }
    let shown: Vec<String> = details
        .iter()
        .map(|(name, detail)| match detail.as_str() {
            "" => name.clone(),
            detail => format!("{name} ({detail})"),
        })
        .collect();
    let what = match details.len() {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let found = format!("{what}: {}", listed(&shown));
    Some(make(found).about(details.into_iter().map(|(name, _)| name).collect()))
}
