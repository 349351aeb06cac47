//! How an agent finds its launcher and takes a place, before the program goes on.

use alloc::boxed::Box;
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use overspill_engine::Failure;
use overspill_engine::pipes::Pipes;
use overspill_engine::purse::Purse;
use overspill_engine::shared::{Process, Shared, Tree, flags, state};
use overspill_sys::procfs::ResidentReader;
use overspill_sys::{Errno, Fd, reserve};

use super::give_up;
use crate::claim::claim;
use crate::launcher::{self, Address, Files, Found};
use crate::sight::Sight;
use crate::{aside, cpu_limit, parent, retire};

/// So many processes of a tree watch their pipes: a user has 128 watches, most of them for programs.
const WATCHES: usize = 16;

/// What the launcher told, and where to report.
pub struct Mission {
    pub(super) shared: &'static Shared,
    pub(super) process: &'static Process,
    pub(super) memory: Option<Fd>,
    pub(super) swap: Files,
    /// This process was made by a fork: it may share its memory with others.
    pub(super) inherits: bool,
    pub(super) resident: ResidentReader,
    pub(super) sight: Sight,
    pub(super) pipes: Pipes,
}

impl Mission {
    /// The budget in bytes.
    pub fn ram(&self) -> u64 {
        self.shared.config.ram_bytes
    }

    /// What the process has of it, unless all is its own.
    pub(super) fn purse(&self) -> Purse {
        let shares = self.shared.config.flags & flags::PER_PROCESS == 0;
        let purse = Purse::new(shares.then_some(&self.shared.tree), self.process, self.ram());
        if place_of(self.shared, self.process).is_some() { purse } else { purse.unlisted() }
    }

    /// What of it others have left.
    pub fn reach(&self) -> u64 {
        self.purse().reach()
    }

    /// Mappings of files of at least so many bytes are managed; 0: none.
    pub fn files_min_bytes(&self) -> u64 {
        self.shared.config.files_min_bytes
    }
}

/// Where an agent begins: in a program, in a child of fork, or again after it had gone for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// After an exec.
    Program,
    /// After a fork.
    Fork,
    /// In a process that it had left.
    Return,
}

/// Finds the launcher, claims a place in its page and puts addresses aside. `None`: there is none,
/// or nobody could be told.
pub fn enlist(address: Address, beginning: Beginning) -> Option<Mission> {
    let (shared, pid, memory, swap, pagemap) = match address.find(shared()) {
        Ok(Found { shared, pid, memory, swap, pagemap }) => (shared, Some(pid), Some(memory), swap, pagemap),
        // A sandbox may have shut the ways since.
        Err(_) => (shared()?, None, None, Files::new(), None),
    };
    SHARED.store(core::ptr::from_ref(shared).cast_mut(), Ordering::Release);
    if let Some(pid) = pid {
        if beginning == Beginning::Program {
            cpu_limit::inherit(shared, pid);
        }
        parent::enlist(address.process, pid, shared, beginning);
    }
    let memory = memory.filter(|_| shared.config.flags & flags::TRACE != 0);
    let resident = ResidentReader::open();
    let program_pages = resident.as_ref().map_or(0, |reader| reader.read().unwrap_or_default().program_pages);
    let process = match (known_place(), pid) {
        (Some(process), _) if beginning == Beginning::Return => process,
        (_, Some(pid)) => claim(shared, pid, program_pages as u32)?,
        // Managed, but nobody will know.
        (_, None) => Box::leak(Box::new(Process::new())),
    };
    process.state.store(state::WATCHING, Ordering::Release);
    CLAIM.store(process.generation.load(Ordering::Acquire), Ordering::Release);
    PLACE.store(core::ptr::from_ref(process).cast_mut(), Ordering::Release);
    if !reserve::is_set_up()
        && let Err(failure) = aside::put(shared)
    {
        give_up(process, failure);
        return None;
    }
    match resident {
        Ok(resident) => {
            let inherits = beginning == Beginning::Fork;
            let (sight, pipes) = (Sight::open(pagemap), pipes(beginning, place_of(shared, process)));
            Some(Mission { shared, process, memory, swap, inherits, resident, sight, pipes })
        }
        Err(errno) => {
            give_up(process, Failure { step: 6, errno });
            None
        }
    }
}

/// The shared page, once it is mapped: children have it, too, and in another namespace it might not
/// be found again.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());
/// The place that an agent of this process has claimed.
static PLACE: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// Its generation then.
static CLAIM: AtomicU32 = AtomicU32::new(0);

/// The places of this process's ancestors, the nearest first, with their generations: as far as forks alone
/// lie between. They run the same program, and have in common what none of them has stored to.
static LINE: [(AtomicPtr<Process>, AtomicU32); LINE_MAX] =
    [const { (AtomicPtr::new(core::ptr::null_mut()), AtomicU32::new(0)) }; LINE_MAX];
/// Who is farther away is not known.
const LINE_MAX: usize = 8;

/// The launcher's page, if an agent found it.
fn shared() -> Option<&'static Shared> {
    // SAFETY: what is stored there is a mapping that stays for ever, see `Address::find`.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// What all processes of the run share.
pub fn tree() -> Option<&'static Tree> {
    shared().map(|shared| &shared.tree)
}

/// The agent's own path, as LD_PRELOAD names it; `None` while it is not known.
pub fn path() -> Option<&'static CStr> {
    let path = launcher::path(&shared()?.config.agent_path);
    (!path.is_empty()).then_some(path)
}

/// No agent could come back: the launcher is told.
pub fn stays_away(errno: Errno) {
    if let Some(process) = known_place() {
        give_up(process, Failure { step: retire::START_THREAD, errno });
    }
}

/// No thread could be made, so no agent begins here: the launcher is told by the program's own thread, where
/// /proc leads to it. Nothing stays open.
pub fn tell_failure(address: Address, errno: Errno) {
    let Ok(Found { shared, pid, .. }) = address.look(shared()) else { return };
    SHARED.store(core::ptr::from_ref(shared).cast_mut(), Ordering::Release);
    let resident = ResidentReader::open().and_then(|reader| reader.read());
    let program_pages = resident.unwrap_or_default().program_pages as u32;
    if let Some(process) = claim(shared, pid, program_pages) {
        give_up(process, Failure { step: retire::START_THREAD, errno });
    }
}

/// A child of fork has no place as yet: its parent's is its parent's.
pub fn forget_place() {
    let parent = PLACE.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as in `known_place`.
    let is_listed = unsafe { parent.as_ref() }
        .is_some_and(|parent| shared().is_some_and(|shared| place_of(shared, parent).is_some()));
    if !is_listed {
        return;
    }
    for at in (1..LINE_MAX).rev() {
        LINE[at].0.store(LINE[at - 1].0.load(Ordering::Relaxed), Ordering::Relaxed);
        LINE[at].1.store(LINE[at - 1].1.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    LINE[0].0.store(parent, Ordering::Relaxed);
    LINE[0].1.store(CLAIM.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Has an ancestor its place still, in the program that it ran at the fork? What it has of the budget is
/// taken until the launcher takes its place back.
pub fn has_elder() -> bool {
    (0..LINE_MAX).any(|at| in_line(at).is_some())
}

/// The place of this process's parent, if that has it still.
pub fn parents_place() -> Option<&'static Process> {
    in_line(0)
}

fn in_line(at: usize) -> Option<&'static Process> {
    let (place, claim) = &LINE[at];
    // SAFETY: what is there lies in the launcher's page, which stays mapped.
    let place = unsafe { place.load(Ordering::Relaxed).as_ref() };
    place.filter(|place| {
        place.generation.load(Ordering::Acquire) == claim.load(Ordering::Relaxed)
            && !place.is_free()
            && place.is_over.load(Ordering::Acquire) == 0
    })
}

fn known_place() -> Option<&'static Process> {
    // SAFETY: it lies in that mapping, or in memory that is never given back.
    unsafe { PLACE.load(Ordering::Acquire).as_ref() }
}

/// The number of a process's place in the table.
pub fn place_of(shared: &Shared, process: &Process) -> Option<usize> {
    shared.processes.iter().position(|other| core::ptr::eq(other, process))
}

/// The pipes that the program begins with. Where an agent comes back nobody has watched meanwhile.
fn pipes(beginning: Beginning, place: Option<usize>) -> Pipes {
    if beginning == Beginning::Return {
        return Pipes::default();
    }
    Pipes::at_start(place.is_some_and(|place| place < WATCHES))
}
