//! Runs every check of this crate on the working tree.

use sanderling_protocol::Refusal;
use sanderling_tidy::tree::SourceFile;
use sanderling_tidy::{
    Problem, asserts, circles, coinages, constants, durations, error_sections, floors, glossary,
    lengths, lints, names, pages, speech, tables, tree, type_names, versions, words,
};

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
    assert_none(&floors::check_allowances(&files()));
    assert_none(&floors::check_page(&files()));
}

#[test]
fn errors_of_public_functions_are_described() {
    assert_none(&error_sections::check(&files()));
}

#[test]
fn modules_import_each_other_in_small_circles_only() {
    assert_none(&circles::check(&files()));
}

#[test]
fn files_functions_and_lines_are_short() {
    assert_none(&lengths::check(&files()));
}

#[test]
fn decisions_assert_what_they_take_for_granted() {
    assert_none(&asserts::check(&files()));
}

#[test]
fn lints_are_on_in_every_crate() {
    assert_none(&lints::check(&files()));
}

#[test]
fn every_number_has_a_comment() {
    assert_none(&constants::check(&files()));
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
fn no_name_of_code_is_coined() {
    assert_none(&coinages::check(&files()));
}

#[test]
fn no_comment_or_name_describes_code_as_people() {
    assert_none(&speech::check(&files()));
}

#[test]
fn errors_write_spans_of_time_as_people_do() {
    assert_none(&durations::check(&files()));
}

#[test]
fn no_name_of_a_type_is_in_three_modules() {
    assert_none(&type_names::check(&files()));
}

#[test]
fn pages_can_be_reached_and_links_lead_somewhere() {
    assert_none(&pages::check(&files()));
}

#[test]
fn every_term_is_in_the_glossary() {
    assert_none(&glossary::check(&files()));
}

#[test]
fn all_languages_have_one_version() {
    assert_none(&versions::check(&files()));
}

#[test]
fn every_refusal_is_explained() {
    assert_none(&tables::check_refusals(&files(), Refusal::TABLE));
    assert_none(&tables::check_errors(&files()));
}

#[test]
fn every_error_has_the_same_class_in_python_and_java() {
    assert_none(&tables::check_classes(&files()));
}

#[test]
fn every_metric_is_listed() {
    assert_none(&tables::check_metrics(&files()));
}

#[test]
fn every_event_and_every_checker_is_listed() {
    assert_none(&tables::check_events(&files()));
    assert_none(&tables::check_checkers(&files()));
}
