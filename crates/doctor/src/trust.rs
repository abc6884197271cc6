//! Tokens, secrets, and the certificates of the fleet.

use std::time::Duration;

use sanderling_command::units;
use sanderling_transport::{ValidityState, worst};

use super::check::{Check, of_nodes};
use super::fleet::not_seen;
use super::observations::{ClusterLook, Unseen};

/// A token that ends this soon, in seconds, should be replaced: an hour leaves time for it. Chosen,
/// not measured.
const TOKEN_ENDS_SECONDS: u64 = 3600;

const TOKEN: &str = "sanderling token new --out FILE on a machine with the secret, \
                     then --token-file FILE: docs/SECURITY.md#tokens";

/// Returns what is to be known of the token, the secrets, and the datanodes' certificates.
pub(super) fn all(look: &ClusterLook) -> Vec<Check> {
    let checks = [token(look), revoked(look), secrets(look)];
    let mut checks: Vec<Check> = checks.into_iter().flatten().collect();
    checks.extend(certificates(look));
    checks
}

/// Returns what is to be known of the token that was shown.
pub(super) fn token(look: &ClusterLook) -> Option<Check> {
    let id = "token";
    let claims = match look.token.as_ref()? {
        Ok(claims) => claims,
        Err(why) => return Some(Check::fail("token.unreadable", why.to_string(), TOKEN)),
    };
    let rights: Vec<&str> = claims.rights.words().collect();
    let subject = &claims.subject;
    let whose =
        format!("{subject:?} ({}: {}) below {}", claims.role, rights.join(", "), claims.subtree);
    let span = |seconds: u64| units::duration(Duration::from_secs(seconds));
    Some(match claims.expires_at.checked_sub(look.now) {
        None | Some(0) => {
            let ago = span(look.now.saturating_sub(claims.expires_at));
            let found = format!("the token of {whose} has expired {ago} ago");
            let next = "the same with --token-file FILE";
            Check::fail("token.expired", found, TOKEN).with_next(next)
        }
        Some(left) if left <= TOKEN_ENDS_SECONDS => {
            let found = format!("the token of {whose} expires in {}", span(left));
            Check::warn("token.expires", found, TOKEN)
        }
        Some(left) => Check::ok(id, format!("{whose} holds for {}", span(left))),
    })
}

fn revoked(look: &ClusterLook) -> Option<Check> {
    look.token.as_ref()?;
    match &look.revoked {
        Ok(0) => Some(Check::ok("revoked", "no token is revoked")),
        Ok(count) => {
            let count = units::count(*count as u64, "revocation is", "revocations are");
            let check = Check::ok("revoked", format!("{count} in force"));
            Some(check.with_mend("sanderling token revoked lists them"))
        }
        Err(unseen @ Unseen::Right(_)) => {
            Some(not_seen("revoked.unseen", "revoked tokens", unseen))
        }
        Err(_) => None,
    }
}

/// Compares how many secrets the servers accept.
fn secrets(look: &ClusterLook) -> Option<Check> {
    let here = look.namenode.figures.as_ref().ok()?.count("sanderling_namenode_secrets")?;
    if here == 0 {
        return None;
    }
    let other = look.servers().filter_map(|(name, server)| {
        let figures = server.figures.as_ref().ok()?;
        let count = figures.count("sanderling_datanode_secrets")?;
        (count != here).then(|| (name.to_owned(), units::count(count, "secret", "secrets")))
    });
    let mend = "take the next step of the rotation on every server: \
                docs/SECURITY.md#another-secret";
    let accepted = units::count(here, "secret", "secrets");
    let differing = of_nodes(
        |found| {
            Check::warn("secrets.differ", format!("the namenode accepts {accepted}; {found}"), mend)
        },
        ("node accepts another number", "nodes accept another number"),
        other.collect(),
    );
    Some(differing.unwrap_or_else(|| match here {
        1 => Check::ok("secrets", "all servers accept one secret"),
        _ => {
            let found = format!("{accepted} are accepted: a rotation is under way");
            Check::ok("secrets.rotation", found).with_mend(mend)
        }
    }))
}

/// Looks at the certificates that the datanodes show.
fn certificates(look: &ClusterLook) -> Vec<Check> {
    let mend = "sanderling tls renew, then its files in place: \
                docs/DAY-TWO.md#sanderlingcertificateends";
    let (mut failed, mut ending, mut distrusted) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = 0;
    for node in &look.datanodes {
        let Some(Ok(shown)) = &node.certificates else { continue };
        seen += 1;
        let Some(validity) = worst(&shown.validities, look.now) else { continue };
        let detail = format!("{}, {} days left", validity.end_date(), validity.days_left(look.now));
        match validity.life(look.now) {
            ValidityState::Good => {}
            ValidityState::Ending => ending.push((node.name.clone(), detail)),
            ValidityState::Early | ValidityState::Ended => {
                failed.push((node.name.clone(), detail));
                continue;
            }
        }
        if let Some(why) = &shown.distrust {
            distrusted.push((node.name.clone(), why.clone()));
        }
    }
    let failed = of_nodes(
        |found| Check::fail("certs.ended", found, mend),
        ("node's certificate is not valid now", "nodes' certificates are not valid now"),
        failed,
    );
    let distrusted = of_nodes(
        |found| Check::fail("certs.distrusted", found, mend),
        ("node's certificate is not trusted", "nodes' certificates are not trusted"),
        distrusted,
    );
    let ending = of_nodes(
        |found| Check::warn("certs.end", found, mend),
        ("node's certificate ends soon", "nodes' certificates end soon"),
        ending,
    );
    let mut checks: Vec<Check> = [failed, distrusted, ending].into_iter().flatten().collect();
    if checks.is_empty() && seen > 0 {
        let nodes = units::count(seen, "datanode's", "datanodes'");
        checks.push(Check::ok("certs", format!("{nodes} certificates are far from their end")));
    }
    checks
}
