//! Objects out: whole, by ranges, as a stream with a bounded readahead.

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Location;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectMeta};
use sanderling_client::{ClientError, Reader};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::refusal::ByteRange;
use tokio_util::task::AbortOnDropHandle;

use crate::attributes;
use crate::error::{self, Result};
use crate::keys;
use crate::put::TRIES_MAX;
use crate::store::{SanderlingStore, meta};
use crate::version;

/// Pieces of a stream that are on their way while the caller works on the one before. The second
/// hides the round trip of the first; a third would only take memory.
const PIECES_AHEAD: usize = 2;

impl SanderlingStore {
    pub(crate) async fn get_object(
        &self,
        location: &Location,
        options: GetOptions,
    ) -> Result<GetResult> {
        let path = self.path(location)?;
        let client = self.client_for(location).await?;
        if options.head {
            let stat = client.stat(&path).await.map_err(|error| error::of(location, error))?;
            let asked = check(location, &path, &stat, &options)?;
            return Ok(result(&stat, asked, stream::empty().boxed()));
        }
        let mut tries = 1..TRIES_MAX;
        loop {
            let reader = client.open(&path).await.map_err(|error| error::of(location, error))?;
            let stat = reader.stat();
            let asked = check(location, &path, &stat, &options)?;
            // The first piece is read here, so that an object that is replaced meanwhile is read
            // again from its name, and a loss is reported before any bytes are handed out.
            let (step, range) = (self.options().read_ahead_bytes, asked.range.clone());
            let first = range.start..range.end.min(range.start.saturating_add(step));
            match read(&reader, first.clone()).await {
                Ok(bytes) => {
                    let rest = rest(location.clone(), reader, first.end..range.end, step);
                    let payload = stream::iter((!bytes.is_empty()).then_some(Ok(bytes)));
                    return Ok(result(&stat, asked, payload.chain(rest).boxed()));
                }
                Err(gone) if error::is_gone(&gone) && tries.next().is_some() => {}
                Err(error) => return Err(error::of(location, error)),
            }
        }
    }

    pub(crate) async fn get_object_ranges(
        &self,
        location: &Location,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let path = self.path(location)?;
        let client = self.client_for(location).await?;
        let mut tries = 1..TRIES_MAX;
        loop {
            let reader = client.open(&path).await.map_err(|error| error::of(location, error))?;
            let stat = reader.stat();
            if !keys::is_object(&stat) {
                return Err(error::not_found(location, &path));
            }
            let cut = ranges.iter().map(|range| {
                let range = GetRange::Bounded(range.clone()).as_range(stat.bytes);
                let range = range.map_err(error::bad)?;
                Ok(ByteRange { offset: range.start, bytes: range.end - range.start })
            });
            match reader.read_ranges(&cut.collect::<Result<Vec<_>>>()?).await {
                Ok(read) => return Ok(read),
                Err(gone) if error::is_gone(&gone) && tries.next().is_some() => {}
                Err(error) => return Err(error::of(location, error)),
            }
        }
    }
}

/// What a get is to return.
struct PlannedGet {
    meta: ObjectMeta,
    range: Range<u64>,
}

/// Holds an object against the conditions of a get.
fn check(
    location: &Location,
    path: &Path,
    stat: &ObjectStat,
    options: &GetOptions,
) -> Result<PlannedGet> {
    if !keys::is_object(stat) {
        return Err(error::not_found(location, path));
    }
    let meta = meta(location.clone(), stat.object, stat.bytes, stat.modified_at);
    options.check_preconditions(&meta)?;
    if options.version.is_some() && options.version != meta.e_tag {
        let why = "only the newest version is kept";
        return Err(Error::NotFound { path: location.to_string(), source: why.into() });
    }
    let range = match &options.range {
        Some(range) => range.as_range(stat.bytes).map_err(error::bad)?,
        None => 0..stat.bytes,
    };
    Ok(PlannedGet { meta, range })
}

fn result(
    stat: &ObjectStat,
    asked: PlannedGet,
    payload: BoxStream<'static, Result<Bytes>>,
) -> GetResult {
    let PlannedGet { meta, range } = asked;
    version::get_result(payload, meta, range, attributes::given(&stat.attributes))
}

async fn read(reader: &Reader, range: Range<u64>) -> std::result::Result<Bytes, ClientError> {
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    reader.read_range(range.start, range.end - range.start).await
}

/// Streams a range in pieces; the next of them are read while the caller works on one.
fn rest(
    location: Location,
    reader: Reader,
    range: Range<u64>,
    step: u64,
) -> BoxStream<'static, Result<Bytes>> {
    pieces(reader, range, step).map_err(move |error| error::of(&location, error)).boxed()
}

/// Streams a range in pieces, with the client's errors; the next pieces are read while the caller
/// works on one.
pub(crate) fn pieces(
    reader: Reader,
    range: Range<u64>,
    step: u64,
) -> BoxStream<'static, std::result::Result<Bytes, ClientError>> {
    let steps = stream::unfold(range.start, move |offset| {
        let end = range.end.min(offset.saturating_add(step));
        async move { (offset < end).then_some((offset..end, end)) }
    });
    let started = steps.map(move |range| {
        let reader = reader.clone();
        let task = tokio::spawn(async move { read(&reader, range).await });
        let task = AbortOnDropHandle::new(task);
        async move {
            let ended = |_| ClientError::BadReply { what: "read ahead".to_owned() };
            task.await.map_err(ended).flatten()
        }
    });
    started.buffered(PIECES_AHEAD).boxed()
}
