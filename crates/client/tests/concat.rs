//! Files made of the blocks of others, attributes kept beside bytes, and names that are taken only
//! as expected.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster::{Cluster, MIB, path, pattern};
use bytes::Bytes;
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::message::{Attributes, Condition};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{NodeSelector, Policy, Refusal};

/// A part: small ones too have blocks.
fn part() -> PutOptions {
    PutOptions { is_inline_allowed: false, is_listed: false, ..PutOptions::replacing() }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_written_in_any_order_are_read_as_one_file_also_after_a_drain() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let data = pattern(5 * MIB + 77, 1);
    let pieces = [0..2 * MIB, 2 * MIB..2 * MIB + 9, 2 * MIB + 9..5 * MIB, 5 * MIB..data.len()];
    let name = |number: usize| path(&format!("/.uploads/7/{number}"));
    for number in [3, 1, 0, 2] {
        let bytes = data.slice(pieces[number].clone());
        client.put(&name(number), bytes, &part()).await.unwrap();
    }
    let attributes: Attributes = [("content-type", "text/plain")].into_iter().collect();
    let options = PutOptions { attributes: attributes.clone(), ..PutOptions::replacing() };
    let names: Vec<_> = (0..4).map(name).collect();
    let whole = path("/bucket/whole");
    let stat = client.concat(&names, &whole, &options).await.unwrap();
    assert_eq!((stat.bytes, &stat.attributes), (data.len() as u64, &attributes));
    assert!(client.get(&whole).await.unwrap() == data);
    assert!(matches!(
        client.get(&name(0)).await,
        Err(ClientError::Refused(Refusal::NotFound { .. }))
    ));
    let node = client.nodes(false).await.unwrap()[0].id;
    client.decommission(&NodeSelector::from(node), "test").await.unwrap();
    let is_drained = |nodes: &[sanderling_protocol::NodeInfo]| {
        nodes.iter().any(|it| it.id == node && it.policy == Policy::Drained)
    };
    cluster.wait_for(&client, "drained", is_drained).await;
    cluster.kill(node).await;
    assert!(client.get(&whole).await.unwrap() == data);
    assert!(client.fsck().await.unwrap().problems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_writers_takes_a_free_name_and_the_others_leave_nothing() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let (target, absent) = (path("/once"), Some(Condition::Absent));
    let options = PutOptions { condition: absent, ..PutOptions::replacing() };
    let writers = (0..8u64).map(|number| {
        let (client, target, options) = (client.clone(), target.clone(), options.clone());
        tokio::spawn(async move {
            client.put(&target, pattern(MIB / 2, number), &options).await.map(|_| number)
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut winner = None;
    for writer in writers {
        match writer.await.unwrap() {
            Ok(number) => assert_eq!(winner.replace(number), None),
            Err(error) => {
                assert!(matches!(error, ClientError::Refused(Refusal::Exists { .. })), "{error}");
            }
        }
    }
    let bytes = client.get(&target).await.unwrap();
    assert!(bytes == pattern(MIB / 2, winner.unwrap()));
    assert_eq!(client.fsck().await.unwrap().files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn replacement_of_what_was_seen_fails_when_it_was_replaced_meanwhile() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let name = path("/counter");
    let first = client.put(&name, "1".into(), &PutOptions::replacing()).await.unwrap();
    let seen = Some(Condition::Is(first.object));
    let options = PutOptions { condition: seen, ..PutOptions::replacing() };
    let mut slow = client.create(&name, &options).await.unwrap();
    slow.set_attribute("by", "slow");
    slow.write(&pattern(MIB, 3)).await.unwrap();
    client.put(&name, "2".into(), &options).await.unwrap();
    let error = slow.close().await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(Refusal::Changed { .. })), "{error}");
    assert_eq!(error.recovery(), Recovery::Fix);
    assert_eq!(client.get(&name).await.unwrap(), "2");
    assert_eq!(client.stat(&name).await.unwrap().attributes, Attributes::none());
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_survive_a_restart_of_the_namenode() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let name = path("/f");
    let mut writer = client.create(&name, &PutOptions::default()).await.unwrap();
    writer.write(b"bytes").await.unwrap();
    writer.set_attribute("etag", "abc");
    writer.close().await.unwrap();
    let kept: Attributes = [("etag", "abc"), ("tag", "ä")].into_iter().collect();
    let object = client.stat(&name).await.unwrap().object;
    client.set_attributes(&name, Some(object), kept.clone()).await.unwrap();
    cluster.restart_namenode().await;
    assert_eq!(client.stat(&name).await.unwrap().attributes, kept);
    let (entries, _) = client.list_with_attributes(&path("/"), "", 10).await.unwrap();
    assert_eq!(entries[0].attributes, kept);
    assert_eq!(client.get(&name).await.unwrap(), Bytes::from_static(b"bytes"));
}
