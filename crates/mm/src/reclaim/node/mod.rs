//! The machine: frames, pages on their lists, domains, and what becomes of a page that reclaim
//! looks at (specification 5.2).
//!
//! Owns every count of frames. Whoever drives it asks for a frame ([`Node::allocate`]), admits a
//! page to it, tells of touches and of writes that ended, and lets [`super::direct`] and
//! [`super::background`] work; it is told by [`Order`]s what was freed and what is to be written.
//! It never knows what a page holds or what time it is.
//!
//! Here is what the machine is made of. `events` is what its driver tells it, `round` goes over the
//! lists of a domain, `judge` decides about one page.

mod events;
mod judge;
mod round;
#[cfg(test)]
mod tests;

pub(super) use round::Round;

use alloc::vec::Vec;

use super::counters::Counters;
use super::fractions::{Cost, Recent};
use super::lists::{DomainId, Kind, List, PageNumber, Pages, PerList, SCANNED};
use super::scan::Era;
use super::shadow::Shadow;
use super::watermarks::Watermarks;
use super::{Reclaimer, Rules};

/// What is decided once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Frames in all.
    pub frames: u32,
    /// Slots of swap; 0 = none.
    pub swap_slots: u32,
    /// Which kernel's rules.
    pub rules: Rules,
    /// Which kernel's scan loop.
    pub era: Era,
    /// 0 to 100, with late rules to 200.
    pub swappiness: u64,
    /// When reclaim starts and stops.
    pub watermarks: Watermarks,
    /// Writing is put off, so that disks can rest.
    pub laptop: bool,
    /// The node stands for one that is so many times larger: targets follow that one.
    pub scale: u64,
}

impl Config {
    /// A node of so many frames, with everything else as it comes.
    #[must_use]
    pub fn new(frames: u32, swap_slots: u32, rules: Rules, era: Era) -> Config {
        let watermarks = Watermarks::of(rules, u64::from(frames));
        Config { frames, swap_slots, rules, era, swappiness: 60, watermarks, laptop: false, scale: 1 }
    }
}

/// What a domain is guaranteed, in frames: below `min` nothing is taken from it, below `low` only
/// when nothing else is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Protection {
    /// Never touched.
    pub min: u32,
    /// Touched last.
    pub low: u32,
}

/// What whoever drives the machine has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The page has no frame any more; its number may be used again at once.
    Freed {
        /// The page.
        page: PageNumber,
        /// Does a slot on swap hold its bytes? Else a file does, or nothing.
        has_slot: bool,
        /// To be given back when the page comes back.
        shadow: Shadow,
    },
    /// Begin to write the page; [`Node::written`] ends it.
    Write {
        /// The page.
        page: PageNumber,
    },
}

/// Orders, oldest first.
pub type Orders = Vec<Order>;

/// May a frame be taken?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Yes.
    Granted,
    /// Yes, but background reclaim is wanted.
    GrantedWake,
    /// No: the caller has to reclaim first. Background reclaim is wanted.
    Refused,
}

/// What is known of a page that gets a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// What backs it.
    pub kind: Kind,
    /// It will be in somebody's view.
    pub mapped: bool,
    /// ... executable.
    pub executable: bool,
    /// It is newer than what backs it: new anonymous memory, or a file page just written.
    pub dirty: bool,
    /// It was read from swap and keeps its slot.
    pub has_slot: bool,
    /// Locked in memory.
    pub locked: bool,
}

impl Arrival {
    /// A file page read by a system call.
    pub const FILE: Arrival = Arrival {
        kind: Kind::File,
        mapped: false,
        executable: false,
        dirty: false,
        has_slot: false,
        locked: false,
    };
    /// Memory touched for the first time.
    pub const ANON: Arrival = Arrival { kind: Kind::Anon, mapped: true, dirty: true, ..Arrival::FILE };
    /// Memory that comes back from swap.
    pub const SWAPPED: Arrival = Arrival { has_slot: true, dirty: false, ..Arrival::ANON };
}

/// What is kept for a domain beside its lists.
#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    protection: Protection,
    recent: Recent,
    cost: Cost,
    /// Pages that left and pages that became active.
    clock: u32,
    /// Of refaults that became active, by kind: now, and when reclaim last began.
    activations: [u64; 2],
    activations_seen: [u64; 2],
    /// What [`Era::Bounded`] owes.
    owed: u64,
}

/// How a reclaimer goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// Who.
    pub who: Reclaimer,
    /// May it write?
    pub may_write: bool,
    /// Active pages are looked at even where inactive ones are plenty.
    pub deactivates: bool,
    /// What is protected only while there is something else is taken.
    pub ignores_low: bool,
    /// Lists are looked at however short they are (early rules).
    pub forced: bool,
}

/// The machine.
pub struct Node {
    config: Config,
    pages: Pages,
    domains: Vec<Domain>,
    free: u64,
    swap_used: u32,
    /// Background reclaim was asked for since it last looked.
    pub(super) wanted: bool,
    /// All pages of a batch were dirty, or under writeback, since the node was last balanced.
    tail_dirty: bool,
    tail_writeback: bool,
    /// Background reclaim has met a page that had come round while it was being written.
    met_cycling: bool,
    /// Pages being looked at just now, by kind.
    pub(super) isolated: [u64; 2],
    /// The domain at which the next direct reclaim begins, where a call asks no more of them than it
    /// must ([`Era::Bounded`]).
    pub(super) turn: u8,
    pub(super) counters: Counters,
}

impl Node {
    /// All frames free; a domain for each protection.
    ///
    /// # Panics
    /// Without frames or domains, or with watermarks that are no order.
    #[must_use]
    pub fn new(config: Config, domains: &[Protection]) -> Node {
        let marks = config.watermarks;
        assert!(marks.min <= marks.low && marks.low <= marks.high, "min <= low <= high");
        assert!(marks.high < u64::from(config.frames), "the watermarks are within the node");
        let count = u8::try_from(domains.len()).expect("domains are numbered by a byte");
        assert!(count > 0, "pages are somebody's");
        let domain = |&protection: &Protection| Domain { protection, ..Domain::default() };
        Node {
            config,
            pages: Pages::new(config.frames, count),
            domains: domains.iter().map(domain).collect(),
            free: u64::from(config.frames),
            swap_used: 0,
            wanted: false,
            tail_dirty: false,
            tail_writeback: false,
            met_cycling: false,
            isolated: [0; 2],
            turn: 0,
            counters: Counters::default(),
        }
    }

    // What others may look at.

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Frames free.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Slots in use.
    #[must_use]
    pub fn swap_used(&self) -> u32 {
        self.swap_used
    }

    /// Number of domains.
    #[must_use]
    pub fn domain_count(&self) -> u8 {
        self.domains.len() as u8
    }

    /// Lengths of a domain's four lists.
    #[must_use]
    pub fn lengths(&self, domain: DomainId) -> PerList {
        SCANNED.map(|list| u64::from(self.pages.len(domain, list)))
    }

    /// Frames that a domain holds, pages that are locked included.
    #[must_use]
    pub fn held(&self, domain: DomainId) -> u64 {
        let unevictable = u64::from(self.pages.len(domain, List::Unevictable));
        self.lengths(domain).iter().sum::<u64>() + unevictable
    }

    /// Where a page is.
    #[must_use]
    pub fn list(&self, page: PageNumber) -> Option<List> {
        self.pages.list(page)
    }

    /// A domain's clock, for [`Shadow`]s.
    #[must_use]
    pub fn clock(&self, domain: DomainId) -> u32 {
        self.domains[usize::from(domain.0)].clock
    }

    /// Is background reclaim asked for?
    #[must_use]
    pub fn wants_background(&self) -> bool {
        self.wanted
    }

    /// As many frames are free as background reclaim makes.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.free >= self.config.watermarks.high
    }

    /// Walks all lists.
    ///
    /// # Panics
    /// When frames, lists and pages do not add up.
    pub fn check(&self) {
        self.counters.check();
        let mut held = 0;
        for domain in (0..self.domain_count()).map(DomainId) {
            for list in SCANNED.into_iter().chain([List::Unevictable]) {
                held += u64::from(self.pages.check(domain, list));
            }
        }
        assert_eq!(held + self.free, u64::from(self.config.frames), "every frame is free or has a page");
    }

    /// Pages on the lists of all domains.
    fn listed(&self) -> u64 {
        u64::from(self.config.frames) - self.free
    }

    fn can_swap(&self) -> bool {
        self.swap_used < self.config.swap_slots
    }

    /// The clock of the page's domain.
    fn age(&mut self, page: PageNumber) -> u32 {
        let domain = &mut self.domains[usize::from(self.pages.domain(page).0)];
        domain.clock = domain.clock.wrapping_add(1);
        domain.clock
    }
}
