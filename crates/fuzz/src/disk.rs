//! Targets that feed bytes of files and objects: the journal, snapshots, the object tier.

use sanderling_core::catalog::{Catalog, Command};
use sanderling_datanode::parsers::{is_encrypted, object_end, write_object_end};
use sanderling_namenode::parsers::{read_segment, read_snapshot, write_segment, write_snapshot};

/// Decodes the input as a command of the log. One that can be decoded must be equal after it is
/// encoded and decoded again.
///
/// # Panics
/// When it is not, or when decoding panics.
pub fn record(input: &[u8]) {
    let Ok((command, _)) = postcard::take_from_bytes::<Command>(input) else { return };
    let written = postcard::to_stdvec(&command).expect("a command can be written");
    assert_eq!(postcard::from_bytes::<Command>(&written), Ok(command));
}

/// Reads the input as a segment of the journal. Then writes a segment of the commands that the
/// input holds behind its first four bytes, and reads it: all of them must come back. Then changes
/// one byte of it, which those four bytes choose, and reads it again: no command may be read that
/// was not written.
///
/// # Panics
/// When a command is missing or was not written, or when reading panics.
pub fn segment(input: &[u8]) {
    let _ = read_segment(input);
    let Some((&[salt, at_low, at_high, change], mut rest)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut commands: Vec<Command> = Vec::new();
    while let Ok((command, behind)) = postcard::take_from_bytes::<Command>(rest) {
        rest = behind;
        // The journal is written in the order of time.
        if commands.last().is_none_or(|last| last.at <= command.at) {
            commands.push(command);
        }
    }
    let salt = (salt > 0).then_some(u64::from(salt));
    let mut written = write_segment(salt, &commands);
    assert_eq!(read_segment(&written).expect("it was written so"), commands);
    let at = usize::from(u16::from_le_bytes([at_low, at_high])) % written.len();
    written[at] ^= change;
    if let Ok(read) = read_segment(&written) {
        assert!(commands.starts_with(&read), "no command is read that was not written");
    }
}

/// Reads the input as the file of a snapshot; and as the body of one, of the oldest and the newest
/// format, with the right checksum, so that the catalog's decoder is reached. A catalog that can be
/// read must be encoded alike after it is written and read again.
///
/// # Panics
/// When it is not, or when reading panics.
pub fn snapshot(input: &[u8]) {
    let _ = read_snapshot(input);
    for version in [Catalog::FORMAT_MIN, Catalog::FORMAT] {
        let Ok(catalog) = read_snapshot(&write_snapshot(version, input)) else { continue };
        let body = postcard::to_stdvec(&catalog).expect("a catalog can be written");
        let again = read_snapshot(&write_snapshot(Catalog::FORMAT, &body));
        let again = again.expect("what was written can be read");
        let written = postcard::to_stdvec(&again).expect("a catalog can be written");
        assert_eq!(written, body, "a catalog comes back");
        let _ = again.restored();
    }
}

/// Reads the end of the input as that of an object of the object tier. The trailer that is found
/// must be encoded as the bytes behind the block, and no object counts as encrypted and as plain.
///
/// # Panics
/// When either does not hold, or when reading panics.
pub fn trailer(input: &[u8]) {
    let is_encrypted = is_encrypted(input);
    let Some(end) = object_end(input) else { return };
    assert!(!is_encrypted, "an object is encrypted or not");
    assert_eq!(write_object_end(end), input[end.length as usize..]);
}
