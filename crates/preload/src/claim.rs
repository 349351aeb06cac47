//! A place in the table of processes, for the agent of a program that begins.

use core::sync::atomic::Ordering;

use overspill_engine::purse::Purse;
use overspill_engine::shared::{Process, Shared, state};
use overspill_sys::procfs;

/// A place in the table. What this process ran before an exec has ended with it. Free places are
/// taken first; what is in one that has ended may not have been read yet. What a free one held the
/// launcher has given back, though the number of its process may be in use again.
pub fn claim(shared: &'static Shared, pid: u32, program_pages: u32) -> Option<&'static Process> {
    let used = shared.tree.places_used.load(Ordering::Acquire) as usize;
    let is_own = |before: &&Process| {
        before.pid.load(Ordering::Relaxed) == pid && before.state.load(Ordering::Acquire) != state::FREE
    };
    for before in shared.processes.iter().take(used).filter(is_own) {
        Purse::close(&shared.tree, before);
        before.is_over.store(1, Ordering::Release);
    }
    let take = |process: &Process, from| {
        process.state.compare_exchange(from, state::CLAIMING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let is_over = |process: &Process| process.is_over.load(Ordering::Acquire) != 0;
    let all = || shared.processes.iter().enumerate();
    let (index, process) = all()
        .find(|(_, process)| take(process, state::FREE))
        .or_else(|| all().find(|(_, process)| take(process, state::ENDED)))
        .or_else(|| all().find(|(_, process)| is_over(process) && take(process, state::WATCHING)))?;
    process.clear();
    process.pid.store(pid, Ordering::Relaxed);
    process.program_pages.store(program_pages, Ordering::Relaxed);
    let name = procfs::thread_name();
    for (word, part) in process.name.iter().zip(name.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(part.try_into().expect("chunks of eight")), Ordering::Relaxed);
    }
    process.generation.fetch_add(1, Ordering::Relaxed);
    process.state.store(state::WATCHING, Ordering::Release);
    shared.tree.places_used.fetch_max(index as u32 + 1, Ordering::AcqRel);
    Some(process)
}
