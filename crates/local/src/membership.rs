//! Whether a namenode of the cluster is a member of its group: one that was removed ends by itself,
//! and a start on its directory does not bring it back.

use std::time::{Duration, Instant};

use sanderling_command::failure::Failure;
use sanderling_command::process::POLL_INTERVAL;
use sanderling_command::refused::shell_word;
use sanderling_command::session::block_on;
use sanderling_protocol::message::Members;
use sanderling_protocol::{Reply, Request};
use sanderling_transport::{ConnectionOptions, Pool, PoolOptions};

use super::launch::{catalog_of, is_of_group};
use super::record::{Record, ServerRecord, ServerRole};

/// How long one namenode of this machine may take to answer: it answers within milliseconds, or
/// stands still. Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a namenode that was started may take to find the leader of its group. Where none leads,
/// as while a majority is down, it serves without one: an election takes about a second.
const LEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a namenode that was started has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceInGroup {
    /// It is a member, and one leads.
    Led,
    /// It is a member as far as it has learnt, and none leads.
    Leaderless,
    /// It was removed.
    Removed,
}

/// Waits until a namenode that has just begun to serve takes part in its group, or `is_over`: its
/// process has ended.
///
/// # Errors
/// The credentials of the cluster cannot be read.
pub(super) fn settled(
    record: &Record,
    server: &ServerRecord,
    mut is_over: impl FnMut() -> bool,
) -> Result<PlaceInGroup, Failure> {
    let limit = Instant::now() + LEADER_TIMEOUT;
    while !is_over() && Instant::now() < limit {
        let seen = members_at(record, &server.address)?;
        if seen.is_some_and(|seen| is_member(&seen, &server.address) && seen.leader().is_some()) {
            return Ok(PlaceInGroup::Led);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(match is_removed(record, server)? {
        true => PlaceInGroup::Removed,
        false => PlaceInGroup::Leaderless,
    })
}

/// Returns whether the group that the others have, led by one of them, is without this namenode.
///
/// # Errors
/// The credentials of the cluster cannot be read.
pub(super) fn is_removed(record: &Record, server: &ServerRecord) -> Result<bool, Failure> {
    if server.role != ServerRole::Namenode || !is_of_group(record) {
        return Ok(false);
    }
    for other in others(record, server) {
        let seen = members_at(record, &other.address)?;
        if let Some(seen) = seen.filter(|seen| seen.leader().is_some()) {
            return Ok(!is_member(&seen, &server.address));
        }
    }
    Ok(false)
}

/// Returns the other namenodes that run.
pub(super) fn others<'a>(
    record: &'a Record,
    server: &'a ServerRecord,
) -> impl Iterator<Item = &'a ServerRecord> {
    record.running().filter(|it| it.role == ServerRole::Namenode && it.name != server.name)
}

/// Returns the command that makes a removed namenode a new member of its group.
pub(super) fn rejoin(record: &Record, server: &ServerRecord) -> String {
    let catalog = catalog_of(&record.directory, &server.name);
    let word = |path: &std::path::Path| shell_word(&path.to_string_lossy());
    format!(
        "rm -r {} && sanderling local restart {} --dir {}",
        word(&catalog),
        server.name,
        word(&record.directory)
    )
}

fn is_member(seen: &Members, address: &str) -> bool {
    seen.members.iter().any(|member| member.address == address)
}

/// Returns the group as the namenode at an address has it; `None` without an answer.
fn members_at(record: &Record, address: &str) -> Result<Option<Members>, Failure> {
    let credentials = record.credentials()?;
    let connection = ConnectionOptions { credentials, ..ConnectionOptions::default() };
    let mut found = None;
    block_on(async {
        let pool = Pool::new(PoolOptions { connection, ..PoolOptions::default() });
        let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
        let mut answers =
            pool.meta(address, vec![Request::Members], deadline).await.unwrap_or_default();
        if let Some(Ok(Reply::Members(members))) = answers.pop() {
            found = Some(members);
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sanderling_command::process::RecordedProcess;
    use sanderling_protocol::MemberId;
    use sanderling_protocol::message::{Member, MemberRole};

    use super::*;

    fn server(name: &str) -> ServerRecord {
        ServerRecord {
            role: ServerRole::Namenode,
            name: name.to_owned(),
            process: RecordedProcess { pid: 0, start_time: 0 },
            address: format!("{name}:7600"),
            http_address: None,
            log: "log".into(),
            shape: None,
        }
    }

    #[test]
    fn step_for_a_removed_namenode_deletes_its_catalog_alone() {
        let record = Record::new(Path::new("/a b"));
        let step = rejoin(&record, &server("namenode-1"));
        let (catalog, directory) = ("'/a b/namenode/namenode-1'", "'/a b'");
        let wanted =
            format!("rm -r {catalog} && sanderling local restart namenode-1 --dir {directory}");
        assert_eq!(step, wanted);
    }

    #[test]
    fn member_is_known_by_its_address() {
        let of = |address: &str| Member {
            id: MemberId(4),
            address: address.to_owned(),
            http_address: String::new(),
            role: MemberRole::Leader,
        };
        let seen = Members { term: 3, here: MemberId(4), members: vec![of("n2:7600")] };
        assert!(is_member(&seen, "n2:7600") && !is_member(&seen, "n1:7600"));
    }

    #[test]
    fn namenode_alone_is_never_removed() {
        let mut record = Record::new(Path::new("/x"));
        record.namenode = "n:7600".to_owned();
        record.processes.push(server("namenode"));
        assert!(!is_removed(&record, &server("namenode")).expect("no keys are needed"));
    }
}
