//! Inputs and outputs of the drain of durable directories.

use std::collections::BTreeMap;

use sanderling_protocol::message::{
    AdoptionStep, DurableLoss, DurableRecord, DurableWork, Layout, StoreNode, StoreSlice,
};
use sanderling_protocol::order::{StoreChange, UploadOrder};
use sanderling_protocol::{Millis, NodeId, ObjectId, Refusal, Tier};

use super::call_error::DurableCallError;

/// Identifies one call that the drain requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurableCall(pub u64);

/// Parts of one object that a datanode has sent to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedParts {
    /// Names the upload in further orders.
    pub upload: String,
    /// What the store answered to each part of the order, in order.
    pub parts: Vec<String>,
}

/// An event that the drain of changes to stores handles.
#[derive(Debug)]
pub enum DurableInput {
    /// What is to be done, as the namenode sees it, and which nodes reach stores.
    View {
        /// By directory.
        work: Vec<DurableWork>,
        /// The nodes.
        nodes: Vec<StoreNode>,
        /// Objects to be read back.
        losses: Vec<DurableLoss>,
    },
    /// Which nodes have a notice: see [`DurableInput::noticed`].
    Noticed {
        /// The time until the deadline of each.
        left: BTreeMap<NodeId, Millis>,
        /// Whether one of them has bytes that are nowhere else.
        has_exposed: bool,
    },
    /// Answer to [`DurableOutput::Layout`].
    Layout {
        /// The call.
        call: DurableCall,
        /// Where the bytes are.
        layout: Option<Box<Layout>>,
    },
    /// Answer to [`DurableOutput::Upload`].
    Uploaded {
        /// The call.
        call: DurableCall,
        /// What was sent, or why it failed.
        answer: Result<UploadedParts, DurableCallError>,
    },
    /// Answer to [`DurableOutput::Abort`].
    Aborted {
        /// The call.
        call: DurableCall,
        /// Whether the uploads can never be completed from now on.
        is_done: bool,
    },
    /// Answer to [`DurableOutput::Change`].
    Changed {
        /// The call.
        call: DurableCall,
        /// How many changes were made, and why the next one was not.
        answer: Option<(u32, Option<Refusal>)>,
    },
    /// Answer to [`DurableOutput::Restore`].
    Restored {
        /// The call.
        call: DurableCall,
        /// The tier of each block, or why it failed.
        answer: Result<Vec<Tier>, DurableCallError>,
    },
    /// Answer to [`DurableOutput::Adopt`].
    Adopted {
        /// The call.
        call: DurableCall,
        /// What the store has, and how long its former owner may still change it; or why it failed.
        answer: Result<(StoreSlice, Millis), DurableCallError>,
    },
    /// Answer to [`DurableOutput::Report`].
    Reported {
        /// The call.
        call: DurableCall,
        /// Whether the namenode has it.
        is_done: bool,
    },
}

/// A call that the drain requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurableOutput {
    /// Request from the namenode where bytes of an object are.
    Layout {
        /// The call.
        call: DurableCall,
        /// The object.
        object: ObjectId,
        /// The first byte.
        offset: u64,
        /// Bytes of interest.
        bytes: u64,
    },
    /// Order a datanode to send parts.
    Upload {
        /// The call.
        call: DurableCall,
        /// The datanode.
        node: NodeId,
        /// The address at which it serves blocks.
        address: String,
        /// The parts.
        order: UploadOrder,
    },
    /// Order a datanode to end uploads.
    Abort {
        /// The call.
        call: DurableCall,
        /// The datanode.
        node: NodeId,
        /// The address at which it serves blocks.
        address: String,
        /// The durable directory.
        directory: ObjectId,
        /// The store.
        store: String,
        /// Key and upload of each.
        uploads: Vec<(String, String)>,
    },
    /// Order a datanode to change what is visible.
    Change {
        /// The call.
        call: DurableCall,
        /// The datanode.
        node: NodeId,
        /// The address at which it serves blocks.
        address: String,
        /// The durable directory.
        directory: ObjectId,
        /// The store.
        store: String,
        /// The changes, in order.
        changes: Vec<StoreChange>,
    },
    /// Order a datanode to read blocks back.
    Restore {
        /// The call.
        call: DurableCall,
        /// The datanode.
        node: NodeId,
        /// The address at which it serves blocks.
        address: String,
        /// The blocks.
        loss: DurableLoss,
    },
    /// Order a datanode to take a store over, or to list a part of it.
    Adopt {
        /// The call.
        call: DurableCall,
        /// The datanode.
        node: NodeId,
        /// The address at which it serves blocks.
        address: String,
        /// The durable directory.
        directory: ObjectId,
        /// The store.
        store: String,
        /// What to do.
        step: AdoptionStep,
    },
    /// Report to the namenode. Sent twice, it does the same as once. A refusal with
    /// [`Refusal::NotManager`] ends the term and this drain: the next one begins with a new view.
    Report {
        /// The call.
        call: DurableCall,
        /// What was done, and what stores lack.
        record: DurableRecord,
    },
}
