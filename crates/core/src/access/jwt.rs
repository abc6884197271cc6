//! The text of a token: a JSON Web Token (RFC 7519) in its compact form (RFC 7515, section 3.1),
//! with one header, so that nothing in it chooses how it is checked.

use data_encoding::BASE64URL_NOPAD;
use sanderling_protocol::token::read_hex;
use sanderling_protocol::{ClusterId, Path, Refusal, Token, TokenId, TokenSelector};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Claims, Lineage, Rights, SUBJECT_BYTES_MAX, TokenRole};

/// `{"alg":"HS256","typ":"JWT"}`, the only header.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// The payload.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenPayload {
    sub: String,
    role: String,
    path: Path,
    rights: Vec<String>,
    exp: u64,
    /// The token's number. This and what follows is missing in tokens of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parents: Vec<Parent>,
}

/// What names a token that this one was minted from.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Parent {
    Jti(String),
    Sub(String),
}

impl Parent {
    fn of(name: &TokenSelector) -> Self {
        match name {
            TokenSelector::Id(id) => Self::Jti(id.to_string()),
            TokenSelector::Subject(subject) => Self::Sub(subject.clone()),
        }
    }

    fn name(self) -> Option<TokenSelector> {
        match self {
            Self::Jti(text) => Some(TokenSelector::Id(TokenId(read_hex(&text)?))),
            Self::Sub(text) if text.len() <= SUBJECT_BYTES_MAX => {
                Some(TokenSelector::Subject(text))
            }
            Self::Sub(_) => None,
        }
    }
}

/// Returns the lineage in a payload; `None` if it cannot be read.
fn lineage(jti: Option<&str>, cluster: Option<&str>, parents: Vec<Parent>) -> Option<Lineage> {
    if parents.len() > Lineage::PARENTS_MAX {
        return None;
    }
    let id = jti.map(|text| read_hex(text).ok_or(())).transpose().ok()?.map(TokenId);
    let cluster = cluster.map(|text| read_hex(text).ok_or(())).transpose().ok()?.map(ClusterId);
    let parents = parents.into_iter().map(Parent::name).collect::<Option<Vec<_>>>()?;
    Some(Lineage { id, cluster, parents })
}

/// A reason why a token is refused. It never has any of the token's text, so neither does it have
/// the decoder's error as its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenFault {
    /// It is longer than any token.
    #[error("the token is too long")]
    TooLong,
    /// It does not consist of a header, a payload and a signature in base64.
    #[error("the token is not one of ours")]
    Malformed,
    /// Its header is another one than ours, which names the algorithm.
    #[error("the token's header is not that of HS256")]
    Header,
    /// Its payload is not what a server signs.
    #[error("{}", Refusal::TOKEN_CLAIMS)]
    Claims,
    /// Its owner is none that there is.
    #[error("the token's role is unknown")]
    Role,
    /// It has a right that this version does not have.
    #[error("the token has an unknown right")]
    Right,
    /// The name of its owner has more than [`SUBJECT_BYTES_MAX`] bytes.
    #[error("the token's subject is too long")]
    Subject,
}

/// A token taken apart. What it claims counts only when the signature is found to be right.
#[derive(Debug)]
pub struct Parts<'a> {
    /// What was signed.
    pub signed: &'a str,
    /// The signature.
    pub signature: Vec<u8>,
    payload: &'a str,
}

/// Returns the header and the claims of a token as the text that a server then signs.
#[must_use]
pub fn signed_text(claims: &Claims) -> String {
    let payload = TokenPayload {
        sub: claims.subject.clone(),
        role: claims.role.word().to_owned(),
        path: claims.subtree.clone(),
        rights: claims.rights.words().map(str::to_owned).collect(),
        exp: claims.expires_at,
        jti: claims.lineage.id.map(|id| id.to_string()),
        cluster: claims.lineage.cluster.map(|cluster| format!("{:016x}", cluster.0)),
        parents: claims.lineage.parents.iter().map(Parent::of).collect(),
    };
    let json = serde_json::to_vec(&payload).expect("texts and numbers have an encoding");
    format!("{HEADER}.{}", BASE64URL_NOPAD.encode(&json))
}

/// Returns the token that consists of a text from [`signed_text`] and its signature.
#[must_use]
pub fn join(signed: &str, signature: &[u8]) -> Token {
    Token::new(&format!("{signed}.{}", BASE64URL_NOPAD.encode(signature)))
}

/// Splits a token into the signed text, the signature and the claims. It verifies only the token's
/// form: the caller verifies the signature.
///
/// # Errors
/// [`TokenFault`]: another token is needed.
pub fn parts(token: &Token) -> Result<Parts<'_>, TokenFault> {
    let text = token.reveal();
    if text.len() > sanderling_protocol::token::TOKEN_BYTES_MAX {
        return Err(TokenFault::TooLong);
    }
    let malformed = TokenFault::Malformed;
    let (signed, signature) = text.rsplit_once('.').ok_or(malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(malformed)?;
    if header != HEADER {
        return Err(TokenFault::Header);
    }
    // One text for one sequence of bytes: this decoder refuses padding and left-over bits.
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).map_err(|_| malformed)?;
    Ok(Parts { signed, signature, payload })
}

impl Parts<'_> {
    /// Decodes the token's claims. They count only if the signature is right.
    ///
    /// # Errors
    /// [`TokenFault`]: another token is needed.
    pub fn claims(&self) -> Result<Claims, TokenFault> {
        let malformed = TokenFault::Claims;
        let json = BASE64URL_NOPAD.decode(self.payload.as_bytes()).map_err(|_| malformed)?;
        let payload: TokenPayload = serde_json::from_slice(&json).map_err(|_| malformed)?;
        let part = TokenRole::from_word(&payload.role).ok_or(TokenFault::Role)?;
        let rights = Rights::of_words(payload.rights.iter().map(String::as_str))
            .map_err(|_| TokenFault::Right)?;
        if payload.sub.len() > SUBJECT_BYTES_MAX {
            return Err(TokenFault::Subject);
        }
        let TokenPayload {
            sub: subject,
            path: subtree,
            exp: expires_at,
            jti,
            cluster,
            parents,
            ..
        } = payload;
        let lineage = lineage(jti.as_deref(), cluster.as_deref(), parents).ok_or(malformed)?;
        Ok(Claims { subject, role: part, subtree, rights, expires_at, lineage })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_is_the_encoding_of_its_algorithm() {
        assert_eq!(BASE64URL_NOPAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#), HEADER);
    }

    #[test]
    fn signature_has_one_text() {
        let read = |signature: &str| {
            let token = Token::new(&format!("{HEADER}.e30.{signature}"));
            parts(&token).map(|parts| parts.signature).ok()
        };
        // RFC 4648, section 10, without padding.
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(BASE64URL_NOPAD.encode(bytes.as_bytes()), text);
            assert_eq!(read(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(read("-_"), None, "left-over bits");
        for bad in ["Zh", "Z", "Zg==", "Z\ng", "Zm9+", "Zm9/", "Zü"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    fn claims() -> impl Strategy<Value = Claims> {
        let path = "(/[a-zA-Zü ]{1,8}){1,4}";
        (".{0,20}", 0..5_usize, path, 0..16_u8, any::<u64>(), lineages()).prop_map(
            |(subject, part, path, rights, expires_at, lineage)| Claims {
                subject,
                role: TokenRole::ALL[part].0,
                subtree: path.parse().unwrap(),
                rights: Rights(rights),
                expires_at,
                lineage,
            },
        )
    }

    fn lineages() -> impl Strategy<Value = Lineage> {
        let parent = prop_oneof![
            any::<u64>().prop_map(|id| TokenSelector::Id(TokenId(id))),
            ".{0,20}".prop_map(TokenSelector::Subject),
        ];
        let parents = proptest::collection::vec(parent, 0..=Lineage::PARENTS_MAX);
        (any::<Option<u64>>(), any::<Option<u64>>(), parents).prop_map(|(id, cluster, parents)| {
            Lineage { id: id.map(TokenId), cluster: cluster.map(ClusterId), parents }
        })
    }

    proptest! {
        #[test]
        fn claims_come_back(claims in claims(), signature: [u8; 32]) {
            let signed = signed_text(&claims);
            let token = join(&signed, &signature);
            let parts = parts(&token).unwrap();
            prop_assert_eq!(parts.signed, signed);
            prop_assert_eq!(&parts.signature, &signature);
            prop_assert_eq!(parts.claims().unwrap(), claims);
        }

        #[test]
        fn no_text_is_taken_for_claims_that_it_does_not_have(text in ".{0,200}", payload: Vec<u8>) {
            let _ = parts(&Token::new(&text)).map(|parts| parts.claims());
            let token = join(&format!("{HEADER}.{}", BASE64URL_NOPAD.encode(&payload)), &[0; 32]);
            prop_assert!(parts(&token).unwrap().claims().is_err());
        }
    }

    #[test]
    fn claims_that_are_not_ours_are_refused() {
        let good = r#"{"sub":"a","role":"client","path":"/a","rights":["read"],"exp":1}"#;
        let read = |json: &str| {
            let token =
                join(&format!("{HEADER}.{}", BASE64URL_NOPAD.encode(json.as_bytes())), b"x");
            parts(&token).and_then(|parts| parts.claims())
        };
        assert_eq!(read(good).unwrap().rights, Rights::READ);
        assert_eq!(read(good).unwrap().lineage, Lineage::default(), "of an earlier release");
        // What has nothing new is read by an earlier release, which supports no other claims.
        let again = signed_text(&read(good).unwrap());
        assert_eq!(again, format!("{HEADER}.{}", BASE64URL_NOPAD.encode(good.as_bytes())));
        let named = good.replace("}", ",\"jti\":\"00000000000000ff\"}");
        assert_eq!(read(&named).unwrap().lineage.id, Some(TokenId(255)));
        assert!(read(&named.replace("ff", "FF")).is_err());
        for (from, to, fault) in [
            ("client", "root", TokenFault::Role),
            ("\"read\"", "\"fly\"", TokenFault::Right),
            ("/a", "a", TokenFault::Claims),
            ("/a", "/a/../b", TokenFault::Claims),
            ("\"exp\":1", "\"exp\":-1", TokenFault::Claims),
            ("\"exp\":1", "\"exp\":1,\"nbf\":2", TokenFault::Claims),
            (",\"exp\":1", "", TokenFault::Claims),
        ] {
            assert_eq!(read(&good.replace(from, to)), Err(fault), "{from} as {to}");
        }
        let none = BASE64URL_NOPAD.encode(br#"{"alg":"none","typ":"JWT"}"#);
        let of_none = Token::new(&format!("{none}.e30."));
        assert_eq!(parts(&of_none).unwrap_err(), TokenFault::Header);
    }
}
