//! CPU time of this process and of the servers.

mod listener;
mod source;

use std::time::Duration;

use sanderling_client::{Client, ClientError};
use sanderling_transport::process::cpu_time;
use serde::Serialize;

use source::CpuSource;

/// A server of the cluster and where its figures come from.
#[derive(Debug)]
struct MeasuredServer {
    name: String,
    role: &'static str,
    sources: Vec<CpuSource>,
}

/// All servers of a cluster.
#[derive(Debug, Default)]
pub(super) struct Servers(Vec<MeasuredServer>);

impl Servers {
    /// Finds the namenode and its datanodes.
    ///
    /// # Errors
    /// The namenode does not list the nodes.
    pub(super) async fn find(client: &Client, http: Option<&str>) -> Result<Self, ClientError> {
        let namenode = client.namenode();
        let sources = CpuSource::of(http.unwrap_or_default(), namenode);
        let mut servers =
            vec![MeasuredServer { name: "namenode".to_owned(), role: "namenode", sources }];
        for node in client.nodes(false).await? {
            let sources = CpuSource::of(&node.http_address, &node.address);
            servers.push(MeasuredServer { name: node.name, role: "datanode", sources });
        }
        Ok(Self(servers))
    }
}

/// One server's figures at a moment.
#[derive(Debug, Clone, Copy)]
struct Figures {
    source: &'static str,
    cpu: Duration,
    resident_bytes: Option<u64>,
}

/// The figures of the client and of every server at a moment.
#[derive(Debug)]
pub(super) struct Usage {
    client: Duration,
    servers: Vec<(String, &'static str, Option<Figures>)>,
}

impl Usage {
    /// Reads all clocks.
    pub(super) async fn read(servers: &Servers) -> Self {
        let mut read = Vec::with_capacity(servers.0.len());
        for server in &servers.0 {
            read.push((server.name.clone(), server.role, source::first(&server.sources).await));
        }
        Self { client: cpu_time(), servers: read }
    }

    /// Reads the clock of this process alone.
    pub(super) fn read_here() -> Self {
        Self { client: cpu_time(), servers: Vec::new() }
    }

    /// Returns what was used since an earlier moment.
    pub(super) fn since(&self, before: &Self) -> Cpu {
        let client = self.client.saturating_sub(before.client);
        let mut cpu = Cpu { client, servers: Vec::new(), unmeasured: Vec::new() };
        for ((name, role, after), (_, _, before)) in self.servers.iter().zip(&before.servers) {
            match (after, before) {
                (Some(after), Some(before)) if after.source == before.source => {
                    cpu.servers.push(ServerCpu {
                        name: name.clone(),
                        role,
                        source: after.source,
                        cpu_seconds: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
                        resident_bytes: after.resident_bytes,
                    });
                }
                _ => cpu.unmeasured.push((name.clone(), role)),
            }
        }
        cpu
    }
}

/// CPU time of the measured phase.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) client: Duration,
    pub(super) servers: Vec<ServerCpu>,
    /// Those of which nothing could be read.
    pub(super) unmeasured: Vec<(String, &'static str)>,
}

/// One server's part.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ServerCpu {
    name: String,
    role: &'static str,
    source: &'static str,
    cpu_seconds: f64,
    resident_bytes: Option<u64>,
}

impl Cpu {
    /// Returns the seconds of all servers of a role; `None` unless every one of them was measured.
    pub(super) fn seconds(&self, roles: &[&str]) -> Option<f64> {
        let is_wanted = |role: &str| roles.contains(&role);
        let mut measured = self.servers.iter().filter(|server| is_wanted(server.role)).peekable();
        if self.unmeasured.iter().any(|(_, role)| is_wanted(role)) || measured.peek().is_none() {
            return None;
        }
        Some(measured.map(|server| server.cpu_seconds).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(client: u64, datanode: Option<u64>) -> Usage {
        let figures = |millis| Figures {
            source: "proc",
            cpu: Duration::from_millis(millis),
            resident_bytes: None,
        };
        let servers = vec![
            ("namenode".to_owned(), "namenode", Some(figures(10))),
            ("a".to_owned(), "datanode", datanode.map(figures)),
        ];
        Usage { client: Duration::from_millis(client), servers }
    }

    #[test]
    fn sum_is_unknown_while_one_server_is_not_measured() {
        let cpu = usage(30, Some(500)).since(&usage(10, Some(100)));
        assert_eq!(cpu.client, Duration::from_millis(20));
        assert_eq!(cpu.seconds(&["namenode", "datanode"]), Some(0.4));
        let cpu = usage(30, None).since(&usage(10, Some(100)));
        assert_eq!(cpu.unmeasured.len(), 1);
        assert_eq!(cpu.seconds(&["datanode"]), None);
        assert_eq!(cpu.seconds(&["namenode"]), Some(0.0));
        assert_eq!(Cpu::default().seconds(&["namenode"]), None, "there is none");
    }
}
