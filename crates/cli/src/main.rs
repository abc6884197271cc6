//! The `sanderling` command.
fn main() {}
