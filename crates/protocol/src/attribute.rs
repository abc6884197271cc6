//! The names of attributes that several interfaces give objects: those of HTTP's and S3's headers.
//! Each interface shows what an object was given by another one.

/// How long answers may be kept, as a header of HTTP.
pub const CACHE_CONTROL: &str = "cache-control";

/// Under which name a browser saves the object.
pub const CONTENT_DISPOSITION: &str = "content-disposition";

/// How the bytes are encoded, such as `gzip`.
pub const CONTENT_ENCODING: &str = "content-encoding";

/// The language of the content.
pub const CONTENT_LANGUAGE: &str = "content-language";

/// The type of the content, such as `text/plain`.
pub const CONTENT_TYPE: &str = "content-type";

/// The tags of the object, as the query of a URL has parameters.
pub const TAGGING: &str = "x-amz-tagging";

/// How the names of user metadata begin.
pub const USER_METADATA_BEGIN: &str = "x-amz-meta-";
