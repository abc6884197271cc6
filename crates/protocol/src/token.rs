//! Tokens: what a caller shows in its greeting. Their text is a secret and is never printed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest text of a token: its names and paths have limits of their own.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The text of a token. Whoever has it may do what it says, so it shows itself to nobody: not in
/// `Debug`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Takes a token's text, without the white space around it that files and shells leave.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the text, to send it or to write it where its owner asked for it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(hidden)")
    }
}

/// Asks for a token that allows less than the caller's own, for as long or shorter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintToken {
    /// A name for the logs.
    pub subject: String,
    /// Where it holds: the caller's own subtree or one in it.
    pub subtree: crate::Path,
    /// What it allows, of what the caller's own allows: `read`, `write`, `admin`, `metrics`.
    pub rights: Vec<String>,
    /// How long it holds, at most as long as the caller's own.
    pub lifetime: crate::Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_token_is_not_shown() {
        let token = Token::new(" eyJ.secret.text\n");
        assert_eq!(token.reveal(), "eyJ.secret.text");
        assert_eq!(format!("{token:?} {:#?}", Some(&token)).matches("secret").count(), 0);
    }
}
