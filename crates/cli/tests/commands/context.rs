//! Which cluster a command uses: contexts, their file, and addresses that are wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::cluster::{Cluster, Ran, Starting, block_on, http, run, sanderling};
use tempfile::TempDir;

/// A home for contexts.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("contexts.toml")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = sanderling();
        command.args(words).env("SANDERLING_CONFIG_HOME", self.0.path());
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        run(&mut self.command(words))
    }

    fn add(&self, name: &str, namenode: &str, flags: &[&str]) {
        let ran = self.run(&[&["context", "add", name, "--namenode", namenode], flags].concat());
        assert_eq!(ran.code, 0, "{ran}");
    }
}

fn put(cluster: &Cluster, path: &str) {
    let ran = cluster.cli(&["fs", "put", "/proc/version", path]);
    assert_eq!(ran.code, 0, "{ran}");
}

fn listed(ran: &Ran) -> &str {
    assert_eq!(ran.code, 0, "{ran}");
    ran.stdout.trim()
}

#[test]
fn commands_use_the_context_that_is_named_or_current() {
    let (prod, dev, home) = (Cluster::of(1), Cluster::of(1), Home::new());
    put(&prod, "/in-prod");
    put(&dev, "/in-dev");
    home.add("prod", &prod.namenode.address, &[]);
    home.add("dev", &dev.namenode.address, &[]);
    let mode = std::fs::metadata(home.file()).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(home.run(&["context", "use", "prod"]).code, 0);
    let ls = ["fs", "ls", "/"];
    assert_eq!(listed(&home.run(&ls)), "in-prod");
    assert_eq!(listed(&home.run(&["--context", "dev", "fs", "ls", "/"])), "in-dev");
    let flag = ["--namenode", &dev.namenode.address, "fs", "ls", "/"];
    assert_eq!(listed(&home.run(&flag)), "in-dev");
    let with = |name: &str, text: &str, words: &[&str]| run(home.command(words).env(name, text));
    let address = &dev.namenode.address;
    assert_eq!(listed(&with("SANDERLING_NAMENODE", address, &ls)), "in-dev");
    assert_eq!(listed(&with("SANDERLING_CONTEXT", "dev", &ls)), "in-dev");
    let both = ["--context", "prod", "fs", "ls", "/"];
    assert_eq!(listed(&with("SANDERLING_NAMENODE", address, &both)), "in-prod", "the flag wins");
    let shown = home.run(&["context", "ls"]);
    assert!(shown.stdout.contains("*        prod"), "{shown}");
    assert_eq!(home.run(&["context", "rm", "prod"]).code, 0);
    let shown = home.run(&["context", "ls", "--json"]);
    assert!(!shown.stdout.contains("prod") && shown.stdout.contains("dev"), "{shown}");
}

/// Returns a command that runs another one in a network of its own, in which nothing listens;
/// `None` where the system makes none.
fn in_own_network(command: &Command) -> Option<Command> {
    const UP: &str = "ip link set lo up && exec \"$@\"";
    // As root, or as the root of a namespace of users.
    const NETWORKS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let inside = |network: &[&str]| {
        let mut around = Command::new("unshare");
        around.args(network).args(["sh", "-c", UP, "sh"]);
        around
    };
    let network = NETWORKS.into_iter().find(|network| {
        let ran = inside(network).arg("true").output();
        ran.is_ok_and(|ran| ran.status.success())
    })?;
    let mut around = inside(network);
    around.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => around.env(name, value),
            None => around.env_remove(name),
        };
    }
    Some(around)
}

#[test]
fn datanode_does_not_join_the_current_context() {
    let (prod, home) = (Cluster::of(0), Home::new());
    home.add("prod", &prod.namenode.address, &[]);
    assert_eq!(home.run(&["context", "use", "prod"]).code, 0);
    let words = ["datanode", "--dram", "8MiB", "--exit-with-parent", "--http", "none"];
    let datanode = home.command(&words);
    let mut datanode = match in_own_network(&datanode) {
        Some(alone) => alone,
        None if std::net::TcpStream::connect("127.0.0.1:7600").is_ok() => {
            // It would join what serves there.
            return eprintln!("SKIPPED: another process listens at 127.0.0.1:7600");
        }
        None => datanode,
    };
    let mut child = datanode.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    let log = child.stderr.take().expect("piped");
    let line = std::io::BufRead::lines(std::io::BufReader::new(log))
        .map_while(Result::ok)
        .find(|line| line.contains("7600") || line.contains(&prod.namenode.address));
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    assert!(line.as_ref().is_some_and(|line| line.contains("127.0.0.1:7600")), "{line:?}");
}

#[test]
fn gateway_serves_the_cluster_of_the_context_that_is_named_or_current() {
    let (prod, dev, home) = (Cluster::of(0), Cluster::of(0), Home::new());
    home.add("prod", &prod.namenode.address, &[]);
    home.add("dev", &dev.namenode.address, &[]);
    assert_eq!(home.run(&["context", "use", "prod"]).code, 0);
    let cluster_at = |address: &str| {
        let health = block_on(http::get(address, "/healthz"));
        health["cluster"].as_str().expect("a cluster").to_owned()
    };
    for (flags, cluster) in [(&[][..], &prod), (&["--context", "dev"][..], &dev)] {
        let words = ["gateway", "s3", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let words = [&words[..], flags].concat();
        let gateway = Starting::by(home.command(&[]), home.0.path(), "gateway", &words).serves();
        let expected = cluster_at(&cluster.namenode.http_address);
        assert_eq!(cluster_at(&gateway.http_address), expected, "{flags:?}");
    }
}

#[test]
fn wrong_contexts_are_refused_with_the_next_step() {
    let home = Home::new();
    home.add("prod", "10.0.0.1", &[]);
    let ran = home.run(&["--context", "prdo", "fs", "ls", "/"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stderr.contains("the nearest is \"prod\""), "{ran}");
    assert!(ran.stderr.contains("next:  sanderling context ls"), "{ran}");
    let ran = home.run(&["context", "add", "prod", "--namenode", "10.0.0.2"]);
    assert!(ran.code == 1 && ran.stderr.contains("--force"), "{ran}");
    home.add("prod", "10.0.0.2", &["--force"]);
    let ran = home.run(&["context", "add", "a/b", "--namenode", "10.0.0.2"]);
    assert!(ran.code == 2 && ran.stderr.contains("no name of a context"), "{ran}");
    let ran = run(home.command(&["context", "add", "b"]).env("SANDERLING_NAMENODE", "10.0.0.2"));
    assert!(ran.code == 2 && ran.stderr.contains("--namenode is missing"), "{ran}");
    let words = ["context", "add", "b", "--namenode", "b", "--token-file", "/no/such/file"];
    assert_eq!(home.run(&words).code, 3);
    let ran = home.run(&["--context", "prod", "--namenode", "nn", "fs", "ls", "/"]);
    assert!(ran.code == 2 && ran.stderr.contains("given together"), "{ran}");

    let file = home.file();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("set");
    for words in [&["fs", "ls", "/"][..], &["context", "ls"], &["context", "use", "prod"]] {
        let ran = home.run(words);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("other users can read"), "{ran}");
        assert!(ran.stderr.contains(&format!("next:  chmod 600 {}", file.display())), "{ran}");
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("set");
    std::fs::write(&file, "[contexts.prod]\nnamenod = \"nn\"\n").expect("written");
    let ran = home.run(&["fs", "ls", "/"]);
    assert_eq!(ran.code, 1, "{ran}");
    let wanted = format!("{}:2: unknown key \"namenod\" of context prod", file.display());
    assert!(ran.stderr.contains(&wanted), "{ran}");
    assert!(ran.stderr.contains("the nearest is \"namenode\""), "{ran}");
}

#[test]
fn option_without_an_effect_is_refused_with_the_command_without_it() {
    let home = Home::new();
    home.add("prod", "10.0.0.1", &[]);
    for (option, line) in [
        ("--context prod", "context ls"),
        ("--context prod", "local status --dir /dev/null/local"),
        ("--context prod", "token secret --out /dev/null/secret"),
        ("--context prod", "namenode --dir /dev/null/catalog"),
        ("--context prod", "bench scale"),
        ("--context prod", "lab trace"),
        ("--timeout 3s", "manager"),
    ] {
        let words: Vec<&str> = option.split(' ').chain(line.split(' ')).collect();
        let ran = home.run(&words);
        assert_eq!(ran.code, 2, "{option} {line}: {ran}");
        assert!(ran.stderr.contains(&format!("{} has no effect", words[0])), "{line}: {ran}");
        assert!(ran.stderr.contains(&format!("next:  sanderling {line}\n")), "{line}: {ran}");
    }
    let ran = run(home.command(&["context", "ls"]).env("SANDERLING_CONTEXT", "prod"));
    assert_eq!(ran.code, 0, "a variable is for other commands: {ran}");
}

#[test]
fn context_has_the_paths_of_credentials_and_they_are_used() {
    let home = Home::new();
    let directory = home.0.path();
    std::fs::write(directory.join("t"), "not a token").expect("written");
    let add = ["context", "add", "prod", "--namenode", "127.0.0.1:1", "--token-file", "t"];
    let ran = run(home.command(&add).current_dir(directory));
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(home.file()).expect("written");
    assert!(text.contains(&format!("\"{}\"", directory.join("t").display())), "{text}");
    assert!(!text.contains("not a token"), "{text}");
    std::fs::remove_file(directory.join("t")).expect("removed");
    let ran = home.run(&["--context", "prod", "fs", "ls", "/"]);
    assert!(ran.code == 3 && ran.stderr.contains("/t"), "the file is read: {ran}");
    let ran = home.run(&["--namenode", "127.0.0.1:1", "fs", "ls", "/"]);
    assert_eq!(ran.code, 4, "another address gets no token of the context: {ran}");
}

fn refused(namenode: &str, code: i32, parts: &[&str]) {
    let ran = run(sanderling().args(["--namenode", namenode, "fs", "ls", "/"]));
    assert_eq!(ran.code, code, "{namenode}: {ran}");
    for part in parts {
        assert!(ran.stderr.contains(part), "{namenode}: {part}: {ran}");
    }
}

#[test]
fn wrong_addresses_are_understood() {
    let cluster = Cluster::of(1);
    let address = &cluster.namenode.address;
    let url = format!("sanderling://{address}");
    let ran = run(sanderling().args(["--namenode", &url, "fs", "ls", "/"]));
    assert_eq!(ran.code, 0, "the scheme is understood: {ran}");
    refused("http://nn:7601", 2, &["is a URL of http", "such as nn:7600"]);
    refused("nn:port", 2, &["has no valid port"]);
    let http = &cluster.namenode.http_address;
    refused(http, 1, &["it serves HTTP", "7600", "next:  sanderling"]);
    refused(&cluster.datanodes[0].address, 1, &["it is that of a datanode"]);
    refused("no-such-host.invalid", 4, &["no-such-host.invalid:7600", "lookup", "--namenode"]);
    refused("127.0.0.1:1", 4, &["connection refused", "127.0.0.1:1, from --namenode"]);
}

#[test]
fn lists_of_addresses_are_understood_and_their_mistakes_named() {
    let (cluster, other, home) = (Cluster::of(1), Cluster::of(1), Home::new());
    let (address, strange) = (&cluster.namenode.address, &other.namenode.address);
    let listed = |words: &[&str]| {
        let ran = run(sanderling().args(words).args(["fs", "ls", "/"]));
        assert_eq!(ran.code, 0, "one that answers suffices: {ran}");
    };
    let list = format!("127.0.0.1:1,{address}");
    listed(&["--namenode", &list]);
    listed(&["--namenode", "127.0.0.1:1", "--namenode", address]);
    let mut of_variable = sanderling();
    let ran = run(of_variable.args(["fs", "ls", "/"]).env("SANDERLING_NAMENODE", &list));
    assert_eq!(ran.code, 0, "{ran}");
    home.add("group", &list, &[]);
    let ran = home.run(&["--context", "group", "fs", "ls", "/"]);
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(home.file()).expect("it was written");
    let array = format!("[\"127.0.0.1:1\", \"{address}\"]");
    let text = text.replace(&format!("\"{list}\""), &array);
    assert!(text.contains(&array), "{text}");
    std::fs::write(home.file(), text).expect("written");
    let ran = home.run(&["--context", "group", "fs", "ls", "/"]);
    assert_eq!(ran.code, 0, "{ran}");

    refused(&format!("{address},b:x"), 2, &["address 2 of 2", "\"b:x\" has no valid port"]);
    refused(&format!("{address},,b"), 2, &["address 2 of 3", "is empty"]);
    let many: Vec<String> = (0..17).map(|at| format!("n{at}")).collect();
    refused(&many.join(","), 2, &["17 addresses", "at most 16"]);
    refused(&format!("{address},{strange}"), 1, &[address, strange, "cluster"]);
    refused("127.0.0.1:1,127.0.0.1:2", 4, &["127.0.0.1:1,127.0.0.1:2", "connection refused"]);
}

#[test]
fn port_that_requires_tls_is_understood() {
    let directory = TempDir::new().expect("a directory");
    let local = |words: &[&str]| {
        run(sanderling().args(words).arg("--dir").arg(directory.path().join("local")))
    };
    let words = ["local", "start", "--secure", "--port", "0", "--datanodes", "1", "--dram", "8MiB"];
    let started = local(&[&words[..], &["--json"]].concat());
    assert_eq!(started.code, 0, "{started}");
    let started: serde_json::Value = serde_json::from_str(&started.stdout).expect("JSON");
    let namenode = started["namenode"].as_str().expect("an address");
    let ran = run(sanderling().args(["--namenode", namenode, "fs", "ls", "/"]));
    let stopped = local(&["local", "stop"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("TLS") && ran.stderr.contains("--tls-ca"), "{ran}");
    assert_eq!(stopped.code, 0, "{stopped}");
}

#[test]
fn commands_that_use_no_cluster_do_not_need_an_address() {
    let home = Home::new();
    let file = |name: &str| home.0.path().join(name).to_str().expect("UTF-8").to_owned();
    let (secret, pages, keys) = (file("secret"), file("man"), file("tls"));
    for words in [
        &["token", "secret", "--out", &secret][..],
        &["man", &pages],
        &["tls", "new", "--out", &keys],
        &["completions", "bash"],
        &["lab", "trace"],
    ] {
        let ran = run(home.command(words).env("SANDERLING_NAMENODE", "127.0.0.1:0"));
        assert_eq!(ran.code, 0, "{ran}");
    }
}
