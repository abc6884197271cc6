//! The values of a page of metrics.

use std::collections::BTreeMap;

/// The values of a page in the text format of OpenMetrics, by name with labels.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricPage(BTreeMap<String, f64>);

impl MetricPage {
    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(lines.filter_map(value).collect())
    }

    /// Returns a value; `None` if the server is of a release that does not have it.
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Returns a value that counts something.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.get(name).filter(|value| *value >= 0.0).map(|value| value as u64)
    }

    /// Returns a label of the first metric of a name.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<&str> {
        let begin = format!("{name}{{");
        let labels = self.0.keys().find_map(|key| key.strip_prefix(&begin))?;
        let (_, rest) = labels.split_once(&format!("{label}=\""))?;
        rest.split('"').next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_labels_are_read() {
        let page = "# HELP x y\nx_bytes 12\nbuild_info{role=\"a\",version=\"0.1.0\"} 1\n# EOF\n";
        let figures = MetricPage::read(page);
        assert_eq!(figures.count("x_bytes"), Some(12));
        assert_eq!(figures.get("y"), None);
        assert_eq!(figures.label("build_info", "version"), Some("0.1.0"));
        assert_eq!(figures.label("build_info", "none"), None);
    }
}
