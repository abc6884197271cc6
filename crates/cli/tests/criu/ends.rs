//! How tasks of CRIU end: in the middle of a dump, at once after a restore, and with processes that
//! they leave behind.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use super::cluster::{SOON, run, until};
use super::{Killed, Place};

/// Makes a file `ready`, and one `terminated` when it ends by SIGTERM.
const TERMINABLE: &str = r#"
import os, signal, sys, time

def make(name):
    open(os.path.join(sys.argv[1], name), "w").close()

def end(*_):
    make("terminated")
    sys.exit()

signal.signal(signal.SIGTERM, end)
make("ready")
while True:
    time.sleep(0.01)
"#;

/// Writes a program in place of CRIU, with a script for one of its verbs. In the script `criu` is
/// the one of this machine.
fn stub(place: &Place, verb: &str, script: &str) -> PathBuf {
    let (path, real) = (place.path("stub"), place.criu.display());
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = {verb} ] || exec '{real}' \"$@\"\n\
         criu() {{ '{real}' \"$@\"; }}\n{script}\n"
    );
    write_program(&path, &text);
    path
}

fn write_program(path: &LocalPath, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
}

/// CRIU takes longer here, so that the runner ends in the middle of a dump.
#[test]
fn task_that_is_ended_during_a_dump_gets_sigterm() {
    let Some(place) = Place::new("task_that_is_ended_during_a_dump") else { return };
    std::fs::write(place.path("task.py"), TERMINABLE).expect("written");
    let dumped = place.path("dumped");
    let script = format!(
        "criu \"$@\"; code=$?; : >'{}'\nwhile [ -d '{}' ]; do sleep 0.05; done; exit $code",
        dumped.display(),
        place.directory.path().display()
    );
    let criu = stub(&place, "dump", &script);
    let mut command = place.task("run");
    command.arg("--criu").arg(criu).args(["--driver", "criu", "--interval", "500ms"]);
    command.args(["--", "python3"]).arg(place.path("task.py")).arg(place.directory.path());
    let log = std::fs::File::create(place.path("runner.log")).expect("a log");
    command.stdout(Stdio::null()).stderr(log);
    let mut runner = Killed(command.spawn().expect("started"));
    until("a dump is under way", SOON, || {
        assert!(!runner.has_ended(), "{}", place.text("runner.log"));
        (place.path("ready").exists() && dumped.exists()).then_some(())
    });
    runner.signal(Signal::TERM);
    until("the runner ends", SOON, || runner.has_ended().then_some(()));
    assert!(place.path("terminated").exists(), "{}", place.text("runner.log"));
    assert_eq!(place.newest(), None, "its dump had not ended");
}

/// As one with a signal that was pending when it was dumped: it ends while CRIU has not, which runs
/// this when it has let the task go on. CRIU makes the task a child of its own parent, so that no
/// program may be between CRIU and process 1.
#[test]
fn restored_task_that_ends_at_once_is_reported_by_its_end() {
    let Some(place) = Place::new("restored_task_that_ends_at_once") else { return };
    place.publish("none", &[], 1);
    let newest = place.newest().expect("published");
    let after = r#"#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-resume ] || exit 0
for stat in /proc/[0-9]*/stat; do
    read -r pid name state parent rest 2>/dev/null <"$stat" || continue
    if [ "$parent" = 1 ] && [ "$pid" -ge 300 ]; then
        kill -TERM "$pid"
        while [ -e "/proc/$pid" ]; do sleep 0.01; done
    fi
done
exit 0"#;
    write_program(&place.path("after"), after);
    let (real, after) = (place.criu.display(), place.path("after"));
    let script = format!("exec '{real}' \"$@\" --action-script '{}'", after.display());
    let criu = stub(&place, "restore", &script);
    let ran = run(&mut place.runner_with("criu", &criu, "none", &[]));
    assert!(ran.code == 1 && ran.stderr.contains("ended by signal 15"), "{ran}");
    assert!(ran.stderr.contains(&format!("restored generation {newest}\n")), "{ran}");
    assert!(!ran.stderr.contains("cannot restore"), "{ran}");
    std::fs::write(place.path("stop"), "").expect("written");
    let ran = run(&mut place.runner("none", &[]));
    assert_eq!(ran.code, 0, "{ran}");
}

/// Each of them has the pipes of the task's output, whose ends the runner waits for.
#[test]
fn task_ends_with_its_command_although_its_processes_begin_others_all_the_time() {
    for _ in 0..8 {
        let Some(place) = Place::new("task_ends_with_its_command") else { return };
        let mut command = place.task("run");
        command.arg("--criu").arg(&place.criu).args(["--driver", "criu", "--interval", "1h"]);
        let script = "(while :; do sleep 1000 & sleep 0.001; done) & sleep 1; echo over";
        let ran = run(command.args(["--", "sh", "-c", script]));
        assert!(ran.code == 0 && ran.stdout.contains("over"), "{ran}");
    }
}
