//! For which caller the object tier works.

use std::sync::Arc;

use sanderling_protocol::Refusal;

use crate::fair_room::{FairRoom, RoomPermit, RoomUser};

/// For which caller an operation on the store is done.
#[derive(Debug)]
pub(crate) enum OperationCaller {
    /// The node itself: it needs no place.
    Node,
    /// A connection: it has a place among those of all tenants for each operation, until the store
    /// has done that, however long it takes.
    Tenant {
        /// The places.
        places: FairRoom,
        /// The connection.
        user: Arc<RoomUser>,
    },
}

impl OperationCaller {
    /// Begins an operation once the caller has a place, as [`FairRoom::begin`] does.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: others keep theirs for too long, or too many operations wait.
    pub(super) async fn begin<T, W>(&self, operation: W) -> Result<T, Refusal>
    where
        T: Send + 'static,
        W: FnOnce(Option<RoomPermit>) -> T + Send + 'static,
    {
        match self {
            Self::Node => Ok(operation(None)),
            Self::Tenant { places, user } => {
                places.begin(user, 1, |place| operation(Some(place))).await
            }
        }
    }
}
