//! Frames between processes on loopback: callers, servers, and peers that are neither.

mod calls;
mod certificates;
mod earlier;
mod members;
mod memory;
mod own_tokens;
mod slow;
mod tls;
mod unadmitted;
