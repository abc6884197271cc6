//! Percent-encoding, as listings (`encoding-type=url`) and tags use it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986, section 2.3.
pub(crate) const COMPONENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// [`COMPONENT`] for a text whose slashes stay.
pub(crate) const PATH: &AsciiSet = &COMPONENT.remove(b'/');

/// Encodes the characters of a set, and all that are not ASCII.
pub(crate) fn encode(text: &str, set: &'static AsciiSet) -> String {
    utf8_percent_encode(text, set).to_string()
}

/// Decodes a component of a query: `+` is a space. `None` when it is no such text: the
/// crate's decoder would pass a broken escape on, here it is refused.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        assert_eq!(encode("a b/ü", PATH), "a%20b/%C3%BC");
        assert_eq!(decode("a%20b/%C3%BC+c").as_deref(), Some("a b/ü c"));
        assert_eq!(encode("-_.~/+*'%\0", COMPONENT), "-_.~%2F%2B%2A%27%25%00");
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%f"), None);
        assert_eq!(decode("%ff"), None);
    }
}
