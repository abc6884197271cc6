//! The event log: a hash of it always, its text on request.

/// What happened so far.
#[derive(Debug)]
pub(crate) struct Log {
    digest: u64,
    lines: Option<Vec<String>>,
}

impl Log {
    pub(crate) const fn new(keep: bool) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, lines: if keep { Some(Vec::new()) } else { None } }
    }

    /// Notes an event: a number for its kind, one for its content, and its text if it is kept. An
    /// empty text is counted but not shown.
    pub(crate) fn event(&mut self, now: u64, kind: u64, code: u64, text: impl FnOnce() -> String) {
        // FNV-1a over words (http://www.isthe.com/chongo/tech/comp/fnv/).
        for word in [now, kind, code] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3);
            self.digest ^= self.digest >> 29;
        }
        if let Some(lines) = &mut self.lines {
            let text = text();
            if !text.is_empty() {
                lines.push(format!("{:>12.3} ms  {text}", now as f64 / 1000.0));
            }
        }
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
