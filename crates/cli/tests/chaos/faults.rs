//! What happens to the fleet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sanderling_client::Client;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeId, NodeSelector, Policy};

use crate::cluster::http::post;
use crate::cluster::{Cluster, SOON, Server};
use crate::lots::Lots;

/// From a notice to the machine's end: time for a manager and a namenode to be replaced meanwhile.
const NOTICE: Duration = Duration::from_secs(40);

const NODES: usize = 5;

/// The source of the notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Person,
    Http,
    File,
    Sigterm,
    Amazon,
}

/// What happens beside a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    ManagerDies,
    NamenodeDies,
    BothDie,
    AnotherNotice,
}

/// Injects the faults; has the processes.
pub(crate) struct Faults {
    pub(crate) cluster: Cluster,
    manager: Option<Server>,
    mock: Server,
    /// The node that listens to the mock.
    listener: Option<String>,
    client: Client,
    lots: Lots,
    next_name: u32,
    /// Nodes that died after their notice.
    pub(crate) noticed: BTreeSet<NodeId>,
    /// What happened, for people.
    pub(crate) recorded: Vec<String>,
}

impl Faults {
    pub(crate) async fn start(cluster: Cluster, has_manager: bool, lots: Lots) -> Self {
        let client = cluster.client().await;
        let mock = cluster.serve("mock", &["mock-metadata", "--listen", "127.0.0.1:0"]);
        let (noticed, recorded) = (BTreeSet::new(), Vec::new());
        let (manager, listener) = (None, None);
        let next_name = 0;
        let mut faults =
            Self { cluster, manager, mock, listener, client, lots, next_name, noticed, recorded };
        if has_manager {
            faults.manager = Some(faults.start_manager());
        }
        for _ in 0..NODES {
            faults.add();
        }
        faults
    }

    fn record(&mut self, what: String) {
        eprintln!("chaos: {what}");
        self.recorded.push(what);
    }

    fn start_manager(&self) -> Server {
        let namenode = self.cluster.namenode.address.as_str();
        let words = ["manager", "--namenode", namenode, "--name", "m", "--ramp-up", "2s"];
        let share = ["--background-share", "50%"];
        self.cluster.serve("manager", &[&words[..], &share].concat())
    }

    /// Starts a node: a small budget, so that much of what it holds is copied ahead.
    fn add(&mut self) -> String {
        let name = format!("d{}", self.next_name);
        self.next_name += 1;
        let file = format!("file:{}", self.cluster.path(&format!("{name}.notice")).display());
        let mut flags = vec!["--host", &name, "--notice-min", "2s", "--egress", "6MiB"];
        flags.extend(["--egress-limit", "48MiB", "--sigterm-deadline", "40s"]);
        flags.extend(["--notice-source", &file, "--notice-poll", "50ms"]);
        let disk = self.cluster.path(&format!("{name}.disk")).display().to_string();
        if self.lots.below(3) == 0 {
            flags.extend(["--disk", "64MiB", "--disk-dir", &disk]);
        }
        let url = format!("http://{}", self.mock.address);
        if self.listener.is_none() {
            flags.extend(["--notice-source", "aws", "--notice-url", &url]);
            self.listener = Some(name.clone());
        }
        self.cluster.add(&name, &flags);
        name
    }

    /// Does the next thing.
    pub(crate) async fn next(&mut self) {
        match self.lots.below(14) {
            0..=5 => self.notice().await,
            6..=7 => self.kill_datanode().await,
            8 => self.kill_namenode().await,
            9 => self.kill_manager().await,
            10 => self.take_back().await,
            11 => self.recommend().await,
            12 => self.pause_datanode().await,
            _ => self.grow().await,
        }
        let millis = self.lots.below(1200);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// Brings the parts back that are not there.
    pub(crate) async fn calm(&mut self) {
        self.settled().await;
    }

    /// Waits until as many nodes as were started are active.
    async fn settled(&self) {
        let limit = Instant::now() + SOON;
        loop {
            let nodes = self.client.nodes(false).await.unwrap_or_default();
            let active = nodes.iter().filter(|node| node.policy == Policy::Active).count();
            if active == self.cluster.datanodes.len() && nodes.len() == active {
                return;
            }
            assert!(Instant::now() < limit, "{active} nodes are active: {nodes:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn info(&self, name: &str) -> Option<NodeInfo> {
        let nodes = self.client.nodes(true).await.unwrap_or_default();
        nodes.into_iter().rev().find(|node| node.name == name)
    }

    fn draw_node(&mut self) -> String {
        let names: Vec<String> =
            self.cluster.datanodes.iter().map(|server| server.name.clone()).collect();
        self.lots.pick(&names).clone()
    }

    fn draw_source(&mut self, name: &str) -> Source {
        let all = [Source::Person, Source::Http, Source::File, Source::Sigterm];
        if self.listener.as_deref() == Some(name) && self.lots.below(2) == 0 {
            return Source::Amazon;
        }
        *self.lots.pick(&all)
    }

    async fn give(&mut self, name: &str, source: Source) {
        let seconds = NOTICE.as_secs();
        match source {
            Source::Person => {
                let millis = i64::try_from(NOTICE.as_millis()).expect("short");
                let selector = NodeSelector(name.to_owned());
                self.client.notice(&selector, millis, "chaos").await.expect("it is taken");
            }
            Source::Http => {
                let endpoint = self.cluster.datanode(name).http_address.clone();
                let body = format!("{{\"deadline_seconds\": {seconds}}}");
                let answer = post(&endpoint, "/v1/notice", &body).await;
                assert!(answer.contains(" 200 ") || answer.contains(" 202 "), "{answer}");
            }
            Source::File => {
                let file = self.cluster.path(&format!("{name}.notice"));
                let body = format!("{{\"deadline_seconds\": {seconds}}}");
                std::fs::write(file, body).expect("written");
            }
            Source::Sigterm => self.cluster.datanode(name).terminate(),
            Source::Amazon => {
                let body = format!("{{\"in_seconds\": {seconds}}}");
                post(&self.mock.address, "/mock/preempt", &body).await;
            }
        }
    }

    /// Waits until the namenode has the notice; returns the incarnation.
    async fn until_noticed(&self, name: &str) -> NodeId {
        let limit = Instant::now() + SOON;
        loop {
            match self.info(name).await {
                Some(node) if node.policy != Policy::Active => return node.id,
                found => assert!(Instant::now() < limit, "{name} got no notice: {found:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The cloud takes a machine, as announced, and gives another one.
    async fn notice(&mut self) {
        let name = self.draw_node();
        let source = self.draw_source(&name);
        let beside = *self.lots.pick(&[
            Beside::Nothing,
            Beside::Nothing,
            Beside::ManagerDies,
            Beside::NamenodeDies,
            Beside::BothDie,
            Beside::AnotherNotice,
        ]);
        self.record(format!("notice to {name} by {source:?}, beside it {beside:?}"));
        let deadline = Instant::now() + NOTICE;
        self.give(&name, source).await;
        let id = self.until_noticed(&name).await;
        let mut leaving = vec![(name.clone(), id)];
        if matches!(beside, Beside::NamenodeDies | Beside::BothDie) {
            self.restart_namenode().await;
        }
        if matches!(beside, Beside::ManagerDies | Beside::BothDie) {
            self.restart_manager().await;
        }
        if beside == Beside::AnotherNotice {
            let other = self.draw_node();
            if other != name {
                self.give(&other, Source::Person).await;
                let id = self.until_noticed(&other).await;
                leaving.push((other, id));
            }
        }
        for (name, id) in leaving {
            self.until_empty(&name, id, deadline).await;
            self.noticed.insert(id);
            self.remove_node(&name).await;
        }
        self.settled().await;
    }

    async fn until_empty(&self, name: &str, id: NodeId, deadline: Instant) {
        while Instant::now() < deadline {
            match self.info(name).await {
                Some(node) if node.id == id && node.policy.is_draining() => {}
                Some(_) => return,
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills a node's process and starts another machine.
    async fn remove_node(&mut self, name: &str) {
        self.cluster.datanode(name).kill();
        self.cluster.datanodes.retain(|server| server.name != name);
        if self.listener.as_deref() == Some(name) {
            post(&self.mock.address, "/mock/cancel", "").await;
            self.listener = None;
        }
        self.add();
    }

    async fn kill_datanode(&mut self) {
        let name = self.draw_node();
        self.record(format!("{name} is killed without a word"));
        self.remove_node(&name).await;
        self.settled().await;
    }

    async fn restart_namenode(&mut self) {
        self.record("the namenode is killed".to_owned());
        self.cluster.restart_namenode();
    }

    async fn kill_namenode(&mut self) {
        self.restart_namenode().await;
        self.settled().await;
    }

    async fn restart_manager(&mut self) {
        let Some(manager) = &mut self.manager else { return self.restart_namenode().await };
        manager.kill();
        self.record("the manager is killed".to_owned());
        let millis = self.lots.below(1000);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        self.manager = Some(self.start_manager());
    }

    async fn kill_manager(&mut self) {
        self.restart_manager().await;
    }

    /// A notice is given and withdrawn by the same source.
    async fn take_back(&mut self) {
        let name = self.draw_node();
        let source = *self.lots.pick(&[Source::Person, Source::File]);
        self.record(format!("notice to {name} by {source:?}, taken back"));
        self.give(&name, source).await;
        self.until_noticed(&name).await;
        let millis = self.lots.below(1500);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        if source == Source::File {
            let file = self.cluster.path(&format!("{name}.notice"));
            std::fs::remove_file(file).expect("it was written");
        } else {
            self.client.cancel(&NodeSelector(name.clone())).await.expect("it is taken");
        }
        self.settled().await;
    }

    /// The cloud recommends to leave a machine, and takes it a moment later.
    async fn recommend(&mut self) {
        let name = self.draw_node();
        self.record(format!("{name} is recommended to be left"));
        let ran = self.cluster.cli(&["node", "recommend", &name, "--reason", "chaos"]);
        assert_eq!(ran.code, 0, "{ran}");
        let millis = self.lots.below(2000);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        let ran = self.cluster.cli(&["node", "cancel", &name]);
        assert_eq!(ran.code, 0, "{ran}");
    }

    /// A machine stands still for a while. It may be declared dead and come back as another.
    async fn pause_datanode(&mut self) {
        let name = self.draw_node();
        let millis = self.lots.below(3500);
        self.record(format!("{name} stands still for {millis} ms"));
        self.cluster.datanode(&name).pause();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        self.cluster.datanode(&name).resume();
        self.settled().await;
    }

    /// One more machine for a while.
    async fn grow(&mut self) {
        if self.cluster.datanodes.len() > NODES {
            return self.notice().await;
        }
        let name = self.add();
        self.record(format!("{name} joins"));
        self.settled().await;
    }
}
