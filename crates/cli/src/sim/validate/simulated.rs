//! The simulated half: the very touches of `overspill load`, by its own generators, on a modelled
//! machine.

use anyhow::{Result, anyhow};
use overspill_mm::Vmstat;
use overspill_mm::reclaim::policy::Choice;
use overspill_mm::types::{CHUNK_PAGES, PAGE_SIZE, RegionKind};
use overspill_sim::device::params::Model;
use overspill_sim::sweep::{Extent, Machine, System, options, parallel, simulate_with};
use overspill_sim::time::Nanos;
use overspill_sim::workload::{Access, RegionSpec, Workload, WorkloadError};

use super::real::{BUDGET, SEED};
use super::verdict::COUNTERS;
use super::{ALLOWANCE_BYTES, Case, Counters, Setting};
use crate::compare::way::{KernelRules, Way};
use crate::load::generator::{Generator, generator};

/// Both systems amplify small things: so many beginnings are tried. The kernel's statistics have a
/// period of two seconds, and a load begins anywhere in it. Of the pager's runs none has quite the
/// budget of another: each real run's is simulated in turn, with a frame more every time round.
pub const BEGINNINGS: u64 = 10;
const PERIOD_NS: Nanos = 2_000_000_000;
/// What the load computes for each page that it fills, touches and verifies: a page's noise takes
/// the time. (`overspill load` with RAM enough: 3.8 us a page filled, of which the kernel takes
/// half, and 1.1 verified.)
const FILL_NS: Nanos = 1_900;
const TOUCH_NS: Nanos = 50;
const VERIFY_NS: Nanos = 1_100;
/// Where its memory lies: a page number in the middle of nowhere, at the start of a chunk.
const START: u64 = 1 << 20;

/// What the simulations of a case counted, one for each beginning; `real` is what its real runs
/// did.
pub fn counters(case: &Case, setting: &Setting, real: &[Counters], device: &Model) -> Result<Vec<Counters>> {
    let machine = machine(case, setting, device);
    let pages = setting.size_bytes / PAGE_SIZE;
    let extent = Extent { pages, chunks: pages.div_ceil(CHUNK_PAGES) + 1 };
    let options = options(&machine, &extent);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let work = |beginning: usize| -> Result<Counters> {
        let mut options = options.clone();
        let mut load = Load::new(case, pages, setting.laps);
        options.mm.budget = pages_left(&real[beginning % real.len()]);
        if case.is_pager() {
            options.mm.budget += (beginning / real.len()) as u32;
        } else {
            load.wait_ns = PERIOD_NS / BEGINNINGS * beginning as u64;
        }
        let programs: Vec<Box<dyn Workload + Send>> = vec![Box::new(load)];
        let outcome = simulate_with(options, &machine, programs).map_err(|error| anyhow!("{error}"))?;
        Ok(named(&outcome.vmstat))
    };
    parallel(BEGINNINGS as usize, jobs, work, |_| {}).into_iter().collect()
}

/// See [`BUDGET`].
fn pages_left(run: &Counters) -> u32 {
    u32::try_from(run[BUDGET] / PAGE_SIZE).unwrap_or(u32::MAX)
}

fn machine(case: &Case, setting: &Setting, device: &Model) -> Machine {
    let reclaim = match case.way {
        Way::Overspill { reclaim: Some(reclaim), .. } => reclaim.choice(),
        _ => Choice::default(),
    };
    let (system, readahead, ram_bytes) = match case.way {
        Way::Overspill { readahead, .. } => {
            let name = readahead.map_or("adaptive".to_owned(), |policy| policy.to_string());
            // Watermarks and the size of the swap cache follow what was asked for, whatever is left
            // of it.
            (System::Live, name, setting.ram_bytes + ALLOWANCE_BYTES)
        }
        Way::Kernel { rules: KernelRules::Vma, .. } => (System::Kernel, "vma".to_owned(), setting.ram_bytes),
        _ => (System::Kernel, "cluster".to_owned(), setting.ram_bytes),
    };
    Machine { reclaim, ..Machine::new(system, ram_bytes, &readahead, device.clone()) }
}

fn named(vmstat: &Vmstat) -> Counters {
    let values = [
        vmstat.pswpin,
        vmstat.pswpout,
        vmstat.pgmajfault,
        vmstat.swap_ra,
        vmstat.swap_ra_hit,
        vmstat.workingset_refault_anon,
        vmstat.workingset_activate_anon,
        vmstat.pgactivate,
        vmstat.pgdeactivate,
    ];
    COUNTERS.into_iter().zip(values).collect()
}

/// `overspill load`: fill in order, touch by the pattern, verify in order.
struct Load {
    pages: u64,
    order: Box<dyn Generator>,
    /// Touches left.
    touches: u64,
    filled: u64,
    verified: u64,
    /// What passes before the first touch.
    wait_ns: Nanos,
}

impl Load {
    fn new(case: &Case, pages: u64, laps: u32) -> Load {
        // As the load seeds its first thread.
        let seed = SEED.wrapping_mul(0x1_0000);
        let order = generator(case.pattern, 0..pages as usize, seed);
        let touches = pages * u64::from(laps);
        Load { pages, order, touches, filled: 0, verified: 0, wait_ns: 0 }
    }
}

impl Workload for Load {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        let (page, write, work_ns) = if self.filled < self.pages {
            self.filled += 1;
            (self.filled - 1, true, FILL_NS)
        } else if self.touches > 0 {
            self.touches -= 1;
            (self.order.next_page() as u64, true, TOUCH_NS)
        } else if self.verified < self.pages {
            self.verified += 1;
            (self.verified - 1, false, VERIFY_NS)
        } else {
            return Ok(None);
        };
        let think_ns = work_ns + std::mem::take(&mut self.wait_ns);
        Ok(Some(Access { vpn: START + page, think_ns, thread: 0, space: 0, write }))
    }

    fn regions(&self) -> Vec<RegionSpec> {
        vec![RegionSpec { space: 0, start: START, end: START + self.pages, kind: RegionKind::Anon }]
    }
}
