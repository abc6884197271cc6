//! Which cluster a client connects to: the rule of every binding.

use sanderling_context::{AddressError, ContextError, Explicit, Resolved, StoreUrl};

/// Returns the cluster that a client connects to, by what its caller gives, the environment and the
/// contexts. An empty text counts as not given.
///
/// # Errors
/// What is wrong; [`ContextError::next`] is the caller's next step.
pub fn resolve(explicit: Explicit) -> Result<Resolved, ContextError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let explicit =
        Explicit { address: given(explicit.address), context: given(explicit.context), ..explicit };
    sanderling_context::resolve(explicit)
}

/// Returns the error as the user of a binding reads it: with the next step.
#[must_use]
pub fn with_next(error: &ContextError) -> String {
    format!("{error}; next: {}", error.next())
}

/// Splits a URL of the store; `None` for a text of another kind.
///
/// # Errors
/// [`AddressError`]: correct the host or the port that it names.
pub fn split_url(text: &str) -> Result<Option<StoreUrl>, AddressError> {
    sanderling_context::url(text)
}
