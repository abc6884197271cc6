//! What is around the machine: ports, the namenode, the cloud, Python.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sanderling_client::diagnosed;
use sanderling_protocol::message::{Hello, Role, Room};
use sanderling_protocol::{Policy, Refusal};
use sanderling_transport::CallError;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Check;
use crate::local;
use crate::session::Session;
use crate::units;

/// How long the namenode may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The metadata services at which clouds report a machine's identity and its preemption.
const METADATA_SERVICE: &str = "169.254.169.254:80";

/// Checks for each port of a namenode on this machine whether it is free.
pub(super) async fn ports(namenode: &str) -> Vec<Check> {
    let Some((host, port)) = namenode.rsplit_once(':') else { return Vec::new() };
    let Ok(port) = port.parse::<u16>() else { return Vec::new() };
    if !matches!(host, "127.0.0.1" | "localhost" | "[::1]") {
        return Vec::new();
    }
    let mut checks = Vec::new();
    for port in [port, port.saturating_add(1)] {
        let address = format!("{host}:{port}");
        checks.push(match TcpListener::bind(&address).await {
            Ok(_) => Check::ok("port", format!("{port} is free")),
            Err(_) if TcpStream::connect(&address).await.is_ok() => {
                Check::ok("port", format!("{port} is in use: a process listens there"))
            }
            Err(error) => Check::warn(
                "port",
                format!("{port} cannot be listened on: {error}"),
                "sanderling local start --port 0",
            ),
        });
    }
    checks
}

pub(super) async fn namenode(session: &Session) -> Check {
    let name = "namenode";
    let address = &session.namenode;
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let began = Instant::now();
    let deadline = tokio::time::Instant::now() + ANSWER_WITHIN;
    match session.knock(hello, deadline).await {
        Err(CallError::Refused(refusal @ Refusal::UnknownVersion { .. })) => {
            Check::fail(name, format!("{address}: {refusal}"), "the same version on both sides")
        }
        Err(CallError::Refused(refusal @ Refusal::Unauthenticated { .. })) => {
            let mend = "--token-file FILE, and --tls-ca PEM where the port uses TLS";
            let next = local::keys(address)
                .unwrap_or_else(|| "the same with --token-file FILE".to_owned());
            Check::fail(name, refusal.to_string(), mend).with_next(next)
        }
        Err(error) => match diagnosed(address, error, deadline).await {
            error @ CallError::WrongAddress { .. } => {
                Check::fail(name, error.to_string(), "--namenode with the namenode's address")
            }
            error => {
                let next = local::advice(address);
                let mend = next.clone().map_or_else(
                    || "sanderling local start, or --namenode with the right address".to_owned(),
                    |next| next.trim_start_matches("the same with ").to_owned(),
                );
                Check::warn(name, error.to_string(), mend)
            }
        },
        Ok((_, reply)) if reply.role != Role::Namenode => {
            let found = format!("{address} is a {:?}, not a namenode", reply.role);
            Check::fail(name, found.to_lowercase(), "--namenode with the namenode's address")
        }
        Ok((_, reply)) => {
            let answered = units::duration(began.elapsed());
            let cluster = reply.cluster.map_or(0, |cluster| cluster.0);
            let found = format!("{address} answers in {answered}, cluster {cluster:016x}");
            fleet(session, found).await
        }
    }
}

async fn fleet(session: &Session, found: String) -> Check {
    let name = "namenode";
    let nodes = match session.client().await {
        Ok(client) => match (client.nodes(false).await, client.room().await) {
            (Ok(nodes), Ok(room)) => Ok((nodes, room)),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        },
        Err(failure) => Err(failure.cause),
    };
    match nodes {
        Err(why) => Check::fail(name, format!("{found}, then: {why}"), "its log"),
        Ok((nodes, room)) => {
            let active = nodes.iter().filter(|node| node.policy == Policy::Active).count();
            let found =
                format!("{found}, {}", units::count(active as u64, "datanode", "datanodes"));
            match (active, room) {
                (0, _) => Check::warn(name, found, "sanderling datanode"),
                (_, Some(room)) => with_room(name, found, &room),
                (_, None) => {
                    let found = format!("{found}; it is of an older release and keeps no room");
                    Check::warn(name, found, "upgrade the namenode")
                }
            }
        }
    }
}

fn with_room(name: &'static str, found: String, room: &Room) -> Check {
    if !room.fits() {
        let (missing, count) = (units::bytes(room.missing_bytes), room.departures);
        let found = format!("{found}; if {count} more left now, {missing} would be lost");
        let mend = "sanderling datanode on another machine, or delete what is not needed";
        return Check::warn(name, found, mend);
    }
    if room.departures == 0 && !room.is_default {
        let found = format!("{found}; --departures 0 keeps no room: a notice may not be met");
        return Check::warn(name, found, "sanderling namenode with --departures 1");
    }
    let left = units::bytes(room.room_bytes);
    Check::ok(name, format!("{found}, room for {left}, {} can leave at once", room.departures))
}

pub(super) async fn metadata_service() -> Check {
    let name = "cloud";
    match timeout(Duration::from_millis(300), TcpStream::connect(METADATA_SERVICE)).await {
        Ok(Ok(_)) => Check::ok(name, "the metadata service answers"),
        _ => Check::ok(name, "no metadata service here: notices come by command or HTTP"),
    }
}

pub(super) fn python() -> Check {
    let name = "python";
    let python = std::env::var_os("SANDERLING_PYTHON").unwrap_or_else(|| "python3".into());
    let shown = python.to_string_lossy().into_owned();
    let program = "import sanderling, sys; print(getattr(sanderling, '__version__', 'no version'))";
    let output = Command::new(&python).args(["-c", program]).stdin(Stdio::null()).output();
    let mend = "make demo builds it; or set SANDERLING_PYTHON";
    match output {
        Err(error) => Check::warn(name, format!("{shown} cannot be run: {error}"), mend),
        Ok(output) if !output.status.success() => {
            Check::warn(name, format!("{shown} has no package sanderling"), mend)
        }
        Ok(output) => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if version == env!("CARGO_PKG_VERSION") {
                return Check::ok(name, format!("package sanderling {version} in {shown}"));
            }
            let found =
                format!("package sanderling {version}, this is {}", env!("CARGO_PKG_VERSION"));
            Check::warn(name, found, "make demo builds the same version")
        }
    }
}
