//! A place in the table of processes, for the agent of a program that begins.

use core::sync::atomic::Ordering;

use overspill_engine::purse::Purse;
use overspill_engine::shared::{Process, Shared, flags, state};
use overspill_engine::{claims, places, spill};
use overspill_sys::procfs;

/// A place in the table. What this process ran before an exec has ended with it. What a free place
/// held the launcher has given back, though the number of its process may be in use again.
pub fn claim(shared: &'static Shared, pid: u32, program_pages: u32) -> Option<&'static Process> {
    let used = shared.tree.places_used.load(Ordering::Acquire) as usize;
    let is_own = |before: &&Process| {
        before.pid.load(Ordering::Relaxed) == pid && !before.is_free() && !before.is_being_claimed()
    };
    for before in shared.processes.iter().take(used).filter(is_own) {
        Purse::close(&shared.tree, before);
        before.is_over.store(1, Ordering::Release);
    }
    let (index, process) = places::take(&shared.processes, shared.config.flags & flags::TRACE != 0)?;
    process.clear();
    claims::clear(&shared.claims[index]);
    spill::clear(&shared.spill.rows[index]);
    process.pid.store(pid, Ordering::Relaxed);
    process.program_pages.store(program_pages, Ordering::Relaxed);
    process.program_stamp.store(procfs::own_program_stamp(), Ordering::Relaxed);
    let name = procfs::thread_name();
    for (word, part) in process.name.iter().zip(name.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(part.try_into().expect("chunks of eight")), Ordering::Relaxed);
    }
    process.state.store(state::WATCHING, Ordering::Release);
    process.settle();
    shared.tree.places_used.fetch_max(index as u32 + 1, Ordering::AcqRel);
    Some(process)
}
