//! What each operation of a datanode needs. The matches are exhaustive, so that a new operation
//! cannot be forgotten.

use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::limits::RANGES_MAX;
use sanderling_protocol::{BlockId, Header, Op, Refusal};

use super::{Claims, Rights};
use crate::datanode::BlockAccess;

/// What is left to check of a frame whose operation is allowed.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameAccess {
    /// Nothing: it is served.
    Any,
    /// Its blocks have to be in the caller's subtree, and are accessed in one way.
    Own {
        /// The blocks, as the frame names them.
        blocks: Vec<BlockId>,
        /// How they are accessed.
        access: BlockAccess,
    },
}

impl Claims {
    /// Checks whether a token with these claims allows a frame at a datanode. Of a body that is
    /// still to come only the header counts.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: use a token that has the right. [`Refusal::BadFrame`] and
    /// [`Refusal::TooLarge`]: the body has no list of ranges, or too long a one.
    pub fn check_frame(&self, header: &Header, body: &[u8]) -> Result<FrameAccess, Refusal> {
        self.check_operation(header.op)?;
        if self.is_everywhere() {
            return Ok(FrameAccess::Any);
        }
        let (blocks, access) = match header.op {
            Op::Read => (vec![header.block], BlockAccess::Read),
            Op::Write => {
                let access = BlockAccess::write(header.offset, header.body_bytes, header.tier());
                (vec![header.block], access)
            }
            Op::ReadMany => (ranges(body)?, BlockAccess::Read),
            // No caller with a subtree may do these, or they touch no block.
            Op::Store
            | Op::Order
            | Op::LocalEndpoint
            | Op::Hello
            | Op::Meta
            | Op::Lease
            | Op::Return
            | Op::Stage
            | Op::Fill
            | Op::Trace
            | Op::Group
            | Op::Cancel => return Ok(FrameAccess::Any),
        };
        Ok(FrameAccess::Own { blocks, access })
    }

    /// Checks the right to an operation of a datanode, whichever blocks it is about.
    fn check_operation(&self, op: Op) -> Result<(), Refusal> {
        match op {
            Op::Read | Op::ReadMany => self.check_frame_right(Rights::READ, "read"),
            Op::Write => self.check_write(),
            Op::Store if self.may_store() => Ok(()),
            Op::Store => Err(self.forbidden("may not store blocks of others")),
            Op::Order if self.may_order() => Ok(()),
            Op::Order => Err(self.forbidden("may not give orders to datanodes")),
            Op::LocalEndpoint => self.check_memory(),
            // Over TCP they touch no block, or a datanode refuses them. The local endpoint checks
            // the right to the memory before its first frame.
            Op::Hello
            | Op::Meta
            | Op::Lease
            | Op::Return
            | Op::Stage
            | Op::Fill
            | Op::Trace
            | Op::Group
            | Op::Cancel => Ok(()),
        }
    }

    /// Checks the right to write bytes at a datanode.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: use a token with the right to write.
    pub fn check_write(&self) -> Result<(), Refusal> {
        self.check_frame_right(Rights::WRITE, "write")
    }

    /// Checks whether a datanode's memory may be mapped: by those alone that may read everything
    /// in it.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: read over TCP.
    pub fn check_memory(&self) -> Result<(), Refusal> {
        if self.is_everywhere() && self.allows(Rights::READ) {
            return Ok(());
        }
        Err(self.forbidden("may not map the memory of this node: its bytes go over TCP"))
    }

    fn check_frame_right(&self, right: Rights, word: &str) -> Result<(), Refusal> {
        if self.allows(right) {
            return Ok(());
        }
        Err(self.forbidden(&format!("has no right to {word}")))
    }
}

/// Returns the blocks of a vectored read.
fn ranges(body: &[u8]) -> Result<Vec<BlockId>, Refusal> {
    let ranges = RangeRequest::decode_all(body)?;
    if ranges.len() > RANGES_MAX {
        let (value, limit) = (ranges.len() as u64, RANGES_MAX as u64);
        return Err(Refusal::TooLarge { what: "number of ranges".to_owned(), value, limit });
    }
    Ok(ranges.into_iter().map(|range| range.block).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Lineage, TokenRole};

    const BLOCK: BlockId = BlockId(7);

    /// Every operation.
    const OPS: [Op; 15] = [
        Op::Hello,
        Op::Meta,
        Op::Order,
        Op::Read,
        Op::ReadMany,
        Op::Write,
        Op::Store,
        Op::LocalEndpoint,
        Op::Lease,
        Op::Return,
        Op::Stage,
        Op::Fill,
        Op::Trace,
        Op::Group,
        Op::Cancel,
    ];

    fn claims(role: TokenRole, subtree: &str, rights: Rights) -> Claims {
        let (subject, subtree) = ("app".to_owned(), subtree.parse().unwrap());
        Claims { subject, role, subtree, rights, expires_at: 100, lineage: Lineage::default() }
    }

    fn header(op: Op) -> Header {
        let mut header = Header::new(op, 1);
        (header.block, header.offset, header.body_bytes) = (BLOCK, 10, 5);
        header
    }

    /// Returns the operations that a token may not do.
    fn forbidden(claims: &Claims) -> Vec<Op> {
        let is_forbidden = |op: &Op| match claims.check_frame(&header(*op), &[]) {
            Ok(_) => false,
            Err(Refusal::Forbidden { .. }) => true,
            Err(other) => panic!("{op:?}: {other}"),
        };
        OPS.into_iter().filter(is_forbidden).collect()
    }

    #[test]
    fn each_role_may_do_what_it_needs_at_a_datanode() {
        let role = |role| forbidden(&claims(role, "/", Rights::ALL));
        assert_eq!(role(TokenRole::Admin), []);
        assert_eq!(role(TokenRole::Namenode), [Op::Write, Op::Store]);
        assert_eq!(role(TokenRole::Datanode), [Op::Order, Op::Write]);
        assert_eq!(role(TokenRole::Manager), [Op::Write]);
        assert_eq!(role(TokenRole::Client), [Op::Order, Op::Store]);
    }

    #[test]
    fn client_needs_the_right_to_read_or_to_write_and_all_bytes_to_map_memory() {
        let client = |subtree, rights| forbidden(&claims(TokenRole::Client, subtree, rights));
        let servers = [Op::Order, Op::Store];
        let with = |more: &[Op]| -> Vec<Op> {
            OPS.into_iter().filter(|op| servers.contains(op) || more.contains(op)).collect()
        };
        assert_eq!(client("/", Rights::READ), with(&[Op::Write]));
        let readers = [Op::Read, Op::ReadMany, Op::LocalEndpoint];
        assert_eq!(client("/", Rights::WRITE), with(&readers));
        assert_eq!(client("/a", Rights::ALL), with(&[Op::LocalEndpoint]));
        let none = [Op::Read, Op::ReadMany, Op::Write, Op::LocalEndpoint];
        assert_eq!(client("/", Rights::ADMIN), with(&none));
    }

    #[test]
    fn blocks_of_a_caller_with_a_subtree_are_checked() {
        let everywhere = claims(TokenRole::Client, "/", Rights::ALL);
        let tenant = claims(TokenRole::Client, "/a", Rights::ALL);
        let check = |op, body: &[u8]| tenant.check_frame(&header(op), body);
        let own = |blocks: &[BlockId], access| -> Result<FrameAccess, Refusal> {
            Ok(FrameAccess::Own { blocks: blocks.to_vec(), access })
        };
        assert_eq!(check(Op::Read, &[]), own(&[BLOCK], BlockAccess::Read));
        let write = BlockAccess::Write { offset: 10, end: 15, tier: header(Op::Write).tier() };
        assert_eq!(check(Op::Write, &[]), own(&[BLOCK], write));
        let mut body = vec![0; 2 * RangeRequest::BYTES];
        (body[0], body[RangeRequest::BYTES]) = (3, 4);
        assert_eq!(check(Op::ReadMany, &body), own(&[BlockId(3), BlockId(4)], BlockAccess::Read));
        assert_eq!(check(Op::Cancel, &[]), Ok(FrameAccess::Any));
        let torn = check(Op::ReadMany, &body[1..]);
        assert!(matches!(torn, Err(Refusal::BadFrame { .. })), "{torn:?}");
        let long = vec![0; (RANGES_MAX + 1) * RangeRequest::BYTES];
        let refused = check(Op::ReadMany, &long);
        assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
        for op in [Op::Read, Op::Write, Op::ReadMany] {
            assert_eq!(everywhere.check_frame(&header(op), &body), Ok(FrameAccess::Any), "{op:?}");
        }
    }
}
