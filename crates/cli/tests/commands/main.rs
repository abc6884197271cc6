//! Commands as people run them: what they print, and their exit codes.

#[path = "../cluster/mod.rs"]
mod cluster;

mod backup_ends;
mod bench;
mod config;
mod context;
mod doctor;
mod events;
mod gateway;
mod hangup;
mod lab;
mod lab_checkpoint;
mod lab_figures;
mod local;
mod local_directory;
mod local_ends;
mod local_environment;
mod local_restart;
mod mistakes;
mod otlp;
mod partial;
mod same_names;
mod scale;
mod tour;
mod watch;
