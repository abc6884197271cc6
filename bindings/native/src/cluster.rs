//! Which cluster a client connects to: the rule of every binding.

use sanderling_context::{Explicit, Resolved, StoreUrl};

/// Returns the cluster of a client. Empty texts are none.
///
/// # Errors
/// What is wrong, and the caller's next step.
pub fn resolve(explicit: Explicit) -> Result<Resolved, String> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let explicit =
        Explicit { address: given(explicit.address), context: given(explicit.context), ..explicit };
    sanderling_context::resolve(explicit)
        .map_err(|error| format!("{error}; next: {}", error.next()))
}

/// Splits a URL of the store; `None` for a text of another kind.
///
/// # Errors
/// What is wrong with its host or port.
pub fn split_url(text: &str) -> Result<Option<StoreUrl>, String> {
    sanderling_context::url(text).map_err(|error| error.to_string())
}
