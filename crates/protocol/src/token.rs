//! Tokens: what a caller shows in its greeting. Their text is a secret and is never printed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest text of a token: its names and paths have limits of their own. Sixteen names of parents
/// of 256 bytes take at most 5.5 KiB in base64, which leaves room for long paths. The 1,024 callers
/// that a server keeps before it admits them hold 17 MiB with the longest tokens.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The text of a token. Its holder may do what its claims allow, so the text is never shown: not in
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

    /// Returns the text, to send it or to write it where its owner requested.
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

/// Requests a token that allows less than the caller's own, for as long or shorter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintToken {
    /// A name for the logs.
    pub subject: String,
    /// Where its rights apply: the caller's own subtree or one in it.
    pub subtree: crate::Path,
    /// Its rights, among those of the caller's own token: `read`, `write`, `admin`, `metrics`.
    pub rights: Vec<String>,
    /// Its life in milliseconds, at most the rest of the caller's own.
    pub lifetime: crate::Millis,
}

/// The number of one token, drawn at random when it was made. It is no secret: with it one can name
/// the token, and not use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// An error of a text that is not the number of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a token's number has 16 hexadecimal digits")]
pub struct TokenIdError;

impl FromStr for TokenId {
    type Err = TokenIdError;

    /// Reads what is displayed: 16 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read_hex(text).map(Self).ok_or(TokenIdError)
    }
}

/// Reads the 16 hexadecimal digits, in lower case, in which ids of tokens, clusters and blocks are
/// written; `None` for any other text.
#[must_use]
pub fn read_hex(text: &str) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = text.len() == 16 && text.bytes().all(is_digit);
    is_number.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// Selects tokens, with all that were minted from them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TokenSelector {
    /// The token with this number.
    Id(TokenId),
    /// All tokens of this subject, those that are still to be made among them.
    Subject(String),
}

impl fmt::Display for TokenSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(formatter, "token {id}"),
            Self::Subject(subject) => write!(formatter, "tokens of {subject:?}"),
        }
    }
}

/// Tokens that are revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The selected tokens.
    pub tokens: TokenSelector,
    /// When the last of them has ended by itself, in seconds since 1970: the revocation is kept
    /// until a day after that.
    pub until: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tokens_come_back() {
        let id = TokenId(0x2a);
        assert_eq!(id.to_string(), "000000000000002a");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["2a", "000000000000002A", "+00000000000002a", "000000000000002a0", ""] {
            assert!(bad.parse::<TokenId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn text_of_a_token_is_not_shown() {
        let token = Token::new(" eyJ.secret.text\n");
        assert_eq!(token.reveal(), "eyJ.secret.text");
        assert_eq!(format!("{token:?} {:#?}", Some(&token)).matches("secret").count(), 0);
    }
}
