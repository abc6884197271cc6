//! Creates the bucket of a store. The client library has no such request: it signs a URL for it.

use object_store::aws::AmazonS3ConfigKey;
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use reqwest::header::CONTENT_LENGTH;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use thiserror::Error;

use super::failure::short;
use super::options::{CONNECT_MAX, ObjectOptions, ObjectTierError};

/// The region in which buckets are created without naming it ("CreateBucket", Amazon S3 API
/// Reference), and that of a store whose settings name none.
const FIRST_REGION: &str = "us-east-1";

/// Longest part of an answer that is shown, in characters: it may be a page of XML. Four lines of a
/// terminal. Chosen, not measured.
const ANSWER_CHARS_MAX: usize = 300;

/// A reason why a bucket was not created.
#[derive(Debug, Error)]
pub enum CreateBucketError {
    /// The URL or the settings name no bucket.
    #[error("{0}")]
    Options(#[from] ObjectTierError),
    /// The request cannot be signed, as without keys.
    #[error("{}", short(.0))]
    Unsigned(#[from] object_store::Error),
    /// The store did not answer.
    #[error("{0}")]
    Unanswered(#[source] reqwest::Error),
    /// The store refuses it.
    #[error("{status}: {answer}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// The begin of its answer.
        answer: String,
    },
}

impl ObjectOptions {
    /// Creates the bucket of an S3 store, in the region of the settings. Returns whether it did:
    /// another process may have been faster, or be creating it now.
    ///
    /// # Errors
    /// [`CreateBucketError`]: create the bucket by other means, or correct the options.
    pub async fn create_bucket(&self) -> Result<bool, CreateBucketError> {
        let builder = self.s3_builder(self.bucket()?)?;
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
        let store = builder.build().map_err(|error| self.unusable(error))?;
        let url = store.signed_url(Method::PUT, &Path::default(), self.time_max).await?;
        let client = Client::builder()
            .timeout(self.time_max)
            .connect_timeout(self.time_max.min(CONNECT_MAX))
            .redirect(Policy::none());
        let body = place_of(region.as_deref().unwrap_or(FIRST_REGION));
        // Without its length a server may refuse a body that is empty.
        let request =
            client.build().map_err(unanswered)?.put(url).header(CONTENT_LENGTH, body.len());
        let response = request.body(body).send().await.map_err(unanswered)?;
        let status = response.status();
        let answer = response.bytes().await.map_err(unanswered)?;
        if status.is_success() || status == StatusCode::CONFLICT {
            return Ok(status.is_success());
        }
        let answer = String::from_utf8_lossy(&answer).chars().take(ANSWER_CHARS_MAX).collect();
        Err(CreateBucketError::Refused { status: status.as_u16(), answer })
    }
}

/// Returns the body of a request that creates a bucket in a region.
fn place_of(region: &str) -> String {
    if region == FIRST_REGION {
        return String::new();
    }
    let region = region.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
    )
}

/// Leaves the URL out, which has a signature.
fn unanswered(error: reqwest::Error) -> CreateBucketError {
    CreateBucketError::Unanswered(error.without_url())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Creates the bucket of a store in a region, which answers with a status; returns what came of
    /// it, and the request.
    async fn created(region: &str, status: &str) -> (Result<bool, CreateBucketError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 6\r\n\r\nanswer");
        let served = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            let is_whole = |request: &str| {
                let (head, body) = request.split_once("\r\n\r\n")?;
                let length = head.to_ascii_lowercase();
                let length = length.split_once("content-length: ")?.1.lines().next()?.to_owned();
                (body.len() >= length.parse::<usize>().ok()?).then_some(())
            };
            while is_whole(&request).is_none() {
                let mut buffer = [0; 4096];
                let read = socket.read(&mut buffer).await.unwrap();
                assert!(read > 0, "{request}");
                request += &String::from_utf8_lossy(&buffer[..read]);
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
            request
        });
        let settings = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", region),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let options = ObjectOptions {
            url: "s3://bucket/some/prefix".to_owned(),
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            time_max: Duration::from_secs(20),
            ..ObjectOptions::default()
        };
        (options.create_bucket().await, served.await.unwrap())
    }

    #[tokio::test]
    async fn bucket_is_created_in_the_region_of_the_settings() {
        let (made, request) = created(FIRST_REGION, "200 OK").await;
        assert!(matches!(made, Ok(true)), "{made:?}");
        assert!(request.starts_with("PUT /bucket/?X-Amz-Algorithm=AWS4-HMAC-SHA256&"), "{request}");
        assert!(request.ends_with("\r\n\r\n"), "it names a region: {request}");
        let (made, request) = created("eu-west-1", "200 OK").await;
        assert!(matches!(made, Ok(true)), "{made:?}");
        let named = "<LocationConstraint>eu-west-1</LocationConstraint>";
        assert!(request.contains(named), "{request}");
    }

    #[tokio::test]
    async fn bucket_of_another_creator_is_as_good_and_a_refusal_has_the_answer() {
        let (made, _) = created(FIRST_REGION, "409 Conflict").await;
        assert!(matches!(made, Ok(false)), "{made:?}");
        let (made, _) = created(FIRST_REGION, "403 Forbidden").await;
        let refused = made.expect_err("it is refused").to_string();
        assert_eq!(refused, "403: answer");
    }
}
