//! Bugs that tests inject on purpose, to see that other tests find them.

/// An injected bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests inject bugs"))]
pub(crate) enum InjectedBug {
    /// Payloads are believed without their checksum.
    NoChecksum,
    /// Records are believed without the number that ties them to their place.
    NoNumber,
    /// Changes are acknowledged before the disk has them.
    NoSync,
    /// The journal goes on after a failed sync.
    SyncIgnored,
    /// Whatever cannot be read is taken for a torn tail.
    AllIsTorn,
    /// A new snapshot replaces all before it.
    PrunedEarly,
    /// Segments are not compared with where the one before ends.
    GapIgnored,
    /// A loss that was accepted is not written down.
    LossUnrecorded,
}

/// Returns whether a bug is injected: never, outside tests.
#[cfg(not(test))]
#[inline]
pub(crate) const fn is(_: InjectedBug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static INJECTED: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
}

/// Injects a bug on this thread from now on.
#[cfg(test)]
pub(crate) fn set(bug: Option<InjectedBug>) {
    INJECTED.set(bug);
}

/// Returns whether a bug is injected on this thread.
#[cfg(test)]
pub(crate) fn is(bug: InjectedBug) -> bool {
    INJECTED.get() == Some(bug)
}
