//! The body of a request that is short: it has to come soon, and makes room for others until it is
//! there.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use super::connection::HttpConnection;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How long the body of a request may take. Operators' requests have some hundred bytes, so ten
/// seconds are for lost packets. Chosen, not measured.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A body of which some is still to come.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    /// `None` when it is complete.
    coming: Option<Coming>,
}

#[derive(Debug)]
struct Coming {
    connection: HttpConnection,
    until: Pin<Box<Sleep>>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, connection: Option<HttpConnection>) -> Self {
        let connection = connection.filter(|_| !body.is_end_stream());
        let coming = connection.map(|connection| {
            connection.receives();
            Coming { connection, until: Box::pin(sleep(BODY_TIMEOUT)) }
        });
        Self { body, coming }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.connection.received();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let Self { body, coming } = &mut *self;
        let frame = Pin::new(&mut *body).poll_frame(context);
        let is_late = match (&frame, coming.as_mut()) {
            (Poll::Pending, Some(coming)) => coming.until.as_mut().poll(context).is_ready(),
            _ => false,
        };
        if is_late {
            let why = format!("the body did not come within {BODY_TIMEOUT:?}");
            let late: Failed = io::Error::new(io::ErrorKind::TimedOut, why).into();
            return Poll::Ready(Some(Err(late)));
        }
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || body.is_end_stream() {
            *coming = None;
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
