//! Percent-encoding, as listings (`encoding-type=url`) and tags use it.

/// Encodes all but letters, digits, `-_.~` and the bytes of `kept`.
pub(crate) fn encode(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || kept.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Decodes a component of a query: `+` is a space. `None` when it is no such text.
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
        assert_eq!(encode("a b/ü", b"/"), "a%20b/%C3%BC");
        assert_eq!(decode("a%20b/%C3%BC+c").as_deref(), Some("a b/ü c"));
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%f"), None);
        assert_eq!(decode("%ff"), None);
    }
}
