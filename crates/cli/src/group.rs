//! `sanderling group`: the namenodes of a replicated group.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use sanderling_client::ClientConfig;
use sanderling_namenode::{
    GroupOrder, GroupPage, MachineLife, group_page, notice_member, order_group,
};
use sanderling_protocol::message::Members;
use sanderling_protocol::{MemberId, Millis, Refusal, Reply, Request};
use sanderling_serve::{GroupRecover, recover_group};
use sanderling_transport::CallError;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::refused;
use crate::refused::unexpected;
use crate::session::Session;
use crate::units::{self, Span};

/// Pause before an order is repeated. Half of the 400 ms without a leader after which an election
/// begins at the earliest.
const ORDER_PAUSE: Duration = Duration::from_millis(200);

/// The shortest try of a notice, also if its machine is taken before. Chosen, not measured.
const ORDER_TRY_MIN: Duration = Duration::from_secs(1);

/// List namenodes of a group, move the leadership, remove members.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List the namenodes, with the one that leads
    Ls,
    /// Give the leadership to another voter
    MoveLeader(MoveLeader),
    /// Give a namenode a notice that its machine will be taken: another one takes its place
    Notice(NoticeMember),
    /// Take back a notice that was given to a namenode by hand
    Cancel(CancelNotice),
    /// Begin the group anew after most of its members were lost
    Recover(GroupRecover),
    /// Remove a member for good; start it again on an empty directory with --join to bring it back
    Remove(Remove),
}

/// `group move-leader`.
#[derive(Debug, Args)]
pub(crate) struct MoveLeader {
    /// The number of the voter, by `group ls` [default: the one whose machine
    /// lives longest]
    pub(crate) member: Option<u64>,
}

/// `group notice`.
#[derive(Debug, Args)]
pub(crate) struct NoticeMember {
    /// The number of the member, by `group ls`
    pub(crate) member: u64,
    /// Time until the machine is taken
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Span,
    /// Why, for the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// `group cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelNotice {
    /// The number of the member, by `group ls`
    pub(crate) member: u64,
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
    /// `None` if no member shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Members>,
}

/// Runs a command on the group.
///
/// # Errors
/// No namenode leads, or the leader refuses.
pub(crate) async fn run(session: &Session, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Ls => list(session).await,
        GroupCommand::Notice(NoticeMember { member, deadline, reason }) => {
            notice(session, MemberId(member), Some(deadline), &reason).await
        }
        GroupCommand::Cancel(CancelNotice { member }) => {
            notice(session, MemberId(member), None, "").await
        }
        GroupCommand::MoveLeader(MoveLeader { member }) => {
            order(session, GroupOrder::MoveLeader(member.map(MemberId))).await
        }
        GroupCommand::Recover(args) => recover_group(session, args).await,
        GroupCommand::Remove(Remove { member }) => {
            order(session, GroupOrder::Remove(MemberId(member))).await
        }
    }
}

async fn order(session: &Session, order: GroupOrder) -> Result<(), Failure> {
    order_leader(session, &order).await.map_err(|error| match error {
        CallError::Refused(Refusal::NotLeader { .. } | Refusal::Undecided { .. }) => {
            refused::call(&error).instead("sanderling group ls")
        }
        error => refused::call(&error),
    })?;
    // It is done, whether the members can be shown or not.
    let done = match members(session).await {
        Ok(members) => Done { members: Some(members) },
        Err(failure) => {
            session.output.note(format_args!("done; {failure}"));
            Done { members: None }
        }
    };
    session.output.result(&done, |writer| match &done.members {
        Some(members) => table(members).write(writer),
        None => Ok(()),
    })
}

/// Gives the leader an order. While none leads, it repeats the order for as long as a client
/// repeats a call: such a refusal states that nothing was changed.
async fn order_leader(session: &Session, order: &GroupOrder) -> Result<(), CallError> {
    let within = session.limit().unwrap_or(ClientConfig::default().call_deadline);
    let began = Instant::now();
    loop {
        let ordered = order_once(session, order).await;
        let is_passing = matches!(ordered, Err(CallError::Refused(Refusal::NotLeader { .. })));
        if !is_passing || began.elapsed() + ORDER_PAUSE >= within {
            return ordered;
        }
        tokio::select! {
            () = session.ended.cancelled() => return ordered,
            () = sleep(ORDER_PAUSE) => {}
        }
    }
}

/// Gives the leader an order through the members, in turn: any of them names the leader; one that
/// is down does not. Another error than these two may come after the order was taken, so that no
/// other member gets it.
async fn order_once(session: &Session, order: &GroupOrder) -> Result<(), CallError> {
    let mut failed = None;
    for address in session.namenode.split(',').map(str::trim) {
        match order_group(address, &session.credentials, order).await {
            // The refusal of a member that runs is reported before the fault of one that does not.
            Err(error @ CallError::Refused(Refusal::NotLeader { .. })) => failed = Some(error),
            Err(error @ CallError::Unreachable { .. }) => failed = failed.or(Some(error)),
            ordered => return ordered,
        }
    }
    Err(failed.expect("there is always one address"))
}

/// Gives a member its notice, or takes it back: at the member, which repeats it to the leader.
async fn notice(
    session: &Session,
    id: MemberId,
    left: Option<Span>,
    reason: &str,
) -> Result<(), Failure> {
    let began = Instant::now();
    let known = members(session).await?;
    let Some(member) = known.members.iter().find(|member| member.id == id) else {
        let cause = format!("the group has no member {id}");
        return Err(Failure::usage(cause).next("sanderling group ls"));
    };
    let left = left.map(|left| left.0);
    let given = notice_reachable(session, &member.address, (began, left), reason).await;
    given.map_err(|error| refused::call(&error))?;
    // It is done, whether the members can be shown or not.
    match members(session).await {
        Ok(members) => show(session, &members).await,
        Err(failure) => {
            session.output.note(format_args!("done; {failure}"));
            session.output.result(&Done { members: None }, |_| Ok(()))
        }
    }
}

/// Gives a member a notice of so much time since a moment, or takes it back. While the member
/// cannot be reached, it repeats the order for as long as a client repeats a call, and at most
/// until the machine is taken. Nothing was sent before, and the deadline stays the same.
async fn notice_reachable(
    session: &Session,
    address: &str,
    (began, left): (Instant, Option<Duration>),
    reason: &str,
) -> Result<(), CallError> {
    let within = session.limit().unwrap_or(ClientConfig::default().call_deadline);
    let within = left.map_or(within, |left| left.min(within));
    let rest = || left.map(|left| Millis::from(left.saturating_sub(began.elapsed())));
    let mut is_noted = false;
    loop {
        let until = within.saturating_sub(began.elapsed()).max(ORDER_TRY_MIN);
        let giving = timeout(until, notice_member(address, &session.credentials, rest, reason));
        let late = || {
            let (address, waited) = (address.to_owned(), began.elapsed());
            Err(CallError::TimedOut { address, waited })
        };
        let given = tokio::select! {
            given = giving => given.unwrap_or_else(|_| late()),
            () = session.ended.cancelled() => late(),
        };
        let is_unsent = matches!(given, Err(CallError::Unreachable { .. }));
        if !is_unsent || began.elapsed() + ORDER_PAUSE >= within {
            return given;
        }
        if !is_noted {
            let within = units::duration(within);
            session.output.note(format_args!("{address} does not answer: trying for {within}"));
            is_noted = true;
        }
        tokio::select! {
            () = session.ended.cancelled() => return given,
            () = sleep(ORDER_PAUSE) => {}
        }
    }
}

/// Lists the members, to an operator also with what the leader has of their machines.
async fn list(session: &Session) -> Result<(), Failure> {
    let members = members(session).await?;
    show(session, &members).await
}

async fn show(session: &Session, members: &Members) -> Result<(), Failure> {
    let page = match members.leader() {
        Some(leader) => Some(group_page(&leader.address, &session.credentials).await),
        None => None,
    };
    let page = match page {
        Some(Ok(page)) => Some(page),
        Some(Err(error)) => {
            session.output.note(format_args!("notices and risks are not shown: {error}"));
            None
        }
        None => {
            session.output.note("no namenode leads: notices and risks are not shown");
            None
        }
    };
    match page.filter(|page| !page.members.is_empty()) {
        Some(page) => session.output.result(&page, |writer| write_page(writer, &page)),
        None => session.output.result(members, |writer| table(members).write(writer)),
    }
}

fn write_page(writer: &mut dyn Write, page: &GroupPage) -> std::io::Result<()> {
    let mut table = Table::new(&[
        ("member", Align::Right),
        ("role", Align::Left),
        ("state", Align::Left),
        ("behind", Align::Right),
        ("life", Align::Right),
        ("address", Align::Left),
        ("http", Align::Left),
    ]);
    for member in &page.members {
        let state = match (member.notice_left, member.is_active) {
            (Some(left), _) => format!("taken in {}", units::duration(left.into())),
            (None, Some(false)) => "silent".to_owned(),
            (None, _) => "ok".to_owned(),
        };
        table.row([
            member.id.to_string(),
            member.role.word().to_owned(),
            state,
            member.behind_entries.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            life(member.expected_life),
            member.address.clone(),
            member.http_address.clone(),
        ]);
    }
    table.write(writer)?;
    if let Some(why) = &page.at_risk {
        writeln!(writer, "AT RISK: {why}")?;
    }
    if let Some(missing) = page.spares_missing.filter(|missing| *missing > 0) {
        let spares = units::count(missing as u64, "spare is", "spares are");
        writeln!(writer, "{spares} missing: sanderling namenode --join ADDRESS")?;
    }
    Ok(())
}

fn life(life: MachineLife) -> String {
    match life {
        MachineLife::Unknown => "-".to_owned(),
        MachineLife::Expected(life) => units::duration(life.into()),
        MachineLife::Steady => "steady".to_owned(),
    }
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
