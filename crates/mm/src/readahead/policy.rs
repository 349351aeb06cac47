//! Every policy under one roof, chosen by name, with knobs that may change while it runs, for all
//! regions or for one.

use super::adaptive::{self, Adaptive};
use super::cluster::{Cluster, Distrust, Variant};
use super::files::{self, FileSide};
use super::linux::{self, Linux};
use super::none::NoReadAhead;
use super::vma::{PerRegion, Word};
use super::{Plan, SwapIn, Touch};
use crate::types::Vpn;

/// The names that [`Policy::by_name`] knows, the default first.
pub const NAMES: [&str; 11] = [
    "adaptive",
    "linux",
    "vma",
    "cluster",
    "blind",
    "shaohua",
    "konstantin",
    "hugh-old",
    "hugh-new",
    "merged",
    "none",
];

/// Buckets of [`RegionState::windows`].
pub const WINDOW_BUCKETS: usize = 10;

/// The knobs. The first two have the kernel's names and meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knobs {
    /// `vm.page-cluster`: log2 of the largest window of the kernel's policies; 0 switches them off.
    pub page_cluster: u8,
    /// `/sys/kernel/mm/swap/vma_ra_enabled`: may the `linux` policy use the per-region mode?
    pub vma_ra_enabled: bool,
    /// Pages in the largest window of the adaptive policy; 0 switches it off.
    pub max_window: u16,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs { page_cluster: 3, vma_ra_enabled: true, max_window: adaptive::Config::default().max_window }
    }
}

/// Knobs of one region that stand in for those of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// Instead of [`Knobs::page_cluster`].
    pub page_cluster: Option<u8>,
    /// Instead of [`Knobs::vma_ra_enabled`].
    pub vma_ra_enabled: Option<bool>,
    /// Instead of [`Knobs::max_window`].
    pub max_window: Option<u16>,
}

/// What a policy is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The knobs at the start.
    pub knobs: Knobs,
    /// Is any swap device a rotating one? Then `linux` uses cluster mode only.
    pub rotating: bool,
    /// Does the swap device answer within the call, as compressed RAM does? Then `linux` reads single
    /// pages of private memory (4.15 and later).
    pub synchronous: bool,
    /// 3.14's marking in cluster mode: pages that were cached already, too.
    pub marks_cached: bool,
    /// Frames of the budget: windows of the adaptive policy stay small beside it.
    pub frames: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            knobs: Knobs::default(),
            rotating: false,
            synchronous: false,
            marks_cached: false,
            frames: u32::MAX,
        }
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Adaptive(Adaptive),
    Linux(Linux),
    PerRegion(PerRegion),
    Cluster(Cluster),
    None(NoReadAhead),
}

/// Any of the policies.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The knobs for all regions; a change holds from the next fault on.
    pub knobs: Knobs,
    /// See [`Config::frames`].
    pub frames: u32,
    kind: Kind,
}

/// What any of the policies keeps for a region.
#[derive(Clone, Debug, Default)]
pub struct RegionState {
    /// Knobs of this region alone.
    pub overrides: Overrides,
    /// Windows decided here, by log2 of their pages (the faulting one included): 1, 2..3, 4..7,
    /// ..., 512 and more.
    pub windows: [u32; WINDOW_BUCKETS],
    /// Of a region that stands for a file.
    pub file: FileSide,
    adaptive: adaptive::Region,
    linux: linux::Region,
    word: Word,
    distrust: Distrust,
}

const _: () = assert!(size_of::<RegionState>() <= 1152);

/// Evaluates an expression with the policy that is in use and its part of the region's state.
macro_rules! dispatch {
    ($policy:expr, $region:expr, |$inner:ident, $state:ident| $call:expr) => {
        match &mut $policy.kind {
            Kind::Adaptive($inner) => {
                let $state = &mut $region.adaptive;
                $call
            }
            Kind::Linux($inner) => {
                let $state = &mut $region.linux;
                $call
            }
            Kind::PerRegion($inner) => {
                let $state = &mut $region.word;
                $call
            }
            Kind::Cluster($inner) => {
                let $state = &mut $region.distrust;
                $call
            }
            Kind::None($inner) => {
                let $state = &mut ();
                $call
            }
        }
    };
}

impl Policy {
    /// The policy of that name in its initial state; `None` for a name not in [`NAMES`].
    #[must_use]
    pub fn by_name(name: &str, config: Config) -> Option<Self> {
        let Config { knobs, rotating, synchronous, marks_cached, frames } = config;
        let Knobs { page_cluster, vma_ra_enabled, .. } = knobs;
        let cluster = |variant| {
            let mut policy = Cluster::new(variant, page_cluster);
            policy.marks_cached = marks_cached;
            Kind::Cluster(policy)
        };
        let kind = match name {
            "adaptive" => Kind::Adaptive(Adaptive::default()),
            "linux" => Kind::Linux(Linux::new(page_cluster, vma_ra_enabled, rotating, synchronous)),
            "vma" => Kind::PerRegion(PerRegion { page_cluster }),
            "cluster" | "merged" => cluster(Variant::Merged),
            "blind" => cluster(Variant::Blind),
            "shaohua" => cluster(Variant::Shaohua),
            "konstantin" => cluster(Variant::Konstantin),
            "hugh-old" => cluster(Variant::HughOld),
            "hugh-new" => cluster(Variant::HughNew),
            "none" => Kind::None(NoReadAhead),
            _ => return None,
        };
        Some(Policy { knobs, frames, kind })
    }

    /// Misses so far, modulo 2^32, for which others ought to keep their windows short. Only the
    /// adaptive policy knows.
    #[must_use]
    pub fn crowding(&self) -> u32 {
        if let Kind::Adaptive(policy) = &self.kind { policy.crowding() } else { 0 }
    }

    /// Whether others who share the device wait for single pages: windows are kept short meanwhile.
    pub fn set_others_wait(&mut self, others_wait: bool) {
        if let Kind::Adaptive(policy) = &mut self.kind {
            policy.others_wait = others_wait;
        }
    }

    /// Is the region read by the rules of files?
    fn reads_files(&self, overrides: Overrides, touch: &Touch) -> bool {
        let max_window = overrides.max_window.unwrap_or(self.knobs.max_window);
        matches!(self.kind, Kind::Adaptive(_)) && files::concerns(touch) && max_window > 0
    }

    /// Puts the knobs that hold for this region in place.
    fn set(&mut self, overrides: Overrides) {
        let page_cluster = overrides.page_cluster.unwrap_or(self.knobs.page_cluster);
        match &mut self.kind {
            Kind::Adaptive(policy) => {
                let max_window = overrides.max_window.unwrap_or(self.knobs.max_window);
                policy.config = adaptive::Config::new(max_window, self.frames);
            }
            Kind::Linux(policy) => {
                policy.set_page_cluster(page_cluster);
                policy.vma_ra_enabled = overrides.vma_ra_enabled.unwrap_or(self.knobs.vma_ra_enabled);
            }
            Kind::PerRegion(policy) => policy.page_cluster = page_cluster,
            Kind::Cluster(policy) => policy.page_cluster = page_cluster,
            Kind::None(_) => {}
        }
    }
}

impl RegionState {
    fn count(&mut self, plan: Option<&Plan>) {
        let pages = plan.map_or(1, |plan| plan.window.count().max(1));
        let bucket = (pages.ilog2() as usize).min(WINDOW_BUCKETS - 1);
        self.windows[bucket] = self.windows[bucket].saturating_add(1);
    }
}

impl SwapIn for Policy {
    type Region = RegionState;

    fn cached(&mut self, region: &mut RegionState, touch: &Touch) -> Option<Plan> {
        self.set(region.overrides);
        let plan = if self.reads_files(region.overrides, touch) {
            let plan = region.file.cached(self.frames, touch);
            region.file.bound(plan, region.overrides.max_window)
        } else {
            dispatch!(self, region, |policy, state| policy.cached(state, touch))
        };
        if plan.is_some() {
            region.count(plan.as_ref());
        }
        plan
    }

    fn miss(&mut self, region: &mut RegionState, touch: &Touch) -> Option<Plan> {
        self.set(region.overrides);
        let plan = if self.reads_files(region.overrides, touch) {
            let plan = region.file.miss(self.frames, touch);
            region.file.bound(plan, region.overrides.max_window)
        } else {
            dispatch!(self, region, |policy, state| policy.miss(state, touch))
        };
        region.count(plan.as_ref());
        plan
    }

    fn unused(&mut self, region: &mut RegionState, vpn: Vpn) {
        region.file.unused(vpn);
        dispatch!(self, region, |policy, state| policy.unused(state, vpn));
    }

    fn issued(&mut self, region: &mut RegionState, plan: &Plan, read: u32) {
        dispatch!(self, region, |policy, state| policy.issued(state, plan, read));
    }

    fn cut_short(&mut self, region: &mut RegionState, plan: &Plan, covered: u32) {
        // Regions of files have plans of their own, and no others.
        region.file.cut_short(plan, covered);
        dispatch!(self, region, |policy, state| policy.cut_short(state, plan, covered));
    }

    fn swapped_out(&mut self, region: &mut RegionState, pages: u32) {
        dispatch!(self, region, |policy, state| policy.swapped_out(state, pages));
    }

    fn spans_holes(&self) -> bool {
        match &self.kind {
            Kind::Adaptive(policy) => policy.spans_holes(),
            _ => false,
        }
    }

    fn marks_cached(&self) -> bool {
        match &self.kind {
            Kind::Cluster(policy) => policy.marks_cached(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Counts, Sim};
    use super::*;
    use crate::types::RegionKind;

    fn sim(name: &str) -> Sim<Policy> {
        let config = Config { frames: 1 << 20, ..Config::default() };
        Sim::new(Policy::by_name(name, config).expect(name), 100_000, 10_000, usize::MAX)
    }

    fn read_sequentially(mut sim: Sim<Policy>) -> Counts {
        sim.run(100_000..102_000)
    }

    #[test]
    fn every_name_makes_a_policy_that_works() {
        for name in NAMES {
            let counts = read_sequentially(sim(name));
            assert_eq!(counts.misses == 2000, name == "none", "{name}: {counts:?}");
        }
        assert!(Policy::by_name("cfq", Config::default()).is_none());
    }

    #[test]
    fn linux_is_per_region_for_private_memory_without_rotating_devices() {
        let misses = |kind, rotating| {
            let config = Config { rotating, ..Config::default() };
            let mut sim = Sim::new(Policy::by_name("linux", config).unwrap(), 100_000, 10_000, usize::MAX);
            sim.kind = kind;
            read_sequentially(sim).misses
        };
        assert_eq!(misses(RegionKind::Anon, false), 252, "per-region");
        assert_eq!(misses(RegionKind::Anon, true), 250, "cluster: slots are aligned");
        assert_eq!(misses(RegionKind::Shared, false), 250);
        let mut sim = sim("linux");
        sim.policy.knobs.vma_ra_enabled = false;
        assert_eq!(read_sequentially(sim).misses, 250);
    }

    /// *The story:* the simulated kernel read ahead from compressed RAM, and came out twice as fast there
    /// as by its own rules.
    #[test]
    fn linux_reads_single_pages_of_private_memory_from_a_synchronous_device() {
        let run = |kind| {
            let config = Config { synchronous: true, ..Config::default() };
            let mut sim = Sim::new(Policy::by_name("linux", config).unwrap(), 100_000, 10_000, usize::MAX);
            sim.kind = kind;
            read_sequentially(sim).misses
        };
        assert_eq!(run(RegionKind::Anon), 2000);
        assert_eq!(run(RegionKind::Shared), 250, "shared memory has cluster mode always");
    }

    #[test]
    fn knobs_change_while_running_for_all_or_one() {
        for name in ["linux", "vma", "cluster"] {
            let mut sim = sim(name);
            sim.policy.knobs.page_cluster = 0;
            assert_eq!(sim.run(100_000..100_100).misses, 100, "{name}");
            sim.region.overrides.page_cluster = Some(4);
            assert!(sim.run(100_100..100_500).misses < 40, "{name}");
            sim.region.overrides.page_cluster = Some(0);
            assert!(sim.run(102_000..102_100).misses == 100, "{name}");
        }
        let mut sim = sim("adaptive");
        sim.policy.knobs.max_window = 0;
        assert_eq!(sim.run(100_000..100_100).misses, 100);
        sim.region.overrides.max_window = Some(16);
        assert!(sim.run(100_100..101_000).misses < 5);
        assert_eq!(sim.region.windows[5..], [0; 5], "no window over 17 pages: {:?}", sim.region.windows);
    }

    #[test]
    fn windows_are_counted_by_size() {
        let mut sim = sim("cluster");
        sim.run(100_000..100_064);
        let first_block = 100_000 % 8;
        assert_eq!((first_block, sim.region.windows[3]), (0, 8), "{:?}", sim.region.windows);
    }
}
