//! Commands over several objects of which some are lost: exit code 5, and the rest is done.

use std::process::Command;

use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, run, sanderling};
use sanderling_client::PutOptions;

const OBJECTS: usize = 60;
const BYTES: usize = 20_000;

/// A cluster with 60 objects below `/t`, some of which a killed node had. Returns how many are
/// whole.
fn with_losses() -> (Cluster, usize) {
    let namenode = vec!["--no-precopy".to_owned()];
    let mut cluster = Cluster::start(Shape { namenode, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        let options = PutOptions { parents: true, ..PutOptions::default() };
        for at in 0..OBJECTS {
            let to = path(&format!("/t/{at}"));
            client.put(&to, bytes_of(at as u64, BYTES), &options).await.expect("stored");
        }
    });
    cluster.datanode("n1").kill();
    let whole = block_on(async {
        let client = cluster.client().await;
        let deadline = std::time::Instant::now() + SOON;
        loop {
            let lost = client.report().await.expect("the namenode answers").objects;
            if lost > 0 {
                break OBJECTS - usize::try_from(lost).expect("few");
            }
            assert!(std::time::Instant::now() < deadline, "the node is not given up");
        }
    });
    assert!(whole > 0, "every object was on one node");
    (cluster, whole)
}

#[test]
fn commands_that_end_with_code_5_have_done_the_rest() {
    let (cluster, whole) = with_losses();
    let listed = |directory: &str| cluster.cli(&["fs", "ls", directory]).stdout.lines().count();
    let ran = cluster.cli(&["fs", "cp", "-r", "/t", "/copy"]);
    assert_eq!((ran.code, listed("/copy")), (5, whole), "{ran}");
    assert_eq!(cluster.cli(&["fs", "mkdir", "/other"]).code, 0);
    let ran = cluster.cli(&["fs", "cp", "/t/*", "/other"]);
    assert_eq!((ran.code, listed("/other")), (5, whole), "{ran}");
    let place = cluster.path("fetched");
    let ran = cluster.cli(&["fs", "get", "-r", "/t", &place.display().to_string()]);
    assert_eq!(ran.code, 5, "{ran}");
    assert_eq!(std::fs::read_dir(&place).expect("made").count(), whole);
    let ran = cat(&cluster);
    assert_eq!((ran.code, ran.stdout.trim()), (5, (whole * BYTES).to_string().as_str()), "{ran}");
}

/// Runs `fs cat` on all of them. The output is the number of bytes.
fn cat(cluster: &Cluster) -> crate::cluster::Ran {
    let mut command = Command::new("sh");
    let program = sanderling().get_program().to_owned();
    let words = r#"("$0" fs cat '/t/*'; echo $? >&2) | wc -c"#;
    command.arg("-c").arg(words).arg(program);
    let mut ran = run(command.env("SANDERLING_NAMENODE", &cluster.namenode.address));
    let code = ran.stderr.lines().last().and_then(|code| code.parse().ok());
    ran.code = code.expect("the code of the command");
    ran
}
