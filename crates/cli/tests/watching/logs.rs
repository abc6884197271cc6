//! The log: its filter at the start, and changed while a server runs. The start itself.

use std::path::Path;

use crate::cluster::{Cluster, SOON, block_on, http, run, sanderling, until};
use crate::lines;

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a pid"), signal).expect("it runs");
}

#[test]
fn unknown_log_level_is_refused_with_the_levels() {
    for words in [["node", "ls"], ["datanode", "--dram=8MiB"]] {
        for filter in ["debgu", "info,sanderling_datanod=debug", "sanderling_datanode=loud"] {
            let ran = run(sanderling().args(words).env("SANDERLING_LOG", filter));
            assert_eq!(ran.code, 2, "{filter}: {ran}");
            assert!(ran.stderr.contains("SANDERLING_LOG="), "{ran}");
        }
    }
    let ran = run(sanderling().args(["node", "ls"]).env("SANDERLING_LOG", "loud"));
    assert!(ran.stderr.contains("off, error, warn, info, debug, trace"), "{ran}");
}

#[test]
fn log_filter_of_the_environment_is_used_and_changed_at_run_time() {
    let mut cluster = Cluster::of(1);
    cluster.restart_namenode_with(&[("SANDERLING_LOG", Path::new("error"))]);
    let started = lines(&cluster.namenode.log(), "INFO").len();
    block_on(async {
        let namenode = cluster.namenode.http_address.clone();
        let page = http::get(&namenode, "/v1/log").await;
        assert_eq!((&page["filter"], &page["schema"]), (&"error".into(), &1.into()));
        let address = cluster.datanodes[0].http_address.clone();
        let page = http::get(&address, "/v1/log").await;
        assert_eq!((&page["filter"], &page["schema"]), (&"info".into(), &1.into()));
        assert_eq!(lines(&cluster.datanodes[0].log(), "DEBUG"), [] as [String; 0]);
        for body in [r#"{"filter":"loud"}"#, r#"{"level":"debug"}"#, "{", r#"{"filter":""}"#] {
            for at in [&namenode, &address] {
                let answer = http::send(at, ("PUT", "/v1/log"), None, body).await;
                assert!(answer.starts_with("HTTP/1.1 400"), "{body}: {answer}");
            }
        }
        assert_eq!(http::get(&address, "/v1/log").await["filter"], "info");
        let debug = r#"{"filter":"info,sanderling_datanode=debug"}"#;
        let answer = http::send(&address, ("PUT", "/v1/log"), None, debug).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // A request that is refused is logged at the level debug.
        http::send(&namenode, ("PUT", "/v1/log"), None, r#"{"filter":"info"}"#).await;
    });
    assert_eq!(lines(&cluster.namenode.log(), "INFO").len(), started, "it logs errors alone");
    cluster.namenode.kill();
    let log = |cluster: &Cluster| cluster.datanodes[0].log();
    until("lines of the level debug", SOON, || lines(&log(&cluster), "DEBUG").first().map(|_| ()));
    let datanode = cluster.datanodes[0].pid();
    signal(datanode, rustix::process::Signal::USR2);
    until("the filter of the start", SOON, || {
        let lines = lines(&log(&cluster), "the log has another filter");
        lines.iter().any(|line| line.contains("to=\"info\"")).then_some(())
    });
    signal(datanode, rustix::process::Signal::USR1);
    until("one level more", SOON, || {
        let lines = lines(&log(&cluster), "the log has another filter");
        lines.iter().any(|line| line.contains("from=\"info\" to=\"debug\"")).then_some(())
    });
}

#[test]
fn timeout_bounds_the_start_of_a_server() {
    let words = ["datanode", "--namenode", "127.0.0.1:1", "--dram", "8MiB", "--http", "none"];
    let ran = run(sanderling().args(words).args(["--timeout", "1s"]));
    assert_eq!(ran.code, 124, "{ran}");
    assert!(ran.stderr.contains("does not serve within 1.00 s"), "{ran}");
    let words = ["datanode", "--namenode", "127.0.0.1:1", "--dram", "8MiB", "--http", "none"];
    let ran = run(sanderling().args(words).args(["--timeout", "3s"]));
    assert!(ran.stderr.contains("this datanode has not joined it"), "{ran}");
    assert!(!ran.stderr.contains("can still be read"), "{ran}");
    let words = ["gateway", "s3", "--namenode", "127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let ran = run(sanderling().args(words).args(["--http", "none", "--timeout", "30s"]));
    assert!(ran.code == 4 && ran.stderr.contains("127.0.0.1:1"), "{ran}");
}

#[test]
fn http_port_of_a_datanode_is_fixed_unless_another_process_has_it() {
    // Another process of this machine may have the port before, and close it before the datanode
    // starts: then the test begins again.
    for _ in 0..20 {
        let listener = std::net::TcpListener::bind("127.0.0.1:7611");
        let cluster = Cluster::of(1);
        let address = &cluster.datanodes[0].http_address;
        if listener.is_err() && address == "127.0.0.1:7611" {
            continue;
        }
        assert!(address.starts_with("127.0.0.1:") && address != "127.0.0.1:7611", "{address}");
        let log = cluster.datanodes[0].log();
        assert_eq!(lines(&log, "another process has the port").len(), 1, "{log}");
        return;
    }
    panic!("another process takes the port and closes it again and again");
}
