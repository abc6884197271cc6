//! The ready file: what a parent needs to know of a server that serves.

use std::io::{BufReader, Write};
use std::path::Path;

use sanderling_protocol::{ClusterId, NodeId};
use sanderling_transport::open_regular;
use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure, FailureKind};

/// The ready file's content, one JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The address at which it serves; empty for a manager.
    pub address: String,
    /// The address of its HTTP endpoint, if it has one.
    pub http_address: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// Its incarnation, if it is a datanode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The cluster's id in hexadecimal, where it is known.
    pub cluster: Option<String>,
}

impl Ready {
    /// Describes this process as one that serves there; the id is its own. Write it
    /// ([`Self::write`]) once callers can connect.
    #[must_use]
    pub fn here(address: String, http_address: Option<String>, cluster: Option<ClusterId>) -> Self {
        let cluster = cluster.map(|cluster| format!("{:016x}", cluster.0));
        Self { address, http_address, pid: std::process::id(), node: None, cluster }
    }

    /// Writes the file whole or not at all, and notifies systemd if it started this process and
    /// waits for that (`Type=notify`).
    ///
    /// # Errors
    /// When the local file cannot be written, or systemd's socket cannot be reached: end the
    /// server, since what started it would wait in vain.
    pub fn write(&self, path: Option<&Path>) -> Result<(), Failure> {
        sd_notify::notify(&[sd_notify::NotifyState::Ready])
            .map_err(|error| Failure::caused(Exit::Failure, FailureKind::Process, error))?;
        path.map_or(Ok(()), |path| write_whole(path, self))
    }

    /// Reads the file; `None` while it is not there, and for what is no regular file.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_reader(BufReader::new(open_regular(path).ok()?)).ok()
    }
}

/// What a server that was started with `--detach` writes in place of [`Ready`] if it does not
/// start, where the process that started it can propose another start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotReady {
    /// Another process has its address or its directory.
    InUse,
}

impl NotReady {
    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// When the local file cannot be written: the log alone has the reason then.
    pub fn write(self, path: &Path) -> Result<(), Failure> {
        write_whole(path, &self)
    }

    /// Reads why the server is not ready; `None` if there is no such file, or if it reports a
    /// server that is ready.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_reader(BufReader::new(open_regular(path).ok()?)).ok()
    }
}

fn write_whole(path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(content).expect("plain fields");
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = std::fs::File::create(&partial)
        .and_then(|mut file| writeln!(file, "{text}"))
        .and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_file_is_read_back() {
        let path = std::env::temp_dir().join(format!("sanderling-ready-{}", std::process::id()));
        assert_eq!(Ready::read(&path), None);
        let ready = Ready::here("127.0.0.1:1".to_owned(), None, Some(ClusterId(7)));
        ready.write(Some(&path)).unwrap();
        assert_eq!((Ready::read(&path), NotReady::read(&path)), (Some(ready), None));
        NotReady::InUse.write(&path).unwrap();
        assert_eq!((Ready::read(&path), NotReady::read(&path)), (None, Some(NotReady::InUse)));
        std::fs::remove_file(&path).unwrap();
    }
}
