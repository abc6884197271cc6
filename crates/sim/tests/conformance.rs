//! The table of conformance/semantics.toml on the machines alone: the namenode's, the writer's and
//! the reader's, with blocks in a map and time that passes when a case waits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "conformance/machines.rs"]
mod machines;
#[path = "../../../conformance/table.rs"]
mod table;

use machines::Machines;

const NAME: &str = "sim";

#[test]
fn machines_answer_as_the_table_requires() {
    let report = table::run(table::SEMANTICS, NAME, |root| Box::new(Machines::new(root)));
    table::check(&report, NAME);
}

#[test]
fn wrong_cases_fail_on_the_machines() {
    table::check_all_fail(&table::run(table::WRONG, NAME, |root| Box::new(Machines::new(root))));
}
