//! The thread of a process's own work: heartbeats, notices, and pages. Requests of clients have
//! other threads, so none of this waits in line behind them, however many there are and however
//! long each of them takes.

use std::io;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// How long a stop waits for work that blocks its thread, which none should. Chosen, not measured:
/// some calls to the namenode (3 s each) and one look at a source fit, and a supervisor kills a
/// service later (systemd after 90 s).
const STOP_MAX: Duration = Duration::from_secs(10);

/// A runtime for the process's own work. [`Control::stop`] waits for the end of its tasks; when it
/// is only dropped they end without being waited for.
#[derive(Debug)]
pub(crate) struct Control {
    runtime: Option<Runtime>,
}

impl Control {
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start() -> io::Result<Self> {
        // Nothing of it computes for long: one thread is enough, and clients keep the others.
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("control").enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("it is there until the value is dropped").handle()
    }

    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle().spawn(work)
    }

    /// Moves a listener to this runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn adopt(&self, listener: TcpListener) -> io::Result<TcpListener> {
        let listener = listener.into_std()?;
        let _entered = self.handle().enter();
        TcpListener::from_std(listener)
    }

    /// Ends all of its work and waits for that, so that nothing of the process is in use any more.
    pub(crate) async fn stop(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let stopping = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(STOP_MAX));
        if let Err(error) = stopping.await {
            tracing::error!(%error, "the thread of the datanode's own work panicked");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Dropping a runtime waits, which a task must not.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
