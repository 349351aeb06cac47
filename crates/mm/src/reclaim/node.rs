//! The machine: frames, pages on their lists, domains, and what becomes of a page that reclaim
//! looks at (specification 5.2).
//!
//! Owns every count of frames. Whoever drives it asks for a frame ([`Node::allocate`]), admits a
//! page to it, tells of touches and of writes that ended, and lets [`super::direct`] and
//! [`super::background`] work; it is told by [`Order`]s what was freed and what is to be written.
//! It never knows what a page holds or what time it is.

use alloc::vec::Vec;

use super::counters::Counters;
use super::fractions::{Cost, Recent};
use super::lists::{DomainId, KINDS, Kind, List, PageNumber, Pages, PerList, SCANNED, flag};
use super::marks::{self, Mark, Sighting, Verdict};
use super::ratio::{self, Lengths};
use super::scan::{Era, Round, Shrink};
use super::shadow::{self, Shadow};
use super::targets::{self, Situation};
use super::watermarks::Watermarks;
use super::{BATCH, Reclaimer, Rules};
use crate::types::Access;

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

/// What became of a page that reclaim looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Freed,
    Kept,
    Activated,
    Written,
    Unevictable,
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
    /// Pages being looked at just now, by kind.
    pub(super) isolated: [u64; 2],
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
            isolated: [0; 2],
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
        let mut held = 0;
        for domain in (0..self.domain_count()).map(DomainId) {
            for list in SCANNED.into_iter().chain([List::Unevictable]) {
                held += u64::from(self.pages.check(domain, list));
            }
        }
        assert_eq!(held + self.free, u64::from(self.config.frames), "every frame is free or has a page");
    }

    // What happens to pages.

    /// May a frame be taken? Asks for background reclaim where few are left.
    pub fn allocate(&mut self) -> Admission {
        if self.free > self.config.watermarks.low {
            return Admission::Granted;
        }
        self.wanted = true;
        if self.free > self.config.watermarks.min { Admission::GrantedWake } else { Admission::Refused }
    }

    /// A page takes a frame; `back` is the shadow that it left when it had one before.
    ///
    /// # Panics
    /// When no frame is free: whoever may not fail keeps to `min`.
    pub fn admit(&mut self, domain: DomainId, arrival: &Arrival, back: Option<Shadow>) -> PageNumber {
        self.free = self.free.checked_sub(1).expect("a frame is free");
        let bits = [
            (arrival.kind == Kind::File, flag::FILE),
            (arrival.mapped, flag::MAPPED),
            (arrival.executable, flag::EXECUTABLE),
            (arrival.dirty, flag::DIRTY),
            (arrival.has_slot, flag::SLOT),
            (arrival.locked, flag::LOCKED),
        ];
        let flags = bits.into_iter().fold(0, |all, (is, bit)| if is { all | bit } else { all });
        let page = self.pages.add(domain, flags);
        let list = match arrival.kind {
            _ if arrival.locked => List::Unevictable,
            _ if back.is_some_and(|shadow| self.refault(page, shadow)) => List::active(arrival.kind),
            Kind::Anon if self.config.rules == Rules::Early => List::ActiveAnon,
            kind => List::inactive(kind),
        };
        if list.is_active() {
            // Use that shows otherwise weighs like use that reclaim finds when it looks.
            self.domains[usize::from(domain.0)].recent.note(arrival.kind, 1, 1);
        }
        self.pages.push_head(page, list);
        page
    }

    /// A page came back. True when it is active at once.
    fn refault(&mut self, page: PageNumber, shadow: Shadow) -> bool {
        let (id, kind) = (self.pages.domain(page), self.pages.kind(page));
        if self.config.rules == Rules::Early && kind == Kind::Anon {
            return false;
        }
        self.counters.workingset_refault[kind as usize] += 1;
        let (pages, all) = (self.lengths(id), self.listed());
        let rules = self.config.rules;
        let domain = &mut self.domains[usize::from(id.0)];
        let distance = shadow.distance(domain.clock);
        if !shadow::is_close(rules, kind, distance, &pages, self.config.swap_slots > 0) {
            return false;
        }
        self.counters.workingset_activate[kind as usize] += 1;
        domain.activations[kind as usize] += 1;
        domain.clock = domain.clock.wrapping_add(1);
        if rules == Rules::Late && shadow.was_workingset() {
            self.counters.workingset_restore[kind as usize] += 1;
            self.pages.set(page, flag::WORKINGSET);
            domain.cost.refaulted(kind, 1, all);
        }
        true
    }

    /// A system call read or wrote the page.
    pub fn mark_accessed(&mut self, page: PageNumber) {
        let list = self.pages.list(page).expect("a page with a frame is on a list");
        match marks::mark_accessed(list, self.pages.has(page, flag::REFERENCED)) {
            Mark::SetBit => self.pages.set(page, flag::REFERENCED),
            Mark::Nothing => {}
            Mark::Activate => {
                self.pages.take(page, flag::REFERENCED);
                self.pages.remove(page);
                self.activate(page);
                let kind = self.pages.kind(page);
                if kind == Kind::File {
                    self.age(page);
                }
                // As in `admit`: this, too, is use.
                self.domains[usize::from(self.pages.domain(page).0)].recent.note(kind, 1, 1);
            }
        }
    }

    /// Somebody in whose view the page is touched it; `others`: through another mapping than the
    /// first.
    pub fn touch(&mut self, page: PageNumber, access: Access, others: bool) {
        self.pages.set(page, flag::MAPPED | if others { flag::ACCESSED_OTHER } else { flag::ACCESSED });
        if access == Access::Write {
            self.store(page);
        }
    }

    /// The page is newer than what backs it. A slot is worth nothing then.
    pub fn store(&mut self, page: PageNumber) {
        self.pages.set(page, flag::DIRTY);
        if !self.pages.has(page, flag::WRITEBACK) && self.pages.take(page, flag::SLOT) {
            self.release_slot();
        }
    }

    /// A write that was ordered, or that a flusher began, has ended.
    pub fn written(&mut self, page: PageNumber, is_ok: bool) {
        assert!(self.pages.take(page, flag::WRITEBACK), "only what is being written ends so");
        if !is_ok {
            self.pages.set(page, flag::DIRTY);
        }
        if self.pages.take(page, flag::RECLAIM)
            && let Some(list) = self.pages.list(page)
            && !list.is_active()
            && list != List::Unevictable
        {
            self.pages.remove(page);
            self.pages.push_tail(page, list);
        }
    }

    /// A flusher begins to write a dirty file page. False when there is nothing to write.
    pub fn flush(&mut self, page: PageNumber) -> bool {
        let begins = !self.pages.has(page, flag::WRITEBACK) && self.pages.take(page, flag::DIRTY);
        if begins {
            self.pages.set(page, flag::WRITEBACK);
        }
        begins
    }

    /// The owner drops the page, whatever it holds: its file was cut, its program ended.
    pub fn forget(&mut self, page: PageNumber) {
        assert!(!self.pages.has(page, flag::WRITEBACK), "a page is not dropped while it is written");
        if self.pages.take(page, flag::SLOT) {
            self.release_slot();
        }
        self.pages.remove(page);
        self.pages.forget(page);
        self.free += 1;
    }

    /// A slot of a page that has no frame is free.
    pub fn release_slot(&mut self) {
        self.swap_used = self.swap_used.checked_sub(1).expect("a slot is released once");
    }

    // Reclaim.

    /// Pages on the lists of all domains.
    fn listed(&self) -> u64 {
        u64::from(self.config.frames) - self.free
    }

    fn can_swap(&self) -> bool {
        self.swap_used < self.config.swap_slots
    }

    fn is_low(&self, id: DomainId, kind: Kind) -> bool {
        let domain = &self.domains[usize::from(id.0)];
        let len = |list| u64::from(self.pages.len(id, list));
        let lengths = Lengths {
            inactive: len(List::inactive(kind)),
            active: len(List::active(kind)),
            node: u64::from(self.config.frames),
            refaulted: domain.activations[kind as usize] != domain.activations_seen[kind as usize],
        };
        ratio::is_low(self.config.rules, kind, &lengths)
    }

    /// Opens a round over a domain. `None`: it is protected, or no page of it is to be looked at.
    pub(super) fn round(&mut self, id: DomainId, manner: &Manner, priority: u32, goal: u64) -> Option<Round> {
        let pages = self.lengths(id);
        let held = self.held(id);
        let Protection { min, low } = self.domains[usize::from(id.0)].protection;
        let kept = u64::from(if manner.ignores_low { min } else { min.max(low) });
        if held <= kept {
            return None;
        }
        let situation = Situation {
            who: manner.who,
            priority,
            swappiness: self.config.swappiness,
            can_swap: self.can_swap(),
            pages,
            open: pages.map(|pages| (pages - pages * kept / (held + 1)) * self.config.scale),
            free: self.free,
            high: self.config.watermarks.high,
            low: KINDS.map(|kind| self.is_low(id, kind)),
            forced: false,
        };
        let domain = &mut self.domains[usize::from(id.0)];
        let targets = targets::targets(self.config.rules, &situation, &mut domain.recent, &domain.cost);
        let targets = at_most(targets, pages);
        let is_global_direct = manner.who == Reclaimer::Direct;
        let round = Round::new(self.config.era, goal, priority, is_global_direct, targets, domain.owed);
        domain.activations_seen = domain.activations;
        Some(round)
    }

    /// One pass of a round. Says whether it goes on, and how much was looked at on either list.
    pub(super) fn pass(
        &mut self,
        id: DomainId,
        manner: &Manner,
        round: &mut Round,
        out: &mut Orders,
    ) -> (bool, LookedAt) {
        let mut lists = OfDomain { node: self, id, manner, looked_at: LookedAt::default(), out };
        let goes_on = round.goes_on() && round.pass(&mut lists);
        let looked_at = lists.looked_at;
        if !goes_on {
            self.domains[usize::from(id.0)].owed = round.owed();
            // At the end anonymous pages grow old a little, whoever was short of what.
            self.age_active(id, manner, Kind::Anon, u64::from(BATCH));
        }
        (goes_on, looked_at)
    }

    /// The node is balanced: what was seen at the tails is forgotten.
    pub(super) fn note_balanced(&mut self) {
        (self.tail_dirty, self.tail_writeback) = (false, false);
    }

    /// Is the tail of the lists full of pages that are being written?
    pub(super) fn is_tail_written(&self) -> bool {
        self.tail_writeback
    }

    /// Moves up to `pages` from the active to the inactive list, if that is low.
    pub(super) fn age_active(&mut self, id: DomainId, manner: &Manner, kind: Kind, pages: u64) -> u64 {
        if !manner.deactivates && !self.is_low(id, kind) {
            return 0;
        }
        let all = self.listed();
        let is_early = self.config.rules == Rules::Early;
        let count = pages.min(u64::from(self.pages.len(id, List::active(kind))));
        let mut rotated = 0;
        for _ in 0..count {
            let page = self.pages.tail(id, List::active(kind)).expect("the list is as long");
            self.pages.remove(page);
            self.counters.pgrefill += 1;
            let accessed = self.pages.take(page, flag::ACCESSED | flag::ACCESSED_OTHER);
            let stays = accessed && kind == Kind::File && self.pages.has(page, flag::EXECUTABLE);
            rotated += u64::from(if is_early { accessed } else { stays });
            if stays {
                self.pages.push_head(page, List::active(kind));
                continue;
            }
            self.counters.pgdeactivate += 1;
            if !is_early {
                self.pages.set(page, flag::WORKINGSET);
            }
            self.pages.push_head(page, List::inactive(kind));
        }
        let domain = &mut self.domains[usize::from(id.0)];
        match self.config.rules {
            Rules::Early => domain.recent.note(kind, count, rotated),
            Rules::Late => domain.cost.rotated(kind, rotated, all),
        }
        count
    }

    /// Looks at up to `pages` of the inactive tail.
    fn look_at(&mut self, id: DomainId, manner: &Manner, kind: Kind, pages: u64, out: &mut Orders) -> Looks {
        let count = pages.min(u64::from(self.pages.len(id, List::inactive(kind))));
        let all = self.listed();
        let (mut freed, mut activated, mut written) = (0, 0, 0);
        let (mut dirty, mut writeback) = (0, 0);
        for _ in 0..count {
            let page = self.pages.tail(id, List::inactive(kind)).expect("the list is as long");
            self.pages.remove(page);
            writeback += u64::from(self.pages.has(page, flag::WRITEBACK));
            dirty += u64::from(self.pages.has(page, flag::DIRTY) && kind == Kind::File);
            match self.decide(page, manner, out) {
                Fate::Freed => freed += 1,
                Fate::Kept => self.pages.push_head(page, List::inactive(kind)),
                Fate::Written => {
                    written += 1;
                    self.pages.push_head(page, List::inactive(kind));
                }
                Fate::Activated => {
                    activated += 1;
                    self.activate(page);
                }
                Fate::Unevictable => self.pages.push_head(page, List::Unevictable),
            }
        }
        self.tail_dirty |= count > 0 && dirty == count;
        self.tail_writeback |= count > 0 && writeback == count;
        self.counters.scanned(manner.who, kind, count);
        self.counters.stolen(manner.who, kind, freed);
        let domain = &mut self.domains[usize::from(id.0)];
        match self.config.rules {
            Rules::Early => domain.recent.note(kind, count, activated),
            Rules::Late => domain.cost.scanned(kind, count, freed, written, all),
        }
        Looks { looked_at: count, freed }
    }

    /// To the head of the active list, from no list.
    fn activate(&mut self, page: PageNumber) {
        let kind = self.pages.kind(page);
        self.counters.pgactivate += 1;
        self.pages.push_head(page, List::active(kind));
    }

    /// The clock of the page's domain.
    fn age(&mut self, page: PageNumber) -> u32 {
        let domain = &mut self.domains[usize::from(self.pages.domain(page).0)];
        domain.clock = domain.clock.wrapping_add(1);
        domain.clock
    }

    /// What becomes of a page that is on no list now (specification 5.2).
    fn decide(&mut self, page: PageNumber, manner: &Manner, out: &mut Orders) -> Fate {
        if self.pages.has(page, flag::WRITEBACK) {
            if manner.who == Reclaimer::Background
                && self.pages.has(page, flag::RECLAIM)
                && self.tail_writeback
            {
                self.counters.nr_vmscan_immediate_reclaim += 1;
            }
            self.pages.set(page, flag::RECLAIM);
            return Fate::Kept;
        }
        let ptes = [flag::ACCESSED, flag::ACCESSED_OTHER].map(|bit| u32::from(self.pages.take(page, bit)));
        let sighting = Sighting {
            locked: self.pages.has(page, flag::LOCKED),
            contended: false,
            ptes: ptes[0] + ptes[1],
            referenced: self.pages.take(page, flag::REFERENCED),
            kind: self.pages.kind(page),
            executable: self.pages.has(page, flag::EXECUTABLE),
        };
        match marks::judge(self.config.rules, &sighting) {
            Verdict::Unevictable => Fate::Unevictable,
            Verdict::Activate { referenced } => {
                self.set_referenced(page, referenced);
                self.give_slot_up(page);
                Fate::Activated
            }
            Verdict::Keep { referenced } => {
                self.set_referenced(page, referenced);
                Fate::Kept
            }
            Verdict::ReclaimIfClean if self.pages.has(page, flag::DIRTY) => Fate::Kept,
            Verdict::Reclaim | Verdict::ReclaimIfClean => self.let_go(page, manner, out),
        }
    }

    fn set_referenced(&mut self, page: PageNumber, referenced: bool) {
        if referenced {
            self.pages.set(page, flag::REFERENCED);
        }
    }

    /// An active page's slot is not worth keeping when swap is more than half full.
    fn give_slot_up(&mut self, page: PageNumber) {
        if self.swap_used * 2 > self.config.swap_slots && self.pages.take(page, flag::SLOT) {
            self.pages.set(page, flag::DIRTY);
            self.release_slot();
        }
    }

    /// Nobody uses it: it is freed if nothing need be written, else written if that may be.
    fn let_go(&mut self, page: PageNumber, manner: &Manner, out: &mut Orders) -> Fate {
        match self.pages.kind(page) {
            Kind::Anon if !self.pages.has(page, flag::SLOT) => {
                if !self.can_swap() {
                    return Fate::Activated;
                }
                self.swap_used += 1;
                self.pages.set(page, flag::SLOT | flag::DIRTY);
            }
            Kind::File if self.pages.has(page, flag::DIRTY) => return self.dirty_file(page, manner, out),
            _ => {}
        }
        if self.pages.has(page, flag::DIRTY) {
            return if manner.may_write { self.write(page, out) } else { Fate::Kept };
        }
        let workingset = self.pages.has(page, flag::WORKINGSET);
        let shadow = Shadow::new(self.clock(self.pages.domain(page)), workingset);
        if self.pages.kind(page) == Kind::File || self.config.rules == Rules::Late {
            self.age(page);
        }
        let has_slot = self.pages.has(page, flag::SLOT);
        self.pages.forget(page);
        self.free += 1;
        out.push(Order::Freed { page, has_slot, shadow });
        Fate::Freed
    }

    /// Dirty pages of files are for the flushers, but for an early kswapd that sees nothing else.
    fn dirty_file(&mut self, page: PageNumber, manner: &Manner, out: &mut Orders) -> Fate {
        let is_early = self.config.rules == Rules::Early;
        if is_early && manner.who == Reclaimer::Background && self.tail_dirty {
            return self.write(page, out);
        }
        self.pages.set(page, flag::RECLAIM);
        self.counters.nr_vmscan_immediate_reclaim += 1;
        if is_early { Fate::Kept } else { Fate::Activated }
    }

    /// It comes back at the tail when it is written: a page needs two visits.
    fn write(&mut self, page: PageNumber, out: &mut Orders) -> Fate {
        self.counters.nr_vmscan_write[self.pages.kind(page) as usize] += 1;
        self.pages.take(page, flag::DIRTY);
        self.pages.set(page, flag::WRITEBACK | flag::RECLAIM);
        out.push(Order::Write { page });
        Fate::Written
    }
}

/// No list is looked at for longer than it is.
fn at_most(targets: PerList, pages: PerList) -> PerList {
    core::array::from_fn(|list| targets[list].min(pages[list]))
}

/// Pages looked at in a pass. Whether it was enough is asked of the inactive ones alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LookedAt {
    pub inactive: u64,
    pub active: u64,
}

impl LookedAt {
    pub fn all(self) -> u64 {
        self.inactive + self.active
    }
}

struct Looks {
    looked_at: u64,
    freed: u64,
}

/// The lists of a domain, for the scan loop.
struct OfDomain<'a> {
    node: &'a mut Node,
    id: DomainId,
    manner: &'a Manner,
    looked_at: LookedAt,
    out: &'a mut Orders,
}

impl Shrink for OfDomain<'_> {
    fn shrink_inactive(&mut self, kind: Kind, pages: u64) -> u64 {
        let looks = self.node.look_at(self.id, self.manner, kind, pages, self.out);
        self.looked_at.inactive += looks.looked_at;
        looks.freed
    }

    fn shrink_active(&mut self, kind: Kind, pages: u64) {
        self.looked_at.active += self.node.age_active(self.id, self.manner, kind, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::background::{self, Background};
    use crate::reclaim::direct::{self, Direct};

    const ONE: [Protection; 1] = [Protection { min: 0, low: 0 }];
    const D0: DomainId = DomainId(0);

    fn node(frames: u32, slots: u32, rules: Rules, era: Era) -> Node {
        Node::new(Config::new(frames, slots, rules, era), &ONE)
    }

    /// Fills all frames but `left` with file pages.
    fn fill_with_files(node: &mut Node, left: u64) -> Vec<PageNumber> {
        let mut pages = Vec::new();
        while node.free() > left {
            pages.push(node.admit(D0, &Arrival::FILE, None));
        }
        pages
    }

    /// Steps a call to its end; gives what it freed and the shadows.
    fn reclaim(node: &mut Node, call: &mut Direct) -> (u64, Orders) {
        let mut out = Orders::new();
        for _ in 0..1_000_000 {
            match call.step(node, &mut out) {
                direct::Step::Done(freed) => {
                    node.check();
                    return (freed, out);
                }
                direct::Step::Looked(_) | direct::Step::WaitForBackground | direct::Step::Sleep(_) => {}
            }
        }
        panic!("a call ends");
    }

    #[test]
    fn a_page_read_twice_is_active_and_one_read_once_goes() {
        let mut node = node(4096, 0, Rules::Early, Era::Seed);
        let pages = fill_with_files(&mut node, 64);
        for &page in &pages[..100] {
            (0..2).for_each(|_| node.mark_accessed(page));
            assert_eq!(node.list(page), Some(List::ActiveFile));
        }
        node.mark_accessed(pages[100]);
        let (freed, orders) = reclaim(&mut node, &mut Direct::new());
        assert!(freed >= 32);
        let freed_pages: Vec<PageNumber> = orders
            .iter()
            .filter_map(|order| match order {
                Order::Freed { page, has_slot: false, .. } => Some(*page),
                _ => None,
            })
            .collect();
        // The page that was read once more is clean: its mark does not save it.
        assert_eq!(freed_pages[..32], pages[100..132], "the oldest that was not used twice goes first");
        assert_eq!(node.counters().pgsteal_by(Reclaimer::Direct), freed);
        assert_eq!(node.counters().allocstall, 1);
    }

    /// An anonymous page needs two visits: one starts its write, the next frees it.
    #[test]
    fn anonymous_pages_need_two_visits() {
        let mut node = node(4096, 10_000, Rules::Late, Era::Since61);
        let pages: Vec<PageNumber> = (0..4032).map(|_| node.admit(D0, &Arrival::ANON, None)).collect();
        let (freed, orders) = reclaim(&mut node, &mut Direct::new());
        assert_eq!(freed, 0, "nothing is clean");
        let written: Vec<PageNumber> = orders
            .iter()
            .map(|order| match order {
                Order::Write { page } => *page,
                order => panic!("{order:?}"),
            })
            .collect();
        assert_eq!(written[..8], pages[..8]);
        assert_eq!(node.swap_used() as usize, written.len());
        assert_eq!(u64::from(node.swap_used()), node.counters().nr_vmscan_write[0]);
        written.iter().for_each(|&page| node.written(page, true));
        let (freed, orders) = reclaim(&mut node, &mut Direct::new());
        assert!(freed >= 32);
        assert!(matches!(orders[0], Order::Freed { page, has_slot: true, .. }
                if page == written[written.len() - 1]));
    }

    #[test]
    fn without_slots_anonymous_pages_stay() {
        let mut node = node(4096, 0, Rules::Early, Era::Seed);
        (0..4032).for_each(|_| _ = node.admit(D0, &Arrival::ANON, None));
        let (freed, orders) = reclaim(&mut node, &mut Direct::new());
        assert_eq!((freed, orders), (0, Orders::new()));
    }

    /// What was away for less than the active list is long comes back active; a longer way,
    /// inactive.
    #[test]
    fn refaults_by_distance() {
        for (actives, list) in [(100, List::ActiveFile), (10, List::InactiveFile)] {
            let mut node = node(4096, 0, Rules::Early, Era::Seed);
            let pages = fill_with_files(&mut node, 64);
            for &page in &pages[pages.len() - actives..] {
                (0..2).for_each(|_| node.mark_accessed(page));
            }
            let (freed, orders) = reclaim(&mut node, &mut Direct::new());
            let Order::Freed { shadow, .. } = orders[0] else { panic!("{orders:?}") };
            let page = node.admit(D0, &Arrival::FILE, Some(shadow));
            assert!((32..100).contains(&freed));
            assert_eq!(node.list(page), Some(list), "{actives} active, {freed} gone since");
        }
    }

    #[test]
    fn what_is_protected_goes_last_or_never() {
        let low = [Protection { min: 0, low: 0 }, Protection { min: 0, low: 3000 }];
        for (rules, min, spared) in
            [(Rules::Late, 0, false), (Rules::Late, 3000, true), (Rules::Early, 3000, true)]
        {
            let mut domains = low;
            domains[1].min = min;
            let mut node = Node::new(Config::new(8192, 0, rules, Era::Since61), &domains);
            (0..2000).for_each(|_| _ = node.admit(DomainId(1), &Arrival::FILE, None));
            (0..64).for_each(|_| _ = node.admit(D0, &Arrival::FILE, None));
            let (first, _) = reclaim(&mut node, &mut Direct::new());
            assert!((32..=64).contains(&first));
            assert_eq!(node.held(DomainId(1)), 2000, "others have pages");
            while node.held(D0) > 0 {
                reclaim(&mut node, &mut Direct::new());
            }
            let (second, _) = reclaim(&mut node, &mut Direct::new());
            assert_eq!(second == 0, spared, "{rules:?}, min {min}: {second}");
        }
    }

    #[test]
    fn a_domain_at_its_limit_takes_from_itself_only() {
        let mut node =
            Node::new(Config::new(8192, 0, Rules::Late, Era::Since61), &[Protection::default(); 2]);
        (0..2000).for_each(|_| _ = node.admit(D0, &Arrival::FILE, None));
        (0..2000).for_each(|_| _ = node.admit(DomainId(1), &Arrival::FILE, None));
        let (freed, _) = reclaim(&mut node, &mut Direct::of_domain(DomainId(1)));
        assert!(freed >= 32);
        assert_eq!(node.held(D0), 2000);
        assert_eq!(node.held(DomainId(1)) + freed, 2000);
    }

    /// Over-reclaim is a defect: under its own rule a call frees at most what it was asked for and
    /// a batch.
    #[test]
    fn bounded_calls_free_no_more_than_a_batch_above_their_goal() {
        for frames in [4096, 1 << 16, 1 << 20] {
            for slots in [0, 1 << 16] {
                let mut node = node(frames, slots, Rules::Late, Era::Bounded);
                (0..frames / 4).for_each(|_| _ = node.admit(D0, &Arrival::SWAPPED, None));
                fill_with_files(&mut node, 100);
                for _ in 0..20 {
                    let (freed, _) = reclaim(&mut node, &mut Direct::new());
                    assert!((32..=64).contains(&freed), "{frames} frames: {freed}");
                }
            }
        }
    }

    #[test]
    fn kswapd_works_from_low_to_high_and_dozes() {
        for rules in [Rules::Early, Rules::Late] {
            let mut node = node(1 << 16, 0, rules, Era::Seed);
            let marks = node.config().watermarks;
            let mut kswapd = Background::new();
            let mut out = Orders::new();
            fill_with_files(&mut node, marks.low + 1);
            assert_eq!(node.allocate(), Admission::Granted);
            assert!(!kswapd.is_due(0, &node));
            fill_with_files(&mut node, marks.low);
            assert_eq!(node.allocate(), Admission::GrantedWake);
            assert!(kswapd.is_due(0, &node));
            let until = loop {
                match kswapd.step(7, &mut node, &mut out) {
                    background::Step::Looked(_) => {}
                    background::Step::Until(until) => break until,
                    background::Step::Asleep => panic!("it dozes first"),
                }
            };
            assert_eq!(until, 7 + 100_000_000);
            assert!(node.is_balanced());
            assert!(node.free() < marks.high + 2 * marks.high, "{} free", node.free());
            assert_eq!(node.counters().pageoutrun, 1);
            assert_eq!(kswapd.step(until, &mut node, &mut out), background::Step::Asleep);
            fill_with_files(&mut node, marks.min);
            assert_eq!(node.allocate(), Admission::Refused);
            node.check();
        }
    }

    /// Random loads: frames, lists and pages add up, whatever the era, and nobody fails who need
    /// not.
    #[test]
    fn random_loads_add_up() {
        for era in Era::ALL {
            for rules in [Rules::Early, Rules::Late] {
                random_load(era, rules);
            }
        }
    }

    fn random_load(era: Era, rules: Rules) {
        let domains = [Protection { min: 50, low: 100 }, Protection::default()];
        let mut node = Node::new(Config::new(1024, 700, rules, era), &domains);
        let mut kswapd = Background::new();
        let (mut live, mut gone): (Vec<PageNumber>, Vec<(Kind, bool, Shadow)>) = (Vec::new(), Vec::new());
        let (mut seed, mut now) = (era as u64 + 77, 0);
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below.max(1)
        };
        let mut out = Orders::new();
        for _ in 0..3000 {
            now += 1_000_000;
            if node.allocate() == Admission::Refused {
                reclaim_into(&mut node, &mut Direct::new(), &mut out);
            }
            for _ in 0..3 {
                if kswapd.is_due(now, &node) {
                    kswapd.step(now, &mut node, &mut out);
                }
            }
            for order in out.drain(..) {
                match order {
                    Order::Freed { page, has_slot, shadow } => {
                        let at = live.iter().position(|&other| other == page).expect("it had a frame");
                        live.swap_remove(at);
                        gone.push((if has_slot { Kind::Anon } else { Kind::File }, has_slot, shadow));
                    }
                    Order::Write { page } => node.written(page, random(50) > 0),
                }
            }
            if node.free() > 0 {
                let domain = DomainId(random(2) as u8);
                let back = (random(3) == 0 && !gone.is_empty()).then(|| gone.swap_remove(random(gone.len())));
                let arrival = match back {
                    Some((_, true, _)) => Arrival::SWAPPED,
                    Some(_) => Arrival::FILE,
                    None if random(2) == 0 => Arrival::ANON,
                    None => Arrival { dirty: random(9) == 0, ..Arrival::FILE },
                };
                live.push(node.admit(domain, &arrival, back.map(|(_, _, shadow)| shadow)));
            }
            let page = live[random(live.len())];
            match random(4) {
                0 => node.mark_accessed(page),
                1 => node.touch(page, Access::Read, random(2) == 0),
                2 => node.touch(page, Access::Write, false),
                _ if node.flush(page) => node.written(page, true),
                _ => {}
            }
            if random(64) == 0 {
                node.forget(live.swap_remove(random(live.len())));
                node.check();
            }
        }
        assert_eq!(live.len() as u64 + node.free(), 1024);
        assert!(node.counters().pgsteal_of(Kind::File) > 0 && node.counters().pgsteal_of(Kind::Anon) > 0);
    }

    fn reclaim_into(node: &mut Node, call: &mut Direct, out: &mut Orders) {
        while !matches!(call.step(node, out), direct::Step::Done(_)) {}
    }
}
