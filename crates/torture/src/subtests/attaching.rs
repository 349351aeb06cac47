//! Shared memory that is attached over memory of the program's (shmat with SHM_REMAP), taken away again,
//! and ordinary memory in its place.

use crate::context::Context;
use crate::memory::{PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x5e6;
const SHM_REMAP: usize = 0o40_000;

/// The ways to make a call: by libc's function, by way of `syscall`, by the instruction itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Function,
    Call,
    Bare,
}

impl Way {
    /// Attaches a segment.
    fn attach(self, id: usize, at: usize, flags: usize) -> Outcome<usize> {
        // SAFETY: what is there is this subtest's.
        let result = unsafe {
            match self {
                Way::Function => libc::shmat(id as i32, at as *const _, flags as i32) as isize,
                Way::Call => libc::syscall(libc::SYS_shmat, id, at, flags) as isize,
                Way::Bare => sys::bare(libc::SYS_shmat, [id, at, flags, 0, 0, 0]),
            }
        };
        sys::check("shmat", result)
    }

    /// Maps fresh memory.
    fn map(self, at: usize, len: usize) -> Outcome<usize> {
        let flags = PRIVATE | libc::MAP_FIXED;
        match self {
            Way::Function | Way::Call => sys::mmap(at, len, RW, flags, -1),
            Way::Bare => {
                let arguments = [at, len, RW as usize, flags as usize, usize::MAX, 0];
                // SAFETY: nothing is there.
                sys::check("mmap", unsafe { sys::bare(libc::SYS_mmap, arguments) })
            }
        }
    }
}

/// A segment of shared memory, which goes with its last attachment.
fn segment(len: usize) -> Outcome<usize> {
    // SAFETY: touches nothing that exists.
    sys::check("shmget", unsafe { libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600) } as isize)
}

fn remove(id: usize) -> Outcome {
    // SAFETY: the segment is ours.
    let result = unsafe { libc::shmctl(id as i32, libc::IPC_RMID, std::ptr::null_mut()) };
    sys::check("shmctl", result as isize).map(drop)
}

/// `shm-remap`: shared memory is attached over memory that is in RAM, and over some that is out.
///
/// *The story:* no event tells of that. What had been managed stayed so in the books; what was mapped there
/// later was taken for it, moved out, and read as zeroes (4069 of 4096 pages).
pub fn remap(context: &mut Context) -> Outcome {
    for way in [Way::Function, Way::Call, Way::Bare] {
        let memory = context.subject(SEED)?;
        let (half, len) = (memory.pages() / 2, memory.len() / 2);
        context.cool(&memory)?;
        // Some is in view, and some is out.
        pattern::check_pages(&memory, half / 4..half, SEED, "read back")?;
        let id = segment(len - 100)?;
        let attached = way.attach(id, memory.base(), SHM_REMAP);
        remove(id)?;
        ensure!(attached? == memory.base(), "{way:?}: it is attached elsewhere");
        pattern::check_zero(&memory, 0..half, "a fresh segment")?;
        pattern::fill_pages(&memory, 0..half, SEED + 1);
        context.press()?;
        pattern::check_pages(&memory, 0..half, SEED + 1, "shared memory")?;
        // SAFETY: nobody uses it any more.
        sys::check("shmdt", unsafe { libc::shmdt(memory.base() as *const _) } as isize)?;
        way.map(memory.base(), len)?;
        if way == Way::Bare {
            // Before the agent has looked nobody knows.
            sys::pause_ms(100);
        }
        pattern::check_zero(&memory, 0..half, "mapped where shared memory was")?;
        pattern::fill_pages(&memory, 0..half, SEED + 2);
        context.cool(&memory)?;
        pattern::check_pages(&memory, 0..half, SEED + 2, "filled after shared memory")?;
        pattern::check_pages(&memory, half..memory.pages(), SEED, "beside shared memory")?;
    }
    refusals(context)
}

/// What is refused leaves all as it is.
fn refusals(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let id = segment(memory.len())?;
    let attach = |at: usize, flags: usize| Way::Function.attach(id, at, flags).map_err(|_| sys::errno());
    let refused = [attach(memory.base() + 1, SHM_REMAP), attach(0, SHM_REMAP), attach(memory.base(), 0)];
    ensure!(refused == [Err(libc::EINVAL); 3], "over memory that is in use: {refused:?}");
    let rounded = attach(memory.base() + 1, SHM_REMAP | libc::SHM_RND as usize | libc::SHM_RDONLY as usize);
    ensure!(rounded == Ok(memory.base()), "rounded down: {rounded:?}");
    remove(id)?;
    let refused = attach(memory.base(), SHM_REMAP);
    // SAFETY: nobody uses it any more.
    sys::check("shmdt", unsafe { libc::shmdt(memory.base() as *const _) } as isize)?;
    ensure!(refused.is_ok() || refused == Err(libc::EINVAL), "one that is to go: {refused:?}");
    ensure!(sys::resident_pages(memory.base(), PAGE).is_err(), "it is still there");
    memory.forget();
    Ok(())
}
