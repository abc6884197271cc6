//! Sending a snapshot to a member that is too far behind, or new.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::catalog::Catalog;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::encode_body;
use sanderling_transport::{CallError, Connection};
use tokio::time::Instant;
use tracing::{info, warn};

use super::links::{Dialer, send};
use super::wire::{GroupFormat, GroupFrame, PART_BYTES, SnapshotPart};
use crate::snapshot::{self, HEADER_BYTES};

/// Time for one part: a member that takes none for so long is sent the snapshot again later. 1 MiB
/// at less than 1 Mbit/s. Chosen, not measured.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the last part: the member reads the whole snapshot before it answers. That takes 0.7 s
/// for each million objects (docs/SCALE.md), so 70 s for a hundred million.
const LAST_PART_TIMEOUT: Duration = Duration::from_secs(120);

/// A snapshot for one member.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) address: String,
    /// The replica's message.
    pub(crate) message: Bytes,
    pub(crate) catalog: Catalog,
}

/// Sends a snapshot; returns whether the member has it.
pub(crate) async fn deliver(dialer: Arc<Dialer>, sending: Sending) -> bool {
    let Sending { address, message, catalog } = sending;
    let began = Instant::now();
    // Before the catalog is encoded, which takes long and as much memory as the file.
    let connection = match dialer.connect(&address, began + PART_TIMEOUT).await {
        Ok(connection) => connection,
        Err(error) => {
            warn!(address, %error, "a member did not receive the snapshot");
            return false;
        }
    };
    let file = match tokio::task::spawn_blocking(move || encode(&catalog)).await {
        Ok(Ok(file)) => file,
        Ok(Err(error)) => {
            warn!(%error, "a snapshot for a member could not be made");
            return false;
        }
        Err(_) => return false,
    };
    let bytes = file.len();
    match send_parts(&dialer, connection, &message, &file).await {
        Ok(()) => {
            let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            info!(address, bytes, millis, "a member received a snapshot");
            true
        }
        Err(error) => {
            warn!(address, bytes, %error, "a member did not receive the snapshot");
            false
        }
    }
}

/// Returns the file of a snapshot.
fn encode(catalog: &Catalog) -> Result<Bytes, postcard::Error> {
    let mut file = postcard::to_extend(catalog, vec![0_u8; HEADER_BYTES])?;
    let header = snapshot::header(Catalog::FORMAT, &file[HEADER_BYTES..]);
    file[..HEADER_BYTES].copy_from_slice(&header);
    Ok(file.into())
}

async fn send_parts(
    dialer: &Dialer,
    mut connection: Connection,
    message: &Bytes,
    file: &Bytes,
) -> Result<(), CallError> {
    if connection.is_broken() {
        // While the catalog was encoded.
        let address = connection.address().to_owned();
        connection = dialer.connect(&address, Instant::now() + PART_TIMEOUT).await?;
    }
    let (sending, total, checksum) = (rand::random(), file.len() as u64, crc32c(file));
    let mut offset = 0;
    while offset < file.len() {
        let end = (offset + PART_BYTES).min(file.len());
        let is_last = end == file.len();
        let part = SnapshotPart {
            format: GroupFormat::OWN,
            sending,
            offset: offset as u64,
            total,
            checksum,
            message: if is_last { message.clone() } else { Bytes::new() },
            bytes: file.slice(offset..end),
        };
        let body = Bytes::from(encode_body(&GroupFrame::Part(part)));
        let within = if is_last { LAST_PART_TIMEOUT } else { PART_TIMEOUT };
        send(&connection, body, Instant::now() + within).await?;
        offset = end;
    }
    Ok(())
}
