//! Where the pages are that a next step cites: `docs/` of a checkout, or a directory of a package.

use std::path::{Path, PathBuf};

/// Where a package has the pages, below the prefix of its program.
const INSTALLED: &str = "share/doc/sanderling/docs";

/// How the path of a page begins in a checkout.
const CHECKOUT: &str = "docs/";

/// Returns the directory of the pages that a package installed with a program, `PREFIX/bin/NAME`;
/// `None` without one, as in a checkout.
pub(super) fn installed_with(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    Some(prefix.join(INSTALLED)).filter(|pages| pages.is_dir())
}

/// Returns a next step with the pages that it cites as paths of files below `pages`.
pub(super) fn cited(mend: &str, pages: &Path) -> String {
    let words = mend.split(' ').map(|word| match word.strip_prefix(CHECKOUT) {
        Some(page) => pages.join(page).display().to_string(),
        None => word.to_owned(),
    });
    words.collect::<Vec<String>>().join(" ")
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
            assert_eq!(cited(mend, pages), shown);
        }
    }

    #[test]
    fn program_without_pages_beside_it_has_none() {
        for program in ["/none/bin/sanderling", "sanderling", "/"] {
            assert_eq!(installed_with(Path::new(program)), None, "{program}");
        }
    }
}
