//! XML as S3 reads and writes it, where the library does not.

use std::borrow::Cow;

/// Longest numeric reference that is looked at: `&#x` and eight digits, with zeros before them.
const REFERENCE_BYTES_MAX: usize = 16;

/// What begins a section whose text is taken as it is.
const SECTION: &[u8] = b"<![CDATA[";

/// Rewrites what s3s 0.14 reads wrongly: it refuses numeric references to characters from U+10000
/// to U+FFFFF (its table begins at U+100000) and to control characters, which keys may have, and
/// passes over CDATA sections as if nothing stood there. Whatever is wrong itself stays as it is,
/// and is refused by the parser.
pub(crate) fn mended(xml: &[u8]) -> Cow<'_, [u8]> {
    let is_needed = |at: usize| xml[at..].starts_with(b"&#") || xml[at..].starts_with(b"<!");
    let Some(first) = (0..xml.len()).find(|at| is_needed(*at)) else { return Cow::Borrowed(xml) };
    let mut text = Vec::with_capacity(xml.len());
    text.extend_from_slice(&xml[..first]);
    let mut rest = &xml[first..];
    while let Some(byte) = rest.first() {
        let is_comment = rest.starts_with(b"<!--");
        let taken = if is_comment || rest.starts_with(SECTION) {
            let end: &[u8] = if is_comment { b"-->" } else { b"]]>" };
            let Some(length) = rest.windows(end.len()).skip(4).position(|it| it == end) else {
                // Nothing behind it is read: the parser refuses it. Looked for once, and no more.
                break;
            };
            if !is_comment {
                push_escaped(&mut text, rest[..length + 4].strip_prefix(SECTION).unwrap_or(b""));
            }
            length + 4 + end.len()
        } else if let Some((char, taken)) = reference(rest) {
            text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            taken
        } else {
            text.push(*byte);
            1
        };
        rest = &rest[taken..];
    }
    text.extend_from_slice(rest);
    Cow::Owned(text)
}

/// Reads a reference to a character that the library refuses. Returns it and the reference's bytes.
fn reference(text: &[u8]) -> Option<(char, usize)> {
    if text.first() != Some(&b'&') {
        return None;
    }
    let within = &text[..text.len().min(REFERENCE_BYTES_MAX)];
    let end = within.iter().position(|byte| *byte == b';')?;
    let digits = std::str::from_utf8(within[..end].strip_prefix(b"&#")?).ok()?;
    let number = match digits.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let char = char::from_u32(number.ok()?)?;
    let is_refused = match char {
        '\0' | '\t' | '\n' | '\r' => false,
        '\u{fffe}' | '\u{ffff}' | '\u{10000}'..='\u{fffff}' => true,
        char => char < ' ',
    };
    is_refused.then_some((char, end + 1))
}

/// Escapes bytes, which may be no UTF-8: quick-xml escapes only text.
fn push_escaped(text: &mut Vec<u8>, raw: &[u8]) {
    for byte in raw {
        match byte {
            b'&' => text.extend_from_slice(b"&amp;"),
            b'<' => text.extend_from_slice(b"&lt;"),
            b'>' => text.extend_from_slice(b"&gt;"),
            byte => text.push(*byte),
        }
    }
}

/// Returns a text as the content of an element.
pub(crate) fn escaped(raw: &str) -> String {
    let mut text = Vec::with_capacity(raw.len());
    push_escaped(&mut text, raw.as_bytes());
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes characters as references that XML 1.0 cannot have, or would change: control characters,
/// of which a carriage return becomes a line's end, U+FFFE and U+FFFF. S3 writes them so, and what
/// else is in the text stays.
pub(crate) fn without_controls(xml: &[u8]) -> Cow<'_, [u8]> {
    let is_control = |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n');
    let none_like = |at: usize| {
        let last = xml[at..].strip_prefix(b"\xef\xbf").and_then(|rest| rest.first());
        last.copied().filter(|last| matches!(last, 0xbe | 0xbf))
    };
    let is_written = |at: usize| is_control(xml[at]) || none_like(at).is_some();
    let Some(first) = (0..xml.len()).find(|at| is_written(*at)) else { return Cow::Borrowed(xml) };
    let mut text = xml[..first].to_vec();
    let mut at = first;
    while at < xml.len() {
        if is_control(xml[at]) {
            text.extend_from_slice(format!("&#x{:X};", xml[at]).as_bytes());
        } else if let Some(last) = none_like(at) {
            text.extend_from_slice(format!("&#xFFF{:X};", last - 0xb0).as_bytes());
            at += 2;
        } else {
            text.push(xml[at]);
        }
        at += 1;
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(xml: &str) -> String {
        String::from_utf8(mended(xml.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn references_that_are_refused_become_what_they_mean() {
        assert_eq!(text("<a>&#128512;&#x1F600;&#x01;</a>"), "<a>😀😀\u{1}</a>");
        for same in [
            "<a>&#60;&#x26;&amp;&#xD;</a>",
            "&#0;",
            "&#xD800;",
            "&#x110000;",
            "&#;",
            "&#",
            "&#99999999999999999999;",
            "&#1",
            "&unknown;",
        ] {
            assert_eq!(text(same), same);
        }
    }

    #[test]
    fn section_is_text_and_comment_is_none() {
        assert_eq!(text("<a><![CDATA[<b>&#128512;]]]></a>"), "<a>&lt;b&gt;&amp;#128512;]</a>");
        assert_eq!(text("<!-- <![CDATA[ --><a/><!-- ]]> -->"), "<a/>");
        // Many that do not end are looked through once.
        let open = "<!--".repeat(1 << 20);
        assert_eq!(text(&open), open);
        for same in ["<![CDATA[x", "<!-- x", "<!DOCTYPE a>", "<!"] {
            assert_eq!(text(same), same);
        }
    }

    #[test]
    fn characters_that_xml_cannot_have_are_written_as_references() {
        let of =
            |xml: &str| String::from_utf8(without_controls(xml.as_bytes()).into_owned()).unwrap();
        assert_eq!(of("<a>\u{1}\r\u{1f}</a>"), "<a>&#x1;&#xD;&#x1F;</a>");
        assert_eq!(of("\u{fffe}\u{ffff}\u{fffd}"), "&#xFFFE;&#xFFFF;\u{fffd}");
        assert_eq!(of("a\tb\nü😀\u{7f}"), "a\tb\nü😀\u{7f}");
    }

    proptest! {
        /// Whatever comes, nothing panics, and what has no reference and no section is as it was.
        #[test]
        fn all_bytes_are_taken(xml in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b'&'), Just(b'#'), Just(b'<'), Just(b'!'), Just(b';')],
            0..64,
        )) {
            let mended = mended(&xml);
            if !xml.windows(2).any(|it| it == b"&#" || it == b"<!") {
                prop_assert_eq!(&mended[..], &xml[..]);
            }
            let written = without_controls(&xml);
            let is_control = |byte: &u8| *byte < b' ' && !matches!(*byte, b'\t' | b'\n');
            prop_assert!(!written.iter().any(is_control));
        }
    }
}
