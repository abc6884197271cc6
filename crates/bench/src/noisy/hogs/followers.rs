//! Followers of the namenode's events over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::noisy::stage::{HogContext, NotRun};

/// Followers: ten times the 128 places that a namenode has for them (`FOLLOWERS_MAX` of the
/// transport), so most of them are refused.
const FOLLOWERS: usize = 1500;

pub(super) async fn run(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let credentials = &stage.setting.hog_credentials;
    if credentials.tls.is_some() {
        return Err(NotRun("its bare connections do not speak TLS".to_owned()));
    }
    let Some(address) = stage.setting.namenode_http.clone() else {
        return Err(NotRun("--namenode-http is not given".to_owned()));
    };
    let token = credentials.token.as_ref().map(|source| source.token(None)).transpose();
    let token = token.map_err(|error| NotRun(error.to_string()))?;
    let shown = token
        .map_or_else(String::new, |token| format!("authorization: Bearer {}\r\n", token.reveal()));
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: {address}\r\n{shown}\r\n");
    let request: Arc<str> = request.into();
    let accepted = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..FOLLOWERS {
        let (stage, accepted) = (Arc::clone(&stage), Arc::clone(&accepted));
        let (address, request) = (address.clone(), Arc::clone(&request));
        tasks.spawn(async move {
            match follow(&stage, &accepted, &address, &request).await {
                Ok(true) => stage.broke(),
                Ok(false) | Err(_) => stage.refused(1),
            }
        });
    }
    stage.begun.cancel();
    // Those that ended are not replaced.
    stage.until_stopped(tasks).await;
    let accepted = accepted.load(Ordering::Relaxed);
    stage.note(format_args!("{accepted} of {FOLLOWERS} followers were accepted"));
    Ok(())
}

/// Reads events to the end of the connection. Returns whether the namenode sent any.
async fn follow(
    stage: &HogContext,
    accepted: &AtomicU64,
    address: &str,
    request: &str,
) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 4096];
    let read = stream.read(&mut buffer).await?;
    if !buffer[..read].starts_with(b"HTTP/1.1 200") {
        return Ok(false);
    }
    stage.done(1);
    accepted.fetch_add(1, Ordering::Relaxed);
    // How the connection ends is no matter: it was one of a follower.
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    Ok(true)
}
