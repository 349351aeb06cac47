//! A helper thread for system calls that the reactor must not make itself, because they may wait
//! for the reactor.
//!
//! madvise(MADV_DONTNEED) on memory whose REMOVE events are enabled waits until the event was read
//! (what was copied and not moved), and so does mremap; MADV_POPULATE_WRITE waits for missing
//! pages to be filled (it makes pages exclusive again after a fork). One order at a time.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::format;

use overspill_sys::futex::{self, Scope};
use overspill_sys::mem::{self, Advice, Prot};
use overspill_sys::procfs::SleepReader;
use overspill_sys::thread::{self, Descriptors, Thread};
use overspill_sys::{AddressRange, Errno};

/// How long an order may take before it is looked whether it waits for somebody.
const PATIENCE_NS: u64 = 1_000_000;

/// The thread's stack.
const STACK_BYTES: usize = 64 << 10;

const IDLE: u32 = 0;
const ORDERED: u32 = 1;
const DONE: u32 = 2;

/// What the helper does with a range of the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// Discard its pages.
    Drop,
    /// Make its pages exclusive to this process, as a store would.
    Unshare,
    /// Map a file over it.
    Replace,
    /// Move it over another.
    Move,
    /// Move its pages to another, and leave it as it is without them.
    Lead,
    /// Unmap it.
    Unmap,
    /// End.
    End,
}

struct Desk {
    state: AtomicU32,
    job: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Of [`Job::Replace`]: descriptor, offset, protection, whether it is shared; of [`Job::Move`] and
    /// [`Job::Lead`]: where to.
    mapping: [AtomicUsize; 4],
    /// Why the last order failed, by number; 0: it did not.
    failed: AtomicU32,
    /// Minor faults of the thread by the end of the last order.
    faults: AtomicU32,
}

/// The reactor's side.
#[derive(Clone, Copy)]
pub(crate) struct Helper {
    desk: &'static Desk,
    /// None where /proc cannot be read.
    sleep: Option<&'static SleepReader>,
    /// The thread's own memory.
    pub range: (usize, usize),
    thread: &'static Thread,
}

impl Helper {
    /// Starts the thread; it lives as long as the process.
    pub fn start() -> Result<Self, Errno> {
        let desk: &'static Desk = Box::leak(Box::new(Desk {
            state: AtomicU32::new(IDLE),
            job: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            mapping: [const { AtomicUsize::new(0) }; 4],
            failed: AtomicU32::new(0),
            faults: AtomicU32::new(0),
        }));
        let argument = core::ptr::from_ref(desk) as *mut ();
        // SAFETY: the thread makes system calls and atomic accesses only; the desk lives for ever.
        let thread = unsafe { thread::spawn_ordinary(STACK_BYTES, Descriptors::Shared, serve, argument) }?;
        let range = thread.range();
        let path =
            CString::new(format!("/proc/self/task/{}/stat", thread.tid())).map_err(|_| Errno::INVAL)?;
        let sleep = SleepReader::open(&path).ok().map(|sleep| &*Box::leak(Box::new(sleep)));
        let thread = Box::leak(Box::new(thread));
        Ok(Helper { desk, sleep, range: (range.start, range.end), thread })
    }

    /// Ends the thread, and waits for that. The last order must be done.
    pub fn end(&self) {
        self.order(Job::End, 0..0);
        let _ = self.thread.wait(None);
    }

    /// Is there no order that is not done?
    pub fn is_idle(&self) -> bool {
        self.desk.state.load(Ordering::Acquire) != ORDERED
    }

    /// Does it wait in the middle of an order, for the reactor or for a lock? True when that cannot be known.
    pub fn is_stuck(&self) -> bool {
        !self.is_idle() && self.sleep.is_none_or(|sleep| sleep.is_asleep().unwrap_or(true))
    }

    /// Waits until the order is done. False when it waits for the reactor, or for a lock: it is not
    /// done, and the reactor goes on.
    pub fn is_awaited(&self) -> bool {
        while !self.is_idle() {
            let woken = futex::wait(&self.desk.state, ORDERED, Some(PATIENCE_NS), Scope::Private);
            if woken == Err(Errno::TIMEDOUT) && self.is_stuck() {
                return self.is_idle();
            }
        }
        true
    }

    /// Orders that a file is mapped over a range. The last order must be done.
    pub fn order_mapping(
        &self,
        job: Job,
        range: AddressRange,
        file: i32,
        offset: u64,
        prot: Prot,
        shared: bool,
    ) {
        let words = [file as usize, offset as usize, prot.bits() as usize, usize::from(shared)];
        for (word, value) in self.desk.mapping.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.order(job, range);
    }

    /// Orders that a range is moved over another, from `to` on. The last order must be done.
    pub fn order_move(&self, range: AddressRange, to: usize) {
        self.desk.mapping[0].store(to, Ordering::Relaxed);
        self.order(Job::Move, range);
    }

    /// Orders that the pages of a range are moved to another one, from `to` on. The last order must be done.
    pub fn order_lead(&self, range: AddressRange, to: usize) {
        self.desk.mapping[0].store(to, Ordering::Relaxed);
        self.order(Job::Lead, range);
    }

    /// Did the last order succeed? It is done.
    pub fn succeeded(&self) -> bool {
        self.failure().is_none()
    }

    /// Why the last order, which is done, failed.
    pub fn failure(&self) -> Option<Errno> {
        let failed = self.desk.failed.load(Ordering::Relaxed);
        (failed != 0).then(|| Errno::from_raw_os_error(failed as i32))
    }

    /// Minor faults of the thread by the end of its last order.
    pub fn faults(&self) -> u32 {
        self.desk.faults.load(Ordering::Relaxed)
    }

    /// Orders a job. The last one must be done.
    pub fn order(&self, job: Job, range: AddressRange) {
        assert!(self.is_idle(), "one order at a time");
        self.desk.job.store(job as u32, Ordering::Relaxed);
        self.desk.start.store(range.start, Ordering::Relaxed);
        self.desk.end.store(range.end, Ordering::Relaxed);
        self.desk.state.store(ORDERED, Ordering::Release);
        futex::wake(&self.desk.state, 1, Scope::Private);
    }
}

extern "C" fn serve(argument: *mut ()) {
    // SAFETY: `Helper::start` passes a leaked `Desk`.
    let desk = unsafe { &*argument.cast::<Desk>() };
    // The reactor waits for it. From the start: the first order waited 45 ms for a turn beside
    // eight busy threads, and 20 MiB came meanwhile. That takes a privilege.
    let _ = thread::come_before(0);
    loop {
        let state = desk.state.load(Ordering::Acquire);
        if state != ORDERED {
            let _ = futex::wait(&desk.state, state, None, Scope::Private);
            continue;
        }
        let range = desk.start.load(Ordering::Relaxed)..desk.end.load(Ordering::Relaxed);
        let job = desk.job.load(Ordering::Relaxed);
        if job == Job::End as u32 {
            return;
        }
        let done = match job {
            _ if job == Job::Replace as u32 => replace(desk, range),
            _ if job == Job::Move as u32 => {
                // SAFETY: both ranges show the same bytes to the program, which may read them meanwhile.
                unsafe { mem::move_over(range, desk.mapping[0].load(Ordering::Relaxed)) }
            }
            _ if job == Job::Lead as u32 => {
                // SAFETY: the target is the reactor's, and whoever touches what is moved waits for it.
                unsafe { mem::move_pages_over(range, desk.mapping[0].load(Ordering::Relaxed)) }
            }
            // SAFETY: nobody but the reactor knows of the range.
            _ if job == Job::Unmap as u32 => unsafe { mem::munmap(range) },
            _ => advise(job, range),
        };
        desk.failed.store(done.map_or_else(|errno| errno.raw_os_error() as u32, |()| 0), Ordering::Relaxed);
        desk.faults.store(mem::minor_faults_here(), Ordering::Relaxed);
        desk.state.store(DONE, Ordering::Release);
        futex::wake(&desk.state, 1, Scope::Private);
    }
}

fn advise(job: u32, range: AddressRange) -> Result<(), Errno> {
    let advice = if job == Job::Drop as u32 { Advice::DontNeed } else { Advice::PopulateWrite };
    // SAFETY: pages to be dropped were copied to staging under write protection; populating keeps
    // content. A failure means that the program unmapped the range, which it reports by itself.
    unsafe { mem::madvise(range, advice) }
}

fn replace(desk: &Desk, range: AddressRange) -> Result<(), Errno> {
    let [file, offset, prot, shared] = desk.mapping.each_ref().map(|word| word.load(Ordering::Relaxed));
    let prot = Prot::from_bits_truncate(prot as u32);
    // SAFETY: the range shows that very part of the file, and nothing in it is newer.
    unsafe { mem::map_file_fixed(range, file as i32, offset as u64, prot, shared != 0) }
}
