//! Calls that take facts and return facts: names, nodes, tokens.

use std::ops::Range;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::{Layout, ObjectKind};
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, Millis, Refusal};

use crate::encoding::{Decoder, Encoder};
use crate::error::NativeError;
use crate::options;

/// Makes the call of that number, as Java's class `Operation` numbers them.
pub(crate) async fn call(
    client: &Client,
    operation: i32,
    decoder: &mut Decoder<'_>,
) -> Result<Encoder, NativeError> {
    match operation {
        1 => {
            let stat = client.stat(&decoder.path()?).await?;
            Ok(Encoder::build(|encoder| encoder.stat(&stat)))
        }
        2 => {
            let exists = client.exists(&decoder.path()?).await?;
            Ok(Encoder::build(|encoder| encoder.flag(exists)))
        }
        3 => list(client, decoder, false).await,
        4 => list(client, decoder, true).await,
        5 => {
            let (path, parents) = (decoder.path()?, decoder.flag()?);
            client.make_directory(&path, ObjectKind::Directory, parents, true).await?;
            Ok(Encoder::default())
        }
        6 => {
            let (from, to, replace) = (decoder.path()?, decoder.path()?, decoder.flag()?);
            client.rename(&from, &to, replace).await?;
            Ok(Encoder::default())
        }
        7 => {
            let (path, recursive) = (decoder.path()?, decoder.flag()?);
            let (objects, _) = client.delete(&path, recursive).await?;
            Ok(Encoder::build(|encoder| encoder.number(objects as i64)))
        }
        8 => usage(client, decoder).await,
        9 => nodes(client).await,
        10 => {
            let (path, ttl) = (decoder.path()?, decoder.optional()?.map(Millis));
            client.set_ttl(&path, ttl).await?;
            Ok(Encoder::default())
        }
        11 => {
            let (path, attributes) = (decoder.path()?, decoder.attributes()?);
            client.set_attributes(&path, None, attributes).await?;
            Ok(Encoder::default())
        }
        12 => {
            let (to, options) = (decoder.path()?, options::put(decoder)?);
            client.concat(&decoder.paths()?, &to, &options).await?;
            Ok(Encoder::default())
        }
        13 => places(client, decoder).await,
        14 => token(client, decoder).await,
        15 => Ok(metrics(client)),
        16 => places_of_all(client, decoder).await,
        17 => job_account(client, decoder).await,
        _ => Err(NativeError::Malformed),
    }
}

async fn list(
    client: &Client,
    decoder: &mut Decoder<'_>,
    with_attributes: bool,
) -> Result<Encoder, NativeError> {
    let path = decoder.path()?;
    let entries = match with_attributes {
        true => client.list_all_with_attributes(&path).await?,
        false => client.list_all(&path).await?,
    };
    let mut encoder = Encoder::default();
    encoder.count(entries.len());
    for entry in &entries {
        encoder.entry(&path, entry);
    }
    Ok(encoder)
}

async fn usage(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let usage = client.usage(&decoder.path()?).await?;
    let numbers = [usage.files, usage.directories, usage.bytes, usage.lost_bytes];
    Ok(Encoder::build(|encoder| encoder.numbers(&numbers)))
}

async fn job_account(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let account = client.job_account(JobId(decoder.number()? as u64)).await?;
    let limit = |limit: Option<u64>| limit.map_or(-1, |limit| limit as i64);
    Ok(Encoder::build(|encoder| {
        encoder
            .numbers(&[account.names, account.attribute_bytes])
            .number(limit(account.limits.names))
            .number(limit(account.limits.attribute_bytes))
    }))
}

async fn nodes(client: &Client) -> Result<Encoder, NativeError> {
    let nodes = client.nodes(false).await?;
    let mut encoder = Encoder::default();
    encoder.count(nodes.len());
    for node in &nodes {
        tell_node(&mut encoder, node);
    }
    Ok(encoder)
}

fn tell_node(encoder: &mut Encoder, node: &NodeInfo) {
    let capacity: u64 = node.tiers.iter().map(|tier| tier.capacity_bytes).sum();
    let used: u64 = node.tiers.iter().map(|tier| tier.used_bytes).sum();
    encoder.number(node.id.0 as i64).text(&node.name).text(&node.address).text(&node.host);
    encoder
        .text(node.policy.name())
        .text(node.availability.name())
        .number(capacity as i64)
        .number(used as i64);
    encoder.number(node.exposure_bytes as i64);
    encoder.number(node.deadline_in.map_or(-1, |left| left.0 as i64));
}

/// Tells where the blocks of a range are, cut to the range.
async fn places(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let path = decoder.path()?;
    let (start, bytes) = (decoder.optional()?.unwrap_or(0), decoder.optional()?.unwrap_or(0));
    let range = start..start.saturating_add(bytes);
    let layout = client.layout(&path, range.clone()).await?;
    Ok(Encoder::build(|encoder| tell_places(encoder, &layout, &range)))
}

/// Tells where the blocks of whole objects are; nothing of one that is not there.
async fn places_of_all(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let layouts = client.layout_many(&decoder.paths()?).await;
    let mut encoder = Encoder::default();
    encoder.count(layouts.len());
    for layout in layouts {
        match layout {
            Ok(layout) => tell_places(&mut encoder, &layout, &(0..u64::MAX)),
            Err(ClientError::Refused(Refusal::NotFound { .. })) => encoder.count(0),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(encoder)
}

fn tell_places<'a>(
    encoder: &'a mut Encoder,
    layout: &Layout,
    range: &Range<u64>,
) -> &'a mut Encoder {
    let rows = rows_of(layout, range);
    encoder.count(rows.len());
    for (offset, bytes, host, address) in rows {
        encoder.number(offset as i64).number(bytes as i64).text(&host).text(&address);
    }
    encoder
}

/// Returns offset, length, host and address of each block; no address when it is lost.
fn rows_of(layout: &Layout, range: &Range<u64>) -> Vec<(u64, u64, String, String)> {
    let row = |block: &sanderling_protocol::message::BlockLocation| {
        let from = block.offset.max(range.start);
        let to = (block.offset + u64::from(block.length)).min(range.end);
        let place = layout.places.iter().find(|place| Some(place.node) == block.home);
        let host = place.map_or_else(String::new, |place| place.host.clone());
        let address = place.map_or_else(String::new, |place| place.address.clone());
        (from < to).then(|| (from, to - from, host, address))
    };
    layout.blocks.iter().filter_map(row).collect()
}

async fn token(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let subtree = decoder.path()?;
    let lifetime = Millis(decoder.optional()?.unwrap_or_default());
    let subject = decoder.text()?.to_owned();
    let rights = decoder.texts()?;
    let token = client.mint_token(MintToken { subject, subtree, rights, lifetime }).await?;
    Ok(Encoder::build(|encoder| encoder.text(token.reveal())))
}

fn metrics(client: &Client) -> Encoder {
    let metrics = client.metrics();
    let stall = u64::try_from(metrics.longest_stall.as_millis()).unwrap_or(u64::MAX);
    let numbers = [
        metrics.retries,
        metrics.moved,
        metrics.refreshed,
        metrics.failed,
        metrics.read_bytes,
        metrics.written_bytes,
        metrics.same_host_read_bytes,
        metrics.same_host_written_bytes,
        stall,
    ];
    Encoder::build(|encoder| encoder.numbers(&numbers))
}
