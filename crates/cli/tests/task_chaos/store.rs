//! The durable store of the task: a directory, or a bucket whose server can be killed.

use std::collections::BTreeMap;
use std::path::{Path as LocalPath, PathBuf};

use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::{DurableState, Entry};
use sanderling_protocol::{Path, Refusal};

use crate::cluster::{Cluster, Port, Server, Shape, block_on, path};
use crate::task::Backend;

/// What is stored of a task.
const DIRECTORIES: [&str; 3] = ["generations", "packs", "locks"];

/// The store in its bucket.
const IN_BUCKET: &str = "s3://checkpoints/run";

/// The same in the cluster behind the gateway.
const BEHIND_BUCKET: &str = "/checkpoints/run";

/// Memory of that cluster. Beside the objects it has parts of uploads that nothing ends: a few for
/// each manager and datanode that is killed, of 1 MiB at most.
const BUCKET_DRAM: &str = "384MiB";

/// Names of objects below the task's directory, with their lengths.
pub(crate) type Objects = BTreeMap<String, u64>;

/// Where the durable directory is copied to.
pub(crate) enum TaskStore {
    Files(PathBuf),
    Bucket(Box<Bucket>),
}

/// A bucket of another cluster. Its gateway is the process that is killed; the cluster lives on.
pub(crate) struct Bucket {
    pub(crate) gateway: Server,
    behind: Cluster,
    port: Port,
}

impl Bucket {
    fn start() -> Self {
        let behind = Cluster::start(Shape { datanodes: 1, dram: BUCKET_DRAM, ..Shape::default() });
        let made = behind.cli(&["fs", "mkdir", "/checkpoints"]);
        assert_eq!(made.code, 0, "{made}");
        let port = Port::new();
        Self { gateway: gateway(&behind, &port), behind, port }
    }

    /// Starts the gateway that was killed again, at the same address.
    pub(crate) fn restart(&mut self) {
        self.gateway = gateway(&self.behind, &self.port);
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        block_on(async {
            let client = self.behind.client().await;
            match client.get(&path(&format!("{BEHIND_BUCKET}/count/{name}"))).await {
                Ok(bytes) => Some(bytes.to_vec()),
                Err(ClientError::Refused(Refusal::NotFound { .. })) => None,
                Err(error) => panic!("{name}: {error}"),
            }
        })
    }

    fn objects(&self) -> Objects {
        block_on(async {
            let client = self.behind.client().await;
            let mut found = Objects::new();
            for directory in DIRECTORIES {
                let below = path(&format!("{BEHIND_BUCKET}/count/{directory}"));
                let sealed = entries(&client, &below).await.into_iter().filter(|it| it.is_sealed);
                found.extend(sealed.map(|it| (format!("{directory}/{}", it.name), it.bytes)));
            }
            found
        })
    }
}

fn gateway(behind: &Cluster, port: &Port) -> Server {
    let (namenode, listen) = (behind.namenode.address.clone(), port.address());
    let words = ["gateway", "s3", "--namenode", &namenode, "--listen", &listen, "--http", "none"];
    behind.serve("gateway", &words)
}

impl TaskStore {
    /// Returns an empty directory as a store.
    pub(crate) fn files(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).expect("made");
        Self::Files(directory)
    }

    /// Starts a gateway, and the cluster behind it.
    pub(crate) fn bucket() -> Self {
        Self::Bucket(Box::new(Bucket::start()))
    }

    /// Returns the value of `--durable`.
    pub(crate) fn durable(&self) -> String {
        match self {
            Self::Files(directory) => format!("archive=file://{}", directory.display()),
            Self::Bucket(_) => format!("archive={IN_BUCKET}"),
        }
    }

    /// Returns the environment of a process that reaches the store.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let Self::Bucket(bucket) = self else { return Vec::new() };
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", bucket.gateway.address)),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "sanderling".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "sanderling".to_owned()),
        ]
    }

    /// Returns the store as the backend of commands that use no cluster.
    pub(crate) fn backend(&self) -> Backend {
        match self {
            Self::Files(directory) => Backend::directory(directory),
            Self::Bucket(_) => Backend { place: IN_BUCKET.to_owned(), variables: self.variables() },
        }
    }

    /// Returns the process that serves the store, if one does.
    pub(crate) fn server(&self) -> Option<&Server> {
        match self {
            Self::Files(_) => None,
            Self::Bucket(bucket) => Some(&bucket.gateway),
        }
    }

    /// Returns the objects of the task that the store shows.
    pub(crate) fn objects(&self) -> Objects {
        match self {
            Self::Files(root) => objects_below(&root.join("count")),
            Self::Bucket(bucket) => bucket.objects(),
        }
    }

    /// Copies all objects of the task. What is removed meanwhile is left out.
    pub(crate) fn copy_to(&self, task: &LocalPath) {
        for name in self.objects().into_keys() {
            let read = match self {
                Self::Files(root) => std::fs::read(root.join("count").join(&name)).ok(),
                Self::Bucket(bucket) => bucket.read(&name),
            };
            let Some(bytes) = read else { continue };
            let to = task.join(&name);
            std::fs::create_dir_all(to.parent().expect("a directory")).expect("made");
            std::fs::write(to, bytes).expect("written");
        }
    }
}

/// Returns the objects of a task in a directory.
pub(crate) fn objects_below(task: &LocalPath) -> Objects {
    let mut found = Objects::new();
    for directory in DIRECTORIES {
        let entries = std::fs::read_dir(task.join(directory)).into_iter().flatten().flatten();
        for entry in entries {
            // It may be removed meanwhile.
            let Ok(about) = entry.metadata() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            found.insert(format!("{directory}/{name}"), about.len());
        }
    }
    found
}

/// Returns the objects of the task that a cluster reports to be in the store.
pub(crate) fn durable_in(cluster: &Cluster) -> Objects {
    block_on(async {
        let client = cluster.client().await;
        let mut found = Objects::new();
        for directory in DIRECTORIES {
            let below = path(&format!("/tasks/count/{directory}"));
            let entries = entries(&client, &below).await;
            if entries.is_empty() {
                continue;
            }
            let names = entries.iter().map(|entry| entry.name.clone()).collect();
            let states = client.durable_states(&below, names).await.expect("it answers");
            let states = states.expect("it is below a durable directory");
            for (entry, state) in entries.into_iter().zip(states) {
                if state != DurableState::Volatile {
                    found.insert(format!("{directory}/{}", entry.name), entry.bytes);
                }
            }
        }
        found
    })
}

/// Returns what is in a directory; nothing if there is none.
async fn entries(client: &Client, below: &Path) -> Vec<Entry> {
    match client.list_all(below).await {
        Ok(entries) => entries,
        Err(ClientError::Refused(Refusal::NotFound { .. })) => Vec::new(),
        Err(error) => panic!("{below} cannot be listed: {error}"),
    }
}

/// Returns the newest generation whose manifest is among these objects, 0 if there is none.
pub(crate) fn newest_in(objects: &Objects) -> u64 {
    let numbers = objects.keys().filter_map(|name| name.strip_prefix("generations/"));
    numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}
