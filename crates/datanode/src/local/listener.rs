//! The socket: which connections are admitted, and how they end.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::local::LocalEndpoint;
use sanderling_transport::local::{PacketSocket, boot_id};
use sanderling_transport::log_not_accepted;
use tokio_util::sync::CancellationToken;

use super::leases::Leases;
use super::options::LocalOptions;
use super::session::LocalSession;
use crate::arena::Arena;
use crate::error::DatanodeStartError;
use crate::options::DatanodeOptions;
use crate::service::BlockService;

/// Connections that wait to be accepted. Half of the connections that a node takes by default
/// (256). The thread that accepts does nothing else, and a client that finds the queue full uses
/// TCP.
const BACKLOG: i32 = 128;

/// Stack of a connection's thread: what it calls is shallow. It touches some 16 KiB of it. 256
/// threads reserve 64 MiB of addresses, not of memory.
const STACK_BYTES: usize = 256 << 10;

/// The local endpoint of a node.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) endpoint: LocalEndpoint,
    pub(crate) leases: Arc<Leases>,
    pub(crate) staging_bytes: AtomicU64,
    pub(crate) is_stopping: AtomicBool,
    listener: Arc<PacketSocket>,
    path: PathBuf,
    uid: u32,
    pub(crate) options: LocalOptions,
    connections: Mutex<HashMap<u64, Attended>>,
    turned_away: AtomicU64,
}

/// A connection and its thread.
#[derive(Debug)]
struct Attended {
    socket: Arc<PacketSocket>,
    thread: JoinHandle<()>,
    oldest_millis: Arc<AtomicU64>,
}

impl Local {
    /// Makes the socket. `None` when there is to be none, or when the machine does not allow one
    /// and no path is configured.
    ///
    /// # Errors
    /// [`DatanodeStartError::Local`] when the socket that was named cannot be made.
    pub(crate) fn open(
        options: &DatanodeOptions,
        arena: &Arena,
    ) -> Result<Option<Self>, DatanodeStartError> {
        let Some(local) = options.local.clone().filter(|_| options.egress_limit.is_none()) else {
            return Ok(None);
        };
        match Self::listen(local.clone(), arena) {
            Ok(endpoint) => Ok(Some(endpoint)),
            Err(cause) => match local.socket {
                Some(socket) => Err(DatanodeStartError::Local { socket, cause }),
                None => {
                    tracing::warn!(%cause, "clients on this machine come by TCP");
                    Ok(None)
                }
            },
        }
    }

    fn listen(options: LocalOptions, arena: &Arena) -> io::Result<Self> {
        let unsupported = |why: &str| io::Error::new(io::ErrorKind::Unsupported, why);
        if arena.descriptor().is_none() {
            return Err(unsupported("the kernel cannot share memory for reading only"));
        }
        let boot_id = boot_id().ok_or_else(|| unsupported("the kernel has no boot_id"))?;
        let uid = rustix::process::geteuid().as_raw();
        let mode = if options.uids.is_empty() { 0o600 } else { 0o666 };
        let (listener, path) = match &options.socket {
            Some(path) => {
                let listener = listen(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                (listener, path.clone())
            }
            None => {
                let directory = directory(uid, !options.uids.is_empty())?;
                forget_dead(&directory);
                listen_in(&directory, mode)?
            }
        };
        let socket = path.to_str().ok_or_else(|| unsupported("the path is not UTF-8"))?.to_owned();
        let listener = Arc::new(listener);
        Ok(Self {
            endpoint: LocalEndpoint { socket, boot_id },
            leases: Arc::new(Leases::new(arena.bytes())),
            staging_bytes: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            listener,
            path,
            uid,
            options,
            connections: Mutex::default(),
            turned_away: AtomicU64::new(0),
        })
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().values().filter(|it| !it.thread.is_finished()).count()
    }

    /// Returns how many connections were turned away.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Returns how long the oldest lease is held, as of its connection's last packet.
    pub(crate) fn oldest_lease(&self) -> Duration {
        let oldest = |it: &Attended| it.oldest_millis.load(Ordering::Relaxed);
        Duration::from_millis(self.connections.lock().values().map(oldest).max().unwrap_or(0))
    }

    /// Admits a connection, unless its user is not allowed or there are too many.
    fn admit(self: &Arc<Self>, service: &Arc<BlockService>, number: u64, socket: PacketSocket) {
        let uid = socket.peer_uid().ok();
        let is_allowed = uid.is_some_and(|uid| uid == self.uid || self.options.uids.contains(&uid));
        let mut connections = self.connections.lock();
        connections.retain(|_, it| !it.thread.is_finished());
        if !is_allowed || connections.len() >= self.options.connections_max {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(?uid, is_allowed, "a connection was turned away");
            return;
        }
        let socket = Arc::new(socket);
        let oldest_millis = Arc::new(AtomicU64::new(0));
        let (local, service) = (Arc::clone(self), Arc::clone(service));
        let session =
            LocalSession::new(local, service, Arc::clone(&socket), Arc::clone(&oldest_millis));
        let thread = std::thread::Builder::new()
            .name("same-host".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || session.run());
        match thread {
            Ok(thread) => {
                connections.insert(number, Attended { socket, thread, oldest_millis });
            }
            Err(error) => tracing::warn!(%error, "no thread for a connection"),
        }
    }

    /// Ends every connection, and returns their threads. Leases stay.
    fn end(&self) -> Vec<JoinHandle<()>> {
        self.is_stopping.store(true, Ordering::SeqCst);
        let ended = std::mem::take(&mut *self.connections.lock());
        ended.values().for_each(|it| it.socket.shut_down());
        ended.into_values().map(|it| it.thread).collect()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It may have been taken away already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Admits clients until the node stops.
pub(crate) async fn serve_listener(
    local: Arc<Local>,
    service: Arc<BlockService>,
    stop: CancellationToken,
) {
    let _ending = EndWhenDropped(&local);
    for number in 0.. {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            ready = local.listener.ready() => ready.and_then(|()| local.listener.accept()),
        };
        match accepted {
            Ok(socket) => local.admit(&service, number, socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Out of file descriptors, most likely: serve the others, then try again.
                log_not_accepted("same host", &error);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    let threads = local.end();
    let joined = tokio::task::spawn_blocking(move || {
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a connection of this machine ended in a panic");
            }
        }
    });
    // A panic was logged there.
    let _ = joined.await;
}

/// Ends the connections also when the runtime goes and no task waits for their threads.
struct EndWhenDropped<'a>(&'a Local);

impl Drop for EndWhenDropped<'_> {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

/// Listens at a path, in place of a process that is no more.
fn listen(path: &Path) -> io::Result<PacketSocket> {
    match PacketSocket::listen(path, BACKLOG) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
            std::fs::remove_file(path)?;
            PacketSocket::listen(path, BACKLOG)
        }
        listening => listening,
    }
}

/// Listens in a directory that datanodes share, under a name of its own.
///
/// A socket refuses connections from its `bind` until its `listen`, as one of a dead datanode does,
/// and a datanode that starts meanwhile removes those. So it gets the name by which it is found
/// only when it listens.
fn listen_in(directory: &Path, mode: u32) -> io::Result<(PacketSocket, PathBuf)> {
    let name = format!("{:016x}", rand::random::<u64>());
    let (new, path) = (directory.join(&name), directory.join(format!("{name}.sock")));
    let listener = PacketSocket::listen(&new, BACKLOG)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&new, &path)?;
    Ok((listener, path))
}

/// Returns whether there is a socket without a listener.
fn is_dead(path: &Path) -> bool {
    PacketSocket::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes sockets that datanodes left behind which were killed. One without the ending has not got
/// its name yet; its datanode was killed, too, if that takes longer than a minute.
fn forget_dead(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_old = || {
            let made = entry.metadata().and_then(|it| it.modified()).ok();
            let age = made.and_then(|it| it.elapsed().ok());
            age.is_some_and(|age| age > Duration::from_secs(60))
        };
        // A file that is no socket refuses connections, too, and is none of ours.
        let is_socket = entry.file_type().is_ok_and(|it| it.is_socket());
        let is_named = path.extension().is_some_and(|it| it == "sock");
        if is_socket && is_dead(&path) && (is_named || is_old()) {
            // Another datanode that starts may have been first.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the directory of sockets, made if it is not there; only the datanode's user can
/// put something into it, and unless other users are admitted, only it can list it.
fn directory(uid: u32, for_others: bool) -> io::Result<PathBuf> {
    let mode = if for_others { 0o711 } else { 0o700 };
    let session = PathBuf::from(format!("/run/user/{uid}/sanderling"));
    let places = [session, std::env::temp_dir().join(format!("sanderling-{uid}"))];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    // The session's own directory is closed to others.
    for place in places.into_iter().skip(usize::from(for_others)) {
        match own_directory(&place, uid, mode) {
            Ok(()) => return Ok(place),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn own_directory(path: &Path, uid: u32, mode: u32) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        let why = format!("{} is not a directory of this user's alone", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if found.mode() & 0o777 & mode != mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datanode_that_starts_does_not_remove_the_socket_of_another_one_that_starts() {
        let directory = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    forget_dead(directory.path());
                }
            });
            let opened: Vec<_> = (0..300).map(|_| listen_in(directory.path(), 0o600)).collect();
            is_over.store(true, Ordering::Relaxed);
            for one in opened {
                let (_listener, path) = one.expect("it is not removed while it is made");
                assert!(path.exists(), "it is not removed afterwards");
            }
        });
        std::fs::write(directory.path().join("notes.sock"), "of another program").unwrap();
        forget_dead(directory.path());
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 1, "sockets without a listener are removed, and nothing else");
    }
}
