//! `fs attr`: what is kept beside an object's bytes.

use std::io::Write;

use sanderling_protocol::message::Attributes;

use super::existing;
use crate::args::fs::Attr;
use crate::failure::Failure;
use crate::printable::printable;
use crate::refused;
use crate::session::Session;

pub(super) async fn run(session: &Session, args: Attr) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut stat = existing(session, &client, &args.path).await?;
    if !args.set.is_empty() || !args.remove.is_empty() {
        let mut attributes = std::mem::take(&mut stat.attributes);
        for (name, text) in args.set {
            attributes.set(name, text);
        }
        for name in args.remove {
            attributes.remove(&name);
        }
        // Of the object that was looked at: another one of this name has its own.
        let set = client.set_attributes(&args.path, Some(stat.object), attributes).await;
        stat = set.map_err(|error| refused::client(&error, &session.namenode))?;
    }
    let document = serde_json::json!({ "path": args.path, "attributes": stat.attributes });
    session.output.result(&document, |writer| {
        stat.attributes.iter().try_for_each(|(name, text)| writeln!(writer, "{}", one(name, text)))
    })
}

/// Writes them as `fs stat` does.
pub(super) fn write(writer: &mut dyn Write, attributes: &Attributes) -> std::io::Result<()> {
    let mut lines = attributes.iter();
    if let Some((name, text)) = lines.next() {
        writeln!(writer, "  kept      {}", one(name, text))?;
    }
    lines.try_for_each(|(name, text)| writeln!(writer, "            {}", one(name, text)))
}

fn one(name: &str, text: &str) -> String {
    format!("{}={}", printable(name), printable(text))
}
