//! The socket of a connection that its leases share: they are given back through it, in batches.

use std::io::IoSlice;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::frame::HEADER_BYTES;
use sanderling_protocol::local::{RETURNS_PER_PACKET_MAX, encode_returns};
use sanderling_protocol::{Header, Op};
use sanderling_transport::local::PacketSocket;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Time that returned leases wait for a request to travel with. A reader in a loop sends its next
/// request sooner, which saves a packet for each; the node's memory stays taken that much longer.
/// Chosen, not measured.
const RETURN_DELAY_MAX: Duration = Duration::from_millis(5);

/// A socket and the leases to be given back through it. It closes, and the node takes all of them
/// back, when connection and leases are gone.
#[derive(Debug)]
pub(super) struct LeaseSocket {
    pub(super) socket: Arc<PacketSocket>,
    returned: Mutex<Vec<u64>>,
    /// The process that leases belong to: one that it forks must not give them back.
    process: u32,
    returning: Arc<Returning>,
}

/// A lease that is given back when it is dropped.
#[derive(Debug)]
pub(super) struct LocalLease {
    socket: Arc<LeaseSocket>,
    number: u64,
}

/// The sockets with leases to give back.
#[derive(Debug, Default)]
pub(super) struct Returning {
    sockets: Mutex<Vec<Weak<LeaseSocket>>>,
    wake: Notify,
}

impl LeaseSocket {
    pub(super) fn new(socket: PacketSocket, returning: Arc<Returning>) -> Arc<Self> {
        let (socket, process) = (Arc::new(socket), std::process::id());
        Arc::new(Self { socket, returned: Mutex::default(), process, returning })
    }

    /// Returns whether this process made it.
    pub(super) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn lease(self: &Arc<Self>, number: u64) -> LocalLease {
        LocalLease { socket: Arc::clone(self), number }
    }

    /// Takes leases to give back with a request.
    pub(super) fn take_returned(&self, into: &mut Vec<u64>) {
        let mut returned = self.returned.lock();
        let count = returned.len().min(RETURNS_PER_PACKET_MAX);
        into.extend(returned.drain(..count));
    }

    /// Gives leases back without a request; returns whether all went.
    fn give_back(&self) -> bool {
        let mut numbers = Vec::new();
        loop {
            numbers.clear();
            self.take_returned(&mut numbers);
            if numbers.is_empty() {
                return true;
            }
            let mut body = Vec::with_capacity(8 * numbers.len());
            encode_returns(&numbers, &mut body);
            let mut header = Header::new(Op::Return, 0);
            header.body_bytes = body.len() as u32;
            let head: [u8; HEADER_BYTES] = header.encode();
            match self.socket.send_now(&[IoSlice::new(&head), IoSlice::new(&body)]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.returned.lock().append(&mut numbers);
                    return false;
                }
                // A node that has ended needs nothing back.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl Drop for LocalLease {
    fn drop(&mut self) {
        if !self.socket.is_own() {
            return;
        }
        let is_first = {
            let mut returned = self.socket.returned.lock();
            returned.push(self.number);
            returned.len() == 1
        };
        if is_first {
            self.socket.returning.sockets.lock().push(Arc::downgrade(&self.socket));
            self.socket.returning.wake.notify_one();
        }
    }
}

/// Gives back, from time to time, what no request took along.
pub(super) async fn give_back(returning: Arc<Returning>) {
    loop {
        returning.wake.notified().await;
        sleep(RETURN_DELAY_MAX).await;
        let sockets = std::mem::take(&mut *returning.sockets.lock());
        for socket in sockets {
            let is_left = socket.upgrade().is_some_and(|socket| !socket.give_back());
            if is_left {
                returning.sockets.lock().push(socket);
                returning.wake.notify_one();
            }
        }
    }
}
