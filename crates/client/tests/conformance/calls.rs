//! The steps of the table as calls of the client.

use std::collections::BTreeMap;
use std::time::Duration;

use sanderling_client::{Client, ClientError, PutOptions, Writer};
use sanderling_protocol::message::{
    Condition, CreateMode, JobHints, JobLimits, ObjectKind, RegisterJob,
};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::{JobId, Millis, ObjectId, Path};
use tokio::runtime::{Handle, Runtime};

use super::table::{Got, Interface, Step, fields, millis, node_fields, stat_fields, usage_fields};

/// Time between two attempts at an awaited step.
const PAUSE: Duration = Duration::from_millis(100);

/// One caller, and what its case has names for.
pub(crate) struct Calls {
    runtime: Handle,
    client: Client,
    writers: BTreeMap<String, Writer>,
    objects: BTreeMap<String, ObjectId>,
    jobs: BTreeMap<String, JobId>,
}

impl Interface for Calls {
    fn call(&mut self, step: &Step) -> Result<Got, String> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.step(step)).map_err(|error| error.name().to_owned())
    }

    fn pause(&mut self) {
        std::thread::sleep(PAUSE);
    }
}

impl Calls {
    /// Makes an empty directory for a case.
    pub(crate) fn begin(runtime: &Runtime, client: &Client, root: &str) -> Box<dyn Interface> {
        let root: Path = root.parse().unwrap();
        let made = client.make_directory(&root, ObjectKind::Directory, true, true);
        runtime.block_on(made).unwrap();
        Box::new(Self {
            runtime: runtime.handle().clone(),
            client: client.clone(),
            writers: BTreeMap::new(),
            objects: BTreeMap::new(),
            jobs: BTreeMap::new(),
        })
    }

    async fn step(&mut self, step: &Step) -> Result<Got, ClientError> {
        match step.verb.as_str() {
            "write" | "flush" | "close" | "abort" => self.writer_step(step).await,
            "nodes" | "notice" | "decommission" | "cancel" => self.node_step(step).await,
            "renew-job" => self.client.renew_job(self.jobs[step.word(0)]).await.map(|()| Got::Done),
            "end-job" => self.client.end_job(self.jobs[step.word(0)]).await.map(|()| Got::Done),
            "mkdir" | "rename" | "delete" | "set-ttl" | "set-attributes" | "list" | "stat"
            | "exists" | "usage" => self.names_step(step, step.word(0).parse()?).await,
            _ => self.data_step(step, step.word(0).parse()?).await,
        }
    }

    fn options(&self, step: &Step) -> Result<PutOptions, ClientError> {
        Ok(PutOptions {
            mode: if step.is("replace") { CreateMode::Replace } else { CreateMode::New },
            condition: step.option("if").map(|name| match name {
                "absent" => Condition::Absent,
                name => Condition::Is(self.objects[name]),
            }),
            parents: step.is("parents"),
            is_listed: step.option("listed") != Some("no"),
            class: step.option("class").map_or(Ok(Default::default()), str::parse)?,
            ttl: step.time("ttl"),
            delete_after_read: step.is("once"),
            is_inline_allowed: step.option("inline") != Some("no"),
            attributes: step.attributes().into_iter().collect(),
            ..PutOptions::default()
        })
    }

    async fn data_step(&mut self, step: &Step, path: Path) -> Result<Got, ClientError> {
        let client = self.client.clone();
        Ok(match step.verb.as_str() {
            "put" => {
                let options = self.options(step)?;
                let stat = client.put(&path, step.bytes(1).into(), &options).await?;
                if let Some(name) = step.option("as") {
                    self.objects.insert(name.to_owned(), stat.object);
                }
                stat_fields(&stat)
            }
            "put-part" => {
                let options = self.options(step)?;
                let mut part = client.create_part(&path, step.word(1), &options).await?;
                part.write(&step.bytes(2)).await?;
                stat_fields(&part.close().await?)
            }
            "put-value" => {
                let value = client.put_value(&path, step.word(1), step.bytes(2).into());
                stat_fields(&value.await?)
            }
            "get-value" => Got::Bytes(client.get_value(&path, step.word(1)).await?.into()),
            "get-parts" => Got::Bytes(client.open_multi(&path).await?.read_all().await?.into()),
            "get" if step.words.len() == 1 => Got::Bytes(client.get(&path).await?.into()),
            "get" | "ranges" => {
                Got::Bytes(client.get_ranges(&path, &step.ranges()).await?.join(&b'|'))
            }
            "create" => {
                let writer = client.create(&path, &self.options(step)?).await?;
                self.keep_writer(step, writer)
            }
            "append" => {
                let writer = client.append(&path).await?;
                self.keep_writer(step, writer)
            }
            "concat" => {
                let parts = step.words[1..].iter().map(|word| word.parse());
                let parts = parts.collect::<Result<Vec<Path>, _>>()?;
                stat_fields(&client.concat(&parts, &path, &self.options(step)?).await?)
            }
            "job" => {
                let job = self.register_job(step, path).await?;
                self.jobs.insert(step.option("as").unwrap_or_default().to_owned(), job);
                Got::Done
            }
            verb => panic!("no such verb: {verb}"),
        })
    }

    fn keep_writer(&mut self, step: &Step, writer: Writer) -> Got {
        self.writers.insert(step.option("as").unwrap_or_default().to_owned(), writer);
        Got::Done
    }

    async fn writer_step(&mut self, step: &Step) -> Result<Got, ClientError> {
        let name = step.word(0);
        match step.verb.as_str() {
            "close" => Ok(stat_fields(&self.writers.remove(name).unwrap().close().await?)),
            "abort" => self.writers.remove(name).unwrap().abort().await.map(|()| Got::Done),
            "flush" => self.writers.get_mut(name).unwrap().flush().await.map(|()| Got::Done),
            _ => {
                let writer = self.writers.get_mut(name).unwrap();
                writer.write(&step.bytes(1)).await.map(|()| Got::Done)
            }
        }
    }

    async fn register_job(&self, step: &Step, path: Path) -> Result<JobId, ClientError> {
        let hints = JobHints {
            keep_after_job: step.is("keep"),
            delete_after_read: step.is("once"),
            ..JobHints::default()
        };
        let lease = step.time("lease").unwrap_or(Millis(60_000));
        let job = RegisterJob { path, lease, quota_bytes: step.number("quota"), hints };
        let (names, attribute_bytes) = (step.number("names"), step.number("attribute_bytes"));
        let limits = JobLimits { names, attribute_bytes };
        let info = if limits == JobLimits::default() {
            self.client.register_job(job).await?
        } else {
            self.client.register_limited_job(job, limits).await?
        };
        Ok(info.job)
    }

    async fn names_step(&self, step: &Step, path: Path) -> Result<Got, ClientError> {
        let client = &self.client;
        let expected = step.option("if").map(|name| self.objects[name]);
        Ok(match step.verb.as_str() {
            "mkdir" => {
                let made = client.make_directory(&path, step.kind(), step.is("parents"), true);
                stat_fields(&made.await?)
            }
            "rename" => {
                client.rename(&path, &step.word(1).parse()?, step.is("replace")).await?;
                Got::Done
            }
            "delete" => {
                let recursive = step.is("recursive");
                let (objects, _) = match expected {
                    Some(object) => client.delete_object(&path, object, recursive).await?,
                    None => client.delete(&path, recursive).await?,
                };
                fields([("objects", objects.to_string())])
            }
            "set-ttl" => {
                client.set_ttl(&path, millis(step.word(1))).await?;
                Got::Done
            }
            "set-attributes" => {
                let attributes = step.attributes().into_iter().collect();
                stat_fields(&client.set_attributes(&path, expected, attributes).await?)
            }
            "list" => {
                let entries = client.list_all(&path).await?;
                Got::Names(entries.into_iter().map(|entry| entry.name).collect())
            }
            "stat" => stat_fields(&client.stat(&path).await?),
            "exists" => {
                Got::Word(if client.exists(&path).await? { "yes" } else { "no" }.to_owned())
            }
            _ => usage_fields(&client.usage(&path).await?),
        })
    }

    async fn node_step(&self, step: &Step) -> Result<Got, ClientError> {
        let nodes = self.client.nodes(false).await?;
        if step.verb == "nodes" {
            return Ok(Got::Word(nodes.len().to_string()));
        }
        // `node-0` is the first one, whatever its name is.
        let place = step.word(0).strip_prefix("node-").and_then(|it| it.parse::<usize>().ok());
        let name = place.map_or(step.word(0), |place| nodes[place].name.as_str());
        let (node, reason) = (NodeSelector(name.to_owned()), "a test");
        let info = match step.verb.as_str() {
            "notice" => {
                let left = millis(step.word(1)).unwrap().0.cast_signed();
                self.client.notice(&node, left, reason).await?
            }
            "decommission" => self.client.decommission(&node, reason).await?,
            _ => self.client.cancel(&node).await?,
        };
        Ok(node_fields(&info))
    }
}
