//! What crates, modules and files may not be called: names without a meaning.

use crate::Problem;
use crate::tree::SourceFile;

/// Names of leftovers.
const LEFTOVERS: [&str; 8] =
    ["common", "util", "utils", "helper", "helpers", "types", "misc", "shared"];

/// Checks every directory and file name.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    files.iter().filter_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Option<Problem> {
    let stem = |component: &str| component.split('.').next().unwrap_or_default().to_owned();
    let name = file.path.split('/').map(stem).find(|stem| LEFTOVERS.contains(&stem.as_str()))?;
    Some(Problem::new(&file.path, 0, format!("{name:?} has no meaning: name it by its noun")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_leftovers_is_a_problem() {
        for path in ["crates/common/src/lib.rs", "crates/core/src/util.rs", "a/helpers/b.py"] {
            assert_eq!(check(&[SourceFile::new(path, "")]).len(), 1, "{path}");
        }
        assert_eq!(check(&[SourceFile::new("crates/core/src/block_table.rs", "")]), []);
    }
}
