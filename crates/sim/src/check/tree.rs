//! Comparing the whole tree with the model.

use std::collections::BTreeMap;

use sanderling_protocol::{Path, Reply, Request};

use super::names::{NameModel, differs, parent_of};
use super::view::View;
use crate::runtime::CheckResult;

/// Checks that the whole tree is that of the model.
pub(super) fn check(view: View<'_>, names: &NameModel) -> CheckResult {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for (path, entry) in &names.entries {
        let at: Path = path.parse().expect("the model's paths are good");
        let Ok(Reply::Stat(stat)) = view.peek(&Request::Stat { path: at }) else {
            return differs(path, "there", "not there");
        };
        if (stat.object, stat.kind, &stat.attributes)
            != (entry.object, entry.kind, &entry.attributes)
        {
            return differs(path, entry, (stat.object, stat.kind, stat.attributes));
        }
        if entry.is_listed {
            *listed.entry(parent_of(path).to_owned()).or_default() += 1;
        }
        if entry.kind.is_container() {
            listed.entry(path.clone()).or_default();
        }
    }
    for (path, count) in listed {
        let path: Path = if path.is_empty() { Path::root() } else { path.parse().expect("good") };
        let request = Request::List {
            path: path.clone(),
            after: String::new(),
            limit: 1000,
            with_attributes: false,
        };
        match view.peek(&request) {
            Ok(Reply::Entries { entries, .. }) if entries.len() == count => {}
            found => return differs(path.as_str(), count, found),
        }
    }
    Ok(())
}
