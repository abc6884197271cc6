//! `sanderling group`: the namenodes of a replicated group.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use sanderling_client::ClientConfig;
use sanderling_namenode::{
    GroupCallLimit, GroupOrder, GroupPage, MachineLife, MemberPage, MoveView, SeenLeader,
    group_page, notice_member, order_group,
};
use sanderling_protocol::message::{Member, Members};
use sanderling_protocol::{MemberId, Millis, Refusal, Reply, Request};
use sanderling_serve::{GroupRecover, recover_group};
use sanderling_transport::CallError;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::failure::{Exit, Failure, FailureKind};
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

/// Time in which the next leader must show once the former one has taken the order to move the
/// leadership: three times the 0.8 s without a leader after which an election begins at the latest,
/// and some round trips.
const LEADER_TIMEOUT: Duration = Duration::from_millis(2500);

/// Time of one look at one member, so that a silent one leaves time for the others. Chosen, not
/// measured.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause before the members are looked at again. About the time between two heartbeats (60 ms),
/// which show the leader to the others.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
            order(session, &GroupOrder::MoveLeader(member.map(MemberId))).await
        }
        GroupCommand::Recover(args) => recover_group(session, args).await,
        GroupCommand::Remove(Remove { member }) => {
            order(session, &GroupOrder::Remove(MemberId(member))).await
        }
    }
}

async fn order(session: &Session, order: &GroupOrder) -> Result<(), Failure> {
    let done = carried_out(session, order).await;
    if let Err(failure) = &done
        && session.ended.is_cancelled()
    {
        // The interruption is the failure that is reported: this shows what may have changed.
        session.output.note(&failure.cause);
    }
    let done = done?;
    session.output.result(&done, |writer| match &done.members {
        Some(members) => table(members).write(writer),
        None => Ok(()),
    })
}

/// Gives the leader an order, and waits until another member leads if it was ordered to move the
/// leadership: its answer shows only that it does not lead any more.
async fn carried_out(session: &Session, order: &GroupOrder) -> Result<Done, Failure> {
    let until = session.limit().and_then(|limit| Instant::now().checked_add(limit));
    let limit = GroupCallLimit { until, ended: session.ended.clone() };
    let ordered = order_leader(session, order, &limit).await;
    let leader = ordered.map_err(|error| not_ordered(&error))?;
    let members = match order {
        GroupOrder::MoveLeader(to) => Some(moved(session, &leader, *to, until).await?),
        GroupOrder::Remove(_) => members_after(session, until).await,
    };
    Ok(Done { members })
}

/// Returns the failure of an order that the leader did not answer as done.
fn not_ordered(error: &CallError) -> Failure {
    let failure = refused::call(error);
    match error {
        CallError::Refused(Refusal::NotLeader { .. } | Refusal::Undecided { .. }) => {
            failure.instead("sanderling group ls")
        }
        // It was sent.
        CallError::TimedOut { .. } | CallError::Closed { .. } => {
            let cause = format!("{error}: the order may have been carried out");
            Failure { cause, ..failure }.instead("sanderling group ls")
        }
        _ => failure,
    }
}

/// Returns the members after a change that is done, whether they can be shown or not.
async fn members_after(session: &Session, until: Option<Instant>) -> Option<Members> {
    let listing = async {
        match until {
            Some(until) => timeout_at(until, members(session)).await.ok(),
            None => Some(members(session).await),
        }
    };
    let listed = tokio::select! {
        listed = listing => listed,
        () = session.ended.cancelled() => None,
    };
    match listed {
        Some(Ok(members)) => return Some(members),
        Some(Err(failure)) => session.output.note(format_args!("done; {failure}")),
        None => session.output.note("done; no member has shown the others in time"),
    }
    None
}

/// Gives the leader an order, and returns the address at which it took it. While none leads, it
/// repeats the order for as long as a client repeats a call: such a refusal states that nothing was
/// changed.
async fn order_leader(
    session: &Session,
    order: &GroupOrder,
    limit: &GroupCallLimit,
) -> Result<String, CallError> {
    let within = session.limit().unwrap_or(ClientConfig::default().call_deadline);
    let began = Instant::now();
    loop {
        let ordered = order_once(session, order, limit).await;
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
async fn order_once(
    session: &Session,
    order: &GroupOrder,
    limit: &GroupCallLimit,
) -> Result<String, CallError> {
    let mut failed = None;
    for address in session.namenode.split(',').map(str::trim) {
        match order_group(address, &session.credentials, order, limit).await {
            // The refusal of a member that runs is reported before the fault of one that does not.
            Err(error @ CallError::Refused(Refusal::NotLeader { .. })) => failed = Some(error),
            Err(error @ CallError::Unreachable { .. }) => failed = failed.or(Some(error)),
            ordered => return ordered,
        }
    }
    Err(failed.expect("there is always one address"))
}

/// Waits until another member leads than the one that took the order at an address, or the one
/// that is named. Returns the members then.
async fn moved(
    session: &Session,
    former: &str,
    named: Option<MemberId>,
    until: Option<Instant>,
) -> Result<Members, Failure> {
    let limit = Instant::now() + LEADER_TIMEOUT;
    let limit = until.map_or(limit, |until| until.min(limit));
    let mut watch = MoveWatch { view: MoveView::new(former, named), failed: None };
    let is_moved = tokio::select! {
        watched = timeout_at(limit, watch.until_moved(session)) => watched.is_ok(),
        () = session.ended.cancelled() => false,
    };
    let members = watch.view.members().filter(|_| is_moved);
    members.cloned().ok_or_else(|| watch.failure(named))
}

/// Looks at the members after a move of the leadership was ordered. [`MoveView`] decides whether
/// it is done.
#[derive(Debug)]
struct MoveWatch {
    view: MoveView,
    /// Why a look at a member has failed.
    failed: Option<CallError>,
}

impl MoveWatch {
    /// Looks at the members until the leadership has moved. Each look begins with the leader that
    /// took the order: any other member may have an older list.
    async fn until_moved(&mut self, session: &Session) {
        let former = self.view.former().to_owned();
        let others = session.namenode.split(',').map(str::trim).filter(|it| *it != former);
        let addresses: Vec<&str> = std::iter::once(former.as_str()).chain(others).collect();
        loop {
            for address in addresses.iter().copied() {
                match timeout(MEMBER_TIMEOUT, group_page(address, &session.credentials)).await {
                    Ok(Ok(page)) => self.view.take(address, members_of(page)),
                    Ok(Err(error)) => self.failed = Some(error),
                    Err(_) => {
                        let (address, waited) = (address.to_owned(), MEMBER_TIMEOUT);
                        self.failed = Some(CallError::TimedOut { address, waited });
                    }
                }
                if self.view.is_moved() {
                    return;
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the failure of a move after which no other member has begun to lead in time.
    fn failure(&self, named: Option<MemberId>) -> Failure {
        let again = || match named {
            Some(named) => format!("sanderling group move-leader {named}"),
            None => "sanderling group move-leader".to_owned(),
        };
        let list = || "sanderling group ls".to_owned();
        let (seen, next) = match (self.view.leader(), &self.failed) {
            (Some(SeenLeader::Former(id)), _) => (format!("member {id} leads as before"), again()),
            (Some(SeenLeader::Other(id)), _) => (format!("member {id} leads"), again()),
            (Some(SeenLeader::Missing), _) => ("no member leads so far".to_owned(), list()),
            (None, Some(error)) => (format!("no member shows which one leads: {error}"), list()),
            (None, None) => ("no member has shown yet which one leads".to_owned(), list()),
        };
        let cause = format!("the leader took the order, and {seen}");
        Failure::new(Exit::Failure, FailureKind::NotMoved, cause).next(next)
    }
}

/// Returns the members as a client has them.
fn members_of(page: GroupPage) -> Members {
    let GroupPage { here, term, members, .. } = page;
    let member = |page: MemberPage| {
        let MemberPage { id, address, http_address, role, .. } = page;
        Member { id, address, http_address, role }
    };
    Members { term, here, members: members.into_iter().map(member).collect() }
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
/// cannot be reached, or no leader reaches it and it accepts no token that may have been revoked,
/// it repeats the order for as long as a client repeats a call, and at most until the machine is
/// taken. No order was taken before, and the deadline stays the same.
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
        let why = match &given {
            Err(CallError::Unreachable { .. }) => format!("{address} does not answer"),
            Err(CallError::Refused(refusal @ Refusal::RetryAfter { .. })) => refusal.to_string(),
            _ => return given,
        };
        if began.elapsed() + ORDER_PAUSE >= within {
            return given;
        }
        if !is_noted {
            let within = units::duration(within);
            session.output.note(format_args!("{why}: trying for {within}"));
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
