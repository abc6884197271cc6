//! `sanderling group`: the namenodes of a replicated group.

use clap::{Args, Subcommand};
use sanderling_namenode::{GroupOrder, order_group};
use sanderling_protocol::message::Members;
use sanderling_protocol::{MemberId, Reply, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::node::unexpected;
use crate::output::{Align, Table};
use crate::refused;
use crate::session::Session;

/// List namenodes of a group, move the leadership, remove members.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List the namenodes, with the one that leads
    Ls,
    /// Give the leadership to another voter
    MoveLeader(MoveLeader),
    /// Remove a member for good; start it again on an empty directory with --join to bring it back
    Remove(Remove),
}

/// `group move-leader`.
#[derive(Debug, Args)]
pub(crate) struct MoveLeader {
    /// The number of the voter, by `group ls` [default: the one that has most of the log]
    pub(crate) member: Option<u64>,
}

/// `group remove`.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The number of the member, by `group ls`
    pub(crate) member: u64,
}

/// What `--json` prints of a change.
#[derive(Serialize)]
struct Done {
    members: Members,
}

/// Runs a command on the group.
///
/// # Errors
/// No namenode leads, or the leader refuses.
pub(crate) async fn run(session: &Session, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Ls => {
            let members = members(session).await?;
            session.output.result(&members, |writer| table(&members).write(writer))
        }
        GroupCommand::MoveLeader(MoveLeader { member }) => {
            order(session, GroupOrder::MoveLeader(member.map(MemberId))).await
        }
        GroupCommand::Remove(Remove { member }) => {
            order(session, GroupOrder::Remove(MemberId(member))).await
        }
    }
}

async fn order(session: &Session, order: GroupOrder) -> Result<(), Failure> {
    let mut failed = None;
    // Any member names the leader; one that is down does not.
    for address in session.namenode.split(',').map(str::trim) {
        match order_group(address, &session.credentials, &order).await {
            Ok(()) => {
                let done = Done { members: members(session).await? };
                return session.output.result(&done, |writer| table(&done.members).write(writer));
            }
            Err(error) => failed = Some(error),
        }
    }
    let error = failed.expect("there is always one address");
    Err(refused::call(&error))
}

async fn members(session: &Session) -> Result<Members, Failure> {
    let client = session.client().await?;
    match session.call(&client, Request::Members).await? {
        Reply::Members(members) => Ok(members),
        reply => Err(unexpected(&reply)),
    }
}

fn table(members: &Members) -> Table {
    let mut table = Table::new(&[
        ("member", Align::Right),
        ("role", Align::Left),
        ("address", Align::Left),
        ("http", Align::Left),
    ]);
    for member in &members.members {
        table.row([
            member.id.to_string(),
            member.role.word().to_owned(),
            member.address.clone(),
            member.http_address.clone(),
        ]);
    }
    table
}
