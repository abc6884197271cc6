//! Runs every check of this crate on the working tree.

use sanderling_protocol::Refusal;
use sanderling_tidy::tree::SourceFile;
use sanderling_tidy::{Problem, floors, lengths, names, pages, tree, versions, words};

fn files() -> Vec<SourceFile> {
    tree::read(&tree::root()).expect("the working tree can be read")
}

fn assert_none(problems: &[Problem]) {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} problems:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn crates_import_only_lower_floors() {
    assert_none(&floors::check(&files()));
}

#[test]
fn files_functions_and_lines_are_short() {
    assert_none(&lengths::check(&files()));
}

#[test]
fn nothing_is_named_after_leftovers() {
    assert_none(&names::check(&files()));
}

#[test]
fn words_are_ours_and_work_is_finished() {
    assert_none(&words::check(&files()));
}

#[test]
fn pages_can_be_reached_and_links_lead_somewhere() {
    assert_none(&pages::check(&files()));
}

#[test]
fn all_languages_have_one_version() {
    assert_none(&versions::check(&files()));
}

/// The table of refusals in docs/OPERATING.md has one row per refusal, with its number and name.
#[test]
fn every_refusal_is_explained() {
    let files = files();
    let Some(page) = files.iter().find(|file| file.path == "docs/OPERATING.md") else { return };
    let is_explained = |(code, name): &&(u16, &str)| {
        page.text.lines().any(|line| line.starts_with(&format!("| {code} | `{name}` |")))
    };
    let missing: Vec<_> = Refusal::TABLE.iter().filter(|row| !is_explained(row)).collect();
    assert!(missing.is_empty(), "docs/OPERATING.md does not explain {missing:?}");
}
