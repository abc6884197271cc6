//! Where the pages are that a text cites: a directory of a package, `docs/` of a checkout, or the
//! site of the documentation.

use std::path::{Path, PathBuf};

/// Where a package has the pages, below the prefix of its program.
const INSTALLED: &str = "share/doc/sanderling/docs";

/// How the path of a page begins in a checkout.
const CHECKOUT: &str = "docs/";

/// The site of the documentation, which has the pages of a checkout: the address in Cargo.toml.
const SITE: &str = "https://sanderling.example/docs/";

/// Returns a text of one line with the pages that it cites, such as `docs/CLI.md`, as the reader
/// finds them: where a package has put them; in a checkout, by their paths there; else by their
/// addresses.
#[must_use]
pub fn cited(text: &str) -> String {
    let program = std::env::current_exe().ok();
    let installed = program.and_then(|program| installed_with(&program));
    cited_in(text, installed.as_deref(), Path::new(""))
}

/// Returns the address of a page, such as `docs/CLI.md`, on the site.
#[must_use]
pub fn on_site(page: &str) -> String {
    let name = page.strip_prefix(CHECKOUT).unwrap_or(page);
    format!("{SITE}{}", name.replacen(".md", ".html", 1))
}

/// Returns the directory of the pages that a package installed with a program, `PREFIX/bin/NAME`;
/// `None` without one, as in a checkout.
fn installed_with(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    Some(prefix.join(INSTALLED)).filter(|pages| pages.is_dir())
}

/// Returns a text with the pages that it cites as a reader in `directory` finds them: below
/// `installed`, else in the directory, if it is that of a checkout, else on the site.
fn cited_in(text: &str, installed: Option<&Path>, directory: &Path) -> String {
    let words = text.split(' ').map(|word| match (word.strip_prefix(CHECKOUT), installed) {
        (Some(page), Some(pages)) => pages.join(page).display().to_string(),
        (Some(page), None) if !is_in(directory, page) => on_site(page),
        _ => word.to_owned(),
    });
    words.collect::<Vec<String>>().join(" ")
}

/// Returns whether a directory is that of a checkout with a page; the page may have an anchor.
fn is_in(directory: &Path, page: &str) -> bool {
    let name = page.split_once(".md").map_or(page, |(name, _)| name);
    directory.join(CHECKOUT).join(format!("{name}.md")).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_step_cites_the_files_of_a_package() {
        let pages = Path::new("/usr/share/doc/sanderling/docs");
        for (mend, shown) in [
            ("docs/UPGRADING.md", "/usr/share/doc/sanderling/docs/UPGRADING.md"),
            ("a: docs/CLI.md#jobs; or b", "a: /usr/share/doc/sanderling/docs/CLI.md#jobs; or b"),
            ("look at /srv/docs/a", "look at /srv/docs/a"),
            ("its log, its load", "its log, its load"),
        ] {
            assert_eq!(cited_in(mend, Some(pages), Path::new("/none")), shown);
        }
    }

    #[test]
    fn next_step_without_a_package_cites_the_checkout_or_the_site() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (mend, shown) in [
            ("docs/UPGRADING.md", "https://sanderling.example/docs/UPGRADING.html"),
            (
                "a: docs/CLI.md#diagnosis; or b",
                "a: https://sanderling.example/docs/CLI.html#diagnosis; or b",
            ),
            ("its log, its load", "its log, its load"),
        ] {
            assert_eq!(cited_in(mend, None, Path::new("/none")), shown);
            assert_eq!(cited_in(mend, None, &checkout), mend);
        }
        assert_eq!(on_site("docs/UPGRADING.md"), "https://sanderling.example/docs/UPGRADING.html");
        let workspace = std::fs::read_to_string(checkout.join("Cargo.toml")).expect("it is there");
        assert!(workspace.contains(&format!("documentation = \"{SITE}\"\n")), "{SITE}");
    }

    #[test]
    fn program_without_pages_beside_it_has_none() {
        for program in ["/none/bin/sanderling", "sanderling", "/"] {
            assert_eq!(installed_with(Path::new(program)), None, "{program}");
        }
    }
}
