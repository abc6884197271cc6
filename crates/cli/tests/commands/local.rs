//! `local` and `fs` as a new user types them.

use crate::cluster;
use crate::cluster::{Cluster, Ran, SOON, bytes_of, run, sanderling, until};
use sanderling_protocol::Token;
use sanderling_transport::{ClientTls, PageCall, TLS_NAME};
use serde_json::Value;
use tempfile::TempDir;

/// Starts the smallest cluster.
pub(crate) const START: [&str; 8] =
    ["local", "start", "--port", "0", "--datanodes", "1", "--dram", "8MiB"];

/// A cluster started by `local start`. It is stopped even when the test fails.
pub(crate) struct Local {
    pub(crate) directory: TempDir,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().expect("a directory") }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("local")
    }

    /// Starts one namenode and one datanode, and returns the namenode's address.
    pub(crate) fn start(&self) -> String {
        let ran = self.run(&START);
        assert_eq!(ran.code, 0, "{ran}");
        ran.stdout.trim().to_owned()
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        run(sanderling().args(words).arg("--dir").arg(self.path()))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.run(&["local", "stop"]);
    }
}

pub(crate) fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).expect("the output is JSON")
}

#[test]
fn local_cluster_starts_serves_and_stops() {
    let local = Local { directory: TempDir::new().expect("a directory") };
    assert_eq!(local.run(&["local", "status"]).code, 3);
    let words = ["local", "start", "--port", "0", "--datanodes", "2", "--dram", "8MiB", "--json"];
    let started = local.run(&words);
    assert_eq!(started.code, 0, "{started}");
    let started = json(&started);
    let namenode = started["namenode"].as_str().expect("an address").to_owned();
    let processes = started["processes"].as_array().expect("a list").clone();
    assert_eq!(processes.len(), 3, "{started}");
    assert_eq!(local.run(&["local", "start", "--port", "0"]).code, 1, "one runs already");

    let ran = run(sanderling().args(["--namenode", &namenode, "fs", "put", "/proc/version", "/v"]));
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(local.run(&["local", "status"]).code, 0);
    let pid = processes[2]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    until("a datanode is down", SOON, || (local.run(&["local", "status"]).code == 4).then_some(()));

    // No process is killed for being slow.
    let stopped = local.run(&["local", "stop", "--json", "--timeout", "60s"]);
    assert_eq!((stopped.code, &json(&stopped)["killed"]), (0, &0.into()), "{stopped}");
    assert_eq!(json(&stopped)["deleted_objects"], 1, "{stopped}");
    assert!(stopped.stderr.contains("deleted with it: 1 object, "), "{stopped}");
    for process in &processes {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process["pid"]));
        assert!(stat.map_or(true, |stat| stat.contains(") Z ")), "{process} still runs");
    }
    assert_eq!(local.run(&["local", "stop"]).code, 3);
}

/// Gets the page with the nodes, over TLS where there are keys: authorities and token.
fn nodes_page(address: &str, [authorities, token]: [Option<&str>; 2]) -> (u16, Value) {
    let tls = authorities.map(|file| ClientTls::read(file.as_ref(), TLS_NAME).expect("read"));
    let token = token.map(|file| {
        let text = std::fs::read_to_string(file).expect("read");
        Token::new(&text)
    });
    let call = PageCall {
        address,
        tls: tls.as_ref(),
        token,
        method: "GET",
        target: "/v1/nodes",
        body: String::new(),
        within: SOON,
    };
    let (status, body) = cluster::block_on(call.send()).expect("answered");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// Starts three namenodes and two datanodes, stores an object, kills the namenode that leads, reads
/// the object with a list of addresses, and starts the killed one again.
fn namenode_of_three_dies_and_comes_back(flags: &[&str]) {
    let local = Local { directory: TempDir::new().expect("a directory") };
    let words = ["local", "start", "--namenodes", "3", "--port", "0", "--datanodes", "2"];
    let started = local.run(&[&words[..], &["--dram", "8MiB", "--json"], flags].concat());
    assert_eq!(started.code, 0, "{started}");
    let started = json(&started);
    let addresses = started["namenode"].as_str().expect("addresses").to_owned();
    assert_eq!(addresses.split(',').count(), 3, "{started}");
    let keys = ["tls_ca", "token_file"].map(|name| started["keys"][name].as_str());
    let call = |words: &[&str]| {
        let mut command = sanderling();
        command.args(["--namenode", &addresses]).args(words);
        for (name, file) in ["SANDERLING_TLS_CA", "SANDERLING_TOKEN_FILE"].iter().zip(keys) {
            file.map(|file| command.env(name, file));
        }
        run(&mut command)
    };
    let leader = || {
        let listed = call(&["group", "ls", "--json"]);
        let listed: Value = serde_json::from_str(&listed.stdout).ok()?;
        let mut members = listed["members"].as_array()?.iter();
        let leader = members.find(|member| member["role"] == "Leader")?;
        leader["address"].as_str().map(str::to_owned)
    };
    let put = call(&["fs", "put", "/proc/version", "/v"]);
    assert_eq!(put.code, 0, "{put}");
    let processes = started["processes"].as_array().expect("a list");
    for server in processes.iter().filter(|it| it["role"] == "namenode") {
        let answer = nodes_page(server["http_address"].as_str().expect("an address"), keys);
        assert_eq!((answer.0, answer.1["nodes"].as_array().map(Vec::len)), (200, Some(2)));
    }

    let killed = until("a namenode leads", SOON, leader);
    let server = processes.iter().find(|it| it["address"] == *killed).expect("it is on record");
    let (name, pid) = (server["name"].as_str().expect("a name"), &server["pid"]);
    let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    until("the process is down", SOON, || {
        (local.run(&["local", "status"]).code == 4).then_some(())
    });
    let stored = std::fs::read_to_string("/proc/version").expect("it was stored");
    assert_eq!(call(&["fs", "cat", "/v"]).stdout, stored);
    let put = call(&["fs", "put", "/proc/version", "/w"]);
    assert_eq!(put.code, 0, "{put}");
    assert_ne!(until("another one leads", SOON, leader), killed);

    let restarted = local.run(&["local", "restart", name]);
    assert_eq!(restarted.code, 0, "{restarted}");
    assert_eq!(local.run(&["local", "status"]).code, 0);
    let stopped = local.run(&["local", "stop", "--json", "--timeout", "60s"]);
    assert_eq!((stopped.code, &json(&stopped)["killed"]), (0, &0.into()), "{stopped}");
    assert_eq!(json(&stopped)["deleted_objects"], 2, "{stopped}");
}

#[test]
fn local_group_of_three_namenodes_survives_the_death_of_one() {
    namenode_of_three_dies_and_comes_back(&[]);
}

#[test]
fn secure_local_group_of_three_namenodes_survives_the_death_of_one() {
    namenode_of_three_dies_and_comes_back(&["--secure"]);
}

#[test]
fn five_local_namenodes_vote() {
    let local = Local { directory: TempDir::new().expect("a directory") };
    let words = ["--namenodes", "5", "--port", "0", "--datanodes", "1", "--dram", "8MiB"];
    let ran = local.run(&[&["local", "start"], &words[..]].concat());
    assert_eq!(ran.code, 0, "{ran}");
    let listed = run(sanderling().args(["group", "ls", "--json", "--namenode", ran.stdout.trim()]));
    let roles = json(&listed)["members"].as_array().cloned().unwrap_or_default();
    let voters = roles.iter().filter(|row| row["role"] != "Learner").count();
    assert_eq!(voters, 5, "{listed}");
}

#[test]
fn local_start_refuses_an_even_number_of_namenodes() {
    let local = Local { directory: TempDir::new().expect("a directory") };
    let ran = local.run(&["local", "start", "--namenodes", "2", "--port", "0"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("a group has 1, 3 or 5 namenodes"), "{ran}");
    let next = "next:  sanderling local start --namenodes 3 --port 0";
    assert!(ran.stderr.contains(next), "{ran}");
}

#[test]
fn of_many_starts_at_once_one_makes_a_cluster_and_the_others_leave_it_alone() {
    let local = Local { directory: TempDir::new().expect("a directory") };
    let words = ["local", "start", "--port", "0", "--datanodes", "1", "--dram", "8MiB"];
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| local.run(&words))).collect();
        starts.into_iter().map(|start| start.join().expect("it ran")).collect()
    });
    let codes: Vec<i32> = ran.iter().map(|ran| ran.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    // Another was in the middle of it (4), or done (1).
    assert!(codes.iter().all(|code| [0, 1, 4].contains(code)), "{codes:?}");
    let status = local.run(&["local", "status", "--json"]);
    assert_eq!(status.code, 0, "{status}");
    assert_eq!(json(&status)["processes"].as_array().map(Vec::len), Some(2), "{status}");
}

#[test]
fn local_start_runs_the_program_that_the_environment_names() {
    let local = Local { directory: TempDir::new().expect("a directory") };
    // As from Python, where the running program is the interpreter.
    let program = format!("/usr/bin/env\u{1f}{}", env!("CARGO_BIN_EXE_sanderling"));
    let ran = run(sanderling()
        .args(["local", "start", "--port", "0", "--datanodes", "1", "--dram", "8MiB", "--dir"])
        .arg(local.directory.path().join("local"))
        .env("SANDERLING_EXE", program));
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(local.run(&["local", "status"]).code, 0);
    let ran = run(sanderling()
        .args(["local", "start", "--port", "0", "--dir"])
        .arg(local.directory.path().join("other"))
        .env("SANDERLING_EXE", "/no/such/program"));
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("/no/such/program"), "{ran}");
}

#[test]
fn removed_namenode_is_not_reported_as_serving_and_its_step_brings_it_back() {
    let local = Local::new();
    let words = ["local", "start", "--namenodes", "3", "--port", "0", "--datanodes", "1"];
    let started = local.run(&[&words[..], &["--dram", "8MiB", "--json"]].concat());
    assert_eq!(started.code, 0, "{started}");
    let started = json(&started);
    let addresses = started["namenode"].as_str().expect("addresses").to_owned();
    let group =
        |words: &[&str]| run(sanderling().args(["--namenode", &addresses, "group"]).args(words));
    let listed = json(&group(&["ls", "--json"]));
    let mut members = listed["members"].as_array().expect("members").iter();
    let removed = members.find(|it| it["role"] == "Voter").expect("one does not lead").clone();
    let ran = group(&["remove", &removed["id"].to_string()]);
    assert_eq!(ran.code, 0, "{ran}");
    let processes = started["processes"].as_array().expect("a list");
    let server = processes.iter().find(|it| it["address"] == removed["address"]);
    let name = server.expect("it is on record")["name"].as_str().expect("a name");
    let status = until("the status has the reason", SOON, || {
        let status = local.run(&["local", "status"]);
        status.stderr.contains("was removed from its group").then_some(status)
    });
    let step = format!("rm -r {}", local.path().join("namenode").join(name).display());
    assert!(status.code == 4 && status.stderr.contains(&step), "{status}");
    let refused = local.run(&["local", "restart", name]);
    assert!(refused.code == 1 && refused.stderr.contains(&step), "{refused}");
    assert!(!refused.stderr.contains("serves again"), "{refused}");
    assert_eq!(local.run(&["local", "status"]).code, 4);
    std::fs::remove_dir_all(local.path().join("namenode").join(name)).expect("removed");
    let back = local.run(&["local", "restart", name]);
    assert!(back.code == 0 && back.stderr.contains("serves again"), "{back}");
    assert_eq!(local.run(&["local", "status"]).code, 0);
}

#[test]
fn doctor_reports_what_is_missing() {
    let cluster = Cluster::of(1);
    let report = cluster.cli(&["doctor", "--dram", "8MiB", "--json"]);
    let report = json(&report);
    let verdict = |name: &str| {
        let checks = report["checks"].as_array().expect("a list");
        let found = checks.iter().find(|check| check["name"] == name).expect("it is checked");
        found["verdict"].as_str().expect("a word").to_owned()
    };
    assert_eq!(verdict("namenode"), "ok", "{report}");
    assert_eq!(verdict("memfd"), "ok", "{report}");
    let ran = cluster.cli(&["doctor", "--dram", "900TiB"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stdout.contains("FAIL  memory") && ran.stdout.contains("mend:"), "{ran}");
}

#[test]
fn demo_without_its_package_prints_how_to_get_it() {
    for python in ["/no/such/python", "false"] {
        let ran = run(sanderling().args(["demo", "--seed", "1"]).env("SANDERLING_PYTHON", python));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("make demo"), "{ran}");
    }
}

#[test]
fn demo_gets_every_word_that_is_meant_for_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().expect("a directory");
    let python = directory.path().join("python");
    std::fs::write(&python, "#!/bin/sh\necho \"$*\"\n").expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&python, mode).expect("made a program");
    let words = ["demo", "--json", "--timeout", "9s", "--seed", "2", "--help"];
    let ran = run(sanderling().args(words).env("SANDERLING_PYTHON", &python));
    assert_eq!(ran.code, 0, "{ran}");
    let expected = "-m sanderling.demo --json --timeout 9s --seed 2 --help\n";
    assert_eq!(ran.stdout, expected);
}

#[test]
fn sim_gives_the_same_run_for_the_same_seed_and_lists_its_broken_variants() {
    let once = || run(sanderling().args(["sim", "--seed", "7", "--json"]));
    let (first, second) = (once(), once());
    let (first_run, second_run) = (json(&first), json(&second));
    assert_eq!(first_run["digest"], second_run["digest"], "{first}{second}");
    assert!(first.code == 0 && first_run["violation"].is_null(), "{first}");
    let ran = run(sanderling()
        .args(["sim", "--seed", "1", "--seeds", "50"])
        .args(["--bug", "fence-off"]));
    assert_eq!(ran.code, 1, "a broken variant is found: {ran}");
    let ran = run(sanderling().args(["sim", "--bug", "list"]));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stdout.contains("fence-off"), "{ran}");
}

#[test]
fn table_takes_key_values() {
    let cluster = Cluster::of(1);
    assert_eq!(cluster.cli(&["fs", "mkdir", "--kind", "table", "/table"]).code, 0);
    for text in ["first", "second"] {
        let local = cluster.path("value");
        std::fs::write(&local, text).expect("written");
        let local = local.to_str().expect("UTF-8");
        let ran = cluster.cli(&["fs", "put", local, "/table/key"]);
        assert_eq!(ran.code, 0, "the last create wins: {ran}");
        assert_eq!(cluster.cli(&["fs", "cat", "/table/key"]).stdout, text);
    }
    assert!(cluster.cli(&["fs", "ls", "-l", "/table"]).stdout.starts_with("key_value"));
}

#[test]
fn local_start_on_a_port_in_use_leaves_nothing_behind() {
    let cluster = Cluster::of(0);
    let port = cluster.namenode.address.rsplit(':').next().expect("a port");
    let local = Local { directory: TempDir::new().expect("a directory") };
    let ran = local.run(&["local", "start", "--port", port, "--dram", "8MiB"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("in use") && ran.stderr.contains("--port 0"), "{ran}");
    assert_eq!(local.run(&["local", "status"]).code, 3);
}

#[test]
fn trees_go_in_and_come_back() {
    let cluster = Cluster::of(2);
    let (source, target) = (cluster.path("source"), cluster.path("target"));
    std::fs::create_dir_all(source.join("a/empty")).expect("made");
    for (at, name) in ["one", "a/two words", "a/ünicode"].iter().enumerate() {
        std::fs::write(source.join(name), bytes_of(at as u64, at * 900_000)).expect("written");
    }
    let source = source.to_str().expect("UTF-8");
    assert_eq!(cluster.cli(&["fs", "put", source, "/tree"]).code, 1, "-r is needed");
    let put = cluster.json(&["fs", "put", "-r", source, "/tree"]);
    assert_eq!((&put["objects"], &put["bytes"]), (&3.into(), &2_700_000.into()), "{put}");
    let listed = cluster.cli(&["fs", "ls", "-R", "/tree"]).stdout;
    assert!(
        listed.contains("/tree/a/two words\n") && listed.contains("/tree/a/empty/\n"),
        "{listed}"
    );
    assert!(cluster.cli(&["fs", "ls", "-l", "/tree"]).stdout.contains("file"));
    assert!(cluster.cli(&["fs", "tree", "/"]).stdout.contains("└── one"));
    let usage = cluster.json(&["fs", "du", "/tree"]);
    assert_eq!(usage["subtrees"][0]["bytes"], 2_700_000, "{usage}");
    let ran = cluster.cli(&["fs", "get", "-r", "/tree", target.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(target.join("a/empty").is_dir());
    for (at, name) in ["one", "a/two words", "a/ünicode"].iter().enumerate() {
        let read = std::fs::read(target.join(name)).expect("fetched");
        assert!(read == bytes_of(at as u64, at * 900_000), "{name} has other bytes");
    }
    let ran = cluster.cli(&["fs", "mv", "/tree/one", "/tree/a"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(cluster.cli(&["fs", "stat", "/tree/a/one"]).code, 0);
    let planned = cluster.json(&["fs", "rm", "-r", "/tree", "--dry-run"]);
    assert_eq!(planned["freed_bytes"], 2_700_000, "{planned}");
    let removed = cluster.json(&["fs", "rm", "-r", "/tree"]);
    assert_eq!(removed["freed_bytes"], 2_700_000, "{removed}");
    assert_eq!(cluster.cli(&["fs", "ls", "/"]).stdout, "");
    let rooms = cluster.json(&["fs", "df"]);
    assert_eq!(rooms["used_bytes"], 0, "deleting gives the space back at once: {rooms}");
}

#[test]
fn standard_input_and_output_are_streams() {
    use std::io::Write;
    let cluster = Cluster::of(1);
    let mut put = sanderling()
        .args(["--namenode", &cluster.namenode.address, "fs", "put", "-", "/stream", "--parents"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program can be started");
    let mut stdin = put.stdin.take().expect("piped");
    for line in 0..1000 {
        writeln!(stdin, "line {line}").expect("read");
    }
    drop(stdin);
    assert!(put.wait().expect("our own child").success());
    let text = cluster.cli(&["fs", "cat", "/stream"]).stdout;
    assert!(text.starts_with("line 0\n") && text.ends_with("line 999\n"), "{} bytes", text.len());
    assert_eq!(cluster.cli(&["fs", "get", "/stream", "-"]).stdout, text);
    let part = cluster.cli(&["fs", "cat", "/stream", "--offset", "7", "--bytes", "6"]);
    assert_eq!(part.stdout, "line 1");
}

#[test]
fn secure_local_cluster_admits_callers_with_the_keys_that_it_made() {
    let local = Local { directory: TempDir::new().expect("a directory") };
    let words = ["local", "start", "--secure", "--port", "0", "--datanodes", "1", "--dram", "8MiB"];
    let started = local.run(&[&words[..], &["--json"]].concat());
    assert_eq!(started.code, 0, "{started}");
    let started = json(&started);
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let namenode = text(&started["namenode"]);
    let words = ["--namenode", &namenode, "fs", "put", "/proc/version", "/v"];
    assert_eq!(run(sanderling().args(words)).code, 1, "refused without a token");
    let keys = &started["keys"];
    let mut put = sanderling();
    put.args(words).env("SANDERLING_TLS_CA", text(&keys["tls_ca"]));
    put.env("SANDERLING_TOKEN_FILE", text(&keys["token_file"]));
    let put = run(&mut put);
    assert_eq!(put.code, 0, "{put}");
    let stopped = local.run(&["local", "stop"]);
    assert_eq!(stopped.code, 0, "{stopped}");
    assert!(stopped.stderr.contains("deleted with it: 1 object, "), "{stopped}");
    assert!(!std::path::Path::new(&text(&keys["token_file"])).exists(), "keys go with the data");
}
