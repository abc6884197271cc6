//! How much the catalog does in one step and keeps of each client.

/// Bounds of one step, and of what is kept.
///
/// Every process that applies the same log must have the same bounds, because they decide what a
/// command does: servers have the defaults, and only simulations others, so that what happens
/// beyond a bound happens in small clusters, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogLimits {
    /// Most things done by one tick, so that a million objects that expire at once do not stop the
    /// namenode for long; the next tick follows at once.
    pub due_per_tick_max: usize,
    /// Most copies that become homes in one step, and most blocks handed over or made to give way.
    pub promoted_per_turn_max: usize,
    /// Answers that are kept for one client: more than it can have under way.
    pub answers_per_client_max: usize,
    /// Most entries (objects and blocks) of what is deleted that are freed in one slice. It goes
    /// into the log with [`Action::Rules`](super::Action::Rules).
    pub freed_per_slice_max: u32,
}

impl CatalogLimits {
    /// The bounds of servers.
    pub const DEFAULT: Self = Self {
        due_per_tick_max: 1000,
        promoted_per_turn_max: 2000,
        answers_per_client_max: 32_768,
        // About half a millisecond at 1 us a name.
        freed_per_slice_max: 512,
    };
}

impl Default for CatalogLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
