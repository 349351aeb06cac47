//! Putting an engine together: descriptors, staging, swap file, policy, budget.

use alloc::vec::Vec;

use overspill_mm::Config;
use overspill_mm::readahead::policy::Policy;
use overspill_mm::reclaim::policy::Choice;
use overspill_sys::file::{self, Open};
use overspill_sys::pagemap::Pagemap;
use overspill_sys::{Errno, Fd, PAGE_SIZE};

use crate::claims::Claims;
use crate::engine::Engine;
use crate::estate::{Estate, EstateArea};
use crate::fingerprint::Fingerprints;
use crate::huge;
use crate::io::Io;
use crate::memory::Memory;
use crate::report::Report;
use crate::shared::paths;
use crate::spill::Teller;
use crate::staging::{BLOCK, Staging};
use crate::swapfile::{SwapFile, SwapPlace};
use crate::transfers::Transfers;
use crate::vigil::Vigil;

/// Steps of putting an engine together, by the number in [`Failure::step`]; 0 is "none".
pub const STEPS: [&str; 14] = [
    "none",
    "open userfaultfd",
    "open the swap areas",
    "set up io_uring and its fallback",
    "register memory",
    "start the agent's thread",
    "map the launcher's page",
    "lock memory for the key of encrypted pages",
    "serve memory that another process shares, and may need for longer",
    "serve memory that the program moves with a userfaultfd of its own",
    "open the process's page map",
    "add its addresses to the program's limit on them (RLIMIT_AS)",
    "add its memory to the program's limit on data (RLIMIT_DATA)",
    "see the end of a search for leaks (LeakSanitizer), for which everything was brought in",
];

/// Which step failed, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Index into [`STEPS`].
    pub step: u32,
    /// The kernel's reason.
    pub errno: Errno,
}

/// What an engine is made from.
pub struct Settings {
    /// Frames that it may ever hold, and does at first: staging is sized for them.
    pub frames: u32,
    /// Where pages go.
    pub swap: Vec<SwapPlace>,
    /// Most bytes of swap in files that are made for it; 0 = what the file systems give.
    pub swap_bytes_max: u64,
    /// The bounds on swap are all processes' of a run together; `None`: this one's.
    pub claims: Option<Claims>,
    /// What went to which place is told to the run.
    pub spill: Option<Teller>,
    /// Use UFFDIO_MOVE where the kernel has it.
    pub use_move: bool,
    /// Use io_uring where it is allowed.
    pub use_uring: bool,
    /// Keep idle processors awake while the program waits for pages, if that is allowed: all of the
    /// machine's.
    pub poll_idle: bool,
    /// Only faults from user mode are reported (no privileges).
    pub user_mode_only: bool,
    /// The read-ahead policy.
    pub policy: Policy,
    /// Which pages leave.
    pub reclaim: Choice,
    /// Most that the compressed pool may take of the frames, in percent; 0: there is none.
    pub max_pool_percent: u32,
    /// What comes back from swap is compared with a checksum of what was written.
    pub checksums: bool,
    /// Pages are encrypted on their way to swap; that makes checksums unnecessary.
    pub encrypt: bool,
    /// The process's page map, if it was opened already. A process that must not be looked into may
    /// not open its own.
    pub pagemap: Option<Pagemap>,
    /// The pool may have all of that from the start, whatever it costs.
    pub fixed_pool: bool,
    /// Where swap is full some frames may be held above the budget ([`Config::floats`]).
    pub floats: bool,
    /// May what nobody needs be filled with pages of files that nobody asked for?
    pub fills_room: bool,
}

/// The default of [`Settings::max_pool_percent`].
pub const MAX_POOL_PERCENT: u32 = 50;

/// Staging has room for this many times the frames: blocks may be partly used, and address space is cheap.
const STAGING_SPREAD: u32 = 2;
/// Blocks of staging beyond that.
const STAGING_EXTRA: u32 = 256;

/// Frames of the largest budget, 4 TiB: staging's are counted by 32 bits.
pub const FRAMES_MAX: u32 = 1 << 30;

/// Frames of a budget of so many bytes.
///
/// *The story:* staging of 8 TiB and more had more frames than its number holds, and 16 TiB became 512 GiB.
#[must_use]
pub fn frames_of(bytes: u64) -> u32 {
    u32::try_from(bytes / PAGE_SIZE as u64).map_or(FRAMES_MAX, |frames| frames.min(FRAMES_MAX))
}

/// Blocks of staging for so many frames.
const fn staging_blocks(frames_max: u32) -> u32 {
    (frames_max / BLOCK).saturating_mul(STAGING_SPREAD) + STAGING_EXTRA
}

/// Frames of so many blocks of staging.
const fn frames_in(blocks: u32) -> u32 {
    blocks.checked_mul(BLOCK).expect("no budget has more than FRAMES_MAX")
}

/// Addresses that staging takes for so many frames, in bytes: the largest mapping of all.
#[must_use]
pub const fn staging_bytes(frames_max: u32) -> u64 {
    let blocks = staging_blocks(frames_max) + huge::blocks(huge::parts(frames_max) + 1);
    blocks as u64 * BLOCK as u64 * PAGE_SIZE as u64
}

/// What a child has of its parent's swap: the areas, and what makes the sums.
pub struct Inheritance {
    seed: u64,
    areas: Vec<(EstateArea, Fd)>,
}

impl Inheritance {
    /// Opens the areas of an estate by the descriptors of thread `tid`, which is the parent's.
    pub fn open(estate: &Estate, tid: u32) -> Result<Inheritance, Errno> {
        let open =
            |area: &EstateArea| Ok((area.clone(), file::open_of_other(tid, area.descriptor, Open::DIRECT)?));
        Ok(Inheritance { seed: estate.seed, areas: estate.areas.iter().map(open).collect::<Result<_, _>>()? })
    }
}

impl Engine {
    /// Opens everything. Nothing is managed yet.
    pub fn open(settings: Settings, report: Report) -> Result<Engine, Failure> {
        Engine::open_with(settings, report, overspill_sys::random::unpredictable(), Vec::new())
    }

    /// The same in a child that inherits pages of its parent's, in these areas.
    pub fn open_heir(
        settings: Settings,
        report: Report,
        inheritance: Inheritance,
    ) -> Result<Engine, Failure> {
        Engine::open_with(settings, report, inheritance.seed, inheritance.areas)
    }

    fn open_with(
        settings: Settings,
        mut report: Report,
        seed: u64,
        inherited: Vec<(EstateArea, Fd)>,
    ) -> Result<Engine, Failure> {
        let failed = |step| move |errno| Failure { step, errno };
        let blocks = staging_blocks(settings.frames);
        let pagemap = settings.pagemap.map_or_else(Pagemap::open, Ok).map_err(failed(10))?;
        let parts = huge::parts(settings.frames);
        let memory =
            Memory::new(frames_in(blocks), parts, settings.use_move, settings.user_mode_only, pagemap)
                .map_err(failed(1))?;
        let swap = SwapFile::open_all(&settings.swap, settings.swap_bytes_max, settings.claims.is_some())
            .map_err(failed(2))?;
        let io = Io::new(settings.use_uring).map_err(failed(3))?;
        let config = Config {
            compares: true,
            maps_zeroes: memory.shows_zeroes() && !settings.user_mode_only,
            reclaim: settings.reclaim,
            floats: settings.floats,
            fills_room: settings.fills_room,
            ..Config::live(settings.frames, 0)
        };
        let vigil = Vigil::new(settings.poll_idle);
        let paths = (if memory.can_move() { paths::MOVE } else { 0 })
            | (if io.is_uring() { paths::URING } else { 0 })
            | (if vigil.is_possible() { paths::POLL_IDLE } else { 0 })
            | (if settings.encrypt { paths::ENCRYPT } else { 0 });
        report.note_setup(paths, swap.iter().map(|area| area.bytes).sum());
        let transfers = Transfers::new(io);
        let fingerprints = Fingerprints::new(seed);
        let pool = u64::from(settings.frames) * u64::from(settings.max_pool_percent.min(100)) / 100;
        let staging = Staging::new(blocks, parts);
        let engine = Engine::new(config, settings.policy, memory, staging, fingerprints, transfers, report);
        let mut engine = engine.with_claims(settings.claims, settings.spill);
        engine.add_inherited_areas(inherited);
        engine.add_areas(swap);
        let engine = match (settings.encrypt, settings.checksums) {
            (true, _) => engine.with_encryption().map_err(failed(7))?,
            (false, true) => engine,
            (false, false) => engine.without_checksums(),
        };
        Ok(engine.with_pool(pool as u32, settings.fixed_pool).with_vigil(vigil))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* see [`frames_of`].
    #[test]
    fn the_largest_budget_has_its_staging() {
        for bytes in [4 << 40, 8 << 40, 9 << 40, 16 << 40, u64::MAX] {
            assert_eq!(frames_of(bytes), FRAMES_MAX);
        }
        assert_eq!(frames_of((4 << 40) - 1), FRAMES_MAX - 1);
        assert_eq!(frames_of(10 << 20), 2560);
        let frames = frames_in(staging_blocks(FRAMES_MAX) + huge::blocks(huge::parts(FRAMES_MAX) + 1));
        assert_eq!(u64::from(frames) * PAGE_SIZE as u64, staging_bytes(FRAMES_MAX));
        assert!(frames / 2 >= FRAMES_MAX);
    }
}
