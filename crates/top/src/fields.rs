//! The views of `top`, their columns, and which of them fit a terminal.

use clap::ValueEnum;
use sanderling_command::output::Align;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum TopView {
    /// The nodes: state, room, exposure
    Nodes,
    /// The nodes that are emptied
    Drains,
    /// What each node reads and writes
    Throughput,
    /// The jobs and what they hold
    Jobs,
    /// What happened, the newest first
    Events,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    State,
    Health,
    Memory,
    Disk,
    Exposure,
    Heartbeat,
    Blocks,
    Read,
    Write,
    Life,
    Budget,
    Address,
    Id,
    Done,
    Left,
    Deadline,
    DoneIn,
    Lost,
    Late,
    Speed,
    Moved,
    NoRoom,
    Reason,
    Total,
    Sent,
    Received,
    Requests,
    Connections,
    Link,
    Path,
    Used,
    Quota,
    Growth,
    Lease,
    Time,
    Severity,
    Text,
    Sequence,
}

/// A column on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FittedColumn {
    pub(super) field: Field,
    pub(super) width: usize,
}

/// Columns that the first column gets at least beside the second: short names fit. Chosen, not
/// measured.
const FIRST_WIDTH_MIN: usize = 8;

/// Columns of the first column before less important columns are shown: the names of most nodes and
/// jobs fit. Chosen, not measured.
const FIRST_WIDTH_WISHED: usize = 24;

/// Columns of a terminal below which the words of states are cut, so that a second column fits.
/// Chosen, not measured.
const NARROW: usize = 50;

impl TopView {
    /// All views, in the order of their tabs.
    pub(super) const ALL: [Self; 5] =
        [Self::Nodes, Self::Drains, Self::Throughput, Self::Jobs, Self::Events];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Drains => "drains",
            Self::Throughput => "throughput",
            Self::Jobs => "jobs",
            Self::Events => "events",
        }
    }

    /// Returns the columns by importance: what does not fit is left out from the end.
    pub(super) const fn fields(self) -> &'static [Field] {
        match self {
            Self::Nodes => &[
                Field::Name,
                Field::State,
                Field::Memory,
                Field::Health,
                Field::Exposure,
                Field::Disk,
                Field::Heartbeat,
                Field::Blocks,
                Field::Read,
                Field::Write,
                Field::Budget,
                Field::Life,
                Field::Address,
                Field::Id,
            ],
            Self::Drains => &[
                Field::Name,
                Field::Done,
                Field::Left,
                Field::Deadline,
                Field::DoneIn,
                Field::Lost,
                Field::State,
                Field::Speed,
                Field::Late,
                Field::NoRoom,
                Field::Moved,
                Field::Id,
                Field::Reason,
            ],
            Self::Throughput => &[
                Field::Name,
                Field::Total,
                Field::Read,
                Field::Write,
                Field::Sent,
                Field::Received,
                Field::Requests,
                Field::Link,
                Field::Connections,
                Field::State,
                Field::Address,
                Field::Id,
            ],
            Self::Jobs => {
                &[Field::Path, Field::Used, Field::Growth, Field::Quota, Field::Lease, Field::Id]
            }
            Self::Events => &[Field::Text, Field::Time, Field::Severity, Field::Sequence],
        }
    }

    /// Returns the columns by which rows may be sorted, the usual one first.
    pub(super) const fn orders(self) -> &'static [Field] {
        match self {
            Self::Nodes => &[
                Field::Name,
                Field::State,
                Field::Memory,
                Field::Exposure,
                Field::Heartbeat,
                Field::Blocks,
                Field::Read,
                Field::Write,
                Field::Id,
            ],
            Self::Drains => {
                &[Field::Deadline, Field::Left, Field::Done, Field::Late, Field::Lost, Field::Name]
            }
            Self::Throughput => &[
                Field::Total,
                Field::Read,
                Field::Write,
                Field::Sent,
                Field::Received,
                Field::Requests,
                Field::Connections,
                Field::Name,
            ],
            Self::Jobs => &[Field::Used, Field::Growth, Field::Lease, Field::Path, Field::Id],
            Self::Events => &[Field::Time, Field::Severity],
        }
    }

    /// Returns the columns that fit a width; the first takes what the others leave, up to `first`,
    /// the width of its widest cell.
    pub(super) fn fitted(self, width: usize, first: usize) -> Vec<FittedColumn> {
        let fields = self.fields();
        let is_narrow = width < NARROW;
        let (least, wished) = (first.min(FIRST_WIDTH_MIN), first.min(FIRST_WIDTH_WISHED));
        // Text is what events are about.
        let wished = if self == Self::Events { 40 } else { wished };
        let mut left = width;
        let mut columns = vec![FittedColumn { field: fields[0], width: 0 }];
        for (rank, field) in fields.iter().enumerate().skip(1) {
            let needed = field.width(is_narrow);
            let kept = if rank == 1 { least } else { wished };
            if kept + 1 + needed > left {
                break;
            }
            left -= 1 + needed;
            columns.push(FittedColumn { field: *field, width: needed });
        }
        columns[0].width = if self == Self::Events { left } else { left.min(first.max(least)) };
        columns.sort_by_key(|column| self.place(column.field));
        columns
    }

    /// Returns where a column stands. Events have their text at the end.
    fn place(self, field: Field) -> usize {
        match (self, field) {
            (Self::Events, Field::Text) => usize::MAX,
            _ => self.fields().iter().position(|one| *one == field).unwrap_or(usize::MAX - 1),
        }
    }
}

impl Field {
    /// Returns the heading, and the name that `--sort` takes.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Health => "health",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Exposure => "exposure",
            Self::Heartbeat => "heartbeat",
            Self::Blocks => "blocks",
            Self::Read => "read",
            Self::Write => "write",
            Self::Life => "life",
            Self::Budget => "budget",
            Self::Address => "address",
            Self::Id => "id",
            Self::Done => "done",
            Self::Left => "left",
            Self::Deadline => "deadline",
            Self::DoneIn => "done-in",
            Self::Lost => "lost",
            Self::Late => "late",
            Self::Speed => "speed",
            Self::Moved => "moved",
            Self::NoRoom => "no-room",
            Self::Reason => "reason",
            Self::Total => "total",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Requests => "requests",
            Self::Connections => "conns",
            Self::Link => "link",
            Self::Path => "path",
            Self::Used => "used",
            Self::Quota => "quota",
            Self::Growth => "growth",
            Self::Lease => "lease",
            Self::Time => "time",
            Self::Severity => "severity",
            Self::Text => "event",
            Self::Sequence => "seq",
        }
    }

    /// Returns the width of every column but the first.
    const fn width(self, is_narrow: bool) -> usize {
        match self {
            Self::State if is_narrow => 8,
            Self::State => 15,
            Self::Memory | Self::Disk => 13,
            Self::Address | Self::Reason => 21,
            Self::Read
            | Self::Write
            | Self::Sent
            | Self::Received
            | Self::Total
            | Self::Speed
            | Self::Link => 10,
            Self::Growth => 11,
            Self::Id => 5,
            Self::Done => 4,
            Self::Connections => 5,
            Self::Heartbeat => 9,
            Self::Life | Self::DoneIn | Self::Lease => 7,
            Self::Health | Self::Blocks | Self::Sequence => 7,
            _ => 8,
        }
    }

    /// Returns the side on which a column's cells begin.
    pub(super) const fn align(self) -> Align {
        match self {
            Self::Name
            | Self::State
            | Self::Health
            | Self::Address
            | Self::Reason
            | Self::Path
            | Self::Time
            | Self::Severity
            | Self::Text => Align::Left,
            _ => Align::Right,
        }
    }

    /// Returns whether rows are sorted by it from the largest to the smallest unless reversed.
    pub(super) const fn is_descending(self) -> bool {
        !matches!(
            self,
            Self::Name
                | Self::Address
                | Self::Path
                | Self::Id
                | Self::Deadline
                | Self::Lease
                | Self::Done
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_never_take_more_than_the_width() {
        for view in TopView::ALL {
            for width in 0..300 {
                for first in [0, 1, 8, 24, 200] {
                    let columns = view.fitted(width, first);
                    let taken: usize = columns.iter().map(|column| column.width).sum();
                    assert!(taken + columns.len() - 1 <= width || columns.len() == 1);
                    assert!(taken <= width, "{view:?} {width} {first}: {columns:?}");
                }
            }
        }
    }

    #[test]
    fn important_columns_stay_on_a_narrow_terminal() {
        let titles = |view: TopView, width| {
            let columns = view.fitted(width, 9);
            columns.iter().map(|column| column.field.title()).collect::<Vec<_>>()
        };
        assert_eq!(titles(TopView::Nodes, 20), ["name", "state"]);
        assert_eq!(titles(TopView::Drains, 20), ["name", "done"]);
        assert_eq!(titles(TopView::Events, 20), ["time", "event"]);
        assert_eq!(
            titles(TopView::Nodes, 80),
            ["name", "state", "memory", "health", "exposure", "disk", "heartbeat"]
        );
        assert_eq!(
            titles(TopView::Drains, 80),
            ["name", "done", "left", "deadline", "done-in", "lost", "state", "speed"]
        );
        for view in TopView::ALL {
            assert_eq!(view.fitted(200, 10).len(), view.fields().len(), "{view:?}");
        }
    }

    #[test]
    fn every_order_is_a_column() {
        for view in TopView::ALL {
            for field in view.orders() {
                assert!(view.fields().contains(field), "{view:?} {field:?}");
            }
        }
    }
}
