//! What the store has to be looked at for, before a failure of `fs` can name the next command.

use sanderling_client::Client;
use sanderling_protocol::message::Room;
use sanderling_protocol::{Path, Policy, Tier, WhenFull};

use super::Fs;
use super::lookup::{MAKE_DIRECTORY, stat_of};
use crate::failure::{Failure, FailureKind, RefusalKind};
use crate::fleet::nodes;
use crate::refused::shell_word;
use crate::session::Session;
use crate::units;

/// Nodes that are named when there is no room; of more only the number is. They fit into two lines
/// of a terminal. Chosen, not measured.
const NODES_SHOWN_MAX: usize = 6;

/// The paths of a command, by what they are for.
#[derive(Debug, Clone, Default)]
pub(super) struct Mistake {
    /// Where something is to be made.
    target: Option<Path>,
    /// Whether the command makes missing directories on request.
    has_parents: bool,
    /// Whether the command makes directories.
    makes_directories: bool,
    /// Whether it stores bytes, in the memory of nodes only.
    is_in_memory_only: bool,
}

impl Mistake {
    pub(super) fn of(command: &Fs) -> Self {
        let target = |path: &Path| Some(path.clone());
        match command {
            Fs::Put(args) => Self {
                target: target(&args.to.path),
                has_parents: true,
                is_in_memory_only: {
                    let class = args.storing.class;
                    class.tier == Tier::Dram && class.when_full != WhenFull::FallThrough
                },
                ..Self::default()
            },
            Fs::Cp(args) => {
                Self { target: target(&args.to.path), has_parents: true, ..Self::default() }
            }
            Fs::Concat(args) => {
                Self { target: target(&args.to), has_parents: true, ..Self::default() }
            }
            Fs::Mv(args) => Self { target: target(&args.to.path), ..Self::default() },
            Fs::Mkdir(args) => Self {
                target: args.paths.first().cloned(),
                has_parents: true,
                makes_directories: true,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// Returns the failure with a next command that fits what is in the store.
    pub(super) async fn explained(&self, session: &Session, failure: Failure) -> Failure {
        let FailureKind::Refusal(kind) = failure.kind else { return failure };
        let is_known = matches!(
            kind,
            RefusalKind::NotFound
                | RefusalKind::Exists
                | RefusalKind::NotADirectory
                | RefusalKind::Full
                | RefusalKind::ReserveKept
                | RefusalKind::NodeFull
        );
        if !is_known || session.ended.is_cancelled() {
            return failure;
        }
        let Ok(client) = session.client().await else { return failure };
        match kind {
            RefusalKind::NotFound => self.missing(session, &client, failure).await,
            RefusalKind::Exists => self.existing(session, &client, failure).await,
            RefusalKind::NotADirectory => {
                let Some(path) = path_of(&failure) else { return failure };
                let near = nearest(session, &client, &path).await;
                failure.instead(format_args!("sanderling fs stat {}", shell_word(near.as_str())))
            }
            _ => self.full(session, &client, failure).await,
        }
    }

    async fn missing(&self, session: &Session, client: &Client, failure: Failure) -> Failure {
        let Some(path) = path_of(&failure) else { return failure };
        let near = nearest(session, client, &path).await;
        if failure.next.as_deref().is_some_and(|next| next.starts_with(MAKE_DIRECTORY)) {
            // The command itself named the directory that is missing.
            return failure;
        }
        // The directory above what is to be made, or one above that.
        let above = self.target.as_ref().and_then(Path::parent);
        match above.filter(|above| path.contains(above)) {
            Some(_) if self.has_parents => failure
                .tried(format_args!("looked for the directory; {near} is the last that is there"))
                .instead("the same with --parents"),
            Some(above) => {
                failure.instead(format_args!("{MAKE_DIRECTORY} {}", shell_word(above.as_str())))
            }
            None => failure.instead(format_args!("sanderling fs ls {}", shell_word(near.as_str()))),
        }
    }

    async fn existing(&self, session: &Session, client: &Client, failure: Failure) -> Failure {
        let Some(path) = path_of(&failure) else { return failure };
        let stat = stat_of(session, client, &path).await.ok().flatten();
        let is_directory = stat.is_some_and(|stat| stat.kind.is_container());
        let path = shell_word(path.as_str());
        match (self.makes_directories, is_directory) {
            (true, true) => failure.instead("the same with --parents"),
            (true, false) => failure.instead(format_args!("sanderling fs stat {path}")),
            (false, true) => failure.instead(format_args!("sanderling fs ls {path}")),
            (false, false) => failure,
        }
    }

    /// Names what there is, and where.
    async fn full(&self, session: &Session, client: &Client, mut failure: Failure) -> Failure {
        let Ok(fleet) = nodes(session, client, false).await else { return failure };
        let active = || fleet.iter().filter(|node| node.policy == Policy::Active);
        let free = |tier: Option<Tier>| {
            let mut free: Vec<(u64, String)> = active()
                .map(|node| {
                    let tiers =
                        node.tiers.iter().filter(|it| tier.is_none_or(|one| it.tier == one));
                    let bytes = tiers.map(|it| it.capacity_bytes.saturating_sub(it.used_bytes));
                    (bytes.sum(), node.name.clone())
                })
                .collect();
            free.sort_by(|a, b| b.cmp(a));
            free
        };
        let wanted_tier = self.is_in_memory_only.then_some(Tier::Dram);
        let all = free(wanted_tier);
        let shown: Vec<String> = all
            .iter()
            .take(NODES_SHOWN_MAX)
            .map(|(bytes, name)| format!("{name} {}", units::bytes(*bytes)))
            .collect();
        let more = all.len().saturating_sub(NODES_SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let room = client.room().await.ok().flatten();
        let kept = room.filter(Room::fits).map_or(0, |room| room.reserve_bytes);
        let kept = match kept {
            0 => String::new(),
            kept => format!(", of which {} are kept for nodes that leave", units::bytes(kept)),
        };
        let where_free = match shown.as_slice() {
            [] => "no node takes blocks".to_owned(),
            _ => format!("free on {}{more}{kept}", shown.join(", ")),
        };
        failure.cause = format!("{}; {where_free}", failure.cause);
        let has_disk = free(Some(Tier::Disk)).iter().any(|(bytes, _)| *bytes > 0);
        if self.is_in_memory_only && has_disk {
            return failure.instead("the same with --class disk, or sanderling fs df");
        }
        failure
    }
}

fn path_of(failure: &Failure) -> Option<Path> {
    failure.refusal()?.path()?.parse().ok()
}

/// Returns the object itself, or the nearest one above it that is there.
async fn nearest(session: &Session, client: &Client, path: &Path) -> Path {
    let mut at = path.clone();
    while let Some(parent) = at.parent() {
        if let Ok(Some(_)) = stat_of(session, client, &at).await {
            return at;
        }
        at = parent;
    }
    at
}
