//! Configuration files: precedence, origins, and files that are wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, Ran, SOON, Shape, Starting, run, sanderling, until};
use serde_json::Value;
use tempfile::TempDir;

fn written(directory: &TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("servers.toml");
    std::fs::write(&path, text).expect("written");
    path
}

fn words<'a>(first: &[&'a str], path: &'a Path, last: &[&'a str]) -> Vec<&'a str> {
    [first, &["--config", path.to_str().expect("UTF-8")], last].concat()
}

/// Returns the value and the origin of a key.
fn shown(ran: &Ran, key: &str) -> (String, String) {
    assert_eq!(ran.code, 0, "{ran}");
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let values = document["values"].as_array().expect("a list");
    let row = values.iter().find(|row| row["key"] == key).expect("the key is there");
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    (text(&row["value"]), text(&row["origin"]))
}

#[test]
fn flag_comes_before_environment_file_and_default() {
    let directory = TempDir::new().expect("a directory");
    let path = written(
        &directory,
        "namenode = \"10.0.0.1:7600\"\npolicy = \"sanderling\"\n\n[datanode]\ndram = \"2GiB\"\n\
         memory-max = \"8GiB\"\nencrypt = \"key\"\nlocal-uid = [7, 8]\n\
         allow-unauthenticated = true\n",
    );
    fn show<'a>(path: &'a Path, last: &[&'a str]) -> Vec<&'a str> {
        words(&["config", "show", "datanode"], path, last)
    }
    let ran = run(sanderling()
        .args(show(&path, &["--dram", "1GiB", "--json"]))
        .env("SANDERLING_DATANODE_MEMORY_MAX", "9GiB"));
    let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    let file = |line: usize| format!("{}:{line}", path.display());
    assert_eq!(shown(&ran, "dram"), pair("1GiB", "--dram"));
    assert_eq!(shown(&ran, "memory-max"), pair("9GiB", "SANDERLING_DATANODE_MEMORY_MAX"));
    assert_eq!(shown(&ran, "namenode"), pair("10.0.0.1:7600", &file(1)));
    assert_eq!(shown(&ran, "report-every"), pair("3m", "default"));
    assert_eq!(shown(&ran, "local-uid"), pair("7, 8", &file(8)));
    assert_eq!(shown(&ran, "allow-unauthenticated"), pair("true", &file(9)));
    let key = directory.path().join("key");
    assert_eq!(shown(&ran, "encrypt"), pair(key.to_str().expect("UTF-8"), &file(7)));
    let ran = run(sanderling().args(show(&path, &["--json"])));
    assert_eq!(shown(&ran, "dram"), pair("2GiB", &file(5)));
    assert_eq!(shown(&ran, "memory-max"), pair("8GiB", &file(6)));
    let table = run(sanderling().args(show(&path, &[]))).stdout;
    assert!(table.contains("dram") && table.contains("servers.toml:5"), "{table}");
}

#[test]
fn servers_start_from_a_file_alone() {
    let directory = TempDir::new().expect("a directory");
    let path = written(
        &directory,
        "[namenode]\ndir = \"catalog\"\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n\
         archive = \"archive\"\n\
         [datanode]\nname = \"of-the-file\"\ndram = \"8MiB\"\nhttp = \"none\"\n",
    );
    let cluster = Cluster::of(0);
    let elsewhere = TempDir::new().expect("a directory");
    let mut program = sanderling();
    program.current_dir(elsewhere.path());
    let namenode = words(&["namenode"], &path, &[]);
    let namenode = Starting::by(program, directory.path(), "second", &namenode).serves();
    for name in ["catalog", "archive"] {
        let is_there = directory.path().join(name).is_dir();
        assert!(is_there, "{name}: the path is relative to the file");
    }
    let made = std::fs::read_dir(elsewhere.path()).expect("a directory").count();
    assert_eq!(made, 0, "something is where the server was started");
    let address = namenode.address.as_str();
    let datanode = words(&["datanode", "--namenode", address], &path, &[]);
    let _datanode = cluster.serve("joined", &datanode);
    let ran = run(sanderling().args(["--namenode", address, "--json", "node", "ls"]));
    assert!(ran.code == 0 && ran.stdout.contains("of-the-file"), "{ran}");
    // A place in a bucket is no path.
    let path = written(&directory, "[namenode]\narchive = \"s3://bucket/catalog\"\n");
    let ran = run(sanderling().args(words(&["config", "show", "namenode"], &path, &["--json"])));
    assert_eq!(shown(&ran, "archive").0, "s3://bucket/catalog");
}

#[test]
fn manager_and_gateway_run_with_the_values_of_a_file() {
    let namenode = vec!["--no-manager".to_owned()];
    let cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    let directory = TempDir::new().expect("a directory");
    let text = format!(
        "namenode = \"{}\"\n\
         [manager]\nname = \"of-the-file\"\nhttp = \"127.0.0.1:0\"\n\
         [gateway]\nlisten = \"127.0.0.1:0\"\nhttp = \"none\"\nroot = \"/of-the-file\"\n",
        cluster.namenode.address
    );
    let path = written(&directory, &text);
    let _manager = cluster.serve("manager", &words(&["manager"], &path, &[]));
    until("the manager with the name of the file leads", SOON, || {
        let events = cluster.cli(&["events"]);
        events.stdout.contains("manager of-the-file leads").then_some(())
    });
    let gateway = cluster.serve("gateway", &words(&["gateway", "s3"], &path, &[]));
    assert_eq!(gateway.http_address, "", "the file has none");
    let made = cluster.cli(&["fs", "mkdir", "-p", "/of-the-file/backups"]);
    assert_eq!(made.code, 0, "{made}");
    // What is stored in the bucket lies below the root of the file.
    let (to, http) = ("s3://backups/catalog", cluster.namenode.http_address.as_str());
    let stored = run(sanderling()
        .args(["namenode", "backup", "--to", to, "--http", http])
        .env("AWS_ENDPOINT_URL", format!("http://{}", gateway.address))
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "sanderling")
        .env("AWS_SECRET_ACCESS_KEY", "sanderling"));
    assert_eq!(stored.code, 0, "{stored}");
    let stat = cluster.cli(&["fs", "stat", "/of-the-file/backups/catalog"]);
    assert_eq!(stat.code, 0, "{stat}");
}

#[test]
fn wrong_files_are_refused_with_file_line_and_nearest_key() {
    let directory = TempDir::new().expect("a directory");
    let cases = [
        ("[datanode]\nmemory-mx = \"1GiB\"\n", 2, "the nearest is \"memory-max\""),
        ("namenod = \"a\"\n", 1, "unknown key \"namenod\": the nearest is \"namenode\""),
        ("[datanode]\n\ndram = true\n", 3, "dram must be a text or a number, not true or false"),
        ("[datanode]\ndram = \"2GiX\"\n", 2, "dram = \"2GiX\": "),
        ("[datanode]\npolicy = \"best\"\n", 2, "policy = \"best\" is none of sanderling"),
        ("[manager]\nno-precopy = 1\n", 2, "no-precopy must be true or false, not a number"),
        ("dram = \"1GiB\"\n", 1, "dram belongs into [datanode]"),
        ("[datanode]\n[manager]\nno-precopy = 1\n", 3, "must be true or false, not a number"),
        ("[datanode]\ncontext = \"prod\"\n", 2, "unknown key \"context\" of [datanode]"),
        ("[datanode]\ndisk = \"1GiB\"\n", 2, "--disk-dir"),
        ("[datanode\n", 1, ""),
        ("datanode = 3\n", 1, "datanode must be a table"),
        ("[datanode]\nlisten = \"nonsense\"\n", 2, "listen = \"nonsense\": an address to listen"),
        ("[datanode]\nhttp = \"NONE\"\n", 2, "an address to serve HTTP at is IP:PORT, or none"),
        ("[namenode]\nlisten = \"nonsense\"\n", 2, "is HOST:PORT"),
        ("[namenode]\nvoters = 4\n", 2, "an even number survives no more than one less"),
        ("[namenode]\nunsynced-max = \"3ms\"\n", 2, "it is less than 20 ms"),
        ("[namenode]\nmemory-max = \"1MiB\"\n", 2, "it is less than 64.0 MiB"),
        ("[manager]\nhttp = \"NONE\"\n", 2, "is HOST:PORT, or none"),
        ("[gateway]\nconnections = 0\n", 2, "it is a number, at least 1"),
        ("console = \"javascript:1\"\n", 1, "it is no address of HTTP"),
        ("tls-ca = \"\"\n", 1, "tls-ca is empty"),
        ("namenode = [\"$(touch pwn)\", \"h:1\"]\n[datanode]\n", 1, "address 1 of 2"),
        ("[datanode]\nnamenode = \"h:0\"\n", 2, "has no valid port"),
        ("verbose = 12\n", 1, "verbose must be a number from 0 to 9, not 12"),
        ("namenode = \"a\"\n[namenode]\ndir = \"d\"\n", 2, "put the key into [datanode]"),
    ];
    for (text, line, part) in cases {
        let path = written(&directory, text);
        let place = format!("{}:{line}: ", path.display());
        let ran = run(sanderling().args(["config", "check"]).arg(&path));
        assert_eq!(ran.code, 2, "{text:?}: {ran}");
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(all.contains(&place) && all.contains(part), "{text:?}: {ran}");
        if text.contains("[datanode]") {
            let ran = run(sanderling().args(words(&["datanode"], &path, &[])));
            assert_eq!(ran.code, 2, "{text:?}: {ran}");
            assert!(ran.stderr.contains(&place) && ran.stderr.contains(part), "{text:?}: {ran}");
            assert!(ran.stderr.contains("next:  sanderling config check"), "{ran}");
        }
    }
    let several = "[datanode]\ndram = \"2GiX\"\npolicy = \"best\"\nhttp = [1]\nx = 1\n";
    let path = written(&directory, several);
    let ran = run(sanderling().args(["config", "check"]).arg(&path));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{ran}");
    for (at, shown) in lines.iter().enumerate() {
        let place = format!("{}:{}: ", path.display(), at + 2);
        assert!(shown.starts_with(&place), "{ran}");
    }
}

#[test]
fn durable_stores_in_one_another_are_refused_as_at_the_start_of_the_datanode() {
    let cluster = Cluster::of(0);
    let directory = TempDir::new().expect("a directory");
    let place = directory.path();
    std::fs::create_dir_all(place.join("stores/below")).expect("made");
    std::os::unix::fs::symlink(place.join("stores"), place.join("link")).expect("linked");
    let list = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|name| place.join(name).display().to_string());
        [format!("one=file://{one}"), format!("other=file://{other}")]
    };
    for (one, other) in [
        ("stores", "stores"),
        ("stores", "stores/below"),
        ("stores/below", "stores"),
        ("stores", "link"),
        ("link/missing", "stores"),
    ] {
        let refusal = refusal_of_stores(&cluster, &directory, &list(one, other));
        assert!(refusal.contains("lies in the store"), "{one}, {other}: {refusal}");
    }
    let (_, ran) = check_stores(&directory, &list("stores/below", "stores/below2"));
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn durable_stores_of_one_name_or_at_an_unknown_url_are_refused_as_at_the_start_of_the_datanode() {
    let cluster = Cluster::of(0);
    let directory = TempDir::new().expect("a directory");
    for (stores, part) in [
        (vec!["one=file:///srv/a", "one=file:///srv/b"], "there are two stores named one"),
        (vec!["one=s3://bucket/a", "one=file:///srv/b"], "there are two stores named one"),
        (vec!["one=gs://bucket/prefix"], "not at \"gs://bucket/prefix\""),
        (vec!["one=file:///srv/a", "other=file://srv/b"], "not at \"file://srv/b\""),
        (vec!["one=s3://"], "the store one is at file:///directory or s3://bucket/prefix"),
        (vec!["one=s3://user@bucket/prefix"], "the store one: the URL has a user or a password"),
    ] {
        let stores: Vec<String> = stores.into_iter().map(str::to_owned).collect();
        let refusal = refusal_of_stores(&cluster, &directory, &stores);
        assert!(refusal.contains(part), "{stores:?}: {refusal}");
    }
    // No store receives a request: there are no such ones.
    let stores = ["one=s3://bucket/a", "other=s3://bucket/b", "third=file:///none"];
    let (_, ran) = check_stores(&directory, &stores.map(str::to_owned));
    assert_eq!(ran.code, 0, "{ran}");
}

/// Runs `config check` with a file whose datanode has stores.
fn check_stores(directory: &TempDir, stores: &[String]) -> (PathBuf, Ran) {
    let text = format!("[datanode]\ndram = \"8MiB\"\ndurable = {stores:?}\nhttp = \"none\"\n");
    let path = written(directory, &text);
    let ran = run(sanderling().args(["config", "check"]).arg(&path));
    (path, ran)
}

/// Checks that `config check` refuses stores, and the datanode in the same words; returns these.
fn refusal_of_stores(cluster: &Cluster, directory: &TempDir, stores: &[String]) -> String {
    let (path, ran) = check_stores(directory, stores);
    assert_eq!(ran.code, 2, "{stores:?}: {ran}");
    let place = format!("{}:3: durable: ", path.display());
    let refusal = ran.stdout.trim_end().strip_prefix(&place).unwrap_or_else(|| panic!("{ran}"));
    let last = ["--namenode", &cluster.namenode.address];
    let started = run(sanderling().args(words(&["datanode"], &path, &last)));
    assert!(started.code == 1 && started.stderr.contains(refusal), "{refusal}: {started}");
    refusal.to_owned()
}

#[test]
fn page_with_all_keys_is_cited_where_the_reader_has_it() {
    let directory = TempDir::new().expect("a directory");
    let wrong = written(&directory, "[datanode\n");
    let cites = |place: &Path, page: &str| {
        let ran = run(sanderling().args(["config", "--help"]).current_dir(place));
        assert!(ran.stdout.contains(&format!("\n{page} has all keys.")), "{ran}");
        let ran = run(sanderling().args(["config", "check"]).arg(&wrong).current_dir(place));
        assert!(ran.stderr.contains(&format!(", or {page} with all keys")), "{ran}");
    };
    cites(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), "docs/CONFIGURATION.md");
    // As with a wheel, which has no pages.
    cites(directory.path(), "https://sanderling.example/docs/CONFIGURATION.html");
}

#[test]
fn files_that_others_may_write_or_own_are_refused_with_the_next_step() {
    let directory = TempDir::new().expect("a directory");
    // The next step is not the command that was typed.
    let path = written(&directory, "[datanode\n");
    let ran = run(sanderling().args(["config", "check"]).arg(&path));
    assert!(ran.code == 2 && ran.stderr.contains("next:  sanderling config --help"), "{ran}");
    let path = written(&directory, "[datanode]\ndram = \"1GiB\"\n");
    let ran = run(sanderling().args(["config", "check"]).arg(&path));
    assert_eq!(ran.code, 0, "{ran}");
    for mode in [0o666, 0o664] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
        let ran = run(sanderling().args(words(&["datanode"], &path, &[])));
        assert!(ran.code == 1 && ran.stderr.contains("next:  chmod go-w"), "{mode:o}: {ran}");
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("set");
    // Only root can give a file away.
    if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
        let ran = run(sanderling().args(words(&["datanode"], &path, &[])));
        assert!(ran.code == 1 && ran.stderr.contains("belongs to user 65534"), "{ran}");
        assert!(ran.stderr.contains("next:  sudo chown root"), "{ran}");
        std::os::unix::fs::chown(&path, Some(0), None).expect("given back");
    }
    let ran = run(sanderling().args(["datanode", "--config", "/no/such/file"]));
    assert!(ran.code == 3 && ran.stderr.contains("/no/such/file"), "{ran}");
}

#[test]
fn context_that_is_named_comes_before_the_cluster_of_the_file() {
    let directory = TempDir::new().expect("a directory");
    let path = written(&directory, "namenode = \"10.0.0.1:7600\"\ntls-name = \"file\"\n");
    let home = |words: Vec<&str>| {
        run(sanderling().args(words).env("SANDERLING_CONFIG_HOME", directory.path()))
    };
    let add = vec!["context", "add", "prod", "--namenode", "10.0.0.2"];
    assert_eq!(home(add).code, 0);
    assert_eq!(home(vec!["context", "use", "prod"]).code, 0);
    let show = ["config", "show", "gateway"];
    let ran = home([&show[..], &["--json"]].concat());
    let current = ("10.0.0.2:7600".to_owned(), "the current context prod".to_owned());
    assert_eq!(shown(&ran, "namenode"), current);
    let ran = home(words(&show, &path, &["--json"]));
    assert_eq!(shown(&ran, "namenode").0, "10.0.0.1:7600");
    let ran = home(words(&show, &path, &["--context", "prod", "--json"]));
    assert_eq!(shown(&ran, "namenode").0, "10.0.0.2:7600");
    let ran = home(vec!["config", "show", "datanode", "--json"]);
    assert_eq!(shown(&ran, "namenode").0, "127.0.0.1:7600", "a server does not use it");
}

#[test]
fn what_is_no_regular_file_is_refused_without_a_wait() {
    let directory = TempDir::new().expect("a directory");
    let pipe = directory.path().join("pipe.toml");
    assert_eq!(run(std::process::Command::new("mkfifo").arg(&pipe)).code, 0);
    for (path, kind) in [
        (pipe.as_path(), "a pipe"),
        (directory.path(), "a directory"),
        ("/dev/null".as_ref(), "a device"),
    ] {
        let ran = run(sanderling().args(["config", "check"]).arg(path));
        assert!(ran.code == 1 && ran.stderr.contains(kind), "{ran}");
        assert!(ran.stderr.contains("next:  ls -l ") && !ran.stderr.contains("chmod"), "{ran}");
        let ran = run(sanderling().args(["manager", "--config"]).arg(path));
        assert!(ran.code == 1 && ran.stderr.contains(kind), "{ran}");
    }
}

#[test]
fn no_command_waits_for_the_writer_of_a_pipe() {
    let directory = TempDir::new().expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = run(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe));
    assert_eq!(made.code, 0, "{made}");
    let (pipe, new) = (pipe.display().to_string(), directory.path().join("new"));
    let (new, model) = (new.display().to_string(), format!("lifetimes:{pipe}"));
    let (copy, backup) = (format!("{new}.copy"), ["namenode", "backup", "--ready-file", &pipe]);
    let (listen, http) = (["--listen", "127.0.0.1:0"], ["--http", "none", "--dir", &new]);
    let namenode = [&["namenode"][..], &listen, &http].concat();
    for (words, code, cause) in [
        (vec!["namenode", "restore", "--from", &pipe, "--dir", &new], 1, "it is a pipe"),
        ([&backup[..], &["--to", &copy]].concat(), 3, "names no namenode"),
        ([&namenode[..], &["--preemption-model", &model]].concat(), 2, "it is a pipe"),
        ([&namenode[..], &["--secret-file", &pipe]].concat(), 1, "it is a pipe"),
        (vec!["--token-file", &pipe, "fs", "ls", "/"], 1, "it is a pipe"),
        (vec!["--tls-ca", &pipe, "fs", "ls", "/"], 1, "it is a pipe"),
        (vec!["token", "new", "--secret-file", &pipe], 1, "it is a pipe"),
    ] {
        let ran = run(sanderling().args(&words));
        assert!(ran.code == code && ran.stderr.contains(cause), "{words:?}: {ran}");
        assert!(ran.stderr.contains("next:  "), "{words:?}: {ran}");
    }
}
