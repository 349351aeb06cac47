//! Children that this process has made a moment ago, by /proc: do they run, and what for?
//!
//! Nothing is found where /proc does not say whose children are whose (CONFIG_PROC_CHILDREN), or where
//! a child was made as its maker's sibling (CLONE_PARENT).

use core::ffi::CStr;

use crate::file::{self, Open};
use crate::procfs::{TASK_PATH_BYTES, for_each_entry, for_each_thread_id, stat_field, state_in, task_path};
use crate::text::{Decimal, joined, take_number};
use crate::{Errno, Fd};

/// A unit of the times in /proc/PID/stat: USER_HZ is 100 on all that this runs on.
const TICK_NS: u64 = 10_000_000;
/// The field of /proc/PID/stat, behind the name, that says when it was made.
const MADE: usize = 19;
/// Longest path: of a thread of a child.
const PATH_BYTES: usize = 64;
/// Longest /proc/PID/stat.
const STAT_BYTES: usize = 1024;

/// What a child is about at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// One of its threads at least is stopped, by a signal or by who traces it.
    pub is_stopped: bool,
    /// All of its threads sleep.
    pub is_asleep: bool,
    /// How many it has.
    pub threads: u32,
    /// For so long they have run; 0 where the kernel does not count that.
    pub ran_ns: u64,
}

/// Calls `visit` for each child that was made at `since` (by [`crate::clock::boottime_ns`]) or later; one of
/// the last hundredth before may be told, too.
pub fn for_each_young(since: u64, mut visit: impl FnMut(Look)) -> Result<(), Errno> {
    let since = (since / TICK_NS).saturating_sub(1);
    for_each_thread_id(|thread| {
        let mut path = [0; TASK_PATH_BYTES];
        let Ok(list) = file::open(task_path(thread.in_proc, b"/children", &mut path), Open::empty()) else {
            return;
        };
        let _ = for_each_number(&list, |pid| {
            if let Some(look) = look_at(pid, since) {
                visit(look);
            }
        });
    })
}

/// Numbers with blanks behind each.
fn for_each_number(file: &Fd, mut visit: impl FnMut(u64)) -> Result<(), Errno> {
    let (mut buffer, mut at) = ([0; 512], 0);
    loop {
        let len = file::pread(file, &mut buffer, at)?;
        // What lies across the end of the buffer is read again.
        let Some(whole) = buffer[..len].iter().rposition(|&byte| byte == b' ') else { return Ok(()) };
        for word in buffer[..whole].split(|&byte| byte == b' ') {
            if let Some((number, [])) = take_number(word, 10) {
                visit(number);
            }
        }
        at += whole as u64 + 1;
    }
}

/// None: it is older, or gone.
fn look_at(pid: u64, since: u64) -> Option<Look> {
    let (process, mut stat) = (Decimal::new(pid), [0; STAT_BYTES]);
    let made = stat_field(read([b"/proc/", process.as_bytes(), b"/stat"], &mut stat)?, MADE)?;
    if take_number(made, 10)?.0 < since {
        return None;
    }
    let tasks: [u8; PATH_BYTES] = joined([b"/proc/", process.as_bytes(), b"/task"]);
    let tasks = file::open(CStr::from_bytes_until_nul(&tasks).ok()?, Open::DIRECTORY).ok()?;
    let mut look = Look { is_asleep: true, ..Look::default() };
    let _ = for_each_entry(&tasks, |name| {
        if !name.iter().all(u8::is_ascii_digit) {
            return;
        }
        let (mut stat, mut ran) = ([0; STAT_BYTES], [0; STAT_BYTES]);
        let path = |file| [b"/proc/", process.as_bytes(), b"/task/", name, file];
        let state = read(path(b"/stat"), &mut stat).and_then(state_in);
        let ran = read(path(b"/schedstat"), &mut ran).and_then(|ran| take_number(ran, 10));
        look.threads += 1;
        look.is_stopped |= matches!(state, Some(b'T' | b't'));
        look.is_asleep &= state == Some(b'S');
        look.ran_ns += ran.map_or(0, |(ns, _)| ns);
    });
    (look.threads > 0).then_some(look)
}

/// The first bytes of a file whose path has these parts.
fn read<'a, const N: usize>(path: [&[u8]; N], buffer: &'a mut [u8; STAT_BYTES]) -> Option<&'a [u8]> {
    let path: [u8; PATH_BYTES] = joined(path);
    let file = file::open(CStr::from_bytes_until_nul(&path).ok()?, Open::empty()).ok()?;
    let len = file::pread(&file, buffer, 0).ok()?;
    Some(&buffer[..len])
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::vec::Vec;

    use super::*;
    use crate::clock;

    fn young(since: u64) -> Vec<Look> {
        let mut looks = Vec::new();
        for_each_young(since, |look| looks.push(look)).unwrap();
        looks
    }

    fn signal(child: &Child, signal: &str) {
        let pid = std::format!("{}", child.id());
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// All in one test: others of this process make children, too.
    #[test]
    fn a_child_sleeps_is_stopped_and_goes_on() {
        let begun = clock::boottime_ns();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let eventually = |is_so: &dyn Fn(&Look) -> bool| {
            let until = clock::monotonic_ns() + 20_000_000_000;
            while !young(begun).iter().any(is_so) {
                assert!(clock::monotonic_ns() < until, "{:?}", young(begun));
            }
        };
        eventually(&|look| look.is_asleep && look.threads == 1 && look.ran_ns > 0 && !look.is_stopped);
        signal(&child, "-STOP");
        eventually(&|look| look.is_stopped && !look.is_asleep);
        assert_eq!(young(begun + 60_000_000_000), [], "none was made then");
        signal(&child, "-CONT");
        eventually(&|look| look.is_asleep);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
