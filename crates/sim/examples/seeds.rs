//! Runs a range of seeds: `seeds FIRST COUNT [BUG]`.
#![allow(clippy::print_stdout, missing_docs, reason = "a program whose result is text")]

use sanderling_sim::{Options, Statistics, run, run_many};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let first: u64 = arguments[0].parse().expect("a seed");
    let count: u64 = arguments[1].parse().expect("a number");
    let bug = arguments.get(2).map(|name| name.parse().expect("a variant"));
    let options = Options { bug, minimise: count == 1, ..Options::default() };
    let start = std::time::Instant::now();
    let mut all = Statistics::default();
    let mut found = 0;
    let mut runs = 0u64;
    if count == 1 {
        let outcome = run(first, &options);
        if let Some(violation) = &outcome.violation {
            for line in &violation.events {
                println!("{line}");
            }
        }
        println!("{:?} {:?}", outcome.statistics, outcome.violation.map(|it| it.to_string()));
        return;
    }
    run_many(first..first + count, &options, 1, |outcome| {
        runs += 1;
        all.add(&outcome.statistics);
        if let Some(violation) = outcome.violation {
            found += 1;
            println!("seed {}: {violation}", outcome.seed);
        }
        found < 25
    });
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{runs} runs, {found} violations, {seconds:.1} s, {:.0} runs/min",
        runs as f64 / seconds * 60.0
    );
    println!("{all:?}");
}
