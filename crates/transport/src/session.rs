//! One connection of a server: every complete frame in the buffer is handled, then all answers go
//! out in one write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::Hello;
use sanderling_protocol::{Frame, FrameError, Header, Op, Refusal};
use tokio::time::timeout;

use crate::gather::{Gather, length};
use crate::reader::{Arrived, FrameReader, ReadError};
use crate::server::{Handled, Response, ServeOptions, Service};
use crate::stream::{ReadHalf, Stream, WriteHalf};

/// Attends one connection until it ends.
pub async fn attend<S: Service>(
    stream: impl Into<Stream>,
    service: Arc<S>,
    options: &ServeOptions,
) {
    let (mut read, write) = stream.into().prepared();
    let mut reader = FrameReader::new(options.buffers.clone());
    let greeted = timeout(options.hello_within, reader.next(&mut read)).await;
    let (reply, is_welcome) = match greeted {
        Err(_) | Ok(Err(ReadError::Io(_) | ReadError::Closed)) => return,
        Ok(Err(ReadError::Frame(error))) => (refuse_connection(&error.refusal()), false),
        Ok(Ok(frame)) => greet(&*service, &frame),
    };
    let (later, gather) = (FuturesUnordered::new(), Gather::default());
    let mut session = Session { service, options, reader, read, write, later, gather };
    session.answer(reply);
    if session.send().await.is_err() || !is_welcome {
        return;
    }
    // Whatever ended it, the peer is told if it can be, and nobody else needs to know.
    if let Err(Some(error)) = session.run().await {
        session.answer(refuse_connection(&error.refusal()));
        let _ = session.send().await;
    }
}

fn greet<S: Service>(service: &S, frame: &Frame<Bytes>) -> (Response, bool) {
    if frame.header.op != Op::Hello {
        return (Response::refused(&frame.header, &Refusal::NoHello), false);
    }
    let answer = decode_body::<Hello>(&frame.body).and_then(|hello| service.hello(&hello));
    match answer {
        Ok(reply) => (Response::message(&frame.header, &reply), true),
        Err(refusal) => (Response::refused(&frame.header, &refusal), false),
    }
}

/// A refusal of the connection itself: it answers request 0, which nobody makes.
fn refuse_connection(refusal: &Refusal) -> Response {
    Response::refused(&Header::new(Op::Hello, 0), refusal)
}

struct Session<'a, S> {
    service: Arc<S>,
    options: &'a ServeOptions,
    reader: FrameReader,
    read: ReadHalf,
    write: WriteHalf,
    later: FuturesUnordered<Pin<Box<dyn Future<Output = Response> + Send>>>,
    gather: Gather,
}

/// Why a session ends: what the peer sent is no frame, or it is gone.
type End = Option<FrameError>;

impl<S: Service> Session<'_, S> {
    async fn run(&mut self) -> Result<(), End> {
        loop {
            let handled = self.handle_buffered();
            // What was asked before something that is no frame is answered.
            self.send().await?;
            handled?;
            if self.later.is_empty() {
                self.fill().await?;
            } else {
                self.fill_or_finish().await?;
            }
        }
    }

    /// Handles every complete frame of the buffer.
    fn handle_buffered(&mut self) -> Result<(), FrameError> {
        while self.later.len() < self.options.in_flight_max {
            let land = |header: &Header| self.service.land(header);
            let handled = match self.reader.buffered(land)? {
                None => break,
                Some(Arrived::Frame(frame)) => self.service.handle(frame.header, frame.body),
                Some(Arrived::Landed(header, landing)) => landing.arrived(header),
            };
            match handled {
                Handled::Now(response) => self.answer(response),
                Handled::Later(future) => self.later.push(future),
            }
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), End> {
        let is_amid_frame = self.reader.is_amid_frame();
        let filling = self.reader.fill(&mut self.read);
        if !is_amid_frame {
            return Ok(filling.await?);
        }
        match timeout(self.options.read_within, filling).await {
            Ok(filled) => Ok(filled?),
            Err(_) => {
                tracing::warn!("a peer fell silent in the middle of a frame: given up");
                Err(None)
            }
        }
    }

    /// Reads, unless as many frames are under way as may be, or takes the answers that are ready.
    async fn fill_or_finish(&mut self) -> Result<(), End> {
        let may_read = self.later.len() < self.options.in_flight_max;
        let response = tokio::select! {
            filled = self.reader.fill(&mut self.read), if may_read => return Ok(filled?),
            Some(response) = self.later.next() => response,
        };
        self.answer(response);
        while let Some(Some(response)) = self.later.next().now_or_never() {
            self.answer(response);
        }
        Ok(())
    }

    fn answer(&mut self, response: Response) {
        let Response { mut header, body } = response;
        let bytes = length(&body);
        header.body_bytes = u32::try_from(bytes).expect("a service keeps to the frame's limit");
        self.gather.push(&header, body);
    }

    async fn send(&mut self) -> Result<(), End> {
        let sent = self.gather.write_all(&self.write, self.options.write_within, || ()).await;
        sent.map_err(|_| None)
    }
}

impl From<ReadError> for End {
    fn from(_: ReadError) -> Self {
        None
    }
}
