//! Which cluster a command uses: flags, the environment, contexts, the default.

use clap::ArgMatches;
use clap::parser::ValueSource;
use sanderling_context::{
    AddressOrigin, ContextError, Explicit, of_environment, resolve, resolve_with,
};

use crate::failure::{Exit, Failure, FailureKind, RefusalKind};
use crate::global::Global;

impl Global {
    /// Finds the cluster and the credentials that belong to it, with or without the current
    /// context.
    ///
    /// # Errors
    /// Usage (2) for a wrong address, not found (3) for a context that does not exist, failure (1)
    /// for a file of contexts that cannot be used: end the command with it. The failure has the
    /// next command.
    pub fn resolve(&mut self, matches: &ArgMatches, has_current: bool) -> Result<(), Failure> {
        let found =
            resolve_with(self.explicit(matches), &of_environment, has_current).map_err(failure)?;
        self.namenode = found.address;
        self.origin = found.origin;
        self.shown.token_file = found.token_file;
        self.shown.tls_ca = found.tls_ca;
        if let Some(name) = found.tls_name {
            self.shown.tls_name = name;
        }
        Ok(())
    }

    /// Returns what the command line gives, without the environment and defaults.
    #[must_use]
    pub fn explicit(&self, matches: &ArgMatches) -> Explicit {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        Explicit {
            address: is_given("namenode").then(|| self.given_namenodes.join(",")),
            context: self.context.clone().filter(|_| is_given("context")),
            token: None,
            token_file: self.shown.token_file.clone().filter(|_| is_given("token_file")),
            tls_ca: self.shown.tls_ca.clone().filter(|_| is_given("tls_ca")),
            tls_name: is_given("tls_name").then(|| self.shown.tls_name.clone()),
        }
    }

    /// Adds to the failure of a call which cluster was called, and where its address comes from.
    #[must_use]
    pub fn with_origin(&self, mut failure: Failure) -> Failure {
        if self.namenode.is_empty() {
            return failure;
        }
        let origin = self.origin.to_string().replace("the given address", "--namenode");
        if let Some(tried) = &mut failure.tried {
            if *tried == self.namenode {
                tried.push_str(&format!(", from {origin}"));
            }
        } else if failure.is_of_a_call() {
            let tried = format!("a request to the cluster at {}, from {origin}", self.namenode);
            failure.tried = Some(tried);
        }
        failure
    }
}

/// Returns the first of the addresses of a list.
#[must_use]
pub fn first_address(addresses: &str) -> &str {
    addresses.split(',').next().unwrap_or_default()
}

/// Returns whether commands that name no cluster use another one than the default.
#[must_use]
pub fn is_chosen() -> bool {
    let found = resolve(Explicit::default());
    found.map_or(true, |found| found.origin != AddressOrigin::Default)
}

/// Returns the failure of a command whose cluster cannot be found.
#[must_use]
pub fn failure(error: ContextError) -> Failure {
    let (exit, kind) = match &error {
        ContextError::Address { .. } => (Exit::Usage, FailureKind::BadAddress),
        ContextError::Both { .. } | ContextError::BadName { .. } => {
            (Exit::Usage, FailureKind::Usage)
        }
        ContextError::Unknown { .. } => (Exit::NotFound, RefusalKind::NotFound.into()),
        ContextError::Exists { .. } => (Exit::Failure, RefusalKind::Exists.into()),
        ContextError::File(_)
        | ContextError::NotRegular { .. }
        | ContextError::Open { .. }
        | ContextError::Foreign { .. }
        | ContextError::Io { .. } => (Exit::Failure, FailureKind::BadContexts),
        ContextError::NoHome | ContextError::RelativeHome { .. } => {
            (Exit::Failure, FailureKind::NoHome)
        }
    };
    let has_looked = exit != Exit::Usage && kind != FailureKind::NoHome;
    let next = error.next();
    let failure = Failure::caused(exit, kind, error).next(next);
    if has_looked { failure.tried("read the file of contexts") } else { failure }
}
