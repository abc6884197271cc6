//! Clusters whose servers have a secret.

use std::path::PathBuf;

use sanderling_client::{Client, ClientConfig};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Refusal, Token};
use sanderling_transport::{
    CallError, ClientTls, Connection, ConnectionOptions, Credentials, TLS_NAME, TokenSource,
};
use tempfile::TempDir;

use super::{Cluster, Ran, SOON, Shape, run, sanderling};

/// A cluster whose servers have a secret, and that makes tokens for it.
pub(crate) struct Guarded {
    pub(crate) cluster: Cluster,
    pub(crate) secret: String,
    /// The authority, where the endpoints have TLS.
    pub(crate) authority: Option<PathBuf>,
    pub(crate) place: TempDir,
}

pub(crate) fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("a name in UTF-8")
}

/// Lets the harness take it, which keeps flags for as long as the test runs.
pub(crate) fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

impl Guarded {
    /// Starts servers with a secret.
    pub(crate) fn start(datanodes: usize) -> Self {
        Self::start_with(datanodes, false, &[])
    }

    /// Starts servers with a secret and certificates.
    pub(crate) fn encrypted(datanodes: usize, flags: &[&'static str]) -> Self {
        Self::start_with(datanodes, true, flags)
    }

    pub(crate) fn start_with(datanodes: usize, has_tls: bool, flags: &[&'static str]) -> Self {
        let place = TempDir::new().expect("a directory for the test");
        let secret = text(place.path().join("secret"));
        let made = run(sanderling().args(["token", "secret", "--out", &secret]));
        assert_eq!(made.code, 0, "{made}");
        let mut all = vec!["--secret-file", kept(&secret)];
        if has_tls {
            let out = text(place.path().join("tls"));
            let made = run(sanderling().args(["tls", "new", "--out", &out]));
            assert_eq!(made.code, 0, "{made}");
            for (flag, name) in
                [("--tls-ca", "ca.pem"), ("--tls-cert", "node.pem"), ("--tls-key", "node.key")]
            {
                all.extend([flag, kept(&format!("{out}/{name}"))]);
            }
        }
        let namenode = all.iter().map(|word| (*word).to_owned()).collect();
        let datanode = [&all[..], flags].concat();
        let cluster = Cluster::start(Shape { datanodes, namenode, datanode, ..Shape::default() });
        let authority = has_tls.then(|| place.path().join("tls/ca.pem"));
        Self { cluster, secret, authority, place }
    }

    /// Makes a token with the command, as an operator does.
    pub(crate) fn token(&self, flags: &[&str]) -> Token {
        let made = self
            .cli(None, &[&["token", "new", "--secret-file", &self.secret, "-q"], flags].concat());
        assert_eq!(made.code, 0, "{made}");
        Token::new(&made.stdout)
    }

    pub(crate) fn config(&self, token: &Token) -> ClientConfig {
        let token = Some(TokenSource::Given(token.clone()));
        let tls = self.authority.as_deref();
        let tls = tls.map(|ca| ClientTls::read(ca, TLS_NAME).expect("made by tls new"));
        ClientConfig { credentials: Credentials { token, tls }, ..ClientConfig::default() }
    }

    pub(crate) async fn client(&self, flags: &[&str]) -> Client {
        self.cluster.client_of(self.config(&self.token(flags))).await
    }

    /// Runs a command with a token in its environment.
    pub(crate) fn cli(&self, token: Option<&Token>, words: &[&str]) -> Ran {
        let mut command = sanderling();
        command.args(words).env("SANDERLING_NAMENODE", &self.cluster.namenode.address);
        if let Some(token) = token {
            command.env("SANDERLING_TOKEN", token.reveal());
        }
        if let Some(authority) = &self.authority {
            command.env("SANDERLING_TLS_CA", authority);
        }
        run(&mut command)
    }
}

/// Sends a server what no library sends.
pub(crate) struct Line(Connection);

impl Line {
    pub(crate) async fn to(
        guarded: &Guarded,
        address: &str,
        token: &Token,
    ) -> Result<Self, CallError> {
        let credentials = guarded.config(token).credentials;
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let deadline = tokio::time::Instant::now() + SOON;
        let connected = Connection::connect_with(address, hello, deadline, &options).await;
        connected.map(|(connection, _)| Self(connection))
    }

    pub(crate) async fn call(&self, header: Header, body: Vec<u8>) -> Result<Vec<u8>, Refusal> {
        let deadline = tokio::time::Instant::now() + SOON;
        match self.0.call(header, vec![body.into()], deadline).await {
            Ok(frame) => Ok(frame.body.to_vec()),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("the server answers: {error}"),
        }
    }
}
