//! What system call a thread of this process is in.

use crate::file::{self, Open};
use crate::mem;
use crate::procfs::{TASK_PATH_BYTES, for_each_thread_id, process_id_in_proc, task_path};
use crate::text::{skip_blanks, take_number};

/// Number and arguments of a call.
pub type Call = (u32, [usize; 6]);

/// The call that a thread is in, by its number in /proc; `None`: it is in none, runs, or has ended.
#[must_use]
pub fn call_of(in_proc: u32) -> Option<Call> {
    let (mut path, mut text) = ([0; TASK_PATH_BYTES], [0; 256]);
    let file = file::open(task_path(in_proc, b"/syscall", &mut path), Open::empty()).ok()?;
    let len = file::pread(&file, &mut text, 0).ok()?;
    parse(&text[..len])
}

/// The number in /proc of a thread, by its own.
#[must_use]
pub fn number_in_proc(tid: u32) -> Option<u32> {
    if process_id_in_proc() == Ok(mem::process_id()) {
        return Some(tid);
    }
    let mut found = None;
    let _ = for_each_thread_id(|thread| {
        if thread.tid == tid {
            found = Some(thread.in_proc);
        }
    });
    found
}

fn parse(text: &[u8]) -> Option<Call> {
    let (number, mut rest) = take_number(text, 10)?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        let (value, after) = take_number(skip_blanks(rest).strip_prefix(b"0x")?, 16)?;
        (*argument, rest) = (value as usize, after);
    }
    Some((u32::try_from(number).ok()?, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_number_and_six_arguments() {
        let text = b"25 0x7f00 0x1000 0x2000 0x1 0x0 0x8 0x7ffc 0x7f11\n";
        assert_eq!(parse(text), Some((25, [0x7f00, 0x1000, 0x2000, 1, 0, 8])));
        for other in [&b"running\n"[..], b"-1 0x7ffc 0x7f11\n", b"25 0x1 0x2\n", b""] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn a_thread_that_waits_is_seen_to() {
        let (tell, told) = std::sync::mpsc::channel();
        let begun = std::time::Instant::now();
        let thread = std::thread::spawn(move || {
            tell.send(crate::thread::id()).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(2));
        });
        let in_proc = number_in_proc(told.recv().unwrap()).unwrap();
        let is_asleep = |(number, _): Call| number == linux_raw_sys::general::__NR_clock_nanosleep;
        while !call_of(in_proc).is_some_and(is_asleep) {
            assert!(begun.elapsed().as_secs() < 2, "it sleeps");
        }
        thread.join().unwrap();
    }
}
