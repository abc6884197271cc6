//! Names that would forge a line, move the cursor or turn the direction of writing, in what
//! commands print and servers log.

use crate::cluster::{Cluster, SOON, Shape, until};
use serde_json::Value;

/// It begins a line, and erases the screen.
const FORGED: &str = "x\nINFO namenode: all is well\u{1b}[2J";

const FORGED_SHOWN: &str = "x\\nINFO namenode: all is well\\u{1b}[2J";

/// It turns the direction of writing, and has control characters that JSON permits in a text.
const TURNED: &str = "y\u{202e}gpj.exe\u{7f}\u{9b}2J";

const TURNED_SHOWN: &str = "y\\u{202e}gpj.exe\\u{7f}\\u{9b}2J";

/// Starts a namenode in which these names are the directories of jobs.
fn with_jobs(names: &[&str], flags: &[&str]) -> Cluster {
    let namenode = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    for name in names {
        let begun = cluster.cli(&["job", "new", &format!("/{name}"), "--lease", "1h"]);
        assert_eq!(begun.code, 0, "{begun}");
    }
    cluster
}

/// Returns whether a character must not be printed as it is.
fn is_unsafe(character: char) -> bool {
    let is_turn = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_turn || (character.is_control() && character != '\n')
}

/// Reads lines of which each is a JSON document.
fn documents(text: &str) -> Vec<Value> {
    let read = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    text.lines().map(read).collect()
}

#[test]
fn names_are_escaped_in_what_commands_print_and_in_text_logs() {
    let cluster = with_jobs(&[FORGED, TURNED], &[]);
    let listed = cluster.cli(&["fs", "ls", "/"]);
    assert_eq!(listed.stdout, format!("{FORGED_SHOWN}/\n{TURNED_SHOWN}/\n"), "{listed}");
    let has_both = |text: &str| [FORGED_SHOWN, TURNED_SHOWN].iter().all(|it| text.contains(it));
    let is_safe = |text: &str| !text.chars().any(is_unsafe) && !text.contains("\nINFO");
    for words in [
        &["fs", "ls", "-l", "/"][..],
        &["fs", "ls", "-R", "/"],
        &["fs", "tree", "/"],
        &["job", "ls"],
        &["events"],
    ] {
        let ran = cluster.cli(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        assert!(has_both(&ran.stdout) && is_safe(&ran.stdout), "{words:?}: {:?}", ran.stdout);
    }
    let log = until("the namenode logs both jobs", SOON, || {
        Some(cluster.namenode.log()).filter(|log| has_both(log))
    });
    assert!(is_safe(&log), "{log:?}");
}

#[test]
fn json_has_names_as_they_are_and_stays_on_its_line() {
    let cluster = with_jobs(&[FORGED], &["--log-format", "json"]);
    let path = format!("/{FORGED}");
    let listed = cluster.cli(&["fs", "ls", "/", "--json"]);
    let listed = documents(&listed.stdout);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let entry = &listed[0]["entries"][0];
    assert_eq!((entry["name"].as_str(), entry["path"].as_str()), (Some(FORGED), Some(&*path)));
    let events = cluster.cli(&["events", "--json"]);
    let events = documents(&events.stdout);
    let registered = events.iter().map(|event| &event["kind"]["job_registered"]["path"]);
    let registered: Vec<&str> = registered.filter_map(Value::as_str).collect();
    assert_eq!(registered, [&*path], "{events:?}");
    let log = until("the namenode logs the job", SOON, || {
        let log = cluster.namenode.log();
        let is_whole = log.ends_with('\n') && log.contains("job registered");
        is_whole.then_some(log)
    });
    let lines = documents(&log);
    let logged = lines.iter().find(|line| line["message"] == "job registered");
    assert_eq!(logged.expect("it is there")["path"].as_str(), Some(&*path), "{log}");
}

#[test]
fn json_stays_json_with_characters_that_terminals_obey() {
    let cluster = with_jobs(&[TURNED], &["--log-format", "json"]);
    let path = format!("/{TURNED}");
    for words in [&["fs", "ls", "/"][..], &["fs", "tree", "/"], &["job", "ls"], &["events"]] {
        let ran = cluster.cli(&[words, &["--json"]].concat());
        let documents = documents(&ran.stdout);
        let paths = [
            &documents[0]["entries"][0]["path"],
            &documents[0]["jobs"][0]["path"],
            &documents[documents.len() - 1]["kind"]["job_registered"]["path"],
        ];
        assert!(paths.iter().any(|found| found.as_str() == Some(&*path)), "{words:?}: {ran}");
    }
    let log = until("the namenode logs the job", SOON, || {
        let log = cluster.namenode.log();
        (log.ends_with('\n') && log.contains("job registered")).then_some(log)
    });
    assert!(!log.chars().any(|it| it != '\n' && is_unsafe(it)), "{log}");
    let lines = documents(&log);
    assert!(lines.iter().any(|line| line["path"].as_str() == Some(&*path)), "{log}");
}

#[test]
fn tables_escape_tabs_and_colours_in_names() {
    let cluster = with_jobs(&["c\u{1b}[31mred\ttab"], &[]);
    let listed = cluster.cli(&["job", "ls"]);
    assert!(listed.stdout.contains("/c\\u{1b}[31mred\\ttab"), "{:?}", listed.stdout);
    assert!(!listed.stdout.chars().any(is_unsafe), "{:?}", listed.stdout);
}
