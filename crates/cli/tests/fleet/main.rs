//! Fleets whose nodes get notices, come and go, or fill up.

#[path = "../cluster/mod.rs"]
mod cluster;

mod agent;
mod bad_targets;
mod baseline;
mod confirmations;
mod drain_reads;
mod exposure;
mod forgotten;
mod logs;
mod notices;
mod preemption;
mod rebalance;
mod relocation;
mod reserve;
mod same_host;
mod slow_link;
mod takeover;
mod upgrade;
mod withdrawn;
