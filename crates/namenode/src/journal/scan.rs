//! What lies behind bytes that are no record: nothing, then a write was torn; or records that were
//! written later, then the journal is damaged.

use std::io;

use sanderling_core::catalog::Command;
use sanderling_protocol::Instant;

use super::record::{Bad, Layout, Look, low, tie};
use crate::files::Window;
use crate::injected_bug::{self, InjectedBug};

/// More bytes than one client can choose in one record without others in between: a longer run of
/// whole plain records does not come from a value. The longest value has 512 bytes and attributes
/// 8 KiB (`INLINE_BYTES_MAX`, `ATTRIBUTES_BYTES_MAX`).
const CHOSEN_BYTES_MAX: u64 = 64 << 10;

/// Plain records that are older than the last one, or so much younger, are none. A start steps by
/// 30 days at most, and no directory lives so long; random bytes rarely lie within it. Chosen, not
/// measured.
const YOUNGER_MICROS_MAX: u64 = 10 * 365 * 24 * 3600 * 1_000_000;

/// Bytes that are looked at for each byte that lies behind the bad one, before giving up. Each
/// possible length is read, and a client can choose values of which every byte begins one. Records
/// that follow each other cost one look for each byte. Chosen, not measured.
const EFFORT: u64 = 16;

/// What is known at the first bytes that are no record.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanEnd {
    pub(super) offset: u64,
    /// Number of the command that would have been there.
    pub(super) number: u64,
    /// Time of the last command before.
    pub(super) at: Instant,
}

/// What lies behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Behind {
    /// Whole records.
    pub(super) records: u64,
    /// Whether something is missing that was on the disk once.
    pub(super) is_damage: bool,
}

/// Searches to the end of the segment. Cost: linear in what lies behind, whatever it is.
pub(super) fn behind(
    layout: Layout,
    window: &mut Window,
    place: ScanEnd,
    bad: &Bad,
) -> io::Result<Behind> {
    let found = match layout {
        Layout::Plain => plain(window, place, bad)?,
        Layout::Tied { salt } => tied(window, place, bad, salt)?,
    };
    let is_damage = found.is_damage && !injected_bug::is(InjectedBug::AllIsTorn);
    Ok(Behind { is_damage, ..found })
}

/// A tied record has up to where the disk had the segment: what is missing before that is damage;
/// behind it the pages of a crashed machine may be missing in any order.
fn tied(window: &mut Window, place: ScanEnd, bad: &Bad, salt: u64) -> io::Result<Behind> {
    let layout = Layout::Tied { salt };
    let total = window.length();
    let (mut records, mut synced) = (0, 0);
    let mut at = place.offset + 1;
    while at < total {
        let Some(tie) = tie(window, at, salt)? else {
            at += 1;
            continue;
        };
        if tie.number.wrapping_sub(low(place.number)) > u32::MAX / 2 {
            // An older record, at a wrong place.
            at += 1;
            continue;
        }
        synced = synced.max(tie.synced(at));
        match layout.look(window, at, u64::from(tie.number))? {
            Look::Whole(whole) => {
                records += 1;
                at = whole.end;
            }
            Look::Bad(_) => at += 1,
        }
    }
    Ok(Behind { records, is_damage: synced > place.offset || !bad.is_torn })
}

/// A plain record could be a client's value. It counts where the bad record cannot be a torn one
/// that holds it, where records follow each other up to the end of the file, or where more of them
/// follow each other than a value holds.
fn plain(window: &mut Window, place: ScanEnd, bad: &Bad) -> io::Result<Behind> {
    let total = window.length();
    let (mut records, mut is_certain) = (0, false);
    let mut effort = (total - place.offset).saturating_mul(EFFORT).saturating_add(1 << 20);
    let mut chain: Option<(u64, u64)> = None;
    let mut at = place.offset + 1;
    while at < total {
        let bytes = plausible(window, at, place.at)?;
        let found = match bytes {
            Some(bytes) if bytes > effort => {
                // A client has filled the segment with beginnings of records.
                return Ok(Behind { records, is_damage: true });
            }
            Some(bytes) => {
                effort -= bytes;
                match Layout::Plain.look(window, at, 0)? {
                    Look::Whole(whole) if is_later(&whole.command, place.at) => Some(whole.end),
                    _ => None,
                }
            }
            None => None,
        };
        let Some(end) = found else {
            at += 1;
            continue;
        };
        let start = chain.filter(|chain| chain.1 == at).map_or(at, |chain| chain.0);
        chain = Some((start, end));
        is_certain |=
            end == total || end - start > CHOSEN_BYTES_MAX || bad.end.is_some_and(|end| at >= end);
        records += 1;
        at = end;
    }
    let records = if is_certain { records } else { 0 };
    Ok(Behind { records, is_damage: is_certain || !bad.is_torn })
}

const fn is_later(command: &Command, than: Instant) -> bool {
    command.at.0 >= than.0 && command.at.0 - than.0 <= YOUNGER_MICROS_MAX
}

/// Returns how many bytes a look at a plain record costs, if one may lie there at all: its length
/// fits, and its command's time is possible.
fn plausible(window: &mut Window, at: u64, than: Instant) -> io::Result<Option<u64>> {
    let total = window.length();
    let head = window.bytes(at, 18)?;
    if head.len() < 10 {
        return Ok(None);
    }
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
    if length < 2 || at + 8 + u64::from(length) > total {
        return Ok(None);
    }
    let time = postcard::take_from_bytes::<u64>(&head[8..]).map(|(time, _)| time);
    let is_possible = time.is_ok_and(|time| time.wrapping_sub(than.0) <= YOUNGER_MICROS_MAX);
    Ok(is_possible.then_some(u64::from(length)))
}
