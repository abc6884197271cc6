//! Bounds of the lists in the requests of writers.

use sanderling_protocol::limits::{
    AVOIDED_NODES_MAX, LEASES_PER_RENEWAL_MAX, LENGTHS_PER_REQUEST_MAX,
};
use sanderling_protocol::{Refusal, Request};

/// Refuses a request with a list that is longer than any client sends. Placement compares each node
/// that it draws with all those to avoid, and a command walks the other lists: other changes wait
/// meanwhile.
pub(super) fn check_lists(request: &Request) -> Result<(), Refusal> {
    match request {
        Request::AddBlocks { ended, avoid, .. } => {
            check("nodes to avoid", avoid.len(), AVOIDED_NODES_MAX)?;
            check_lengths(ended.len())
        }
        Request::Publish { lengths, .. } | Request::Seal { lengths, .. } => {
            check_lengths(lengths.len())
        }
        Request::RenewLeases { leases } => check("leases", leases.len(), LEASES_PER_RENEWAL_MAX),
        _ => Ok(()),
    }
}

fn check_lengths(count: usize) -> Result<(), Refusal> {
    check("lengths of blocks", count, LENGTHS_PER_REQUEST_MAX)
}

fn check(what: &str, count: usize, limit: usize) -> Result<(), Refusal> {
    if count <= limit {
        return Ok(());
    }
    let (value, limit) = (count as u64, limit as u64);
    Err(Refusal::TooLarge { what: format!("number of {what}"), value, limit })
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::{Attributes, BlockLength};
    use sanderling_protocol::{BlockId, LeaseId, NodeId, ObjectId};

    use super::*;

    /// Makes a request with a list of so many entries.
    type Lists = fn(usize) -> Request;

    const OBJECT: ObjectId = ObjectId(7);
    const LEASE: LeaseId = LeaseId(8);

    fn lengths(count: usize) -> Vec<BlockLength> {
        vec![BlockLength { block: BlockId(9), length: 0 }; count]
    }

    fn more(ended: usize, avoid: usize) -> Request {
        let (object, lease, ended) = (OBJECT, LEASE, lengths(ended));
        Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![NodeId(1); avoid] }
    }

    #[test]
    fn list_of_the_longest_length_is_taken_and_a_longer_one_refused() {
        let lists: [(&str, usize, Lists); 5] = [
            ("nodes to avoid", AVOIDED_NODES_MAX, |count| more(0, count)),
            ("lengths of blocks", LENGTHS_PER_REQUEST_MAX, |count| more(count, 0)),
            ("lengths of blocks", LENGTHS_PER_REQUEST_MAX, |count| {
                let (object, lease, lengths) = (OBJECT, LEASE, lengths(count));
                Request::Publish { object, lease, lengths }
            }),
            ("lengths of blocks", LENGTHS_PER_REQUEST_MAX, |count| {
                let (object, lease, lengths) = (OBJECT, LEASE, lengths(count));
                Request::Seal { object, lease, lengths, attributes: Attributes::none() }
            }),
            ("leases", LEASES_PER_RENEWAL_MAX, |count| Request::RenewLeases {
                leases: vec![(OBJECT, LEASE); count],
            }),
        ];
        for (what, most, request) in lists {
            assert_eq!(check_lists(&request(most)), Ok(()), "{what}");
            let (what, value, limit) = (format!("number of {what}"), most as u64 + 1, most as u64);
            let refused = check_lists(&request(most + 1));
            assert_eq!(refused, Err(Refusal::TooLarge { what, value, limit }));
        }
    }
}
