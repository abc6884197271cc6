//! When certificates end: what the namenode shows, and the files that were given.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use sanderling_command::session::Session;
use sanderling_transport::{
    ClientTls, Validity, ValidityState, read_validities, unix_seconds, worst,
};
use tokio::time::timeout;

use super::check::{Check, CheckLevel, Dates};

const NAME: &str = "cert";

/// How long the handshake may take. One lost packet is sent again within it (after 1 s, RFC 6298);
/// the doctor is to end within seconds. Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const RENEW: &str =
    "sanderling tls renew --authority DIR --out DIR, then put its files in place";

/// What to do about a certificate of an authority, or for a name, that the caller does not trust.
pub(super) const OTHER_AUTHORITY: &str = "--tls-ca PEM of the authority that has signed it, and \
    --tls-name NAME as it was made for; or sanderling tls renew --authority DIR --out DIR, then \
    put its files in place";

pub(super) const SET_THE_CLOCK: &str = "set the clock, or wait";

const RENEW_AUTHORITY: &str =
    "sanderling tls new --out DIR, then the steps of SECURITY.md, Certificates";

/// Checks the certificates of a cluster with TLS. Without `--tls-ca` only the file of a server's
/// certificate is looked at, if there is one.
pub(super) async fn all(session: &Session, own: Option<&Path>) -> Vec<Check> {
    let mut checks = Vec::new();
    let tls = session.credentials.tls.as_ref();
    if let Some(tls) = tls {
        for address in session.namenode.split(',') {
            checks.push(shown(tls, address).await);
        }
        let what = format!("the first to end of the authorities in {}", tls.file());
        checks.push(dated(what, &tls.validities(), RENEW_AUTHORITY));
    }
    checks.extend(own.map(|file| of_file(tls, file)));
    checks
}

/// Looks at what a server shows in a handshake.
async fn shown(tls: &ClientTls, address: &str) -> Check {
    let what = format!("what {address} shows");
    let seen = match timeout(ANSWER_TIMEOUT, tls.shown_by(address)).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => {
            let mend = match error.kind() {
                ErrorKind::ConnectionRefused => "start the namenode",
                _ => "the line of the namenode",
            };
            return Check::warn(NAME, format!("{what} was not seen: {error}"), mend);
        }
        Err(_) => return Check::warn(NAME, format!("{what} was not seen in time"), "its log"),
    };
    let check = dated(what, &seen.validities, RENEW);
    match seen.distrust {
        Some(why) if check.verdict != CheckLevel::Fail => {
            let found = format!("{}: {why}", check.found);
            Check { dates: check.dates, ..Check::fail(NAME, found, OTHER_AUTHORITY) }
        }
        _ => check,
    }
}

/// Looks at the file of a server's certificate.
fn of_file(tls: Option<&ClientTls>, file: &Path) -> Check {
    let validities = match read_validities(file) {
        Ok(validities) => validities,
        Err(error) => return Check::fail(NAME, error.to_string(), RENEW),
    };
    let check = dated(file.display().to_string(), &validities, RENEW);
    let believed = tls.map_or(Ok(()), |tls| {
        let pem = std::fs::read(file).unwrap_or_default();
        tls.check(file, &pem)
    });
    match believed {
        Err(error) if check.verdict != CheckLevel::Fail => {
            Check { dates: check.dates, ..Check::fail(NAME, error.to_string(), RENEW) }
        }
        _ => check,
    }
}

fn dated(what: String, validities: &[Validity], renew: &str) -> Check {
    let now = unix_seconds();
    let Some(validity) = worst(validities, now) else {
        return Check::fail(NAME, format!("{what}: no dates can be read"), renew);
    };
    let days_left = validity.days_left(now);
    let check = match validity.life(now) {
        ValidityState::Good => {
            let ends = validity.end_date();
            Check::ok(NAME, format!("{what} ends {ends}, {days_left} days left"))
        }
        ValidityState::Ending => {
            let ends = validity.end_date();
            let found = format!("{what} ends soon, {ends}, {days_left} days left");
            Check::warn(NAME, found, renew)
        }
        ValidityState::Early => {
            let begins = validity.begin_date();
            let found = format!("{what} is not valid before {begins}, by this machine's clock");
            Check::fail(NAME, found, SET_THE_CLOCK)
        }
        ValidityState::Ended => {
            Check::fail(NAME, format!("{what} has ended: {}", validity.end_date()), renew)
        }
    };
    Check { dates: Some(Dates { ends_unix_seconds: validity.ends, days_left }), ..check }
}
