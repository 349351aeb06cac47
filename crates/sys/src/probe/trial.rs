//! The trials with userfaultfd: a second thread touches scratch memory, this one answers.
//!
//! When an answer does not come, the descriptor is closed, which lets the other thread go on: no trial can
//! hang.

use super::Check;
use crate::event::{PollFd, poll};
use crate::mem::{self, Advice, Mapping, Prot};
use crate::thread::{self, Descriptors};
use crate::uffd::{CopyMode, Features, Message, Mode, MoveMode, RawMsg, Uffd};
use crate::{AddressRange, Errno, PAGE_SIZE};
use core::sync::atomic::{AtomicI32, Ordering};

/// How long an answer may take; the machine may be busy.
const PATIENCE_NS: u64 = 500_000_000;
const STACK_BYTES: usize = 8 * PAGE_SIZE;
/// What scratch pages hold.
const WORD: u64 = 0x6f76_6572_7370_696c;

/// Memory to try things on.
pub(super) fn scratch(pages: usize) -> Result<Mapping, Errno> {
    let memory = Mapping::anon(pages * PAGE_SIZE, Prot::RW)?;
    // SAFETY: content does not change. Kernels without huge pages refuse, which is as good.
    let _ = unsafe { memory.advise(Advice::NoHugePage) };
    Ok(memory)
}

/// Reads a word of scratch memory.
pub(super) fn load(address: usize) -> u64 {
    // SAFETY: callers pass addresses of their own scratch memory.
    unsafe { (address as *const u64).read_volatile() }
}

/// Writes a word of scratch memory.
pub(super) fn store(address: usize, word: u64) {
    // SAFETY: callers pass addresses of their own scratch memory.
    unsafe { (address as *mut u64).write_volatile(word) }
}

/// The call worked, but not as it should: EPROTO.
pub(super) fn expect(as_it_should: bool) -> Check {
    if as_it_should { Ok(()) } else { Err(Errno::PROTO) }
}

fn open(features: Features, user_mode_only: bool) -> Result<Uffd, Errno> {
    let (uffd, granted) = Uffd::open(features, user_mode_only)?;
    if granted == features { Ok(uffd) } else { Err(Errno::OPNOTSUPP) }
}

/// What the second thread does to scratch memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Loads a word, in user mode.
    Load,
    /// Loads a word by a system call.
    LoadInKernel,
    /// Stores a word.
    Store,
    /// Drops the page.
    Drop,
    /// Nothing.
    Nothing,
}

struct Task {
    act: Act,
    address: usize,
    /// 0 while it runs, then 1, or the negative errno.
    result: AtomicI32,
}

extern "C" fn perform(task: *mut ()) {
    // SAFETY: whoever started the thread waits for it before the task goes away.
    let task = unsafe { &*task.cast::<Task>() };
    let mut word = [0; 8];
    let result = match task.act {
        Act::Nothing => Ok(()),
        Act::Store => {
            store(task.address, WORD + 1);
            Ok(())
        }
        Act::Load => expect(load(task.address) == WORD),
        Act::LoadInKernel => mem::copy_from_self(&mut word, task.address)
            .and_then(|_| expect(u64::from_ne_bytes(word) == WORD)),
        Act::Drop => {
            let page = task.address..task.address + PAGE_SIZE;
            // SAFETY: scratch memory.
            unsafe { mem::madvise(page, Advice::DontNeed) }
        }
    };
    let result = result.map_or_else(|errno| -errno.raw_os_error(), |()| 1);
    task.result.store(result, Ordering::Release);
}

/// Has a second thread act on `address` while `answer` reads the one message that comes of it and deals with
/// it. Closes the descriptor before it waits for the thread if anything goes wrong.
fn act_and_answer(
    uffd: Uffd,
    act: Act,
    address: usize,
    answer: impl FnOnce(&Uffd, Message) -> Check,
) -> Check {
    let task = Task { act, address, result: AtomicI32::new(0) };
    let pointer = (&raw const task).cast_mut().cast();
    // SAFETY: the task outlives the thread, which is joined below; it only makes system calls and touches
    // scratch memory.
    let thread = unsafe { thread::spawn(STACK_BYTES, Descriptors::Shared, perform, pointer)? };
    let answered = next_message(&uffd).and_then(|message| answer(&uffd, message));
    // The descriptor stays open until the act is over, unless it does not come to an end.
    let in_time = answered.is_ok() && thread.wait(Some(PATIENCE_NS));
    drop(uffd);
    thread.join();
    answered?;
    if !in_time {
        return Err(Errno::TIMEDOUT);
    }
    match task.result.load(Ordering::Acquire) {
        1 => Ok(()),
        errno => Err(Errno::from_raw_os_error(-errno)),
    }
}

fn next_message(uffd: &Uffd) -> Result<Message, Errno> {
    let mut message = [RawMsg::default(); 1];
    poll(&mut [PollFd::readable(uffd.fd())], Some(PATIENCE_NS))?;
    match uffd.read_messages(&mut message)? {
        0 => Err(Errno::TIMEDOUT),
        _ => Ok(message[0].decode()),
    }
}

fn page(memory: &Mapping, index: usize) -> AddressRange {
    memory.page(index)..memory.page(index) + PAGE_SIZE
}

/// A missing page is told, and answered with a copy.
pub(super) fn missing(user_mode_only: bool) -> Check {
    let memory = scratch(2)?;
    let uffd = open(Features::empty(), user_mode_only)?;
    store(memory.page(1), WORD);
    uffd.register(page(&memory, 0), Mode::MISSING)?;
    let act = if user_mode_only { Act::Load } else { Act::LoadInKernel };
    act_and_answer(uffd, act, memory.page(0), |uffd, message| match message {
        Message::Fault { address, wp: false, .. } if address == memory.page(0) => {
            // SAFETY: scratch memory.
            unsafe { uffd.copy(address, memory.page(1), PAGE_SIZE, CopyMode::empty()) }
                .map_err(|stop| stop.errno)
        }
        _ => Err(Errno::PROTO),
    })
}

/// Dropping a page is told.
pub(super) fn events(user_mode_only: bool) -> Check {
    let memory = scratch(1)?;
    let features = Features::EVENT_REMAP | Features::EVENT_REMOVE | Features::EVENT_UNMAP;
    let uffd = open(features, user_mode_only)?;
    store(memory.page(0), WORD);
    uffd.register(memory.range(), Mode::MISSING)?;
    act_and_answer(uffd, Act::Drop, memory.page(0), |_, message| match message {
        Message::Remove { start, end } => expect((start..end) == memory.range()),
        _ => Err(Errno::PROTO),
    })
}

/// The descriptor may have the event; that fork works is not tried.
pub(super) fn event_fork(user_mode_only: bool) -> Check {
    open(Features::EVENT_FORK, user_mode_only).map(drop)
}

/// A store to a protected page is told, and goes on when the protection is taken off.
pub(super) fn write_protect(user_mode_only: bool) -> Check {
    let memory = scratch(1)?;
    let uffd = open(Features::PAGEFAULT_FLAG_WP, user_mode_only)?;
    store(memory.page(0), WORD);
    uffd.register(memory.range(), Mode::WP)?;
    uffd.write_protect(memory.range(), true, false)?;
    act_and_answer(uffd, Act::Store, memory.page(0), |uffd, message| match message {
        Message::Fault { address, wp: true, .. } if load(address) == WORD => {
            uffd.write_protect(page(&memory, 0), false, false)
        }
        _ => Err(Errno::PROTO),
    })?;
    expect(load(memory.page(0)) == WORD + 1)
}

/// A page goes out of plain memory into registered memory, and the content with it.
pub(super) fn move_pages(user_mode_only: bool) -> Check {
    let memory = scratch(3)?;
    let uffd = open(Features::MOVE, user_mode_only)?;
    // A mapping of its own: source and destination must not be the same one.
    let staging = scratch(2)?;
    uffd.register(staging.range(), Mode::WP).or_else(|_| uffd.register(staging.range(), Mode::MISSING))?;
    store(memory.page(0), WORD);
    let (to, from) = (staging.start(), memory.start());
    // SAFETY: scratch memory.
    unsafe { uffd.move_pages(to, from, 2 * PAGE_SIZE, MoveMode::ALLOW_SRC_HOLES) }
        .map_err(|stop| stop.errno)?;
    expect(load(staging.page(0)) == WORD && load(memory.page(0)) == 0)
}

/// A poisoned page fails: seen from a system call, which turns the signal into EFAULT.
pub(super) fn poison(user_mode_only: bool) -> Check {
    let memory = scratch(1)?;
    let uffd = open(Features::POISON, user_mode_only)?;
    uffd.register(memory.range(), Mode::MISSING)?;
    // SAFETY: scratch memory.
    unsafe { uffd.poison(memory.range(), false) }.map_err(|stop| stop.errno)?;
    expect(mem::copy_from_self(&mut [0; 8], memory.start()) == Err(Errno::FAULT))
}

/// A thread without libc runs and ends.
pub(super) fn raw_thread() -> Check {
    let task = Task { act: Act::Nothing, address: 0, result: AtomicI32::new(0) };
    let pointer = (&raw const task).cast_mut().cast();
    // SAFETY: the task outlives the thread, which is joined; it makes system calls only.
    let thread = unsafe { thread::spawn(STACK_BYTES, Descriptors::Private, perform, pointer)? };
    thread.join();
    expect(task.result.load(Ordering::Acquire) == 1)
}
