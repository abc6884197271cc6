//! Continuation tokens: where a listing goes on, with a checksum, so that what no listing gave is
//! refused.

use sanderling_protocol::checksum::crc32c;

/// Returns the token of a place.
pub(crate) fn of(place: &str) -> String {
    let mut token = format!("{:08x}", crc32c(place.as_bytes()));
    for byte in place.bytes() {
        token.push_str(&format!("{byte:02x}"));
    }
    token
}

/// Returns the place of a token; `None` when it is none.
pub(crate) fn place(token: &str) -> Option<String> {
    let (sum, hex) = token.split_at_checked(8)?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    if hex.len() % 2 != 0 || !hex.is_ascii() {
        return None;
    }
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    let place = String::from_utf8(bytes?).ok()?;
    (crc32c(place.as_bytes()) == sum).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_comes_back_and_nothing_else_is_taken() {
        assert_eq!(place(&of("a/ü\0")).as_deref(), Some("a/ü\0"));
        for token in ["", "a", "zzzzzzzz", "00000001", "0000000061", "ü", "é1234567"] {
            assert_eq!(place(token), None, "{token}");
        }
    }
}
