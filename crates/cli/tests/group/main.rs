//! Groups of namenodes, and what remains of a catalog whose namenodes are gone.

#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../chaos_rounds/disk.rs"]
mod disk;
#[path = "../chaos/lots.rs"]
mod lots;

mod archive;
mod archive_pieces;
mod archive_stores;
mod backup;
mod ends;
mod errors;
mod faulty_files;
mod generations;
mod hung_disks;
mod journals;
mod late_messages;
mod members;
mod notices;
mod orders;
mod passed_on;
mod reads;
mod recovery;
mod restored;
mod rogue_members;
mod secrets;
mod slow_lookups;
mod snapshots;
mod suspended;
mod unfit;
