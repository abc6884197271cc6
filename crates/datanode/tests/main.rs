//! A datanode on loopback, as its callers and a namenode see it.

mod ahead;
mod baseline;
mod body_sink;
mod damage;
mod data;
mod disk;
mod durable;
mod encryption;
mod ends;
mod harness;
mod membership;
mod object;
mod relocation;
mod upload_parts;
