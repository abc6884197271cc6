//! The filter of the process's log, as its pages show and change it. What writes the log sets it
//! up; the filter belongs to the process, as the log does.

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Longest filter that is accepted: a level for each part of the program, many times over. Chosen,
/// not measured.
pub const LOG_FILTER_BYTES_MAX: usize = 1024;

/// The reason why the process's log does not take a filter. The cause is an error of the library
/// that filters the log, which only the process that sets the log up has.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct LogFilterError {
    source: Box<dyn Error + Send + Sync>,
}

/// Makes a filter current.
type Change = Box<dyn Fn(&str) -> Result<(), LogFilterError> + Send + Sync>;

static CONTROL: OnceLock<LogControl> = OnceLock::new();

/// The current filter of the log, and how it is changed.
pub struct LogControl {
    first: String,
    current: Mutex<String>,
    change: Change,
}

/// A reason why the filter of the log was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LogControlError {
    /// The server runs inside another program, which has set up the log itself.
    #[error("another program in this process controls the log: set its filter there")]
    Foreign,
    /// The text is too long for a filter.
    #[error("a filter has at most {LOG_FILTER_BYTES_MAX} bytes")]
    TooLong,
    /// The text is no filter: give one as the cause describes it.
    #[error("{0}")]
    Filter(#[source] LogFilterError),
}

impl LogFilterError {
    /// Wraps the cause, whose text becomes that of this error.
    #[must_use]
    pub fn new(source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Box::new(source) }
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogControl").field("current", &self.current).finish()
    }
}

impl LogControl {
    /// Sets up the control of this process's log; a second one is ignored, as a second log is.
    /// `change` makes a filter current, or leaves the one of before and returns what is wrong:
    /// [`Self::set`] returns that to the operator.
    pub fn install(
        filter: &str,
        change: impl Fn(&str) -> Result<(), LogFilterError> + Send + Sync + 'static,
    ) {
        let (first, current) = (filter.to_owned(), Mutex::new(filter.to_owned()));
        let _ = CONTROL.set(Self { first, current, change: Box::new(change) });
    }

    /// Returns the control that reads and changes the filter of this process's log.
    ///
    /// # Errors
    /// [`LogControlError::Foreign`] in a process whose log another program has set up: its filter
    /// is changed there.
    pub fn of_process() -> Result<&'static Self, LogControlError> {
        CONTROL.get().ok_or(LogControlError::Foreign)
    }

    /// Returns the filter of the log that counts now, as text.
    #[must_use]
    pub fn current(&self) -> String {
        self.current.lock().clone()
    }

    /// Returns the filter that the process started with.
    #[must_use]
    pub fn first(&self) -> &str {
        &self.first
    }

    /// Replaces the log's filter for all events from now on, and logs that as a warning.
    ///
    /// # Errors
    /// [`LogControlError::TooLong`] and [`LogControlError::Filter`]: correct the filter; the one of
    /// before stays.
    pub fn set(&self, filter: &str) -> Result<(), LogControlError> {
        if filter.len() > LOG_FILTER_BYTES_MAX {
            return Err(LogControlError::TooLong);
        }
        let mut current = self.current.lock();
        let from = current.clone();
        (self.change)(filter).map_err(LogControlError::Filter)?;
        tracing::warn!(from, to = filter, "the log has another filter");
        *current = filter.to_owned();
        Ok(())
    }

    /// Returns a JSON object with the filter that counts now and the one at the process's start.
    #[must_use]
    pub fn page(&self) -> Value {
        json!({ "filter": self.current(), "filter_at_start": self.first })
    }
}
