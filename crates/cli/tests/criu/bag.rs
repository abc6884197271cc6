//! A task of a bag that CRIU cannot restore on one machine.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path as LocalPath;
use std::process::{Command, Stdio};

use super::cluster::{SOON, run, sanderling, until};
use super::{Killed, Place};

impl Place {
    fn of_bag(&self, verb: &str) -> Command {
        let mut command = sanderling();
        let backend = format!("dir:{}", self.path("backend").display());
        command.args(["task", verb, "--bag", "bag", "--backend", &backend]);
        command
    }

    fn agent(&self, criu: &LocalPath) -> Killed {
        let log = OpenOptions::new().create(true).append(true).open(self.path("agents.log"));
        let mut command = self.of_bag("agent");
        command.args(["--market", "spot", "--driver", "criu", "--interval", "200ms"]);
        command.arg("--key").arg(self.path("key")).arg("--criu").arg(criu);
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        Killed(command.spawn().expect("started"))
    }
}

/// On that machine a file that was open may be missing. Each try reads the whole checkpoint.
#[test]
fn task_that_criu_cannot_restore_here_is_tried_rarely_and_goes_on_elsewhere() {
    let Some(place) = Place::new("task_that_criu_cannot_restore_here") else { return };
    let mut submit = place.of_bag("submit");
    submit.args(["--time", "1h", "--deadline", "10h", "--", "python3"]);
    submit.arg(place.path("counter.py")).arg(place.directory.path()).arg("none");
    let submitted = run(&mut submit);
    assert_eq!(submitted.code, 0, "{submitted}");
    let first = place.agent(&place.criu);
    let stored = place.path("backend/bag.000001/generations");
    until("a checkpoint of a task that counts", SOON, || {
        let is_counting = !place.numbers().is_empty();
        let stored = std::fs::read_dir(&stored).into_iter().flatten().flatten();
        let mut whole = stored.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
        (is_counting && whole.next().is_some()).then_some(())
    });
    drop(first);
    let (stub, tries, real) = (place.path("stub"), place.path("tries"), place.criu.display());
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = restore ] && {{ date +%s >>'{}'; exit 1; }}\nexec '{real}' \"$@\"\n",
        tries.display()
    );
    std::fs::write(&stub, script).expect("written");
    std::fs::set_permissions(&stub, Permissions::from_mode(0o755)).expect("set");
    let _second = place.agent(&stub);
    let seconds = || -> Vec<u64> {
        place.text("tries").lines().filter_map(|line| line.parse().ok()).collect()
    };
    until("it is tried twice", SOON, || (seconds().len() >= 2).then_some(()));
    let (tried, log) = (seconds(), place.text("agents.log"));
    assert!(tried[1] - tried[0] >= 9, "{tried:?} {log}");
    assert!(log.contains("CRIU cannot restore generation"), "{log}");
    let before = place.numbers().len();
    let third = place.agent(&place.criu);
    until("it goes on elsewhere", SOON, || (place.numbers().len() > before).then_some(()));
    std::fs::write(place.path("stop"), "").expect("written");
    let shown = run(place.of_bag("bag").arg("--wait"));
    assert_eq!(shown.code, 0, "{shown} {}", place.text("agents.log"));
    drop(third);
}
