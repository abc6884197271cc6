//! Empties a datanode before `local restart` ends its process, and finds what was lost with it.

use sanderling_client::Client;
use sanderling_command::drain_plan;
use sanderling_command::drain_wait::DrainWait;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::fleet::{lost_with, nodes};
use sanderling_command::global::{CredentialArgs, Global};
use sanderling_command::output::Output;
use sanderling_command::refused::{shell_word, unexpected};
use sanderling_command::session::{self, Session, block_on};
use sanderling_protocol::{NodeId, NodeSelector, Reply, Request};

use super::record::Record;

/// The reason of the drain, for the events.
const REASON: &str = "local restart";

/// The incarnation that a datanode's process is, and whether it can be emptied.
struct Planned {
    client: Client,
    node: NodeId,
    /// Why it cannot.
    objection: Option<String>,
}

/// Moves all blocks of a datanode to the others, however long that takes, until `--timeout` at
/// most. Returns its incarnation, whose process is still to be ended; `None` if the namenode has
/// none of that name.
///
/// If the others have no room for some blocks and that is confirmed, it moves nothing: what has
/// room leaves while the process ends. A namenode that does not answer prevents nothing either
/// then.
///
/// # Errors
/// Not confirmed (2): add a datanode, or confirm the loss. Partial (5): the drain was taken back.
/// Deadline (124) and interrupted (130): the process goes on, and so does its drain. As
/// [`Session::call`].
pub(super) fn run(
    global: &Global,
    record: &Record,
    name: &str,
    is_confirmed: bool,
) -> Result<Option<NodeId>, Failure> {
    let mut found = None;
    let slot = &mut found;
    session::run(&without_cluster(global), |mut session| async move {
        session.namenode.clone_from(&record.namenode);
        session.credentials = record.credentials()?;
        emptied(&session, name, is_confirmed).await.map(|node| *slot = node)
    })?;
    Ok(found)
}

/// Returns the options of a command whose cluster is the one on record: what the environment has
/// is of another one, or of none that is left.
fn without_cluster(global: &Global) -> Global {
    let tls_name = global.shown.tls_name.clone();
    let shown = CredentialArgs { token_file: None, tls_ca: None, tls_name };
    Global { namenode: String::new(), otlp: None, shown, ..global.clone() }
}

async fn emptied(
    session: &Session,
    name: &str,
    is_confirmed: bool,
) -> Result<Option<NodeId>, Failure> {
    let Planned { client, node, objection } = match planned(session, name).await {
        Ok(Some(planned)) => planned,
        Ok(None) => return Ok(None),
        // A confirmed order does not depend on a forecast.
        Err(_) if is_confirmed => return Ok(None),
        Err(failure) => return Err(failure),
    };
    match objection {
        Some(_) if is_confirmed => return Ok(Some(node)),
        Some(objection) => {
            return Err(Failure::new(Exit::Usage, FailureKind::NotConfirmed, objection)
                .tried("planned to move its blocks to the other datanodes: nothing was changed")
                .next("sanderling local add, or the same with --yes"));
        }
        None if session.ended.is_cancelled() => return Err(Failure::silent(Exit::Interrupted)),
        None => {}
    }
    let request = Request::Decommission { node: node.into(), reason: REASON.to_owned() };
    let reply = session.call(&client, request).await?;
    let Reply::Node(ordered) = reply else { return Err(unexpected(&reply)) };
    let (namenode, shown) = (&session.namenode, shell_word(name));
    let next_without_room =
        format!("sanderling local add, or sanderling node cancel {shown} --namenode {namenode}");
    let (ordered, is_noted) = (*ordered, false);
    let wait = DrainWait { ordered, deadline: None, is_noted, next_without_room };
    wait.end(session, &client).await?;
    Ok(Some(node))
}

/// Plans to empty the node of a name; `None` if none that lives has it.
async fn planned(session: &Session, name: &str) -> Result<Option<Planned>, Failure> {
    let client = session.client().await?;
    let fleet = nodes(session, &client, false).await?;
    // Not by a selector: a name may be a number, which is then another node's.
    let named = fleet.iter().filter(|node| node.name == name).map(|node| node.id);
    let Some(node) = named.max() else { return Ok(None) };
    match drain_plan::planned(session, &client, &NodeSelector::from(node), None).await {
        Ok(plan) => Ok(Some(Planned { client, node, objection: plan.objection() })),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Checks that nothing was lost with an incarnation that is gone.
///
/// # Errors
/// Partial (5) with what was lost: recompute what `sanderling fsck` lists. As [`Session::client`]
/// and [`Session::call`].
pub(super) fn nothing_lost(record: &Record, output: Output, node: NodeId) -> Result<(), Failure> {
    block_on(async {
        let session = Session::new(record.namenode.clone(), record.credentials()?, output);
        let client = session.client().await?;
        let fleet = nodes(&session, &client, true).await?;
        let Some(info) = fleet.into_iter().find(|info| info.id == node) else { return Ok(()) };
        let next = format!("sanderling fsck --namenode {}", record.namenode);
        lost_with(&info).map_or(Ok(()), |failure| Err(failure.next(next)))
    })
}
