//! Frames of requests, and directories of many names made with them.

use std::ops::Range;

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Attributes, Create, CreateMode, Hello, ObjectKind, Role};
use sanderling_protocol::{Header, Nonce, Op, Path, Refusal, Reply, Request};
use sanderling_transport::{CallError, Connection, ConnectionOptions, Credentials};
use tokio::time::{Duration, Instant, sleep};

use super::setting::Setting;
use super::stage::NotRun;

/// Requests of one frame while a directory is filled: half of the most that a frame may have
/// (`REQUESTS_PER_FRAME_MAX`), so other callers get their turn. Chosen, not measured.
const BATCH: u64 = 256;

/// Such frames in flight together: the namenode has the next one when it answers. Chosen, not
/// measured.
const FRAMES: usize = 4;

/// Bytes of a value. The catalog keeps it itself, as `scale` has its values. Chosen, not measured.
const VALUE_BYTES: usize = 64;

/// Attributes of a name. An application keeps a few beside an object, such as its type and its
/// owner. Chosen, not measured.
const ATTRIBUTES: usize = 4;
/// Bytes of the text of each: with [`ATTRIBUTES`] of them, a page of 4,096 entries has 1 MiB of
/// texts. Chosen, not measured.
const ATTRIBUTE_BYTES: usize = 64;

/// Longest call of the preparation: more than the stalls that hogs make, which last seconds.
/// Chosen, not measured.
pub(super) const CALL_MAX: Duration = Duration::from_secs(60);

/// Connects to the namenode.
///
/// # Errors
/// [`CallError`]: the namenode of the measurement does not run any more; begin anew.
pub(super) async fn connect(setting: &Setting) -> Result<Connection, CallError> {
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let credentials: Credentials = setting.hog_credentials.clone();
    let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
    let deadline = Instant::now() + CALL_MAX;
    let connected = Connection::connect_with(&setting.namenode, hello, deadline, &options).await;
    connected.map(|(connection, _)| connection)
}

/// Sends one frame and returns its answers.
///
/// # Errors
/// [`CallError`] when there is no answer at all.
pub(super) async fn send(
    connection: &Connection,
    body: Bytes,
) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
    let header = Header::new(Op::Meta, 0);
    let frame = connection.call(header, vec![body], Instant::now() + CALL_MAX).await?;
    decode_body(&frame.body).map_err(CallError::Refused)
}

/// Returns the name of an object in a directory of many.
pub(super) fn name(index: u64) -> String {
    format!("object-{index:08}")
}

/// Returns the request for a small value that replaces what has its name.
pub(super) fn value(directory: &Path, index: u64, attributes: &Attributes) -> Request {
    let path = directory.join(&name(index)).expect("such a name is short");
    Request::Create(Create {
        mode: CreateMode::Replace,
        parents: false,
        inline: Some(vec![0x5a; VALUE_BYTES]),
        attributes: attributes.clone(),
        ..Create::new(path, Nonce(u64::from(std::process::id())))
    })
}

/// Makes the directory that the hogs list.
///
/// # Errors
/// The first refusal after which a retry does not help.
pub(super) async fn big(setting: &Setting) -> Result<(), NotRun> {
    let text = "a".repeat(ATTRIBUTE_BYTES);
    let pair = |at: usize| (format!("attribute-{at}"), text.clone());
    let attributes: Attributes = (0..ATTRIBUTES).map(pair).collect();
    fill(setting, &setting.big, setting.entries, &attributes).await
}

/// Makes a directory with so many names in it.
///
/// # Errors
/// As [`big`].
pub(super) async fn fill(
    setting: &Setting,
    directory: &Path,
    names: u64,
    attributes: &Attributes,
) -> Result<(), NotRun> {
    let client = setting.hog_client().await?;
    client.make_directory(directory, ObjectKind::Directory, true, true).await?;
    let connection = connect(setting).await?;
    let starts = (0..names).step_by(usize::try_from(BATCH).expect("a small number"));
    let batches = starts.map(|start| start..(start + BATCH).min(names));
    stream::iter(batches.map(Ok))
        .try_for_each_concurrent(FRAMES, |batch| create(&connection, directory, batch, attributes))
        .await
}

/// Creates a batch, and again what was put off.
async fn create(
    connection: &Connection,
    directory: &Path,
    batch: Range<u64>,
    attributes: &Attributes,
) -> Result<(), NotRun> {
    let mut left: Vec<Request> = batch.map(|index| value(directory, index, attributes)).collect();
    while !left.is_empty() {
        let answers = send(connection, encode_body(&left).into()).await?;
        let (mut again, mut pause) = (Vec::new(), Duration::ZERO);
        for (request, answer) in left.into_iter().zip(answers) {
            match answer {
                Ok(_) => {}
                Err(Refusal::RetryAfter { after, .. }) => {
                    pause = pause.max(after.into());
                    again.push(request);
                }
                Err(refusal) => return Err(NotRun(refusal.to_string())),
            }
        }
        sleep(pause).await;
        left = again;
    }
    Ok(())
}
