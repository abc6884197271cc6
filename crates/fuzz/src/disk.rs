//! Bytes of files and objects: the journal, snapshots, the object tier.

use sanderling_core::catalog::{Catalog, Command};
use sanderling_datanode::parsers::{is_sealed, object_end, write_object_end};
use sanderling_namenode::parsers::{read_segment, read_snapshot, seal_snapshot, write_segment};

/// A command of the log.
///
/// # Panics
/// As all targets, when what was read does not come back.
pub fn record(input: &[u8]) {
    let Ok((command, _)) = postcard::take_from_bytes::<Command>(input) else { return };
    let written = postcard::to_stdvec(&command).expect("a command can be written");
    assert_eq!(postcard::from_bytes::<Command>(&written), Ok(command));
}

/// A segment: as it is; and one of the commands that the input holds, with one byte changed. Of the
/// second no command may be read that was not written there.
///
/// # Panics
/// As all targets.
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

/// A snapshot: as it is; and the input as a body whose checksum is right.
///
/// # Panics
/// As all targets.
pub fn snapshot(input: &[u8]) {
    let _ = read_snapshot(input);
    for version in [Catalog::FORMAT_MIN, Catalog::FORMAT] {
        let Ok(catalog) = read_snapshot(&seal_snapshot(version, input)) else { continue };
        let body = postcard::to_stdvec(&catalog).expect("a catalog can be written");
        let again = read_snapshot(&seal_snapshot(Catalog::FORMAT, &body));
        let again = again.expect("what was written can be read");
        let written = postcard::to_stdvec(&again).expect("a catalog can be written");
        assert_eq!(written, body, "a catalog comes back");
        let _ = again.restored();
    }
}

/// The end of an object of the object tier.
///
/// # Panics
/// As all targets.
pub fn trailer(input: &[u8]) {
    let is_sealed = is_sealed(input);
    let Some(end) = object_end(input) else { return };
    assert!(!is_sealed, "an object is encrypted or not");
    assert_eq!(write_object_end(end), input[end.length as usize..]);
}
