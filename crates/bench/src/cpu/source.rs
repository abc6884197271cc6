//! Where a server's CPU time is read: its metrics, or `/proc` of this machine.

use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Figures;
use super::listener::process_at;

/// How long a server's HTTP may take to answer a look at its metrics. A page takes milliseconds; a
/// server that does not answer by then is left out of the row. Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest page of metrics that is read, in bytes. A server's page has some ten KiB, so a longer
/// one is no page of metrics. Chosen, not measured.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// Where a server's figures come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CpuSource {
    /// Its metrics, at this address.
    Metrics(String),
    /// The kernel, for a process of this machine.
    Process(u32),
}

impl CpuSource {
    /// Returns the ways to measure a server's processor time, the best first: its metrics, unless
    /// `http` is empty, and its process, if that is on this machine.
    pub(super) fn of(http: &str, address: &str) -> Vec<Self> {
        let metrics = (!http.is_empty()).then(|| Self::Metrics(http.to_owned()));
        metrics.into_iter().chain(process_at(address).map(Self::Process)).collect()
    }

    async fn figures(&self) -> Option<Figures> {
        match self {
            Self::Metrics(address) => {
                let page = tokio::time::timeout(ANSWER_TIMEOUT, page(address)).await;
                of_metrics(&page.ok()?.ok()?)
            }
            Self::Process(pid) => of_process(*pid),
        }
    }
}

/// Returns the figures of the first source that has any.
pub(super) async fn first(sources: &[CpuSource]) -> Option<Figures> {
    for source in sources {
        if let Some(figures) = source.figures().await {
            return Some(figures);
        }
    }
    None
}

async fn page(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut page).await?;
    Ok(page)
}

/// Finds the figures in a page of metrics, whatever the names begin with.
fn of_metrics(page: &str) -> Option<Figures> {
    let value = |name: &str| {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let mut pairs = lines.filter_map(|line| line.split_once(' '));
        pairs.find(|(key, _)| *key == name)?.1.trim().parse::<f64>().ok()
    };
    let cpu = Duration::try_from_secs_f64(value("process_cpu_seconds_total")?).ok()?;
    let resident_bytes = value("process_resident_memory_bytes").map(|bytes| bytes as u64);
    Some(Figures { source: "metrics", cpu, resident_bytes })
}

fn of_process(pid: u32) -> Option<Figures> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = ticks(&stat)?;
    let cpu = Duration::from_millis(ticks * 1000 / clock_ticks_per_second().max(1));
    let resident_bytes = resident_bytes(pid);
    Some(Figures { source: "proc", cpu, resident_bytes })
}

/// Returns the clock ticks that a process used in user and system mode: fields 14 and 15.
fn ticks(stat: &str) -> Option<u64> {
    // The name stands in parentheses and may hold anything: fields are counted after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = pages.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_metrics() {
        let page = "HTTP/1.0 200 OK\r\n\r\n# TYPE process_cpu_seconds counter\n\
                    process_cpu_seconds_total 1.25\nprocess_resident_memory_bytes 4096\n# EOF\n";
        let figures = of_metrics(page).expect("both are there");
        assert_eq!(figures.cpu, Duration::from_millis(1250));
        assert_eq!(figures.resident_bytes, Some(4096));
        assert!(of_metrics("process_cpu_seconds_total x\n").is_none());
    }

    #[test]
    fn ticks_are_counted_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(ticks(stat), Some(300));
        assert!(of_process(std::process::id()).is_some());
        assert!(of_process(u32::MAX).is_none());
    }
}
