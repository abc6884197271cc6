//! Limits that both ends hold. What exceeds one is refused, never cut.

use crate::token::TOKEN_BYTES_MAX;

/// Longest component of a path in bytes of UTF-8, as in most file systems.
pub const NAME_BYTES_MAX: usize = 255;

/// Most components of a path. Deeper trees are a sign of a loop in the caller. With the longest
/// names a path has 32 KiB, which a frame of many paths still carries. No measurement has chosen
/// it.
pub const PATH_DEPTH_MAX: usize = 128;

/// Longest block in bytes. One block is one frame and one unit of relocation, so this bounds how
/// long a writer that meets the fence waits behind a transfer already under way: 8 ms at 1 Gbit/s.
/// No measurement has chosen it.
pub const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// Longest body of one frame in bytes: a vectored read of a few hundred small ranges or sixteen
/// whole blocks, with room for their headers. A frame that announces more is refused before
/// anything is allocated.
pub const FRAME_BODY_BYTES_MAX: u32 = (16 << 20) + (64 << 10);

/// Longest greeting in bytes: the longest token, with room for the other fields. No peer makes a
/// server keep more before it has been admitted.
pub const GREETING_BYTES_MAX: u32 = (TOKEN_BYTES_MAX + (1 << 10)) as u32;

/// Most ranges in one vectored read. No measurement has chosen it. If each range is refused, the
/// answer keeps 256 bytes for each refusal: 256 KiB, a sixty-fourth of a frame. Fewer would split
/// random reads of pages into more frames.
pub const RANGES_MAX: usize = 1024;

/// Most paths in one request that looks many up: as many as there may be requests in one frame.
pub const LOOKUPS_MAX: usize = REQUESTS_PER_FRAME_MAX;

/// Most blocks in one answer to a look-up: 64 GiB of whole blocks in a megabyte. A longer file is
/// returned page by page.
pub const BLOCKS_PER_LAYOUT_MAX: usize = 1 << 16;

/// Most requests in one metadata frame. Other callers wait while they are answered: 512 short
/// look-ups take about half a millisecond, 512 creates about 3 ms.
pub const REQUESTS_PER_FRAME_MAX: usize = 512;

/// Longest request in bytes, of which a frame may have many. The namenodes of a group send a change
/// to one another in one frame, with what belongs to it: that is half of the longest frame.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

/// Longest value kept in the catalog itself, in bytes: below this the block's own bookkeeping would
/// cost more than the value.
pub const INLINE_BYTES_MAX: usize = 512;

/// Most bytes of the names and texts that an application keeps beside one object: what S3 allows as
/// user metadata (2 KiB) and tags (3.8 KiB), with room for checksums.
pub const ATTRIBUTES_BYTES_MAX: usize = 8 << 10;

/// Longest name of one of them in bytes. As long as a component of a path ([`NAME_BYTES_MAX`]).
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;

/// Most parts of one concatenation: as many as an S3 upload may have.
pub const CONCAT_PARTS_MAX: usize = 10_000;

/// Most entries in one page of a listing. At a hundred bytes each they take 400 KB of a frame, and
/// a directory of a million entries takes 245 round trips. No measurement has chosen it.
pub const LIST_PAGE_MAX: usize = 4096;

/// Most blocks reserved by one request. 16 MiB of whole blocks, as many bytes as a frame carries.
/// All of it is reserved before a byte is written: more would keep room from others for a writer
/// that may stop.
pub const BLOCKS_PER_GRANT_MAX: usize = 16;

/// Most nodes that one request for blocks excludes. Clients name the last 16 that refused them
/// (`AVOID_MAX` of the writer), and always did. Placement compares each node that it draws with all
/// of them: up to 32 for a block, and all nodes if few suit. Chosen, not measured.
pub const AVOIDED_NODES_MAX: usize = 64;

/// Most lengths of blocks in one request of a writer: as many as one answer to a look-up has, those
/// of 64 GiB of whole blocks. A writer reports what it has not reported before: some dozens with
/// four writes in flight, and little more than half of this with 4,096 (`WINDOW_MAX` of the
/// writer). An earlier client, whose writes in flight have no bound, gets there with 64 GiB in
/// memory.
pub const LENGTHS_PER_REQUEST_MAX: usize = BLOCKS_PER_LAYOUT_MAX;

/// Most leases that one request renews. A client with more open writers sends several requests. An
/// earlier one, which sends all in one, gets there with writers for which the fleet keeps 64 GiB of
/// room. Chosen, not measured.
pub const LEASES_PER_RENEWAL_MAX: usize = 1 << 16;

/// Most blocks in one page of a block report or of a drain's work list. A report takes 40 us and
/// 0.1 to 0.2 us for each block (docs/SCALE.md), under a lock that look-ups share: they wait for
/// less than a millisecond.
pub const BLOCKS_PER_PAGE_MAX: usize = 4096;

/// Most blocks in one report of damage. A disk that is gone is reported in many. As many as a frame
/// has requests ([`REQUESTS_PER_FRAME_MAX`]), because one report is one command, for which others
/// wait. No measurement has chosen it.
pub const DAMAGED_PER_REPORT_MAX: usize = 512;

/// Most blocks that one order has verified: 64 MiB are read within an order's time from any disk.
pub const VERIFIED_PER_ORDER_MAX: usize = 64;

/// Longest time in milliseconds between reserving a copy or a rebalancing move and its commit. No
/// process requests such reservations again, so they end by themselves. Ten times a slow push.
pub const BACKGROUND_MOVE_MILLIS_MAX: u64 = 20_000;

/// Most events kept by the namenode for the clients that follow them. At a few hundred bytes each
/// they take some megabytes. A follower that is away while more happen misses the oldest. No
/// measurement has chosen it.
pub const EVENTS_KEPT_MAX: usize = 10_000;

/// Most events in one reply. Some hundred KB; a follower sends the next request at once. No
/// measurement has chosen it.
pub const EVENTS_PER_REPLY_MAX: u32 = 1000;

/// Most events kept that report moved and copied blocks. They come by hundreds and are counted in
/// the loss report as well, so most of the list is left to events that are reported nowhere else.
pub const MOVE_EVENTS_KEPT_MAX: usize = 2_500;

/// Most lost objects named in a loss report; beyond that the oldest are forgotten, a tenth of them
/// at a time, and only counted. With paths of a hundred bytes a report has one or two megabytes,
/// far below a frame. No measurement has chosen it.
pub const LOST_OBJECTS_KEPT_MAX: usize = 10_000;

/// Longest free text (reasons, names of nodes) in bytes. A name of a host has at most 253 bytes and
/// a reason is a sentence or two; every event and every row of a node has them, so a thousand nodes
/// add a megabyte at most.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Unit in which a tier gives out space, in bytes: a page, so that a block of any length wastes at
/// most one.
pub const ALLOCATION_UNIT_BYTES: u32 = 4096;

/// Most namenodes in one list of members or of addresses: one more than a group has at most, for a
/// member whose successor has joined.
pub const MEMBERS_PER_LIST_MAX: usize = 16;

/// Most revocations of tokens that are kept. Every datanode gets the whole list when it changes,
/// and each takes at most 300 bytes of it: 300 KiB. No measurement has chosen it.
pub const REVOCATIONS_MAX: usize = 1024;

/// Most durable directories of a cluster. Every view of the manager has up to
/// [`STORE_CHANGES_PER_ORDER_MAX`] changes of each: 4,096 of all.
pub const DURABLE_DIRECTORIES_MAX: usize = 64;

/// Most changes of a durable directory that wait for its store; while so many do, nothing is
/// created below the directory. No measurement has chosen it: it bounds the queue's memory, and at
/// 100 ms for a change and 32 of them under way the store has them after three and a half minutes.
pub const DURABLE_CHANGES_MAX: usize = 1 << 16;

/// Most bytes of the name of a store of durable directories. Operators choose a word for it. Each
/// report of the stores of a node and the work of each directory repeats it.
pub const STORE_NAME_BYTES_MAX: usize = 64;

/// Most stores that a datanode reaches. With the longest names their list has 1 KiB in each of its
/// reports. Clusters have one or two; no measurement has chosen it.
pub const STORES_PER_NODE_MAX: usize = 16;

/// Most bytes of a name in a store, with the prefix that the store has in its bucket: what S3
/// takes.
pub const STORE_KEY_BYTES_MAX: usize = 1024;

/// Most bytes of that prefix, with the slash behind it. The rest of [`STORE_KEY_BYTES_MAX`] is for
/// the names of objects, whatever the store. Chosen, not measured: a quarter.
pub const STORE_PREFIX_BYTES_MAX: usize = 256;

/// Most changes in one order to a store, and in one answer of [`Work`] for each directory. A
/// datanode makes them one after the other and begins none later than 5 s after the order came: at
/// the 20 to 100 ms of a bucket's write it reaches the last of 64 at most.
///
/// [`Work`]: crate::message::DurableRequest::Work
pub const STORE_CHANGES_PER_ORDER_MAX: usize = 64;

/// Most objects in one part of what a store has. A part is one command of the log: at 3 us for an
/// object (docs/mechanisms/catalog.md, *In memory*) readers wait 6 ms for it. It is two of the
/// pages of 1,000 names in which S3 lists.
pub const STORE_SLICE_OBJECTS_MAX: usize = 2048;

/// Most bytes of the names in such a part. Names of 128 bytes for the most objects, or 256 names of
/// the longest that S3 takes.
pub const STORE_SLICE_NAME_BYTES_MAX: usize = 256 << 10;

/// Most blocks of the objects in such a part, after which no further object is added. As many as
/// other pages of blocks have ([`BLOCKS_PER_PAGE_MAX`]).
pub const STORE_SLICE_BLOCKS_MAX: u64 = 4096;

/// Largest object that is adopted from a store: a million blocks. At 160 bytes a block the catalog
/// takes 160 MiB for it, in one command. No measurement has chosen it.
pub const ADOPTED_BYTES_MAX: u64 = 1 << 40;

/// Bytes that may wait for the store of a durable directory unless its maker gives another number:
/// a minute of a link of 2.3 Gbit/s.
pub const DURABLE_BACKLOG_BYTES: u64 = 16 << 30;

/// Most calls of one connection under way, by default: enough to hide the latency of small calls,
/// and at most as many whole blocks in memory.
pub const CALLS_IN_FLIGHT_MAX: usize = 256;

/// Most requests of one connection that a server has read and not answered: more than calls, so
/// that it also reads which of these are cancelled when none is answered.
pub const REQUESTS_IN_FLIGHT_MAX: usize = CALLS_IN_FLIGHT_MAX + CALLS_IN_FLIGHT_MAX / 4;
