//! The rule by which a caller gets its cluster.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use sanderling_protocol::ports::NAMENODE_ADDRESS;

use crate::address::address;
use crate::contexts::{Context, Contexts, file};
use crate::error::ContextError;

/// The variable with the namenode's address.
pub const NAMENODE_VARIABLE: &str = "SANDERLING_NAMENODE";

/// The variable with the name of a context.
pub const CONTEXT_VARIABLE: &str = "SANDERLING_CONTEXT";

/// The variable with a token. There is no flag for it: others can read a process's arguments.
pub const TOKEN_VARIABLE: &str = "SANDERLING_TOKEN";

/// The variable with the path of a file with a token.
pub const TOKEN_FILE_VARIABLE: &str = "SANDERLING_TOKEN_FILE";

/// The variable with the path of the authorities' certificates.
pub const TLS_CA_VARIABLE: &str = "SANDERLING_TLS_CA";

/// The variable with the name that the cluster's certificates are made for.
pub const TLS_NAME_VARIABLE: &str = "SANDERLING_TLS_NAME";

/// Returns variables of the environment by their names.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the caller gives itself, by flags or arguments.
#[derive(Debug, Clone, Default)]
pub struct Explicit {
    /// The namenode's address.
    pub address: Option<String>,
    /// The name of a context.
    pub context: Option<String>,
    /// A token.
    pub token: Option<String>,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// The authorities of the cluster's certificates.
    pub tls_ca: Option<PathBuf>,
    /// The name that the certificates are made for.
    pub tls_name: Option<String>,
}

/// Where an address comes from, so that an error can name what to correct. [`resolve`] has the
/// order in which they count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressOrigin {
    /// The caller gave it.
    Explicit,
    /// A variable of the environment.
    Variable,
    /// A context that the caller named.
    Context(String),
    /// The context of `SANDERLING_CONTEXT`.
    ContextVariable(String),
    /// The current context.
    Current(String),
    /// Nothing else was there.
    Default,
}

impl AddressOrigin {
    /// Returns the context's name, if it is one.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        match self {
            Self::Context(name) | Self::ContextVariable(name) | Self::Current(name) => Some(name),
            Self::Explicit | Self::Variable | Self::Default => None,
        }
    }
}

impl fmt::Display for AddressOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit => formatter.write_str("the given address"),
            Self::Variable => formatter.write_str(NAMENODE_VARIABLE),
            Self::Context(name) => write!(formatter, "context {name}"),
            Self::ContextVariable(name) => {
                write!(formatter, "context {name} of {CONTEXT_VARIABLE}")
            }
            Self::Current(name) => write!(formatter, "the current context {name}"),
            Self::Default => formatter.write_str("the default"),
        }
    }
}

/// A cluster's address and the credentials that belong to it.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The namenode's address, `host:port`.
    pub address: String,
    /// Where it comes from.
    pub origin: AddressOrigin,
    /// A token; then there is no file.
    pub token: Option<String>,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// The authorities of the cluster's certificates: use TLS.
    pub tls_ca: Option<PathBuf>,
    /// The name that the certificates are made for.
    pub tls_name: Option<String>,
}

/// Returns a variable of this process's environment.
#[must_use]
pub fn of_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns the cluster of a client: what it gives itself, the environment, the current context, the
/// default.
///
/// # Errors
/// [`ContextError`]: its `next` is the caller's next step.
pub fn resolve(explicit: Explicit) -> Result<Resolved, ContextError> {
    resolve_with(explicit, &of_environment, true)
}

/// The same in an environment, with or without the current context. A context's credentials are
/// used with its own address alone: no other server gets its token.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_with(
    explicit: Explicit,
    variables: Variables<'_>,
    has_current: bool,
) -> Result<Resolved, ContextError> {
    let variable = |name: &str| variables(name).filter(|text| !text.is_empty());
    let text = |name: &str| variable(name).map(|text| text.to_string_lossy().into_owned());
    let (given, origin, context) = place(&explicit, variables, has_current)?;
    let address = address(&given).map_err(|error| {
        let origin = match &origin {
            AddressOrigin::Explicit => String::new(),
            origin => format!(" (from {origin})"),
        };
        ContextError::Address { origin, error }
    })?;
    let is_explicit = matches!(origin, AddressOrigin::Context(_));
    // A context that the caller names comes before the environment, as all that it gives.
    let (first, last) = if is_explicit { (context, None) } else { (None, context) };
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let mut token = explicit.token;
    let mut token_file = explicit.token_file;
    if token.is_none() {
        token_file = token_file.or(first.token_file);
    }
    // The variables' token may be another cluster's: a context that is named gets its own alone.
    if token.is_none() && token_file.is_none() && !is_explicit {
        token_file = variable(TOKEN_FILE_VARIABLE).map(PathBuf::from);
        token = text(TOKEN_VARIABLE).filter(|_| token_file.is_none());
    }
    if token.is_none() && token_file.is_none() {
        token_file = last.token_file;
    }
    let tls_ca = explicit.tls_ca.or(first.tls_ca);
    let tls_ca = tls_ca.or_else(|| variable(TLS_CA_VARIABLE).map(PathBuf::from));
    let tls_name = explicit.tls_name.or(first.tls_name).or_else(|| text(TLS_NAME_VARIABLE));
    Ok(Resolved {
        address,
        origin,
        token,
        token_file,
        tls_ca: tls_ca.or(last.tls_ca),
        tls_name: tls_name.or(last.tls_name),
    })
}

/// Returns the address as it is given, where it comes from, and the context that has it.
fn place(
    explicit: &Explicit,
    variables: Variables<'_>,
    has_current: bool,
) -> Result<(String, AddressOrigin, Option<Context>), ContextError> {
    let text = |name: &str| {
        let found = variables(name).filter(|text| !text.is_empty())?;
        Some(found.to_string_lossy().into_owned())
    };
    match (&explicit.address, &explicit.context) {
        (Some(address), Some(context)) => {
            let (address, context) = (address.clone(), context.clone());
            return Err(ContextError::Both { address, context });
        }
        (Some(address), None) => return Ok((address.clone(), AddressOrigin::Explicit, None)),
        (None, Some(name)) => return named(name, AddressOrigin::Context(name.clone()), variables),
        (None, None) => {}
    }
    if let Some(address) = text(NAMENODE_VARIABLE) {
        return Ok((address, AddressOrigin::Variable, None));
    }
    if let Some(name) = text(CONTEXT_VARIABLE) {
        return named(&name, AddressOrigin::ContextVariable(name.clone()), variables);
    }
    let path = match file(variables) {
        Err(ContextError::NoHome) => None,
        path => Some(path),
    };
    if let Some(path) = path.filter(|_| has_current).transpose()? {
        let contexts = Contexts::read(&path)?;
        if let Some(name) = contexts.current() {
            let context = contexts.context(name)?.clone();
            let origin = AddressOrigin::Current(name.to_owned());
            return Ok((context.namenode.clone(), origin, Some(context)));
        }
    }
    Ok((NAMENODE_ADDRESS.to_owned(), AddressOrigin::Default, None))
}

fn named(
    name: &str,
    origin: AddressOrigin,
    variables: Variables<'_>,
) -> Result<(String, AddressOrigin, Option<Context>), ContextError> {
    let path = file(variables)?;
    let context = Contexts::read(&path)?.context(name)?.clone();
    Ok((context.namenode.clone(), origin, Some(context)))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::address::AddressError;

    /// Resolves with a current context `prod` and another, `dev`.
    fn resolved(
        explicit: Explicit,
        environment: &[(&str, &str)],
        has_current: bool,
    ) -> Result<Resolved, ContextError> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("contexts.toml");
        Contexts::update(&path, |contexts| {
            for (name, host) in [("prod", "10.0.0.1"), ("dev", "10.0.0.2"), ("open", "10.0.0.4")] {
                let token_file = (name != "open").then(|| format!("/{name}.token").into());
                let namenode = format!("{host}:7600");
                let context = Context { namenode, token_file, ..Context::default() };
                contexts.add(name, context, false)?;
            }
            contexts.select("prod")
        })
        .expect("written");
        let variables = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            let home = || {
                let path = directory.path().as_os_str().to_owned();
                (name == "SANDERLING_CONFIG_HOME").then_some(path)
            };
            found.map(|(_, text)| text.into()).or_else(home)
        };
        resolve_with(explicit, &variables, has_current)
    }

    /// What is given, the environment, whether there is a current context; address and origin.
    type Case<'a> = (Explicit, &'a [(&'a str, &'a str)], bool, &'a str, &'a str);

    fn address(text: &str) -> Explicit {
        Explicit { address: Some(text.to_owned()), ..Explicit::default() }
    }

    fn context(name: &str) -> Explicit {
        Explicit { context: Some(name.to_owned()), ..Explicit::default() }
    }

    #[test]
    fn first_that_is_there_is_the_address() {
        let none = Explicit::default;
        let namenode = (NAMENODE_VARIABLE, "10.0.0.3");
        let variable = (CONTEXT_VARIABLE, "dev");
        let cases: [Case<'_>; 8] = [
            (address("nn"), &[namenode, variable], true, "nn:7600", "the given address"),
            (context("dev"), &[namenode], true, "10.0.0.2:7600", "context dev"),
            (none(), &[namenode, variable], true, "10.0.0.3:7600", "SANDERLING_NAMENODE"),
            (none(), &[variable], true, "10.0.0.2:7600", "context dev of SANDERLING_CONTEXT"),
            (none(), &[], true, "10.0.0.1:7600", "the current context prod"),
            (none(), &[(NAMENODE_VARIABLE, "")], true, "10.0.0.1:7600", "the current context prod"),
            (none(), &[], false, NAMENODE_ADDRESS, "the default"),
            (none(), &[variable], false, "10.0.0.2:7600", "context dev of SANDERLING_CONTEXT"),
        ];
        for (explicit, environment, has_current, wanted, origin) in cases {
            let found = resolved(explicit, environment, has_current).expect(wanted);
            assert_eq!(
                (found.address.as_str(), found.origin.to_string().as_str()),
                (wanted, origin)
            );
        }
    }

    #[test]
    fn credentials_of_a_context_go_to_its_own_address_alone() {
        let token_file = |found: Resolved| found.token_file;
        let none = Explicit::default;
        let prod = Some(PathBuf::from("/prod.token"));
        assert_eq!(token_file(resolved(none(), &[], true).expect("prod")), prod);
        assert_eq!(token_file(resolved(address("10.0.0.1"), &[], true).expect("nn")), None);
        let environment = [(NAMENODE_VARIABLE, "10.0.0.1")];
        assert_eq!(token_file(resolved(none(), &environment, true).expect("nn")), None);
    }

    #[test]
    fn environment_comes_before_the_current_context_and_after_a_named_one() {
        let environment = [(TOKEN_VARIABLE, "t"), (TLS_NAME_VARIABLE, "n")];
        let found = resolved(Explicit::default(), &environment, true).expect("prod");
        assert_eq!((found.token.as_deref(), found.token_file), (Some("t"), None));
        assert_eq!(found.tls_name.as_deref(), Some("n"));
        let found = resolved(context("dev"), &environment, true).expect("dev");
        assert_eq!((found.token, found.token_file), (None, Some("/dev.token".into())));
        let found = resolved(context("open"), &environment, true).expect("open");
        assert_eq!((found.token, found.token_file), (None, None), "it may be another cluster's");
        let given = Explicit { token: Some("own".to_owned()), ..context("dev") };
        let found = resolved(given, &environment, true).expect("dev");
        assert_eq!((found.token.as_deref(), found.token_file), (Some("own"), None));
    }

    #[test]
    fn wrong_names_are_refused_with_the_nearest() {
        let error = resolved(context("prdo"), &[], true).expect_err("no such context");
        assert!(error.to_string().contains("the nearest is \"prod\""), "{error}");
        let both = Explicit { address: Some("nn".to_owned()), ..context("dev") };
        assert!(matches!(resolved(both, &[], true), Err(ContextError::Both { .. })));
        let error = resolved(Explicit::default(), &[(NAMENODE_VARIABLE, "nn:x")], true);
        let error = error.expect_err("no port");
        assert!(error.to_string().contains("from SANDERLING_NAMENODE"), "{error}");
        let cause = error.source().and_then(|source| source.downcast_ref());
        assert!(matches!(cause, Some(AddressError::Port { .. })), "{error}");
    }
}
