//! Applications that use the fleet while it falls apart.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sanderling_client::{Client, PutOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::book::{BYTES_MAX, Book, Known, Version, read};
use crate::cluster::path;
use crate::lots::Lots;

/// Bytes that one writer keeps; older objects are deleted.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// One application.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) client: Client,
    pub(crate) book: Arc<Book>,
    pub(crate) stop: CancellationToken,
    pub(crate) seed: u64,
    pub(crate) number: u64,
}

impl App {
    /// Starts all applications.
    pub(crate) fn start_all(self) -> JoinSet<()> {
        let mut all = JoinSet::new();
        let app = |number: u64| Self { number, ..self.clone() };
        for number in 0..2 {
            all.spawn(app(number).write_files());
        }
        all.spawn(app(2).write_slowly());
        all.spawn(app(3).write_multifiles());
        all.spawn(app(4).write_values());
        for number in 5..8 {
            all.spawn(app(number).read_anything());
        }
        all
    }

    fn lots(&self) -> Lots {
        Lots::new(self.seed, 100 + self.number)
    }

    async fn pause(&self, millis: u64) {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(millis)) => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn timed<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, sanderling_client::ClientError>>,
    ) -> Option<T> {
        let began = Instant::now();
        let result = call.await;
        self.book.called(what, began.elapsed(), result).ok()
    }

    /// Stores a file; returns whether it was acknowledged.
    async fn put(&self, name: &str, seed: u64, bytes: usize) -> bool {
        let options = PutOptions { parents: true, ..PutOptions::default() };
        let to = path(name);
        let put = self.client.put(&to, self.book.content(seed, bytes), &options);
        let is_done = self.timed("put", put).await.is_some();
        let least = if is_done { bytes } else { 0 };
        let versions = vec![Version { seed, least, most: bytes }];
        self.book.record(name, Known::new(versions, !is_done));
        is_done
    }

    async fn delete(&self, name: &str) {
        self.book.change(name, |known| known.may_be_missing = true);
        if self.timed("delete", self.client.delete(&path(name), true)).await.is_some() {
            self.book.deleted(name);
        }
    }

    async fn write_files(self) {
        let mut lots = self.lots();
        let mut kept: VecDeque<(String, usize)> = VecDeque::new();
        while !self.stop.is_cancelled() {
            let seed = lots.next();
            let sizes = [lots.below(500), lots.below(200_000), lots.below(BYTES_MAX as u64)];
            let bytes = usize::try_from(*lots.pick(&sizes)).expect("small") + 1;
            let name = format!("/files/{}/{seed:x}", self.number);
            if self.put(&name, seed, bytes).await {
                kept.push_back((name, bytes));
            }
            while kept.iter().map(|(_, bytes)| bytes).sum::<usize>() > KEPT_BYTES_MAX {
                let (name, _) = kept.pop_front().expect("it is not empty");
                self.delete(&name).await;
            }
            self.pause(lots.below(30)).await;
        }
    }

    /// Writes logs: many small acknowledged parts over a second or two.
    async fn write_slowly(self) {
        let mut lots = self.lots();
        while !self.stop.is_cancelled() {
            let seed = lots.next();
            let name = format!("/logs/{seed:x}");
            let options = PutOptions { parents: true, ..PutOptions::default() };
            let version = Version { seed, least: 0, most: 0 };
            self.book.record(&name, Known::new(vec![version], true));
            let to = path(&name);
            let created = self.timed("create", self.client.create(&to, &options)).await;
            let Some(mut writer) = created else { continue };
            self.book.change(&name, |known| known.may_be_missing = false);
            let whole = self.book.content(seed, BYTES_MAX);
            let (mut at, mut is_well) = (0, true);
            for _ in 0..lots.below(20) + 1 {
                let bytes = usize::try_from(lots.below(100_000)).expect("small") + 1;
                let part = whole.slice(at..at + bytes);
                at += bytes;
                self.book.change(&name, |known| known.versions[0].most = at);
                is_well = self.timed("write", writer.write_bytes(part)).await.is_some()
                    && self.timed("flush", writer.flush()).await.is_some();
                if !is_well {
                    break;
                }
                self.book.change(&name, |known| known.versions[0].least = at);
                self.pause(lots.below(150)).await;
            }
            // A file whose flushed bytes are lost before it is closed vanishes with its writer.
            self.book.change(&name, |known| known.may_be_missing = true);
            if !is_well {
                drop(writer);
            } else if self.timed("close", writer.close()).await.is_some() {
                self.book.change(&name, |known| known.may_be_missing = false);
            }
        }
    }

    /// Several writers to one multifile, then one stream of it.
    async fn write_multifiles(self) {
        let mut lots = self.lots();
        while !self.stop.is_cancelled() {
            let seed = lots.next();
            let name = format!("/shuffle/{seed:x}");
            if self.timed("multifile", self.client.make_multifile(&path(&name))).await.is_none() {
                continue;
            }
            let sizes: Vec<usize> =
                (0..4).map(|_| usize::try_from(lots.below(600_000)).expect("small") + 1).collect();
            let parts: Vec<String> = (0..4).map(|part| format!("{name}/part-{part}")).collect();
            let puts = (0..4_u64).zip(&parts).zip(&sizes);
            let puts = puts.map(|((part, name), bytes)| self.put(name, seed + part, *bytes));
            let are_done = futures_util::future::join_all(puts).await;
            if are_done.iter().all(|is_done| *is_done) {
                let read = async { self.client.open_multi(&path(&name)).await?.read_all().await };
                if let Some(read) = self.timed("read all parts", read).await {
                    let contents = (0..4).zip(&sizes);
                    let whole: Vec<u8> = contents
                        .flat_map(|(part, bytes)| self.book.content(seed + part, *bytes))
                        .collect();
                    assert!(read == whole, "{name} has {} other bytes", read.len());
                }
            }
            if lots.below(2) == 0 {
                for part in &parts {
                    self.book.change(part, |known| known.may_be_missing = true);
                }
                if self.timed("delete", self.client.delete(&path(&name), true)).await.is_some() {
                    parts.iter().for_each(|part| self.book.deleted(part));
                }
            }
            self.pause(lots.below(200)).await;
        }
    }

    /// Replaces values again and again.
    async fn write_values(self) {
        let mut lots = self.lots();
        let table = path("/table");
        while self.timed("table", self.client.make_table(&table)).await.is_none() {
            self.pause(50).await;
        }
        while !self.stop.is_cancelled() {
            let key = format!("key-{}", lots.below(30));
            let name = format!("/table/{key}");
            let seed = lots.next();
            let bytes = usize::try_from(lots.below(2) * lots.below(60_000)).expect("small") + 16;
            let version = Version { seed, least: bytes, most: bytes };
            self.book.change(&name, |known| {
                known.may_be_missing |= known.versions.is_empty();
                known.versions.push(version);
            });
            let content = self.book.content(seed, bytes);
            let put = self.client.put_value(&table, &key, content);
            if self.timed("put value", put).await.is_some() {
                self.book.change(&name, Known::replace);
            }
            self.pause(lots.below(30)).await;
        }
    }

    async fn read_anything(self) {
        let mut lots = self.lots();
        while !self.stop.is_cancelled() {
            self.pause(lots.below(20)).await;
            let names = self.book.names();
            if names.is_empty() {
                continue;
            }
            let name = lots.pick(&names).clone();
            let before = self.book.known(&name);
            let began = Instant::now();
            let result = self.client.get(&path(&name)).await;
            let result = self.book.called("get", began.elapsed(), result);
            self.book.check(&name, before.as_ref(), &read(result));
        }
    }
}
