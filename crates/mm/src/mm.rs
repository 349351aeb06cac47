//! The machine itself: its parts, its configuration, and the one entry point, [`Mm::step`].
//!
//! The work is in the sibling modules: `fault` answers touches, `reclaim` makes room, `transfer`
//! takes the results of I/O and unmapping, `range` carries out what the program does to its address
//! space. This file only dispatches, and ends every step with [`Mm::pump`], which serves waiting
//! faults and keeps frames free ahead of demand.

use alloc::vec::Vec;

use crate::event::{Actions, Event, IoId, Run};
use crate::filescan::FileScans;
use crate::filler::Follower;
use crate::list::Lists;
use crate::pace::Pace;
use crate::page::{PageTable, State, flag};
use crate::passing::Postponed;
use crate::probe::Probe;
use crate::readahead::SwapIn;
use crate::reclaim::appetite::Appetite;
use crate::reclaim::live::REFUSED_MAX;
use crate::reclaim::newcomers::Newcomers;
use crate::reclaim::policy::{Choice, Reclaim};
use crate::reclaim::streams::Scans;
use crate::region::{Region, Regions};
use crate::stats::{RegionStats, Vmstat};
use crate::swap::{AreaConfig, AreaId, Areas, Placement};
use crate::types::{Access, CHUNK_PAGES, Nanos, PageId, RegionKind, Slot, SpaceId, Vpn};
use crate::waiting::Waiting;
use crate::zeroes::Zeroes;

/// What the shell decides once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Frames that may be held.
    pub budget: u32,
    /// Slots of the first swap area, its header (slot 0) included; 0: there is none before an
    /// [`Event::AreaAdded`].
    pub swap_slots: u32,
    /// Which slot an evicted page gets.
    pub placement: Placement,
    /// Below this many free frames background reclaim starts; the pager's are fewer while frames are
    /// taken singly, see `reclaim::appetite`. 0 with `high` 0: reclaim only on demand, in batches of
    /// [`Config::unit`] (a memory cgroup's way).
    pub low: u32,
    /// At this many free frames it stops.
    pub high: u32,
    /// A fault on a page that is on swap waits until so many frames are free, so that its window is
    /// not cut: the kernel reads a window page by page, and may reclaim for each. 1 where
    /// read-ahead only takes what is free.
    pub swap_in_frames: u32,
    /// Most pages in the swap cache: those that wait for a second chance before they are written,
    /// and those read ahead; see `reclaim::appetite`.
    pub cache: u32,
    /// Pages taken out of the program's view together (an aligned group); 1..=64, a power of two.
    pub unit: u32,
    /// Which pages leave; a kernel's probe has rules of its own.
    pub reclaim: Choice,
    /// Largest write in pages.
    pub write_max: u32,
    /// Largest read in pages.
    pub read_max: u32,
    /// Most pages given to one sequential first touch.
    pub fill_max: u32,
    /// The shell can tell whether a page that it takes out of view holds what its slot holds
    /// ([`Unmapped::same`]): pages that are mapped keep their slots.
    ///
    /// [`Unmapped::same`]: crate::event::Unmapped::same
    pub compares: bool,
    /// The shell can show the kernel's zero page and tell of the first store to it
    /// ([`crate::Action::ShowZeroes`]): what is only read takes no frame.
    pub maps_zeroes: bool,
    /// How it is learnt which pages in view are used, and stored to.
    pub probe: Probe,
    /// A kernel's ([`Probe::Kernel`]): the rules of kernels before 5.9 (specification 5.1, left
    /// column; 1.7). Private pages begin active, one use at the tail is enough to become active, and
    /// nobody asks how long a page was away.
    pub early: bool,
    /// A kernel's: pages new to the lists of use come in batches of so many for each space, see
    /// `reclaim::newcomers`; 1 = singly.
    pub newcomers: u32,
    /// Where swap has no room for the rest some frames may be held above the budget, so that windows can
    /// be read (see `overfull`): not where the budget's end is the program's.
    pub floats: bool,
    /// May what nobody needs be filled with pages of files that nobody asked for?
    pub fills_room: bool,
    /// The machine stands for one that is so many times larger: rules that depend on the size of
    /// the lists follow that one.
    pub scale: u32,
}

/// What a live pager keeps free before it makes room, and what waits in the swap cache, as parts of the
/// budget; and the least of the first.
const LOW_SHARE: u32 = 64;
const LOW_LEAST: u32 = 16;
const CACHE_SHARE: u32 = 32;

impl Config {
    /// A live pager leaves a program alone until it holds this share of its budget, in percent,
    /// unless it grows fast.
    pub const MANAGED_FROM_PERCENT: u64 = 73;

    /// The live pager's defaults for a budget and a swap area.
    #[must_use]
    pub fn live(budget: u32, swap_slots: u32) -> Self {
        let low = (budget / LOW_SHARE).clamp(LOW_LEAST.min(budget / 4), 768);
        Config {
            budget,
            swap_slots,
            placement: Placement::ByAddress,
            low,
            high: low * 2,
            swap_in_frames: 1,
            cache: (budget / CACHE_SHARE).min(4096),
            unit: 16,
            reclaim: Choice::default(),
            write_max: 256,
            read_max: 256,
            fill_max: 256,
            compares: false,
            maps_zeroes: false,
            probe: Probe::Faults,
            early: false,
            newcomers: 1,
            floats: true,
            fills_room: false,
            scale: 1,
        }
    }
}

/// The area that the configuration speaks of.
fn first_area(config: &Config) -> Areas {
    let mut areas = Areas::new(config.placement);
    if config.swap_slots > 0 {
        areas.add(&AreaConfig { slots: config.swap_slots, ..AreaConfig::default() });
    }
    areas
}

/// Answered faults that are remembered: more than the pages one instruction of each of a few
/// threads can touch.
pub(crate) const ANSWERED: usize = 16;
/// A place among them that is empty.
pub(crate) const NOBODY: PageId = PageId(u32::MAX);

/// What an I/O is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoKind {
    Free,
    Read,
    /// A read for an area that leaves.
    Drain,
    Write,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    pub kind: IoKind,
    pub run: Run,
}

/// The memory manager of one budget: any number of spaces, its swap areas, one swap-in policy.
pub struct Mm<P: SwapIn> {
    /// What holds now, and what was asked for: a budget that becomes small takes the watermarks
    /// along, for as long as it is small.
    pub(crate) config: Config,
    asked: Config,
    pub(crate) policy: P,
    pub(crate) now: Nanos,
    pub(crate) pages: PageTable,
    pub(crate) lists: Lists,
    pub(crate) regions: Regions<P::Region>,
    pub(crate) areas: Areas,
    pub(crate) ios: Vec<Io>,
    pub(crate) ios_free: Vec<u32>,
    /// Which pages leave.
    pub(crate) reclaim: Reclaim,
    /// It looks at what is kept free, as it said once: that takes some working out.
    pub(crate) asks_what_is_free: bool,
    /// Reads that give way to others.
    pub(crate) pace: Pace,
    /// Faults that wait for a frame, oldest first.
    pub(crate) waiting: Waiting,
    /// Frames held: pages that are mapped, cached, being written or being read.
    pub(crate) held: u32,
    pub(crate) reading: u32,
    pub(crate) writing: u32,
    pub(crate) unmapping: u32,
    /// Of those so many leave RAM at once when they are out of view.
    pub(crate) leaving: u32,
    /// A window that waits for what its reader has passed.
    pub(crate) postponed: Option<Postponed>,
    /// Pages that could not be unmapped since anything else happened.
    pub(crate) refused: u32,
    /// So many more may be refused: each that leaves gives some, up to a bound.
    pub(crate) trust: u32,
    /// Background reclaim has started and not yet reached the high watermark.
    pub(crate) reclaiming: bool,
    /// Where `Pause` goes on to bring pages in; `None` when not paused.
    pub(crate) pause: Option<Pause>,
    /// The shell waits until nothing is under way.
    pub(crate) is_settling: bool,
    /// Who goes through what fills room.
    pub(crate) follower_of_filler: Follower,
    /// Counts evictions and activations (the "nonresident age" of specification 5.7).
    pub(crate) clock: u32,
    /// How many frames are taken at a time, lately.
    pub(crate) appetite: Appetite,
    /// See [`Mm::copies_to_take`].
    pub(crate) copies_to_take: bool,
    /// How streams are treated when they have passed.
    pub(crate) scans: Scans,
    /// The same of files.
    pub(crate) file_scans: FileScans,
    /// A kernel's: batches of pages on their way to the lists.
    pub(crate) newcomers: Newcomers,
    /// Pages whose faults were answered last, a ring: they are not taken away again at once.
    pub(crate) answered: [PageId; ANSWERED],
    pub(crate) answers: usize,
    pub(crate) warned_full: bool,
    /// That is to be said at the end of this step.
    pub(crate) says_full: bool,
    /// What becomes of pages that are read before they are stored to.
    pub(crate) zeroes: Zeroes,
    pub(crate) stats: Vmstat,
}

/// Progress of bringing everything in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// What is on swap stays there.
    pub keeps_out: bool,
    pub next_chunk: usize,
    pub view: View,
    pub answered: bool,
}

/// What is known, while everything is brought in, of what was to come into view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum View {
    /// Something was ordered, or refused, since the shell was last asked.
    #[default]
    Changed,
    /// [`Action::Confirm`] asks, and nothing was ordered or refused since.
    Asked,
    /// The shell has answered: all that was ordered is in view.
    Whole,
}

impl<P: SwapIn> Mm<P> {
    /// A machine without regions.
    ///
    /// # Panics
    /// When the configuration makes no sense: no budget, a unit that is not a power of two up to
    /// 64, watermarks above the budget.
    #[must_use]
    pub fn new(config: Config, policy: P) -> Self {
        assert!(config.budget > 0, "a budget of no frames runs nothing");
        assert!(config.unit.is_power_of_two() && config.unit <= 64, "a unit is 1, 2, 4 ... 64 pages");
        assert!(config.low <= config.high && config.high <= config.budget, "low <= high <= budget");
        assert!((1..=config.budget).contains(&config.swap_in_frames), "a fault needs a frame, and gets it");
        assert!(config.write_max > 0 && config.read_max > 0 && config.fill_max > 0);
        let reclaim = Reclaim::new(&config);
        Mm {
            config,
            asked: config,
            policy,
            now: 0,
            pages: PageTable::default(),
            lists: Lists::new(reclaim.peek().divides()),
            regions: Regions::new(),
            areas: first_area(&config),
            ios: Vec::new(),
            ios_free: Vec::new(),
            asks_what_is_free: reclaim.peek().asks_what_is_free(),
            reclaim,
            pace: Pace::default(),
            waiting: Waiting::default(),
            held: 0,
            reading: 0,
            writing: 0,
            unmapping: 0,
            leaving: 0,
            postponed: None,
            refused: 0,
            trust: REFUSED_MAX,
            reclaiming: false,
            pause: None,
            is_settling: false,
            follower_of_filler: Follower::default(),
            clock: 0,
            appetite: Appetite::default(),
            copies_to_take: false,
            scans: Scans::default(),
            file_scans: FileScans::default(),
            newcomers: Newcomers::default(),
            answered: [NOBODY; ANSWERED],
            answers: 0,
            warned_full: false,
            says_full: false,
            zeroes: Zeroes::default(),
            stats: Vmstat::default(),
        }
    }

    /// Takes one event and appends what must be done to `out`. Same events in, same actions out.
    pub fn step(&mut self, now: Nanos, event: Event, out: &mut Actions) {
        self.now = now;
        let begin = out.as_slice().len();
        if !matches!(event, Event::Unmapped { .. } | Event::Idle) {
            self.refused = 0;
        }
        self.reclaims_on(&event);
        match event {
            Event::RegionAdded { space, start, end, kind } => self.region_added(space, start, end, kind),
            Event::RegionGrown { space, start, end } => self.regions.grow_down(space, start, end),
            Event::RegionRemoved { space, start, end } => self.region_removed(space, start, end, out),
            Event::Resident { space, start, end } => self.resident(space, start, end),
            Event::Discarded { space, start, end } => self.discarded(space, start, end, out),
            Event::Published { space, start, end } => self.published(space, start, end),
            Event::Moved { space, from, to, pages } => self.moved(space, from, to, pages, out),
            Event::Fault { space, vpn, access } => self.fault(space, vpn, access, out),
            Event::ReadDone { io, ok } => self.read_done(io, ok, false, out),
            Event::Unpacked { io } => self.read_done(io, true, true, out),
            Event::WriteDone { io, result } => self.write_done(io, result, out),
            Event::Unmapped { run, result } => self.unmapped(run, result, out),
            // Nothing else now: to map or fill again before the change is known would fail again, for ever.
            Event::NotMapped { run } => return self.not_mapped(run),
            Event::NotFilled { run } => return self.not_filled(run),
            Event::StillZeroes { run } => return self.still_zeroes(run),
            Event::WillNeed { space, start, end } => self.will_need(space, start, end, out),
            Event::Pause => self.pause = Some(Pause::default()),
            Event::PauseOut => self.pause = Some(Pause { keeps_out: true, ..Pause::default() }),
            Event::Inherited { space, vpn, slot, count } => self.inherited(space, vpn, slot, count),
            Event::Resume => self.pause = None,
            Event::Budget { frames } => self.set_budget(frames),
            Event::AreaAdded(area) => drop(self.add_area(&area)),
            Event::AreaLeaves { area } => self.areas.ask_to_leave(area),
            Event::AreaFailed { area } => self.area_failed(area, out),
            Event::DiscardDone { slot, kept } => self.areas.discarded(slot, kept),
            Event::Claimed { area, slots, more, has_company } => {
                self.areas.claimed(area, slots, more, has_company);
            }
            Event::Confirmed if self.was_refused() => return,
            Event::Confirmed => {}
            Event::Tick => self.areas.tick(),
            Event::Idle => {}
        }
        if self.held > self.config.budget {
            self.warn_full();
        }
        let before = out.as_slice().len();
        self.pump(out);
        self.keep_areas(out);
        // Last: what the step says of their pages is done before the next one. *The story* (by reading):
        // they were forgotten before faults were served, which gave their numbers to pages of a file:
        // who waited was woken at those.
        self.forget_chunks();
        self.tell_full(begin, out);
        if event == Event::Idle && out.as_slice().len() == before {
            self.rest();
        }
    }

    /// Ends every step: waiting faults get what frames there are, reclaim makes more, and when
    /// nothing in flight can free a frame the oldest fault is served above the budget, because a
    /// program that stops for ever is worse.
    fn pump(&mut self, out: &mut Actions) {
        if self.pause.is_some() {
            self.populate(out);
        }
        loop {
            while let Some(id) = self.waiting.front() {
                if !self.frames_suffice(id) && self.pause.is_none() {
                    break;
                }
                self.serve_next(out);
            }
            if self.pause.is_some() {
                self.resume_window(out);
                return;
            }
            self.reclaim(out);
            if self.resume_window(out) {
                self.reclaim(out);
            }
            let Some(id) = self.waiting.front() else { return };
            if !self.frames_suffice(id) {
                if self.reading + self.writing + self.unmapping > 0 || self.areas.is_claiming() {
                    return;
                }
                if self.frames_free() == 0 {
                    self.warn_full();
                }
                self.serve_next(out);
            }
        }
    }

    /// Are there frames enough to begin with the fault?
    pub(crate) fn frames_suffice(&self, id: PageId) -> bool {
        let needed = if self.pages[id].state == State::Swapped { self.config.swap_in_frames } else { 1 };
        self.frames_free() >= needed
    }

    /// The fault that has waited longest goes on.
    fn serve_next(&mut self, out: &mut Actions) {
        let id = self.waiting.pop(&mut self.pages).expect("a fault waits");
        let write = self.pages[id].take(flag::WANTED_WRITE);
        self.pages[id].clear(flag::WANTED);
        let access = if write { Access::Write } else { Access::Read };
        self.start(id, access, out);
    }

    /// A share of the budget has what suits it: the low watermark and the swap cache of a budget that is
    /// twice as large at the most.
    fn set_budget(&mut self, frames: u32) {
        let frames = frames.max(1);
        let of_share = |asked: u32, part: u32, least: u32| match self.config.probe.is_kernel() {
            true => asked,
            false => asked.min((frames / part).max(least.min(frames / 4))),
        };
        let low = of_share(self.asked.low, LOW_SHARE / 2, LOW_LEAST);
        let high = if low < self.asked.low { 2 * low } else { self.asked.high };
        self.config.cache = of_share(self.asked.cache, CACHE_SHARE / 2, 0);
        self.config.budget = frames;
        self.config.high = high.min(frames);
        self.config.swap_in_frames = self.asked.swap_in_frames.min(frames);
        self.config.low = low.min(self.config.high);
    }

    pub(crate) fn new_io(&mut self, kind: IoKind, run: Run) -> IoId {
        let io = Io { kind, run };
        match self.ios_free.pop() {
            Some(index) => {
                self.ios[index as usize] = io;
                IoId(index)
            }
            None => {
                self.ios.push(io);
                IoId(self.ios.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn take_io(&mut self, io: IoId, kind: IoKind) -> Run {
        let slot = &mut self.ios[io.0 as usize];
        assert_eq!(slot.kind, kind, "an I/O ends once, as what it began");
        slot.kind = IoKind::Free;
        self.ios_free.push(io.0);
        slot.run
    }

    /// Gives the page's slot back, if it has one.
    pub(crate) fn release_slot(&mut self, id: PageId) {
        let slot = core::mem::take(&mut self.pages[id].backing).slot();
        if let Some(slot) = slot.filter(|slot| !slot.is_file()) {
            self.areas.release(slot);
        }
    }

    /// Makes a page `Untouched` and forgets everything about it but a waiting fault.
    pub(crate) fn forget(&mut self, id: PageId) {
        self.lists.remove(&mut self.pages, id);
        self.release_slot(id);
        self.pages.set_state(id, State::Untouched);
        let page = &mut self.pages[id];
        page.flags &= flag::WANTED | flag::WANTED_WRITE | flag::QUEUED;
    }

    /// As [`Event::AreaAdded`], for a shell that has to know where it is before anything goes there:
    /// that is not before the next event.
    pub fn add_area(&mut self, config: &AreaConfig) -> AreaId {
        self.warned_full = false;
        self.areas.add(config)
    }

    /// As [`Mm::add_area`], of an area that another process made and that both only read: it takes no
    /// page. Its slots have the numbers that they had there, which are above those of all areas so far.
    pub fn inherit_area(&mut self, base: Slot, slots: u32) -> AreaId {
        self.areas.inherit(base, slots)
    }

    /// Others come to know what is in the area's slots: it takes no more pages, and what is emptied is not
    /// given back. Nothing may be on its way there. It has no more numbers than it made use of.
    pub fn seal_area(&mut self, area: AreaId) {
        self.areas.seal(area, self.pages.homes());
    }

    /// A sealed area is forgotten in which no page is any more, and those behind it have numbers less by
    /// one from now on: the shell's are to follow. Nothing may be under way there, nor any event wait that
    /// names an area.
    pub fn remove_area(&mut self, area: AreaId) {
        self.areas.remove(area, self.pages.homes());
    }

    /// Slot numbers that no area will have when all of them are sealed.
    #[must_use]
    pub fn slot_numbers_left_sealed(&self) -> u32 {
        self.areas.numbers_left_sealed()
    }

    /// Slot numbers that no area has as yet.
    #[must_use]
    pub fn slot_numbers_left(&self) -> u32 {
        self.areas.numbers_left()
    }

    /// The slot of a page that is known to have one.
    pub(crate) fn slot_of(&self, id: PageId) -> Slot {
        self.pages[id].slot().expect("what is read or written has a slot")
    }

    // What shells, reports and tests may look at.

    /// A page of an area is bad: nothing is ever put there. Before the area's first use.
    pub fn exclude(&mut self, area: AreaId, page: u32) {
        self.areas.exclude(area, page);
    }

    /// The area of a slot.
    #[must_use]
    pub fn area_of(&self, slot: Slot) -> AreaId {
        self.areas.area_of(slot)
    }

    /// The number of an area's header among the slots of all areas, and its slots.
    #[must_use]
    pub fn area_place(&self, area: AreaId) -> (Slot, u32) {
        self.areas.place_of(area)
    }

    /// Does the area take pages?
    #[must_use]
    pub fn takes_pages(&self, area: AreaId) -> bool {
        self.areas.takes_pages(area)
    }

    /// Does the area take none for want of room on its backing?
    #[must_use]
    pub fn is_area_closed(&self, area: AreaId) -> bool {
        self.areas.is_closed(area)
    }

    /// There is room again.
    pub fn reopen_area(&mut self, area: AreaId) {
        self.areas.reopen(area);
    }

    /// Pages that are in an area, and those that the others would still take.
    #[must_use]
    pub fn areas_beside(&self, area: AreaId) -> (u32, u32) {
        self.areas.beside(area)
    }

    /// Has a write to the area failed?
    #[must_use]
    pub fn has_area_failed(&self, area: AreaId) -> bool {
        self.areas.has_failed(area)
    }

    /// Is what the slot's area holds being brought elsewhere?
    #[must_use]
    pub fn is_leaving(&self, slot: Slot) -> bool {
        self.areas.is_leaving(slot)
    }

    /// Does no area take pages any more?
    #[must_use]
    pub fn is_swap_full(&self) -> bool {
        self.areas.is_full()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Vmstat {
        &self.stats
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The swap-in policy, for its knobs.
    pub fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Frames held now.
    #[must_use]
    pub fn frames_held(&self) -> u32 {
        self.held
    }

    /// From now on some frames may float ([`Config::floats`]): the program goes on above its budget.
    pub fn allow_float(&mut self) {
        self.config.floats = true;
    }

    /// Slots in use.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.areas.used()
    }

    /// Pages that are on swap and have no frame: with [`Self::frames_held`] all that the program has.
    #[must_use]
    pub fn pages_swapped(&self) -> u32 {
        self.pages.swapped()
    }

    /// Pages that left as zeroes, and that the program has neither touched nor dropped since: with RAM
    /// enough they would have their frames still.
    #[must_use]
    pub fn pages_blank(&self) -> u32 {
        self.pages.blank()
    }

    /// Pages of files that were not in the program's view since they came to be known: nobody needs them.
    /// They are among [`Self::frames_held`] and [`Self::pages_swapped`].
    #[must_use]
    pub fn pages_unseen(&self) -> u32 {
        self.pages.unseen().0
    }

    /// Those of them that have a frame, or will have it when they are read.
    #[must_use]
    pub fn frames_unseen(&self) -> u32 {
        self.pages.unseen().1
    }

    /// Requests and unmaps under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.reading + self.writing + self.unmapping
    }

    /// Does any fault wait for a frame?
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Where a page is.
    #[must_use]
    pub fn place(&self, id: PageId) -> (SpaceId, Vpn) {
        self.pages.place(id)
    }

    /// The page at a place, if `mm` knows anything about its neighbourhood.
    #[must_use]
    pub fn lookup(&self, space: SpaceId, vpn: Vpn) -> Option<PageId> {
        self.pages.lookup(space, vpn)
    }

    /// Every page of every chunk in which something is known of one.
    pub fn known_pages(&self) -> impl Iterator<Item = PageId> + '_ {
        let used = (0..self.pages.chunk_count()).filter(|&index| self.pages.chunk_at(index).used > 0);
        used.flat_map(|index| {
            let first = index as u32 * CHUNK_PAGES as u32;
            (first..first + CHUNK_PAGES as u32).map(PageId)
        })
    }

    /// Where the page's bytes are.
    #[must_use]
    pub fn state(&self, id: PageId) -> State {
        self.pages[id].state
    }

    /// Could the page not be read back, so that whoever touches it is told?
    #[must_use]
    pub fn is_lost(&self, id: PageId) -> bool {
        self.pages[id].state == State::Swapped && self.pages[id].has(flag::LOST)
    }

    /// The page's slot, if it has one.
    #[must_use]
    pub fn slot(&self, id: PageId) -> Option<Slot> {
        self.pages[id].slot()
    }

    /// The page that has the slot, while that is in use.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<PageId> {
        self.areas.owner(slot)
    }

    /// What is counted for the region of a page, and what its policy keeps for it (knobs, for example).
    pub fn region(&mut self, space: SpaceId, vpn: Vpn) -> Option<(&RegionStats, &mut P::Region)> {
        self.regions.find(space, vpn).map(|region| (&region.stats, &mut region.readahead))
    }

    pub(crate) fn region_of(&mut self, id: PageId) -> Option<&mut Region<P::Region>> {
        let (space, vpn) = self.pages.place(id);
        self.regions.find(space, vpn)
    }

    /// The managed range of a page, and what backs it.
    #[must_use]
    pub fn region_at(&self, space: SpaceId, vpn: Vpn) -> Option<(Vpn, Vpn, RegionKind)> {
        let (start, end) = self.regions.bounds(space, vpn)?;
        self.regions.at(space, vpn).map(|region| (start, end, region.kind))
    }

    /// Is any page of the range managed?
    #[must_use]
    pub fn manages(&self, space: SpaceId, start: Vpn, end: Vpn) -> bool {
        self.regions.overlaps(space, start, end)
    }

    /// Every part of the range that is not managed, in order.
    pub fn unmanaged(&self, space: SpaceId, start: Vpn, end: Vpn) -> impl Iterator<Item = (Vpn, Vpn)> + '_ {
        self.regions.gaps(space, start, end)
    }

    /// The managed ranges, in order.
    pub fn regions(&self) -> impl Iterator<Item = (SpaceId, Vpn, Vpn)> + '_ {
        self.regions.each()
    }

    /// The accessed feed: the program used a mapped page. True when the access goes through without a fault.
    #[inline]
    pub fn mark_accessed(&mut self, id: PageId, access: Access) -> bool {
        let page = &mut self.pages[id];
        if page.state != State::Mapped {
            return false;
        }
        page.set(flag::REFERENCED);
        if access == Access::Read || !self.config.probe.tells_stores() {
            return true;
        }
        page.set(flag::DIRTY);
        if page.slot().is_some() && self.config.placement != Placement::ByAddress {
            // The first store makes the bytes on swap worthless; the kernel gives the slot back at
            // once, so that the page later goes where its neighbours in time go (specification
            // 1.7).
            self.release_slot(id);
        }
        true
    }
}
