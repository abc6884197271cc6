//! Clients that are processes of their own, and stand still or die while they write.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{SOON, path, sanderling};
use crate::faults::pause;
use crate::lots::Lots;
use crate::model::{Promise, State, Version, Violation};
use crate::world::World;

/// A process that puts its standard input.
struct Put {
    child: Child,
    name: String,
    version: Version,
}

impl Put {
    /// Starts it and gives it so many bytes.
    fn start(world: &mut World, lots: &mut Lots, bytes: usize) -> Self {
        world.counter += 1;
        let (name, seed) = (format!("/cli/c{}", world.counter), lots.next());
        let version = Version { seed, least: 0, most: 2 * bytes };
        world.shared.model.begin(&name, State::Holds(version));
        let mut child = sanderling()
            .args(["fs", "put", "--parents", "-", &name])
            .env("SANDERLING_NAMENODE", &world.fleet.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program can be started");
        let first = world.shared.model.content(seed, 0, bytes);
        let stdin = child.stdin.as_mut().expect("piped");
        // It may have ended already: then its result counts.
        let _ = stdin.write_all(&first);
        Self { child, name, version }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let _ = rustix::process::kill_process(pid.expect("a pid"), signal);
    }
}

/// A client stands still in the middle of a put.
pub(crate) async fn stop(world: &mut World, lots: &mut Lots) -> Result<String, Violation> {
    let bytes = 100_000 + usize::try_from(lots.below(1_000_000)).expect("small");
    let mut put = Put::start(world, lots, bytes);
    let millis = 1000 + lots.below(7000);
    pause(lots.below(300)).await;
    put.signal(rustix::process::Signal::STOP);
    pause(millis).await;
    put.signal(rustix::process::Signal::CONT);
    let rest = world.shared.model.content(put.version.seed, bytes, bytes);
    let mut stdin = put.child.stdin.take().expect("piped");
    let _ = stdin.write_all(&rest);
    drop(stdin);
    let limit = Instant::now() + SOON;
    let status = loop {
        if let Some(status) = put.child.try_wait().expect("our own child") {
            break status;
        }
        if Instant::now() > limit {
            let _ = put.child.kill();
            let _ = put.child.wait();
            return Err(Violation::new(Promise::Deadline, format!("{} hangs", put.name)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    if status.success() {
        let state = State::Holds(Version::whole(put.version.seed, 2 * bytes));
        world.shared.model.acknowledged(&put.name, vec![state]);
    }
    Ok(format!("SIGSTOP of a client in a put of {} B for {millis} ms: {status}", 2 * bytes))
}

/// A client dies in the middle of a put. Its lease ends, and its name can be deleted.
pub(crate) async fn kill(world: &mut World, lots: &mut Lots) -> Result<String, Violation> {
    let bytes = 1 + usize::try_from(lots.below(2_000_000)).expect("small");
    let mut put = Put::start(world, lots, bytes.min(1_100_000));
    pause(lots.below(500)).await;
    let _ = put.child.kill();
    let _ = put.child.wait();
    world.shared.model.begin(&put.name, State::Absent);
    if world.admin.delete(&path(&put.name), false).await.is_ok() {
        world.shared.model.acknowledged(&put.name, vec![State::Absent]);
    }
    Ok(format!("kill -9 of a client that has put {bytes} B of {}", put.name))
}
