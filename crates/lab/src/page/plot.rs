//! Plots as SVG text: axes, curves, bars. Colours are classes of the page's style sheet, so that
//! they follow the reader's light or dark mode.

use std::fmt::Write;

/// Width of every picture in its own units; the page scales it.
const WIDTH: f64 = 1140.0;

/// Space left of the plotted area for the numbers, unless names stand there.
const LEFT: f64 = 92.0;

/// Space right of the plotted area, above it for the axis's name, and below it.
const RIGHT: f64 = 24.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// How values lie along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Log,
}

/// One axis: its values, its round numbers and what they count.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    name: String,
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
    /// Whether lines of the grid begin at its numbers.
    has_grid: bool,
}

impl Axis {
    /// Returns an axis from `low` to at least `high` with about `count` round numbers, written by
    /// `label`.
    pub(super) fn linear(
        name: &str,
        (low, high): (f64, f64),
        count: u32,
        label: impl Fn(f64) -> String,
    ) -> Self {
        Self::stepped(name, (low, high), round_step((high - low).max(1e-9), count), label)
    }

    /// Returns an axis with a number at every multiple of `step`.
    pub(super) fn stepped(
        name: &str,
        (low, high): (f64, f64),
        step: f64,
        label: impl Fn(f64) -> String,
    ) -> Self {
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        let ticks = (first..=last).map(|at| at as f64 * step).map(|at| (at, label(at))).collect();
        Self { name: name.to_owned(), scale: Scale::Linear, low, high, ticks, has_grid: true }
    }

    /// Returns an axis on which factors are equally long, with these numbers on it.
    pub(super) fn log(
        name: &str,
        (low, high): (f64, f64),
        ticks: impl IntoIterator<Item = (f64, String)>,
    ) -> Self {
        let within = |(at, _): &(f64, String)| (low..=high).contains(at);
        let ticks = ticks.into_iter().filter(within).collect();
        Self { name: name.to_owned(), scale: Scale::Log, low, high, ticks, has_grid: true }
    }

    /// Returns an axis of `count` equal places, named one by one: the middle of place `n` is
    /// `n + 0.5`.
    pub(super) fn places(names: impl IntoIterator<Item = String>) -> Self {
        let ticks: Vec<(f64, String)> =
            names.into_iter().enumerate().map(|(at, name)| (at as f64 + 0.5, name)).collect();
        let high = ticks.len().max(1) as f64;
        Self { name: String::new(), scale: Scale::Linear, low: 0.0, high, ticks, has_grid: false }
    }

    /// Returns where a value is between the ends: 0 to 1 within them.
    fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low).max(1e-12),
            Scale::Log => {
                let value = value.max(self.low * 1e-3);
                (value / self.low).ln() / (self.high / self.low).ln()
            }
        }
    }
}

/// Returns the round number near `range / count`: 1, 2 or 5 and a power of ten.
fn round_step(range: f64, count: u32) -> f64 {
    let raw = range / f64::from(count.max(1));
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|it| it * power >= raw * 0.999);
    factor.unwrap_or(10.0) * power
}

/// A picture being drawn. What is drawn later lies above.
#[derive(Debug)]
pub(super) struct Plot {
    left: f64,
    height: f64,
    x: Axis,
    y: Axis,
    body: String,
}

impl Plot {
    /// Starts a picture with its axes.
    pub(super) fn new(height: f64, x: Axis, y: Axis) -> Self {
        Self::beside(LEFT, height, x, y)
    }

    /// Starts a picture with that much space left of it for names.
    pub(super) fn beside(left: f64, height: f64, x: Axis, y: Axis) -> Self {
        let mut plot = Self { left, height, x, y, body: String::new() };
        plot.axes();
        plot
    }

    fn axes(&mut self) {
        let (left, right) = (self.left, WIDTH - RIGHT);
        let bottom = self.bottom();
        for (at, text) in self.y.ticks.clone() {
            let y = self.y_of(at);
            if self.y.has_grid {
                self.line("grid", (left, y), (right, y));
            }
            self.text(left - 8.0, y + 4.0, "end", "", &text);
        }
        for (at, text) in self.x.ticks.clone() {
            let x = self.x_of(at);
            if self.x.has_grid && !self.y.has_grid {
                self.line("grid", (x, TOP), (x, bottom));
            }
            self.text(x, bottom + 18.0, "middle", "", &text);
        }
        let (x, y) = (self.x.name.clone(), self.y.name.clone());
        self.text(f64::midpoint(left, right), bottom + 38.0, "middle", "", &x);
        self.text(0.0, 14.0, "start", "title", &y);
    }

    /// Returns where the plotted area ends below: an axis without a name needs less space.
    fn bottom(&self) -> f64 {
        self.height - if self.x.name.is_empty() { BOTTOM - 20.0 } else { BOTTOM }
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1={:.1} x2={:.1} y1={:.1} y2={:.1} />",
            from.0, to.0, from.1, to.1
        ));
    }

    pub(super) fn x_of(&self, value: f64) -> f64 {
        self.left + self.x.part(value).clamp(0.0, 1.0) * (WIDTH - self.left - RIGHT)
    }

    pub(super) fn y_of(&self, value: f64) -> f64 {
        let bottom = self.bottom();
        bottom - self.y.part(value).clamp(-0.02, 1.02) * (bottom - TOP)
    }

    /// Adds a curve of these classes.
    pub(super) fn curve(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let mut path = String::new();
        for (x, y) in points {
            let begin = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{begin}{:.1},{:.1}", self.x_of(x), self.y_of(y));
        }
        self.put(format_args!("<path class=\"curve {class}\" d=\"{path}\" />"));
    }

    /// Adds dots of these classes.
    pub(super) fn dots(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        for (x, y) in points {
            let (x, y) = (self.x_of(x), self.y_of(y));
            self.put(format_args!("<circle class=\"{class}\" cx={x:.1} cy={y:.1} r=4 />"));
        }
    }

    /// Adds a bar between two values of either axis; `title` is shown under the pointer.
    pub(super) fn bar(&mut self, x: (f64, f64), y: (f64, f64), class: &str, title: &str) {
        let (left, right) = (self.x_of(x.0), self.x_of(x.1));
        let (top, bottom) = (self.y_of(y.1), self.y_of(y.0));
        self.put(format_args!(
            "<rect class=\"{class}\" x={left:.1} y={top:.1} width={:.1} height={:.1} rx=1.5>\
             <title>{}</title></rect>",
            (right - left).max(1.0),
            (bottom - top).max(0.5),
            escaped(title)
        ));
    }

    /// Adds a shaded part of the x axis over the whole height.
    pub(super) fn shade(&mut self, x: (f64, f64), class: &str) {
        let (left, right) = (self.x_of(x.0), self.x_of(x.1));
        let (top, height) = (TOP, self.bottom() - TOP);
        self.put(format_args!(
            "<rect class=\"{class}\" x={left:.1} y={top} width={:.1} height={height:.1} />",
            (right - left).max(1.0)
        ));
    }

    /// Adds a line from below to above at a value of the x axis, with a word at its top.
    pub(super) fn upright(&mut self, x: f64, class: &str, text: &str) {
        let at = self.x_of(x);
        self.line(class, (at, TOP), (at, self.bottom()));
        self.text(at + 5.0, TOP + 12.0, "start", "", text);
    }

    /// Adds a line across at a value of the y axis, with words above its left end.
    pub(super) fn level(&mut self, y: f64, class: &str, text: &str) {
        let at = self.y_of(y);
        self.line(class, (self.left, at), (WIDTH - RIGHT, at));
        self.text(self.left + 6.0, at - 5.0, "start", "said", text);
    }

    /// Adds a thin line with ends from one value of the y axis to another, at a value of the x
    /// axis.
    pub(super) fn whisker(&mut self, x: f64, (low, high): (f64, f64)) {
        let (at, top, bottom) = (self.x_of(x), self.y_of(high), self.y_of(low));
        self.line("whisker", (at, top), (at, bottom));
        self.line("whisker", (at - 4.0, top), (at + 4.0, top));
        self.line("whisker", (at - 4.0, bottom), (at + 4.0, bottom));
    }

    /// Adds a heading at the top.
    pub(super) fn title(&mut self, text: &str) {
        self.text(0.0, 16.0, "start", "title", text);
    }

    /// Adds a line from one value of the y axis to another at a value of the x axis.
    pub(super) fn upright_part(&mut self, x: f64, (low, high): (f64, f64), class: &str) {
        let at = self.x_of(x);
        self.line(class, (at, self.y_of(high)), (at, self.y_of(low)));
    }

    /// Adds words at a point of the plotted values, moved by some units of the picture.
    pub(super) fn label(&mut self, at: (f64, f64), by: (f64, f64), anchor: &str, text: &str) {
        self.classed_label(at, by, anchor, "said", text);
    }

    /// Adds words of a class, as [`Plot::label`] does.
    pub(super) fn classed_label(
        &mut self,
        (x, y): (f64, f64),
        (dx, dy): (f64, f64),
        anchor: &str,
        class: &str,
        text: &str,
    ) {
        self.text(self.x_of(x) + dx, self.y_of(y) + dy, anchor, class, text);
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = escaped(text);
        self.put(format_args!(
            "<text x={x:.1} y={y:.1} text-anchor={anchor} class=\"{class}\">{text}</text>"
        ));
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// Returns the picture; `about` describes it to readers that do not see it.
    pub(super) fn svg(self, about: &str) -> String {
        picture(self.height, about, &self.body)
    }
}

/// Returns a picture of the page's width around elements.
pub(super) fn picture(height: f64, about: &str, body: &str) -> String {
    format!(
        "<div class=picture><svg viewBox=\"0 0 {WIDTH} {height}\" role=img aria-label=\"{}\">\n\
         {body}</svg></div>\n",
        escaped(about)
    )
}

/// Returns a text that HTML reads as it is. Nothing that the lab links escapes HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Returns a list of what the colours mean: class of the colour, words.
pub(super) fn legend<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let items: String = entries
        .into_iter()
        .map(|(class, words)| format!("<li><i class=\"{class}\"></i>{}</li>", escaped(words)))
        .collect();
    format!("<ul class=legend>{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_an_axis_are_round_and_within_it() {
        let axis = Axis::linear("seconds", (0.0, 47.0), 5, |at| format!("{at}"));
        let numbers: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(numbers, ["0", "10", "20", "30", "40"]);
        let axis = Axis::linear("", (-5.0, 1.0), 6, |at| format!("{at}"));
        assert_eq!(axis.ticks.len(), 7);
        assert!((axis.part(-5.0), axis.part(1.0)) == (0.0, 1.0));
    }

    #[test]
    fn log_axis_gives_factors_the_same_length() {
        let axis =
            Axis::log("", (1.0, 100.0), [(10.0, "10".to_owned()), (1000.0, "no".to_owned())]);
        assert_eq!(axis.ticks.len(), 1);
        assert!((axis.part(10.0) - 0.5).abs() < 1e-9);
        assert!(axis.part(0.0).is_finite());
    }

    #[test]
    fn picture_is_text_without_markup_of_others() {
        let axis = || Axis::linear("a < b", (0.0, 1.0), 2, |at| format!("{at}"));
        let mut plot = Plot::new(200.0, axis(), axis());
        plot.curve([(0.0, 0.0), (1.0, 1.0)], "sanderling");
        plot.bar((0.0, 0.5), (0.0, 0.5), "seed", "\"quoted\"");
        let svg = plot.svg("two & more");
        assert!(svg.contains("a &lt; b") && svg.contains("&quot;quoted&quot;"), "{svg}");
        assert!(svg.contains("two &amp; more") && !svg.contains("a < b"));
    }
}
