//! The schema of metadata: which fields the native halves pass, in which order, and of which type.
//!
//! `bindings/native/schema.txt` is this schema as a text. The tests of this crate keep it up to
//! date, and those of the Python and the Java client compare what they read with it.

use std::borrow::Cow;
use std::time::Duration;

use sanderling_client::ClientMetrics;
use sanderling_protocol::message::{Attributes, Entry, JobAccount, ObjectKind, ObjectStat, Usage};
use sanderling_protocol::{Instant, Path};

/// The value of a field.
pub enum Value<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// A count, a size in bytes or an id.
    Number(u64),
    /// A number that may be missing.
    Optional(Option<u64>),
    /// A statement that holds or not.
    Flag(bool),
    /// What an object is.
    Kind(ObjectKind),
    /// A moment: microseconds since 1970 in Python, milliseconds in Java.
    Instant(Instant),
    /// A length of time: seconds in Python, milliseconds in Java.
    Duration(Duration),
    /// Texts by their names.
    Texts(&'a Attributes),
}

/// A field: its name and value.
pub type Field<'a> = (&'static str, Value<'a>);

/// What is passed field by field.
pub trait Metadata {
    /// Returns the fields in their order.
    fn fields(&self) -> Vec<Field<'_>>;
}

impl Metadata for ObjectStat {
    fn fields(&self) -> Vec<Field<'_>> {
        vec![
            ("path", Value::Text(self.path.as_str().into())),
            ("object", Value::Number(self.object.0)),
            ("kind", Value::Kind(self.kind)),
            ("bytes", Value::Number(self.bytes)),
            ("lost_bytes", Value::Number(self.lost_bytes)),
            ("is_sealed", Value::Flag(self.is_sealed)),
            ("is_listed", Value::Flag(self.is_listed)),
            ("delete_after_read", Value::Flag(self.delete_after_read)),
            ("storage_class", Value::Text(self.class.to_string().into())),
            ("created_at", Value::Instant(self.created_at)),
            ("modified_at", Value::Instant(self.modified_at)),
            ("expires_in", Value::Optional(self.expires_in.map(|left| left.0))),
            ("blocks", Value::Number(self.blocks.into())),
            ("entries", Value::Number(self.entries)),
            ("job", Value::Optional(self.job.map(|job| job.0))),
            ("attributes", Value::Texts(&self.attributes)),
        ]
    }
}

/// A line of a listing as an object's metadata, as far as the listing has it.
pub struct Listed<'a> {
    /// The listed directory.
    pub directory: &'a Path,
    /// The line.
    pub entry: &'a Entry,
}

impl Metadata for Listed<'_> {
    fn fields(&self) -> Vec<Field<'_>> {
        let (above, entry) = (self.directory.as_str().trim_end_matches('/'), self.entry);
        vec![
            ("path", Value::Text(format!("{above}/{}", entry.name).into())),
            ("object", Value::Number(entry.object.0)),
            ("kind", Value::Kind(entry.kind)),
            ("bytes", Value::Number(entry.bytes)),
            ("lost_bytes", Value::Number(entry.lost_bytes)),
            ("is_sealed", Value::Flag(entry.is_sealed)),
            ("is_listed", Value::Flag(true)),
            ("delete_after_read", Value::Flag(false)),
            ("storage_class", Value::Text("".into())),
            ("created_at", Value::Optional(None)),
            ("modified_at", Value::Instant(entry.modified_at)),
            ("expires_in", Value::Optional(None)),
            ("blocks", Value::Optional(None)),
            ("entries", Value::Optional(None)),
            ("job", Value::Optional(None)),
            ("attributes", Value::Texts(&entry.attributes)),
        ]
    }
}

impl Metadata for Usage {
    fn fields(&self) -> Vec<Field<'_>> {
        vec![
            ("files", Value::Number(self.files)),
            ("directories", Value::Number(self.directories)),
            ("bytes", Value::Number(self.bytes)),
            ("lost_bytes", Value::Number(self.lost_bytes)),
        ]
    }
}

impl Metadata for JobAccount {
    fn fields(&self) -> Vec<Field<'_>> {
        vec![
            ("names", Value::Number(self.names)),
            ("attribute_bytes", Value::Number(self.attribute_bytes)),
            ("names_max", Value::Optional(self.limits.names)),
            ("attribute_bytes_max", Value::Optional(self.limits.attribute_bytes)),
        ]
    }
}

impl Metadata for ClientMetrics {
    fn fields(&self) -> Vec<Field<'_>> {
        vec![
            ("retries", Value::Number(self.retries)),
            ("moved", Value::Number(self.moved)),
            ("refreshed", Value::Number(self.refreshed)),
            ("failed", Value::Number(self.failed)),
            ("read_bytes", Value::Number(self.read_bytes)),
            ("written_bytes", Value::Number(self.written_bytes)),
            ("same_host_read_bytes", Value::Number(self.same_host_read_bytes)),
            ("same_host_written_bytes", Value::Number(self.same_host_written_bytes)),
            ("longest_stall", Value::Duration(self.longest_stall)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use sanderling_client::PutOptions;
    use sanderling_protocol::ObjectId;

    use super::*;

    fn names(fields: &[Field<'_>]) -> Vec<&'static str> {
        fields.iter().map(|(name, _)| *name).collect()
    }

    fn lines(of: &str, fields: &[Field<'_>]) -> String {
        let line = |(name, value): &Field<'_>| {
            let kind = match value {
                Value::Text(_) => "text",
                Value::Number(_) => "number",
                Value::Optional(_) => "optional",
                Value::Flag(_) => "flag",
                Value::Kind(_) => "kind",
                Value::Instant(_) => "instant",
                Value::Duration(_) => "duration",
                Value::Texts(_) => "texts",
            };
            format!("{of} {name} {kind}\n")
        };
        fields.iter().map(line).collect()
    }

    fn stat() -> ObjectStat {
        ObjectStat {
            path: "/a".parse().expect("it is a path"),
            object: ObjectId(1),
            kind: ObjectKind::File,
            bytes: 2,
            lost_bytes: 0,
            is_sealed: true,
            is_listed: true,
            delete_after_read: false,
            class: PutOptions::default().class,
            created_at: Instant(3),
            modified_at: Instant(4),
            expires_in: None,
            blocks: 1,
            entries: 0,
            job: None,
            attributes: Attributes::none(),
        }
    }

    /// `UPDATE=1` writes the file.
    #[test]
    fn schema_is_up_to_date() {
        let schema = lines("stat", &stat().fields())
            + &lines("usage", &Usage::default().fields())
            + &lines("job_account", &JobAccount::default().fields())
            + &lines("metrics", &ClientMetrics::default().fields());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.txt");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(file, &schema).expect("the file can be written");
        }
        assert_eq!(std::fs::read_to_string(file).expect("it is there"), schema);
    }

    #[test]
    fn line_of_a_listing_has_the_fields_of_an_object() {
        let stat = stat();
        let entry = Entry {
            name: "b".to_owned(),
            kind: stat.kind,
            object: stat.object,
            bytes: stat.bytes,
            lost_bytes: 0,
            is_sealed: true,
            modified_at: stat.modified_at,
            attributes: Attributes::none(),
        };
        let listed = Listed { directory: &stat.path, entry: &entry };
        assert_eq!(names(&listed.fields()), names(&stat.fields()));
        assert!(matches!(&listed.fields()[0].1, Value::Text(path) if path == "/a/b"));
    }
}
