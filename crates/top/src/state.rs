//! What `top` shows: the view, order, filter and selection, and what keys change. It has no clock
//! and no terminal.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use thiserror::Error;

use super::cells::RowSource;
use super::event_rows::{self, EventRow};
use super::fields::{Field, TopView};
use super::rates::RateTable;
use super::sample::{SampleRequest, TopSample};

/// Longest filter, in characters: it fits into a line of a terminal of 80 columns, with its label.
/// Chosen, not measured.
const FILTER_CHARS_MAX: usize = 60;

/// How long the line stays that reports that the namenode is back: long enough to be read. Chosen,
/// not measured.
const BACK_SHOWN: Duration = Duration::from_secs(10);

/// What to do after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterKey {
    /// Draw again, if anything changed.
    GoOn,
    /// End.
    Quit,
    /// End as after SIGINT.
    Interrupt,
}

/// A view has no column of a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{view} cannot be sorted by {name}: use {}", .columns.join(", "))]
pub(super) struct ColumnError {
    view: &'static str,
    name: String,
    columns: Vec<&'static str>,
}

/// What lies over the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlay {
    /// Nothing.
    None,
    /// The keys.
    Help,
    /// All fields of the selected row.
    Detail,
}

/// The connection to the namenode, as the last request found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkState {
    /// It answers.
    Up,
    /// It did not answer since then.
    Lost { since: Duration, cause: String },
    /// It answers again since `at`, after so long.
    Back { at: Duration, after: Duration },
}

/// The order of a view's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowOrder {
    pub(super) field: Field,
    pub(super) is_reversed: bool,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub(super) struct TopState {
    /// The namenode's address, printable.
    pub(super) namenode: String,
    pub(super) interval: Duration,
    pub(super) view: TopView,
    pub(super) sample: Option<TopSample>,
    pub(super) events: VecDeque<EventRow>,
    pub(super) rates: RateTable,
    pub(super) link: LinkState,
    pub(super) overlay: Overlay,
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) is_filtering: bool,
    pub(super) is_paused: bool,
    /// Whether nodes are shown that are gone.
    pub(super) has_gone: bool,
    /// Time since the command began, when the screen is drawn.
    pub(super) now: Duration,
    /// Whether the frames are text: no keys, every row.
    pub(super) is_batch: bool,
    orders: [RowOrder; TopView::ALL.len()],
    /// The selected row of the view, by its id and its place when it was last shown.
    selected: (Option<u64>, usize),
    /// The first row that is shown.
    offset: usize,
    /// How many rows were last shown.
    page: usize,
}

impl TopState {
    pub(super) fn new(namenode: &str, interval: Duration, view: TopView) -> Self {
        let order = |view: TopView| RowOrder { field: view.orders()[0], is_reversed: false };
        Self {
            namenode: namenode.to_owned(),
            interval,
            view,
            sample: None,
            events: VecDeque::new(),
            rates: RateTable::default(),
            link: LinkState::Up,
            overlay: Overlay::None,
            filter: String::new(),
            is_filtering: false,
            is_paused: false,
            has_gone: false,
            now: Duration::ZERO,
            is_batch: false,
            orders: TopView::ALL.map(order),
            selected: (None, 0),
            offset: 0,
            page: 1,
        }
    }

    /// Sets the order of the view by a column's name.
    ///
    /// # Errors
    /// [`ColumnError`]: use one of the names in it.
    pub(super) fn set_order(&mut self, name: &str, is_reversed: bool) -> Result<(), ColumnError> {
        let orders = self.view.orders();
        let Some(field) = orders.iter().find(|field| field.title() == name) else {
            let columns = orders.iter().map(|field| field.title()).collect();
            let (view, name) = (self.view.title(), name.to_owned());
            return Err(ColumnError { view, name, columns });
        };
        *self.order_mut() = RowOrder { field: *field, is_reversed };
        Ok(())
    }

    /// Takes the answers of the namenode.
    pub(super) fn take(&mut self, mut sample: TopSample) {
        self.link = match &self.link {
            LinkState::Lost { since, .. } => {
                LinkState::Back { at: sample.at, after: sample.at.saturating_sub(*since) }
            }
            LinkState::Back { at, .. } if sample.at > *at + BACK_SHOWN => LinkState::Up,
            link => link.clone(),
        };
        if sample.is_other_cluster {
            self.events.clear();
            self.rates = RateTable::default();
        }
        self.now = self.now.max(sample.at);
        self.rates.take_nodes(sample.at, &sample.nodes);
        match &sample.jobs {
            Some(jobs) => self.rates.take_jobs(sample.at, jobs),
            None => sample.jobs = self.sample.take().and_then(|before| before.jobs),
        }
        event_rows::keep(&mut self.events, std::mem::take(&mut sample.events));
        self.sample = Some(sample);
    }

    /// Records that the namenode did not answer, and why.
    pub(super) fn lose(&mut self, at: Duration, cause: &str) {
        let since = match &self.link {
            LinkState::Lost { since, .. } => *since,
            _ => at,
        };
        self.now = self.now.max(at);
        self.link = LinkState::Lost { since, cause: cause.to_owned() };
    }

    /// Returns whether what is shown changes with time alone.
    pub(super) const fn is_timed(&self) -> bool {
        matches!(self.link, LinkState::Lost { .. })
    }

    /// Returns what the next sample must have.
    pub(super) fn request(&self) -> SampleRequest {
        let has_jobs = self.view == TopView::Jobs;
        SampleRequest { is_paused: self.is_paused, has_jobs, has_gone: self.has_gone }
    }

    pub(super) const fn order(&self) -> RowOrder {
        self.orders[self.view as usize]
    }

    const fn order_mut(&mut self) -> &mut RowOrder {
        &mut self.orders[self.view as usize]
    }

    /// Returns the rows of the view in their order, without those that the filter hides.
    pub(super) fn rows(&self) -> Vec<RowSource<'_>> {
        let filter = self.filter.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let is_shown = |row: &RowSource<'_>| words.is_empty() || row.has(&words);
        let rows: Vec<RowSource<'_>> = self.sources().filter(is_shown).collect();
        let order = self.order();
        let is_descending = order.field.is_descending() != order.is_reversed;
        let key = |row: &RowSource<'_>| row.key(order.field, &self.rates);
        let mut keyed: Vec<_> = rows.into_iter().map(|row| (key(&row), row)).collect();
        keyed.sort_by(|(one, a), (two, b)| one.compare(two, is_descending).then_with(|| a.tie(b)));
        keyed.into_iter().map(|(_, row)| row).collect()
    }

    /// Returns how many rows the view has without the filter.
    pub(super) fn rows_in_all(&self) -> usize {
        self.sources().count()
    }

    fn sources(&self) -> Box<dyn Iterator<Item = RowSource<'_>> + '_> {
        let nodes = self.sample.iter().flat_map(|sample| &sample.nodes);
        let jobs = self.sample.iter().flat_map(|sample| sample.jobs.iter().flatten());
        match self.view {
            TopView::Nodes | TopView::Throughput => Box::new(nodes.map(RowSource::Node)),
            TopView::Drains => {
                Box::new(nodes.filter(|node| node.drain.is_some()).map(RowSource::Node))
            }
            TopView::Jobs => Box::new(jobs.map(RowSource::Job)),
            TopView::Events => Box::new(self.events.iter().map(RowSource::Event)),
        }
    }

    /// Returns which rows are shown where `height` fit, and which of all is selected. The selected
    /// one stays the same when rows come, go or change their order.
    pub(super) fn window(
        &mut self,
        ids: &[u64],
        height: usize,
    ) -> (std::ops::Range<usize>, Option<usize>) {
        self.page = height.max(1);
        if ids.is_empty() {
            self.offset = 0;
            return (0..0, None);
        }
        let (id, place) = self.selected;
        let found = id.and_then(|id| ids.iter().position(|one| *one == id));
        let place = found.unwrap_or_else(|| place.min(ids.len() - 1));
        self.selected = (id.map(|_| ids[place]), place);
        let last = ids.len().saturating_sub(self.page);
        self.offset = self.offset.min(place).max((place + 1).saturating_sub(self.page)).min(last);
        (self.offset..ids.len().min(self.offset + height), Some(place))
    }

    fn select(&mut self, change: impl FnOnce(usize) -> usize) {
        let ids: Vec<u64> = self.rows().iter().map(RowSource::id).collect();
        if ids.is_empty() {
            return;
        }
        let (id, place) = self.selected;
        let found = id.and_then(|id| ids.iter().position(|one| *one == id));
        let place = change(found.unwrap_or(place)).min(ids.len() - 1);
        // The first row is the top of the list, whatever stands there.
        self.selected = (Some(ids[place]).filter(|_| place > 0), place);
    }

    fn show(&mut self, view: TopView) {
        if self.view != view {
            self.view = view;
            (self.selected, self.offset) = ((None, 0), 0);
        }
        self.overlay = Overlay::None;
    }

    fn step_view(&mut self, by: usize) {
        let views = TopView::ALL;
        self.show(views[(self.view as usize + by) % views.len()]);
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> AfterKey {
        if key.kind == KeyEventKind::Release {
            return AfterKey::GoOn;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => AfterKey::Interrupt,
                _ => AfterKey::GoOn,
            };
        }
        if self.is_filtering {
            self.filter_key(key.code);
            return AfterKey::GoOn;
        }
        let was = std::mem::replace(&mut self.overlay, Overlay::None);
        match key.code {
            KeyCode::Char('q') => return AfterKey::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) if was != Overlay::Help => {
                self.overlay = Overlay::Help;
            }
            KeyCode::Enter if was != Overlay::Detail => self.overlay = Overlay::Detail,
            KeyCode::Esc if was == Overlay::None => self.filter.clear(),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?' | 'h') | KeyCode::F(1) => {}
            code => {
                if was == Overlay::Detail {
                    // The detail follows the selection.
                    self.overlay = was;
                }
                self.list_key(code);
            }
        }
        AfterKey::GoOn
    }

    fn list_key(&mut self, code: KeyCode) {
        let page = self.page;
        match code {
            KeyCode::Char('j') | KeyCode::Down => self.select(|place| place + 1),
            KeyCode::Char('k') | KeyCode::Up => self.select(|place| place.saturating_sub(1)),
            KeyCode::PageDown => self.select(|place| place + page),
            KeyCode::PageUp => self.select(|place| place.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.select(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.select(|_| usize::MAX),
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.step_view(1),
            KeyCode::BackTab | KeyCode::Left => self.step_view(TopView::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='5') => {
                self.show(TopView::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Char('s') => self.next_order(),
            KeyCode::Char('r') => {
                let order = self.order_mut();
                order.is_reversed = !order.is_reversed;
            }
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('a') => self.has_gone = !self.has_gone,
            _ => {}
        }
    }

    fn next_order(&mut self) {
        let orders = self.view.orders();
        let current = self.order().field;
        let place = orders.iter().position(|field| *field == current).unwrap_or(0);
        let field = orders[(place + 1) % orders.len()];
        *self.order_mut() = RowOrder { field, is_reversed: false };
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_filtering = false;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter)
                if !letter.is_control() && self.filter.chars().count() < FILTER_CHARS_MAX =>
            {
                self.filter.push(letter);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_nodes::{draining, node, sample};
    use super::*;

    fn state(nodes: usize) -> TopState {
        let mut state = TopState::new("h:1", Duration::from_secs(2), TopView::Nodes);
        let nodes = (1..=nodes).map(|at| node(at as u32, &format!("n{at}")));
        state.take(sample(1, nodes.collect()));
        state
    }

    fn press(state: &mut TopState, keys: &str) -> AfterKey {
        let mut after = AfterKey::GoOn;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            };
            after = state.key(KeyEvent::from(code));
        }
        after
    }

    fn ids(state: &TopState) -> Vec<u64> {
        state.rows().iter().map(RowSource::id).collect()
    }

    fn selected(state: &mut TopState, height: usize) -> (std::ops::Range<usize>, Option<usize>) {
        let ids = ids(state);
        state.window(&ids, height)
    }

    #[test]
    fn keys_end_it() {
        let mut state = state(1);
        assert_eq!(press(&mut state, "jks?"), AfterKey::GoOn);
        assert_eq!(press(&mut state, "q"), AfterKey::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control_c), AfterKey::Interrupt);
        // Also while the filter is written, where q is a letter.
        assert_eq!(press(&mut state, "/q"), AfterKey::GoOn);
        assert_eq!(state.key(control_c), AfterKey::Interrupt);
    }

    #[test]
    fn rows_are_sorted_by_name_and_then_by_what_s_chooses() {
        let mut state = state(11);
        assert_eq!(ids(&state), (1..=11).collect::<Vec<_>>());
        press(&mut state, "r");
        assert_eq!(ids(&state), (1..=11).rev().collect::<Vec<_>>());
        let mut nodes: Vec<_> = (1..=3).map(|at| node(at, &format!("n{at}"))).collect();
        nodes[1] = draining(2, "n2");
        nodes[2].exposure_bytes = 1 << 40;
        state.take(sample(2, nodes));
        press(&mut state, "s");
        assert_eq!(state.order().field, Field::State);
        assert_eq!(ids(&state), [2, 1, 3]);
        press(&mut state, "ss");
        assert_eq!((state.order().field, ids(&state)), (Field::Exposure, vec![3, 1, 2]));
        // Each view has its own order.
        press(&mut state, "2");
        assert_eq!((state.order().field, ids(&state)), (Field::Deadline, vec![2]));
        press(&mut state, "1");
        assert_eq!(state.order().field, Field::Exposure);
        assert!(state.set_order("blocks", false).is_ok());
        let error = state.set_order("colour", false).unwrap_err();
        assert!(error.to_string().contains("use name, state"), "{error}");
    }

    #[test]
    fn filter_hides_rows_until_escape() {
        let mut state = state(11);
        press(&mut state, "/N1");
        assert_eq!(ids(&state), [1, 10, 11]);
        press(&mut state, "\u{8}1x\u{8}\n");
        assert_eq!((state.filter.as_str(), state.is_filtering), ("N1", false));
        press(&mut state, "\u{1b}");
        assert_eq!(ids(&state).len(), 11);
        press(&mut state, "/");
        press(&mut state, &"x".repeat(500));
        assert_eq!(state.filter.len(), FILTER_CHARS_MAX);
    }

    #[test]
    fn selection_stays_on_its_row_and_in_the_window() {
        let mut state = state(30);
        assert_eq!(selected(&mut state, 10), (0..10, Some(0)));
        press(&mut state, "jjjjj");
        assert_eq!(selected(&mut state, 10), (0..10, Some(5)));
        // The row before it goes.
        let nodes = (2..=30).map(|at| node(at, &format!("n{at}"))).collect();
        state.take(sample(2, nodes));
        assert_eq!(selected(&mut state, 10), (0..10, Some(4)));
        press(&mut state, "G");
        assert_eq!(selected(&mut state, 10), (19..29, Some(28)));
        press(&mut state, "k");
        assert_eq!(selected(&mut state, 10), (19..29, Some(27)));
        press(&mut state, "g");
        assert_eq!(selected(&mut state, 10), (0..10, Some(0)));
        press(&mut state, "G");
        state.take(sample(3, vec![node(1, "n1")]));
        assert_eq!(selected(&mut state, 10), (0..1, Some(0)));
        state.take(sample(4, vec![]));
        assert_eq!(selected(&mut state, 0), (0..0, None));
        press(&mut state, "jkG");
        assert_eq!(selected(&mut state, 10), (0..0, None));
    }

    #[test]
    fn new_events_appear_at_the_top_unless_another_row_is_selected() {
        let mut state = state(1);
        press(&mut state, "5");
        assert_eq!(ids(&state), [13, 12, 11]);
        assert_eq!(selected(&mut state, 10).1, Some(0));
        state.take(sample(2, vec![]));
        assert_eq!(ids(&state)[0], 23);
        assert_eq!(selected(&mut state, 10).1, Some(0));
        press(&mut state, "j");
        state.take(sample(3, vec![]));
        assert_eq!(selected(&mut state, 10).1, Some(4), "it stays on event 22");
    }

    #[test]
    fn namenode_that_is_away_is_reported_with_its_time_until_it_is_back() {
        let mut state = state(2);
        state.lose(Duration::from_secs(5), "refused");
        state.lose(Duration::from_secs(7), "refused again");
        let cause = "refused again".to_owned();
        assert_eq!(state.link, LinkState::Lost { since: Duration::from_secs(5), cause });
        assert!(state.is_timed());
        assert_eq!(ids(&state).len(), 2, "the last answer stays");
        state.take(sample(9, vec![]));
        let (at, after) = (Duration::from_secs(9), Duration::from_secs(4));
        assert_eq!(state.link, LinkState::Back { at, after });
        state.take(sample(12, vec![]));
        assert_eq!(state.link, LinkState::Back { at, after });
        state.take(sample(20, vec![]));
        assert_eq!(state.link, LinkState::Up);
    }

    #[test]
    fn only_what_is_shown_is_requested() {
        let mut state = state(1);
        let request =
            |is_paused, has_jobs, has_gone| SampleRequest { is_paused, has_jobs, has_gone };
        assert_eq!(state.request(), request(false, false, false));
        press(&mut state, "4a");
        assert_eq!(state.request(), request(false, true, true));
        press(&mut state, "p");
        assert_eq!(state.request(), request(true, true, true));
        // Jobs that were not requested stay as they were.
        let mut without = sample(2, vec![]);
        without.jobs = None;
        state.take(without);
        assert_eq!(ids(&state), [2, 1]);
    }

    #[test]
    fn other_cluster_brings_its_own_events() {
        let mut state = state(1);
        let mut other = sample(9, vec![]);
        other.is_other_cluster = true;
        state.take(other);
        press(&mut state, "5");
        assert_eq!(ids(&state), [93, 92, 91]);
    }
}
