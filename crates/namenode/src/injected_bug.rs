//! Mistakes that tests make on purpose, to see that other tests find them.

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests make mistakes"))]
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
    LossUnsaid,
}

/// Returns whether a mistake is made: never, outside tests.
#[cfg(not(test))]
#[inline]
pub(crate) const fn is(_: InjectedBug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static INJECTED: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
}

/// Makes a mistake on this thread from now on.
#[cfg(test)]
pub(crate) fn set(bug: Option<InjectedBug>) {
    INJECTED.set(bug);
}

/// Returns whether a mistake is made on this thread.
#[cfg(test)]
pub(crate) fn is(bug: InjectedBug) -> bool {
    INJECTED.get() == Some(bug)
}
