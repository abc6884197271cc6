//! One span, until it ends.

use std::fmt::Display;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sanderling_protocol::TraceContext;

use super::Tracer;

/// Longest text of a span in bytes: a path may be 32 KiB long. The 8,192 spans that may wait have
/// 2 MiB of such texts, one in each. Chosen, not measured.
const TEXT_BYTES_MAX: usize = 256;

/// The side of a call that a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within a process.
    Internal,
    /// The answer to a call.
    Server,
    /// A call, until its answer.
    Client,
}

/// The value of an attribute of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text of bounded length.
    Text(String),
    /// A number.
    Number(u64),
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedSpan {
    /// What was done.
    pub name: &'static str,
    /// Which side of a call it is.
    pub kind: SpanKind,
    /// Its trace.
    pub trace: u128,
    /// Its own id.
    pub span: u64,
    /// The span that it belongs to, if it is not the first of its trace.
    pub parent: Option<u64>,
    /// When it began, in nanoseconds of Unix time.
    pub began_nanos: u64,
    /// When it ended.
    pub ended_nanos: u64,
    /// What it was about.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// A span that has begun. It ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    tracer: &'static Tracer,
    began: Instant,
    /// Taken when it ends. In a box: a call keeps a word for it, sampled or not.
    span: Option<Box<FinishedSpan>>,
    context: TraceContext,
}

impl Span {
    pub(super) fn new(
        tracer: &'static Tracer,
        name: &'static str,
        kind: SpanKind,
        trace: u128,
        parent: Option<u64>,
    ) -> Option<Self> {
        let span = tracer.span_id()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let finished = FinishedSpan {
            name,
            kind,
            trace,
            span,
            parent,
            began_nanos,
            ended_nanos: began_nanos,
            attributes: Vec::new(),
            error: None,
        };
        let context = TraceContext { trace, span };
        Some(Self { tracer, began: Instant::now(), span: Some(Box::new(finished)), context })
    }

    /// Returns the span's trace and id, for spans that have this one as their parent.
    #[must_use]
    pub const fn context(&self) -> TraceContext {
        self.context
    }

    /// Names what was done.
    pub(super) fn rename(&mut self, name: &'static str) {
        if let Some(span) = &mut self.span {
            span.name = name;
        }
    }

    /// Adds an attribute that is a number, such as a count of bytes.
    pub fn number(&mut self, key: &'static str, value: u64) {
        if let Some(span) = &mut self.span {
            span.attributes.push((key, SpanValue::Number(value)));
        }
    }

    /// Adds an attribute that is a text, cut at 256 bytes.
    pub fn text(&mut self, key: &'static str, value: &impl Display) {
        if let Some(span) = &mut self.span {
            span.attributes.push((key, SpanValue::Text(bounded(value.to_string()))));
        }
    }

    /// Marks the span as failed, with the error as the reason.
    pub fn fail(&mut self, error: &impl Display) {
        if let Some(span) = &mut self.span {
            span.error = Some(bounded(error.to_string()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(mut span) = self.span.take() else { return };
        // The wall clock may step: a span's length is that of the other one.
        let took = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        span.ended_nanos = span.began_nanos.saturating_add(took);
        self.tracer.finished(*span);
    }
}

fn bounded(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_two_letters() {
        assert_eq!(bounded("a".repeat(256)).len(), 256);
        let cut = bounded(format!("a{}", "é".repeat(200)));
        assert_eq!((cut.len(), cut.chars().last()), (255, Some('é')));
    }
}
