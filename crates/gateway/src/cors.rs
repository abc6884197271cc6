//! What pages of other origins may do with a bucket: nothing, until the bucket has rules.
//!
//! A bucket's rules are an object of it that no key leads to. They are S3's own (S3, "Elements of a
//! CORS configuration"): the first one that allows origin, method and headers is the answer.

use std::sync::Arc;
use std::time::Instant;

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use s3s::dto::{
    CORSRule, DeleteBucketCorsInput, DeleteBucketCorsOutput, GetBucketCorsInput,
    GetBucketCorsOutput, PutBucketCorsInput, PutBucketCorsOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::message::CreateMode;
use sanderling_protocol::{Path, Refusal};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::api::S3Api;
use crate::name::RULES;
use crate::refused::{Missing, custom, refused};
use crate::rules_cache::{CachedRules, RulesCache, RulesUse};

/// Most rules of a bucket: as of S3.
const RULES_MAX: usize = 100;

/// Most bytes of all of them: as of S3.
const RULES_BYTES_MAX: u64 = 64 << 10;

/// Longest id of one in characters: as of S3.
const ID_CHARS_MAX: usize = 255;

/// The methods that a rule can allow.
const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

/// One rule, as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    id: Option<String>,
    origins: Vec<String>,
    methods: Vec<String>,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    exposed: Vec<String>,
    max_age_seconds: Option<i32>,
}

/// Why a rule is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum CorsRuleError {
    /// It allows nothing.
    #[error("a rule allows an origin and a method")]
    NothingAllowed,
    /// It allows a method that pages cannot be allowed.
    #[error("a rule cannot allow the method {method}")]
    Method { method: String },
    /// An origin or a header cannot be compared with that of a request.
    #[error("{pattern} is no origin or header, or has more than one wildcard")]
    Pattern { pattern: String },
    /// The name of a header cannot be written into an answer.
    #[error("{header} is no header that can be exposed")]
    Exposed { header: String },
    /// Its id is too long, or its age negative.
    #[error("an id has at most {ID_CHARS_MAX} characters, an age is not negative")]
    IdOrAge { id: String, max_age_seconds: Option<i32> },
}

/// The rules of buckets, for a moment.
pub(crate) type Rules = Arc<RulesCache<Arc<[Rule]>>>;

/// The request of a page.
#[derive(Debug)]
pub(crate) struct CorsRequest {
    origin: String,
    /// That of the request that a preflight is for; else its own.
    method: Option<String>,
    headers: Vec<String>,
    own_method: Method,
}

impl CorsRequest {
    /// Reads the request of a page; `None` when it is of no page.
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Option<Self> {
        let text = |name| headers.get(name).and_then(|it| it.to_str().ok());
        let asked = text(header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        let asked = asked.split(',').map(|it| it.trim().to_ascii_lowercase());
        Some(Self {
            origin: text(header::ORIGIN)?.to_owned(),
            method: text(header::ACCESS_CONTROL_REQUEST_METHOD).map(str::to_owned),
            headers: asked.filter(|it| !it.is_empty()).collect(),
            own_method: method.clone(),
        })
    }
}

impl Rule {
    fn of(rule: CORSRule) -> Self {
        Self {
            id: rule.id,
            origins: rule.allowed_origins,
            methods: rule.allowed_methods,
            headers: rule.allowed_headers.unwrap_or_default(),
            exposed: rule.expose_headers.unwrap_or_default(),
            max_age_seconds: rule.max_age_seconds,
        }
    }

    fn into_dto(self) -> CORSRule {
        let some = |all: Vec<String>| (!all.is_empty()).then_some(all);
        CORSRule {
            id: self.id,
            allowed_origins: self.origins,
            allowed_methods: self.methods,
            allowed_headers: some(self.headers),
            expose_headers: some(self.exposed),
            max_age_seconds: self.max_age_seconds,
        }
    }

    /// Returns what is wrong with a rule.
    fn check(&self) -> Result<(), CorsRuleError> {
        let is_text = |it: &String| !it.is_empty() && it.bytes().all(|it| it.is_ascii_graphic());
        if self.origins.is_empty() || self.methods.is_empty() {
            return Err(CorsRuleError::NothingAllowed);
        }
        if let Some(method) = self.methods.iter().find(|it| !METHODS.contains(&it.as_str())) {
            return Err(CorsRuleError::Method { method: method.clone() });
        }
        let patterns = self.origins.iter().chain(&self.headers);
        if let Some(wrong) = patterns.clone().find(|it| !is_text(it) || it.matches('*').count() > 1)
        {
            return Err(CorsRuleError::Pattern { pattern: wrong.clone() });
        }
        if let Some(wrong) = self.exposed.iter().find(|it| it.parse::<HeaderName>().is_err()) {
            return Err(CorsRuleError::Exposed { header: wrong.clone() });
        }
        let id = self.id.as_deref().unwrap_or_default();
        if id.chars().count() > ID_CHARS_MAX || self.max_age_seconds.is_some_and(|it| it < 0) {
            let (id, max_age_seconds) = (id.to_owned(), self.max_age_seconds);
            return Err(CorsRuleError::IdOrAge { id, max_age_seconds });
        }
        Ok(())
    }

    /// Returns the pattern of an origin that allows the request.
    fn allows(&self, asked: &CorsRequest) -> Option<&str> {
        let method = asked.method.as_deref().unwrap_or(asked.own_method.as_str());
        let is_header =
            |name: &String| self.headers.iter().any(|it| is_like(&it.to_ascii_lowercase(), name));
        let origin = self.origins.iter().find(|it| is_like(it, &asked.origin))?;
        let is_allowed =
            self.methods.iter().any(|it| it == method) && asked.headers.iter().all(is_header);
        is_allowed.then_some(origin)
    }

    /// Writes into an answer what the page may do with it.
    fn allow(&self, origin: &str, asked: &CorsRequest, headers: &mut HeaderMap) {
        // A text with a line's end is no value, and is left out.
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        if origin == "*" {
            set(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            set(header::ACCESS_CONTROL_ALLOW_ORIGIN, &asked.origin);
            set(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        set(header::ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "));
        if !asked.headers.is_empty() {
            set(header::ACCESS_CONTROL_ALLOW_HEADERS, &asked.headers.join(", "));
        }
        if !self.exposed.is_empty() {
            set(header::ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed.join(", "));
        }
        if let Some(seconds) = self.max_age_seconds {
            set(header::ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
        }
    }
}

/// Returns whether a text is like a pattern, in which one `*` stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((begin, end)) => {
            text.len() >= begin.len() + end.len() && text.starts_with(begin) && text.ends_with(end)
        }
    }
}

/// Refuses a preflight.
fn forbidden(message: &'static str) -> S3Error {
    let mut error = custom("AccessForbidden", message);
    error.set_status_code(StatusCode::FORBIDDEN);
    error
}

impl S3Api {
    pub(crate) fn rules_path(&self, bucket: &str) -> S3Result<Path> {
        self.bucket(bucket)?.join(RULES).map_err(|_| S3ErrorCode::InvalidBucketName.into())
    }

    /// Returns the rules of a bucket; none when it is not there, or when other requests have named
    /// too many buckets.
    async fn rules(&self, bucket: &str, needed: RulesUse) -> Result<Arc<[Rule]>, ClientError> {
        let Ok(path) = self.rules_path(bucket) else { return Ok(Arc::default()) };
        match self.cors.find(bucket, needed, Instant::now()) {
            CachedRules::Rules(rules) => Ok(rules.unwrap_or_default()),
            CachedRules::Stale => self.look_up_rules(bucket, &path).await,
            CachedRules::Refused => {
                self.metrics.cors_look_up_refused();
                Ok(Arc::default())
            }
        }
    }

    /// Reads the rules of a bucket, and keeps them for a moment.
    async fn look_up_rules(&self, bucket: &str, path: &Path) -> Result<Arc<[Rule]>, ClientError> {
        let now = Instant::now();
        let rules: Arc<[Rule]> = match self.client.open(path).await {
            Ok(reader) => {
                let bytes = reader.stat().bytes.min(RULES_BYTES_MAX);
                let text = reader.read_range(0, bytes).await?;
                let read: Vec<Rule> = serde_json::from_slice(&text).unwrap_or_default();
                // Another interface may have written anything.
                read.into_iter().take(RULES_MAX).filter(|rule| rule.check().is_ok()).collect()
            }
            Err(ClientError::Refused(
                Refusal::NotFound { .. }
                | Refusal::NotADirectory { .. }
                | Refusal::IsADirectory { .. }
                | Refusal::BadPath { .. }
                | Refusal::Forbidden { .. },
            )) => Arc::default(),
            Err(error) => return Err(error),
        };
        self.cors.keep(bucket, (!rules.is_empty()).then(|| Arc::clone(&rules)), now);
        Ok(rules)
    }

    /// Answers a preflight.
    ///
    /// # Errors
    /// `BadRequest` when it names no request, `AccessForbidden` when no rule allows that.
    pub(crate) async fn preflight(
        &self,
        bucket: Option<&str>,
        asked: Option<&CorsRequest>,
    ) -> S3Result<HeaderMap> {
        let asked = asked.filter(|it| it.method.is_some()).ok_or_else(|| {
            custom("BadRequest", "Origin and Access-Control-Request-Method are required")
        })?;
        let rules = match bucket {
            Some(bucket) => self.rules(bucket, RulesUse::Preflight).await,
            None => Ok(Arc::default()),
        };
        let rules = rules.map_err(|error| refused(&error, Missing::Bucket))?;
        if rules.is_empty() {
            // The same of a bucket that is not there: preflights are not signed.
            return Err(forbidden("CORSResponse: no bucket of that name has rules for pages"));
        }
        let found = rules.iter().find_map(|rule| Some((rule, rule.allows(asked)?)));
        let Some((rule, origin)) = found else {
            return Err(forbidden("CORSResponse: no rule of the bucket allows this"));
        };
        let mut headers = varying();
        rule.allow(origin, asked, &mut headers);
        Ok(headers)
    }

    /// Returns what goes with an answer to a page of another origin.
    pub(crate) async fn shared(&self, bucket: &str, asked: &CorsRequest) -> HeaderMap {
        let rules = self.rules(bucket, RulesUse::Request).await.unwrap_or_default();
        if rules.is_empty() {
            return HeaderMap::new();
        }
        let mut headers = varying();
        if let Some((rule, origin)) = rules.iter().find_map(|it| Some((it, it.allows(asked)?))) {
            rule.allow(origin, asked, &mut headers);
        }
        headers
    }

    pub(crate) async fn cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let bucket = request.input.bucket;
        self.check_bucket(&self.bucket(&bucket)?).await?;
        let rules = self.look_up_rules(&bucket, &self.rules_path(&bucket)?).await;
        let rules = rules.map_err(|error| refused(&error, Missing::Bucket))?;
        if rules.is_empty() {
            return Err(S3ErrorCode::NoSuchCORSConfiguration.into());
        }
        let rules = rules.iter().cloned().map(Rule::into_dto).collect();
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules) }))
    }

    pub(crate) async fn set_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let bucket = request.input.bucket;
        self.check_bucket(&self.bucket(&bucket)?).await?;
        let rules = request.input.cors_configuration.cors_rules;
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(S3ErrorCode::MalformedXML.into());
        }
        let rules: Vec<Rule> = rules.into_iter().map(Rule::of).collect();
        for rule in &rules {
            rule.check().map_err(|error| {
                S3Error::with_message(S3ErrorCode::InvalidRequest, error.to_string())
            })?;
        }
        let text = serde_json::to_vec(&rules).expect("texts and numbers are JSON");
        if text.len() as u64 > RULES_BYTES_MAX {
            let message = format!("the rules of a bucket have at most {RULES_BYTES_MAX} bytes");
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        let options = PutOptions { mode: CreateMode::Replace, ..PutOptions::default() };
        let put = self.client.put(&self.rules_path(&bucket)?, text.into(), &options).await;
        match &put {
            Ok(_) => self.cors.keep(&bucket, Some(rules.into()), Instant::now()),
            Err(_) => self.cors.forget(&bucket),
        }
        put.map_err(|error| refused(&error, Missing::Bucket))?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    pub(crate) async fn remove_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let bucket = request.input.bucket;
        self.check_bucket(&self.bucket(&bucket)?).await?;
        self.forget_cors(&bucket).await?;
        Ok(S3Response::new(DeleteBucketCorsOutput::default()))
    }

    /// Deletes the rules of a bucket, if it has some.
    ///
    /// # Errors
    /// Those of a deletion.
    pub(crate) async fn forget_cors(&self, bucket: &str) -> S3Result<()> {
        let removed = self.client.delete(&self.rules_path(bucket)?, false).await;
        match removed {
            Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {
                self.cors.keep(bucket, None, Instant::now());
                Ok(())
            }
            Err(error) => {
                self.cors.forget(bucket);
                Err(refused(&error, Missing::Bucket))
            }
        }
    }
}

/// Returns the header with what the answer depends on.
fn varying() -> HeaderMap {
    let by = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";
    HeaderMap::from_iter([(header::VARY, HeaderValue::from_static(by))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Rule {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        Rule {
            origins: texts(&["https://*.example"]),
            methods: texts(&["GET", "PUT"]),
            headers: texts(&["x-amz-*", "Content-Type"]),
            exposed: texts(&["ETag"]),
            ..Rule::default()
        }
    }

    fn asked(origin: &str, method: &str, headers: &str) -> CorsRequest {
        let pairs = [
            ("origin", origin),
            ("access-control-request-method", method),
            ("access-control-request-headers", headers),
        ];
        let pairs = pairs.map(|(name, text)| (name.parse().unwrap(), text.parse().unwrap()));
        CorsRequest::of(&Method::OPTIONS, &HeaderMap::from_iter(pairs)).unwrap()
    }

    #[test]
    fn one_wildcard_stands_for_anything() {
        assert!(is_like("*", "") && is_like("a*b", "ab") && is_like("a*b", "axb"));
        assert!(!is_like("a*a", "a") && !is_like("a", "ab") && !is_like("*.b", "a.b.c"));
    }

    #[test]
    fn rule_allows_what_it_names() {
        let of = |origin, method, headers| rule().allows(&asked(origin, method, headers)).is_some();
        assert!(of("https://a.example", "GET", ""));
        assert!(of("https://a.example", "PUT", "X-Amz-Date, content-type"));
        assert!(!of("https://a.example", "DELETE", ""));
        assert!(!of("http://a.example", "GET", ""));
        assert!(!of("https://a.example.net", "GET", ""));
        assert!(!of("https://a.example", "GET", "authorization"));
    }

    #[test]
    fn rule_that_could_forge_a_header_is_none() {
        rule().check().unwrap();
        let mut wrong = [rule(), rule(), rule(), rule(), rule(), Rule::default()];
        wrong[0].origins.push("https://a\r\nSet-Cookie: b".to_owned());
        wrong[1].exposed.push("ETag\r\nSet-Cookie".to_owned());
        wrong[2].methods.push("GET\r\n".to_owned());
        wrong[3].origins.push("*.*".to_owned());
        wrong[4].max_age_seconds = Some(-1);
        let errors: Vec<CorsRuleError> =
            wrong.iter().map(|rule| rule.check().expect_err("it is wrong")).collect();
        assert!(matches!(&errors[1], CorsRuleError::Exposed { header } if header.contains('\r')));
        assert!(matches!(&errors[2], CorsRuleError::Method { method } if method == "GET\r\n"));
        assert!(matches!(&errors[3], CorsRuleError::Pattern { pattern } if pattern == "*.*"));
        let text = "an id has at most 255 characters, an age is not negative";
        assert_eq!(errors[4].to_string(), text);
        assert_eq!(errors[5], CorsRuleError::NothingAllowed);
    }
}
