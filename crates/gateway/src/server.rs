//! The server around the interface: S3 on one address, health and metrics on another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, header};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{HttpError, S3Error, S3ErrorCode};
use sanderling_client::{Client, ClientError};
use sanderling_protocol::ClusterId;
use sanderling_transport::{
    HttpOptions, ListenError, Security, SiteRefusal, StatusPages, listen, refused_site, serve_http,
    serve_status, trace,
};
use thiserror::Error;
use tokio::net::{TcpListener, lookup_host};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::answer::Ids;
use crate::api::{REGION, S3Api};
use crate::aws_chunks;
use crate::bucket_address::{AnyName, Domains};
use crate::cors::{self, Rules};
use crate::keys::AccessKeys;
use crate::md5::Threads;
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::request_record::RequestRecord;
use crate::rewrite::{Mending, XML_BYTES_MAX};
use crate::slow_client::{Lateness, Rest, SlowClientLimit};
use crate::slow_copy::{self, CopyAnswer, CopyStart};
use crate::upload_keys::UploadKeys;
use crate::writing::{ActiveWrites, Cleanups};

/// Longest time between a request's head and its answer's: a body of terabytes, or a copy. That
/// bytes come meanwhile is looked at apart. A terabyte a day is 93 Mbit/s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long answers that are under way at the end may still take. More than the 2 s of pages
/// (`HttpOptions::end_within`), because an answer here may be long; a block of 1 MiB comes over
/// 2 Mbit/s in it. Clients repeat what breaks off. Chosen, not measured.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The header with the object that is copied.
const COPY_SOURCE: &str = "x-amz-copy-source";

/// Why a gateway does not start.
#[derive(Debug, Error)]
pub enum GatewayStartError {
    /// It cannot listen.
    #[error(transparent)]
    Listen(ListenError),
    /// The address can be reached from other machines, and the pair of keys is public.
    #[error("{address} can be reached from other machines: give it access keys with --keys FILE")]
    NoKeys {
        /// The address to listen on.
        address: String,
    },
    /// The address can be reached from other machines, and what is sent there can be read on the
    /// way.
    #[error(
        "{address} can be reached from other machines and nothing is encrypted: give it \
         --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy with TLS, or pass \
         --allow-unauthenticated on a network that you trust"
    )]
    Plaintext {
        /// The address to listen on.
        address: String,
    },
    /// The cluster cannot be reached.
    #[error(transparent)]
    Cluster(ClientError),
}

/// A gateway that serves.
#[derive(Debug)]
pub struct GatewayServer {
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    cluster: ClusterId,
    shutdown: CancellationToken,
    served: JoinSet<()>,
    cleanups: Cleanups,
}

impl GatewayServer {
    /// Listens, connects to the cluster, and starts to serve S3 and, if an address is set for it,
    /// HTTP.
    ///
    /// # Errors
    /// [`GatewayStartError`]: its text has what to do.
    pub async fn start(options: GatewayOptions) -> Result<Self, GatewayStartError> {
        let listener = open(&options.listen, &options).await?;
        let http = match &options.http_listen {
            None => None,
            Some(address) => {
                let allow_unauthenticated = options.allow_unauthenticated;
                let security = Security { allow_unauthenticated, ..Security::default() };
                Some(listen(address, &security).await.map_err(GatewayStartError::Listen)?)
            }
        };
        let client = Client::connect(&options.namenode, options.client.clone())
            .await
            .map_err(GatewayStartError::Cluster)?;
        let cluster = client.cluster();
        let metrics = Arc::new(GatewayMetrics::new());
        // Half of the cores can take in all that the others bring.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let api = S3Api {
            client: client.clone(),
            root: options.root.clone(),
            upload_ttl: options.upload_ttl,
            writing: ActiveWrites::default(),
            cleanups: Cleanups::default(),
            metrics: Arc::clone(&metrics),
            md5: Threads::start(cores.div_ceil(2)),
            cors: Rules::default(),
            upload_keys: UploadKeys::default(),
        };
        let cleanups = api.cleanups.clone();
        let expiries = options.expiries();
        let console = options.console.clone();
        let address = address_of(&listener)?;
        let http_address = http.as_ref().map(address_of).transpose()?;
        let shutdown = CancellationToken::new();
        let mut served = JoinSet::new();
        served.spawn(serve(api, listener, options, shutdown.clone()));
        if let Some(http) = http {
            let health = format!(
                r#"{{"schema":1,"cluster":"{:016x}","role":"gateway","status":"ok"}}"#,
                client.cluster().0
            );
            let metrics = move || metrics.text(client.metrics(), &expiries.timestamps());
            let pages = StatusPages { server: "gateway", console, health };
            served.spawn(serve_status(http, false, pages, metrics, shutdown.clone()));
        }
        Ok(Self { address, http_address, cluster, shutdown, served, cleanups })
    }

    /// Returns the address at which the gateway serves S3.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where health and metrics are served, if they are.
    #[must_use]
    pub const fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the id of the cluster whose objects the gateway serves.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Stops taking requests, and returns when the answers that are under way have ended, and what
    /// puts left that failed is removed or time is up.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        while self.served.join_next().await.is_some() {}
        let _is_out_of_time = tokio::time::timeout(END_TIMEOUT, self.cleanups.wait()).await;
    }
}

/// Listens, on loopback unless the options trust the network.
async fn open(address: &str, options: &GatewayOptions) -> Result<TcpListener, GatewayStartError> {
    let resolved = lookup_host(address).await.ok().and_then(|mut all| all.next());
    let is_far = resolved.is_some_and(|address| !address.ip().is_loopback());
    let address = address.to_owned();
    match (is_far && !options.allow_unauthenticated, &options.keys, &options.tls) {
        (true, None, _) => Err(GatewayStartError::NoKeys { address }),
        (true, Some(_), None) => Err(GatewayStartError::Plaintext { address }),
        // Every request needs a signature.
        _ => {
            let security = Security { allow_unauthenticated: true, ..Security::default() };
            listen(&address, &security).await.map_err(GatewayStartError::Listen)
        }
    }
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, GatewayStartError> {
    listener.local_addr().map_err(|cause| {
        GatewayStartError::Listen(ListenError::Io { address: "the listener".to_owned(), cause })
    })
}

fn http_options(options: &GatewayOptions) -> HttpOptions {
    HttpOptions {
        connections_max: options.connections_max,
        answer_within: ANSWER_TIMEOUT,
        end_within: END_TIMEOUT,
        take_within: options.idle_timeout,
        tls: options.tls.clone(),
        ..HttpOptions::default()
    }
}

async fn serve(
    api: S3Api,
    listener: TcpListener,
    options: GatewayOptions,
    shutdown: CancellationToken,
) {
    let answering = Arc::new(HttpService {
        metrics: Arc::clone(&api.metrics),
        s3: s3_service(api.clone(), &options),
        api,
        domains: Domains(options.domains.clone()),
        is_open: options.keys.is_none(),
        ids: Ids::default(),
        idle_timeout: options.idle_timeout,
    });
    let service =
        service_fn(move |request: Request<Incoming>| Arc::clone(&answering).answer(request));
    serve_http(listener, service, http_options(&options), shutdown).await;
}

/// Makes the service that checks requests, before the one that reads those which are mended.
fn s3_service(api: S3Api, options: &GatewayOptions) -> S3Service {
    let keys = options.keys.clone().unwrap_or_else(AccessKeys::local);
    let domains = Domains(options.domains.clone());
    let builder = || {
        let mut builder = S3ServiceBuilder::new(api.clone());
        builder.set_auth(keys.clone());
        builder.set_access(keys.clone());
        builder.set_validation(AnyName);
        builder.set_config(s3_config());
        if !domains.0.is_empty() {
            builder.set_host(domains.clone());
        }
        builder
    };
    let mut checks = builder();
    let reads = builder().build();
    checks.set_route(Mending { reads, keys: keys.clone(), domains: domains.clone() });
    checks.build()
}

/// What all answers go through.
struct HttpService {
    s3: S3Service,
    api: S3Api,
    domains: Domains,
    /// The access key is public: pages of other origins have it, too.
    is_open: bool,
    metrics: Arc<GatewayMetrics>,
    ids: Ids,
    idle_timeout: Duration,
}

impl HttpService {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<s3s::Body>, HttpError> {
        let (method, resource) = (request.method().clone(), request.uri().path().to_owned());
        let metrics = Arc::clone(&self.metrics);
        let record = RequestRecord::begin(self.ids.draw(), method, resource, metrics);
        let (rest, lateness) = (Rest::default(), Lateness::default());
        let metrics = Arc::clone(&self.metrics);
        let is_expecting = request.headers().contains_key(header::EXPECT);
        let has_body = !request.body().is_end_stream();
        let is_chunked = aws_chunks::is_chunked(request.headers());
        let mut request = request.map(|body| {
            let (rest, late) = (rest.clone(), lateness.clone());
            let patient = SlowClientLimit::new(body, self.idle_timeout, rest, late, metrics);
            aws_chunks::body(patient, is_chunked)
        });
        request.extensions_mut().insert(lateness);
        let answer = if request.headers().contains_key(COPY_SOURCE) {
            let start = CopyStart::default();
            request.extensions_mut().insert(start.clone());
            let answering = Box::pin(Arc::clone(&self).traced(request));
            slow_copy::answer(record, &start, ANSWER_TIMEOUT, answering).await?
        } else {
            CopyAnswer::Complete(record.complete(Arc::clone(&self).traced(request).await?))
        };
        // A client that waits for 100 Continue has not sent its body, and need not any more.
        let (mut answer, is_left) = match answer {
            CopyAnswer::Begun(answer) => (answer, has_body),
            CopyAnswer::Complete(answer) if is_expecting => (answer, rest.is_some()),
            CopyAnswer::Complete(answer) => (answer, !rest.drain().await),
        };
        let headers = answer.headers_mut();
        // An empty body is sent no 100 Continue. The aws CLI 1 parses the next answer of a
        // connection wrongly when the last one came without a 100 Continue: it keeps the status
        // line (botocore, `awsrequest.py`, `_handle_expect_response`).
        if is_left || (is_expecting && !has_body) {
            headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        headers.insert("x-amz-bucket-region", header::HeaderValue::from_static(REGION));
        headers.insert(header::SERVER, header::HeaderValue::from_static("Sanderling"));
        Ok(answer)
    }

    /// Answers a request within a span.
    async fn traced(
        self: Arc<Self>,
        request: Request<s3s::Body>,
    ) -> Result<Response<s3s::Body>, HttpError> {
        let place = self.domains.place(request.uri(), request.headers());
        let bucket = place.map(|place| place.bucket);
        let page = cors::CorsRequest::of(request.method(), request.headers());
        let mut span = trace::begin("s3");
        if let Some(span) = &mut span {
            span.text("http.request.method", request.method());
            span.text("url.path", &request.uri().path());
        }
        trace::run(span, self.answer_to(request, bucket.as_deref(), page.as_ref())).await
    }

    /// Returns why a request of a browser is refused, if it is. Where the access key is public,
    /// pages of other sites can sign, too.
    fn refused_site(
        &self,
        method: &Method,
        headers: &HeaderMap,
        is_shared: bool,
    ) -> Option<&'static str> {
        if !self.is_open {
            return None;
        }
        let mut headers = headers.clone();
        if is_shared {
            headers.remove(header::ORIGIN);
            headers.remove("sec-fetch-site");
        }
        Some(match refused_site(method, &headers, !self.domains.is_known(&headers))? {
            SiteRefusal::OtherSite => SiteRefusal::OtherSite.why(),
            SiteRefusal::UnknownName => {
                "this gateway is not known by that name: request by an address, or start it with \
                 --keys or --domain"
            }
        })
    }

    async fn answer_to(
        &self,
        request: Request<s3s::Body>,
        bucket: Option<&str>,
        page: Option<&cors::CorsRequest>,
    ) -> Result<Response<s3s::Body>, HttpError> {
        if request.method() == Method::OPTIONS {
            return match self.api.preflight(bucket, page).await {
                Ok(headers) => {
                    let mut answer = Response::new(s3s::Body::empty());
                    *answer.headers_mut() = headers;
                    Ok(answer)
                }
                Err(error) => refusal(error),
            };
        }
        let shared = match (bucket, page) {
            (Some(bucket), Some(page)) => self.api.shared(bucket, page).await,
            _ => HeaderMap::new(),
        };
        if let Some(start) = request.extensions().get::<CopyStart>() {
            start.set_headers(&shared);
        }
        let is_shared = shared.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        let mut answer = if is_form(request.headers()) {
            // s3s would gather all of it in memory before it checks the signature.
            let message = "forms of browsers are not taken";
            refusal(S3Error::with_message(S3ErrorCode::NotImplemented, message))?
        } else if let Some(why) = self.refused_site(request.method(), request.headers(), is_shared)
        {
            refusal(S3Error::with_message(S3ErrorCode::AccessDenied, why))?
        } else {
            self.s3.call(request).await?
        };
        answer.headers_mut().extend(shared);
        Ok(answer)
    }
}

fn refusal(error: S3Error) -> Result<Response<s3s::Body>, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|it| it.as_bytes().to_ascii_lowercase());
    kind.is_some_and(|kind| kind.trim_ascii_start().starts_with(b"multipart/"))
}

pub(crate) fn s3_config() -> Arc<StaticConfigProvider> {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_BYTES_MAX;
    Arc::new(StaticConfigProvider::new(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use sanderling_transport::CallError;

    use super::*;

    #[test]
    fn cause_of_a_failed_start_is_its_source() {
        let cause = io::Error::from(io::ErrorKind::PermissionDenied);
        let listen = ListenError::Io { address: "h:1".to_owned(), cause };
        let listen = GatewayStartError::Listen(listen);
        assert_eq!(listen.to_string(), "cannot listen on h:1: permission denied");
        assert!(listen.source().is_some_and(|source| source.is::<io::Error>()));
        let cause = CallError::unreachable("h:1", io::ErrorKind::ConnectionRefused.into());
        let call = ClientError::Call { what: "connect".to_owned(), cause: cause.clone() };
        let cluster = GatewayStartError::Cluster(call);
        let text = "connect: h:1 cannot be reached: connection refused";
        assert_eq!(cluster.to_string(), text);
        assert_eq!(cluster.source().and_then(|source| source.downcast_ref()), Some(&cause));
    }
}
