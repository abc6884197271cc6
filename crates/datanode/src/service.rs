//! The frames that a datanode serves.

mod body_sink;
mod data;
mod disk;
mod object;
mod orders;

use std::sync::Arc;

use bytes::Bytes;
use sanderling_protocol::{Header, Op, Refusal};
use sanderling_transport::{BodySink, Handled, Response};

pub(crate) use data::write_tier;

use crate::blocking::on_thread;
use crate::egress::paced;
use crate::node::Node;
use crate::received::BlockBody;

pub(crate) use self::disk::DiskRoom;

impl Node {
    /// Takes one frame of a caller who may send it.
    pub(crate) fn serve(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        self.counters.count_request(header.op);
        let handled = match header.op {
            Op::Read => self.read(header),
            Op::ReadMany => self.read_many(header, &body),
            Op::Write => self.write(header, body.into()),
            Op::Store => self.store_block(header, body.into()),
            Op::Order => self.order(header, &body),
            Op::LocalEndpoint => Handled::Now(Response::message(&header, &self.local_endpoint())),
            Op::Hello | Op::Meta | Op::Lease | Op::Return | Op::Stage | Op::Fill => {
                let why = format!("a datanode does not serve {:?}", header.op);
                Handled::Now(self.refused(&header, &Refusal::BadFrame { why }))
            }
        };
        paced(self, handled)
    }

    /// Offers memory for a long body, as [`sanderling_transport::Service::land`] does.
    pub(crate) fn land(self: &Arc<Self>, header: &Header) -> Option<Box<dyn BodySink>> {
        body_sink::body_sink(self, header)
    }

    /// Takes the frame of a body that was received straight into the arena.
    fn take(self: &Arc<Self>, header: Header, body: BlockBody) -> Handled {
        self.counters.count_request(header.op);
        let handled = match header.op {
            Op::Store => self.store_block(header, body),
            _ => self.write(header, body),
        };
        paced(self, handled)
    }

    pub(crate) fn refused(&self, header: &Header, refusal: &Refusal) -> Response {
        let refusal = self.answered_refusal(header.op, refusal.clone());
        self.counters.count_refusal(&refusal);
        tracing::debug!(op = ?header.op, block = %header.block, %refusal, "refused");
        Response::refused(header, &refusal)
    }

    /// Does on another thread what may block, and counts it as in flight.
    fn later<W>(self: &Arc<Self>, header: Header, work: W) -> Handled
    where
        W: FnOnce(&Self) -> Result<Response, Refusal> + Send + 'static,
    {
        let node = Arc::clone(self);
        let worker = Arc::clone(self);
        let done = on_thread(move || {
            let _in_flight = worker.enter();
            work(&worker)
        });
        Handled::Later(Box::pin(async move {
            done.await.unwrap_or_else(|refusal| node.refused(&header, &refusal))
        }))
    }
}
