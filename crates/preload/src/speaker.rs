//! What the agent says is written by a thread of its own, which ends when there is no more to say.
//!
//! To write to a file or a pipe of the program's takes locks that a thread of the program may hold
//! while it waits for a page. So whoever answers faults never does it: lines are put into a short
//! queue, and what does not fit is not said.
//!
//! *The story:* a program wrote cold memory to its standard output, and its standard error was the
//! same file (`>log 2>&1`). The agent said that swap was full, and both waited for ever.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use overspill_sys::futex::{self, Scope};
use overspill_sys::mem::Mapping;
use overspill_sys::thread::{self, Descriptors, Thread};
use overspill_sys::{AddressRange, Errno, clock};

use crate::message::Line;
use crate::told_range::ToldRange;

/// The thread's stack.
const STACK_BYTES: usize = 16 << 10;
/// Lines that may wait.
const LINES: u32 = 8;
/// Who is about to end the program waits no longer for what was said.
const PATIENCE_NS: u64 = 100_000_000;

/// Lines from the agent's thread to the speaker: `said` is one's, `spoken` the other's.
struct Queue {
    lines: [UnsafeCell<Line>; LINES as usize],
    said: AtomicU32,
    spoken: AtomicU32,
    /// Somebody speaks, or is about to.
    speaks: AtomicBool,
}

// SAFETY: a line is the agent's thread's until it is counted as said, and the speaker's until it is
// counted as spoken.
unsafe impl Sync for Queue {}

static QUEUE: Queue = Queue {
    lines: [const { UnsafeCell::new(Line::EMPTY) }; LINES as usize],
    said: AtomicU32::new(0),
    spoken: AtomicU32::new(0),
    speaks: AtomicBool::new(false),
};

/// The memory of the last speaker. Its number.
static THREAD: ToldRange = ToldRange::none();
static TID: AtomicU32 = AtomicU32::new(0);

/// Has a line written, and does not wait for it. For the agent's thread alone.
///
/// *The story* (by reading): no thread could be made for a while. When the queue was full of what nobody
/// spoke that was not tried any more, and nothing was ever said again.
pub fn say(line: Line) {
    let said = QUEUE.said.load(SeqCst);
    if said.wrapping_sub(QUEUE.spoken.load(SeqCst)) < LINES {
        // SAFETY: the place is not counted as said, so it is this thread's.
        unsafe { *QUEUE.lines[(said % LINES) as usize].get() = line };
        QUEUE.said.store(said.wrapping_add(1), SeqCst);
    }
    if !QUEUE.speaks.swap(true, SeqCst) && start().is_err() {
        QUEUE.speaks.store(false, SeqCst);
    }
}

/// Writes a line, in a thread beside all others, and waits for it a moment. The line outlives the program.
pub fn say_last(line: &Line) {
    let argument = core::ptr::from_ref(line) as *mut ();
    // SAFETY: the speaker keeps to the rules; the caller ends the program while the line is there.
    let spoken = unsafe { thread::spawn_ordinary(STACK_BYTES, Descriptors::Shared, speak_one, argument) };
    if let Ok(thread) = spoken {
        let _ = thread.wait(Some(PATIENCE_NS));
    }
}

/// Waits a moment until all that was said is written.
pub fn wait() {
    let end = clock::monotonic_ns() + PATIENCE_NS;
    loop {
        let spoken = QUEUE.spoken.load(SeqCst);
        let now = clock::monotonic_ns();
        if spoken == QUEUE.said.load(SeqCst) || !QUEUE.speaks.load(SeqCst) || now >= end {
            return;
        }
        let _ = futex::wait(&QUEUE.spoken, spoken, Some(end - now), Scope::Private);
    }
}

/// The agent goes: so does the speaker, unless it is held up.
pub fn leave() {
    wait();
    if !QUEUE.speaks.load(SeqCst) {
        let _ = clear();
    }
}

/// In a child of fork, which has no speaker.
pub fn forget() {
    THREAD.clear();
    QUEUE.spoken.store(QUEUE.said.load(SeqCst), SeqCst);
    QUEUE.speaks.store(false, SeqCst);
}

/// The memory of the speaker.
pub fn range() -> AddressRange {
    THREAD.get()
}

fn start() -> Result<(), Errno> {
    clear()?;
    // SAFETY: it uses the queue, which is there for ever, and makes system calls.
    let thread =
        unsafe { thread::spawn_ordinary(STACK_BYTES, Descriptors::Shared, speak, core::ptr::null_mut())? };
    TID.store(thread.tid(), SeqCst);
    THREAD.set(thread.range());
    Ok(())
}

/// Gives back the memory of a speaker that has had its say, unless something holds it up on its way out.
fn clear() -> Result<(), Errno> {
    let range = range();
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: it is on its way out and touches the queue no more. Nobody else joins it.
    unsafe {
        if !Thread::wait_at(range.clone(), Some(PATIENCE_NS)) {
            return Err(Errno::BUSY);
        }
        thread::wait_until_counted_out(TID.load(SeqCst));
        THREAD.clear();
        drop(Mapping::from_range(range));
    }
    Ok(())
}

extern "C" fn speak(_: *mut ()) {
    loop {
        let spoken = QUEUE.spoken.load(SeqCst);
        if spoken != QUEUE.said.load(SeqCst) {
            // SAFETY: the line is counted as said and not as spoken, so it is this thread's.
            unsafe { (*QUEUE.lines[(spoken % LINES) as usize].get()).write() };
            QUEUE.spoken.store(spoken.wrapping_add(1), SeqCst);
            futex::wake(&QUEUE.spoken, 1, Scope::Private);
            continue;
        }
        QUEUE.speaks.store(false, SeqCst);
        // What was said before that is still to be spoken, by one of the two.
        if spoken == QUEUE.said.load(SeqCst) || QUEUE.speaks.swap(true, SeqCst) {
            return;
        }
    }
}

extern "C" fn speak_one(line: *mut ()) {
    // SAFETY: `say_last` passes a line.
    unsafe { &*line.cast::<Line>() }.write();
}
