//! Keys and paths: which object an S3 key names, and back.
//!
//! A key is cut at `/` and each piece is a component of a path, so what one interface writes every
//! other interface finds under the same name. Pieces that no path may have are written differently,
//! with a prefix that keys do not have by chance:
//!
//! | piece of the key | component of the path |
//! | --- | --- |
//! | empty (`a//b`, `a/`) | `%!e` |
//! | `.` | `%!d` |
//! | `..` | `%!dd` |
//! | begins with `%!` | `%!p`, then the rest |
//! | longer than 255 bytes | `%!l` with its first 249 to 252 bytes, a directory, in it the rest |

use sanderling_protocol::limits::NAME_BYTES_MAX;
use sanderling_protocol::{Path, Refusal};

/// What begins a component that stands for a piece of a key which no path may have.
pub(crate) const ESCAPE: &str = "%!";

/// The component under which a bucket keeps its unfinished uploads: no key leads there.
pub(crate) const UPLOADS: &str = "%!u";

/// The component under which a bucket keeps its rules for pages of other origins: nor there.
pub(crate) const RULES: &str = "%!c";

/// What begins the name of a directory beside the buckets that has what a bucket kept while the
/// bucket is deleted: no bucket is listed under it.
pub(crate) const ASIDE: &str = "%!b";

pub(crate) const EMPTY: &str = "%!e";
pub(crate) const DOT: &str = "%!d";
pub(crate) const DOTS: &str = "%!dd";
pub(crate) const PREFIXED: &str = "%!p";
pub(crate) const LONG: &str = "%!l";

/// Bytes of a long piece that fit behind `%!l`.
const LONG_BYTES_MAX: usize = NAME_BYTES_MAX - LONG.len();

/// What a component of a path is in a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyComponent {
    /// A whole piece.
    Whole(String),
    /// The start of a long piece, which goes on inside this directory.
    Start(String),
}

impl KeyComponent {
    /// Returns the piece, or its start.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Whole(text) | Self::Start(text) => text,
        }
    }

    /// Returns the piece, or its start, without copying it.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Whole(text) | Self::Start(text) => text,
        }
    }
}

/// Returns the path of a key in a bucket.
///
/// # Errors
/// [`Refusal::BadPath`] when there are more pieces than a path may have components.
pub(crate) fn path_of(bucket: &Path, key: &str) -> Result<Path, Refusal> {
    let mut text = if bucket.is_root() { String::new() } else { bucket.as_str().to_owned() };
    for piece in key.split('/') {
        push_piece(&mut text, piece);
    }
    text.parse()
}

/// Returns the path of the directory in which keys of that prefix are, and that directory's own
/// part of the prefix: all up to the last `/`.
pub(crate) fn directory_of<'a>(bucket: &Path, prefix: &'a str) -> Result<(Path, &'a str), Refusal> {
    match prefix.rfind('/') {
        None => Ok((bucket.clone(), "")),
        Some(cut) => Ok((path_of(bucket, &prefix[..cut])?, &prefix[..=cut])),
    }
}

fn push_piece(text: &mut String, piece: &str) {
    text.push('/');
    let escaped_bytes = piece.len() - ESCAPE.len().min(piece.len()) + PREFIXED.len();
    match piece {
        "" => text.push_str(EMPTY),
        "." => text.push_str(DOT),
        ".." => text.push_str(DOTS),
        _ if !piece.starts_with(ESCAPE) && piece.len() <= NAME_BYTES_MAX => text.push_str(piece),
        _ if piece.starts_with(ESCAPE) && escaped_bytes <= NAME_BYTES_MAX => {
            text.push_str(PREFIXED);
            text.push_str(&piece[ESCAPE.len()..]);
        }
        _ => {
            let (start, rest) = piece.split_at(piece.floor_char_boundary(LONG_BYTES_MAX));
            text.push_str(LONG);
            text.push_str(start);
            push_piece(text, rest);
        }
    }
}

/// Returns what a component of a path is in a key; `None` when no key leads there.
pub(crate) fn piece_of(component: &str) -> Option<KeyComponent> {
    if !component.starts_with(ESCAPE) {
        return Some(KeyComponent::Whole(component.to_owned()));
    }
    let whole = |piece: &str| Some(KeyComponent::Whole(piece.to_owned()));
    match component {
        EMPTY => whole(""),
        DOT => whole("."),
        DOTS => whole(".."),
        _ => {
            if let Some(rest) = component.strip_prefix(PREFIXED) {
                return Some(KeyComponent::Whole(format!("{ESCAPE}{rest}")));
            }
            let start = component.strip_prefix(LONG)?;
            // Shorter ones were made by another interface: no key leads there.
            (start.len() + 4 > LONG_BYTES_MAX).then(|| KeyComponent::Start(start.to_owned()))
        }
    }
}

/// Returns the least text behind every text that begins with this one; `None` when there is none.
pub(crate) fn behind(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        if let Some(next) = next_char(last) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

fn next_char(char: char) -> Option<char> {
    match char {
        // What lies between is reserved for surrogates.
        '\u{d7ff}' => Some('\u{e000}'),
        _ => char::from_u32(u32::from(char) + 1),
    }
}

/// Returns a name behind which a listing that begins at `name` can start: a little before it.
pub(crate) fn before(name: &str) -> String {
    let mut text = name.to_owned();
    let Some(last) = text.pop() else { return text };
    let previous = match last {
        '\0' => return text,
        '\u{e000}' => Some('\u{d7ff}'),
        _ => char::from_u32(u32::from(last) - 1),
    };
    // Names may be this long; what lies between is passed over.
    if let Some(previous) = previous.filter(|char| *char != '/') {
        text.push(previous);
        text.push(char::MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket() -> Path {
        "/bucket".parse().unwrap()
    }

    /// Returns the key that a path is reached by, as a listing finds it.
    fn key_of(path: &Path) -> Option<String> {
        let mut key = String::new();
        let mut is_first = true;
        for component in path.components().skip(1) {
            if !is_first {
                key.push('/');
            }
            is_first = false;
            match piece_of(component)? {
                KeyComponent::Whole(piece) => key.push_str(&piece),
                KeyComponent::Start(start) => {
                    key.push_str(&start);
                    is_first = true;
                }
            }
        }
        Some(key)
    }

    #[test]
    fn plain_keys_are_paths_as_they_are() {
        assert_eq!(path_of(&bucket(), "a/ü=1/part-0").unwrap().as_str(), "/bucket/a/ü=1/part-0");
    }

    #[test]
    fn keys_that_no_path_may_have_come_back() {
        let long = "x".repeat(1000);
        let keys =
            ["a//b", "a/", "/", "/a", ".", "a/../b", "./", "%!", "%!e", "%!p%!", "%25", &long];
        for key in keys {
            let path = path_of(&bucket(), key).unwrap();
            assert_eq!(key_of(&path).as_deref(), Some(key), "{path}");
        }
        assert_eq!(path_of(&bucket(), "a//b/").unwrap().as_str(), "/bucket/a/%!e/b/%!e");
    }

    #[test]
    fn no_key_leads_to_what_the_gateway_keeps() {
        assert_eq!((piece_of(UPLOADS), piece_of(RULES)), (None, None));
        assert_eq!(piece_of("%!lshort"), None);
    }

    #[test]
    fn depth_is_bounded() {
        assert!(path_of(&bucket(), &"a/".repeat(200)).is_err());
    }

    proptest! {
        #[test]
        fn different_keys_have_different_paths(
            a in "[a.%!/é]{0,12}|[aé]{240,600}", b in "[a.%!/é]{0,12}|[aé]{240,600}",
        ) {
            let path_a = path_of(&bucket(), &a).unwrap();
            let path_b = path_of(&bucket(), &b).unwrap();
            prop_assert_eq!(key_of(&path_a), Some(a.clone()));
            prop_assert_eq!(path_a == path_b, a == b);
        }

        #[test]
        fn bounds_enclose(prefix in "\\PC{1,5}", rest in "\\PC{0,5}") {
            let text = format!("{prefix}{rest}");
            prop_assert!(behind(&prefix).is_none_or(|end| text < end));
            prop_assert!(before(&prefix) < prefix);
        }
    }
}
