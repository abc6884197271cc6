//! A group of namenodes: which of its members answer, whether another loss would stop it, and what
//! waits for its archive.

use sanderling_command::units;
use sanderling_namenode::{GroupPage, MemberPage};
use sanderling_protocol::message::MemberRole;

use super::check::{Check, listed};
use super::fleet::not_seen;
use super::observations::{ClusterLook, Unseen};

/// Age of what the archive has from which on it is late, in seconds: that of the alert
/// `SanderlingArchiveLate`.
const ARCHIVE_LATE_SECONDS: f64 = 30.0;

/// Judges the group; a namenode alone is none.
pub(super) fn all(look: &ClusterLook) -> Vec<Check> {
    let mut checks = match &look.group {
        Ok(None) => Vec::new(),
        Ok(Some(page)) => members(page),
        Err(unseen @ Unseen::Right(_)) => {
            vec![not_seen("group.unseen", "notices and risks of the group", unseen)]
        }
        Err(unseen) => {
            let found = format!("the group was not seen: {unseen}");
            let mend = "sanderling group ls: docs/DAY-TWO.md#sanderlinggroupwithoutleader";
            vec![Check::fail("group.unseen", found, mend)]
        }
    };
    checks.extend(archive(look));
    checks
}

fn members(page: &GroupPage) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(why) = &page.at_risk {
        let mend = "docs/DAY-TWO.md#sanderlinggroupatrisk";
        checks.push(Check::warn("group.at-risk", format!("the group may stop: {why}"), mend));
    }
    let silent: Vec<&str> = page.members.iter().filter(|it| is_silent(it)).map(name).collect();
    if !silent.is_empty() {
        let count = units::count(silent.len() as u64, "namenode is", "namenodes are");
        let found = format!("{count} silent: {}", listed(&silent));
        let mend = "its log, and the network to it; sanderling group remove N if it is gone";
        let nodes = silent.iter().map(ToString::to_string).collect();
        checks.push(Check::warn("group.silent", found, mend).about(nodes));
    }
    let missing = page.spares_missing.unwrap_or_default();
    if missing > 0 {
        let found = units::count(missing as u64, "spare is missing", "spares are missing");
        let mend = "sanderling namenode --join ADDRESS on another machine";
        checks.push(Check::warn("group.spares", found, mend));
    }
    if checks.is_empty() {
        checks.push(Check::ok("group", summary(page)));
    }
    checks
}

fn is_silent(member: &MemberPage) -> bool {
    member.is_active == Some(false) && member.notice_left.is_none()
}

fn name(member: &MemberPage) -> &str {
    &member.address
}

fn summary(page: &GroupPage) -> String {
    let count = |is_voter: bool| {
        let voters = page.members.iter().filter(|it| (it.role != MemberRole::Learner) == is_voter);
        voters.count() as u64
    };
    let voters = units::count(count(true), "voter", "voters");
    let spares = units::count(count(false), "spare", "spares");
    let leader = page.members.iter().find(|member| member.role == MemberRole::Leader);
    let leader = leader.map_or_else(String::new, |leader| format!(", {} leads", leader.address));
    let noticed = page.members.iter().filter(|member| member.notice_left.is_some()).count();
    let noticed = match noticed {
        0 => String::new(),
        count => format!(", {} being replaced", units::count(count as u64, "is", "are")),
    };
    format!("{voters}, {spares}{leader}{noticed}")
}

/// Looks whether the archive has what the namenode has acknowledged.
fn archive(look: &ClusterLook) -> Option<Check> {
    let figures = look.namenode.figures.as_ref().ok()?;
    let lag = figures.get("sanderling_namenode_archive_lag_seconds")?;
    let is_up = figures.count("sanderling_namenode_archive_up") != Some(0);
    let span = std::time::Duration::try_from_secs_f64(lag).unwrap_or_default();
    let found = format!("it has everything up to {} ago", units::duration(span));
    let mend = "its store and the namenode's log: docs/DAY-TWO.md#sanderlingarchivelate";
    Some(match (is_up, lag > ARCHIVE_LATE_SECONDS) {
        (false, _) => {
            Check::warn("archive.failing", format!("it takes nothing now; {found}"), mend)
        }
        (true, true) => Check::warn("archive.late", found, mend),
        (true, false) => Check::ok("archive", found),
    })
}
