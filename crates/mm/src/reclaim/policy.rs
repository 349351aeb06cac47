//! Who decides which pages leave: the seam between the machine and its reclaim policies.
//!
//! A policy is a value with a state of its own. It is told of arrivals, touches and refaults, and
//! says on which list a page belongs, how many active pages grow old, and how many pages wait out
//! of view. It sees lengths and ages (`Scene`), never a page: what is taken out of view, written
//! and freed, and in which batches, is `live`'s. So a policy is tested without a machine.
//!
//! userfaultfd has no accessed bits. A policy hears of a touch only where the page was out of view
//! with its frame (a soft fault), or gone (a refault): what stays in view may be used, or not. Each
//! file says what its policy makes of that. `Choice` has the names.

use super::adaptive::Adaptive;
use super::bits::Bits;
use super::dueling::Dueling;
use super::eras::Eras;
use super::plain::Plain;
use super::probing::Probing;
use super::reuse::Reuse;
use super::scan::Era;
use crate::list::ListId;
use crate::mm::Config;
use crate::part::Part;
use crate::types::{Nanos, RegionKind};

/// A policy by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// Two lists; what comes back is active (`super::adaptive`).
    #[default]
    Adaptive,
    /// The better of two, by trying both (`super::dueling`).
    Dueling,
    /// Pages in use are tested, by taking them out of view (`super::probing`).
    Probing,
    /// In the order of the touches that are seen (`super::plain`).
    Lru,
    /// In the order of arrival (`super::plain`).
    Fifo,
    /// A kernel's two lists and scan loop (`super::eras`).
    Kernel(Era),
}

impl Choice {
    /// Every policy, the default first.
    pub const ALL: [Choice; 10] = [
        Choice::Adaptive,
        Choice::Dueling,
        Choice::Probing,
        Choice::Lru,
        Choice::Fifo,
        Choice::Kernel(Era::Before311),
        Choice::Kernel(Era::Until315),
        Choice::Kernel(Era::Seed),
        Choice::Kernel(Era::Since61),
        Choice::Kernel(Era::Bounded),
    ];

    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Choice::Adaptive => "adaptive",
            Choice::Dueling => "dueling",
            Choice::Probing => "probing",
            Choice::Lru => "lru",
            Choice::Fifo => "fifo",
            Choice::Kernel(era) => era.name(),
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Choice> {
        Choice::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

/// The names of `Choice::ALL`, in its order.
pub const NAMES: [&str; Choice::ALL.len()] = {
    let mut names = [""; Choice::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = Choice::ALL[index].name();
        index += 1;
    }
    names
};

/// What a policy may know of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scene {
    /// The time.
    pub now: Nanos,
    /// Does a fault wait for a frame?
    pub is_direct: bool,
    /// Frames that may be held.
    pub budget: u32,
    /// Pages in view on probation.
    pub inactive: u32,
    /// Pages in view that proved to be in use.
    pub active: u32,
    /// Pages out of view that are to leave, or were read ahead.
    pub cached: u32,
    /// Pages out of view that are tested.
    pub tested: u32,
    /// Pages of the largest windows of read-ahead that may wait in the swap cache.
    pub windows: u32,
    /// Pages that wait for a second chance, windows included, where that is fixed.
    pub second_chance: u32,
    /// Pages that have left so far.
    pub evictions: u64,
    /// Refaults so far that made their page active.
    pub activations: u64,
    /// The stamp of the page that is tested longest.
    pub oldest_test: Option<Stamp>,
    /// The stamp of the oldest active page, where a page is used again and the policy ranks them
    /// ([`Policy::ranks_active`]); `None`, too, if all that were looked at are in use.
    pub oldest_active: Option<Stamp>,
    /// Of which part of memory this is; its own numbers, but for `tested` and `oldest_test`.
    pub part: Part,
    /// Frames that are kept free, if that is asked for ([`Policy::asks_what_is_free`]).
    pub kept_free: u32,
}

/// What a policy notes of each page: a time of its own, mostly, which wraps.
pub(crate) type Stamp = u16;

/// What is known of a page that comes back from swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Away {
    /// Evictions and activations since it left.
    pub evictions: u32,
    /// Its stamp.
    pub stamp: Stamp,
    /// It left because it failed a test.
    pub failed: bool,
}

/// How a page came to its first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It was touched.
    Touched(RegionKind),
    /// It was found in the program's view.
    Found,
}

/// Where a page was when it was touched out of view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    /// It was about to leave.
    ToLeave,
    /// It was being written.
    Written,
    /// It was tested.
    Tested,
    /// In view: it was to be tested, and its accessed bit was set ([`crate::Probe::Accessed`]).
    Nowhere,
}

/// What happens to a page when its stamp is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// It got a frame.
    Arrived,
    /// It is taken out of view to be tested.
    Tested,
    /// It was touched out of view.
    Touched,
}

/// Where a page goes, and whether the one tested longest makes room for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub list: ListId,
    pub demotes: bool,
}

impl Place {
    pub const INACTIVE: Place = Place { list: ListId::Inactive, demotes: false };
    pub const ACTIVE: Place = Place { list: ListId::Active, demotes: false };
}

/// Who comes back into view with a page that waited out of it, unasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    Nobody,
    /// The rest of its unit of neighbours, if another page of it was wanted back, too.
    Unit,
    /// Those around it: neighbours are used together.
    Around,
}

/// What every policy answers. The caller guarantees that lengths are those of the moment.
pub(crate) trait Policy {
    /// Are there parts of memory ([`crate::part`])? It stays so.
    fn divides(&self) -> bool {
        false
    }

    /// Does it look at [`Scene::kept_free`]? That stays so, too.
    fn asks_what_is_free(&self) -> bool {
        false
    }

    /// A page gets its first frame.
    fn admit(&mut self, _: &Scene, _: Arrival) -> ListId {
        ListId::Inactive
    }

    /// A page was touched that was out of view, with its frame; `stamp` is its own.
    fn touched(&mut self, scene: &Scene, waited: Waited, stamp: Stamp) -> Place;

    /// A fault has to read its page.
    fn refault(&mut self, scene: &Scene, away: &Away) -> Place;

    /// A page is read ahead. Whether it is used is not known.
    fn read_ahead(&mut self, _: &Scene, _: &Away) {}

    /// A page that was read ahead is used for the first time, or comes into view unasked; how many
    /// evictions it was away is not known.
    fn foreseen(&mut self, _: &Scene, _: &Away) -> Place {
        Place::INACTIVE
    }

    /// Are the active pages in the order of the last use that is known of each? Then the oldest is
    /// looked at before a page that is used again is placed.
    fn ranks_active(&self, _: Part) -> bool {
        false
    }

    /// Room is made, `anew` or still: so many active pages become inactive at once.
    fn begin(&mut self, _: &Scene, _anew: bool) -> u32 {
        0
    }

    /// There is room again.
    fn end(&mut self) {}

    /// So many active pages become inactive before the next ones of the inactive tail are looked
    /// at.
    fn deactivates(&mut self, scene: &Scene) -> u32;

    /// So many of the youngest active pages become the oldest inactive ones, before that.
    fn handed_back(&mut self, _: &Scene) -> u32 {
        0
    }

    /// So many of the oldest active pages make room for others: they are the next to be taken out
    /// of view.
    fn replaced(&mut self, _: &Scene) -> u32 {
        0
    }

    /// As many of the inactive tail are going out of view: so many active ones follow.
    fn follow(&mut self, _: &Scene, _going: u32) -> u32 {
        0
    }

    /// Pages that may wait in the swap cache; beyond them the oldest leaves.
    fn kept(&self, scene: &Scene) -> u32 {
        scene.second_chance
    }

    /// So many active pages are to be tested now.
    fn tests(&mut self, _: &Scene) -> u32 {
        0
    }

    /// Room is wanted: has the page that is tested longest failed? It leaves then.
    fn fails(&mut self, _: &Scene) -> bool {
        false
    }

    /// A page that was to be tested is dropped, since it holds zeroes: its next touch fills it.
    fn emptied(&mut self) {}

    /// Pages of a part get frames, for a fault or ahead of it.
    fn arrived(&mut self, _: Part, _pages: u32) {}

    /// A fault had to wait for bytes: of the device, or of the compressed pool.
    fn paid(&mut self, _cheap: bool) {}

    /// What is to be noted of a page of that part to which this happens now, if anything is.
    fn stamp(&self, _: Part, _: Noted) -> Option<Stamp> {
        None
    }

    /// Who comes back into view with a page that waited there and is wanted.
    fn follows(&self) -> Follows {
        Follows::Unit
    }
}

/// The policy of a machine.
#[derive(Debug)]
pub(crate) enum Reclaim {
    Adaptive(Adaptive),
    Reuse(Reuse),
    Dueling(Dueling),
    Probing(Probing),
    Plain(Plain),
    Eras(Eras),
    Bits(Bits),
}

impl Reclaim {
    /// What the configuration asks for: hardware bits have their own.
    pub fn new(config: &Config) -> Reclaim {
        if config.probe.is_kernel() {
            return Reclaim::Bits(Bits::new(config.early, config.scale));
        }
        match config.reclaim {
            Choice::Adaptive | Choice::Dueling if config.probe.tells_uses() => {
                Reclaim::Reuse(Reuse::by_bits(config.budget))
            }
            Choice::Adaptive => Reclaim::Adaptive(Adaptive::default()),
            Choice::Dueling => Reclaim::Dueling(Dueling::new(config.budget)),
            Choice::Probing => Reclaim::Probing(Probing::new(config.budget)),
            Choice::Lru => Reclaim::Plain(Plain::lru()),
            Choice::Fifo => Reclaim::Plain(Plain::fifo()),
            Choice::Kernel(era) => Reclaim::Eras(Eras::new(era, config.budget)),
        }
    }

    /// The policy behind the enum; the match is the only one.
    pub fn get(&mut self) -> &mut dyn Policy {
        match self {
            Reclaim::Adaptive(policy) => policy,
            Reclaim::Reuse(policy) => policy,
            Reclaim::Dueling(policy) => policy,
            Reclaim::Probing(policy) => policy,
            Reclaim::Plain(policy) => policy,
            Reclaim::Eras(policy) => policy,
            Reclaim::Bits(policy) => policy,
        }
    }

    /// The same, to be asked only.
    pub fn peek(&self) -> &dyn Policy {
        match self {
            Reclaim::Adaptive(policy) => policy,
            Reclaim::Reuse(policy) => policy,
            Reclaim::Dueling(policy) => policy,
            Reclaim::Probing(policy) => policy,
            Reclaim::Plain(policy) => policy,
            Reclaim::Eras(policy) => policy,
            Reclaim::Bits(policy) => policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_the_default_is_the_first() {
        for (choice, name) in Choice::ALL.into_iter().zip(NAMES) {
            assert_eq!(Choice::by_name(name), Some(choice));
        }
        assert_eq!(Choice::default(), Choice::ALL[0]);
        assert_eq!(Choice::by_name("magic"), None);
    }

    /// The contract, for every policy and any lengths: no more is asked for than there is, and
    /// where nothing is inactive, cached or tested something comes forth.
    #[test]
    fn nobody_asks_for_more_than_there_is_or_gets_stuck() {
        for choice in Choice::ALL {
            let config = Config { reclaim: choice, ..Config::live(1024, 4096) };
            let mut reclaim = Reclaim::new(&config);
            let policy = reclaim.get();
            let mut seed = 5u32;
            let mut below = |most: u32| {
                seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                (seed >> 8) % most
            };
            for _ in 0..2000 {
                let scene = Scene {
                    budget: 1024,
                    inactive: below(400),
                    active: below(400),
                    cached: below(100),
                    tested: below(100),
                    second_chance: 32,
                    ..Scene::default()
                };
                policy.arrived(Part::Rest, below(40));
                policy.paid(below(2) == 0);
                assert!(policy.tests(&scene) <= scene.active, "{choice:?}");
                assert!(policy.kept(&scene) <= 1024, "{choice:?}");
                let away =
                    Away { evictions: below(3000), stamp: below(65_536) as u16, failed: below(2) == 0 };
                for place in [policy.refault(&scene, &away), policy.touched(&scene, Waited::Tested, 3)] {
                    assert!(matches!(place.list, ListId::Inactive | ListId::Active));
                }
                assert!(!policy.fails(&Scene { tested: 0, oldest_test: None, ..scene }), "{choice:?}");
                assert!(policy.replaced(&scene) <= scene.active, "{choice:?}");
                let barren = Scene { inactive: 0, cached: 0, tested: 0, active: 1 + below(500), ..scene };
                assert!(policy.deactivates(&barren) > 0, "{choice:?}");
            }
        }
    }
}
