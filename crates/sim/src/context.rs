//! What the shells of datanodes, managers and clients work with.

use crate::check::Checks;
use crate::namenode::NamenodeHost;
use crate::runtime::Runtime;

/// What is around one process.
pub(crate) struct Context<'a> {
    pub(crate) runtime: &'a mut Runtime,
    pub(crate) checks: &'a mut Checks,
    /// Where nodes are looked up, and what the checks of a request compare it with.
    pub(crate) namenode: &'a NamenodeHost,
}
