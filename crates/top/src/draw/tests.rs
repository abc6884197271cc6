//! Frames on terminals of all sizes.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::super::sample::TopSample;
use super::super::state::AfterKey;
use super::super::test_nodes::{draining, node, sample};
use super::*;

const COLOURED: Theme = Theme { is_coloured: true };

fn fleet() -> TopSample {
    let mut suspect = node(3, "n3");
    suspect.availability = sanderling_protocol::node::Availability::Suspect;
    let mut sample = sample(5, vec![node(1, "n1"), draining(2, "n2"), suspect]);
    sample.lost_bytes = 3 << 20;
    sample
}

fn state(sample: TopSample) -> TopState {
    let mut state = TopState::new("10.0.0.9:7600", Duration::from_secs(2), TopView::Nodes);
    state.take(sample);
    state
}

fn press(state: &mut TopState, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        assert_eq!(state.key(KeyEvent::from(code)), AfterKey::GoOn);
    }
}

/// Draws a frame; returns its lines without the spaces at their ends.
fn frame(state: &mut TopState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal fails");
    terminal.draw(|frame| draw(frame.buffer_mut(), state, COLOURED)).expect("no terminal fails");
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

#[test]
fn frame_of_80_columns_is_this() {
    let expected = [
        "sanderling top  12:00:05Z  10.0.0.9:7600  every 2.00 s",
        "2 of 3 nodes active  1 draining  1 suspect  3.00 MiB lost  48.0 MiB exposed",
        "rates come with the next heartbeats  0 requests",
        "1 nodes  2 drains  3 throughput  4 jobs  5 events  by +name",
        "name state                  memory health  exposure          disk heartbeat",
        "n1   active          16.0 MiB  25% up      16.0 MiB 16.0 MiB  25%    200 ms",
        "n2   draining        16.0 MiB  25% up      16.0 MiB 16.0 MiB  25%    200 ms",
        "n3   active          16.0 MiB  25% suspect 16.0 MiB 16.0 MiB  25%    200 ms",
        "",
        "q quit  ? help  tab view  s sort  / filter  p pause  enter detail",
    ];
    assert_eq!(frame(&mut state(fleet()), 80, 10), expected);
}

#[test]
fn frame_of_20_columns_has_the_names_and_the_states() {
    let mut state = state(fleet());
    let lines = frame(&mut state, 20, 8);
    let text = lines.join("\n");
    for part in ["nodes 1/5", "name", "n2", "draining", "q quit"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    press(&mut state, "2");
    let text = frame(&mut state, 20, 8).join("\n");
    assert!(text.contains("drains 2/5") && text.contains("75%"), "{text}");
}

#[test]
fn every_view_fits_every_size() {
    for (width, last) in
        [(20, "draining"), (40, "draining"), (80, "heartbeat"), (120, "read"), (200, "id")]
    {
        let mut state = state(fleet());
        for view in ['1', '2', '3', '4', '5'] {
            for overlay in ["", "\n", "?", "/n2\n"] {
                press(&mut state, &format!("{view}{overlay}"));
                for height in [0, 1, 2, 3, 4, 5, 6, 8, 24, 60] {
                    frame(&mut state, width, height);
                }
                state.key(KeyEvent::from(KeyCode::Esc));
            }
            state.filter.clear();
        }
        press(&mut state, "1");
        let text = frame(&mut state, width, 24).join("\n");
        assert!(text.contains(last), "{width}: {text}");
    }
}

#[test]
fn no_size_panics_and_a_tiny_one_gets_a_sentence() {
    let mut state = state(fleet());
    for width in 0..12 {
        for height in 0..8 {
            frame(&mut state, width, height);
        }
    }
    assert_eq!(frame(&mut state, 40, 2)[0], "sanderling top needs 10x3");
    assert_eq!(frame(&mut state, 9, 4), ["sanderlin", "g top", "needs", "10x3"]);
    assert!(frame(&mut state, 10, 3).join("").contains("n1"));
}

#[test]
fn screen_shows_that_the_namenode_is_away_and_that_it_is_back() {
    let mut state = state(fleet());
    state.lose(Duration::from_secs(7), "connection refused");
    state.now = Duration::from_secs(19);
    for width in [20, 80] {
        let text = frame(&mut state, width, 12).join("\n");
        assert!(text.contains("NO NAMENODE 12 s"), "{text}");
        assert!(text.contains("n1"), "what was known stays: {text}");
    }
    assert!(frame(&mut state, 80, 12).join("").contains("trying again: connection refused"));
    // It stays on the smallest terminal that has a line for it.
    assert!(frame(&mut state, 80, 4).join("").contains("NO NAMENODE"));
    let mut sample = fleet();
    sample.at = Duration::from_secs(20);
    state.take(sample);
    let text = frame(&mut state, 80, 12).join("\n");
    assert!(text.contains("the namenode is back after 13 s"), "{text}");
}

#[test]
fn pause_and_filter_are_visible() {
    let mut state = state(fleet());
    press(&mut state, "p/n2");
    let text = frame(&mut state, 80, 12).join("\n");
    assert!(text.contains("PAUSED") && text.contains("filter: n2_"), "{text}");
    press(&mut state, "\n");
    let text = frame(&mut state, 80, 12).join("\n");
    assert!(text.contains("1 of 3") && text.contains("filter: n2  esc none"), "{text}");
    assert!(!text.contains("n3"), "{text}");
    press(&mut state, "/zzz\n");
    assert!(frame(&mut state, 80, 12).join("").contains("nothing matches the filter"));
}

#[test]
fn states_are_coloured_or_bold() {
    let mut state = state(fleet());
    let mut drawn = |theme| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 10));
        draw(&mut buffer, &mut state, theme);
        // The state of n2.
        (buffer[(6, 6)].fg, buffer[(6, 6)].modifier)
    };
    assert_eq!(drawn(COLOURED), (Color::Yellow, Modifier::empty()));
    assert_eq!(drawn(Theme { is_coloured: false }), (Color::Reset, Modifier::BOLD));
}

#[test]
fn names_of_tenants_stay_in_their_cells() {
    let mut bad = node(1, "\u{1b}[2Jevil\n\u{202e}日本日本日本日本日本日本日本");
    bad.reason = "\u{7}".to_owned();
    let mut state = state(sample(1, vec![bad, node(2, "n2")]));
    for width in [10, 20, 21, 22, 40, 80, 200] {
        let lines = frame(&mut state, width, 10);
        let text = lines.join("\n");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        assert!(text.contains("\\u{1b}"), "{width}: {text}");
        assert!(text.contains("n2"), "{text}");
    }
}

#[test]
fn thousand_nodes_are_listed_by_the_page_and_whole_in_text() {
    let nodes = (1..=1000).map(|at| node(at, &format!("n{at}"))).collect();
    let mut state = state(sample(1, nodes));
    let lines = frame(&mut state, 80, 24);
    assert!(lines[22].starts_with("n18 "), "{}", lines[22]);
    press(&mut state, "G");
    assert!(frame(&mut state, 80, 24)[22].starts_with("n1000 "));
    let text = text_frame(&state, 80);
    assert_eq!(text.lines().count(), 4 + 1000);
    assert!(text.lines().all(|line| line.width() <= 80));
}

#[test]
fn detail_has_every_field_of_the_row() {
    let mut state = state(fleet());
    press(&mut state, "j\n");
    let text = frame(&mut state, 40, 40).join("\n");
    for line in ["name: n2", "state: draining", "deadline: 28.0 s", "reason: spot reclaim"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // The next row's.
    press(&mut state, "j");
    assert!(frame(&mut state, 40, 40).join("\n").contains("name: n3"));
}

#[test]
fn text_is_cut_by_what_it_takes_on_the_screen() {
    assert_eq!(clipped("abc", 3), "abc");
    assert_eq!(clipped("abcd", 3), "ab+");
    assert_eq!(clipped("日本", 3), "日+");
    assert_eq!(clipped("日本", 0), "");
    assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
    assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
    assert_eq!(wrapped("", 3), [""]);
    let _ = wrapped("日本 x", 1);
}
