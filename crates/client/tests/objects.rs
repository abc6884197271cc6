//! Objects over a whole cluster: written, read, listed, replaced, lost.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use crate::cluster::{Cluster, MIB, path, pattern};
use bytes::Bytes;
use sanderling_client::{ClientError, PutOptions};
use sanderling_core::namenode::NamenodeConfig;
use sanderling_namenode::NamenodeOptions;
use sanderling_protocol::message::{JobHints, ObjectKind, RegisterJob};
use sanderling_protocol::refusal::{ByteRange, Recovery};
use sanderling_protocol::{EventKind, Millis, NodeSelector, Policy, Refusal};

fn parents() -> PutOptions {
    PutOptions { parents: true, ..PutOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_every_size_are_read_as_written() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    for bytes in [0, 1, 512, 513, MIB - 1, MIB, MIB + 1, 10 * MIB + 7] {
        let name = path(&format!("/sizes/{bytes}"));
        let data = pattern(bytes, bytes as u64);
        let stat = client.put(&name, data.clone(), &parents()).await.unwrap();
        assert_eq!(stat.bytes, bytes as u64);
        assert!(client.get(&name).await.unwrap() == data, "{bytes} bytes");
        let mut writer =
            client.create(&path(&format!("/streams/{bytes}")), &parents()).await.unwrap();
        for part in data.chunks(300_001) {
            writer.write(part).await.unwrap();
        }
        assert_eq!(writer.close().await.unwrap().bytes, bytes as u64);
        assert!(client.get(&path(&format!("/streams/{bytes}"))).await.unwrap() == data);
    }
    assert_eq!(client.list_all(&path("/sizes")).await.unwrap().len(), 8);
    assert!(client.fsck().await.unwrap().problems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn layout_has_the_blocks_that_overlap_a_range_and_their_places() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.put(&path("/file"), pattern(5 * MIB + 7, 1), &parents()).await.unwrap();
    let whole = client.layout(&path("/file"), 0..u64::MAX).await.unwrap();
    assert_eq!(whole.stat.bytes, 5 * MIB as u64 + 7);
    let mut end = 0;
    for block in &whole.blocks {
        assert_eq!(block.offset, end, "no gap");
        end += u64::from(block.length);
    }
    assert_eq!(end, whole.stat.bytes);
    let nodes = client.nodes(false).await.unwrap();
    for place in &whole.places {
        assert!(nodes.iter().any(|it| it.id == place.node && it.address == place.address));
    }
    let starts = async |range| -> Vec<u64> {
        let layout = client.layout(&path("/file"), range).await.unwrap();
        layout.blocks.iter().map(|block| block.offset).collect()
    };
    let mib = MIB as u64;
    assert_eq!(starts(mib + 5..mib + 6).await, [mib]);
    assert_eq!(starts(2 * mib - 1..3 * mib + 1).await, [mib, 2 * mib, 3 * mib]);
    assert_eq!(starts(5 * mib + 6..u64::MAX).await, [5 * mib]);
    for nothing in [mib..mib, 5 * mib + 7..u64::MAX] {
        assert_eq!(starts(nothing).await, [0; 0]);
    }
    // A small value is in the catalog, and a directory has no bytes.
    client.put(&path("/small"), pattern(100, 1), &parents()).await.unwrap();
    client.make_directory(&path("/directory"), ObjectKind::Directory, true, true).await.unwrap();
    for name in ["/small", "/directory"] {
        assert!(client.layout(&path(name), 0..u64::MAX).await.unwrap().blocks.is_empty());
    }
    let missing = client.layout(&path("/missing"), 0..1).await.unwrap_err();
    assert!(matches!(missing, ClientError::Refused(Refusal::NotFound { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_come_in_the_order_asked() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let data = pattern(5 * MIB, 1);
    client.put(&path("/file"), data.clone(), &PutOptions::default()).await.unwrap();
    let ranges: Vec<ByteRange> = (0..2000u64)
        .map(|at| ByteRange { offset: (at * 7919 * 131) % (5 * MIB as u64 - 3000), bytes: at })
        .collect();
    let read = client.get_ranges(&path("/file"), &ranges).await.unwrap();
    for (range, bytes) in ranges.iter().zip(read) {
        let start = range.offset as usize;
        assert!(bytes == data[start..start + range.bytes as usize]);
    }
    let past = client.get_range(&path("/file"), 5 * MIB as u64 - 1, 2).await.unwrap_err();
    assert!(matches!(past, ClientError::Refused(Refusal::OutOfRange { .. })));
    let reader = client.open(&path("/file")).await.unwrap();
    let mut buffer = vec![0; 100];
    assert_eq!(reader.read_into(5 * MIB as u64 - 10, &mut buffer).await.unwrap(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_bytes_are_read_before_the_close() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let mut writer = client.create(&path("/log"), &PutOptions::default()).await.unwrap();
    writer.write(b"one ").await.unwrap();
    assert_eq!(client.get(&path("/log")).await.unwrap(), "");
    writer.flush().await.unwrap();
    assert_eq!(client.get(&path("/log")).await.unwrap(), "one ");
    writer.write(b"two ").await.unwrap();
    writer.flush().await.unwrap();
    let second = client.append(&path("/log")).await.unwrap_err();
    assert!(matches!(second, ClientError::Refused(Refusal::SecondWriter { .. })), "{second}");
    writer.close().await.unwrap();
    let mut writer = client.append(&path("/log")).await.unwrap();
    assert_eq!(writer.position(), 8);
    writer.write(b"three").await.unwrap();
    writer.close().await.unwrap();
    assert_eq!(client.get(&path("/log")).await.unwrap(), "one two three");
    client.put(&path("/small"), "inline ".into(), &PutOptions::default()).await.unwrap();
    let mut writer = client.append(&path("/small")).await.unwrap();
    writer.write(b"and more").await.unwrap();
    writer.close().await.unwrap();
    assert_eq!(client.get(&path("/small")).await.unwrap(), "inline and more");
    assert_eq!(client.get_range(&path("/small"), 5, 4).await.unwrap(), "e an");
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_and_buffered_streams_carry_the_same_bytes() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let data = pattern(3 * MIB + 99, 4);
    let mut writer = client.create(&path("/direct"), &PutOptions::default()).await.unwrap();
    for part in data.chunks(70_000) {
        writer.write_direct(Bytes::copy_from_slice(part)).await.unwrap();
    }
    writer.close().await.unwrap();
    let mut stream = client.open(&path("/direct")).await.unwrap().stream(123_456);
    let mut read = Vec::new();
    while let Some(bytes) = stream.next().await {
        read.extend_from_slice(&bytes.unwrap());
    }
    assert!(read == data);
    stream.seek(3 * MIB as u64);
    assert_eq!(stream.next().await.unwrap().unwrap().len(), 99);
    assert!(stream.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_object_is_old_or_new_never_mixed() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let name = path("/file");
    client.put(&name, pattern(2 * MIB, 0), &PutOptions::default()).await.unwrap();
    let exists = client.put(&name, Bytes::new(), &PutOptions::default()).await.unwrap_err();
    assert!(matches!(exists, ClientError::Refused(Refusal::Exists { .. })));
    let writing = {
        let (client, name) = (client.clone(), name.clone());
        tokio::spawn(async move {
            for seed in 1..20 {
                let options = PutOptions::replacing();
                client.put(&name, pattern(2 * MIB, seed), &options).await.unwrap();
            }
        })
    };
    let whole: Vec<Bytes> = (0..20).map(|seed| pattern(2 * MIB, seed)).collect();
    while !writing.is_finished() {
        let read = client.get(&name).await.unwrap();
        assert!(whole.contains(&read), "a mixture was read");
    }
    writing.await.unwrap();
    assert!(client.get(&name).await.unwrap() == whole[19]);
}

#[tokio::test(flavor = "multi_thread")]
async fn notice_moves_everything_and_no_call_fails() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    let mut objects = Vec::new();
    for number in 0..40 {
        let name = path(&format!("/data/{number}"));
        let data = pattern(MIB + number * 1000, number as u64);
        client.put(&name, data.clone(), &parents()).await.unwrap();
        objects.push((name, data));
    }
    let victim = cluster.datanodes[0].as_ref().unwrap().node();
    let mut writer = client.create(&path("/during"), &PutOptions::default()).await.unwrap();
    writer.write(&pattern(MIB / 2, 99)).await.unwrap();
    writer.flush().await.unwrap();
    client.notice(&NodeSelector::from(victim), 200_000, "test").await.unwrap();
    for (name, data) in &objects {
        assert!(client.get(name).await.unwrap() == *data);
        writer.write(&pattern(100_000, 7)).await.unwrap();
    }
    let is_drained = |nodes: &[sanderling_protocol::NodeInfo]| {
        nodes.iter().any(|node| node.id == victim && node.policy == Policy::Drained)
    };
    cluster.wait_for(&client, "drained", is_drained).await;
    cluster.kill(victim).await;
    for (name, data) in &objects {
        assert!(client.get(name).await.unwrap() == *data);
    }
    let stat = writer.close().await.unwrap();
    assert_eq!(stat.bytes, MIB as u64 / 2 + 40 * 100_000);
    let read = client.get(&path("/during")).await.unwrap();
    assert!(read[..MIB / 2] == pattern(MIB / 2, 99));
    assert!(read[MIB / 2 + 39 * 100_000..] == pattern(100_000, 7));
    let report = client.report().await.unwrap();
    assert_eq!((report.bytes, report.notices), (0, 1));
    assert!(report.moved_bytes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn death_without_notice_is_reported_exactly_and_at_once() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let data = pattern(12 * MIB, 5);
    client.put(&path("/file"), data.clone(), &PutOptions::default()).await.unwrap();
    let reader = client.open(&path("/file")).await.unwrap();
    let victim = cluster.datanodes[1].as_ref().unwrap().node();
    cluster.kill(victim).await;
    let error = reader.read_range(0, 12 * MIB as u64).await.unwrap_err();
    let events = client.events(0, 1000, Millis(0)).await.unwrap();
    let why = events.into_iter().find_map(|event| match event.kind {
        EventKind::NodeGone { node, why, .. } if node == victim => Some(why),
        _ => None,
    });
    assert_eq!(why.as_deref(), Some("its process has ended"), "not after its silence");
    assert_eq!(error.recovery(), Recovery::Recompute, "{error}");
    let ClientError::DataUnavailable { ranges, .. } = error else { panic!("{error}") };
    let report = client.report().await.unwrap();
    assert_eq!(report.losses[0].ranges, ranges);
    let stat = client.stat(&path("/file")).await.unwrap();
    assert_eq!(stat.lost_bytes, ranges.iter().map(|range| range.bytes).sum::<u64>());
    for at in 0..12u64 {
        let offset = at * MIB as u64;
        let is_lost = ranges
            .iter()
            .any(|range| range.offset <= offset && offset < range.offset + range.bytes);
        let read = client.get_range(&path("/file"), offset, MIB as u64).await;
        match read {
            Ok(read) => assert!(!is_lost && read == data[offset as usize..][..MIB]),
            Err(error) => assert!(is_lost, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multifile_with_a_lost_part_serves_the_others() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let multifile = path("/shuffle");
    client.make_multifile(&multifile).await.unwrap();
    for part in 0..12 {
        let name = format!("{part:02}");
        let mut writer =
            client.create_part(&multifile, &name, &PutOptions::default()).await.unwrap();
        writer.write(&pattern(50_000, part)).await.unwrap();
        writer.close().await.unwrap();
    }
    let whole = client.open_multi(&multifile).await.unwrap().read_all().await.unwrap();
    assert_eq!(whole.len(), 600_000);
    assert!(whole[..50_000] == pattern(50_000, 0));
    let victim = cluster.datanodes[0].as_ref().unwrap().node();
    let lost = client.nodes(false).await.unwrap();
    let lost = lost.iter().find(|node| node.id == victim).unwrap().blocks;
    cluster.kill(victim).await;
    let mut reader = client.open_multi(&multifile).await.unwrap();
    let (mut good, mut bad) = (0, 0);
    while let Some(read) = reader.next().await {
        match read {
            Ok(_) => good += 1,
            Err(ClientError::DataUnavailable { .. }) => bad += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((good + bad, bad), (12, lost));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_values_and_jobs_live_as_they_should() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let table = path("/table");
    client.make_table(&table).await.unwrap();
    client.put_value(&table, "k", "one".into()).await.unwrap();
    client.put_value(&table, "k", pattern(5000, 3)).await.unwrap();
    assert!(client.get_value(&table, "k").await.unwrap() == pattern(5000, 3));
    client.put_value(&table, "k", "two".into()).await.unwrap();
    assert_eq!(client.get_value(&table, "k").await.unwrap(), "two");
    let request = RegisterJob {
        path: path("/job"),
        lease: Millis(8000),
        quota_bytes: Some(10 << 20),
        hints: JobHints::default(),
    };
    let job = client.run_job(request).await.unwrap();
    client.put(&path("/job/a"), pattern(MIB, 1), &PutOptions::default()).await.unwrap();
    let full = client.put(&path("/job/b"), pattern(10 * MIB, 1), &PutOptions::default()).await;
    assert_eq!(full.unwrap_err().name(), "QuotaPassed");
    // Longer than the lease, which is renewed meanwhile.
    tokio::time::sleep(Duration::from_millis(10_000)).await;
    assert!(client.exists(&path("/job/a")).await.unwrap());
    job.end().await.unwrap();
    assert!(!client.exists(&path("/job")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_writer_keeps_a_lease_that_is_shorter_than_the_usual_pause() {
    let lease = Millis(1900);
    let core = NamenodeConfig { lease, ..NamenodeConfig::default() };
    let options = NamenodeOptions { core, ..NamenodeOptions::default() };
    let cluster = Cluster::start_on(options, 1, 64 << 20).await;
    let client = cluster.client().await;
    let mut writer = client.create(&path("/file"), &PutOptions::default()).await.unwrap();
    writer.write(b"before").await.unwrap();
    writer.flush().await.unwrap();
    // The namenode looks for leases that ended several times a second.
    tokio::time::sleep(4 * Duration::from(lease)).await;
    writer.write(b" and after").await.unwrap();
    writer.close().await.unwrap();
    assert_eq!(client.get(&path("/file")).await.unwrap(), "before and after");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_fleet_refuses_or_lets_wait() {
    let cluster = Cluster::start_with(2, 4 << 20).await;
    let client = cluster.client().await;
    let full = client.put(&path("/large"), pattern(9 * MIB, 1), &PutOptions::default()).await;
    assert_eq!(full.unwrap_err().name(), "Full");
    assert!(!client.exists(&path("/large")).await.unwrap());
    client.put(&path("/a"), pattern(7 * MIB, 1), &PutOptions::default()).await.unwrap();
    let class = "dram:wait".parse().unwrap();
    let waiting = {
        let client = client.clone();
        let options = PutOptions { class, ..PutOptions::default() };
        tokio::spawn(async move { client.put(&path("/b"), pattern(3 * MIB, 2), &options).await })
    };
    client.delete(&path("/a"), false).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(client.get(&path("/b")).await.unwrap() == pattern(3 * MIB, 2));
    let hasty = client.with_deadline(Duration::from_millis(1500));
    let options = PutOptions { class, ..PutOptions::default() };
    let late = hasty.put(&path("/c"), pattern(7 * MIB, 2), &options).await.unwrap_err();
    assert_eq!(late.name(), "TimedOut", "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_that_waits_for_room_requests_no_more_than_it_needs() {
    let cluster = Cluster::start_with(1, 8 << 20).await;
    let client = cluster.client().await;
    let class = "dram:wait".parse().unwrap();
    let options = PutOptions { class, ..PutOptions::default() };
    client.put(&path("/other"), pattern(4 * MIB, 1), &options).await.unwrap();
    // It does not report how long it will be, and the last of its bytes just fit.
    let mut writer = client.create(&path("/file"), &options).await.unwrap();
    writer.write(&pattern(4 * MIB, 2)).await.unwrap();
    writer.close().await.unwrap();
    assert!(client.get(&path("/file")).await.unwrap() == pattern(4 * MIB, 2));
    client.delete(&path("/other"), false).await.unwrap();
    let request = RegisterJob {
        path: path("/job"),
        lease: Millis(60_000),
        quota_bytes: Some(4 << 20),
        hints: JobHints::default(),
    };
    let job = client.run_job(request).await.unwrap();
    let mut writer = client.create(&path("/job/file"), &PutOptions::default()).await.unwrap();
    writer.write(&pattern(4 * MIB, 3)).await.unwrap();
    writer.close().await.unwrap();
    job.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_while_being_read_gives_whole_bytes_or_an_error() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    for round in 0..10 {
        let data = pattern(6 * MIB, round);
        client.put(&path("/file"), data.clone(), &PutOptions::default()).await.unwrap();
        let reader = client.open(&path("/file")).await.unwrap();
        let reading = tokio::spawn(async move { reader.read_range(0, 6 * MIB as u64).await });
        client.delete(&path("/file"), false).await.unwrap();
        match reading.await.unwrap() {
            Ok(read) => assert!(read == data),
            Err(error) => assert_eq!(error.name(), "ObjectGone", "{error}"),
        }
    }
    let freed = |nodes: &[sanderling_protocol::NodeInfo]| {
        nodes.iter().all(|node| node.load.dram_used_bytes == 0)
    };
    cluster.wait_for(&client, "space given back", freed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_next_of_a_stream_loses_no_bytes() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let data = pattern(5 * MIB + 17, 3);
    client.put(&path("/file"), data.clone(), &PutOptions::default()).await.unwrap();
    let mut stream = client.open(&path("/file")).await.unwrap().stream(100_000);
    let mut read = Vec::new();
    loop {
        // Polled once and dropped, then polled again.
        let polled = futures_util::FutureExt::now_or_never(stream.next());
        let next = match polled {
            Some(next) => next,
            None => stream.next().await,
        };
        match next {
            Some(bytes) => read.extend_from_slice(&bytes.unwrap()),
            None => break,
        }
    }
    assert!(read == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_cancelled_half_way_closes_the_writer() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let mut writer = client.create(&path("/file"), &PutOptions::default()).await.unwrap();
    let data = pattern(40 * MIB, 4);
    let cancelled = futures_util::FutureExt::now_or_never(writer.write(&data));
    assert!(cancelled.is_none(), "forty blocks need answers");
    let error = writer.close().await.unwrap_err();
    assert_eq!(error.name(), "WriterClosed", "{error}");
    // Until the writer is aborted, blocks that were full may be read.
    let give_up = tokio::time::Instant::now() + Duration::from_secs(20);
    while let Ok(read) = client.get(&path("/file")).await {
        assert!(data.starts_with(&read), "{} other bytes", read.len());
        assert!(tokio::time::Instant::now() < give_up, "the writer is not aborted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_to_be_read_once_goes_with_its_first_get() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let once = PutOptions { delete_after_read: true, ..PutOptions::replacing() };
    for bytes in [100, 3 * MIB] {
        let data = pattern(bytes, 5);
        client.put(&path("/once"), data.clone(), &once).await.unwrap();
        assert!(client.get(&path("/once")).await.unwrap() == data);
        assert!(!client.exists(&path("/once")).await.unwrap());
    }
}
