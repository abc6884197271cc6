//! `sanderling mock-metadata`: the metadata services of three clouds, to rehearse notices with.
//!
//! It answers with the shapes that Amazon, Google and Azure document, at their paths, enforces the
//! headers that they enforce, and fails on demand. Requests below `/mock/` set its answers.

mod aws;
mod azure;
mod gcp;
mod orders;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use clap::Args;
use sanderling_transport::Expiries;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;
use crate::ready::Ready;
use crate::server::ProcessArgs;
use state::{Failing, Mock};

/// `sanderling mock-metadata`.
#[derive(Debug, Args)]
#[command(after_help = "\
Drive it with HTTP:
  curl -X POST ADDRESS/mock/preempt -H 'content-type: application/json' -d '{\"in_seconds\": 30}'
  curl -X POST ADDRESS/mock/rebalance      recommend to leave (aws)
  curl -X POST ADDRESS/mock/cancel         show nothing any more
  curl -X POST ADDRESS/mock/expire-tokens  end every token (aws)
  curl -X POST ADDRESS/mock/fail -H 'content-type: application/json' \\
       -d '{\"mode\": \"500|404|slow|garbage|hang|none\", \"count\": 3}'
  curl ADDRESS/mock/state

A datanode that reads it: sanderling datanode --notice-source aws --notice-url ADDRESS")]
pub struct MockMetadata {
    /// Where to serve, on loopback; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7680")]
    pub(crate) listen: String,
    /// The process.
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// It cannot listen, or would do so beyond loopback: end the command with it, and choose another
/// address.
pub fn run(global: &Global, args: MockMetadata) -> Result<(), Failure> {
    crate::server::run(global, &args.process.clone(), Expiries::default(), serve(args))
}

async fn serve(args: MockMetadata) -> Result<(), Failure> {
    let listen: SocketAddr = args.listen.parse().map_err(|_| {
        Failure::usage(format_args!("{:?} is no address", args.listen))
            .next("sanderling mock-metadata --listen 127.0.0.1:0")
    })?;
    if !listen.ip().is_loopback() {
        // Every caller that reaches it could give notices.
        return Err(Failure::usage("the mock listens on loopback only")
            .next("sanderling mock-metadata --listen 127.0.0.1:0"));
    }
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Failure, FailureKind::NotStarted, format_args!("{listen}: {error}"))
            .next("sanderling mock-metadata --listen 127.0.0.1:0")
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    Ready::here(address.clone(), Some(address), None).write(args.process.ready_file.as_deref())?;
    let mock = Arc::new(Mock::new());
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        served = axum::serve(listener, router(mock)) => served.map_err(failed),
        _ = term.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

fn router(mock: Arc<Mock>) -> Router {
    let clouds = Router::new()
        .merge(aws::routes())
        .merge(gcp::routes())
        .merge(azure::routes())
        .layer(from_fn_with_state(Arc::clone(&mock), fail));
    clouds.merge(orders::routes()).with_state(mock)
}

/// Fails a request if that is what the mock is to do.
async fn fail(State(mock): State<Arc<Mock>>, request: Request, next: Next) -> Response {
    match mock.take_failure() {
        None => next.run(request).await,
        Some(Failing::Status(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
            (status, "<html><body>error</body></html>").into_response()
        }
        Some(Failing::Slow(pause)) => {
            tokio::time::sleep(pause).await;
            next.run(request).await
        }
        Some(Failing::Garbage) => "<html>{\"action\": </html>".into_response(),
        Some(Failing::Hang) => std::future::pending().await,
    }
}
