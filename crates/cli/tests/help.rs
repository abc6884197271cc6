//! The help texts equal the golden files. `UPDATE=1 cargo test -p sanderling-cli --test help`
//! writes them anew.

mod cluster;

use std::path::PathBuf;

use cluster::{run, sanderling};

const COMMANDS: &[&[&str]] = &[
    &[],
    &["local"],
    &["local", "start"],
    &["local", "stop"],
    &["local", "status"],
    &["namenode"],
    &["datanode"],
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
    &["node"],
    &["node", "ls"],
    &["node", "notice"],
    &["node", "recommend"],
    &["node", "decommission"],
    &["node", "cancel"],
    &["events"],
    &["fsck"],
    &["bench"],
    &["bench", "scale"],
    &["bench", "noisy"],
    &["sim"],
    &["lab"],
    &["lab", "read"],
    &["lab", "figure2"],
    &["lab", "figure6"],
    &["lab", "figure7"],
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
    &["doctor"],
    &["completions"],
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
