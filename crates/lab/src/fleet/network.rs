//! The network between the nodes: a namespace for each with a shaped link, or loopback.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Exit, Failure, FailureKind};
use crate::record::Isolation;

/// What every namespace of a lab is called first; the process's id and the place follow.
const PREFIX: &str = "sanderling-lab";

/// Where the kernel lists namespaces that have names.
const NAMED: &str = "/run/netns";

/// A node's end of its link.
const WIRE: &str = "wire";

/// What tbf lets through at once, in time. The kernel's timer ticks every 4 ms at 250 Hz; less than
/// a tick's worth would make the link slower than its rate.
const BURST_SECONDS: f64 = 0.005;

/// Never less than two of the largest packets that the kernel hands down (64 KiB).
const BURST_BYTES_MIN: u64 = 128 << 10;

/// How long a packet may wait in its sender before it is dropped. The kernel keeps each
/// connection's part of this queue short by itself (TCP small queues), as in front of a network
/// card; only many connections at once fill it.
const SEND_QUEUE: &str = "400ms";

/// How long a packet may wait in the switch before it is dropped, and its sender slows down.
const SWITCH_QUEUE: &str = "100ms";

/// The network of one lab. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Network {
    isolation: Isolation,
    places: u32,
    /// The third number of every address.
    subnet: u8,
    link_bytes_per_second: u64,
}

impl Network {
    /// Makes namespaces with shaped links for so many places.
    ///
    /// # Errors
    /// Unavailable (4) with the first command that failed: the user may not, or `ip` is missing.
    /// What was made until then is removed.
    pub(crate) fn namespaces(places: u32, link_bytes_per_second: u64) -> Result<Self, Failure> {
        remove_stale();
        let subnet = free_subnet();
        let network =
            Self { isolation: Isolation::Namespaces, places, subnet, link_bytes_per_second };
        network.make_switch()?;
        for place in 0..places {
            network.make_place(place)?;
        }
        Ok(network)
    }

    /// Takes loopback, on which each node paces itself.
    #[must_use]
    pub(crate) const fn loopback(places: u32, link_bytes_per_second: u64) -> Self {
        let isolation = Isolation::Loopback;
        Self { isolation, places, subnet: 0, link_bytes_per_second }
    }

    /// Returns how the nodes are kept apart.
    #[must_use]
    pub(crate) const fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Returns the address at which the namenode and the clients are.
    #[must_use]
    pub(crate) fn root_address(&self) -> Ipv4Addr {
        match self.isolation {
            Isolation::Namespaces => Ipv4Addr::new(198, 18, self.subnet, 254),
            Isolation::Loopback => Ipv4Addr::LOCALHOST,
        }
    }

    /// Returns the address of a place.
    #[must_use]
    pub(crate) fn address(&self, place: u32) -> Ipv4Addr {
        match self.isolation {
            Isolation::Namespaces => {
                let last = u8::try_from(place + 1).expect("at most 64 places");
                Ipv4Addr::new(198, 18, self.subnet, last)
            }
            Isolation::Loopback => Ipv4Addr::LOCALHOST,
        }
    }

    /// Returns the command that runs a program at a place; the program's words follow. `ip netns
    /// exec` becomes the program: its process id is the program's.
    #[must_use]
    pub(crate) fn at(&self, place: u32, program: &Command) -> Command {
        let mut command = match self.isolation {
            Isolation::Loopback => Command::new(program.get_program()),
            Isolation::Namespaces => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespace(place)]).arg(program.get_program());
                command
            }
        };
        command.args(program.get_args());
        command
    }

    /// Returns the flags of a datanode that pace it where the network does not.
    #[must_use]
    pub(crate) fn datanode_flags(&self) -> Vec<String> {
        match self.isolation {
            Isolation::Namespaces => vec!["--allow-unauthenticated".to_owned()],
            Isolation::Loopback => {
                vec!["--egress-limit".to_owned(), self.link_bytes_per_second.to_string()]
            }
        }
    }

    /// A bridge in a namespace of its own, so that no packet filter of this machine sees it, and
    /// one unshaped link to it from here.
    fn make_switch(&self) -> Result<(), Failure> {
        let (switch, outer, inner) = (switch(), link("r"), link("q"));
        run(&format!("ip netns add {switch}"))?;
        run(&format!("ip -n {switch} link add bridge type bridge forward_delay 0"))?;
        run(&format!("ip -n {switch} link set bridge up"))?;
        run(&format!("ip link add {outer} type veth peer name {inner} netns {switch}"))?;
        run(&format!("ip -n {switch} link set {inner} master bridge up"))?;
        run(&format!("ip address add {}/24 dev {outer}", self.root_address()))?;
        run(&format!("ip link set {outer} up"))
    }

    fn make_place(&self, place: u32) -> Result<(), Failure> {
        let (switch, own) = (switch(), namespace(place));
        let port = link(&format!("n{place}"));
        run(&format!("ip netns add {own}"))?;
        run(&format!("ip -n {own} link set lo up"))?;
        run(&format!("ip -n {switch} link add {port} type veth peer name {WIRE} netns {own}"))?;
        run(&format!("ip -n {switch} link set {port} master bridge up"))?;
        run(&format!("ip -n {own} address add {}/24 dev {WIRE}", self.address(place)))?;
        run(&format!("ip -n {own} link set {WIRE} up"))?;
        // Both ends, as a full-duplex link: what the node sends, and what is sent to it.
        self.shape(&own, WIRE, SEND_QUEUE)?;
        self.shape(&switch, &port, SWITCH_QUEUE)
    }

    fn shape(&self, namespace: &str, device: &str, queue: &str) -> Result<(), Failure> {
        let rate = self.link_bytes_per_second;
        let burst = ((rate as f64 * BURST_SECONDS) as u64).max(BURST_BYTES_MIN);
        let bits = rate * 8;
        run(&format!(
            "tc -n {namespace} qdisc add dev {device} root tbf rate {bits}bit burst {burst} \
             latency {queue}"
        ))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.isolation == Isolation::Namespaces {
            for place in 0..self.places {
                let _ = run(&format!("ip netns del {}", namespace(place)));
            }
            let _ = run(&format!("ip netns del {}", switch()));
        }
    }
}

/// Removes the namespaces of labs whose process has ended without removing them. Links go with
/// them.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(NAMED) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

/// Returns the process that made a namespace, if a lab did.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-').next()?.parse().ok()
}

fn switch() -> String {
    format!("{PREFIX}-{}-switch", std::process::id())
}

fn namespace(place: u32) -> String {
    format!("{PREFIX}-{}-{place}", std::process::id())
}

/// Names a link end in at most 15 bytes, the kernel's limit: a process id has up to seven.
fn link(end: &str) -> String {
    format!("sl{}{end}", std::process::id())
}

/// Returns a third number of 198.18.x.0/24 that no interface here has. RFC 2544 sets 198.18.0.0/15
/// aside for measurements.
fn free_subnet() -> u8 {
    let listed = Command::new("ip").args(["-4", "-o", "address"]).output();
    let text = listed.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let text = text.unwrap_or_default();
    let first = std::process::id() % 200;
    let numbers = (0..200).map(|at| u8::try_from((first + at) % 200).expect("below 200"));
    let mut free = numbers.filter(|number| !text.contains(&format!("198.18.{number}.")));
    free.next().unwrap_or(200)
}

/// Runs a command whose words hold no spaces.
fn run(line: &str) -> Result<(), Failure> {
    let mut words = line.split_ascii_whitespace();
    let program = words.next().expect("a command has a first word");
    let ran = Command::new(program).args(words).stdin(Stdio::null()).output();
    let why = match ran {
        Ok(ran) if ran.status.success() => return Ok(()),
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Failure::new(Exit::Unavailable, FailureKind::NoNamespaces, format_args!("{line}: {why}"))
        .next("the same as root, with iproute2 installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_name_the_process_that_made_them() {
        assert_eq!(owner(&namespace(3)), Some(std::process::id()));
        assert_eq!(owner(&switch()), Some(std::process::id()));
        assert_eq!(owner("sanderling-lab-x-1"), None);
        assert_eq!(owner("somebody-elses"), None);
    }

    #[test]
    fn names_of_links_are_short_enough_for_the_kernel() {
        assert!("sl4194304n63".len() <= 15);
    }

    #[test]
    fn loopback_paces_the_datanodes_themselves() {
        let network = Network::loopback(2, 1000);
        assert_eq!(network.datanode_flags(), ["--egress-limit", "1000"]);
        let command = network.at(1, Command::new("program").arg("word"));
        assert_eq!(command.get_program(), "program");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["word"]);
    }
}
