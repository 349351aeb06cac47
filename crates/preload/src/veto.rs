//! A fork that nobody would hear of fails, where the kernel does not tell of forks.
//!
//! Without CAP_SYS_PTRACE the kernel makes a child that waits for nobody: what is out reads as
//! zeroes there. Libc's own ways of forking are announced (`fork`, `forms`), but a program may have
//! the instruction in its own code. So while pages may be out the process has a mapping that the
//! kernel refuses to give to a child: it is larger than RAM and swap together, and such a promise
//! is not made twice (vm.overcommit_memory=0, the default). The call answers ENOMEM. The mapping
//! was made in two halves, each of which the kernel does promise. Nothing is ever touched in it.
//! While a fork that was announced is under way, and everything is in, it is marked not to be
//! inherited.
//!
//! Where the kernel promises everything (1), or little (2), or the program has a limit on addresses,
//! children do not get what is managed (`withheld`); see docs/decisions/0071-forks-of-every-form.md.
//!
//! *The story:* of a limit of twice the machine's RAM and more the mapping took most, once the program
//! was managed: what it mapped next failed.

use overspill_engine::Engine;
use overspill_sys::maps::Maps;
use overspill_sys::mem::{self, Advice, Mapping};
use overspill_sys::procfs::{self, Fields};
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::limits::ADDRESSES;
use crate::told_range::ToldRange;
use crate::withheld;

static RANGE: ToldRange = ToldRange::none();

/// The mapping; empty where there is none.
pub fn range() -> AddressRange {
    RANGE.get()
}

/// Forbids forks, for the first time in this process, or again.
pub fn set_up() {
    if !range().is_empty() {
        return advise(Advice::DoFork);
    }
    let promises_by_size = procfs::number_in(c"/proc/sys/vm/overcommit_memory") == Some(0);
    let may_map = promises_by_size && !ADDRESSES.is_set();
    let Some(range) = may_map.then(map).flatten() else { return withheld::set_up() };
    RANGE.set(range);
}

/// Nearly as much as there is, twice.
fn map() -> Option<AddressRange> {
    let machine = Fields::of_machine().ok()?;
    let all = machine.number("MemTotal")? + machine.number("SwapTotal")?;
    let half = usize::try_from(all / 16 * 15).ok()?.next_multiple_of(PAGE_SIZE);
    Mapping::promised_twice(half).ok().map(Mapping::leak)
}

/// Forks are not heard of, and fail.
pub fn forbid(engine: &Engine) {
    advise(Advice::DoFork);
    withheld::withhold_all(engine);
}

/// Everything is in, and stays in: forks are right. The agent's own memory is in `own`.
pub fn permit(own: &mut [AddressRange], maps: &Maps, engine: &Engine) {
    advise(Advice::DontFork);
    withheld::lift(own, maps, engine);
}

/// A child has nothing of it.
pub fn forget() {
    withheld::forget();
    RANGE.clear();
}

fn advise(advice: Advice) {
    let range = range();
    if !range.is_empty() {
        // SAFETY: the mapping is ours, and nothing is in it.
        let _ = unsafe { mem::madvise(range, advice) };
    }
}
