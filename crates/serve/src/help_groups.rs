//! Checks that the help of each server has its flags in groups.

use clap::{Args, Command};

use crate::gateway::S3;
use crate::{Datanode, ManagerArgs, NamenodeArgs};

/// The groups of the servers' own flags. Global flags have their own.
const GROUPS: [&str; 7] = [
    "Network options",
    "Cluster options",
    "Storage options",
    "Notice options",
    "Background options",
    "Security options",
    "Process options",
];

/// Asserts that each flag that the help shows is in one of the groups.
fn assert_grouped<A: Args>(server: &'static str) {
    let command = A::augment_args(Command::new(server));
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
        let group = flag.get_help_heading();
        let is_known = group.is_some_and(|group| GROUPS.contains(&group));
        assert!(is_known, "{server}: {} is in the group {group:?}", flag.get_id());
    }
}

#[test]
fn every_flag_of_a_server_is_in_a_group_of_its_help() {
    assert_grouped::<NamenodeArgs>("namenode");
    assert_grouped::<Datanode>("datanode");
    assert_grouped::<ManagerArgs>("manager");
    assert_grouped::<S3>("gateway");
}
