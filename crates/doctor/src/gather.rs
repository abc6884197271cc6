//! Looks at a cluster: the namenode by its protocol and HTTP, every datanode by HTTP. Every call
//! has a time limit, and so has the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sanderling_client::{Client, ClientError};
use sanderling_command::cluster::first_address;
use sanderling_command::session::Session;
use sanderling_core::access::parts;
use sanderling_namenode::{GroupPage, group_page};
use sanderling_protocol::limits::{EVENTS_KEPT_MAX, EVENTS_PER_REPLY_MAX};
use sanderling_protocol::message::{Member, Members};
use sanderling_protocol::{
    EventKind, Millis, NodeId, NodeInfo, Policy, Refusal, Reply, Request, Token,
};
use sanderling_transport::{
    CallError, ClientTls, PageCall, PageCallError, is_loopback, unix_millis, unix_seconds,
};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::cluster::http_address;
use super::metrics_page::MetricPage;
use super::observations::{
    CertificateLook, ClockOffset, ClusterLook, DatanodeLook, LossLook, ServerLook, UnreadToken,
    Unseen, UnseenCertificates,
};

/// How long one server may take to answer one page. One lost packet is sent again within it (after
/// 1 s, RFC 6298). Chosen, not measured; docs/DAY-TWO.md names it.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the namenode may take to answer one request: a second more than for a page, because a
/// list of a thousand nodes may come. Chosen, not measured.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the look at all datanodes may take. A thousand silent ones are four rounds of
/// [`LOOKS_MAX`], of [`PAGE_TIMEOUT`] each, and the rest is for a busy machine.
const DATANODES_TIMEOUT: Duration = Duration::from_secs(12);

/// Datanodes that are looked at at once: a thousand silent ones are done within
/// [`DATANODES_TIMEOUT`]. Each look has two connections at most, which fit into the 1,024 open
/// files that a process may have by default.
const LOOKS_MAX: usize = 256;

/// The latest losses whose objects are looked up: each costs a request, and more would not be read.
/// Chosen, not measured.
const LOSSES_CHECKED_MAX: usize = 32;

/// The events that are read at once, as many as a namenode puts into one answer.
const EVENTS_MAX: u32 = EVENTS_PER_REPLY_MAX;

/// Most pages of events that are read: all that a namenode keeps, and one that is empty.
const EVENT_PAGES_MAX: usize = EVENTS_KEPT_MAX / EVENTS_MAX as usize + 1;

/// How long reading the events may take: twice as long as one answer. Chosen, not measured.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(6);

const OBSERVE: &str = "read / or metrics";
const ADMINISTER: &str = "administer";

/// What is shown to servers.
struct Shown<'a> {
    tls: Option<&'a ClientTls>,
    token: Option<Token>,
}

/// Looks at everything. `http` is where the namenode serves HTTP, if that was given.
pub(super) async fn look(session: &Session, http: Option<&str>) -> ClusterLook {
    let (token, claims) = match session.credentials.token.as_ref().map(|it| it.token(None)) {
        Some(Ok(token)) => {
            let claims = parts(&token).and_then(|parts| parts.claims());
            (Some(token), Some(claims.map_err(UnreadToken::Fault)))
        }
        Some(Err(error)) => (None, Some(Err(UnreadToken::Source(Arc::new(error))))),
        None => (None, None),
    };
    let shown = Shown { tls: session.credentials.tls.as_ref(), token };
    let client = connected(session).await;
    let members = match &client {
        Ok(client) => members(client).await,
        Err(error) => Err(error.clone()),
    };
    let leader = members.as_ref().ok().and_then(|it| it.leader());
    let listed = leader.and_then(|leader| listed_http(leader, &session.namenode));
    let http = http.map(str::to_owned).or(listed);
    let http = http.or_else(|| http_address(&session.namenode)).unwrap_or_default();
    let (namenode, group) = tokio::join!(server(&http, &shown), group(session, &members));
    let unseen = |error: &Unseen| error.clone();
    let (nodes, room, losses, durable, revoked) = match &client {
        Err(error) => (
            Err(unseen(error)),
            Err(unseen(error)),
            Err(unseen(error)),
            Err(unseen(error)),
            Err(unseen(error)),
        ),
        Ok(client) => tokio::join!(
            answered(client.nodes(true), OBSERVE),
            answered(client.room(), OBSERVE),
            losses(client),
            answered(client.durable_overview(), OBSERVE),
            async { answered(client.revocations(), ADMINISTER).await.map(|list| list.len()) },
        ),
    };
    let died = match &client {
        Ok(client) => died(client).await,
        Err(_) => BTreeMap::new(),
    };
    let (datanodes, unlooked) = match &nodes {
        Ok(nodes) => all_datanodes(nodes, &shown).await,
        Err(_) => (Vec::new(), Vec::new()),
    };
    ClusterLook {
        address: session.namenode.clone(),
        namenode,
        group,
        durable,
        nodes,
        room,
        losses,
        revoked,
        datanodes,
        unlooked,
        died,
        token: claims,
        now: unix_seconds(),
    }
}

/// Returns where the leader serves HTTP, as the list of members has it; `None` if it serves none,
/// or to its own machine alone while this one calls it from another.
fn listed_http(leader: &Member, namenode: &str) -> Option<String> {
    let http = &leader.http_address;
    let is_reachable = !is_loopback(http) || is_loopback(first_address(namenode));
    (!http.is_empty() && is_reachable).then(|| http.clone())
}

async fn members(client: &Client) -> Result<Members, Unseen> {
    match answered(client.request(Request::Members), OBSERVE).await? {
        Reply::Members(members) => Ok(members),
        _ => Err(Unseen::Failed { why: "the answer is no list".to_owned(), is_silent: false }),
    }
}

/// Reads what the leader has of the members. A group may have shrunk to one of them: `None` of a
/// namenode that never had others, and whose machine has no notice.
async fn group(
    session: &Session,
    members: &Result<Members, Unseen>,
) -> Result<Option<GroupPage>, Unseen> {
    let members = members.as_ref().map_err(Clone::clone)?;
    // The only member is the one that has answered, maybe at another address than its own.
    let is_only = members.members.len() == 1 && !session.namenode.contains(',');
    let leader = members.leader().map(|it| it.address.clone()).filter(|_| !is_only);
    let first = || session.namenode.split(',').next().unwrap_or_default().to_owned();
    let address = leader.unwrap_or_else(first);
    match timeout(REQUEST_TIMEOUT, group_page(&address, &session.credentials)).await {
        Ok(Ok(page)) => Ok(of_group(page)),
        Ok(Err(CallError::Refused(Refusal::Forbidden { .. }))) => Err(Unseen::Right(ADMINISTER)),
        Ok(Err(error)) => Err(Unseen::Failed { why: error.to_string(), is_silent: false }),
        Err(_) => Err(late(&address)),
    }
}

/// Returns the page, unless it is that of a namenode alone: such a one lists no members, but with a
/// notice itself.
fn of_group(page: GroupPage) -> Option<GroupPage> {
    let is_alone = page.members.is_empty() && page.at_risk.is_none();
    (!is_alone).then_some(page)
}

/// Returns when nodes died, in seconds since 1970, as far as the events have it that the namenode
/// keeps. It reads them from the first on: the numbers of the last ones follow from nothing, since
/// each start of a namenode leaves many out.
async fn died(client: &Client) -> BTreeMap<NodeId, u64> {
    let (mut died, mut after) = (BTreeMap::new(), 0);
    let until = Instant::now() + EVENTS_TIMEOUT;
    for _ in 0..EVENT_PAGES_MAX {
        let events = answered(client.events(after, EVENTS_MAX, Millis(0)), OBSERVE).await;
        let events = events.unwrap_or_default();
        let Some(last) = events.last() else { break };
        after = last.sequence;
        died.extend(events.iter().filter_map(|event| match event.kind {
            EventKind::NodeGone { node, .. } => Some((node, event.at.0 / 1_000_000)),
            _ => None,
        }));
        if Instant::now() >= until {
            break;
        }
    }
    died
}

async fn connected(session: &Session) -> Result<Client, Unseen> {
    match timeout(REQUEST_TIMEOUT, session.client()).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(failure)) => Err(Unseen::Failed { why: failure.cause, is_silent: false }),
        Err(_) => Err(late("the namenode")),
    }
}

fn late(what: &str) -> Unseen {
    Unseen::Failed { why: format!("{what} did not answer in time"), is_silent: true }
}

async fn answered<T>(
    call: impl Future<Output = Result<T, ClientError>>,
    right: &'static str,
) -> Result<T, Unseen> {
    match timeout(REQUEST_TIMEOUT, call).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(ClientError::Refused(Refusal::Forbidden { .. }))) => Err(Unseen::Right(right)),
        Ok(Err(error)) => Err(Unseen::Failed { why: error.to_string(), is_silent: false }),
        Err(_) => Err(late("the namenode")),
    }
}

/// Reads the loss report, and looks whether the objects of the latest losses are still there.
async fn losses(client: &Client) -> Result<LossLook, Unseen> {
    let mut look =
        LossLook { report: answered(client.report(), OBSERVE).await?, ..LossLook::default() };
    let mut seen = BTreeSet::new();
    let latest = look.report.losses.iter().rev().filter(|loss| !loss.ranges.is_empty());
    let latest: Vec<_> = latest
        .filter(|loss| seen.insert(loss.object))
        .take(LOSSES_CHECKED_MAX)
        .map(|loss| (loss.object, loss.path.clone()))
        .collect();
    let stats = futures_util::future::join_all(
        latest.iter().map(|(_, path)| async { answered(client.stat(path), "read").await }),
    );
    for (stat, (object, path)) in stats.await.into_iter().zip(&latest) {
        match stat {
            Ok(stat) if stat.object == *object && stat.lost_bytes > 0 => {
                look.present.push(path.to_string())
            }
            Err(unseen @ Unseen::Right(_)) => {
                look.unseen = Some(unseen);
                continue;
            }
            _ => {}
        }
        look.checked += 1;
    }
    Ok(look)
}

async fn all_datanodes(nodes: &[NodeInfo], shown: &Shown<'_>) -> (Vec<DatanodeLook>, Vec<String>) {
    let present: Vec<_> = nodes.iter().filter(|node| node.policy != Policy::Gone).collect();
    let until = Instant::now() + DATANODES_TIMEOUT;
    let looks = futures_util::stream::iter(present.iter().map(|node| datanode(node, shown)));
    let mut looks = std::pin::pin!(looks.buffer_unordered(LOOKS_MAX));
    let mut seen = Vec::new();
    while let Ok(Some(look)) = timeout_at(until, looks.next()).await {
        seen.push(look);
    }
    seen.sort_by(|one, other| one.name.cmp(&other.name));
    let known: BTreeSet<&str> = seen.iter().map(|look| look.name.as_str()).collect();
    let unlooked = present.iter().map(|node| node.name.clone());
    let unlooked = unlooked.filter(|name| !known.contains(name.as_str())).collect();
    (seen, unlooked)
}

async fn datanode(node: &NodeInfo, shown: &Shown<'_>) -> DatanodeLook {
    let http = node.http_address.as_str();
    // A server for its own machine cannot be reached from another one.
    let is_reachable = !http.is_empty() && (!is_loopback(http) || is_loopback(&node.address));
    let page = async {
        match is_reachable {
            true => Some(server(http, shown).await),
            false => None,
        }
    };
    let certificates = async {
        let tls = shown.tls?;
        Some(match timeout(PAGE_TIMEOUT, tls.shown_by(&node.address)).await {
            Ok(Ok(seen)) => Ok(CertificateLook::from(seen)),
            Ok(Err(error)) => Err(UnseenCertificates::Handshake(Arc::new(error))),
            Err(_) => Err(UnseenCertificates::Silent),
        })
    };
    let (server, certificates) = tokio::join!(page, certificates);
    DatanodeLook { name: node.name.clone(), server, certificates }
}

/// Reads the pages of one server.
async fn server(address: &str, shown: &Shown<'_>) -> ServerLook {
    let began = (unix_millis(), std::time::Instant::now());
    let health = page(address, shown, "/healthz", None).await;
    let took = i64::try_from(began.1.elapsed().as_millis()).unwrap_or(i64::MAX);
    // A namenode whose journal has failed answers 503, with its state.
    let health = health.and_then(|(_, body)| {
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match body["status"].is_string() {
            true => Ok(body),
            false => Err(Unseen::Failed {
                why: format!("{address} serves another page"),
                is_silent: false,
            }),
        }
    });
    let clock = health.as_ref().ok().and_then(|body| {
        let shown = i64::try_from(body["unix_millis"].as_u64()?).ok()?;
        let middle = i64::try_from(began.0).ok()?.saturating_add(took / 2);
        Some(ClockOffset { millis: shown.saturating_sub(middle), error_millis: took / 2 + 1 })
    });
    let figures = match &health {
        Err(unseen) => Err(unseen.clone()),
        Ok(_) if shown.token.is_some() && shown.tls.is_none() && !is_loopback(address) => {
            let why = format!("the token would go to {address} without encryption: give --tls-ca");
            Err(Unseen::Failed { why, is_silent: false })
        }
        Ok(_) => figures(address, shown).await,
    };
    ServerLook { health, figures, clock }
}

async fn figures(address: &str, shown: &Shown<'_>) -> Result<MetricPage, Unseen> {
    let (status, body) = page(address, shown, "/metrics", shown.token.clone()).await?;
    match status {
        200 => Ok(MetricPage::read(&String::from_utf8_lossy(&body))),
        403 => Err(Unseen::Right(OBSERVE)),
        401 => Err(Unseen::Failed {
            why: "not authenticated: give --token-file".to_owned(),
            is_silent: false,
        }),
        status => Err(Unseen::Failed {
            why: format!("{address} answers /metrics with status {status}"),
            is_silent: false,
        }),
    }
}

async fn page(
    address: &str,
    shown: &Shown<'_>,
    target: &str,
    token: Option<Token>,
) -> Result<(u16, Vec<u8>), Unseen> {
    let (tls, within) = (shown.tls, PAGE_TIMEOUT);
    let call = PageCall { address, tls, token, method: "GET", target, body: String::new(), within };
    match timeout(PAGE_TIMEOUT, call.send()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error @ PageCallError::Unreachable { .. })) => {
            Err(Unseen::Failed { why: error.to_string(), is_silent: false })
        }
        Ok(Err(PageCallError::TimedOut { .. })) | Err(_) => Err(late(address)),
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::replica::MachineLife;
    use sanderling_namenode::MemberPage;
    use sanderling_protocol::MemberId;
    use sanderling_protocol::message::MemberRole;

    use super::*;

    fn page(members: usize, at_risk: Option<&str>) -> GroupPage {
        let member = |id: usize| MemberPage {
            id: MemberId(id as u64),
            address: format!("n{id}:7600"),
            http_address: format!("n{id}:7601"),
            role: if id == 1 { MemberRole::Leader } else { MemberRole::Voter },
            is_active: None,
            behind_entries: None,
            notice_left: None,
            expected_life: MachineLife::Unknown,
        };
        GroupPage {
            here: MemberId(1),
            term: 1,
            generation: 0,
            generation_name: "0".to_owned(),
            members: (1..=members).map(member).collect(),
            at_risk: at_risk.map(str::to_owned),
            spares_missing: None,
        }
    }

    #[test]
    fn group_that_has_shrunk_to_one_namenode_is_still_one() {
        assert_eq!(of_group(page(0, None)), None, "it never had others");
        for shown in [page(1, Some("it has 1 voters")), page(1, None), page(3, None)] {
            assert_eq!(of_group(shown.clone()), Some(shown));
        }
    }

    #[test]
    fn http_is_where_the_list_has_it_unless_only_its_own_machine_reaches_it() {
        let listed = |http: &str, namenode: &str| {
            let (id, role) = (MemberId(1), MemberRole::Leader);
            let address = "10.0.0.1:7600".to_owned();
            listed_http(&Member { id, address, http_address: http.to_owned(), role }, namenode)
        };
        let here = "127.0.0.1:4711".to_owned();
        assert_eq!(listed(&here, "127.0.0.1:7600"), Some(here.clone()));
        assert_eq!(listed(&here, "10.0.0.1:7600"), None);
        assert_eq!(listed("10.0.0.1:9", "10.0.0.1:7600"), Some("10.0.0.1:9".to_owned()));
        assert_eq!(listed("", "127.0.0.1:7600"), None);
    }
}
