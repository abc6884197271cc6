//! The lines around the list of `top`: the namenode, the fleet's sums, the views, the keys.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use sanderling_command::units;
use sanderling_protocol::Policy;
use sanderling_protocol::node::Availability;
use unicode_width::UnicodeWidthStr;

use super::cells::{Emphasis, time_of_day};
use super::draw::{Theme, clipped, parts, seconds};
use super::fields::TopView;
use super::state::{LinkState, TopState};

/// Columns below which only the name of the view is shown in place of all tabs: the tabs take 49,
/// and the rest is for the order.
const TABS_WIDTH: usize = 56;

/// Returns the line with the namenode, the time of the last answer, and the pause.
pub(super) fn title<'a>(state: &TopState, theme: Theme, width: usize) -> Line<'a> {
    let plain = |text: String| (text, Style::new());
    let mut line = vec![("sanderling top".to_owned(), Style::new().add_modifier(Modifier::BOLD))];
    if state.is_paused {
        // It stays when the rest has no place.
        line.insert(0, ("PAUSED".to_owned(), theme.style(Emphasis::Warning)));
    }
    if let Some(sample) = &state.sample {
        let at = match state.is_batch {
            true => units::instant(sample.wall),
            false => format!("{}Z", time_of_day(sample.wall)),
        };
        line.push(plain(at));
    }
    line.push(plain(state.namenode.clone()));
    line.push(plain(format!("every {}", units::duration(state.interval))));
    parts(line, width)
}

/// Returns the line with the sums over the nodes.
pub(super) fn fleet<'a>(state: &TopState, theme: Theme, width: usize) -> Line<'a> {
    let Some(sample) = &state.sample else { return Line::raw("") };
    let nodes = &sample.nodes;
    let count =
        |is_so: &dyn Fn(&Policy) -> bool| nodes.iter().filter(|node| is_so(&node.policy)).count();
    let active = count(&|policy| *policy == Policy::Active);
    let present = count(&|policy| *policy != Policy::Gone);
    let suspect = nodes.iter().filter(|node| node.availability == Availability::Suspect).count();
    let plain = |text: String| (text, Style::new());
    let warning = |text: String| (text, theme.style(Emphasis::Warning));
    let mut line = vec![plain(format!("{active} of {present} nodes active"))];
    let draining = count(&|policy| policy.is_draining());
    for (count, what) in [(draining, "draining"), (suspect, "suspect")] {
        if count > 0 {
            line.push(warning(format!("{count} {what}")));
        }
    }
    if sample.lost_bytes > 0 {
        let text = format!("{} lost", units::bytes(sample.lost_bytes));
        line.push((text, theme.style(Emphasis::Error)));
    }
    let exposed = nodes.iter().map(|node| node.exposure_bytes).sum();
    line.push(plain(format!("{} exposed", units::bytes(exposed))));
    if let Some(room) = &sample.room {
        line.push(plain(format!("room {}", units::bytes(room.room_bytes))));
        if room.fits() {
            line.push(plain(format!("{} can leave", room.departures)));
        } else {
            let missing = units::bytes(room.missing_bytes);
            // Without departures the room is short for what leaves already.
            let why = match room.departures {
                0 => "of nodes that leave".to_owned(),
                count => format!("if {count} left"),
            };
            line.push(warning(format!("NO ROOM for {missing} {why}")));
        }
    }
    parts(line, width)
}

/// Returns the line with the fleet's throughput.
pub(super) fn traffic<'a>(state: &TopState, width: usize) -> Line<'a> {
    let Some(sample) = &state.sample else { return Line::raw("") };
    let plain = |text: String| (text, Style::new());
    let mut line = Vec::new();
    match state.rates.fleet() {
        Some(fleet) => {
            for (what, bytes) in [
                ("read", fleet.read_bytes_per_second),
                ("written", fleet.written_bytes_per_second),
                ("moved", fleet.pushed_bytes_per_second),
            ] {
                line.push(plain(format!("{what} {}/s", units::bytes(bytes))));
            }
        }
        None => line.push(plain("rates come with the next heartbeats".to_owned())),
    }
    let requests: u64 =
        sample.nodes.iter().map(|node| u64::from(node.load.requests_in_flight)).sum();
    line.push(plain(format!("{requests} requests")));
    parts(line, width)
}

/// Returns the line about a namenode that does not answer, or answers again.
pub(super) fn status<'a>(state: &TopState, theme: Theme, width: usize) -> Option<Line<'a>> {
    let (text, style) = match &state.link {
        LinkState::Up => return None,
        LinkState::Lost { since, cause } => {
            let away = seconds(state.now.saturating_sub(*since));
            let text = format!("NO NAMENODE {away}, trying again: {cause}");
            (text, theme.style(Emphasis::Error))
        }
        LinkState::Back { after, .. } => {
            let text = format!("the namenode is back after {}", seconds(*after));
            (text, theme.style(Emphasis::Warning))
        }
    };
    Some(Line::styled(clipped(&text, width), style))
}

/// Returns the line with the views, the order and the filter.
pub(super) fn tabs<'a>(state: &TopState, width: usize) -> Line<'a> {
    let mut spans = Vec::new();
    let chosen = Style::new().add_modifier(Modifier::REVERSED);
    if width < TABS_WIDTH {
        let (place, count) = (state.view as usize + 1, TopView::ALL.len());
        spans.push(Span::styled(format!("{} {place}/{count}", state.view.title()), chosen));
    } else {
        for (view, place) in TopView::ALL.iter().zip(1..) {
            let style = if *view == state.view { chosen } else { Style::new() };
            spans.push(Span::styled(format!("{place} {}", view.title()), style));
            spans.push(Span::raw("  "));
        }
        spans.pop();
    }
    let mut left = width.saturating_sub(spans.iter().map(Span::width).sum());
    let order = state.order();
    let arrow = if order.field.is_descending() != order.is_reversed { "-" } else { "+" };
    let shown = || format!("  {} of {}", state.rows().len(), state.rows_in_all());
    let filter = match state.filter.is_empty() {
        true => String::new(),
        false => shown(),
    };
    for more in [filter, format!("  by {arrow}{}", order.field.title())] {
        if more.len() <= left {
            left -= more.len();
            spans.push(Span::raw(more));
        }
    }
    Line::from(spans)
}

/// Returns the last line: the filter that is being written, or the keys.
pub(super) fn footer<'a>(state: &TopState, width: usize) -> Line<'a> {
    if state.is_filtering {
        // The end is what is being written.
        let text = format!("filter: {}_", state.filter);
        let mut end = text.as_str();
        while end.width() > width {
            end = end.strip_prefix(|_: char| true).unwrap_or_default();
        }
        return Line::raw(end.to_owned());
    }
    let mut line = Vec::new();
    if !state.filter.is_empty() {
        line.push((format!("filter: {}", state.filter), Style::new()));
        line.push(("esc none".to_owned(), Style::new()));
    }
    let keys = ["q quit", "? help", "tab view", "s sort", "/ filter", "p pause", "enter detail"];
    let dim = Style::new().add_modifier(Modifier::DIM);
    line.extend(keys.map(|key| (key.to_owned(), dim)));
    parts(line, width)
}
