//! Tags of objects.

use std::collections::BTreeSet;

use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput, Tag,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::api::{S3Api, check_version};
use crate::metadata;
use crate::percent::{COMPONENT, decode, encode};
use crate::refused::{Missing, custom, refused};

/// Most tags of one object: as of S3.
const TAGS_MAX: usize = 10;

/// Longest name of one in characters: as of S3.
const NAME_CHARS_MAX: usize = 128;

/// Longest value of one in characters: as of S3.
const VALUE_CHARS_MAX: usize = 256;

/// Returns the tags of a request's header as they are kept, if they can be.
///
/// # Errors
/// `InvalidTag`, `InvalidArgument`.
pub(crate) fn checked(header: Option<&str>) -> S3Result<Option<String>> {
    let Some(header) = header.filter(|header| !header.is_empty()) else { return Ok(None) };
    let tags = parsed(header).ok_or_else(|| {
        let message = "x-amz-tagging is not a query";
        S3Error::with_message(S3ErrorCode::InvalidArgument, message)
    })?;
    // Only separators: no tags, as without the header.
    written(&tags).map(|text| Some(text).filter(|text| !text.is_empty()))
}

fn parsed(query: &str) -> Option<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

fn written(tags: &[(String, String)]) -> S3Result<String> {
    let invalid = |message| Err(custom("InvalidTag", message));
    if tags.len() > TAGS_MAX {
        return Err(custom("BadRequest", "an object has ten tags at most"));
    }
    let names: BTreeSet<&str> = tags.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() < tags.len() {
        return invalid("two tags have the same name");
    }
    for (name, value) in tags {
        let name = name.chars().count();
        if name == 0 || name > NAME_CHARS_MAX || value.chars().count() > VALUE_CHARS_MAX {
            return invalid("a name has 1 to 128 characters, a value 256 at most");
        }
    }
    let pairs = tags
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name, COMPONENT), encode(value, COMPONENT)));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

impl S3Api {
    pub(crate) async fn tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let stat = self.object(&bucket, &path).await?;
        let tags = metadata::tagging_of(&stat.attributes).and_then(parsed).unwrap_or_default();
        let tags = tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) });
        let (tag_set, version_id) = (tags.collect(), None);
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id }))
    }

    pub(crate) async fn set_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        let tags = input.tagging.tag_set.into_iter();
        let tags: Vec<(String, String)> =
            tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect();
        self.tag(&input.bucket, &input.key, Some(written(&tags)?)).await?;
        Ok(S3Response::new(PutObjectTaggingOutput::default()))
    }

    pub(crate) async fn remove_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        self.tag(&input.bucket, &input.key, None).await?;
        let status = hyper::StatusCode::NO_CONTENT;
        Ok(S3Response::with_status(DeleteObjectTaggingOutput::default(), status))
    }

    async fn tag(&self, bucket: &str, key: &str, tags: Option<String>) -> S3Result<()> {
        let (bucket, path) = self.path(bucket, key)?;
        let stat = self.object(&bucket, &path).await?;
        let mut attributes = stat.attributes;
        metadata::set_tagging(&mut attributes, tags);
        let set = self.client.set_attributes(&path, Some(stat.object), attributes).await;
        set.map(|_| ()).map_err(|error| refused(&error, Missing::Key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_kept_as_they_were_meant() {
        assert_eq!(checked(Some("a=b+c&d=%26")).unwrap().unwrap(), "a=b%20c&d=%26");
        assert_eq!(checked(None).unwrap(), None);
        assert_eq!(checked(Some("&&")).unwrap(), None);
    }

    #[test]
    fn wrong_tags_are_refused() {
        let many: Vec<String> = (0..11).map(|number| format!("t{number}=")).collect();
        for query in ["a=1&a=2", "=1", "a=%zz", &format!("a={}", "x".repeat(257)), &many.join("&")]
        {
            assert!(checked(Some(query)).is_err(), "{query}");
        }
    }
}
