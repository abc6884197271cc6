//! What happens to the fleet.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sanderling_protocol::{NodeSelector, Policy};

use crate::clients;
use crate::cluster::SOON;
use crate::disk::{self, EIO, ENOSPC};
use crate::lots::Lots;
use crate::model::{Promise, Violation};
use crate::proxy::Proxy;
use crate::world::World;

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    KillDatanode,
    KillNamenode,
    KillTwoDatanodes,
    KillNamenodeAndDatanode,
    KillManager,
    StopDatanode,
    StopNamenode,
    StopClient,
    KillClient,
    Notice,
    NoticeAndKillNamenode,
    DiskFull,
    DiskErrors,
    DiskSlow,
    JournalDiskFull,
    JournalSyncFails,
    JournalSlow,
    FlipBlock,
    FlipBlockOfStopped,
    JournalTailLost,
    JournalDamaged,
    RepliesSwallowed,
    DataRepliesSwallowed,
    NoticeWithoutReplies,
}

pub(crate) const ALL: [Kind; 24] = [
    Kind::KillDatanode,
    Kind::KillNamenode,
    Kind::KillTwoDatanodes,
    Kind::KillNamenodeAndDatanode,
    Kind::KillManager,
    Kind::StopDatanode,
    Kind::StopNamenode,
    Kind::StopClient,
    Kind::KillClient,
    Kind::Notice,
    Kind::NoticeAndKillNamenode,
    Kind::DiskFull,
    Kind::DiskErrors,
    Kind::DiskSlow,
    Kind::JournalDiskFull,
    Kind::JournalSyncFails,
    Kind::JournalSlow,
    Kind::FlipBlock,
    Kind::FlipBlockOfStopped,
    Kind::JournalTailLost,
    Kind::JournalDamaged,
    Kind::RepliesSwallowed,
    Kind::DataRepliesSwallowed,
    Kind::NoticeWithoutReplies,
];

/// Those that are over soon.
pub(crate) const QUICK: [Kind; 12] = [
    Kind::KillDatanode,
    Kind::KillNamenode,
    Kind::KillTwoDatanodes,
    Kind::KillNamenodeAndDatanode,
    Kind::Notice,
    Kind::FlipBlock,
    Kind::JournalTailLost,
    Kind::JournalSyncFails,
    Kind::JournalDamaged,
    Kind::RepliesSwallowed,
    Kind::DataRepliesSwallowed,
    Kind::NoticeWithoutReplies,
];

type Done = Result<String, Violation>;

impl Kind {
    /// Does it, until it is over. Returns what was done, for people.
    pub(crate) async fn happens(self, world: &mut World, lots: &mut Lots) -> Done {
        if world.fleet.disks.is_none() && self.needs_disks() {
            return Ok("skipped: cc does not run".to_owned());
        }
        match self {
            Self::KillDatanode => kill_datanodes(world, lots, 1, false).await,
            Self::KillTwoDatanodes => kill_datanodes(world, lots, 2, false).await,
            Self::KillNamenodeAndDatanode => kill_datanodes(world, lots, 1, true).await,
            Self::KillNamenode => kill_namenode(world, lots).await,
            Self::KillManager => kill_manager(world, lots).await,
            Self::StopDatanode => stop_datanode(world, lots).await,
            Self::StopNamenode => stop_namenode(world, lots).await,
            Self::StopClient => clients::stop(world, lots).await,
            Self::KillClient => clients::kill(world, lots).await,
            Self::Notice => notice(world, lots, false).await,
            Self::NoticeAndKillNamenode => notice(world, lots, true).await,
            Self::DiskFull | Self::DiskErrors | Self::DiskSlow => {
                disk_of_datanode(self, world, lots).await
            }
            Self::JournalDiskFull | Self::JournalSlow => disk_of_namenode(self, world, lots).await,
            Self::JournalSyncFails => sync_fails(world, lots).await,
            Self::FlipBlock => flip_block(world, lots, false).await,
            Self::FlipBlockOfStopped => flip_block(world, lots, true).await,
            Self::JournalTailLost => lose_tail(world, lots).await,
            Self::JournalDamaged => damage_journal(world, lots).await,
            Self::RepliesSwallowed => swallow_replies(world, lots).await,
            Self::DataRepliesSwallowed => swallow_data_replies(world, lots).await,
            Self::NoticeWithoutReplies => notice_without_replies(world, lots).await,
        }
    }

    const fn needs_disks(self) -> bool {
        matches!(
            self,
            Self::DiskFull
                | Self::DiskErrors
                | Self::DiskSlow
                | Self::JournalDiskFull
                | Self::JournalSyncFails
                | Self::JournalSlow
                | Self::JournalTailLost
        )
    }
}

pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn draw_nodes(world: &World, lots: &mut Lots, count: usize) -> Vec<String> {
    let mut names: Vec<String> = world.fleet.nodes.iter().map(|node| node.name.clone()).collect();
    let mut drawn = Vec::new();
    for _ in 0..count {
        let at = usize::try_from(lots.below(names.len() as u64)).expect("few");
        drawn.push(names.remove(at));
    }
    drawn
}

fn draw_node(world: &World, lots: &mut Lots) -> String {
    draw_nodes(world, lots, 1).remove(0)
}

/// Machines vanish without a word, and come back empty.
async fn kill_datanodes(world: &mut World, lots: &mut Lots, count: usize, both: bool) -> Done {
    let names = draw_nodes(world, lots, count);
    for name in &names {
        world.blame(name);
        world.fleet.kill_node(name);
        pause(lots.below(300)).await;
    }
    if both {
        world.fleet.kill_namenode();
    }
    let away = lots.below(1500);
    pause(away).await;
    if both {
        world.fleet.start_namenode();
    }
    world.fleet.start_nodes();
    let beside = if both { " and the namenode" } else { "" };
    Ok(format!("kill -9 of {names:?}{beside}, back after {away} ms"))
}

async fn kill_namenode(world: &mut World, lots: &mut Lots) -> Done {
    world.fleet.kill_namenode();
    let away = lots.below(3000);
    pause(away).await;
    world.fleet.start_namenode();
    Ok(format!("kill -9 of the namenode, back after {away} ms"))
}

async fn kill_manager(world: &mut World, lots: &mut Lots) -> Done {
    let Some(mut manager) = world.fleet.manager.take() else {
        return kill_namenode(world, lots).await;
    };
    manager.kill();
    let away = lots.below(2000);
    pause(away).await;
    world.fleet.start_manager();
    Ok(format!("kill -9 of the manager, back after {away} ms"))
}

async fn stop_datanode(world: &mut World, lots: &mut Lots) -> Done {
    let (name, millis) = (draw_node(world, lots), 1000 + lots.below(7000));
    world.blame(&name);
    world.fleet.server(&name).pause();
    pause(millis).await;
    world.fleet.server(&name).resume();
    Ok(format!("SIGSTOP of {name} for {millis} ms"))
}

async fn stop_namenode(world: &mut World, lots: &mut Lots) -> Done {
    let millis = 1000 + lots.below(7000);
    world.fleet.namenode().pause();
    pause(millis).await;
    world.fleet.namenode().resume();
    Ok(format!("SIGSTOP of the namenode for {millis} ms"))
}

/// The cloud takes a machine at the announced time. Nothing of it may be lost.
async fn notice(world: &mut World, lots: &mut Lots, kills: bool) -> Done {
    let (name, seconds) = (draw_node(world, lots), 15 + lots.below(16));
    let id = crate::judge::incarnation(world, &name);
    let millis = i64::try_from(seconds * 1000).expect("short");
    let began = Instant::now();
    let selector = NodeSelector(name.clone());
    if let Err(error) = world.admin.notice(&selector, millis, "chaos").await {
        return Err(Violation::new(Promise::Typed, format!("a notice is refused: {error}")));
    }
    let deadline = began + Duration::from_secs(seconds);
    if kills {
        pause(lots.below(150)).await;
        world.fleet.kill_namenode();
        pause(lots.below(2000)).await;
        world.fleet.start_namenode();
    }
    let mut is_drained = false;
    while Instant::now() < deadline && !is_drained {
        let nodes = world.admin.nodes(true).await.unwrap_or_default();
        let node = nodes.iter().find(|node| Some(node.id) == id);
        is_drained = node.is_some_and(|node| node.policy == Policy::Drained);
        pause(50).await;
    }
    let took = began.elapsed();
    world.fleet.kill_node(&name);
    pause(lots.below(1000)).await;
    world.fleet.start_nodes();
    if !is_drained {
        let what = format!("{name} holds something {seconds} s after its notice");
        return Err(Violation::new(Promise::Settles, what));
    }
    let beside = if kills { ", the namenode killed meanwhile" } else { "" };
    Ok(format!("notice of {seconds} s to {name}{beside}, drained after {took:?}, then kill -9"))
}

async fn disk_of_datanode(kind: Kind, world: &mut World, lots: &mut Lots) -> Done {
    let (name, millis) = (draw_node(world, lots), 500 + lots.below(3500));
    let faults = match kind {
        Kind::DiskFull => disk::Faults { on_write: ENOSPC, ..Default::default() },
        // A block whose disk does not take more bytes, or does not give them, is given up.
        Kind::DiskErrors => {
            world.blame(&name);
            let on_read = if lots.below(2) == 0 { EIO } else { 0 };
            disk::Faults { on_write: EIO, on_read, ..Default::default() }
        }
        _ => {
            let write_millis = 50 + u16::try_from(lots.below(800)).expect("small");
            disk::Faults { write_millis, ..Default::default() }
        }
    };
    set_disk(world, &name, faults);
    pause(millis).await;
    set_disk(world, &name, disk::Faults::default());
    Ok(format!("the disk of {name} for {millis} ms: {faults:?}"))
}

pub(crate) fn set_disk(world: &World, name: &str, faults: disk::Faults) {
    if let Some(disks) = &world.fleet.disks {
        disks.set(name, faults);
    }
}

async fn disk_of_namenode(kind: Kind, world: &mut World, lots: &mut Lots) -> Done {
    let millis = 500 + lots.below(3500);
    let faults = if kind == Kind::JournalDiskFull {
        disk::Faults { on_write: ENOSPC, ..Default::default() }
    } else {
        let sync_millis = 100 + u16::try_from(lots.below(3000)).expect("small");
        let write_millis = u16::try_from(lots.below(60)).expect("small");
        disk::Faults { sync_millis, write_millis, ..Default::default() }
    };
    set_disk(world, "namenode", faults);
    pause(millis).await;
    set_disk(world, "namenode", disk::Faults::default());
    Ok(format!("the namenode's disk for {millis} ms: {faults:?}"))
}

/// After a failed sync the namenode stops by itself, and its next start serves.
async fn sync_fails(world: &mut World, lots: &mut Lots) -> Done {
    let faults = disk::Faults { on_sync: EIO, ..Default::default() };
    set_disk(world, "namenode", faults);
    let limit = Instant::now() + SOON;
    while world.fleet.namenode().ended().is_none() {
        if Instant::now() > limit {
            let what = "the namenode goes on after a failed sync";
            return Err(Violation::new(Promise::StaysUp, what));
        }
        pause(20).await;
    }
    set_disk(world, "namenode", disk::Faults::default());
    world.fleet.namenode = None;
    let away = lots.below(1000);
    pause(away).await;
    world.fleet.start_namenode();
    Ok(format!("a sync of the journal failed, the namenode is back {away} ms after its end"))
}

/// Bits of a block's file change under its datanode.
async fn flip_block(world: &mut World, lots: &mut Lots, stopped: bool) -> Done {
    let state = if stopped { "stopped" } else { "running" };
    let count = world.fleet.nodes.len();
    for name in draw_nodes(world, lots, count) {
        if stopped {
            world.fleet.server(&name).pause();
        }
        let flipped = flip_in(&world.fleet.disk(&name), lots);
        if stopped {
            pause(lots.below(1000)).await;
            world.fleet.server(&name).resume();
        }
        if let Some(what) = flipped {
            world.blame(&name);
            world.damaged.extend(crate::judge::incarnation(world, &name));
            return Ok(format!("a flipped bit in a block of {state} {name}: {what}"));
        }
    }
    Ok("no disk holds a block".to_owned())
}

fn flip_in(directory: &PathBuf, lots: &mut Lots) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().contains('-')));
    files.sort();
    // It may be deleted meanwhile.
    let chosen = files.get(usize::try_from(lots.next() % files.len().max(1) as u64).ok()?)?;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(chosen).ok()?;
    let at = lots.next() % file.metadata().ok()?.len().max(1);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).ok()?;
    file.write_all_at(&[byte[0] ^ (1 << lots.below(8))], at).ok()?;
    Some(format!("{} at {at}", chosen.file_name()?.to_string_lossy()))
}

/// The namenode's machine crashes: of what was not synced, some is gone.
async fn lose_tail(world: &mut World, lots: &mut Lots) -> Done {
    // Where every change waits for its sync, slow ones only take long.
    let slow = if world.fleet.sync == "always" { 20 } else { 500 + lots.below(1500) };
    let sync_millis = u16::try_from(lots.below(2) * slow).expect("small");
    set_disk(world, "namenode", disk::Faults { sync_millis, ..Default::default() });
    pause(500 + lots.below(1500)).await;
    // What happens to changes without an acknowledgement is another fault's business.
    let shared = std::sync::Arc::clone(&world.shared);
    shared.is_pausing.store(true, std::sync::atomic::Ordering::Relaxed);
    let peace = shared.gate.write().await;
    world.fleet.kill_namenode();
    let journals = world.fleet.journals();
    let cut = world.fleet.disks.as_ref().map_or(0, |disks| disks.cut_tails(&journals, lots));
    world.tail_cut = Some(cut);
    world.any_loss = world.fleet.sync == "os";
    set_disk(world, "namenode", disk::Faults::default());
    world.fleet.start_namenode();
    crate::rounds::rest_and_judge(world).await?;
    drop(peace);
    Ok(format!("a crash of the namenode's machine took {cut} B, syncs took {sync_millis} ms"))
}

/// Damage in the middle of the journal is refused; restored, it serves.
async fn damage_journal(world: &mut World, lots: &mut Lots) -> Done {
    world.fleet.kill_namenode();
    let journal = world.fleet.journals().pop().expect("there is a journal");
    let whole = std::fs::read(&journal).expect("it can be read");
    let mut bytes = whole.clone();
    let at = usize::try_from(lots.below(whole.len() as u64 / 2)).expect("an index");
    bytes[at] ^= 1 << lots.below(8);
    std::fs::write(&journal, &bytes).expect("it can be written");
    let refused = world.fleet.must_refuse();
    let after = std::fs::read(&journal).expect("it can be read");
    std::fs::write(&journal, &whole).expect("it can be written");
    refused?;
    if after != bytes {
        let what = "the refused start changed the journal";
        return Err(Violation::new(Promise::Damage, what));
    }
    world.fleet.start_namenode();
    Ok(format!("a flipped bit at {at} of {} B of the journal, refused and restored", whole.len()))
}

/// No reply of the namenode arrives for a while; requests are executed.
async fn swallow_replies(world: &mut World, lots: &mut Lots) -> Done {
    let mut times = Vec::new();
    for _ in 0..=lots.below(4) {
        let millis = 50 + lots.below(1500);
        world.proxy.swallow();
        pause(millis).await;
        world.proxy.open();
        times.push(millis);
        pause(lots.below(400)).await;
    }
    Ok(format!("replies to one client swallowed for {times:?} ms"))
}

/// No reply of a datanode arrives for a while: writes that it stored are not acknowledged, reads
/// not answered, and the source of a push does not learn that the bytes arrived. Nothing may be
/// lost.
async fn swallow_data_replies(world: &World, lots: &mut Lots) -> Done {
    let (name, proxy) = draw_proxy(world, lots);
    let mut times = Vec::new();
    for _ in 0..=lots.below(3) {
        let millis = 50 + lots.below(2500);
        proxy.swallow();
        pause(millis).await;
        proxy.open();
        times.push(millis);
        pause(lots.below(400)).await;
    }
    Ok(format!("replies of {name} swallowed for {times:?} ms"))
}

/// A node must leave while no reply of another one, or of itself, arrives for a while: pushes are
/// done and the relocator does not learn of it.
async fn notice_without_replies(world: &mut World, lots: &mut Lots) -> Done {
    let (name, proxy) = draw_proxy(world, lots);
    let (name, millis) = (name.to_owned(), 200 + lots.below(3000));
    proxy.swallow_for(Duration::from_millis(millis));
    let done = notice(world, lots, false).await?;
    Ok(format!("{done}, while replies of {name} were swallowed for {millis} ms"))
}

fn draw_proxy<'a>(world: &'a World, lots: &mut Lots) -> (&'a str, &'a Proxy) {
    let nodes = world.fleet.nodes.iter();
    let proxied: Vec<_> = nodes.filter_map(|it| Some((&*it.name, it.proxy.as_ref()?))).collect();
    proxied[usize::try_from(lots.below(proxied.len() as u64)).expect("few")]
}
