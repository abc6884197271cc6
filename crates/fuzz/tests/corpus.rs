//! Runs every target on the files of its corpus.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::PathBuf;

use sanderling_fuzz::{FuzzTarget, TARGETS, TIME_MAX, check};

/// Most bytes of one target's corpus: it is committed.
const CORPUS_BYTES_MAX: usize = 100 << 10;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))
}

fn corpus(target: &FuzzTarget) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = root().join("corpus").join(target.name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|_| panic!("{}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[test]
fn every_input_is_read_within_bounds() {
    let mut inputs = 0;
    for target in TARGETS {
        for (path, input) in corpus(target) {
            // The name of the input appears with the panic.
            println!("{}", path.display());
            let mut cost = check(target.run, &input, target.bytes_max);
            // The machine may be busy.
            for _ in 0..3 {
                if cost.time <= TIME_MAX {
                    break;
                }
                cost = check(target.run, &input, target.bytes_max);
            }
            assert!(cost.time <= TIME_MAX, "{}: {:?}", path.display(), cost.time);
            inputs += 1;
        }
    }
    println!("{inputs} inputs of {} targets", TARGETS.len());
}

#[test]
fn every_target_has_a_program_and_a_small_corpus() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let files = corpus(target);
        let bytes: usize = files.iter().map(|(_, input)| input.len()).sum();
        assert!(!files.is_empty(), "{} has no corpus", target.name);
        assert!(bytes <= CORPUS_BYTES_MAX, "{}: {bytes} bytes", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        let program = root().join("targets").join(format!("{}.rs", target.name));
        assert!(program.exists(), "{}", program.display());
    }
}
