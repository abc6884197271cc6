//! A list printed again and again, in one place of a terminal: `node ls --watch`.

use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use ratatui::crossterm::terminal;
use sanderling_protocol::Instant;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::failure::{Exit, Failure};
use crate::printable::Printable;
use crate::session::Session;
use crate::units::{self, Span};

/// Prints what `fetch` returns every `interval`: on a terminal over what was printed before, else
/// one block after the other. A namenode that cannot be reached for a while is waited for.
///
/// # Errors
/// Unavailable (4) when the namenode cannot be reached at the start; a refusal.
pub(crate) async fn run<T: Serialize>(
    session: &Session,
    interval: Span,
    mut fetch: impl AsyncFnMut() -> Result<T, Failure>,
    write: impl Fn(&mut dyn Write, &T) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut is_first = true;
    loop {
        let fetched = tokio::select! {
            fetched = fetch() => fetched,
            () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
        };
        match fetched {
            Ok(list) if session.output.is_json => session.output.document(&list)?,
            Ok(list) => {
                let mut block = Printable(Vec::new());
                writeln!(block, "every {}, at {}", units::duration(interval.0), now())?;
                write(&mut block, &list)?;
                show(&String::from_utf8_lossy(&block.0), is_first)?;
            }
            Err(failure) if is_first || !is_passing(&failure) => return Err(failure),
            Err(failure) => session.output.note(format_args!("{}; trying again", failure.cause)),
        }
        session.goes_on();
        is_first = false;
        tokio::select! {
            () = tokio::time::sleep(interval.0) => {}
            () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
        }
    }
}

/// Returns whether the same request may succeed later.
fn is_passing(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Unavailable | Exit::Deadline)
}

fn now() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    units::instant(Instant(u64::try_from(now.as_micros()).unwrap_or(u64::MAX)))
}

/// Returns how many columns the terminal has to which a command prints; `None` where it prints to
/// none.
pub(crate) fn terminal_columns() -> Option<usize> {
    let (columns, _) = io::stdout().is_terminal().then(|| terminal::size().ok())??;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

fn show(block: &str, is_first: bool) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let is_drawn = io::stdout().is_terminal();
    let text = match terminal::size().ok().filter(|_| is_drawn) {
        Some((columns, rows)) => screen(block, columns.into(), rows.into()),
        None if is_first => block.to_owned(),
        None => format!("\n{block}"),
    };
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Returns what writes a block from a terminal's first line on and clears the rest. What has no
/// place is left out, and a line at the end shows how much that is.
fn screen(block: &str, columns: usize, rows: usize) -> String {
    let height = |line: &str| width(line).div_ceil(columns.max(1)).max(1);
    let lines: Vec<&str> = block.lines().collect();
    let whole: usize = lines.iter().map(|line| height(line)).sum();
    let mut left = rows.saturating_sub(if whole < rows { 1 } else { 2 });
    let fits = |line: &&&str| {
        let rest = left.checked_sub(height(line));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let shown: Vec<&str> = lines.iter().take_while(fits).copied().collect();
    let mut text = String::from("\u{1b}[H");
    for line in &shown {
        text.extend([*line, "\u{1b}[K\n"]);
    }
    if shown.len() < lines.len() {
        let more = format!("... {} lines more", lines.len() - shown.len());
        text.extend(more.chars().take(columns));
        text.push_str("\u{1b}[K");
    }
    text.push_str("\u{1b}[J");
    text
}

/// Returns how many columns a line takes, without the colours of states.
fn width(line: &str) -> usize {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().width();
    let rest = parts.map(|part| part.split_once('m').map_or(0, |(_, text)| text.width()));
    first + rest.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_that_fits_is_written_whole() {
        assert_eq!(screen("one\ntwo\n", 20, 5), "\u{1b}[Hone\u{1b}[K\ntwo\u{1b}[K\n\u{1b}[J");
    }

    #[test]
    fn block_that_is_too_high_or_too_wide_ends_with_what_is_missing() {
        let text = screen("one\ntwo\nthree\nfour\nfive\n", 20, 4);
        assert_eq!(text, "\u{1b}[Hone\u{1b}[K\ntwo\u{1b}[K\n... 3 lines more\u{1b}[K\u{1b}[J");
        // The first line takes three of the four.
        let text = screen("one two three four five\ntwo\n", 10, 4);
        assert_eq!(text, "\u{1b}[H... 2 line\u{1b}[K\u{1b}[J");
        for (columns, rows) in [(0, 0), (1, 1), (20, 1), (1, 20)] {
            let _ = screen("one\ntwo\n", columns, rows);
        }
    }

    #[test]
    fn colours_take_no_columns() {
        assert_eq!(width("a \u{1b}[33mdraining\u{1b}[0m b"), 12);
    }
}
