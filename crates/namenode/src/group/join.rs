//! How a namenode without a catalog finds its group and becomes a member.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::replica::{GroupGeneration, MemberAddress};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, MemberId, Millis, Refusal, amount};
use sanderling_transport::{
    CallError, CloseCause, Connection, ConnectionOptions, Credentials, ReplyFault,
};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::links::send;
use super::wire::{GroupFormat, GroupFrame, GroupOrder, GroupPage};

/// How long a namenode looks for its group: the others may start at the same time. As long as a
/// datanode looks for its namenode at the start by default.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for connecting: a lost first packet is sent again after 1 s, and again after 2 s more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Time of one call: the 10 s in which the leader makes the change or refuses it (`CHANGE_TIMEOUT`
/// of `service`), and the time for connecting.
const CALL_TIMEOUT: Duration = Duration::from_secs(10).saturating_add(CONNECT_TIMEOUT);

/// Pause between two attempts. Half of the 400 ms without a leader after which an election begins
/// at the earliest.
const PAUSE: Duration = Duration::from_millis(200);

/// A reason why a namenode does not become a member.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The address is its own.
    #[error("--join {address} is the address of this namenode itself")]
    Itself {
        /// The address.
        address: String,
    },
    /// No namenode that leads was found in time.
    #[error("no namenode that leads a group was found at {address}: {cause}")]
    NotFound {
        /// The address.
        address: String,
        /// Why the last attempt failed.
        #[source]
        cause: CallError,
    },
    /// The group does not take it.
    #[error("the group at {address} refused this namenode: {refusal}")]
    Refused {
        /// The address.
        address: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
}

/// What the group has answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    pub(crate) cluster: ClusterId,
    pub(crate) member: MemberId,
    pub(crate) generation: GroupGeneration,
}

/// What ends a call before its own time has passed.
#[derive(Debug, Clone, Default)]
pub struct GroupCallLimit {
    /// When it is given up.
    pub until: Option<Instant>,
    /// Cancelled when its caller is interrupted.
    pub ended: CancellationToken,
}

impl GroupCallLimit {
    /// Returns the moment after so much time, or the earlier one at which the call is given up.
    fn after(&self, now: Instant, time: Duration) -> Instant {
        let at = now + time;
        self.until.map_or(at, |until| until.min(at))
    }

    /// Waits for a part of a call, at most until its caller is interrupted.
    async fn wait<T>(
        &self,
        address: &str,
        part: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        tokio::select! {
            biased;
            () = self.ended.cancelled() => {
                let (address, waited) = (address.to_owned(), began.elapsed());
                Err(CallError::TimedOut { address, waited })
            }
            done = part => done,
        }
    }
}

/// What a member has answered.
struct MemberAnswer {
    cluster: ClusterId,
    /// The address at which it was called.
    address: String,
    body: Bytes,
}

/// Calls the leader of the group of which `address` is a member. The frame is made when there is a
/// connection.
async fn call_leader(
    address: &str,
    credentials: &Credentials,
    limit: &GroupCallLimit,
    frame: impl Fn() -> GroupFrame,
) -> Result<MemberAnswer, CallError> {
    let mut to = address.to_owned();
    let mut is_second = false;
    loop {
        let now = Instant::now();
        let connected_by = limit.after(now, CONNECT_TIMEOUT);
        let deadline = limit.after(now, CALL_TIMEOUT);
        let hello = Hello { role: Role::Namenode, cluster: None, node: None, token: None };
        let credentials = credentials.clone();
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let connecting = Connection::connect_with(&to, hello, connected_by, &options);
        let connected = limit.wait(&to, connecting).await.map_err(not_connected);
        let (connection, reply) = match connected {
            // A member still names the leader that is gone. Nothing was sent there.
            Err(CallError::Unreachable { .. }) if is_second => {
                return Err(CallError::Refused(Refusal::NotLeader { leader: None }));
            }
            connected => connected?,
        };
        let Some(cluster) = reply.cluster.filter(|_| reply.role == Role::Namenode) else {
            let fault = ReplyFault::NoNamenode;
            return Err(CallError::BadReply { address: to, fault });
        };
        let body = Bytes::from(encode_body(&frame()));
        let answered = limit.wait(&to, send(&connection, body, deadline)).await;
        match answered {
            Err(CallError::Refused(Refusal::NotLeader { leader: Some(leader) })) if !is_second => {
                (to, is_second) = (leader, true);
            }
            answered => return answered.map(|body| MemberAnswer { cluster, address: to, body }),
        }
    }
}

/// Names the fault of a machine that is silent like that of one that refuses: no call was sent.
fn not_connected(error: CallError) -> CallError {
    match error {
        CallError::TimedOut { address, waited } => {
            let why = format!("it did not answer within {}", amount::duration(waited));
            let cause = io::Error::new(io::ErrorKind::TimedOut, why).into();
            CallError::Unreachable { address, cause }
        }
        CallError::Closed {
            address,
            cause: cause @ (CloseCause::Io(_) | CloseCause::ByPeer | CloseCause::Before),
        } => CallError::Unreachable { address, cause: io::Error::other(cause).into() },
        error => error,
    }
}

/// Joins the group of which one of the addresses in `address`, separated by commas, is a member.
///
/// # Errors
/// [`JoinError`] names what to correct.
pub(crate) async fn join(
    address: &str,
    credentials: &Credentials,
    at: &MemberAddress,
) -> Result<Joined, JoinError> {
    let mut others = address.split(',').filter(|it| *it != at.address).cycle();
    let Some(mut to) = others.next() else {
        return Err(JoinError::Itself { address: address.to_owned() });
    };
    let limit = Instant::now() + JOIN_TIMEOUT;
    let frame = || GroupFrame::Join { format: GroupFormat::OWN, at: at.clone() };
    loop {
        let answered = call_leader(to, credentials, &GroupCallLimit::default(), &frame).await;
        let cause = match answered {
            Ok(MemberAnswer { cluster, body, .. }) => match decode_body(&body) {
                Ok((member, generation)) => return Ok(Joined { cluster, member, generation }),
                Err(refusal) => CallError::Refused(refusal),
            },
            Err(CallError::Refused(refusal)) if !is_passing(&refusal) => {
                return Err(JoinError::Refused { address: to.to_owned(), refusal });
            }
            Err(cause) => cause,
        };
        if Instant::now() >= limit {
            return Err(JoinError::NotFound { address: address.to_owned(), cause });
        }
        to = others.next().unwrap_or(to);
        sleep(PAUSE).await;
    }
}

const fn is_passing(refusal: &Refusal) -> bool {
    // A join that is repeated has the same nonce: it is made once.
    matches!(
        refusal,
        Refusal::NotLeader { .. } | Refusal::RetryAfter { .. } | Refusal::Undecided { .. }
    )
}

/// Returns the group as the member at an address has it.
///
/// # Errors
/// [`CallError`]: its `recovery` names the next step.
pub async fn group_page(address: &str, credentials: &Credentials) -> Result<GroupPage, CallError> {
    let limit = GroupCallLimit::default();
    let answer = call_leader(address, credentials, &limit, || GroupFrame::Show).await?;
    decode_body::<GroupPage>(&answer.body).map_err(CallError::Refused)
}

/// Gives the namenode at an address a notice that its machine will be taken, or takes it back.
/// `left` returns the time until then at the moment of its call, when there is a connection;
/// `None` takes the notice back.
///
/// # Errors
/// [`CallError`]: its `recovery` names the next step. After [`CallError::Unreachable`] nothing was
/// sent.
pub async fn notice_member(
    address: &str,
    credentials: &Credentials,
    left: impl Fn() -> Option<Millis>,
    reason: &str,
) -> Result<(), CallError> {
    let frame = || GroupFrame::OwnNotice { left: left(), reason: reason.to_owned() };
    call_leader(address, credentials, &GroupCallLimit::default(), frame).await.map(drop)
}

/// Gives the leader of a group an operator's order. Returns the address at which it was called.
///
/// # Errors
/// [`CallError`]: its `recovery` names the next step. After [`CallError::Unreachable`] and
/// [`Refusal::NotLeader`] nothing was ordered; after [`CallError::TimedOut`],
/// [`CallError::Closed`] and [`Refusal::Undecided`] the order may be carried out.
pub async fn order_group(
    address: &str,
    credentials: &Credentials,
    order: &GroupOrder,
    limit: &GroupCallLimit,
) -> Result<String, CallError> {
    let frame = || GroupFrame::Order(order.clone());
    call_leader(address, credentials, limit, frame).await.map(|answer| answer.address)
}
