//! The help texts equal the golden files. `UPDATE=1 cargo test -p sanderling-cli --test help`
//! writes them anew.

mod cluster;

use std::path::PathBuf;

use cluster::{run, sanderling};

const COMMANDS: &[&[&str]] = &[
    &[],
    &["tour"],
    &["local"],
    &["local", "start"],
    &["local", "add"],
    &["local", "restart"],
    &["local", "stop"],
    &["local", "status"],
    &["namenode"],
    &["namenode", "backup"],
    &["namenode", "restore"],
    &["namenode", "recover"],
    &["datanode"],
    &["datanode", "drain"],
    &["manager"],
    &["gateway"],
    &["gateway", "s3"],
    &["fs"],
    &["fs", "ls"],
    &["fs", "put"],
    &["fs", "get"],
    &["fs", "cat"],
    &["fs", "rm"],
    &["fs", "mkdir"],
    &["fs", "cp"],
    &["fs", "mv"],
    &["fs", "stat"],
    &["fs", "attr"],
    &["fs", "concat"],
    &["fs", "du"],
    &["fs", "df"],
    &["fs", "tree"],
    &["job"],
    &["job", "ls"],
    &["job", "new"],
    &["job", "renew"],
    &["job", "end"],
    &["task"],
    &["task", "run"],
    &["task", "ls"],
    &["task", "restore"],
    &["task", "verify"],
    &["task", "gc"],
    &["task", "predict"],
    &["task", "submit"],
    &["task", "agent"],
    &["task", "bag"],
    &["node"],
    &["node", "ls"],
    &["node", "notice"],
    &["node", "recommend"],
    &["node", "decommission"],
    &["node", "cancel"],
    &["group"],
    &["group", "ls"],
    &["group", "move-leader"],
    &["group", "recover"],
    &["group", "remove"],
    &["top"],
    &["events"],
    &["fsck"],
    &["bench"],
    &["bench", "scale"],
    &["bench", "create-seal"],
    &["bench", "noisy"],
    &["sim"],
    &["lab"],
    &["lab", "read"],
    &["lab", "figure2"],
    &["lab", "figure6"],
    &["lab", "figure7"],
    &["lab", "checkpoint"],
    &["lab", "trace"],
    &["lab", "page"],
    &["token"],
    &["token", "secret"],
    &["token", "new"],
    &["token", "revoke"],
    &["token", "revoked"],
    &["token", "mint"],
    &["tls"],
    &["tls", "new"],
    &["tls", "renew"],
    &["context"],
    &["context", "add"],
    &["context", "use"],
    &["context", "ls"],
    &["context", "rm"],
    &["config"],
    &["config", "show"],
    &["config", "check"],
    &["doctor"],
    &["completions"],
    &["man"],
];

fn golden(name: &str) -> PathBuf {
    // Not the place of compilation: working trees may share one directory of built things.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo runs the tests");
    PathBuf::from(root).join("tests/golden").join(format!("{name}.txt"))
}

#[test]
fn help_texts_are_the_golden_ones() {
    let mut changed = Vec::new();
    for words in COMMANDS {
        let name = if words.is_empty() { "root".to_owned() } else { words.join("-") };
        let ran = run(sanderling().args(*words).arg("--help").env("COLUMNS", "100"));
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        let path = golden(&name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &ran.stdout).expect("the golden file can be written");
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&ran.stdout) {
            changed.push(name);
        }
    }
    assert!(
        changed.is_empty(),
        "the help of {changed:?} changed: if it should, run this test with UPDATE=1"
    );
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(sanderling().args(["completions", shell]));
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stdout.contains("decommission"), "{shell}");
    }
}

#[test]
fn manual_has_a_page_for_every_command() {
    let place = tempfile::tempdir().expect("a directory");
    let ran = run(sanderling().arg("man").arg(place.path().join("man1")));
    assert_eq!(ran.code, 0, "{ran}");
    for words in COMMANDS {
        let name = [&["sanderling"], *words].concat().join("-");
        let path = place.path().join("man1").join(format!("{name}.1"));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("no page {name}.1"));
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let denied = run(sanderling().args(["man", "/proc/none"]));
    assert_eq!(denied.code, 3, "{denied}");
}
