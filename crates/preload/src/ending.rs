//! A program whose last thread has ended: the process must end, too.
//!
//! exit(2) ends one thread, and a process ends with its last one. The agent's threads are in the same
//! process, so that it would stay: a zombie whose parent waits for ever. So when the first thread is
//! gone the agent looks whether any thread but its own is left, and if none is ends the process with
//! the status that it would have had.
//!
//! *The story:* the child of glibc's clone() ends by exit(2) when its function returns. Its parent
//! waited for it for ever (`torture fork-forms`). And a thread that a filter of system calls kills is
//! ended by a signal, alone: such a process ended with status 0 (`torture exit`).

use overspill_sys::procfs::{self, SleepReader, TASK_PATH_BYTES, ThreadId};
use overspill_sys::{mem, thread};

/// Time between two looks: each reads one small file.
const LOOK_NS: u64 = 20_000_000;
/// The part of a status that names the signal that ended the process.
const SIGNAL: u32 = 0x7f;
/// What the kernel's own workers for io_uring are called.
const WORKER: &[u8] = b"iou-";

/// The look itself.
pub struct Ending {
    /// /proc/self/task/LEADER/stat; none where there is no /proc.
    leader: Option<SleepReader>,
    next: u64,
}

impl Ending {
    /// For the process that this thread is in now.
    pub fn new() -> Ending {
        let leader = procfs::process_id_in_proc()
            .and_then(|pid| SleepReader::open(procfs::task_path(pid, b"/stat", &mut [0; TASK_PATH_BYTES])));
        Ending { leader: leader.ok(), next: 0 }
    }

    /// Ends the process if none of the program's threads is left.
    pub fn look(&mut self, now: u64) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK_NS;
        let Some(leader) = &self.leader else { return };
        if leader.has_ended().unwrap_or(false) && !is_any_left() {
            // The status of the first thread is that of a process that ends one by one.
            let code = procfs::leader_exit_code().unwrap_or(0);
            match code & SIGNAL {
                0 => thread::exit_process((code >> 8) as i32),
                signal => thread::end_process_by(signal),
            }
        }
    }
}

/// Is there a thread besides the first that is the program's? What cannot be told is taken for one.
fn is_any_left() -> bool {
    let pid = mem::process_id();
    let mut left = false;
    let listed = procfs::for_each_thread_id(|thread| left |= thread.tid != pid && !is_own(thread));
    listed.is_err() || left
}

/// The agent's threads have no list of robust futexes, as libc's have: an id that was theirs once and
/// is another thread's now is not taken for one.
fn is_own(thread: ThreadId) -> bool {
    let has_no_list = procfs::robust_list(thread.tid).is_ok_and(|(head, _)| head == 0);
    has_no_list && (thread::is_own(thread.tid) || is_worker(thread))
}

fn is_worker(thread: ThreadId) -> bool {
    procfs::starts_with(procfs::task_path(thread.in_proc, b"/comm", &mut [0; TASK_PATH_BYTES]), WORKER)
}
