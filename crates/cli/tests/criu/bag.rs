//! A task of a bag that CRIU cannot restore on one machine.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path as LocalPath;
use std::process::{Command, Stdio};

use super::cluster::{SOON, program_at, run, sanderling, until};
use super::{Killed, Place};

impl Place {
    fn of_bag(&self, verb: &str) -> Command {
        self.of_bag_by(sanderling(), verb)
    }

    fn of_bag_by(&self, mut command: Command, verb: &str) -> Command {
        let backend = format!("dir:{}", self.path("backend").display());
        command.args(["task", verb, "--bag", "bag", "--backend", &backend]);
        command
    }

    fn agent(&self, criu: &LocalPath) -> Killed {
        self.agent_by(sanderling(), criu)
    }

    fn agent_by(&self, program: Command, criu: &LocalPath) -> Killed {
        let log = OpenOptions::new().create(true).append(true).open(self.path("agents.log"));
        let mut command = self.of_bag_by(program, "agent");
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

/// As at an upgrade: another program has the name of the agent's.
#[test]
fn agent_whose_program_was_replaced_starts_its_next_task() {
    let Some(place) = Place::new("agent_whose_program_was_replaced") else { return };
    let (begun, go) = (place.path("begun"), place.path("go"));
    let script = format!(
        "echo $SANDERLING_TASK_NUMBER >> '{}'; while [ ! -e '{}' ]; do sleep 0.05; done",
        begun.display(),
        go.display()
    );
    let mut submit = place.of_bag("submit");
    submit.args(["--count", "2", "--time", "1h", "--deadline", "10h", "--", "sh", "-c", &script]);
    let submitted = run(&mut submit);
    assert_eq!(submitted.code, 0, "{submitted}");
    let program = place.path("sanderling");
    // This process never has it open for writing: one that it starts meanwhile would, too.
    let copied = Command::new("cp").arg(sanderling().get_program()).arg(&program).status();
    assert!(copied.expect("cp").success());
    let agent = place.agent_by(program_at(&program), &place.criu);
    let started = || {
        let begun = std::fs::read_to_string(&begun).unwrap_or_default();
        begun.lines().count()
    };
    until("a task is started", SOON, || (started() == 1).then_some(()));
    let other = place.path("other");
    std::fs::write(&other, "another release").expect("written");
    std::fs::rename(&other, &program).expect("replaced");
    std::fs::write(&go, "").expect("written");
    until("the next task is started", SOON, || (started() == 2).then_some(()));
    let shown = run(place.of_bag("bag").arg("--wait"));
    assert_eq!(shown.code, 0, "{shown} {}", place.text("agents.log"));
    drop(agent);
}
