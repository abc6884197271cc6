//! The running manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanderling_protocol::Nonce;
use sanderling_protocol::message::Role;
use sanderling_transport::{
    ConnectionOptions, Expiries, Pool, PoolOptions, StatusPages, serve_status, write_gauge,
    write_process_metrics,
};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::calls::NamenodeClient;
use crate::leader::ManagerProcess;
use crate::options::ManagerOptions;

/// A manager that waits for the leadership lease, or leads.
///
/// It needs no namenode to start: it tries until there is one, and goes on when one restarts.
#[derive(Debug)]
pub struct ManagerServer {
    shutdown: CancellationToken,
    task: parking_lot::Mutex<Option<JoinHandle<()>>>,
    is_leading: Arc<AtomicBool>,
    /// Serves the pages; ends with this.
    pages: JoinSet<()>,
}

impl ManagerServer {
    /// Starts a manager. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(options: ManagerOptions) -> Self {
        let shutdown = CancellationToken::new();
        let credentials = options.credentials.clone();
        let connection = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let role = Role::Manager;
        let pool = Pool::new(PoolOptions { role, connection, ..PoolOptions::default() });
        let holder = options.holder.unwrap_or_else(|| Nonce(rand::random()));
        let caller = NamenodeClient::new(pool, &options, holder);
        let is_leading = Arc::new(AtomicBool::new(false));
        let manager =
            ManagerProcess::new(options, caller, shutdown.clone(), Arc::clone(&is_leading));
        let task = parking_lot::Mutex::new(Some(tokio::spawn(manager.run())));
        Self { shutdown, task, is_leading, pages: JoinSet::new() }
    }

    /// Serves health and metrics, with the ends of these certificates, until the manager stops.
    /// No token is required: the listener is for this machine alone.
    /// Its first page links to the web console.
    pub fn serve_pages(&mut self, listener: TcpListener, expiries: Expiries, console: String) {
        let is_leading = Arc::clone(&self.is_leading);
        let metrics = move || metrics(is_leading.load(Ordering::Relaxed), &expiries.timestamps());
        let health = r#"{"schema":1,"role":"manager","status":"ok"}"#.to_owned();
        let pages = StatusPages { server: "manager", console, health };
        self.pages.spawn(serve_status(listener, true, pages, metrics, self.shutdown.clone()));
    }

    /// Stops leading and gives the lease back. What is under way is left to the next manager.
    /// A second call does nothing.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the manager's task panicked");
        }
    }
}

impl Drop for ManagerServer {
    /// Ends as if it had been killed: its lease ends by itself.
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}

/// Returns a manager's metrics; `ends` is when the first certificate of each kind ends.
fn metrics(is_leading: bool, ends: &[(&str, i64)]) -> String {
    let mut text = String::new();
    let help = "Whether it has the leadership lease";
    write_gauge(&mut text, "sanderling_manager_leading", help, u8::from(is_leading));
    write_process_metrics(&mut text, "sanderling_manager", ends);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_leadership_and_the_certificates() {
        let text = metrics(true, &[("authority", 7)]);
        for line in [
            "sanderling_manager_leading 1",
            "sanderling_manager_certificate_expiry_timestamp_seconds{kind=\"authority\"} 7",
        ] {
            assert!(text.lines().any(|it| it == line), "{text}");
        }
    }
}
