//! Pages with plots: one file that loads nothing. The lab, the demonstration, and the comparisons
//! of `bench/` fill the same frame. A plot is JSON in the page, and the page's script draws it.
//!
//! The form of that JSON is what `static/plot.js` reads: an `x` axis, and `panels` below each
//! other, each with a `y` axis, a `height` and `marks`.

/// The script that draws the plots of a page. It is a module: the web console imports parts of it.
pub const SCRIPT: &str = include_str!("../static/plot.js");

/// The style of pages.
const STYLE: &str = include_str!("../static/plot.css");

const FRAME: &str = include_str!("../static/page.html");

/// What leads a page: what was found, and whether it is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headline {
    /// One or two sentences.
    pub text: String,
    /// Whether everything was reached.
    pub is_good: bool,
}

/// Returns a page with this title, which is text, and this body, which is HTML with [`figure()`]s.
#[must_use]
pub fn page(title: &str, verdict: Option<&Headline>, body: &str) -> String {
    let verdict = verdict.map_or_else(String::new, |it| {
        let class = if it.is_good { "verdict" } else { "verdict bad" };
        format!("<p class=\"{class}\">{}</p>", escaped(&it.text))
    });
    FRAME
        .replace("<!--title-->", &escaped(title))
        .replace("<!--style-->", STYLE)
        .replace("<!--version-->", env!("CARGO_PKG_VERSION"))
        .replace("<!--verdict-->", &verdict)
        .replace("<!--script-->", SCRIPT)
        .replace("<!--body-->", body)
}

/// Returns the element of a plot that is described by this JSON.
#[must_use]
pub fn figure(json: &str) -> String {
    // JSON has this letter in strings alone. `</script>` or `<!--` would end or hide the element.
    let safe = json.replace('<', "\\u003c");
    format!(
        "<div class=picture><script class=plot type=\"application/json\">{safe}</script></div>\n"
    )
}

/// Returns a text that HTML reads as it is.
#[must_use]
pub fn escaped(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_needs_nothing_from_elsewhere() {
        let verdict = Headline { text: "all is <well>".to_owned(), is_good: false };
        let page = page("One & two", Some(&verdict), &figure("{\"about\": \"</script><!--\"}"));
        assert!(page.contains("One &amp; two") && page.contains("verdict bad\">all is &lt;well"));
        assert!(!page.contains("<!--"), "a part is missing, or a text became markup");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("prefers-color-scheme: dark"));
        // The name space of SVG is a name, and nothing is fetched from it.
        let text = page.replace("http://www.w3.org/2000/svg", "");
        for other in ["http://", "https://", "url(", "@import", " src=", " href=", "innerHTML"] {
            assert!(!text.contains(other), "{other}");
        }
    }

    #[test]
    fn files_have_short_lines() {
        for file in [SCRIPT, STYLE, FRAME] {
            assert_eq!(file.lines().find(|line| line.chars().count() > 100), None);
        }
    }
}
