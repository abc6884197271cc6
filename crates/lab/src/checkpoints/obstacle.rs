//! What a task can have that CRIU does not dump.

use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use clap::ValueEnum;
use rustix::net::{AddressFamily, SocketType, ipproto, socket};

/// Devices with a state that can be opened without an effect, of which a machine has one or the
/// other.
const DEVICES: [&str; 4] = ["/dev/fuse", "/dev/net/tun", "/dev/loop-control", "/dev/kmsg"];

/// Devices of a GPU.
const GPUS: [&str; 2] = ["/dev/nvidia0", "/dev/nvidiactl"];

/// Bytes of a file that was unlinked: more than CRIU takes into an image, 1 MiB.
const UNLINKED_BYTES: usize = 2 << 20;

/// Files in the control directory: the address of a TCP listener of the lab, and its socket.
const ADDRESS: &str = "address";
const SOCKET: &str = "socket";

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Obstacle {
    /// A terminal
    Terminal,
    /// A device with a state
    Device,
    /// A GPU
    Gpu,
    /// A TCP connection to another process
    Connection,
    /// A raw socket
    RawSocket,
    /// A file lock
    Lock,
    /// A process that has left the task's tree
    LeftTree,
    /// A process in another namespace
    Namespace,
    /// A Unix socket to a process outside of the task
    OutsideSocket,
    /// An open file of 2 MiB that was unlinked
    Unlinked,
}

/// What a task has, as long as this value lives.
pub(crate) struct HeldObstacle {
    _open: Option<OwnedFd>,
    _child: Option<Child>,
}

/// What is outside of a task: the other ends of its connections.
pub(crate) struct OutsideEnds {
    connections: TcpListener,
    sockets: UnixListener,
    accepted: Vec<OwnedFd>,
}

impl OutsideEnds {
    /// Makes them, and lets a task find them by its control directory.
    ///
    /// # Errors
    /// There is no free port, or the directory's name is too long for a socket.
    pub(crate) fn open(control: &Path) -> io::Result<Self> {
        let connections = TcpListener::bind("127.0.0.1:0")?;
        std::fs::write(control.join(ADDRESS), connections.local_addr()?.to_string())?;
        let sockets = UnixListener::bind(control.join(SOCKET))?;
        connections.set_nonblocking(true)?;
        sockets.set_nonblocking(true)?;
        Ok(Self { connections, sockets, accepted: Vec::new() })
    }

    /// Accepts what a task has connected: before that it is not the connection of any process.
    pub(crate) fn accept(&mut self) {
        let connection = self.connections.accept().map(|(stream, _)| OwnedFd::from(stream));
        let socket = self.sockets.accept().map(|(stream, _)| OwnedFd::from(stream));
        self.accepted.extend([connection, socket].into_iter().flatten());
    }
}

impl Obstacle {
    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Device => "device",
            Self::Gpu => "gpu",
            Self::Connection => "connection",
            Self::RawSocket => "raw-socket",
            Self::Lock => "lock",
            Self::LeftTree => "left-tree",
            Self::Namespace => "namespace",
            Self::OutsideSocket => "outside-socket",
            Self::Unlinked => "unlinked",
        }
    }

    /// Returns what the task has, in words.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Terminal => "a terminal",
            Self::Device => "a device",
            Self::Gpu => "a GPU",
            Self::Connection => "a TCP connection to another process",
            Self::RawSocket => "a raw socket",
            Self::Lock => "a file lock",
            Self::LeftTree => "a process that has left its tree",
            Self::Namespace => "a process in another namespace",
            Self::OutsideSocket => "a Unix socket to another process",
            Self::Unlinked => "an open file of 2 MiB that was unlinked",
        }
    }

    /// Makes it in this process. `control` is where [`OutsideEnds`] are found.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub(crate) fn make(self, control: &Path) -> io::Result<HeldObstacle> {
        let open: OwnedFd = match self {
            Self::Terminal => first_of(&["/dev/ptmx"])?,
            Self::Device => first_of(&DEVICES)?,
            Self::Gpu => first_of(&GPUS)?,
            Self::Connection => {
                let address = std::fs::read_to_string(control.join(ADDRESS))?;
                TcpStream::connect(address.trim())?.into()
            }
            Self::RawSocket => socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))?,
            Self::Lock => {
                let file = File::create(control.join("locked"))?;
                file.lock()?;
                file.into()
            }
            Self::OutsideSocket => UnixStream::connect(control.join(SOCKET))?.into(),
            Self::Unlinked => unlinked(control)?.into(),
            Self::LeftTree => {
                // The shell ends, and leaves its child to process 1.
                quiet("sh", &["-c", "sleep 600 &"]).status()?;
                return Ok(HeldObstacle { _open: None, _child: None });
            }
            Self::Namespace => {
                let child = quiet("unshare", &["--uts", "sleep", "600"]).spawn()?;
                return Ok(HeldObstacle { _open: None, _child: Some(child) });
            }
        };
        Ok(HeldObstacle { _open: Some(open), _child: None })
    }
}

/// Opens the first of these files that can be opened.
fn first_of(paths: &[&str]) -> io::Result<OwnedFd> {
    let found = paths.iter().find_map(|path| File::open(path).ok());
    let none = || format!("none of {} can be opened here", paths.join(", "));
    found.map(OwnedFd::from).ok_or_else(|| io::Error::other(none()))
}

fn unlinked(control: &Path) -> io::Result<File> {
    let path = control.join("unlinked");
    let mut file = File::create(&path)?;
    file.write_all(&vec![7; UNLINKED_BYTES])?;
    file.sync_all()?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Returns a command without input and output.
fn quiet(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for obstacle in Obstacle::value_variants() {
            let parsed = Obstacle::from_str(obstacle.name(), false);
            assert_eq!(parsed.as_ref(), Ok(obstacle), "{}", obstacle.what());
        }
    }

    #[test]
    fn ends_outside_are_found_by_the_control_directory() {
        let control = tempfile::tempdir().expect("a directory");
        let mut outside = OutsideEnds::open(control.path()).expect("made");
        outside.accept();
        assert!(outside.accepted.is_empty());
        let obstacles = [Obstacle::Connection, Obstacle::OutsideSocket, Obstacle::Lock];
        let made = obstacles.map(|obstacle| obstacle.make(control.path()));
        assert!(made.iter().all(Result::is_ok));
        outside.accept();
        assert_eq!(outside.accepted.len(), 2);
        let why = first_of(&["/nonexistent"]).expect_err("it is absent").to_string();
        assert_eq!(why, "none of /nonexistent can be opened here");
    }
}
