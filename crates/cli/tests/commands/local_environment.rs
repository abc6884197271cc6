//! Which settings of the environment the servers of `local` get.

use crate::cluster::{run, sanderling};
use crate::local::{Local, START};

#[test]
fn servers_of_local_start_get_no_settings_from_the_environment() {
    let local = Local::new();
    let path = |name: &str| local.directory.path().join(name);
    for name in ["archive", "object"] {
        std::fs::create_dir(path(name)).expect("made");
    }
    let config = format!(
        "[namenode]\narchive = \"{}\"\n[datanode]\nobject = \"file://{}\"\n\
         object-bytes = \"1GiB\"\n",
        path("archive").display(),
        path("object").display()
    );
    std::fs::write(path("config.toml"), config).expect("written");
    let secret = path("secret");
    let made = run(sanderling().args(["token", "secret", "--out"]).arg(&secret));
    assert_eq!(made.code, 0, "{made}");
    let mut start = sanderling();
    start.args(START).arg("--dir").arg(local.path());
    start.env("SANDERLING_CONFIG", path("config.toml"));
    start.env("SANDERLING_NAMENODE_DIR", path("other"));
    start.env("SANDERLING_NAMENODE", "192.0.2.1:1");
    start.env("SANDERLING_SECRET_FILE", &secret);
    start.env("SANDERLING_LOG", "error");
    let started = run(&mut start);
    assert_eq!(started.code, 0, "{started}");
    let namenode = started.stdout.trim();
    let made = run(sanderling().args(["--namenode", namenode, "fs", "mkdir", "/x"]));
    assert_eq!(made.code, 0, "{made}");
    let tiers = run(sanderling().args(["--namenode", namenode, "fs", "df", "--json"]));
    assert!(!tiers.stdout.contains("\"object\""), "{tiers}");
    let log = std::fs::read_to_string(local.path().join("logs/namenode.log")).expect("a log");
    assert!(!log.contains(" INFO "), "the log's filter is kept: {log}");
    assert_eq!(local.run(&["local", "stop"]).code, 0);
    for name in ["archive", "object"] {
        let mut entries = std::fs::read_dir(path(name)).expect("a directory");
        assert!(entries.next().is_none(), "{name} was written");
    }
    assert!(!path("other").exists());
}
