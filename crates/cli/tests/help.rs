//! The help texts equal the golden files. `UPDATE=1 cargo test -p sanderling-cli --test help`
//! writes them anew.

mod cluster;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cluster::{run, sanderling};

/// All commands: [`manual_has_a_page_for_every_command`] compares them with those of the program.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["tour"],
    &["demo"],
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
    &["fs", "sync"],
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
    &["group", "notice"],
    &["group", "cancel"],
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
    &["lab", "write"],
    &["lab", "notice"],
    &["lab", "exposure"],
    &["lab", "all"],
    &["lab", "figure2"],
    &["lab", "figure6"],
    &["lab", "figure7"],
    &["lab", "checkpoint"],
    &["lab", "trace"],
    &["lab", "page"],
    &["mock-metadata"],
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

/// The command whose `--help` is that of a Python module, which is not here.
const OF_PYTHON: &[&str] = &["demo"];

fn golden() -> PathBuf {
    // Not the place of compilation: working trees may share one directory of built things.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo runs the tests");
    PathBuf::from(root).join("tests/golden")
}

/// Returns the names of the files in a directory.
fn files(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("it can be listed");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("it can be listed").file_name().into_string().expect("a name in UTF-8")
    };
    entries.map(name).collect()
}

#[test]
fn help_texts_are_the_golden_ones() {
    let (mut changed, mut expected) = (Vec::new(), BTreeSet::new());
    for words in COMMANDS.iter().filter(|words| **words != OF_PYTHON) {
        let name = if words.is_empty() { "root".to_owned() } else { words.join("-") };
        let mut command = sanderling();
        command.args(*words).arg("--help").env("COLUMNS", "100");
        // Not that of a checkout, where pages are cited by their paths.
        let ran = run(command.current_dir(golden()));
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        let path = golden().join(format!("{name}.txt"));
        expected.insert(format!("{name}.txt"));
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
    assert_eq!(files(&golden()), expected, "the files in tests/golden, and the commands");
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
    let pages = place.path().join("man1");
    let ran = run(sanderling().arg("man").arg(&pages));
    assert_eq!(ran.code, 0, "{ran}");
    // The program makes the pages of the commands that it has: so this list is complete.
    let name = |words: &&[&str]| format!("{}.1", [&["sanderling"], *words].concat().join("-"));
    let names: BTreeSet<String> = COMMANDS.iter().map(name).collect();
    assert_eq!(files(&pages), names, "the commands of the program, and those of this test");
    for name in names {
        let page = std::fs::read_to_string(pages.join(&name)).expect("it is there");
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let of_config = std::fs::read_to_string(pages.join("sanderling-config.1"));
    let of_config = of_config.expect("it is there");
    let cited = "https://sanderling.example/docs/CONFIGURATION.html has all keys";
    assert!(of_config.contains(cited), "{of_config}");
    let denied = run(sanderling().args(["man", "/proc/none"]));
    assert_eq!(denied.code, 3, "{denied}");
}
