//! The fleet: one namenode, datanodes in their places, and the hand that takes them away.

pub(crate) mod network;
mod trace_player;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sanderling_client::{Client, ClientConfig};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::own_cluster;
use crate::process::program;
use crate::record::{NodeRecord, PolicyName};

use crate::child::ChildServer;
use network::Network;

pub(crate) use trace_player::play;

/// How a fleet is started.
#[derive(Debug, Clone)]
pub(crate) struct FleetOptions {
    /// The mechanism.
    pub(crate) policy: PolicyName,
    /// Datanodes.
    pub(crate) nodes: u32,
    /// Memory of each.
    pub(crate) dram_bytes: u64,
    /// Time from a notice to SIGKILL.
    pub(crate) notice: Duration,
    /// Time from SIGKILL to the start of the replacement.
    pub(crate) replace: Duration,
    /// Where the catalog and the logs go; it must not exist.
    pub(crate) directory: PathBuf,
    /// Further flags of the namenode.
    pub(crate) namenode_flags: Vec<String>,
    /// Further flags of every datanode.
    pub(crate) datanode_flags: Vec<String>,
}

/// A running fleet. Dropping it kills its processes, and no others.
#[derive(Debug)]
pub(crate) struct LabFleet<'a> {
    network: &'a Network,
    options: FleetOptions,
    program: Command,
    namenode: ChildServer,
    namenode_address: String,
    places: Vec<Option<FleetSlot>>,
    nodes: Vec<Incarnation>,
}

/// The occupant of a place.
#[derive(Debug)]
struct FleetSlot {
    server: ChildServer,
    life: usize,
}

/// One incarnation, by this process's clock.
#[derive(Debug, Clone)]
pub(crate) struct Incarnation {
    /// Its place.
    pub(crate) slot: u32,
    /// Its name in the cluster.
    pub(crate) name: String,
    /// When it served; `None` until then.
    pub(crate) served: Option<Instant>,
    /// When its notice was given.
    pub(crate) noticed: Option<Instant>,
    /// When it was killed.
    pub(crate) killed: Option<Instant>,
}

impl<'a> LabFleet<'a> {
    /// Starts all servers and waits until they serve. Must be called, and polled, on a thread that
    /// outlives the fleet: the servers die with it.
    ///
    /// # Errors
    /// A server's that does not start.
    pub(crate) async fn start(
        network: &'a Network,
        options: FleetOptions,
    ) -> Result<Self, Failure> {
        let directory = &options.directory;
        std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
        let program = program()?;
        let mut command = Command::new(program.get_program());
        command.args(program.get_args()).args(["namenode", "--http", "none", "--listen"]);
        command.arg(format!("{}:0", network.root_address())).arg("--dir");
        command.arg(directory.join("catalog")).args(["--policy", &options.policy.to_string()]);
        if !network.root_address().is_loopback() {
            command.arg("--allow-unauthenticated");
        }
        command.args(&options.namenode_flags);
        let mut namenode = ChildServer::spawn(command, directory, "namenode")?;
        let namenode_address = namenode.serves().await?.address;
        let (places, nodes) = (Vec::new(), Vec::new());
        let mut fleet =
            Self { network, options, program, namenode, namenode_address, places, nodes };
        for slot in 0..fleet.options.nodes {
            fleet.places.push(None);
            fleet.spawn(slot)?;
        }
        for place in fleet.places.iter_mut().flatten() {
            place.server.serves().await?;
            fleet.nodes[place.life].served = Some(Instant::now());
        }
        Ok(fleet)
    }

    /// Connects a client of its own, with its own counts.
    ///
    /// # Errors
    /// Unavailable (4) when the namenode does not answer.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let address = &self.namenode_address;
        let connected = Client::connect(address, ClientConfig::default()).await;
        connected.map_err(|error| own_cluster::failed(&error, address))
    }

    /// Returns every node that was, in the order of their starts.
    #[must_use]
    pub(crate) fn lives(&self) -> &[Incarnation] {
        &self.nodes
    }

    /// Returns them as recorded, in seconds from `began`.
    #[must_use]
    pub(crate) fn records(&self, began: Instant) -> Vec<NodeRecord> {
        let since = |at: Instant| match at.checked_duration_since(began) {
            Some(after) => after.as_secs_f64(),
            None => -began.duration_since(at).as_secs_f64(),
        };
        let record = |life: &Incarnation| {
            let served = since(life.served?);
            let (noticed, killed) = (life.noticed.map(since), life.killed.map(since));
            Some(NodeRecord { slot: life.slot, name: life.name.clone(), served, noticed, killed })
        };
        self.nodes.iter().filter_map(record).collect()
    }

    /// Starts a datanode in a place that is empty.
    fn spawn(&mut self, slot: u32) -> Result<(), Failure> {
        let incarnation = self.nodes.iter().filter(|life| life.slot == slot).count();
        let name = format!("n{slot}-{incarnation}");
        let mut command = self.network.at(slot, &self.program);
        let address = self.network.address(slot);
        command.args(["datanode", "--http", "none", "--namenode", &self.namenode_address]);
        command.args(["--listen", &format!("{address}:0"), "--name", &name, "--host", &name]);
        command.args(["--dram", &self.options.dram_bytes.to_string()]);
        // Each stands for a machine of its own: its clients come over the network that is measured.
        command.args(["--local-socket", "none"]);
        command.args(["--policy", &self.options.policy.to_string()]);
        command.args(self.network.datanode_flags()).args(&self.options.datanode_flags);
        let server = ChildServer::spawn(command, &self.options.directory, &name)?;
        self.places[slot as usize] = Some(FleetSlot { server, life: self.nodes.len() });
        self.nodes.push(Incarnation { slot, name, served: None, noticed: None, killed: None });
        Ok(())
    }

    /// Takes note of a starting node that serves by now; returns whether it does.
    fn look(&mut self, slot: u32) -> Result<bool, Failure> {
        let place = self.places[slot as usize].as_mut();
        let place = place.expect("only places with a server are looked at");
        let is_ready = place.server.ready()?.is_some();
        if is_ready {
            self.nodes[place.life].served = Some(Instant::now());
        }
        Ok(is_ready)
    }

    /// Takes note that the node of a place gets its notice now; returns its name.
    fn noticed(&mut self, slot: u32) -> Option<String> {
        let place = self.places[slot as usize].as_ref()?;
        self.nodes[place.life].noticed = Some(Instant::now());
        Some(place.server.name().to_owned())
    }

    fn kill(&mut self, slot: u32) {
        if let Some(mut place) = self.places[slot as usize].take() {
            place.server.kill();
            self.nodes[place.life].killed = Some(Instant::now());
        }
    }
}

impl Drop for LabFleet<'_> {
    fn drop(&mut self) {
        // All at once: none has time to declare another dead.
        self.places.clear();
        self.namenode.kill();
    }
}
