//! What is damaged, lost, late or away.

#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../chaos_rounds/disk.rs"]
mod disk;
#[path = "../chaos/lots.rs"]
mod lots;

mod absence;
mod damage;
mod full_disk;
mod hung_disk;
mod journal;
mod killed;
mod losses;
mod object_tier;
mod older_catalog;
mod renewals;
mod repeats;
