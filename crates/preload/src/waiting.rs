//! Forks whose maker the kernel keeps until the child calls exec or ends: CLONE_VFORK without CLONE_VM.
//!
//! Such a maker cannot say that its fork is over. So the child does, once it is on its own, by a word
//! that it shares with the process that made it; that one's agent counts the fork as ended. If the maker
//! is back first (the child was killed, or the call refused) it does so itself, as after any fork.
//!
//! *The story:* the pause of the fork lasted for as long as the child lived, and nothing left meanwhile:
//! another thread filled 320 MiB in a budget of 64 (`torture fork-maker-waits`).

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use linux_raw_sys::general::{CLONE_VFORK, CLONE_VM};
use overspill_sys::PAGE_SIZE;
use overspill_sys::mem::Mapping;

use crate::undisturbed::undisturbed;
use crate::{filters, fork};

/// So many may wait at a time, of one process. The forks of others last as long as their makers wait.
const PLACES: usize = PAGE_SIZE / size_of::<AtomicU32>();
/// What a place holds.
const FREE: u32 = 0;
const UNDER_WAY: u32 = 1;
/// The child is on its own ...
const TOLD: u32 = 2;
/// ... and its fork is counted as ended.
const COUNTED: u32 = 3;

/// Address of the page of places, which children share; 0 before the first such fork. Never that of a
/// parent's.
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// A fork of this kind.
#[derive(Clone, Copy)]
pub struct Ticket {
    place: &'static AtomicU32,
    /// Of the process that makes it.
    generation: u32,
}

fn places(page: usize) -> &'static [AtomicU32] {
    if page == 0 {
        return &[];
    }
    // SAFETY: the page stays mapped for ever, in children, too, and is only accessed so; it has room
    // for them.
    unsafe { core::slice::from_raw_parts(page as *const AtomicU32, PLACES) }
}

/// The page is of this process: no handler of a signal forks in between.
fn page() -> usize {
    if PLACE.load(SeqCst) == 0 && !filters::is_filtered() {
        undisturbed(|| {
            if let Ok(mapping) = Mapping::anon_shared(PAGE_SIZE) {
                let new = mapping.range().start;
                if PLACE.compare_exchange(0, new, SeqCst, SeqCst).is_ok() {
                    let _ = mapping.leak();
                }
            }
        });
    }
    PLACE.load(SeqCst)
}

/// A fork with these flags of clone(2) is about to be made, after [`fork::prepare`]. None: its maker does
/// not wait, or nobody can be told.
pub fn begin(flags: usize) -> Option<Ticket> {
    let keeps_maker = flags as u32 & (CLONE_VFORK | CLONE_VM) == CLONE_VFORK;
    if !(keeps_maker && fork::is_ours()) {
        return None;
    }
    let generation = fork::generation();
    let is_taken = |place: &&AtomicU32| place.compare_exchange(FREE, UNDER_WAY, SeqCst, SeqCst).is_ok();
    let place = places(page()).iter().find(is_taken)?;
    Some(Ticket { place, generation })
}

impl Ticket {
    /// In the child, which has `begun` to be a process of its own by this call.
    ///
    /// A handler of a signal may have forked in the maker or in the child, and this be its child, which
    /// goes on here: it tells nothing of what is not its fork.
    pub fn tell(self, begun: bool) {
        if begun && fork::generation() == self.generation.wrapping_add(1) {
            let _ = self.place.compare_exchange(UNDER_WAY, TOLD, SeqCst, SeqCst);
        }
    }

    /// In the maker, which is back. Is the fork still to be counted as ended?
    pub fn end(self) -> bool {
        fork::generation() != self.generation || self.place.swap(FREE, SeqCst) != COUNTED
    }
}

/// How many forks have ended since this was asked last, whose makers wait.
pub fn count_told() -> u32 {
    let is_told = |place: &&AtomicU32| place.compare_exchange(TOLD, COUNTED, SeqCst, SeqCst).is_ok();
    places(PLACE.load(SeqCst)).iter().filter(is_told).count() as u32
}

/// In a child of fork: the page is its parent's.
pub fn forget() {
    PLACE.store(0, SeqCst);
}
