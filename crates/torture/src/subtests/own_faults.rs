//! A program that serves page faults itself, with a userfaultfd of its own, beside whoever else has one.
//!
//! *The story:* the kernel gives a mapping to one userfaultfd at a time: such programs got EBUSY
//! for memory that a pager had.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE};
use crate::outcome::Outcome;
use crate::{ensure, fail, pattern, sys};

const SEED: u64 = 0x0f17;

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_MOVE: u64 = 0xc028_aa05;
const CAN_MOVE: u64 = 1 << 16;
const PASS_OVER_HOLES: u64 = 1 << 1;
const API: u64 = 0xaa;
const MISSING: u64 = 1;
const MESSAGE_BYTES: usize = 32;
const ADDRESS_AT: usize = 16;

/// `own-faults`: cold memory and fresh memory are registered by the program, by libc's ioctl and by
/// syscall(2). What was in them stays, what is discarded or was never touched is served by the
/// program itself, and goes on being so while other memory pages.
pub fn run(context: &mut Context) -> Outcome {
    let cold = context.subject(SEED)?;
    let beside = context.subject(SEED + 1)?;
    context.cool(&cold)?;
    let fresh = Memory::map(4 * MIB)?;
    let Some((faults, _)) = open()? else {
        return context.sabotage_status();
    };
    let part = 64..cold.pages() / 2;
    let mut register = [cold.page(part.start) as u64, (part.len() * PAGE) as u64, MISSING, 0];
    command(&faults, UFFDIO_REGISTER, &mut register)?;
    let mut register = [fresh.base() as u64, fresh.len() as u64, MISSING, 0];
    let (raw, argument) = (faults.as_raw_fd(), register.as_mut_ptr());
    // SAFETY: the command reads and writes four words.
    let registered = unsafe { libc::syscall(libc::SYS_ioctl, raw, UFFDIO_REGISTER, argument) };
    sys::check("UFFDIO_REGISTER by syscall", registered as isize)?;

    let gone = part.start..part.start + 256;
    sys::madvise(cold.page(gone.start), gone.len() * PAGE, libc::MADV_DONTNEED)?;
    // The server ends when it has served all. Where a touch fails it waits for faults that do not come, and
    // nobody waits for it.
    let count = fresh.pages() + gone.len();
    let serves = std::thread::spawn(move || serve(faults, count));
    touch(context, &cold, &fresh, gone.clone())?;
    serves.join().expect("a panic ends the process")?;
    context.cool(&beside)?;
    for page in (0..cold.pages()).filter(|page| !gone.contains(page)) {
        pattern::check_page(&cold, page, SEED, page, "registered by the program")?;
    }
    pattern::check_pages(&beside, 0..beside.pages(), SEED + 1, "beside it")
}

/// `own-moves`: the program moves cold memory with its own userfaultfd. All that was there arrives.
pub fn moves(context: &mut Context) -> Outcome {
    let cold = context.subject(SEED)?;
    let beside = context.subject(SEED + 1)?;
    let target = Memory::map(cold.len())?;
    let Some((faults, features)) = open()? else {
        return context.sabotage_status();
    };
    if features & CAN_MOVE == 0 {
        return context.sabotage_status();
    }
    let mut register = [target.base() as u64, target.len() as u64, MISSING, 0];
    command(&faults, UFFDIO_REGISTER, &mut register)?;
    context.cool(&cold)?;
    let (to, from, len) = (target.base() as u64, cold.base() as u64, cold.len() as u64);
    let mut moved = [to, from, len, PASS_OVER_HOLES, 0];
    command(&faults, UFFDIO_MOVE, &mut moved)?;
    ensure!(moved[4] == len, "{} bytes of {len} were moved", moved[4]);
    drop(faults);
    // From then on everything may stay in RAM.
    context.press()?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "moved by the program")?;
    pattern::check_pages(&beside, 0..beside.pages(), SEED + 1, "beside it")
}

/// A userfaultfd and what it can do; `None`: nobody may have one here.
fn open() -> Outcome<Option<(File, u64)>> {
    // SAFETY: makes a descriptor.
    let fd =
        sys::check("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) } as isize);
    let Ok(fd) = fd else { return Ok(None) };
    // SAFETY: the kernel has just given it to us alone.
    let faults = unsafe { File::from_raw_fd(fd as i32) };
    let mut api = [API, 0, 0];
    command(&faults, UFFDIO_API, &mut api)?;
    Ok(Some((faults, api[1])))
}

fn command<const N: usize>(faults: &File, command: u64, argument: &mut [u64; N]) -> Outcome {
    // SAFETY: each command reads and writes as many words as its argument has.
    let done = unsafe { libc::ioctl(faults.as_raw_fd(), command as libc::Ioctl, argument.as_mut_ptr()) };
    sys::check(&format!("ioctl {command:#x}"), done as isize).map(drop)
}

/// What the program shows where nothing was: every word is the page's address.
fn serve(mut faults: File, count: usize) -> Outcome {
    let mut page = vec![0u64; PAGE / 8];
    for _ in 0..count {
        let mut message = [0; MESSAGE_BYTES];
        faults.read_exact(&mut message)?;
        let address = u64::from_ne_bytes(std::array::from_fn(|at| message[ADDRESS_AT + at]));
        let address = address / PAGE as u64 * PAGE as u64;
        page.fill(address);
        let mut copy = [address, page.as_ptr() as u64, PAGE as u64, 0, 0];
        command(&faults, UFFDIO_COPY, &mut copy)?;
    }
    // Open for as long as the process lives: closing it would end the registrations.
    std::mem::forget(faults);
    Ok(())
}

fn touch(context: &mut Context, cold: &Memory, fresh: &Memory, gone: std::ops::Range<usize>) -> Outcome {
    let served = |memory: &Memory, page: usize| {
        let found = memory.word(page, 3).load(std::sync::atomic::Ordering::Relaxed);
        ensure!(found == memory.page(page) as u64, "page {page} shows {found:#x}, not what its server gave");
        Ok(())
    };
    for page in (0..fresh.pages()).step_by(2) {
        served(fresh, page)?;
    }
    context.press()?;
    for page in (1..fresh.pages()).step_by(2) {
        served(fresh, page)?;
    }
    gone.clone().try_for_each(|page| served(cold, page))?;
    if context.options.sabotage {
        fail!("sabotaged");
    }
    (0..fresh.pages()).try_for_each(|page| served(fresh, page))
}
