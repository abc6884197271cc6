//! What the calls of the clusters that the lab starts have in common.

use sanderling_client::ClientError;

use crate::failure::Failure;
use crate::refused;

/// Returns the failure of a call of a cluster that the lab has started. It has the cluster's
/// address, which no option has.
pub(crate) fn failed(error: &ClientError, namenode: &str) -> Failure {
    refused::client(error, namenode)
        .tried(format_args!("a request to the lab's own cluster at {namenode}"))
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Refusal;

    use super::*;

    #[test]
    fn failure_of_a_call_names_the_cluster_that_the_lab_has_started() {
        let error = ClientError::Refused(Refusal::NoHello);
        let failure = failed(&error, "127.0.0.1:4711");
        let tried = "a request to the lab's own cluster at 127.0.0.1:4711";
        assert_eq!(failure.tried.as_deref(), Some(tried));
    }
}
