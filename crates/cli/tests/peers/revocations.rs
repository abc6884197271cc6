//! Real processes with a secret: what of it, and of its revocations, a file carries over.

use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, Line, text};
use crate::cluster::{SOON, block_on, http, run, sanderling};
use crate::tokens::{in_file, operate, private, replace, signed_by};

/// The most secrets that a file may have, as SECURITY.md has it.
const SECRETS: usize = 8;

/// Waits until a server's log has a text.
async fn until_logged(guarded: &Guarded, what: &str) {
    let limit = Instant::now() + SOON;
    while !guarded.cluster.namenode.log().contains(what) {
        assert!(Instant::now() < limit, "{what}: {}", guarded.cluster.namenode.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn restored_catalog_has_the_revocations_of_its_backup_and_none_that_came_later() {
    let mut guarded = Guarded::start(0);
    let admin = guarded.token(&["--role", "admin"]);
    let (early_file, early) = in_file(&guarded, "early", &["--subject", "early"]);
    let (late_file, late) = in_file(&guarded, "late", &["--subject", "late"]);
    operate(&guarded, &admin, &["token", "revoke", "--file", &early_file]);
    let backup = text(guarded.cluster.path("catalog.backup"));
    let http = guarded.cluster.namenode.http_address.clone();
    operate(&guarded, &admin, &["namenode", "backup", "--to", &backup, "--http", &http]);
    operate(&guarded, &admin, &["token", "revoke", "--file", &late_file]);
    let is_revoked = |guarded: &Guarded, token| {
        let ran = guarded.cli(Some(token), &["fs", "ls", "/"]);
        assert!(ran.code == 0 || ran.stderr.contains("was revoked"), "{ran}");
        ran.code != 0
    };
    assert!(is_revoked(&guarded, &early) && is_revoked(&guarded, &late));
    guarded.cluster.namenode.kill();
    let catalog = guarded.cluster.path("catalog");
    std::fs::rename(&catalog, guarded.cluster.path("lost")).expect("renamed");
    let words = ["namenode", "restore", "--from", &backup, "--dir", &text(catalog)];
    let restored = run(sanderling().args(words));
    assert_eq!(restored.code, 0, "{restored}");
    guarded.cluster.restart_namenode();
    // As SECURITY.md warns: the list shows what is missing, and it is revoked again.
    let listed = operate(&guarded, &admin, &["token", "revoked", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["revoked"].as_array().map(Vec::len), Some(1), "{listed}");
    assert!(is_revoked(&guarded, &early) && !is_revoked(&guarded, &late));
    operate(&guarded, &admin, &["token", "revoke", "--file", &late_file]);
    assert!(is_revoked(&guarded, &early) && is_revoked(&guarded, &late));
}

#[test]
fn revocation_outlives_its_token() {
    let guarded = Guarded::start(0);
    let admin = guarded.token(&["--role", "admin"]);
    let (file, token) = in_file(&guarded, "short", &["--subject", "short", "--expires", "15s"]);
    operate(&guarded, &admin, &["token", "revoke", "--file", &file]);
    let limit = Instant::now() + SOON;
    // A token that has ended is refused as one that expired, whatever else holds of it.
    let has_ended = || {
        let ran = guarded.cli(Some(&token), &["fs", "ls", "/"]);
        assert_eq!(ran.code, 1, "{ran}");
        ran.stderr.contains("has expired")
    };
    while !has_ended() {
        assert!(Instant::now() < limit, "a token of fifteen seconds ends");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Each revocation drops those of before that are not needed any more.
    operate(&guarded, &admin, &["token", "revoke", "--subject", "another"]);
    let listed = operate(&guarded, &admin, &["token", "revoked", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["revoked"].as_array().map(Vec::len), Some(2), "{listed}");
}

#[test]
fn file_has_eight_secrets_at_most_and_a_ninth_changes_nothing() {
    let mut guarded = Guarded::start(0);
    let first = std::fs::read_to_string(&guarded.secret).expect("written");
    let further = (1..=SECRETS).map(|at| format!("{}\n", at.to_string().repeat(64)));
    let all: Vec<String> = std::iter::once(first).chain(further).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let address = guarded.cluster.namenode.address.clone();
    block_on(async {
        let health = http::get(&guarded.cluster.namenode.http_address, "/healthz").await;
        let id = health["cluster"].as_str().expect("an id");
        let (eighth, ninth) =
            (signed_by(&guarded, id, all[SECRETS - 1]), signed_by(&guarded, id, all[SECRETS]));
        replace(&guarded, &all[..SECRETS]);
        let limit = Instant::now() + SOON;
        while let Err(error) = Line::to(&guarded, &address, &eighth).await {
            assert!(Instant::now() < limit, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        replace(&guarded, &all);
        until_logged(&guarded, "at most 8 may be").await;
        assert!(Line::to(&guarded, &address, &eighth).await.is_ok());
        assert!(Line::to(&guarded, &address, &ninth).await.is_err());
    });
    guarded.cluster.namenode.kill();
    private(std::path::Path::new(&guarded.secret), &all.concat());
    let refused = guarded.cluster.refused_namenode(&["--secret-file", &guarded.secret]);
    assert!(refused.code != 0 && refused.stderr.contains("9 secrets"), "{refused}");
}
