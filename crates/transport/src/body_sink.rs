//! Memory of a service that a long body is received into, so that it is copied once.

use std::fmt::Debug;

use sanderling_protocol::Header;

use crate::server::Handled;

/// Memory for the body of one frame, offered when its header has come.
///
/// Dropped without [`BodySink::arrived`] when the connection breaks before.
pub trait BodySink: Debug + Send {
    /// Returns where the next bytes go: at least one byte as long as the body is not complete.
    fn spare(&mut self) -> &mut [u8];

    /// Reports how many more bytes of it are there now.
    fn advance(&mut self, bytes: usize);

    /// Returns whether there is so little of such memory that a peer which sends the body slowly is
    /// given up earlier. It is called only for a peer that is so slow.
    fn is_scarce(&self) -> bool {
        false
    }

    /// Takes the frame: all bytes of its body are there. Must not block.
    fn arrived(self: Box<Self>, header: Header) -> Handled;
}
