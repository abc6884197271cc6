//! `ping-pong`: what a message there and back costs on this machine without a store.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use super::cpu::{Cpu, Usage};
use super::error::BenchError;
use super::plan::BenchPlan;
use super::scenario::{Measured, OperationBudget};

/// Measures with as many pairs of threads as requested. Both ends run in this process.
///
/// # Errors
/// [`BenchError`] when a socket fails: run it again.
pub(super) async fn run(plan: &Arc<BenchPlan>) -> Result<(Vec<Measured>, Cpu), BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    // Cancelled with the command, the threads must end, too.
    let _end = Stop(Arc::clone(&stop));
    let plan = Arc::clone(plan);
    let pairs = tokio::task::spawn_blocking(move || pairs(&plan, &stop));
    pairs.await.unwrap_or(Err(BenchError::Stopped))
}

struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn pairs(plan: &BenchPlan, stop: &AtomicBool) -> Result<(Vec<Measured>, Cpu), BenchError> {
    let size = plan.load.size as usize;
    let ends = (0..plan.args.threads).map(|_| connected()).collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(ends.len() + 1);
    std::thread::scope(|scope| {
        let mut calling = Vec::new();
        for (here, there) in ends {
            // Ends when the other end hangs up.
            scope.spawn(move || echo(there, size));
            calling.push(scope.spawn(|| call(here, plan, stop, &start)));
        }
        start.wait();
        let before = Usage::read_here();
        let ended = calling.into_iter().map(|thread| thread.join().expect("it does not panic"));
        let all = ended.collect::<Result<Vec<Measured>, std::io::Error>>()?;
        Ok((all, Usage::read_here().since(&before)))
    })
}

fn connected() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

fn echo(mut end: TcpStream, size: usize) {
    let mut buffer = vec![0; size];
    while end.read_exact(&mut buffer).is_ok() && end.write_all(&buffer).is_ok() {}
}

fn call(
    mut end: TcpStream,
    plan: &BenchPlan,
    stop: &AtomicBool,
    start: &Barrier,
) -> std::io::Result<Measured> {
    let mut buffer = vec![7; plan.load.size as usize];
    let next = AtomicU64::new(0);
    let warmup = OperationBudget { next: &next, end: plan.args.warmup, until: None, stop };
    let warmed = rounds(&mut end, &mut buffer, &warmup);
    // Whoever failed must not leave the others waiting.
    start.wait();
    warmed?;
    let until = plan.args.duration.map(|span| Instant::now() + span.0);
    let budget = OperationBudget { next: &next, end: plan.load.operations, until, stop };
    rounds(&mut end, &mut buffer, &budget)
}

fn rounds(
    end: &mut TcpStream,
    buffer: &mut [u8],
    budget: &OperationBudget<'_>,
) -> std::io::Result<Measured> {
    let mut measured = Measured::new();
    let mut before = Instant::now();
    while budget.take(before).is_some() {
        end.write_all(buffer)?;
        end.read_exact(buffer)?;
        let now = Instant::now();
        measured.add(now - before);
        measured.operations += 1;
        measured.items += 1;
        measured.bytes += buffer.len() as u64;
        before = now;
    }
    measured.span.1 = Instant::now();
    Ok(measured)
}
