//! The files of the web console, which are part of the program: a page never needs another site.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// One file of the console, as the namenode serves it. It is part of the program, so its text is
/// that of this build.
#[derive(Debug)]
pub struct Asset {
    /// Where it is served.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Its `ETag`, in quotes: another one when the text differs.
    pub etag: String,
}

/// What browsers are allowed to do with the files: to run the console's own scripts, which may call
/// their own server, and nothing else. No other page may frame it.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let file = |path, media_type, text: &'static str| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Asset { path, media_type, text, etag: format!("\"{:016x}\"", hasher.finish()) }
    };
    vec![
        file("/", HTML, include_str!("../static/index.html")),
        file("/console/app.js", SCRIPT, include_str!("../static/app.js")),
        file("/console/stream.js", SCRIPT, include_str!("../static/stream.js")),
        file("/console/text.js", SCRIPT, include_str!("../static/text.js")),
        file("/console/fleet.js", SCRIPT, include_str!("../static/fleet.js")),
        file("/console/plot.js", SCRIPT, sanderling_plot::SCRIPT),
        file("/console/charts.js", SCRIPT, include_str!("../static/charts.js")),
        file("/console/acts.js", SCRIPT, include_str!("../static/acts.js")),
        file("/console/lists.js", SCRIPT, include_str!("../static/lists.js")),
        file("/console/style.css", "text/css; charset=utf-8", include_str!("../static/style.css")),
        file("/console/icon.svg", "image/svg+xml", include_str!("../static/icon.svg")),
    ]
});

/// Returns all files, for a server that lists or counts them.
#[must_use]
pub fn assets() -> &'static [Asset] {
    &ASSETS
}

/// Returns the file that is served at a path, which begins with a slash; `None` if there is none.
#[must_use]
pub fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// Returns a word that differs when any file does, by which a page notices that its server was
/// upgraded.
#[must_use]
pub fn version() -> String {
    let mut hasher = DefaultHasher::new();
    ASSETS.iter().for_each(|asset| asset.etag.hash(&mut hasher));
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small_and_refer_to_no_other_site() {
        let bytes: usize = assets().iter().map(|asset| asset.text.len()).sum();
        assert!(bytes <= 250_000, "{bytes}");
        for asset in assets() {
            // The name space of SVG is a name, and nothing is fetched from it.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for other in ["http://", "https://", "//cdn", "innerHTML", "outerHTML", "eval("] {
                assert!(!text.contains(other), "{} in {}", other, asset.path);
            }
        }
    }

    #[test]
    fn page_has_no_inline_script_or_style_and_refers_to_files_that_are_there() {
        let page = asset("/").unwrap().text;
        assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("onclick"));
        assert_eq!(page.matches("<script").count(), page.matches("src=\"/console/").count());
        for part in page.split("\"/console/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(asset(&format!("/console/{name}")).is_some(), "{name}");
        }
    }

    #[test]
    fn lines_are_as_short_as_elsewhere() {
        for asset in assets() {
            let long = asset.text.lines().find(|line| line.chars().count() > 100);
            assert_eq!(long, None, "{}", asset.path);
            assert!(asset.text.lines().count() <= 800, "{}", asset.path);
        }
    }
}
