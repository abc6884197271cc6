//! Everything at once, with real processes: notices from every side, deaths without one of
//! datanodes, managers and namenodes, copies ahead of notices and rebalancing, while applications
//! write, read, replace and delete. The test keeps its own book of what was acknowledged.
//!
//! `SANDERLING_CHAOS_SEED` draws another run, `SANDERLING_CHAOS_SECONDS` a longer one.

#[path = "chaos/book.rs"]
mod book;
mod cluster;
#[path = "chaos/faults.rs"]
mod faults;
#[path = "chaos/lots.rs"]
mod lots;
#[path = "chaos/verdict.rs"]
mod verdict;
#[path = "chaos/work.rs"]
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use book::Book;
use cluster::{Cluster, Shape, block_on_within};
use faults::Faults;
use lots::Lots;
use work::App;

/// Longest that one call may take: the client's own deadline for each of its steps, and a busy
/// machine.
const CALL_MAX: Duration = cluster::SOON;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => default,
    }
}

#[test]
fn nothing_acknowledged_is_lost_in_silence_whatever_happens() {
    let seed = number("SANDERLING_CHAOS_SEED", 1);
    let span = Duration::from_secs(number("SANDERLING_CHAOS_SECONDS", 40));
    eprintln!("SANDERLING_CHAOS_SEED={seed}");
    let mut lots = Lots::new(seed, 0);
    let has_manager = lots.below(2) == 0;
    let mut flags = vec!["--ramp-up", "2s", "--background-share", "50%"];
    if has_manager {
        flags.push("--no-manager");
    }
    let namenode = flags.into_iter().map(str::to_owned).collect();
    let cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    block_on_within(span + Duration::from_secs(400), async {
        let book = Arc::new(Book::new());
        let mut faults = Faults::start(cluster, has_manager, lots).await;
        let (client, stop) = (faults.cluster.client().await, CancellationToken::new());
        let app = App { client, book: Arc::clone(&book), stop: stop.clone(), seed, number: 0 };
        let mut apps = app.start_all();
        let end = Instant::now() + span;
        while Instant::now() < end {
            tokio::select! {
                () = faults.next() => {}
                ended = apps.join_next() => panic!("an application ended: {ended:?}"),
            }
        }
        faults.calm().await;
        stop.cancel();
        let ending = async {
            while let Some(ended) = apps.join_next().await {
                ended.expect("no application panics");
            }
        };
        tokio::time::timeout(CALL_MAX, ending).await.expect("the applications end");
        let (calls, longest, errors) = book.summary();
        eprintln!("{calls} calls, the longest took {longest:?}, failed: {errors:?}");
        assert!(longest < CALL_MAX, "a call took {longest:?}");
        verdict::judge(&faults, &book).await;
    });
}
