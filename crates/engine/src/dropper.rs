//! A helper thread that discards pages of the program, for kernels without UFFDIO_MOVE.
//!
//! madvise(MADV_DONTNEED) on memory whose REMOVE events are enabled waits until the event was read; the reactor reads
//! events, so it cannot make that call itself. One order at a time.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use alloc::boxed::Box;

use overspill_sys::futex::{self, Scope};
use overspill_sys::mem::{self, Advice};
use overspill_sys::thread::{self, Descriptors};
use overspill_sys::{AddressRange, Errno};

/// The thread's stack.
const STACK_BYTES: usize = 64 << 10;

const IDLE: u32 = 0;
const ORDERED: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 3;

struct Desk {
    state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
}

/// The reactor's side.
#[derive(Clone, Copy)]
pub(crate) struct Dropper {
    desk: &'static Desk,
    /// The thread's own memory.
    pub range: (usize, usize),
}

impl Dropper {
    /// Starts the thread; it lives as long as the process.
    pub fn start() -> Result<Self, Errno> {
        let desk: &'static Desk = Box::leak(Box::new(Desk {
            state: AtomicU32::new(IDLE),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }));
        let argument = core::ptr::from_ref(desk) as *mut ();
        // SAFETY: the thread makes system calls and atomic accesses only; the desk lives for ever.
        let thread = unsafe { thread::spawn(STACK_BYTES, Descriptors::Shared, serve, argument) }?;
        let range = thread.range();
        Ok(Dropper { desk, range: (range.start, range.end) })
    }

    /// Orders a range to be discarded. The last order must be done.
    pub fn order(&self, range: AddressRange) {
        self.desk.start.store(range.start, Ordering::Relaxed);
        self.desk.end.store(range.end, Ordering::Relaxed);
        self.desk.state.store(ORDERED, Ordering::Release);
        futex::wake(&self.desk.state, 1, Scope::Private);
    }

    /// Whether the order succeeded, once it is done.
    pub fn outcome(&self) -> Option<bool> {
        match self.desk.state.load(Ordering::Acquire) {
            DONE => Some(true),
            FAILED => Some(false),
            _ => None,
        }
    }
}

extern "C" fn serve(argument: *mut ()) {
    // SAFETY: `Dropper::start` passes a leaked `Desk`.
    let desk = unsafe { &*argument.cast::<Desk>() };
    loop {
        let state = desk.state.load(Ordering::Acquire);
        if state != ORDERED {
            let _ = futex::wait(&desk.state, state, None, Scope::Private);
            continue;
        }
        let range = desk.start.load(Ordering::Relaxed)..desk.end.load(Ordering::Relaxed);
        // SAFETY: the reactor copied these pages to staging, under write protection.
        let done = unsafe { mem::madvise(range, Advice::DontNeed) };
        desk.state.store(if done.is_ok() { DONE } else { FAILED }, Ordering::Release);
    }
}
