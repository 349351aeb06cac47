//! System calls in `perf script`: `syscalls:sys_enter_read: fd: 0x3, ...` when a call begins, and
//! `syscalls:sys_exit_read: 0x1000` when it has ended.

use super::calls::{At, Call, Follower, PROCESSES_MAX, is_fork};
use super::labels::in_order;
use super::line::number;
use super::record::Record;
use std::collections::BTreeMap;

/// A call that has begun.
struct Begun {
    name: Vec<u8>,
    text: Vec<u8>,
    time_ns: u64,
}

/// Pairs beginnings with ends.
#[derive(Default)]
pub(super) struct PerfCalls {
    follower: Follower,
    /// By thread.
    begun: BTreeMap<u32, Begun>,
}

/// What an event of a call is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment<'a> {
    Enter(&'a [u8]),
    Exit(&'a [u8]),
}

/// Which moment of which call an event is, if it is one.
pub(super) fn moment(event: &[u8]) -> Option<Moment<'_>> {
    let event = event.strip_prefix(b"syscalls:").unwrap_or(event);
    let enter = event.strip_prefix(b"sys_enter_").map(Moment::Enter);
    enter.or_else(|| event.strip_prefix(b"sys_exit_").map(Moment::Exit))
}

impl PerfCalls {
    /// The next record that calls have given rise to.
    pub fn take(&mut self) -> Option<Record> {
        self.follower.take()
    }

    /// One event; `text` is what stands behind its name.
    pub fn event(
        &mut self,
        thread: u32,
        time_ns: u64,
        moment: Moment<'_>,
        text: &[u8],
    ) -> Result<(), &'static str> {
        match moment {
            Moment::Enter(name) => {
                if self.begun.len() >= PROCESSES_MAX {
                    return Err("too many unfinished calls");
                }
                // It does not return.
                if name == b"exit_group" || name == b"exit" {
                    self.follower.ends(At { pid: thread, time_ns });
                    return Ok(());
                }
                // The child's calls may come before the parent's return.
                if is_fork(name) {
                    self.follower.call_begins(thread, name, &in_order(name, &arguments(text)))?;
                }
                self.begun.insert(thread, Begun { name: name.to_vec(), text: text.to_vec(), time_ns });
                Ok(())
            }
            Moment::Exit(name) => self.end(thread, name, text),
        }
    }

    fn end(&mut self, thread: u32, name: &[u8], text: &[u8]) -> Result<(), &'static str> {
        // It began before the trace did, or it is the child's half of a fork.
        let Some(begun) = self.begun.remove(&thread).filter(|begun| begun.name == name) else {
            return Ok(());
        };
        let result = number(text.trim_ascii()).ok_or("a call's result is not a number")?;
        let call = Call {
            name,
            arguments: in_order(name, &arguments(&begun.text)),
            // Errors are small negative numbers.
            result: (result as i64 >= 0).then_some(result),
            result_name: None,
        };
        self.follower.call(At { pid: thread, time_ns: begun.time_ns }, &call)
    }
}

fn arguments(text: &[u8]) -> Vec<&[u8]> {
    text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect()
}
