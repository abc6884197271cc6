//! Many objects at once: one request for a hundred names, and small values in its answer.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use sanderling_protocol::message::{Found, Layout, Lookups, ObjectStat, Paths};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{Path, Refusal, Reply, Request};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::fetch::fetch_together;
use crate::metrics::count;
use crate::namespace::reply_of;
use crate::options::PutOptions;
use crate::read::Reader;

/// Paths of one request. With a kilobyte each, as the longest have, they are far below a frame. A
/// look-up among 128 takes 0.42 us of the server (docs/mechanisms/catalog.md, *In memory*); longer
/// requests gain little and leave nothing for the other connections.
const PATHS_PER_REQUEST: usize = 128;

/// Requests that are under way together: enough to keep every connection busy. Twice the four that
/// there are by default, so that the next one is there when an answer comes.
const REQUESTS_MAX: usize = 8;

/// Objects that are read or written together when they do not fit one answer. As many as one
/// connection has calls under way by default (`ConnectionOptions::in_flight_max`).
const OBJECTS_MAX: usize = 256;

/// What became of each of many.
type Results<T> = Vec<Result<T, ClientError>>;

impl Client {
    /// Finds many objects: what is under each path, in the order of the paths.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer: try again. That a path names nothing is in
    /// the list.
    pub async fn lookup_many(
        &self,
        paths: &[Path],
    ) -> Result<Vec<Result<Found, Refusal>>, ClientError> {
        let mut all = Vec::with_capacity(paths.len());
        for lookups in self.look_up_all(paths).await? {
            let mut refusals = lookups.refusals.into_iter();
            for found in lookups.found {
                let nothing = found.object.0 == 0;
                let refusal = if nothing { refusals.next() } else { None };
                all.push(refusal.map_or(Ok(found), Err));
            }
        }
        Ok(all)
    }

    /// Reads many whole objects, in the order of the paths. Small values come with the look-up.
    ///
    /// # Errors
    /// As [`Client::lookup_many`]; errors of single objects are in the list, as [`Client::get`] has
    /// them.
    pub async fn get_many(&self, paths: &[Path]) -> Result<Results<Bytes>, ClientError> {
        let mut all: Results<Option<Bytes>> = Vec::with_capacity(paths.len());
        for lookups in self.look_up_all(paths).await? {
            let inline = Bytes::from(lookups.inline);
            let (mut offset, mut refusals) = (0, lookups.refusals.into_iter());
            for found in lookups.found {
                let end = (offset + found.inline_bytes as usize).min(inline.len());
                let value = inline.slice(offset.min(end)..end);
                offset = end;
                all.push(match refusals.as_slice() {
                    [_, ..] if found.object.0 == 0 => {
                        Err(ClientError::Refused(refusals.next().expect("just seen")))
                    }
                    _ if is_whole_value(&found) => {
                        count(&self.shared.counters.read_bytes, value.len() as u64);
                        Ok(Some(value))
                    }
                    _ => Ok(None),
                });
            }
        }
        let rest = all.into_iter().zip(paths).map(async |(value, path)| match value? {
            Some(value) => Ok(value),
            None => self.get(path).await,
        });
        // All made before the first is awaited: else the whole could not be spawned.
        let rest: Vec<_> = rest.collect();
        Ok(stream::iter(rest).buffered(OBJECTS_MAX).collect().await)
    }

    /// Opens many objects for reading, in the order of the paths. Errors of single objects are in
    /// the list, as [`Client::open`] has them.
    pub async fn open_many(&self, paths: &[Path]) -> Results<Reader> {
        let opened: Vec<_> = paths.iter().map(async |path| self.open(path).await).collect();
        stream::iter(opened).buffered(OBJECTS_MAX).collect().await
    }

    /// Looks up where the blocks of many objects are, in the order of the paths. Errors of single
    /// objects are in the list, as [`Client::layout`] has them.
    pub async fn layout_many(&self, paths: &[Path]) -> Results<Layout> {
        let layouts = paths.iter().map(async |path| self.layout(path, 0..u64::MAX).await);
        let layouts: Vec<_> = layouts.collect();
        stream::iter(layouts).buffered(OBJECTS_MAX).collect().await
    }

    /// Reads ranges of many open objects, in the order given: what a datanode has of all of them
    /// shares frames. Errors of single objects are in the list, as [`Reader::read_ranges`] has
    /// them.
    pub async fn read_many(&self, wanted: &[(Reader, Vec<ByteRange>)]) -> Results<Vec<Bytes>> {
        let began = Instant::now();
        let known: Vec<_> = wanted
            .iter()
            .map(|(reader, ranges)| {
                let layout = reader.layout_now(ranges).filter(|_| reader.is_of(self));
                layout.map(|layout| (layout, ranges.as_slice()))
            })
            .collect();
        let deadline = began + self.call_deadline();
        let (together, failed) = fetch_together(&self.shared, &known, deadline).await;
        for node in failed.map(|failed| failed.suspects).unwrap_or_default() {
            self.suspect(node);
        }
        let read = wanted.iter().zip(together).map(async |((reader, ranges), read)| match read {
            Some(read) => Ok(read),
            None => reader.read_ranges_since(began, ranges).await,
        });
        let read: Vec<_> = read.collect();
        stream::iter(read).buffered(OBJECTS_MAX).collect().await
    }

    /// Creates many objects, in the order given. Small ones travel together in the requests.
    /// Errors of single objects are in the list, as [`Client::put`] has them.
    pub async fn create_many(
        &self,
        objects: Vec<(Path, Bytes)>,
        options: &PutOptions,
    ) -> Results<ObjectStat> {
        let puts =
            objects.into_iter().map(async |(path, bytes)| self.put(&path, bytes, options).await);
        stream::iter(puts).buffered(OBJECTS_MAX).collect().await
    }

    /// Looks up all paths, many in a request.
    async fn look_up_all(&self, paths: &[Path]) -> Result<Vec<Lookups>, ClientError> {
        let requests = paths.chunks(PATHS_PER_REQUEST).map(async |paths| {
            let request = Request::LookupMany { paths: paths.iter().collect::<Paths>() };
            let reply = self.request(request).await?;
            let lookups = reply_of!(reply, "lookup", Reply::Found(lookups) => lookups)?;
            if lookups.found.len() != paths.len() || lookups.apart().is_none() {
                return Err(ClientError::BadReply { what: "lookup".to_owned() });
            }
            Ok(lookups)
        });
        let requests: Vec<_> = requests.collect();
        let answers: Vec<Result<Lookups, ClientError>> =
            stream::iter(requests).buffered(REQUESTS_MAX).collect().await;
        answers.into_iter().collect()
    }
}

/// Returns whether an object is a value that came whole with its look-up, and stays after the read.
fn is_whole_value(found: &Found) -> bool {
    let is_here = u64::from(found.inline_bytes) == found.bytes && found.blocks == 0;
    !found.kind.is_container() && is_here && !found.delete_after_read
}
