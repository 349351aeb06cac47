//! A fork with pages out: the child inherits them where they are.
//!
//! Slots that both know are never written again: the parent's areas are closed for writing, and both
//! have them as areas that only empty. Both go on in new ones. A file lives as long as a descriptor
//! of it, so nobody counts references across processes.
//!
//! The kernel tells of the fork with a descriptor for the child, and as long as that is open nothing
//! that is out shows zeroes there: who touches it waits, and this end serves it. So the child asks by
//! touching pages of a mailbox, and is answered with their content:
//!
//! 1. [`Asks::Takes`]: it has an agent, and wants to know what it inherits. It reads that and opens the
//!    files.
//! 2. [`Asks::Commits`]: it has all that it needs. The descriptor is closed, and it registers its memory
//!    anew. It has one thread, which waits.
//! 3. [`Asks::Refuses`], at any time before: it cannot. It gets all that is out, as who forked
//!    unannounced.
//!
//! Who reads zeroes there has lost its parent, and may have read zeroes elsewhere before: it ends. All
//! this is done within the handling of the fork, so that the books are those of its moment.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use overspill_mm::types::{PageId, Slot, Vpn};
use overspill_mm::{AreaId, Event, State};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock, file, random, thread};

use super::Engine;
use crate::child::Heard;
use crate::estate::{Estate, EstateArea};
use crate::memory::REST_NS;
use crate::silence::Silence;
use crate::swapfile::{GivesBack, SwapFile};
use crate::view::{PROGRAM, vpn};

/// Pages of the mailbox.
pub const PAGES: usize = 3;
/// What their touches say.
const TAKES: usize = 0;
const COMMITS: usize = 1;
const REFUSES: usize = 2;
/// Words of an answer: one of these, then what belongs to it.
pub const ALL_IS_IN: u64 = 1;
/// Followed by the thread that has the descriptor, that, and a token.
pub const LIES_THERE: u64 = 2;
/// The child is on its own.
pub const GO_ON: u64 = 3;

/// Fewer pages are brought in: so many, or this share of what is held.
const OUT_MIN: u32 = 1024;
const OUT_SHARE: u32 = 16;
/// More areas than this, in which anything is, are not made by forks: each makes one more at the most.
const AREAS_MAX: usize = 64;
/// Numbers of slots that must be left for new areas: those of 1 TiB.
const NUMBERS_MIN: u32 = 1 << 28;
/// So often sealed areas are looked at.
const LOOK_NS: u64 = 50_000_000;
/// Slots of sealed areas that nobody here has, as a multiple of what the process has.
const IDLE_MAX: u64 = 2;
/// A child that wants so many pages before it says something gets all, as one whose silence lasts too long.
const SERVED_MAX: usize = 256;

/// What is known about children that are to come.
#[derive(Default)]
pub(super) struct Heirs {
    mailbox: AddressRange,
    /// Threads that are between an announcement and their fork's end.
    forks: Option<&'static AtomicU32>,
    /// Forks are announced, and find out what is in slots; or did in this pause, and those that were
    /// announced then ask.
    pub is_expected: bool,
    pub was_expected: bool,
    /// One of them could not: others will not, either, and each would have copies of its own.
    is_given_up: bool,
    /// When sealed areas are looked at.
    looks_next: u64,
    /// How many pages ever were in areas when these were sealed.
    sealed_ever: u32,
}

impl Heirs {
    /// What is registered for questions.
    pub fn mailbox(&self) -> Option<AddressRange> {
        (!self.mailbox.is_empty()).then(|| self.mailbox.clone())
    }
}

/// How it went.
enum Outcome {
    /// The child is on its own, or gone.
    Over,
    /// It gets all that is out.
    Gets,
}

impl Engine {
    /// Page addresses that nobody touches but children, and how many forks are under way that were
    /// announced: no others ask. From now on the kernel tells of forks, and whoever forks waits until that is
    /// read.
    ///
    /// *The story:* this was done when all was opened, before anything was to be managed. Who forked then
    /// waited for ever, as nobody read (`torture fork-growing`).
    pub fn set_mailbox(&mut self, range: AddressRange, forks: &'static AtomicU32) -> Result<(), Errno> {
        self.view.program.register_doorbell(range.clone())?;
        (self.heirs.mailbox, self.heirs.forks) = (range, Some(forks));
        Ok(())
    }

    /// The descriptor of the program's memory, for whoever keeps a second one of it.
    #[must_use]
    pub fn descriptor(&self) -> &Fd {
        self.view.program.descriptor()
    }

    /// Is it worth it that a child inherits what is out, and possible?
    #[must_use]
    pub fn can_hand_over(&self) -> bool {
        let out = self.mm.pages_swapped();
        let is_worth_it = out >= OUT_MIN.max(self.mm.frames_held() / OUT_SHARE);
        let is_possible = !self.heirs.is_given_up
            && self.hears_forks()
            && self.view.program.can_move()
            && self.sealing.is_none()
            && !self.has_lost
            && !self.heirs.mailbox.is_empty()
            && self.transfers.has_no_files()
            && self.areas.iter().zip(self.area_ids()).filter(|(_, id)| !self.is_forgettable(*id)).count()
                < AREAS_MAX;
        is_worth_it
            && is_possible
            && self.area_ids().all(|id| self.can_be_inherited(id) || self.is_unused(id))
    }

    /// Not what has failed: who inherits it does not know, and leaves its pages there.
    fn can_be_inherited(&self, id: AreaId) -> bool {
        self.areas[usize::from(id.0)].can_be_shared() && !self.mm.has_area_failed(id)
    }

    /// As [`Engine::pause`], but what is in slots stays there.
    pub fn pause_out(&mut self) {
        (self.heirs.is_expected, self.heirs.was_expected) = (true, true);
        self.begin_pause(Event::PauseOut);
    }

    /// Do children inherit what is out, as long as this pause lasts?
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.heirs.is_expected
    }

    fn area_ids(&self) -> impl Iterator<Item = AreaId> + use<> {
        (0..self.areas.len()).map(|index| AreaId(index as u8))
    }

    fn is_unused(&self, id: AreaId) -> bool {
        self.mm.areas_beside(id).0 == 0
    }

    /// Serves the child that was just made until it is on its own. False: it gets all that is out.
    pub(super) fn hand_over(&mut self) -> bool {
        let is_announced = self.heirs.forks.is_some_and(|forks| forks.load(SeqCst) > 0);
        if !(self.heirs.is_expected && is_announced && self.can_hand_over()) {
            return false;
        }
        matches!(self.attend(), Outcome::Over)
    }

    /// The child needs to know no more: all is in. Whatever page of the mailbox it touches says so.
    pub(super) fn tell_all_is_in(&mut self) {
        if self.heirs.was_expected {
            (0..PAGES).for_each(|page| self.answer(page, &[ALL_IS_IN]));
        }
    }

    fn attend(&mut self) -> Outcome {
        let (mut silence, mut served) =
            (Silence::begin(clock::monotonic_ns(), self.view.program.fork_read_ns()), Vec::new());
        let mut estate = None;
        while !silence.lasts_too_long(clock::monotonic_ns(), estate.is_some()) && served.len() < SERVED_MAX {
            let Some(child) = self.children.first_mut() else { return Outcome::Over };
            let mut born = Vec::new();
            let heard = child.hear(&mut born);
            let (at, wp) = match heard {
                Heard::Touch { address, wp } => (address, wp),
                Heard::Nothing if child.is_gone(self.heirs.mailbox.start) => return Outcome::Over,
                Heard::Nothing => {
                    clock::sleep_ns(REST_NS);
                    continue;
                }
                // What it has changed is for it to know: here that is not told.
                Heard::Change => {
                    self.children.append(&mut born);
                    return Outcome::Gets;
                }
            };
            if !self.heirs.mailbox.contains(&at) {
                served.push(vpn(at));
                self.serve(at, wp);
                silence.is_served();
                continue;
            }
            silence.is_broken(clock::monotonic_ns());
            match (at - self.heirs.mailbox.start) / PAGE_SIZE {
                TAKES if estate.is_none() => {
                    served.sort_unstable();
                    let Some((kept, lies)) = self.make_estate(&served) else { return Outcome::Gets };
                    self.answer(TAKES, &lies);
                    estate = Some(kept);
                }
                COMMITS if let Some((estate, _)) = &estate => {
                    if !self.part_with(estate) {
                        return Outcome::Gets;
                    }
                    self.answer(COMMITS, &[GO_ON]);
                    return Outcome::Over;
                }
                // A fault may be told twice.
                TAKES => {}
                _ => {
                    self.heirs.is_given_up = true;
                    return Outcome::Gets;
                }
            }
        }
        Outcome::Gets
    }

    /// Gives the child the page that it touches.
    fn serve(&mut self, at: usize, wp: bool) {
        let id = self.mm.lookup(PROGRAM, vpn(at)).filter(|&id| self.is_out(id) && !self.is_wiped(id));
        match id {
            _ if wp => self.children[0].unprotect(at),
            Some(id) => self.give_one(id),
            None => self.children[0].give_zeroes(at),
        }
    }

    fn answer(&mut self, page: usize, words: &[u64]) {
        self.view.program.fill_loan(|bytes| {
            bytes.fill(0);
            for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        });
        let at = self.heirs.mailbox.start + page * PAGE_SIZE;
        self.give_pages(vpn(at), self.view.program.loan_address(), 1);
    }

    /// What the child inherits, in a file that stays open with it, and the words that say where that is.
    /// What is not in a slot alone, or there only by the pool, is given to it first; what was `served`
    /// it has, as it may have stored to it since.
    ///
    /// *The story* (by reading): what a handler of fork filled with zeroes, and what then left again as
    /// such, before the child's books knew where its parent had had it, would have been that again.
    fn make_estate(&mut self, served: &[Vpn]) -> Option<((Estate, Fd), [u64; 4])> {
        let mut estate =
            Estate { token: random::unpredictable(), seed: self.fingerprints.seed(), ..Estate::default() };
        let is_out = |id: PageId| self.is_out(id) && !self.is_wiped(id);
        let is_wanted = |&id: &PageId| is_out(id) && served.binary_search(&self.mm.place(id).1).is_err();
        let out: Vec<PageId> = self.mm.known_pages().filter(is_wanted).collect();
        for id in out {
            let slot = self.mm.slot(id).filter(|slot| {
                let tier = &self.compressed.pool.tier;
                self.mm.state(id) == State::Swapped && !(tier.holds(slot.0) && tier.is_dirty(slot.0))
            });
            match slot {
                Some(slot) => estate.push(self.mm.place(id).1, slot, self.sums.of_slot(slot.0)),
                None => self.give_one(id),
            }
        }
        for id in self.area_ids() {
            let (Slot(base), slots) = self.mm.area_place(id);
            let slots = estate.reach(base, slots);
            if slots == 0 {
                continue;
            }
            let descriptor = self.transfers.descriptor_of(usize::from(id.0))?;
            let path = self.areas[usize::from(id.0)].path.clone();
            estate.areas.push(EstateArea { descriptor, base, slots, path });
        }
        estate.regions = self.regions().collect();
        let file = file::memfd(c"overspill-estate").ok()?;
        estate.write(&file).ok()?;
        let lies = [LIES_THERE, u64::from(thread::id()), u64::from(file.raw() as u32), estate.token];
        Some(((estate, file), lies))
    }

    /// Closes the areas for writing that the child has, too, and opens new ones. False: that cannot be.
    ///
    /// *The story:* a disk was full, and the area there took no more pages as it was. So it was not sealed,
    /// and what the parent gave back of it was punched out of the file under its child, which lost that
    /// (`swap::full-fork`). And (`torture fork-out-limit`) a program that had limited the length of its
    /// files got a new area of that length, and swap was full.
    fn part_with(&mut self, estate: &Estate) -> bool {
        let is_in = |id: AreaId| estate.areas.iter().any(|area| Slot(area.base) == self.mm.area_place(id).0);
        let unsealed = |&id: &AreaId| !self.areas[usize::from(id.0)].is_sealed && is_in(id);
        let unsealed: Vec<AreaId> = self.area_ids().filter(unsealed).collect();
        let open = unsealed.iter().filter(|&&id| self.mm.takes_pages(id));
        let places = open.filter_map(|id| self.areas[usize::from(id.0)].renewed.clone());
        let made: Result<Vec<SwapFile>, Errno> =
            places.map(|place| SwapFile::open(&place, u64::MAX)).collect();
        let Ok(made) = made else { return false };
        // What is free in the old ones would be missing.
        let room: u64 = made.iter().map(|file| file.bytes / PAGE_SIZE as u64).sum();
        let is_enough = room >= u64::from(self.mm.frames_held()) + u64::from(self.mm.pages_swapped())
            && self.mm.slot_numbers_left_sealed() >= NUMBERS_MIN;
        if !made.is_empty() && !is_enough {
            return false;
        }
        for id in unsealed {
            self.heirs.sealed_ever = self.heirs.sealed_ever.saturating_add(self.mm.areas_beside(id).0);
            self.mm.seal_area(id);
            self.areas[usize::from(id.0)].is_sealed = true;
        }
        self.forget_emptied();
        self.add_areas(made);
        self.report.note_areas(self.area_bytes());
        true
    }

    /// Is nothing in the area any more, and will nothing be?
    fn is_forgettable(&self, id: AreaId) -> bool {
        self.areas[usize::from(id.0)].is_sealed && self.is_unused(id)
    }

    /// Sealed areas that were emptied, and closed, give their numbers up.
    ///
    /// *The story:* they kept them. From the 64th area on that forks had made everything came in for each
    /// (`torture fork-out-many`).
    fn forget_emptied(&mut self) {
        let names_area = |event: &Event| {
            let leaves = matches!(event, Event::AreaLeaves { .. } | Event::AreaFailed { .. });
            leaves || matches!(event, Event::DiscardDone { .. } | Event::Claimed { .. })
        };
        if self.events.iter().any(names_area) {
            return;
        }
        self.close_unused();
        for index in self.transfers.closed() {
            let id = AreaId(index as u8);
            if self.is_forgettable(id) {
                self.mm.remove_area(id);
                self.areas.remove(index);
                self.transfers.remove_area(index);
                self.compressed.forget_area(id);
            }
        }
    }

    /// An engine's part: the areas that its parent has left it, by the descriptors that were opened.
    pub(crate) fn add_inherited_areas(&mut self, areas: Vec<(EstateArea, Fd)>) {
        for (EstateArea { base, slots, path, .. }, file) in areas {
            let id = self.mm.inherit_area(Slot(base), slots);
            assert_eq!(usize::from(id.0), self.areas.len(), "areas are numbered in order");
            self.areas.push(super::areas::KnownArea::inherited(path, slots));
            self.transfers.add_area(file, None, base, GivesBack::Nothing);
        }
    }

    /// Files of sealed areas in which this process has nothing any more are closed: their blocks are
    /// free when nobody else has them, either.
    ///
    /// Sealed files only empty, and that takes time: they are looked at now and then.
    pub(super) fn close_emptied(&mut self, now: u64) {
        if now < self.heirs.looks_next {
            return;
        }
        self.heirs.looks_next = now + LOOK_NS;
        self.close_unused();
        self.thin_out();
    }

    fn close_unused(&mut self) {
        let unused: Vec<AreaId> = self.area_ids().filter(|&id| self.is_forgettable(id)).collect();
        unused.into_iter().for_each(|id| self.transfers.close_area(id.0.into()));
    }

    /// Where sealed areas hold much that nobody here has any more, the emptiest of them is to go.
    ///
    /// *The story:* of a program of 100 MB that forked and stored to 60 of it, over and over, a few pages
    /// stayed in each area, and each kept all of its blocks: 1.8 GB after 56 forks (`torture fork-out-thin`).
    fn thin_out(&mut self) {
        let is_thin = |id: &AreaId| self.areas[usize::from(id.0)].is_sealed && !self.is_unused(*id);
        let sealed: Vec<AreaId> = self.area_ids().filter(is_thin).collect();
        let used = |id: AreaId| self.mm.areas_beside(id).0;
        let idle = |id: AreaId| self.mm.area_place(id).1 - used(id);
        let all: u64 = sealed.iter().map(|&id| u64::from(idle(id))).sum();
        let most = IDLE_MAX * (u64::from(self.mm.frames_held()) + u64::from(self.mm.pages_swapped()));
        if self.is_paused || all <= most || sealed.iter().any(|&id| self.areas[usize::from(id.0)].thins_out) {
            return;
        }
        let emptiest = sealed.iter().max_by_key(|&&id| u64::from(idle(id)) * 1024 / u64::from(used(id)));
        if let Some(&area) = emptiest {
            self.areas[usize::from(area.0)].thins_out = true;
            self.feed(Event::AreaLeaves { area });
        }
    }

    /// The pages that its parent had out, of memory that is managed by now, with all that is in view.
    pub fn inherit(&mut self, estate: &Estate) {
        for (_, slot, sum) in estate.pages() {
            if let Some(hash) = self.sums.inherit(slot.0, sum) {
                self.fingerprints.inherit(slot.0, hash);
            }
        }
        self.heirs.sealed_ever = estate.runs.iter().map(|run| run.count).sum();
        for run in &estate.runs {
            let (vpn, slot, count) = (run.vpn, run.slot, run.count);
            self.feed(Event::Inherited { space: PROGRAM, vpn, slot, count });
        }
    }

    /// Bytes that were inherited in slots and not stored to since; and those that have gone of all that lay
    /// in slots that others know.
    fn heritage_bytes(&self) -> (u64, u64) {
        let (mut inherited, mut there) = (0, 0);
        for id in self.area_ids().filter(|&id| self.areas[usize::from(id.0)].is_sealed) {
            let (used, _) = self.mm.areas_beside(id);
            there += used;
            inherited += if self.areas[usize::from(id.0)].renewed.is_none() { used } else { 0 };
        }
        let bytes = |pages: u32| u64::from(pages) * PAGE_SIZE as u64;
        (bytes(inherited), bytes(self.heirs.sealed_ever.saturating_sub(there)))
    }

    /// Tells what kin have, too, of what the program has.
    pub fn tell_heritage(&mut self) {
        let heritage = self.heritage_bytes();
        self.report.sample_heritage(heritage);
        if self.view.program.may_share() {
            let copied_bytes = self.likely_copies() * PAGE_SIZE as u64;
            self.report.sample_copies(copied_bytes, self.view.program.stored());
        }
    }

    fn likely_copies(&mut self) -> u64 {
        let mm = &self.mm;
        let is_in_view = |page| mm.lookup(PROGRAM, page).is_some_and(|id| mm.state(id) == State::Mapped);
        self.copies
            .likely(clock::monotonic_ns())
            .unwrap_or_else(|| self.copies.count(is_in_view, clock::monotonic_ns))
    }

    /// Are the bytes of the page anywhere but in view?
    pub(super) fn is_out(&self, id: PageId) -> bool {
        let is_in = matches!(self.mm.state(id), State::Untouched | State::Zero | State::Mapped);
        !is_in && self.mm.place(id).0 == PROGRAM
    }
}

/// Where a page of a mailbox is.
#[must_use]
pub fn page_of(mailbox: usize, page: Asks) -> usize {
    mailbox + page as usize * PAGE_SIZE
}

/// What a child asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Asks {
    /// What it inherits.
    Takes = TAKES,
    /// To be on its own.
    Commits = COMMITS,
    /// For all that is out.
    Refuses = REFUSES,
}
