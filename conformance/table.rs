//! Reads the table of cases and runs it against one interface. The simulator's and the client's
//! runners include this file; `semantics.toml` shows what a case and a step look like.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "shared by tests, which may panic")]

use std::collections::BTreeMap;
use std::io::Write as _;

use sanderling_protocol::Millis;
use sanderling_protocol::message::{ObjectKind, ObjectStat, Usage};
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::refusal::ByteRange;
use toml_edit::{DocumentMut, Item, Table};

/// The table.
pub const SEMANTICS: &str = include_str!("semantics.toml");

/// Cases that are wrong: a runner in which one of them passes checks nothing.
pub const WRONG: &str = include_str!("wrong.toml");

/// What an interface answers to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// It was done.
    Done,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    Fields(BTreeMap<String, String>),
    Word(String),
}

/// One step of a case: a verb, its words and its options, all decoded.
#[derive(Debug, Clone)]
pub struct Step {
    pub text: String,
    pub verb: String,
    pub words: Vec<String>,
    pub options: BTreeMap<String, String>,
    pub answer: Option<String>,
    /// Whether it is repeated until its answer comes.
    pub is_awaited: bool,
}

/// One case.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub given: Vec<Step>,
    pub steps: Vec<Step>,
}

/// An interface that can take steps. Errors are names of docs/ERRORS.md.
pub trait Interface {
    fn call(&mut self, step: &Step) -> Result<Got, String>;

    /// Lets time pass between two attempts at an awaited step.
    fn pause(&mut self);
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    pub ran: usize,
    /// Fewest cases that this interface must have.
    pub floor: usize,
    pub failures: Vec<String>,
}

/// Runs all cases of a table that name the interface. `begin` makes it anew, with an empty
/// directory of the name that it is given, for each case.
pub fn run(table: &str, name: &str, mut begin: impl FnMut(&str) -> Box<dyn Interface>) -> Report {
    let document: DocumentMut = table.parse().unwrap();
    let floor = document["floors"].get(name).and_then(Item::as_integer).unwrap_or(0);
    let mut report = Report { ran: 0, floor: floor.try_into().unwrap(), failures: Vec::new() };
    for row in document["case"].as_array_of_tables().unwrap() {
        if !texts(&row["interfaces"], &document).iter().any(|each| each == name) {
            continue;
        }
        let case = case_of(row, name);
        let mut interface = begin(&root_of(name, &case.name));
        report.ran += 1;
        if let Err(failure) = run_case(&case, interface.as_mut()) {
            report.failures.push(format!("{}: {failure}", case.name));
        }
    }
    report
}

/// Fails unless every case passed and there were enough of them.
pub fn check(report: &Report, name: &str) {
    let (ran, floor, failed) = (report.ran, report.floor, report.failures.len());
    // Not by a macro: the test harness keeps what those print of a test that passes.
    let line = format!("conformance: {name}: {ran} cases, {failed} failed\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert!(floor > 0, "[floors] has no {name}");
    assert!(ran >= floor, "{ran} of {floor} cases ran");
}

/// Fails unless every case failed.
pub fn check_all_fail(report: &Report) {
    assert!(report.ran >= 5, "{} wrong cases ran", report.ran);
    assert_eq!(report.failures.len(), report.ran, "{}", report.failures.join("\n"));
}

fn case_of(row: &Table, interface: &str) -> Case {
    let name = row["name"].as_str().unwrap().to_owned();
    let prefix = root_of(interface, &name);
    let steps = |key: &str| {
        let lines = row.get(key).and_then(Item::as_array).into_iter().flatten();
        lines.map(|line| Step::parse(line.as_str().unwrap(), &prefix)).collect()
    };
    let case = Case { given: steps("given"), steps: steps("steps"), name };
    assert!(case.steps.iter().any(|step| step.answer.is_some()), "{}: no answer", case.name);
    case
}

/// Returns the directory in which a case lives.
fn root_of(interface: &str, case: &str) -> String {
    format!("/conformance-{interface}/{case}")
}

/// Returns a list of texts, or the one that the text names in `[sets]`.
fn texts(item: &Item, document: &DocumentMut) -> Vec<String> {
    let list = item.as_str().map_or(item, |set| &document["sets"][set]);
    list.as_array().unwrap().iter().map(|each| each.as_str().unwrap().to_owned()).collect()
}

fn run_case(case: &Case, interface: &mut dyn Interface) -> Result<(), String> {
    for step in case.given.iter().chain(&case.steps) {
        let mut left = if step.is_awaited { 200 } else { 1 };
        loop {
            left -= 1;
            match verdict(step, interface.call(step)) {
                Ok(()) => break,
                Err(why) if left == 0 => return Err(format!("`{}`: {why}", step.text)),
                Err(_) => interface.pause(),
            }
        }
    }
    Ok(())
}

fn verdict(step: &Step, got: Result<Got, String>) -> Result<(), String> {
    let Some(wanted) = &step.answer else {
        return got.map(drop).map_err(|name| format!("got !{name}"));
    };
    let is_right = match &got {
        Err(name) => *wanted == format!("!{name}"),
        Ok(Got::Bytes(bytes)) => bytes_of_answer(wanted).is_some_and(|wanted| wanted == *bytes),
        Ok(Got::Names(names)) => *wanted == format!("[{}]", names.join(" ")),
        Ok(Got::Word(word)) => wanted == word,
        Ok(Got::Fields(fields)) => wanted.split(' ').all(|pair| {
            pair.split_once('=').is_some_and(|(name, value)| {
                fields.get(name).is_some_and(|found| *found == decoded(value))
            })
        }),
        Ok(Got::Done) => wanted == "done",
    };
    if is_right { Ok(()) } else { Err(format!("got {}", shown(&got))) }
}

fn shown(got: &Result<Got, String>) -> String {
    match got {
        Err(name) => format!("!{name}"),
        Ok(Got::Bytes(bytes)) => {
            let head = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
            format!("{} bytes {head:?}", bytes.len())
        }
        Ok(other) => format!("{other:?}"),
    }
}

impl Step {
    fn parse(line: &str, prefix: &str) -> Self {
        let (line_is_awaited, rest) =
            line.strip_prefix("until ").map_or((false, line), |rest| (true, rest));
        let (call, answer) = match rest.split_once(" => ") {
            Some((call, answer)) => (call, Some(answer.to_owned())),
            None => (rest, None),
        };
        let mut words = call.split(' ');
        let mut step = Self {
            text: line.to_owned(),
            verb: words.next().unwrap().to_owned(),
            words: Vec::new(),
            options: BTreeMap::new(),
            answer,
            is_awaited: line_is_awaited,
        };
        for word in words {
            match word.split_once('=').filter(|(name, _)| is_option(name)) {
                Some((name, value)) => {
                    step.options.insert(decoded(name), decoded(value));
                }
                None => step.words.push(path_or_word(word, prefix)),
            }
        }
        step
    }

    /// Returns a word by its place.
    pub fn word(&self, place: usize) -> &str {
        self.words.get(place).map_or_else(|| panic!("`{}`: too short", self.text), String::as_str)
    }

    /// Returns an option's value.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Returns whether an option is yes.
    pub fn is(&self, name: &str) -> bool {
        self.option(name) == Some("yes")
    }

    /// Returns a number among the options.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.option(name).map(|text| text.parse().unwrap())
    }

    /// Returns a time among the options.
    pub fn time(&self, name: &str) -> Option<Millis> {
        self.option(name).and_then(millis)
    }

    /// Returns the kind that a directory is made with.
    pub fn kind(&self) -> ObjectKind {
        match self.option("kind") {
            Some("table") => ObjectKind::Table,
            Some("multifile") => ObjectKind::Multifile,
            Some("file") => ObjectKind::File,
            _ => ObjectKind::Directory,
        }
    }

    /// Returns the ranges of `get P 0 4` or `ranges P 0:4 9:2`.
    pub fn ranges(&self) -> Vec<ByteRange> {
        let range = |offset: &str, bytes: &str| ByteRange {
            offset: offset.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
        };
        if self.verb == "get" {
            return vec![range(self.word(1), self.word(2))];
        }
        let pairs = self.words[1..].iter().map(|word| word.split_once(':').unwrap());
        pairs.map(|(offset, bytes)| range(offset, bytes)).collect()
    }

    /// Returns the attributes among the options.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        let named = self.options.iter();
        named
            .filter_map(|(name, text)| Some((name.strip_prefix("attr.")?.to_owned(), text.clone())))
            .collect()
    }

    /// Returns the bytes that a word stands for.
    pub fn bytes(&self, place: usize) -> Vec<u8> {
        let word = self.word(place);
        pattern(word).unwrap_or_else(|| word.as_bytes().to_vec())
    }
}

fn is_option(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Paths are below the case's directory, but for those behind `!`.
fn path_or_word(word: &str, prefix: &str) -> String {
    match word.strip_prefix('!') {
        Some(raw) => decoded(raw),
        None if word == "/" => prefix.to_owned(),
        None if word.starts_with('/') => format!("{prefix}{}", decoded(word)),
        None => decoded(word),
    }
}

/// Decodes `%20` and `{ab*3}`.
pub fn decoded(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('{') {
        let (repeated, after) = behind.split_once('}').unwrap();
        let (piece, times) = repeated.split_once('*').unwrap();
        text += before;
        text += &piece.repeat(times.parse().unwrap());
        rest = after;
    }
    text += rest;
    let (mut bytes, mut at) = (Vec::new(), 0);
    let raw = text.as_bytes();
    while at < raw.len() {
        if raw[at] == b'%' {
            bytes.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
            at += 3;
        } else {
            bytes.push(raw[at]);
            at += 1;
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns the bytes of `@N` or `@N[from:to]`.
fn pattern(word: &str) -> Option<Vec<u8>> {
    let rest = word.strip_prefix('@')?;
    let (count, cut) = rest.split_once('[').unwrap_or((rest, ""));
    let count: usize = count.parse().unwrap();
    let bytes: Vec<u8> =
        (0..count).map(|at| (at * 31 + (at >> 8) + (at >> 16) * 13) as u8).collect();
    match cut.strip_suffix(']').and_then(|cut| cut.split_once(':')) {
        Some((from, to)) => Some(bytes[from.parse().unwrap()..to.parse().unwrap()].to_vec()),
        None => Some(bytes),
    }
}

fn bytes_of_answer(answer: &str) -> Option<Vec<u8>> {
    let text = answer.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    text.map(|text| decoded(text).into_bytes()).or_else(|| pattern(answer))
}

/// Returns `30s` or `200ms` as a time, and `none` as none.
pub fn millis(text: &str) -> Option<Millis> {
    if let Some(millis) = text.strip_suffix("ms") {
        return Some(Millis(millis.parse().unwrap()));
    }
    text.strip_suffix('s').map(|seconds| Millis(seconds.parse::<u64>().unwrap() * 1000))
}

/// Returns fields by their names.
pub fn fields<const N: usize>(fields: [(&str, String); N]) -> Got {
    Got::Fields(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// Returns the fields of an object that cases check.
pub fn stat_fields(stat: &ObjectStat) -> Got {
    let mut fields = BTreeMap::from([
        ("kind".to_owned(), stat.kind.name().to_owned()),
        ("bytes".to_owned(), stat.bytes.to_string()),
        ("sealed".to_owned(), yes(stat.is_sealed)),
        ("listed".to_owned(), yes(stat.is_listed)),
        ("once".to_owned(), yes(stat.delete_after_read)),
        ("class".to_owned(), stat.class.to_string()),
        ("expires".to_owned(), yes(stat.expires_in.is_some())),
        ("entries".to_owned(), stat.entries.to_string()),
        ("job".to_owned(), yes(stat.job.is_some())),
        ("attributes".to_owned(), stat.attributes.iter().count().to_string()),
    ]);
    for (name, text) in stat.attributes.iter() {
        fields.insert(format!("attr.{name}"), text.to_owned());
    }
    Got::Fields(fields)
}

/// Returns the fields of a subtree that cases check.
pub fn usage_fields(usage: &Usage) -> Got {
    fields([
        ("files", usage.files.to_string()),
        ("directories", usage.directories.to_string()),
        ("bytes", usage.bytes.to_string()),
    ])
}

/// Returns the fields of a node that cases check.
pub fn node_fields(node: &NodeInfo) -> Got {
    fields([
        ("policy", node.policy.name().to_owned()),
        ("deadline", yes(node.deadline_in.is_some())),
        ("risk", yes(node.is_at_risk)),
        ("reason", node.reason.clone()),
    ])
}
