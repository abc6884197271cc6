//! A frame of `top`: from the state to lines, and from lines to the screen. What does not fit is
//! left out by its importance; a terminal that is too small gets a sentence.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use sanderling_command::output::Align;
use sanderling_command::units;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::cells::{Emphasis, RowSource};
use super::fields::{Field, FittedColumn, TopView};
use super::head;
use super::state::{Overlay, TopState};

/// Columns of the smallest terminal with a list: the least of the first column (`FIRST_WIDTH_MIN`
/// of `fields`) and two more. Chosen, not measured.
const WIDTH_MIN: u16 = 10;

/// Rows of the smallest terminal with a list: the tabs, the headings and a row.
const HEIGHT_MIN: u16 = 3;

/// The keys, each with what it does.
const KEYS: [(&str, &str); 11] = [
    ("q", "quit"),
    ("tab 1-5", "next view, view 1 to 5"),
    ("s r", "sort by the next column, reverse"),
    ("/", "filter: words that a row must have"),
    ("esc", "no filter"),
    ("p", "pause, go on"),
    ("j k", "select a row; also arrows"),
    ("g G", "first row, last row"),
    ("enter", "all fields of the row"),
    ("a", "nodes that are gone, too"),
    ("?", "this page"),
];

/// How things are made to stand out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    /// Whether colours may be used. Without, what matters is bold.
    pub(super) is_coloured: bool,
}

impl Theme {
    pub(super) fn style(self, emphasis: Emphasis) -> Style {
        let (colour, modifier) = match emphasis {
            Emphasis::Normal => return Style::new(),
            Emphasis::Warning => (Color::Yellow, Modifier::BOLD),
            Emphasis::Error => (Color::Red, Modifier::BOLD.union(Modifier::UNDERLINED)),
        };
        if self.is_coloured { Style::new().fg(colour) } else { Style::new().add_modifier(modifier) }
    }
}

/// Draws a frame into a terminal's buffer.
pub(super) fn draw(buffer: &mut Buffer, state: &mut TopState, theme: Theme) {
    let area = buffer.area;
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let sentence = format!("sanderling top needs {WIDTH_MIN}x{HEIGHT_MIN}");
        for (line, y) in wrapped(&sentence, area.width.into()).iter().zip(0..area.height) {
            buffer.set_stringn(area.x, area.y + y, line, area.width.into(), Style::new());
        }
        return;
    }
    let width = usize::from(area.width);
    let (above, footer) = head_lines(state, theme, width, area.height);
    let list_top = area.y + u16::try_from(above.len()).unwrap_or(area.height);
    let list_bottom = area.bottom() - u16::from(footer.is_some());
    for (line, y) in above.iter().zip(area.y..) {
        buffer.set_line(area.x, y, line, area.width);
    }
    if let Some(footer) = footer {
        buffer.set_line(area.x, list_bottom, &footer, area.width);
    }
    let height = list_bottom.saturating_sub(list_top);
    draw_list(buffer, Rect { y: list_top, height, ..area }, state, theme);
}

/// Returns the lines above the list, and the last line, as far as there is room for them beside the
/// list's headings and one row.
fn head_lines<'a>(
    state: &TopState,
    theme: Theme,
    width: usize,
    height: u16,
) -> (Vec<Line<'a>>, Option<Line<'a>>) {
    let mut room = usize::from(height.saturating_sub(HEIGHT_MIN));
    let mut fits = || {
        let is_so = room > 0;
        room = room.saturating_sub(1);
        is_so
    };
    let status = head::status(state, theme, width).filter(|_| fits());
    let is_written = state.is_filtering && fits();
    let title = fits().then(|| head::title(state, theme, width));
    let is_footed = is_written || (!state.is_filtering && fits());
    let footer = is_footed.then(|| head::footer(state, width));
    let fleet = fits().then(|| head::fleet(state, theme, width));
    let traffic = fits().then(|| head::traffic(state, width));
    let tabs = head::tabs(state, width);
    ([title, fleet, traffic, status, Some(tabs)].into_iter().flatten().collect(), footer)
}

fn draw_list(buffer: &mut Buffer, area: Rect, state: &mut TopState, theme: Theme) {
    let rows_high = usize::from(area.height.saturating_sub(1));
    let ids: Vec<u64> = state.rows().iter().map(RowSource::id).collect();
    let (shown, selected) = state.window(&ids, rows_high);
    let rows = state.rows();
    let put = |buffer: &mut Buffer, y: u16, line: &Line<'_>| {
        if y < area.bottom() {
            buffer.set_line(area.x, y, line, area.width);
        }
    };
    let overlay = match state.overlay {
        Overlay::None => None,
        Overlay::Help => Some(help(area.width.into())),
        Overlay::Detail => selected.map(|at| detail(state, &rows[at], area.width.into())),
    };
    if let Some(lines) = overlay {
        for (line, y) in lines.iter().zip(area.y..) {
            put(buffer, y, &Line::raw(line.as_str()));
        }
        return;
    }
    let columns = columns(state, &rows, area.width.into());
    put(buffer, area.y, &heading(state, &columns));
    if rows.is_empty() {
        put(buffer, area.y + 1, &Line::raw(clipped(nothing(state), area.width.into())));
    }
    let first = shown.start;
    for (row, y) in rows[shown].iter().zip(area.y + 1..) {
        put(buffer, y, &row_line(state, row, &columns, theme));
        if selected == Some(first + usize::from(y - area.y - 1)) {
            let line = Rect { y, height: 1, ..area }.intersection(buffer.area);
            buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// Writes a frame as text, with every row.
pub(super) fn text_frame(state: &TopState, width: usize) -> String {
    let theme = Theme { is_coloured: false };
    let rows = state.rows();
    let columns = columns(state, &rows, width);
    let mut lines = vec![
        head::title(state, theme, width),
        head::fleet(state, theme, width),
        head::traffic(state, width),
    ];
    lines.extend(head::status(state, theme, width));
    lines.push(heading(state, &columns));
    if rows.is_empty() {
        lines.push(Line::raw(clipped(nothing(state), width)));
    }
    lines.extend(rows.iter().map(|row| row_line(state, row, &columns, theme)));
    let text = |line: &Line<'_>| {
        let text: String = line.iter().map(|span| span.content.as_ref()).collect();
        format!("{}\n", text.trim_end())
    };
    lines.iter().map(text).collect()
}

fn columns(state: &TopState, rows: &[RowSource<'_>], width: usize) -> Vec<FittedColumn> {
    let first = state.view.fields()[0];
    let widest = match state.view {
        TopView::Events => width,
        _ => rows.iter().map(|row| row.cell(first, &state.rates).width()).max().unwrap_or(0),
    };
    state.view.fitted(width, widest.max(first.title().len()))
}

fn heading<'a>(state: &TopState, columns: &[FittedColumn]) -> Line<'a> {
    let order = state.order();
    let cell = |column: &FittedColumn| {
        let (title, align) = (column.field.title(), column.field.align());
        let mut style = Style::new().add_modifier(Modifier::BOLD);
        if column.field == order.field {
            style = style.add_modifier(Modifier::UNDERLINED);
        }
        Span::styled(padded(title, column.width, align), style)
    };
    joined(columns.iter().map(cell))
}

fn row_line<'a>(
    state: &TopState,
    row: &RowSource<'_>,
    columns: &[FittedColumn],
    theme: Theme,
) -> Line<'a> {
    let cell = |column: &FittedColumn| {
        let text = row.cell(column.field, &state.rates);
        let style = theme.style(row.emphasis(column.field));
        Span::styled(padded(&text, column.width, column.field.align()), style)
    };
    joined(columns.iter().map(cell))
}

/// Puts a space between cells.
fn joined<'a>(cells: impl Iterator<Item = Span<'a>>) -> Line<'a> {
    let mut spans: Vec<Span<'a>> = Vec::new();
    for cell in cells {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        spans.push(cell);
    }
    Line::from(spans)
}

const fn nothing(state: &TopState) -> &'static str {
    match state.view {
        _ if state.sample.is_none() => "waiting for the namenode",
        _ if !state.filter.is_empty() => "nothing matches the filter",
        TopView::Nodes | TopView::Throughput => "no nodes",
        TopView::Drains => "no node drains",
        TopView::Jobs => "no jobs",
        TopView::Events => "no events",
    }
}

fn help(width: usize) -> Vec<String> {
    let line = |(key, what): &(&str, &str)| wrapped(&format!("{key:<8} {what}"), width);
    KEYS.iter().flat_map(line).collect()
}

/// Returns every field of a row that has a value, one after the other.
fn detail(state: &TopState, row: &RowSource<'_>, width: usize) -> Vec<String> {
    let others: &[TopView] = match row {
        RowSource::Node(_) => &[TopView::Nodes, TopView::Drains, TopView::Throughput],
        RowSource::Job(_) | RowSource::Event(_) => &[],
    };
    let mut fields: Vec<Field> = state.view.fields().to_vec();
    for field in others.iter().flat_map(|view| view.fields()) {
        if !fields.contains(field) {
            fields.push(*field);
        }
    }
    let mut lines = Vec::new();
    if let RowSource::Event(event) = row {
        lines.extend(wrapped(&format!("at: {}", units::instant(event.at)), width));
        lines.extend(wrapped(&format!("kind: {}", event.kind), width));
    }
    let cells = fields.iter().map(|field| (field, row.cell(*field, &state.rates)));
    for (field, cell) in cells.filter(|(_, cell)| !matches!(cell.as_str(), "" | "-")) {
        lines.extend(wrapped(&format!("{}: {cell}", field.title()), width));
    }
    lines
}

/// Cuts a text to a width; a plus shows that something is missing.
pub(super) fn clipped(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut clipped = String::new();
    for letter in text.chars() {
        let needed = letter.width().unwrap_or(0);
        if needed > left {
            break;
        }
        left -= needed;
        clipped.push(letter);
    }
    if width > 0 {
        clipped.push('+');
    }
    clipped
}

fn padded(text: &str, width: usize, align: Align) -> String {
    let text = clipped(text, width);
    let gap = " ".repeat(width.saturating_sub(text.width()));
    match align {
        Align::Left => text + &gap,
        Align::Right => gap + &text,
    }
}

/// Breaks a text into lines, between words if it can.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let last = lines.last().map_or(0, |line| line.width());
        if last > 0 && last + word.trim_end().width() > width {
            lines.push(String::new());
        }
        for letter in word.chars() {
            let needed = letter.width().unwrap_or(0);
            let last = lines.last_mut().expect("there is a first line");
            if last.width() + needed > width && !last.is_empty() {
                if letter != ' ' {
                    lines.push(letter.to_string());
                }
            } else {
                last.push(letter);
            }
        }
    }
    lines
}

/// Joins parts with two spaces as long as they fit; the first is cut if it does not.
pub(super) fn parts<'a>(parts: Vec<(String, Style)>, width: usize) -> Line<'a> {
    let mut spans: Vec<Span<'a>> = Vec::new();
    let mut left = width;
    for (text, style) in parts {
        let gap = if spans.is_empty() { 0 } else { 2 };
        if spans.is_empty() {
            let text = clipped(&text, left);
            left -= text.width().min(left);
            spans.push(Span::styled(text, style));
        } else if text.width() + gap <= left {
            left -= text.width() + gap;
            spans.push(Span::raw("  "));
            spans.push(Span::styled(text, style));
        } else {
            break;
        }
    }
    Line::from(spans)
}

/// Writes whole seconds, as spans are shown that grow while one looks.
pub(super) fn seconds(span: Duration) -> String {
    match span.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        _ => units::duration(span),
    }
}

#[cfg(test)]
mod tests;
