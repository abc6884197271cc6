//! Calls that take facts and return facts: names, nodes, tokens.

use std::ops::Range;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::{Layout, ObjectKind};
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, Millis, Refusal};

use crate::error::Trouble;
use crate::facts::{Facts, Given};
use crate::options;

/// Makes the call of that number, as Java's class `Operation` numbers them.
pub(crate) async fn call(
    client: &Client,
    operation: i32,
    given: &mut Given<'_>,
) -> Result<Facts, Trouble> {
    match operation {
        1 => {
            let stat = client.stat(&given.path()?).await?;
            Ok(Facts::told(|facts| facts.stat(&stat)))
        }
        2 => {
            let exists = client.exists(&given.path()?).await?;
            Ok(Facts::told(|facts| facts.flag(exists)))
        }
        3 => list(client, given, false).await,
        4 => list(client, given, true).await,
        5 => {
            let (path, parents) = (given.path()?, given.flag()?);
            client.make_directory(&path, ObjectKind::Directory, parents, true).await?;
            Ok(Facts::default())
        }
        6 => {
            let (from, to, replace) = (given.path()?, given.path()?, given.flag()?);
            client.rename(&from, &to, replace).await?;
            Ok(Facts::default())
        }
        7 => {
            let (path, recursive) = (given.path()?, given.flag()?);
            let (objects, _) = client.delete(&path, recursive).await?;
            Ok(Facts::told(|facts| facts.number(objects as i64)))
        }
        8 => usage(client, given).await,
        9 => nodes(client).await,
        10 => {
            let (path, ttl) = (given.path()?, given.optional()?.map(Millis));
            client.set_ttl(&path, ttl).await?;
            Ok(Facts::default())
        }
        11 => {
            let (path, attributes) = (given.path()?, given.attributes()?);
            client.set_attributes(&path, None, attributes).await?;
            Ok(Facts::default())
        }
        12 => {
            let (to, options) = (given.path()?, options::put(given)?);
            client.concat(&given.paths()?, &to, &options).await?;
            Ok(Facts::default())
        }
        13 => places(client, given).await,
        14 => token(client, given).await,
        15 => Ok(metrics(client)),
        16 => places_of_all(client, given).await,
        17 => job_account(client, given).await,
        _ => Err(Trouble::Facts),
    }
}

async fn list(
    client: &Client,
    given: &mut Given<'_>,
    with_attributes: bool,
) -> Result<Facts, Trouble> {
    let path = given.path()?;
    let entries = match with_attributes {
        true => client.list_all_with_attributes(&path).await?,
        false => client.list_all(&path).await?,
    };
    let mut facts = Facts::default();
    facts.count(entries.len());
    for entry in &entries {
        facts.entry(&path, entry);
    }
    Ok(facts)
}

async fn usage(client: &Client, given: &mut Given<'_>) -> Result<Facts, Trouble> {
    let usage = client.usage(&given.path()?).await?;
    let numbers = [usage.files, usage.directories, usage.bytes, usage.lost_bytes];
    Ok(Facts::told(|facts| facts.numbers(&numbers)))
}

async fn job_account(client: &Client, given: &mut Given<'_>) -> Result<Facts, Trouble> {
    let account = client.job_account(JobId(given.number()? as u64)).await?;
    let limit = |limit: Option<u64>| limit.map_or(-1, |limit| limit as i64);
    Ok(Facts::told(|facts| {
        facts
            .numbers(&[account.names, account.attribute_bytes])
            .number(limit(account.limits.names))
            .number(limit(account.limits.attribute_bytes))
    }))
}

async fn nodes(client: &Client) -> Result<Facts, Trouble> {
    let nodes = client.nodes(false).await?;
    let mut facts = Facts::default();
    facts.count(nodes.len());
    for node in &nodes {
        tell_node(&mut facts, node);
    }
    Ok(facts)
}

fn tell_node(facts: &mut Facts, node: &NodeInfo) {
    let capacity: u64 = node.tiers.iter().map(|tier| tier.capacity_bytes).sum();
    let used: u64 = node.tiers.iter().map(|tier| tier.used_bytes).sum();
    facts.number(node.id.0 as i64).text(&node.name).text(&node.address).text(&node.host);
    facts
        .text(node.policy.name())
        .text(node.availability.name())
        .number(capacity as i64)
        .number(used as i64);
    facts.number(node.exposure_bytes as i64);
    facts.number(node.deadline_in.map_or(-1, |left| left.0 as i64));
}

/// Tells where the blocks of a range are, cut to the range.
async fn places(client: &Client, given: &mut Given<'_>) -> Result<Facts, Trouble> {
    let path = given.path()?;
    let (start, bytes) = (given.optional()?.unwrap_or(0), given.optional()?.unwrap_or(0));
    let range = start..start.saturating_add(bytes);
    let layout = client.layout(&path, range.clone()).await?;
    Ok(Facts::told(|facts| tell_places(facts, &layout, &range)))
}

/// Tells where the blocks of whole objects are; nothing of one that is not there.
async fn places_of_all(client: &Client, given: &mut Given<'_>) -> Result<Facts, Trouble> {
    let layouts = client.layout_many(&given.paths()?).await;
    let mut facts = Facts::default();
    facts.count(layouts.len());
    for layout in layouts {
        match layout {
            Ok(layout) => tell_places(&mut facts, &layout, &(0..u64::MAX)),
            Err(ClientError::Refused(Refusal::NotFound { .. })) => facts.count(0),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(facts)
}

fn tell_places<'a>(facts: &'a mut Facts, layout: &Layout, range: &Range<u64>) -> &'a mut Facts {
    let rows = rows_of(layout, range);
    facts.count(rows.len());
    for (offset, bytes, host, address) in rows {
        facts.number(offset as i64).number(bytes as i64).text(&host).text(&address);
    }
    facts
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

async fn token(client: &Client, given: &mut Given<'_>) -> Result<Facts, Trouble> {
    let subtree = given.path()?;
    let lifetime = Millis(given.optional()?.unwrap_or_default());
    let subject = given.text()?.to_owned();
    let rights = given.texts()?;
    let token = client.mint_token(MintToken { subject, subtree, rights, lifetime }).await?;
    Ok(Facts::told(|facts| facts.text(token.reveal())))
}

fn metrics(client: &Client) -> Facts {
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
    Facts::told(|facts| facts.numbers(&numbers))
}
