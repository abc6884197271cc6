//! `fs attr`: what is kept beside an object's bytes.

use std::io::Write;

use clap::Args;
use sanderling_protocol::Path;
use sanderling_protocol::message::Attributes;
use thiserror::Error;

use super::lookup::existing;
use crate::failure::{Failure, FailureKind, RefusalKind};
use crate::printable::printable;
use crate::refused;
use crate::refused::shell_word;
use crate::session::Session;

/// `fs attr`.
#[derive(Debug, Args)]
pub(crate) struct Attr {
    /// The object
    #[arg(value_parser = super::pattern::typed)]
    pub(crate) path: Path,
    /// Attributes to set; without any, and without --remove, the command prints them
    #[arg(value_name = "NAME=TEXT", value_parser = attribute)]
    pub(crate) set: Vec<(String, String)>,
    /// Remove the attribute of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) remove: Vec<String>,
}

/// A text is no attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an attribute is written NAME=TEXT")]
pub(super) struct AttributeError;

/// Reads `name=text`.
pub(super) fn attribute(text: &str) -> Result<(String, String), AttributeError> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() => Ok((name.to_owned(), text.to_owned())),
        _ => Err(AttributeError),
    }
}

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
        stat = set.map_err(|error| {
            let failure = refused::client(&error, &session.namenode);
            // The limit is one of all attributes together: those that are there can be removed.
            match failure.kind == FailureKind::Refusal(RefusalKind::TooLarge) {
                true => failure
                    .next(format_args!("sanderling fs attr {}", shell_word(args.path.as_str()))),
                false => failure,
            }
        })?;
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
