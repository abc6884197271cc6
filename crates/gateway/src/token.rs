//! Continuation tokens: where a listing goes on, with a checksum, so that what no listing gave is
//! refused.

use data_encoding::HEXLOWER_PERMISSIVE;
use sanderling_protocol::checksum::crc32c;

/// Returns the token of a place.
pub(crate) fn of(place: &str) -> String {
    let sum = crc32c(place.as_bytes()).to_be_bytes();
    HEXLOWER_PERMISSIVE.encode(&[&sum, place.as_bytes()].concat())
}

/// Returns the place of a token; `None` when it is none.
pub(crate) fn place(token: &str) -> Option<String> {
    let bytes = HEXLOWER_PERMISSIVE.decode(token.as_bytes()).ok()?;
    let (sum, place) = bytes.split_first_chunk()?;
    (crc32c(place) == u32::from_be_bytes(*sum)).then(|| String::from_utf8(place.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_comes_back_and_nothing_else_is_taken() {
        assert_eq!(of("a/"), "1cf17859612f");
        assert_eq!(place(&of("a/ü\0")).as_deref(), Some("a/ü\0"));
        let signed = of("\u{f}").replace("0f", "+f");
        assert_eq!(place(&signed), None, "{signed}");
        for token in ["", "a", "zzzzzzzz", "00000001", "0000000061", "ü", "é1234567"] {
            assert_eq!(place(token), None, "{token}");
        }
    }
}
