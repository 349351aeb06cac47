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
//!
//! *Another story:* a program that may have sixteen descriptors forked, and its child ended by exit(2).
//! The agent's table was full, so it could not list its threads, and took that for one that is left: the
//! parent waited for ever (`citizens::few-descriptors-exit`). The look needs one descriptor at a time, and
//! closes its own before it asks for that.

use overspill_sys::procfs::{self, SleepReader, TASK_PATH_BYTES, Tasks, ThreadId};
use overspill_sys::{mem, thread};

/// Time between two looks: each reads one small file.
const LOOK_NS: u64 = 20_000_000;
/// The part of a status that names the signal that ended the process.
const SIGNAL: u32 = 0x7f;
/// What the kernel's own workers for io_uring are called.
const WORKER: &[u8] = b"iou-";

/// So many threads are listed; of a process that has more some are the program's, or will have ended soon.
const THREADS: usize = 1024;

/// The look itself.
pub struct Ending {
    /// /proc/self/task/LEADER/stat; none where there is no /proc, or no descriptor was left for it.
    leader: Option<SleepReader>,
    /// The first thread has ended. It does not come back.
    has_leader_ended: bool,
    next: u64,
}

impl Ending {
    /// For the process that this thread is in now.
    pub fn new() -> Ending {
        Ending { leader: open_leader(), has_leader_ended: false, next: 0 }
    }

    /// Ends the process if none of the program's threads is left.
    pub fn look(&mut self, now: u64) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK_NS;
        if !self.has_leader_ended {
            if self.leader.is_none() {
                self.leader = open_leader();
            }
            let Some(leader) = &self.leader else { return };
            if !leader.has_ended().unwrap_or(false) {
                return;
            }
            (self.leader, self.has_leader_ended) = (None, true);
        }
        if !is_any_left() {
            // The status of the first thread is that of a process that ends one by one.
            let code = procfs::leader_exit_code().unwrap_or(0);
            match code & SIGNAL {
                0 => thread::exit_process((code >> 8) as i32),
                signal => thread::end_process_by(signal),
            }
        }
    }
}

fn open_leader() -> Option<SleepReader> {
    let pid = procfs::process_id_in_proc().ok()?;
    SleepReader::open(procfs::task_path(pid, b"/stat", &mut [0; TASK_PATH_BYTES])).ok()
}

/// Is there a thread besides the first that is the program's? What cannot be told is taken for one. They are
/// looked at when the list is closed again: there may be one descriptor for both.
fn is_any_left() -> bool {
    let pid = mem::process_id();
    let (mut threads, mut count) = ([0; THREADS], 0);
    let listed = Tasks::open().and_then(|tasks| {
        tasks.for_each_number(|number| {
            if let Some(place) = threads.get_mut(count) {
                *place = number;
            }
            count += 1;
        })
    });
    let Some(threads) = threads.get(..count) else { return true };
    listed.is_err()
        || threads.iter().any(|&number| match ThreadId::of(number) {
            Ok(Some(thread)) => thread.tid != pid && !is_own(thread),
            Ok(None) => false,
            Err(_) => true,
        })
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
