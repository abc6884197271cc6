//! Stops the command of a task at the end of its lease, and lets it go on at the next confirmation:
//! the side of the process that the runner has beside it. When, `CommandLease` of
//! `core::checkpoint` decides.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sanderling_protocol::Instant;

/// The length of an end of a lease, as the runner writes it.
const END_BYTES: usize = size_of::<u64>();

/// What is stopped at the end of a lease.
pub(crate) trait LeasedCommand {
    /// Takes the newest end of the lease if one has come, does what is due, and returns when it is
    /// to be called again, if no later end comes before.
    fn attend(&mut self, end: Option<Instant>) -> Instant;
}

/// What a pipe has brought.
#[derive(Debug, PartialEq, Eq)]
enum LeaseInput {
    /// The newest end of the lease.
    End(Instant),
    Nothing,
    /// It is closed: the runner has ended, or the command has.
    Closed,
}

/// Waits for the first end of a lease; `None` if the pipe is closed before.
///
/// # Errors
/// The kernel's: nothing stops the command then.
pub(crate) fn first_end(pipe: impl AsFd) -> io::Result<Option<Instant>> {
    loop {
        match receive(&pipe)? {
            LeaseInput::End(end) => return Ok(Some(end)),
            LeaseInput::Nothing => {}
            LeaseInput::Closed => return Ok(None),
        }
    }
}

/// Attends to a command until its pipe is closed.
///
/// # Errors
/// The kernel's: nothing stops the command then.
pub(crate) fn watch(pipe: impl AsFd, command: &mut impl LeasedCommand) -> io::Result<()> {
    let pipe = pipe.as_fd();
    // Other timers stand still while the machine is suspended.
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
    let mut received = LeaseInput::Nothing;
    loop {
        let end = match received {
            LeaseInput::End(newest) => Some(newest),
            LeaseInput::Nothing => None,
            LeaseInput::Closed => return Ok(()),
        };
        let next = command.attend(end);
        let at = Itimerspec { it_interval: Timespec::default(), it_value: timespec(next) };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at)?;
        let mut files = [PollFd::new(&pipe, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
        match poll(&mut files, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        received = match files[0].revents().is_empty() {
            true => LeaseInput::Nothing,
            false => receive(pipe)?,
        };
    }
}

/// Reads what a pipe has, or waits until it has something. Each end was written at once, so that
/// none is cut.
fn receive(pipe: impl AsFd) -> io::Result<LeaseInput> {
    let mut bytes = [0_u8; 64 * END_BYTES];
    let count = retry_on_intr(|| rustix::io::read(&pipe, &mut bytes))?;
    if count == 0 {
        return Ok(LeaseInput::Closed);
    }
    let (ends, _) = bytes[..count].as_chunks::<END_BYTES>();
    let newest = ends.iter().map(|end| Instant(u64::from_le_bytes(*end))).max();
    Ok(newest.map_or(LeaseInput::Nothing, LeaseInput::End))
}

/// Returns a time as the kernel has it. Zero would be no time.
fn timespec(at: Instant) -> Timespec {
    let micros = at.0.max(1);
    let seconds = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: ((micros % 1_000_000) * 1000).cast_signed() }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use sanderling_protocol::Millis;

    use super::*;
    use crate::boot_clock::since_boot;

    /// Notes what it gets. The second time it sends another end, and the third time it closes the
    /// pipe.
    struct Noted {
        ends: Vec<Option<Instant>>,
        writer: Option<io::PipeWriter>,
    }

    impl LeasedCommand for Noted {
        fn attend(&mut self, end: Option<Instant>) -> Instant {
            self.ends.push(end);
            match self.ends.len() {
                2 => {
                    let writer = self.writer.as_mut().expect("it is open");
                    writer.write_all(&11_u64.to_le_bytes()).expect("written");
                }
                3 => self.writer = None,
                _ => {}
            }
            let pause = if self.ends.len() == 1 { 1 } else { 3_600_000 };
            since_boot() + Millis(pause)
        }
    }

    #[test]
    fn command_is_attended_to_at_each_end_and_at_its_time() {
        let (reader, mut writer) = pipe().expect("a pipe");
        for end in [5_u64, 9, 7] {
            writer.write_all(&end.to_le_bytes()).expect("written");
        }
        assert_eq!(first_end(&reader).expect("read"), Some(Instant(9)));
        let mut noted = Noted { ends: Vec::new(), writer: Some(writer) };
        watch(&reader, &mut noted).expect("it is watched");
        assert_eq!(noted.ends, [None, None, Some(Instant(11))]);
        assert_eq!(first_end(&reader).expect("read"), None);
    }

    #[test]
    fn pipe_without_a_writer_is_closed_and_what_is_cut_is_none() {
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(&[1; 3]).expect("written");
        assert_eq!(receive(&reader).expect("read"), LeaseInput::Nothing);
        drop(writer);
        assert_eq!(receive(&reader).expect("read"), LeaseInput::Closed);
    }

    #[test]
    fn times_are_those_of_the_kernel() {
        let of = |micros| timespec(Instant(micros));
        assert_eq!(of(0), Timespec { tv_sec: 0, tv_nsec: 1000 });
        assert_eq!(of(2_000_003), Timespec { tv_sec: 2, tv_nsec: 3000 });
        assert_eq!(of(u64::MAX).tv_sec, 18_446_744_073_709);
    }
}
