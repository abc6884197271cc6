//! Attributes and tags of `object_store`, and what the cluster keeps beside an object's bytes.
//!
//! The names are those that the S3 interface uses, so each shows what the other was given.

use object_store::{Attribute, Attributes, TagSet};
use sanderling_client::ClientError;
use sanderling_protocol::attribute::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, TAGGING,
    USER_METADATA_BEGIN,
};
use sanderling_protocol::message::Attributes as Kept;
use sanderling_protocol::{Refusal, StorageClass};

use crate::version::has_tags;

const NAMES: [(&str, Attribute); 6] = [
    (CACHE_CONTROL, Attribute::CacheControl),
    (CONTENT_DISPOSITION, Attribute::ContentDisposition),
    (CONTENT_ENCODING, Attribute::ContentEncoding),
    (CONTENT_LANGUAGE, Attribute::ContentLanguage),
    (CONTENT_TYPE, Attribute::ContentType),
    (STORAGE_CLASS, Attribute::StorageClass),
];
const STORAGE_CLASS: &str = "storage-class";

/// Returns what to keep.
///
/// # Errors
/// `BadRequest` for an attribute that this version does not support.
pub(crate) fn kept(attributes: &Attributes, tags: &TagSet) -> Result<Kept, ClientError> {
    let mut kept = Kept::none();
    for (attribute, value) in attributes {
        let known = NAMES.iter().find(|(_, known)| known == attribute).map(|(name, _)| *name);
        match (attribute, known) {
            (_, Some(name)) => kept.set(name, value.as_ref()),
            (Attribute::Metadata(key), None) => {
                kept.set(format!("{USER_METADATA_BEGIN}{key}"), value.as_ref());
            }
            (other, None) => {
                let why = format!("the attribute {other:?} is not known");
                return Err(ClientError::Refused(Refusal::BadRequest { why }));
            }
        }
    }
    if has_tags(tags) {
        kept.set(TAGGING, tags.encoded());
    }
    Ok(kept)
}

/// Returns the attributes that are kept of an object. Tags are not among them.
pub(crate) fn given(kept: &Kept) -> Attributes {
    let attribute = |name: &str| {
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, it)| it.clone());
        known.or_else(|| {
            let key = name.strip_prefix(USER_METADATA_BEGIN)?;
            Some(Attribute::Metadata(key.to_owned().into()))
        })
    };
    let kept = kept.iter().filter_map(|(name, text)| {
        let text = text.to_owned();
        Some((attribute(name)?, text))
    });
    kept.collect()
}

/// Returns the storage class that attributes name.
///
/// # Errors
/// `UnknownStorageClass`.
pub(crate) fn class(kept: &Kept) -> Result<Option<StorageClass>, ClientError> {
    let class = kept.get(STORAGE_CLASS).map(str::parse::<StorageClass>);
    class.transpose().map_err(ClientError::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_given() {
        let mut tags = TagSet::default();
        tags.push("owner", "a b");
        let attributes = Attributes::from_iter([
            (Attribute::ContentType, "text/plain"),
            (Attribute::Metadata("Key".into()), "value"),
            (Attribute::StorageClass, "disk"),
        ]);
        let kept = kept(&attributes, &tags).unwrap();
        assert_eq!(given(&kept), attributes);
        assert_eq!(kept.get("x-amz-tagging"), Some("owner=a+b"));
        assert_eq!(class(&kept).unwrap(), Some("disk".parse().unwrap()));
        assert_eq!(class(&Kept::none()).unwrap(), None);
        let gold = Attributes::from_iter([(Attribute::StorageClass, "gold")]);
        assert!(class(&super::kept(&gold, &TagSet::default()).unwrap()).is_err());
    }
}
