//! What is to be expected of a drain.

use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::Load;
use sanderling_protocol::{Instant, Millis, NodeInfo};

use crate::exposure;

/// What a forecast is made of.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ForecastInput {
    /// Bytes that are to be moved and have not been.
    pub(super) left_bytes: u64,
    /// Bytes that stay because they expire before the deadline.
    pub(super) skipped_bytes: u64,
    /// Bytes of `left_bytes` for which no node has room.
    pub(super) unplaced_bytes: u64,
    /// Bytes per second at which they leave; `None` before that was measured.
    pub(super) bytes_per_second: Option<u64>,
    /// Bytes per second at which they could leave: more, while clients go first.
    pub(super) link_bytes_per_second: u64,
    /// Time until the deadline.
    pub(super) left: Option<Millis>,
    pub(super) targets: u32,
}

impl ForecastInput {
    /// The part of the bytes left that may be late without being forecast as late. A fiftieth, 2 %.
    /// Chosen, not measured.
    const DOUBT: u64 = 50;

    /// Returns the forecast that follows from these figures.
    pub(super) fn forecast(&self) -> Forecast {
        let movable = self.left_bytes.saturating_sub(self.unplaced_bytes);
        let late_bytes = match (self.left, self.bytes_per_second) {
            (Some(left), Some(rate)) => {
                let rate = rate.max(self.link_bytes_per_second);
                let late = movable.saturating_sub(within(rate, left));
                // A rate is not known that well: without this a drain that just makes it would be
                // forecast as late and not late in turns.
                if late < movable / Self::DOUBT { 0 } else { late }
            }
            _ => 0,
        };
        Forecast {
            left_bytes: self.left_bytes,
            bytes_per_second: self.bytes_per_second.unwrap_or(0),
            finish_in: self.bytes_per_second.and_then(|rate| time_for(self.left_bytes, rate)),
            skipped_bytes: self.skipped_bytes,
            late_bytes,
            unplaced_bytes: self.unplaced_bytes,
            targets: self.targets,
        }
    }
}

/// Returns the manager's forecast for a node that is drained, or what the node's link allows before
/// there is one: late is what the link cannot carry by the deadline. Nothing is while the link is
/// unknown.
#[must_use]
pub fn forecast_of(node: &NodeInfo) -> Forecast {
    let drain = node.drain.unwrap_or_default();
    if let Some(forecast) = drain.forecast {
        return forecast;
    }
    let late_bytes = match (node.deadline_in, known_egress(node)) {
        (Some(left), Some(rate)) => drain.left_bytes.saturating_sub(within(rate, left)),
        _ => 0,
    };
    Forecast { left_bytes: drain.left_bytes, late_bytes, ..Forecast::default() }
}

/// Returns the bytes per second that a node can send, as declared, or by what it has reported;
/// `None` if it has done neither. Before the first heartbeat since its start, the namenode assumes
/// a rate, from which that of the link may differ in any way.
pub(super) fn known_egress(node: &NodeInfo) -> Option<u64> {
    let rate = node.egress_bytes_per_second;
    let is_assumed = rate == exposure::EGRESS_BYTES_PER_SECOND && node.load == Load::default();
    (rate > 0 && !is_assumed).then_some(rate)
}

/// Returns the bytes that leave at a rate within a time.
pub(super) fn within(bytes_per_second: u64, left: Millis) -> u64 {
    let bytes = u128::from(bytes_per_second) * u128::from(left.0) / 1000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns the time that bytes take at a rate; `None` when they never get there.
pub(super) fn time_for(bytes: u64, bytes_per_second: u64) -> Option<Millis> {
    if bytes == 0 {
        return Some(Millis(0));
    }
    let millis = (u128::from(bytes) * 1000).checked_div(u128::from(bytes_per_second))?;
    Some(Millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// The last forecast that was sent, so that the same is not sent again and none too often.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastForecast(Option<(Instant, Forecast)>);

impl LastForecast {
    /// Shortest time between two forecasts of a drain: each is a command in the namenode's log.
    /// Four a second are as many as a person follows.
    const PAUSE: Millis = Millis(250);

    /// Returns whether another forecast may be given now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.0.is_none_or(|(at, _)| at + Self::PAUSE <= now)
    }

    /// Notes a forecast; returns whether it is another one than before.
    pub(super) fn send(&mut self, now: Instant, forecast: Forecast) -> bool {
        let is_new = self.0.is_none_or(|(_, before)| before != forecast);
        if is_new {
            self.0 = Some((now, forecast));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::node::DrainProgress;

    use super::super::tests::node;
    use super::*;

    const INPUT: ForecastInput = ForecastInput {
        left_bytes: 10_000,
        skipped_bytes: 7,
        unplaced_bytes: 0,
        bytes_per_second: Some(1000),
        link_bytes_per_second: 1000,
        left: Some(Millis(20_000)),
        targets: 3,
    };

    #[test]
    fn what_fits_into_the_time_is_not_late() {
        let forecast = INPUT.forecast();
        assert_eq!((forecast.late_bytes, forecast.unplaced_bytes), (0, 0));
        assert_eq!(forecast.finish_in, Some(Millis(10_000)));
        assert_eq!((forecast.skipped_bytes, forecast.targets), (7, 3));
    }

    #[test]
    fn what_does_not_is_late_unless_it_has_no_room_anyway() {
        let short = ForecastInput { left: Some(Millis(4_000)), ..INPUT };
        assert_eq!(short.forecast().late_bytes, 6_000);
        let full = ForecastInput { unplaced_bytes: 6_500, ..short };
        assert_eq!((full.forecast().late_bytes, full.forecast().unplaced_bytes), (0, 6_500));
    }

    #[test]
    fn few_late_bytes_are_not_forecast_as_late() {
        let close =
            |millis| ForecastInput { left: Some(Millis(millis)), ..INPUT }.forecast().late_bytes;
        assert_eq!((close(9_900), close(9_700)), (0, 300));
    }

    #[test]
    fn slowness_by_courtesy_makes_nothing_late() {
        let input =
            ForecastInput { link_bytes_per_second: 5000, left: Some(Millis(2_000)), ..INPUT };
        assert_eq!(input.forecast().late_bytes, 0);
    }

    #[test]
    fn before_anything_was_measured_nothing_is_promised_and_nothing_is_late() {
        let forecast = ForecastInput { bytes_per_second: None, ..INPUT }.forecast();
        assert_eq!((forecast.finish_in, forecast.late_bytes), (None, 0));
        let stuck = ForecastInput { bytes_per_second: Some(0), ..INPUT }.forecast();
        assert_eq!(stuck.finish_in, None);
    }

    #[test]
    fn nothing_is_late_on_a_link_of_which_nothing_was_reported() {
        let mut node = node(1, 0);
        node.egress_bytes_per_second = exposure::EGRESS_BYTES_PER_SECOND;
        node.deadline_in = Some(Millis(1_000));
        let left_bytes = exposure::EGRESS_BYTES_PER_SECOND + 7;
        node.drain = Some(DrainProgress { left_bytes, ..DrainProgress::default() });
        assert_eq!(forecast_of(&node).late_bytes, 0);
        node.load.blocks = 1;
        assert_eq!(forecast_of(&node).late_bytes, 7, "it has reported, and pushed nothing");
        let load = Load::default();
        let declared = NodeInfo { egress_bytes_per_second: left_bytes - 1, load, ..node };
        assert_eq!(forecast_of(&declared).late_bytes, 1);
    }

    #[test]
    fn the_same_forecast_is_not_sent_twice_and_none_too_often() {
        let mut last = LastForecast::default();
        let (now, forecast) = (Instant(1_000_000), INPUT.forecast());
        assert!(last.is_due(now) && last.send(now, forecast));
        assert!(!last.is_due(now + Millis(249)));
        let later = now + Millis(250);
        assert!(last.is_due(later) && !last.send(later, forecast));
        assert!(last.send(later, Forecast { left_bytes: 1, ..forecast }));
    }
}
