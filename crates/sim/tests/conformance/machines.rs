//! What a cluster does with one caller and no faults, as far as its machines decide it.

use std::collections::BTreeMap;
use std::rc::Rc;

use sanderling_core::catalog::{Applied, Command, DatanodeOrder};
use sanderling_core::client::{BlockRequest, PIECE_BYTES_MAX, WriteGoal, WriteMachine, WriteStep};
use sanderling_core::namenode::{Namenode, NamenodeConfig, Prepared};
use sanderling_core::read::{Filling, check_inside};
use sanderling_protocol::limits::INLINE_BYTES_MAX;
use sanderling_protocol::message::{
    Attributes, Concat, Condition, Create, CreateKind, CreateMode, Entry, Grant, Heartbeat,
    JobHints, JobLimits, Layout, ObjectKind, ObjectStat, Register, RegisterJob, RegisterLimitedJob,
};
use sanderling_protocol::node::{Load, NodeSelector, TierCapacity};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{
    BlockId, ClusterId, Instant, JobId, LeaseId, Millis, NodeId, Nonce, ObjectId, Order,
    OrderReply, Path, Refusal, Reply, Request, Tier,
};

use super::table::{Got, Interface, Step, fields, millis, node_fields, stat_fields, usage_fields};

/// Datanodes, `node-0` and so on.
const NODES: u64 = 3;

/// Memory of each.
const NODE_BYTES: u64 = 64 << 20;

/// How far time goes on while a case waits.
const PAUSE: Millis = Millis(200);

/// One cluster and one caller.
pub(crate) struct Machines {
    now: Instant,
    namenode: Namenode,
    nodes: Vec<NodeId>,
    blocks: BTreeMap<BlockId, Vec<u8>>,
    nonce: u64,
    writers: BTreeMap<String, Writer>,
    objects: BTreeMap<String, ObjectId>,
    jobs: BTreeMap<String, JobId>,
}

/// An object that is being written.
struct Writer {
    object: ObjectId,
    lease: LeaseId,
    machine: WriteMachine<Rc<[u8]>>,
}

impl Machines {
    /// Returns a cluster with an empty directory.
    pub(crate) fn new(root: &str) -> Self {
        let mut machines = Self {
            now: Instant(1_000_000),
            namenode: Namenode::new(NamenodeConfig::default(), ClusterId(1)),
            nodes: Vec::new(),
            blocks: BTreeMap::new(),
            nonce: 100,
            writers: BTreeMap::new(),
            objects: BTreeMap::new(),
            jobs: BTreeMap::new(),
        };
        for number in 0..NODES {
            machines.join(number);
        }
        let (path, kind) = (root.parse().unwrap(), ObjectKind::Directory);
        let root = Request::MakeDirectory { path, kind, parents: true, is_listed: true };
        machines.request(root).unwrap();
        machines
    }

    fn join(&mut self, number: u64) {
        let register = Register {
            cluster: None,
            nonce: Nonce(number + 1),
            name: format!("node-{number}"),
            address: format!("a:{number}"),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: NODE_BYTES }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        match self.request(Request::Register(register)) {
            Ok(Reply::Registered(registered)) => self.nodes.push(registered.node),
            other => panic!("{other:?}"),
        }
    }

    fn request(&mut self, request: Request) -> Result<Reply, Refusal> {
        self.now = self.now + Millis(1);
        match self.namenode.prepare(self.now, request) {
            Prepared::Answer(answer) => answer,
            Prepared::Log(command) => self.apply(&command).result,
        }
    }

    fn apply(&mut self, command: &Command) -> Applied {
        let applied = self.namenode.apply(command);
        for order in &applied.orders {
            self.obey(order);
        }
        applied
    }

    /// Carries out an order to a datanode.
    fn obey(&mut self, order: &DatanodeOrder) {
        let reply = match &order.order {
            Order::Drop { blocks } => {
                for (block, _) in blocks {
                    self.blocks.remove(block);
                }
                OrderReply::Done
            }
            Order::FenceBlocks { blocks } => {
                let length = |block| self.blocks.get(block).map_or(0, Vec::len);
                let lengths = blocks.iter().map(|(block, _)| length(block) as u32);
                OrderReply::Fenced(lengths.collect())
            }
            _ => OrderReply::Done,
        };
        for command in self.namenode.ordered(self.now, order, Some(reply)) {
            self.apply(&command);
        }
    }

    fn stat(&mut self, request: Request) -> Result<Got, Refusal> {
        match self.request(request)? {
            Reply::Stat(stat) => Ok(stat_fields(&stat)),
            other => panic!("no stat: {other:?}"),
        }
    }

    fn done(&mut self, request: Request) -> Result<Got, Refusal> {
        self.request(request).map(|_| Got::Done)
    }
}

// Whole objects

impl Machines {
    fn create_request(&mut self, step: &Step, path: Path) -> Result<Create, Refusal> {
        self.nonce += 1;
        Ok(Create {
            mode: if step.is("replace") { CreateMode::Replace } else { CreateMode::New },
            condition: self.condition(step),
            parents: step.is("parents"),
            is_listed: step.option("listed") != Some("no"),
            class: step.option("class").map_or(Ok(Default::default()), str::parse)?,
            ttl: step.time("ttl"),
            delete_after_read: step.is("once"),
            attributes: step.attributes().into_iter().collect(),
            ..Create::new(path, Nonce(self.nonce))
        })
    }

    fn condition(&self, step: &Step) -> Option<Condition> {
        step.option("if").map(|name| match name {
            "absent" => Condition::Absent,
            name => Condition::Is(self.objects[name]),
        })
    }

    fn put(&mut self, step: &Step, mut request: Create, bytes: &[u8]) -> Result<Got, Refusal> {
        request.expected_bytes = Some(bytes.len() as u64);
        let is_inline = step.option("inline") != Some("no") || bytes.is_empty();
        if bytes.len() <= INLINE_BYTES_MAX && is_inline {
            request.inline = Some(bytes.to_vec());
        }
        let stat = match self.request(Request::Create(request))? {
            Reply::Stat(stat) => stat,
            Reply::Grant(grant) => {
                let mut writer = Writer::new(&grant);
                let written = self.write(&mut writer, bytes);
                if let Err(refusal) = written {
                    self.abort(&writer)?;
                    return Err(refusal);
                }
                self.close(&writer)?
            }
            other => panic!("no object: {other:?}"),
        };
        if let Some(name) = step.option("as") {
            self.objects.insert(name.to_owned(), stat.object);
        }
        Ok(stat_fields(&stat))
    }

    fn layout(&mut self, path: &Path) -> Result<Layout, Refusal> {
        let request = Request::Lookup { path: path.clone(), offset: 0, bytes: u64::MAX };
        let Reply::Layout(layout) = self.request(request)? else { panic!("no layout") };
        if layout.stat.kind.is_container() {
            return Err(Refusal::IsADirectory { path: path.clone() });
        }
        Ok(layout)
    }

    fn get(&mut self, path: &Path) -> Result<Vec<u8>, Refusal> {
        let layout = self.layout(path)?;
        let whole = ByteRange { offset: 0, bytes: layout.stat.bytes };
        let mut read = self.read(&layout, &[whole])?;
        if layout.stat.delete_after_read {
            let (path, object) = (path.clone(), layout.stat.object);
            self.request(Request::DeleteObject { path, object, recursive: false })?;
        }
        Ok(read.remove(0))
    }

    fn read(&self, layout: &Layout, ranges: &[ByteRange]) -> Result<Vec<Vec<u8>>, Refusal> {
        check_inside(layout, ranges)?;
        let mut filling = Filling::new(ranges);
        let pieces = filling.plan(layout, <[u8]>::to_vec).expect("nothing is lost here");
        for piece in &pieces {
            let held = &self.blocks[&piece.range.block];
            let from = piece.range.offset as usize;
            filling.fill(piece, held[from..from + piece.range.length as usize].to_vec());
        }
        assert!(filling.is_complete(), "a layout has all bytes");
        let joined = |parts: BTreeMap<_, Vec<u8>>| parts.into_values().flatten().collect();
        Ok(filling.into_parts().into_iter().map(joined).collect())
    }

    fn entries(&mut self, path: &Path) -> Result<Vec<Entry>, Refusal> {
        let (path, after) = (path.clone(), String::new());
        let request = Request::List { path, after, limit: u32::MAX, with_attributes: false };
        match self.request(request)? {
            Reply::Entries { entries, .. } => Ok(entries),
            other => panic!("no entries: {other:?}"),
        }
    }
}

// Writers

impl Writer {
    fn new(grant: &Grant) -> Self {
        let machine = WriteMachine::new(grant.bytes, &grant.blocks, 1);
        Self { object: grant.object, lease: grant.lease, machine }
    }
}

impl Machines {
    fn write(&mut self, writer: &mut Writer, bytes: &[u8]) -> Result<(), Refusal> {
        for piece in bytes.chunks(PIECE_BYTES_MAX as usize) {
            writer.machine.push(piece.into(), piece.len() as u32);
        }
        loop {
            match writer.machine.next(WriteGoal::Settled) {
                WriteStep::Send(placed, piece) => {
                    let held = self.blocks.entry(placed.block.block).or_default();
                    assert_eq!(held.len(), placed.offset as usize, "a block is written at its end");
                    held.extend_from_slice(&piece[placed.from..][..placed.length as usize]);
                    writer.machine.acknowledged(placed.number);
                }
                WriteStep::AddBlocks(request) => self.add_blocks(writer, request)?,
                WriteStep::Wait => panic!("every write is answered at once"),
                WriteStep::Done => return Ok(()),
            }
        }
    }

    fn add_blocks(&mut self, writer: &mut Writer, request: BlockRequest) -> Result<(), Refusal> {
        let BlockRequest { ended, count, avoid } = request;
        let (object, lease) = (writer.object, writer.lease);
        match self.request(Request::AddBlocks { object, lease, ended, count, avoid }) {
            Ok(Reply::Grant(grant)) => {
                assert!(writer.machine.granted(&grant.blocks), "a block to fill");
                Ok(())
            }
            Ok(other) => panic!("no grant: {other:?}"),
            Err(refusal) => {
                writer.machine.not_granted();
                Err(refusal)
            }
        }
    }

    fn open(&mut self, step: &Step, request: Request) -> Result<Got, Refusal> {
        let Reply::Grant(grant) = self.request(request)? else { panic!("no grant") };
        // What is not given a name cannot be written to either.
        let name = step.option("as").unwrap_or("nameless").to_owned();
        self.writers.insert(name, Writer::new(&grant));
        Ok(Got::Done)
    }

    fn close(&mut self, writer: &Writer) -> Result<ObjectStat, Refusal> {
        let (object, lease) = (writer.object, writer.lease);
        let (lengths, attributes) = (writer.machine.lengths(), Attributes::none());
        match self.request(Request::Seal { object, lease, lengths, attributes })? {
            Reply::Stat(stat) => Ok(stat),
            other => panic!("no stat: {other:?}"),
        }
    }

    fn abort(&mut self, writer: &Writer) -> Result<Got, Refusal> {
        self.done(Request::Abort { object: writer.object, lease: writer.lease })
    }

    fn writer_step(&mut self, step: &Step) -> Result<Got, Refusal> {
        let name = step.word(0).to_owned();
        let mut writer = self.writers.remove(&name).expect("a writer of this name");
        let got = match step.verb.as_str() {
            "write" => self.write(&mut writer, &step.bytes(1)).map(|()| Got::Done),
            "flush" => {
                let (object, lease) = (writer.object, writer.lease);
                let lengths = writer.machine.lengths();
                self.done(Request::Publish { object, lease, lengths })
            }
            "close" => self.close(&writer).map(|stat| stat_fields(&stat)),
            _ => self.abort(&writer),
        };
        self.writers.insert(name, writer);
        got
    }
}

// Jobs, names, nodes

impl Machines {
    fn register_job(&mut self, step: &Step, path: Path) -> Result<Got, Refusal> {
        let hints = JobHints {
            keep_after_job: step.is("keep"),
            delete_after_read: step.is("once"),
            ..JobHints::default()
        };
        let lease = step.time("lease").unwrap_or(Millis(60_000));
        let quota_bytes = step.number("quota");
        let job = RegisterJob { path, lease, quota_bytes, hints };
        let (names, attribute_bytes) = (step.number("names"), step.number("attribute_bytes"));
        let limits = JobLimits { names, attribute_bytes };
        let request = if limits == JobLimits::default() {
            Request::RegisterJob(job)
        } else {
            Request::RegisterLimitedJob(Box::new(RegisterLimitedJob { job, limits }))
        };
        let Reply::Job(info) = self.request(request)? else { panic!("no job") };
        self.jobs.insert(step.option("as").unwrap_or_default().to_owned(), info.job);
        Ok(Got::Done)
    }

    fn concat(&mut self, step: &Step, to: Path) -> Result<Got, Refusal> {
        let parts = step.words[1..].iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
        let new = (!step.is("replace")).then_some(Condition::Absent);
        self.nonce += 1;
        self.stat(Request::Concat(Concat {
            parts,
            to,
            condition: self.condition(step).or(new),
            parents: step.is("parents"),
            is_listed: true,
            ttl: None,
            attributes: step.attributes().into_iter().collect(),
            writer: Nonce(self.nonce),
        }))
    }

    fn names_step(&mut self, step: &Step, path: Path) -> Result<Got, Refusal> {
        match step.verb.as_str() {
            "stat" => self.stat(Request::Stat { path }),
            "exists" => Ok(Got::Word(match self.request(Request::Stat { path }) {
                Ok(_) => "yes".to_owned(),
                Err(Refusal::NotFound { .. } | Refusal::NotADirectory { .. }) => "no".to_owned(),
                Err(refusal) => return Err(refusal),
            })),
            "list" => {
                let entries = self.entries(&path)?;
                Ok(Got::Names(entries.into_iter().map(|entry| entry.name).collect()))
            }
            "mkdir" => {
                let (kind, parents) = (step.kind(), step.is("parents"));
                self.stat(Request::MakeDirectory { path, kind, parents, is_listed: true })
            }
            "rename" => {
                let (to, replace) = (step.word(1).parse()?, step.is("replace"));
                self.done(Request::Rename { from: path, to, replace })
            }
            "delete" => {
                let recursive = step.is("recursive");
                let request = match self.condition(step) {
                    Some(Condition::Is(object)) => {
                        Request::DeleteObject { path, object, recursive }
                    }
                    _ => Request::Delete { path, recursive },
                };
                let Reply::Deleted { objects, .. } = self.request(request)? else { panic!("kept") };
                Ok(fields([("objects", objects.to_string())]))
            }
            "set-ttl" => self.done(Request::SetTtl { path, ttl: millis(step.word(1)) }),
            "set-attributes" => {
                let attributes = step.attributes().into_iter().collect();
                let expected = step.option("if").map(|name| self.objects[name]);
                self.stat(Request::SetAttributes { path, expected, attributes })
            }
            "usage" => match self.request(Request::Usage { path })? {
                Reply::Usage(usage) => Ok(usage_fields(&usage)),
                other => panic!("no usage: {other:?}"),
            },
            verb => panic!("no such verb: {verb}"),
        }
    }

    fn node_step(&mut self, step: &Step) -> Result<Got, Refusal> {
        if step.verb == "nodes" {
            let Reply::Nodes(nodes) = self.request(Request::Nodes { all: false })? else {
                panic!("no nodes")
            };
            return Ok(Got::Word(nodes.len().to_string()));
        }
        let (node, reason) = (NodeSelector(step.word(0).to_owned()), "a test".to_owned());
        let request = match step.verb.as_str() {
            "notice" => {
                let deadline_millis = millis(step.word(1)).unwrap().0.cast_signed();
                Request::Notice { node, deadline_millis, reason }
            }
            "decommission" => Request::Decommission { node, reason },
            "recommend" => Request::Recommend { node, reason, is_withdrawn: false },
            _ => Request::Cancel { node },
        };
        match self.request(request)? {
            Reply::Node(info) => Ok(node_fields(&info)),
            other => panic!("no node: {other:?}"),
        }
    }
}

impl Interface for Machines {
    fn call(&mut self, step: &Step) -> Result<Got, String> {
        self.step(step).map_err(|refusal| refusal.name().to_owned())
    }

    fn pause(&mut self) {
        self.now = self.now + PAUSE;
        for (nonce, node) in (1..).zip(self.nodes.clone()) {
            let load = Load::default();
            let _ = self.request(Request::Heartbeat(Heartbeat { node, nonce: Nonce(nonce), load }));
        }
        for command in self.namenode.tick(self.now) {
            self.apply(&command);
        }
    }
}

impl Machines {
    fn step(&mut self, step: &Step) -> Result<Got, Refusal> {
        match step.verb.as_str() {
            "write" | "flush" | "close" | "abort" => return self.writer_step(step),
            "nodes" | "notice" | "decommission" | "recommend" | "cancel" => {
                return self.node_step(step);
            }
            "renew-job" | "end-job" => {
                let job = self.jobs[step.word(0)];
                let is_renewal = step.verb == "renew-job";
                return self.done(if is_renewal {
                    Request::RenewJob { job }
                } else {
                    Request::EndJob { job }
                });
            }
            _ => {}
        }
        let path: Path = step.word(0).parse()?;
        match step.verb.as_str() {
            "put" => {
                let request = self.create_request(step, path)?;
                self.put(step, request, &step.bytes(1))
            }
            "put-part" => {
                let request = self.create_request(step, path.join(step.word(1))?)?;
                self.put(step, request, &step.bytes(2))
            }
            "put-value" => {
                let request = self.create_request(step, path.join(step.word(1))?)?;
                let (kind, mode) = (CreateKind::KeyValue, CreateMode::Replace);
                self.put(step, Create { kind, mode, ..request }, &step.bytes(2))
            }
            "get-value" => self.get(&path.join(step.word(1))?).map(Got::Bytes),
            "get-parts" => {
                let mut entries = self.entries(&path)?;
                entries.retain(|entry| !entry.kind.is_container());
                let parts = entries.iter().map(|entry| self.get(&path.join(&entry.name)?));
                Ok(Got::Bytes(parts.collect::<Result<Vec<_>, _>>()?.concat()))
            }
            "get" if step.words.len() == 1 => self.get(&path).map(Got::Bytes),
            "get" | "ranges" => {
                let layout = self.layout(&path)?;
                Ok(Got::Bytes(self.read(&layout, &step.ranges())?.join(&b'|')))
            }
            "create" => {
                let request = self.create_request(step, path)?;
                self.open(step, Request::Create(request))
            }
            "append" => {
                self.nonce += 1;
                self.open(step, Request::Append { path, writer: Nonce(self.nonce) })
            }
            "job" => self.register_job(step, path),
            "concat" => self.concat(step, path),
            _ => self.names_step(step, path),
        }
    }
}
