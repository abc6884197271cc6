//! The table of types. A new type is a line in [`TYPES`] and a [`Scenario`].

use std::future::Future;
use std::pin::Pin;

use super::error::BenchError;
use super::integers::{ReadIntegerStream, ReadIntegers, SeekIntegers, WriteIntegers};
use super::names::{Browse, CreateAndClose, CreateFile, CreateMultifile, Enumerate, LookUpFile};
use super::scenario::{Measured, Scenario};
use super::streams::{Append, AppendAndFlush, ReadMultiStream, ReadRandom, ReadSequential};
use super::threads::{Thread, measure};
use super::tree::LookUpMany;
use super::values::{CreateMany, GetKey, GetMany, GetObject, PutKey, PutObject};

/// The run of one thread of a benchmark, from the filling of the store to what was measured.
pub(super) type RunFuture = Pin<Box<dyn Future<Output = Result<Measured, BenchError>> + Send>>;

/// One type of benchmark.
#[derive(Debug)]
pub(crate) struct BenchKind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The name that Crail's iobench gives it; empty where it has none.
    pub(crate) crail: &'static str,
    /// One line of help.
    pub(crate) about: &'static str,
    pub(super) depth: Depth,
    pub(super) size: Bytes,
    /// Whether it may be direct or buffered.
    pub(super) has_stream: bool,
    /// Whether one operation is about `--batch` things.
    pub(super) is_batched: bool,
    /// Whether it is about a tree of `--paths` files.
    pub(super) has_tree: bool,
    pub(super) way: RunMethod,
}

/// How many operations of a thread are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// One: they keep an order.
    One,
    /// `--depth` operations at once; this many without the flag.
    Workers(u32),
    /// One after the other, each done when it is on its way: `--depth` of them.
    Window(u32),
}

/// How many bytes an operation moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    /// None: it is about names.
    None,
    /// Always so many.
    Always(u64),
    /// `--size`, or so many without the flag.
    Or(u64),
}

/// How it is run.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunMethod {
    /// By threads with clients.
    Cluster(fn(Thread) -> RunFuture),
    /// By threads with bare connections.
    PingPong,
    /// By looking at the cluster once.
    LocationClass,
}

/// Bytes of one operation of the types that move blocks of data, without `--size`. Sixteen of them
/// fill a block of 1 MiB. Chosen, not measured.
const PIECE: Bytes = Bytes::Or(64 << 10);

/// Bytes of one value of the types for key-values, without `--size`. Above the 512 bytes that the
/// catalog keeps itself (`INLINE_BYTES_MAX`), so the value is in a block. Chosen, not measured.
const VALUE: Bytes = Bytes::Or(1 << 10);

/// Bytes of one object of the types for small objects, without `--size`. The catalog keeps them
/// itself, as `scale` and `noisy` have their values. Chosen, not measured.
const SMALL: Bytes = Bytes::Or(64);

/// Bytes of an integer, as in Crail.
const INTEGER: Bytes = Bytes::Always(4);

/// Operations in flight, without `--depth`, of the types that Crail calls asynchronous. Chosen, not
/// measured: the tables of docs/PERFORMANCE.md are of this depth.
const ASYNC: u32 = 16;

use Depth::{One, Window, Workers};

const fn cluster<S: Scenario>() -> RunMethod {
    RunMethod::Cluster(|thread| Box::pin(measure::<S>(thread)))
}

const fn kind(
    (name, crail): (&'static str, &'static str),
    depth: Depth,
    size: Bytes,
    way: RunMethod,
    about: &'static str,
) -> BenchKind {
    let (has_stream, is_batched, has_tree) = (false, false, false);
    BenchKind { name, crail, about, depth, size, has_stream, is_batched, has_tree, way }
}

impl BenchKind {
    const fn streamed(self) -> Self {
        Self { has_stream: true, ..self }
    }

    const fn batched(self) -> Self {
        Self { is_batched: true, ..self }
    }

    const fn with_tree(self) -> Self {
        Self { has_tree: true, ..self }
    }

    /// Finds a type by its name or Crail's.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|kind| kind.name == name || (kind.crail == name && !name.is_empty()))
    }
}

/// Every type of benchmark.
pub(crate) const TYPES: &[BenchKind] = &[
    kind(("write", ""), One, PIECE, cluster::<Append>(), "append --size bytes to a file")
        .streamed(),
    kind(
        ("write-async", "writeAsync"),
        Window(ASYNC),
        PIECE,
        cluster::<Append>(),
        "the same, --depth of them under way",
    ),
    kind(
        ("write-flush", ""),
        One,
        PIECE,
        cluster::<AppendAndFlush>(),
        "append --size bytes and make them readable by others",
    ),
    kind(
        ("read-sequential", "readSequential"),
        One,
        PIECE,
        cluster::<ReadSequential>(),
        "read the next --size bytes of a file",
    )
    .streamed(),
    kind(
        ("read-sequential-async", "readSequentialAsync"),
        Workers(ASYNC),
        PIECE,
        cluster::<ReadSequential>(),
        "the same, --depth reads at once",
    ),
    kind(
        ("read-random", "readRandom"),
        Workers(1),
        PIECE,
        cluster::<ReadRandom>(),
        "read --size bytes anywhere in a file",
    ),
    kind(
        ("read-random-async", "readRandomAsync"),
        Workers(ASYNC),
        PIECE,
        cluster::<ReadRandom>(),
        "the same, --depth reads at once",
    ),
    kind(
        ("read-multi-stream", "readMultiStream"),
        One,
        PIECE,
        cluster::<ReadMultiStream>(),
        "read the next --size bytes of a multifile as one stream",
    ),
    kind(
        ("create-file", "createFile"),
        Workers(1),
        Bytes::None,
        cluster::<CreateFile>(),
        "create an empty file",
    ),
    kind(
        ("create-file-async", "createFileAsync"),
        Workers(ASYNC),
        Bytes::None,
        cluster::<CreateFile>(),
        "the same, --depth at once",
    ),
    kind(
        ("create-close", ""),
        Workers(1),
        Bytes::None,
        cluster::<CreateAndClose>(),
        "create a file to be written, and close it",
    ),
    kind(
        ("create-multi-file", "createMultiFile"),
        Workers(1),
        Bytes::None,
        cluster::<CreateMultifile>(),
        "make a multifile",
    ),
    kind(
        ("put-key", ""),
        Workers(1),
        VALUE,
        cluster::<PutKey>(),
        "set a key's value of --size bytes",
    ),
    kind(
        ("get-key", "getKey"),
        Workers(1),
        VALUE,
        cluster::<GetKey>(),
        "get a key's value of --size bytes",
    ),
    kind(
        ("put-small", ""),
        Workers(1),
        SMALL,
        cluster::<PutObject>(),
        "put a whole object of --size bytes",
    ),
    kind(
        ("get-small", ""),
        Workers(1),
        SMALL,
        cluster::<GetObject>(),
        "get a whole object of --size bytes by its name",
    ),
    kind(
        ("get-file", "getFile"),
        Workers(1),
        Bytes::None,
        cluster::<LookUpFile>(),
        "look a file up by its name",
    ),
    kind(
        ("get-file-async", "getFileAsync"),
        Workers(ASYNC),
        Bytes::None,
        cluster::<LookUpFile>(),
        "the same, --depth at once",
    ),
    kind(
        ("lookup-many", ""),
        Workers(1),
        Bytes::None,
        cluster::<LookUpMany>(),
        "look --batch files of --paths up in one call",
    )
    .batched()
    .with_tree(),
    kind(
        ("get-many", ""),
        Workers(1),
        SMALL,
        cluster::<GetMany>(),
        "get --batch objects of --size bytes by their names in one call",
    )
    .batched(),
    kind(
        ("create-many", ""),
        Workers(1),
        SMALL,
        cluster::<CreateMany>(),
        "put --batch objects of --size bytes in one call",
    )
    .batched(),
    kind(
        ("enumerate-dir", "enumerateDir"),
        Workers(1),
        Bytes::None,
        cluster::<Enumerate>(),
        "list a directory of 1000 files",
    ),
    kind(
        ("browse-dir", "browseDir"),
        Workers(1),
        Bytes::None,
        cluster::<Browse>(),
        "list a directory of 1000 files and look 100 of them up",
    ),
    kind(
        ("write-int", "writeInt"),
        One,
        INTEGER,
        cluster::<WriteIntegers>(),
        "write an integer into a buffered stream",
    ),
    kind(
        ("read-int", "readInt"),
        One,
        INTEGER,
        cluster::<ReadIntegers>(),
        "read the next integer of a stream that reads ahead, and check it",
    ),
    kind(
        ("seek-int", "seekInt"),
        Workers(1),
        INTEGER,
        cluster::<SeekIntegers>(),
        "read an integer anywhere in a file, and check it",
    ),
    kind(
        ("read-multi-stream-int", "readMultiStreamInt"),
        One,
        INTEGER,
        cluster::<ReadIntegerStream>(),
        "read the next integer of a multifile as one stream, and check it",
    ),
    kind(
        ("print-locationclass", "printLocationclass"),
        One,
        Bytes::None,
        RunMethod::LocationClass,
        "measure nothing; print which nodes are on which hosts",
    ),
    kind(
        ("ping-pong", ""),
        One,
        SMALL,
        RunMethod::PingPong,
        "--size bytes there and back over bare TCP, without the store",
    ),
];
