//! Calls whose arguments and results are encoded: names, nodes, tokens.

use std::ops::Range;
use std::time::Duration;

use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_native::Listed;
use sanderling_protocol::message::{Durability, Layout, MakeDurable, ObjectKind};
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, Millis, Path, Refusal};

use crate::encoding::{Decoder, Encoder};
use crate::error::NativeError;

/// What the calls of Java's class `Operation` are called in traces, from its number 1 on.
const NAMES: [&str; 20] = [
    "stat",
    "exists",
    "list",
    "list",
    "make_directory",
    "rename",
    "delete",
    "usage",
    "nodes",
    "set_ttl",
    "set_attributes",
    "concat",
    "places",
    "token",
    "metrics",
    "places_of_all",
    "job_account",
    "make_durable",
    "durability",
    "wait_durable",
];

/// Returns what a call is called in traces.
pub(crate) fn name(operation: i32) -> &'static str {
    let at = usize::try_from(operation).ok().and_then(|number| number.checked_sub(1));
    at.and_then(|at| NAMES.get(at)).unwrap_or(&"call")
}

/// Makes the call of a number of Java's class `Operation`.
pub(crate) async fn call(
    client: &Client,
    operation: i32,
    decoder: &mut Decoder<'_>,
) -> Result<Encoder, NativeError> {
    let mut to = Encoder::default();
    match operation {
        1 => to.metadata(&client.stat(&decoder.next()?).await?),
        2 => to.flag(client.exists(&decoder.next()?).await?),
        3 => return list(client, decoder, false).await,
        4 => return list(client, decoder, true).await,
        5 => {
            let (path, parents) = (decoder.next()?, decoder.flag()?);
            client.make_directory(&path, ObjectKind::Directory, parents, true).await?;
            &mut to
        }
        6 => {
            let (from, to_path, replace) = (decoder.next()?, decoder.next()?, decoder.flag()?);
            client.rename(&from, &to_path, replace).await?;
            &mut to
        }
        7 => {
            let (path, recursive) = (decoder.next()?, decoder.flag()?);
            to.number(client.delete(&path, recursive).await?.0 as i64)
        }
        8 => to.metadata(&client.usage(&decoder.next()?).await?),
        9 => return nodes(client).await,
        10 => {
            let (path, ttl) = (decoder.next()?, decoder.optional()?.map(Millis));
            client.set_ttl(&path, ttl).await?;
            &mut to
        }
        11 => {
            let (path, attributes) = decoder.next()?;
            client.set_attributes(&path, None, attributes).await?;
            &mut to
        }
        12 => {
            let (target, options): (Path, PutOptions) = decoder.next()?;
            client.concat(&decoder.next::<Vec<_>>()?, &target, &options).await?;
            &mut to
        }
        13 => return places(client, decoder).await,
        14 => return token(client, decoder).await,
        15 => to.metadata(&client.metrics()),
        16 => return places_of_all(client, decoder).await,
        17 => to.metadata(&client.job_account(JobId(decoder.number()? as u64)).await?),
        18 => {
            client.make_durable(make_durable(decoder)?).await?;
            &mut to
        }
        19 => durability(&mut to, client.durability(&decoder.next()?).await?),
        20 => {
            let (path, within) = (decoder.next()?, decoder.optional()?.unwrap_or_default());
            let left = client.wait_durable(&path, Duration::from_millis(within)).await?;
            durability(&mut to, left)
        }
        _ => return Err(NativeError::Malformed),
    };
    Ok(to)
}

fn make_durable(decoder: &mut Decoder<'_>) -> Result<MakeDurable, NativeError> {
    let (path, store) = (decoder.next()?, decoder.text()?.to_owned());
    let parents = decoder.flag()?;
    let backlog_bytes_max = decoder.optional()?.unwrap_or_default();
    Ok(MakeDurable { path, store, parents, backlog_bytes_max, adopt: decoder.flag()? })
}

/// Encodes how far something is copied to its store, if it is anything to a store.
fn durability(encoder: &mut Encoder, found: Option<Durability>) -> &mut Encoder {
    let Some(found) = found else { return encoder.flag(false) };
    encoder
        .flag(true)
        .text(found.directory.as_str())
        .text(&found.store)
        .text(&found.key)
        .flag(found.is_durable)
        .number(found.backlog_changes as i64)
        .number(found.backlog_bytes as i64)
        .optional(found.backlog_age.map(|age| age.0))
        .text(&found.stalled)
        .number(found.stored_bytes as i64)
}

async fn list(
    client: &Client,
    decoder: &mut Decoder<'_>,
    with_attributes: bool,
) -> Result<Encoder, NativeError> {
    let path = decoder.next()?;
    let entries = match with_attributes {
        true => client.list_all_with_attributes(&path).await?,
        false => client.list_all(&path).await?,
    };
    let mut encoder = Encoder::default();
    encoder.count(entries.len());
    for entry in &entries {
        encoder.metadata(&Listed { directory: &path, entry });
    }
    Ok(encoder)
}

async fn nodes(client: &Client) -> Result<Encoder, NativeError> {
    let nodes = client.nodes(false).await?;
    let mut encoder = Encoder::default();
    encoder.count(nodes.len());
    for node in &nodes {
        encode_node(&mut encoder, node);
    }
    Ok(encoder)
}

fn encode_node(encoder: &mut Encoder, node: &NodeInfo) {
    let capacity: u64 = node.tiers.iter().map(|tier| tier.capacity_bytes).sum();
    let used: u64 = node.tiers.iter().map(|tier| tier.used_bytes).sum();
    encoder.number(node.id.0 as i64).text(&node.name).text(&node.address).text(&node.host);
    encoder
        .text(node.policy.name())
        .text(node.availability.name())
        .number(capacity as i64)
        .number(used as i64);
    encoder.number(node.exposure_bytes as i64);
    encoder.optional(node.deadline_in.map(|left| left.0));
}

/// Encodes where the blocks of a range are, cut to the range.
async fn places(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let path = decoder.next()?;
    let (start, bytes) = (decoder.optional()?.unwrap_or(0), decoder.optional()?.unwrap_or(0));
    let range = start..start.saturating_add(bytes);
    let layout = client.layout(&path, range.clone()).await?;
    Ok(Encoder::build(|encoder| encode_places(encoder, &layout, &range)))
}

/// Encodes where the blocks of whole objects are: none of an object that does not exist.
async fn places_of_all(client: &Client, decoder: &mut Decoder<'_>) -> Result<Encoder, NativeError> {
    let layouts = client.layout_many(&decoder.next::<Vec<_>>()?).await;
    let mut encoder = Encoder::default();
    encoder.count(layouts.len());
    for layout in layouts {
        match layout {
            Ok(layout) => encode_places(&mut encoder, &layout, &(0..u64::MAX)),
            Err(ClientError::Refused(Refusal::NotFound { .. })) => encoder.count(0),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(encoder)
}

fn encode_places<'a>(
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
    let subtree = decoder.next()?;
    let lifetime = Millis(decoder.optional()?.unwrap_or_default());
    let (subject, rights) = decoder.next()?;
    let token = client.mint_token(MintToken { subject, subtree, rights, lifetime }).await?;
    Ok(Encoder::build(|encoder| encoder.text(token.reveal())))
}
