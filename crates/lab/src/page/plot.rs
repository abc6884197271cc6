//! Plots as the page's script reads them: axes and marks, written as JSON.

use serde::Serialize;
use serde_json::{Value, json};

/// Space left of the plotted area for the numbers, unless names stand there. Chosen, not measured:
/// in units of the picture, which is 1140 wide.
const LEFT: f64 = 92.0;

/// How the numbers of an axis are written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct NumberFormat {
    before: &'static str,
    after: &'static str,
    times: f64,
    /// Decimals; without a number, as many as the step between two numbers needs.
    digits: Option<u8>,
}

impl NumberFormat {
    /// A plain number.
    pub(super) const NONE: Self = Self::of("");
    /// Seconds.
    pub(super) const SECONDS: Self = Self::of(" s");
    /// Hours.
    pub(super) const HOURS: Self = Self::of(" h");
    /// Parts of one as per cent.
    pub(super) const PERCENT: Self = Self { before: "", after: " %", times: 100.0, digits: None };
    /// Dollars with cents.
    pub(super) const DOLLARS: Self = Self { before: "$", after: "", times: 1.0, digits: Some(2) };

    const fn of(after: &'static str) -> Self {
        Self { before: "", after, times: 1.0, digits: None }
    }
}

/// One axis: its values, its numbers, and what they count.
#[derive(Debug, Clone)]
pub(super) struct Axis(Value);

impl Axis {
    /// Returns an axis from `low` to `high` with about `count` round numbers.
    pub(super) fn linear(
        name: &str,
        (low, high): (f64, f64),
        count: u32,
        unit: NumberFormat,
    ) -> Self {
        Self(json!({"name": name, "ends": [low, high], "count": count, "unit": unit}))
    }

    /// Returns an axis with a number at every multiple of `step`.
    pub(super) fn stepped(
        name: &str,
        (low, high): (f64, f64),
        step: f64,
        unit: NumberFormat,
    ) -> Self {
        Self(json!({"name": name, "ends": [low, high], "step": step, "unit": unit}))
    }

    /// Returns an axis on which factors are equally long, with these numbers on it.
    pub(super) fn log(
        name: &str,
        (low, high): (f64, f64),
        numbers: impl IntoIterator<Item = (f64, String)>,
    ) -> Self {
        let numbers: Vec<(f64, String)> = numbers.into_iter().collect();
        Self(json!({"name": name, "ends": [low, high], "log": true, "at": numbers}))
    }

    /// Returns an axis of equal places, named one by one: the middle of place `n` is `n + 0.5`.
    pub(super) fn places(names: impl IntoIterator<Item = String>) -> Self {
        let middle = |(place, name)| (place as f64 + 0.5, name);
        let names: Vec<(f64, String)> = names.into_iter().enumerate().map(middle).collect();
        let ends = [0.0, names.len().max(1) as f64];
        Self(json!({"ends": ends, "at": names, "grid": false}))
    }
}

/// A plot with one panel. What is added later lies above.
#[derive(Debug)]
pub(super) struct Plot {
    left: f64,
    height: f64,
    x: Value,
    y: Value,
    marks: Vec<Value>,
}

impl Plot {
    /// Starts a plot whose plotted area has this height.
    pub(super) fn new(height: f64, Axis(x): Axis, Axis(y): Axis) -> Self {
        Self { left: LEFT, height, x, y, marks: Vec::new() }
    }

    /// Starts a plot with that much space left of it for names of places, and a grid upright.
    pub(super) fn beside(left: f64, height: f64, Axis(mut x): Axis, Axis(y): Axis) -> Self {
        x["grid"] = json!(true);
        Self { left, height, x, y, marks: Vec::new() }
    }

    /// Adds a heading at the top.
    pub(super) fn title(&mut self, text: &str) {
        self.y["name"] = json!(text);
    }

    /// Adds a curve of these classes.
    pub(super) fn curve(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let points: Vec<(f64, f64)> = points.into_iter().collect();
        self.marks.push(json!({"kind": "curve", "class": class, "points": points}));
    }

    /// Adds dots of these classes.
    pub(super) fn dots(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let points: Vec<(f64, f64)> = points.into_iter().collect();
        self.marks.push(json!({"kind": "dots", "class": class, "points": points}));
    }

    /// Adds a bar between two values of either axis; `title` is shown under the pointer.
    pub(super) fn bar(&mut self, x: (f64, f64), y: (f64, f64), class: &str, title: &str) {
        self.marks.push(json!({"kind": "bar", "class": class, "x": x, "y": y, "title": title}));
    }

    /// Adds a shaded part of the x axis over the whole height.
    pub(super) fn shade(&mut self, x: (f64, f64), class: &str) {
        self.marks.push(json!({"kind": "bar", "class": class, "x": x}));
    }

    /// Adds a line from below to above at a value of the x axis, with a word at its top.
    pub(super) fn upright(&mut self, x: f64, class: &str, text: &str) {
        self.marks.push(json!({"kind": "line", "class": class, "x": [x, x], "text": text}));
    }

    /// Adds a line from one value of the y axis to another at a value of the x axis.
    pub(super) fn upright_part(&mut self, x: f64, y: (f64, f64), class: &str) {
        self.marks.push(json!({"kind": "line", "class": class, "x": [x, x], "y": y}));
    }

    /// Adds a line across at a value of the y axis, with words above its left end.
    pub(super) fn level(&mut self, y: f64, class: &str, text: &str) {
        self.marks.push(json!({"kind": "line", "class": class, "y": [y, y], "text": text}));
    }

    /// Adds a thin line with ends from one value of the y axis to another, at a value of the x
    /// axis.
    pub(super) fn whisker(&mut self, x: f64, y: (f64, f64)) {
        self.marks.push(json!({"kind": "whisker", "x": x, "y": y}));
    }

    /// Adds words at a point of the plotted values, moved by some units of the picture.
    pub(super) fn label(&mut self, at: (f64, f64), by: (f64, f64), anchor: &str, text: &str) {
        self.marks
            .push(json!({"kind": "text", "at": at, "by": by, "anchor": anchor, "text": text}));
    }

    /// Adds words of a class where there is room for them: right of a point or left of it within
    /// `room`, or right of it the short words. Without room there are none.
    pub(super) fn fitting_label(
        &mut self,
        at: (f64, f64),
        room: (f64, f64),
        class: &str,
        (text, short): (&str, &str),
    ) {
        self.marks.push(json!({
            "kind": "text", "class": class, "at": at, "by": [4.0, 3.0], "room": room,
            "text": text, "short": short,
        }));
    }

    /// Returns the plot; `about` describes it to readers that do not see it.
    pub(super) fn figure(self, about: &str) -> String {
        let Self { left, height, x, y, marks } = self;
        let panel = json!({"height": height, "y": y, "marks": marks});
        let plot = json!({"about": about, "left": left, "x": x, "panels": [panel]});
        sanderling_plot::figure(&plot.to_string())
    }
}

/// Returns a list of what the colours mean: class of the colour, words.
pub(super) fn legend<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let item = |(class, words): (&str, &str)| {
        format!("<li><i class=\"{class}\"></i>{}</li>", sanderling_plot::escaped(words))
    };
    let items: String = entries.into_iter().map(item).collect();
    format!("<ul class=legend>{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_has_axes_and_marks_and_no_markup_of_others() {
        let axis = || Axis::linear("a < b", (0.0, 1.0), 2, NumberFormat::SECONDS);
        let mut plot = Plot::beside(70.0, 200.0, axis(), Axis::places(["</script>".to_owned()]));
        plot.curve([(0.0, 0.0), (1.0, 1.0)], "blue");
        plot.bar((0.0, 0.5), (0.0, 0.5), "amber", "\"quoted\"");
        let figure = plot.figure("two & more");
        assert_eq!(figure.matches("</script>").count(), 1, "{figure}");
        let json = figure.split_once("json\">").unwrap().1.split_once("</script>").unwrap().0;
        let read: Value = serde_json::from_str(json).unwrap();
        assert_eq!((&read["x"]["name"], &read["x"]["grid"]), (&json!("a < b"), &json!(true)));
        assert_eq!(read["panels"][0]["y"]["at"], json!([[0.5, "</script>"]]));
        assert_eq!(read["panels"][0]["marks"][1]["title"], "\"quoted\"");
    }
}
