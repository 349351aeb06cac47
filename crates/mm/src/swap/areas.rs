//! All swap areas: which one the next page goes to, and whose a slot is.
//!
//! Areas are filled by priority, the highest first. Those of one priority take turns, window by
//! window and not page by page, so that a read-ahead window is one request and two of them are on
//! two devices. An area whose writes pile up, or that is full, is passed over. One that fails takes
//! nothing more; [`crate::Mm`] brings what is in it elsewhere, as it does with one that is to
//! leave.
//!
//! Slots of all areas are numbered through: an area's begin at its base, a multiple of a cluster,
//! with its header. So a page's [`Backing`](super::Backing) is one number, and tables by slot stay
//! dense.

use alloc::vec::Vec;
use core::ops::Range;

use super::area::{Area, Stand};
use super::{AreaConfig, AreaId, CLUSTER, Homes, Placement, WINDOW, WINDOWS};
use crate::page::NONE;
use crate::types::{PageId, Slot};

/// Slots that there can be in all areas together: behind them are the pages of files.
const SLOTS_MAX: u32 = Slot::FILES;
/// An area with more than so many pages under way, and four times as many as another, is passed
/// over.
///
/// *The story:* it was twice that, and twice as many. So many pages are seldom under way: a device got
/// as many pages as one that was 50 times faster, and a program took 25 times as long.
const PILED_UP: u32 = 2 * WINDOW;

/// The areas of one budget.
pub(crate) struct Areas {
    placement: Placement,
    /// By [`AreaId`], which is the order of their bases, too.
    areas: Vec<Area>,
    /// By priority, the highest first, and then in order of adding.
    order: Vec<u8>,
    /// The area that got a page last, and pages it may have until the next one's turn.
    in_hand: u8,
    turn: u32,
    used: u32,
    /// First slots of clusters that are to be given back to their backings.
    discards: Vec<Slot>,
    /// Some were asked to leave, and some share a limit with others: looked at in each step.
    are_asked: bool,
    share_limits: bool,
    /// Some were left with pages that could not be read: looked at in each step, too.
    are_stuck: bool,
}

impl Areas {
    pub fn new(placement: Placement) -> Self {
        Areas {
            placement,
            areas: Vec::new(),
            order: Vec::new(),
            in_hand: 0,
            turn: 0,
            used: 0,
            discards: Vec::new(),
            are_asked: false,
            share_limits: false,
            are_stuck: false,
        }
    }

    /// One more area; it gets as many slots as there are numbers left.
    pub fn add(&mut self, config: &AreaConfig) -> AreaId {
        let base = self.len().next_multiple_of(CLUSTER);
        let slots = config.slots.min(self.numbers_left());
        let id = u8::try_from(self.areas.len()).expect("nobody has so many areas");
        self.share_limits |= config.claims > 0;
        self.areas.push(Area::new(&AreaConfig { slots, ..*config }, self.placement, base));
        let priority = |&other: &u8| self.areas[usize::from(other)].priority >= config.priority;
        let at = self.order.iter().take_while(|&other| priority(other)).count();
        self.order.insert(at, id);
        AreaId(id)
    }

    /// One more area, which others know and nobody writes to: it takes no page. Its header has the
    /// number `base`.
    pub fn inherit(&mut self, base: Slot, slots: u32) -> AreaId {
        assert!(base.0 >= self.len() && base.0.is_multiple_of(CLUSTER), "numbers are of one area");
        assert!(slots <= SLOTS_MAX - base.0, "numbers are of areas");
        let id = u8::try_from(self.areas.len()).expect("nobody has so many areas");
        let mut area = Area::new(&AreaConfig { slots, ..AreaConfig::default() }, self.placement, base.0);
        area.seal();
        self.areas.push(area);
        self.order.push(id);
        AreaId(id)
    }

    /// Others come to know the area: it only empties from now on, see [`Area::seal`]. No home is there.
    pub fn seal<'a>(&mut self, area: AreaId, homes: impl Iterator<Item = &'a mut Homes>) {
        self.clear_homes(area, homes);
        self.areas[usize::from(area.0)].seal();
        self.turn = 0;
    }

    /// *The story* (by reading): memory whose home was in an area that others know kept it, and its windows
    /// were torn: each page went wherever there was a slot.
    fn clear_homes<'a>(&mut self, area: AreaId, homes: impl Iterator<Item = &'a mut Homes>) {
        let slots = self.slots_of(area);
        let all = homes.flat_map(|homes| &mut homes.0);
        all.filter(|home| slots.contains(home)).for_each(|home| *home = NONE);
    }

    /// The numbers of an area, those of its last cluster all: homes are there, too, where it is short.
    fn slots_of(&self, area: AreaId) -> Range<u32> {
        let (Slot(base), slots) = self.place_of(area);
        base..base + slots.next_multiple_of(CLUSTER)
    }

    /// A sealed area in which nothing is any more is forgotten. Those behind it come to have the number
    /// before theirs; its slots' numbers are free, and are given out again if no area is behind it.
    ///
    /// # Panics
    /// When anything is there, or on its way there, or at home there, or is to be given back.
    pub fn remove<'a>(&mut self, id: AreaId, mut homes: impl Iterator<Item = &'a mut Homes>) {
        let (index, slots) = (usize::from(id.0), self.slots_of(id));
        let area = &self.areas[index];
        assert!(area.is_sealed, "an area that takes pages is not forgotten");
        assert!(area.table.used() == 0 && area.writing + area.draining == 0, "nothing is there");
        assert!(
            !homes.any(|homes| homes.0.iter().any(|home| slots.contains(home))),
            "nothing is at home there"
        );
        assert!(!self.discards.iter().any(|slot| slots.contains(&slot.0)), "nothing is to be given back");
        self.areas.remove(index);
        self.order.retain(|&other| other != id.0);
        self.order.iter_mut().filter(|other| **other > id.0).for_each(|other| *other -= 1);
        (self.in_hand, self.turn) = (0, 0);
    }

    /// A slot of an area that was inherited is the page's.
    pub fn take_inherited(&mut self, slot: Slot, page: PageId) {
        let (area, own) = self.find(slot);
        area.take_inherited(own, page);
        self.used += 1;
    }

    /// Numbers that no area has as yet.
    pub fn numbers_left(&self) -> u32 {
        SLOTS_MAX.saturating_sub(self.len().next_multiple_of(CLUSTER))
    }

    /// Numbers that no area has when all are sealed.
    pub fn numbers_left_sealed(&self) -> u32 {
        let end = self.areas.last().map_or(0, |area| area.base + area.end_if_sealed());
        SLOTS_MAX.saturating_sub(end.next_multiple_of(CLUSTER))
    }

    /// A page of an area that is bad from the start.
    pub fn exclude(&mut self, area: AreaId, page: u32) {
        let table = &mut self.areas[usize::from(area.0)].table;
        if page < table.limit() {
            table.exclude(page);
        }
    }

    /// The number behind the last slot.
    pub fn len(&self) -> u32 {
        self.areas.last().map_or(0, |area| area.base + area.table.limit())
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Slots that are free in areas that take pages.
    #[inline]
    pub fn room(&self) -> u32 {
        self.areas.iter().map(Area::room).sum()
    }

    /// Pages that are in an area, and those that the others would still take.
    pub fn beside(&self, area: AreaId) -> (u32, u32) {
        let area = &self.areas[usize::from(area.0)];
        (area.table.used(), self.room() - area.room())
    }

    /// Slots in use, and those that could be.
    pub fn could_hold(&self) -> u32 {
        self.used + self.room()
    }

    /// Slots of the areas that take pages, in use or not.
    pub fn could_take(&self) -> u32 {
        self.areas.iter().filter(|area| area.stand == Stand::Open).map(Area::capacity).sum()
    }

    /// Has no area a slot to give?
    #[inline]
    pub fn is_full(&self) -> bool {
        self.areas.iter().all(Area::is_full)
    }

    /// Is more used than is left in the areas that take pages? Then slots of pages in RAM are not worth
    /// keeping (specification 1.7: when more than half is in use).
    ///
    /// *The story:* areas that had left, or had failed, counted for ever as room: nobody gave a slot up,
    /// the area that was left filled with slots of pages in RAM, and the program went above its budget.
    #[inline]
    pub fn is_tight(&self) -> bool {
        self.room() < self.used
    }

    /// Whose the slot is.
    #[inline]
    pub fn area_of(&self, slot: Slot) -> AreaId {
        let behind = self.areas.iter().skip(1).take_while(|area| area.base <= slot.0).count();
        AreaId(behind as u8)
    }

    /// Does it take pages, and will it?
    pub fn takes_pages(&self, area: AreaId) -> bool {
        let area = &self.areas[usize::from(area.0)];
        area.stand == Stand::Open && !area.is_asked
    }

    /// The area is to leave once there is room elsewhere. Until then others come first.
    pub fn ask_to_leave(&mut self, area: AreaId) {
        self.are_asked = true;
        self.areas[usize::from(area.0)].is_asked = true;
        self.areas[usize::from(area.0)].priority = i16::MIN;
        self.order.retain(|&other| other != area.0);
        self.order.push(area.0);
        self.turn = 0;
    }

    /// Areas that were asked to leave begin to if there are others that together hold `pages`. `stays` says
    /// that there is no room any more for what was not brought yet: then they take pages again.
    pub fn leave_if_room(&mut self, pages: u32, stays: bool) {
        let others = self.areas.iter().filter(|area| area.stand == Stand::Open && !area.is_asked);
        let has_room =
            others.map(Area::capacity).reduce(|all, some| all + some).is_some_and(|all| all >= pages);
        for area in self.areas.iter_mut().filter(|area| area.is_asked) {
            match area.stand {
                Stand::Open | Stand::Closed if has_room => area.leave(),
                Stand::Leaving if stays && !has_room => area.stay(),
                _ => {}
            }
        }
        self.stay_if_alone();
    }

    /// Where no other takes pages any more, those that leave by order do.
    ///
    /// *The story:* that was looked at when swap had been called full: `--on-full kill` ended a program that
    /// had room.
    fn stay_if_alone(&mut self) {
        if self.areas.iter().all(|area| area.stand != Stand::Open) {
            let leaving = self.areas.iter_mut().filter(|area| area.is_asked && area.stand == Stand::Leaving);
            leaving.for_each(Area::stay);
        }
    }

    /// Is there an area that was asked to leave, and has to wait?
    pub fn waits_to_leave(&self) -> bool {
        self.areas.iter().any(|area| area.is_asked && matches!(area.stand, Stand::Open | Stand::Closed))
    }

    /// Where an area's slots begin, and how many it has.
    pub fn place_of(&self, area: AreaId) -> (Slot, u32) {
        let area = &self.areas[usize::from(area.0)];
        (Slot(area.base), area.table.limit())
    }

    #[inline]
    fn find(&mut self, slot: Slot) -> (&mut Area, u32) {
        let index = usize::from(self.area_of(slot).0);
        let area = &mut self.areas[index];
        let own = slot.0 - area.base;
        (area, own)
    }

    fn look(&self, slot: Slot) -> (&Area, u32) {
        let area = &self.areas[usize::from(self.area_of(slot).0)];
        (area, slot.0 - area.base)
    }

    /// The page that wrote `slot`, while the slot is in use. None, too, of a slot before all areas: its
    /// own is forgotten, and who keeps books of what was packed may not have heard of it yet.
    pub fn owner(&self, slot: Slot) -> Option<PageId> {
        if self.areas.first().is_none_or(|first| slot.0 < first.base) {
            return None;
        }
        let (area, slot) = (!self.areas.is_empty()).then(|| self.look(slot))?;
        area.table.owner(slot)
    }

    /// May the page in this slot be written there again?
    pub fn is_open(&self, slot: Slot) -> bool {
        self.look(slot).0.stand == Stand::Open
    }

    /// Is what the slot's area holds to be brought elsewhere?
    #[inline]
    pub fn is_leaving(&self, slot: Slot) -> bool {
        matches!(self.look(slot).0.stand, Stand::Leaving | Stand::Left)
    }

    /// A slot for `page`. `homes` belong to its 2 MiB of memory and may be changed.
    pub fn allocate(&mut self, page: PageId, homes: &mut Homes) -> Option<Slot> {
        self.allocate_run(page, 1, homes).map(|(slot, _)| slot)
    }

    /// Slots side by side for `count` pages of one window, or for as many of the first ones as
    /// there are; how many is told.
    #[inline]
    pub fn allocate_run(&mut self, page: PageId, count: u32, homes: &mut Homes) -> Option<(Slot, u32)> {
        let (window, offset) = ((page.0 % CLUSTER / WINDOW) as usize, page.0 % WINDOW);
        assert!(count > 0 && offset + count <= WINDOW, "the pages are of one window");
        if homes.0[window] == NONE && self.placement == Placement::ByAddress {
            self.make_home(page, homes);
        }
        if homes.0[window] != NONE {
            let home = Slot(homes.0[window]);
            let comes_last = self.look(home).0.is_asked && self.best() != Some(self.area_of(home).0.into());
            let (area, own) = self.find(home);
            let slot = own + offset;
            if area.stand == Stand::Open && !comes_last {
                let run = area.table.free_run(slot, count);
                if run > 0 {
                    area.take(slot, run, page);
                    self.used += run;
                    return Some((Slot(home.0 + offset), run));
                }
                // Those whose own slots are free get them when it is their turn.
                let taken = area.table.taken_run(slot, count).max(1);
                return self.allocate_anywhere(page, taken);
            }
        }
        self.allocate_anywhere(page, count)
    }

    #[cold]
    fn allocate_anywhere(&mut self, page: PageId, count: u32) -> Option<(Slot, u32)> {
        let index = self.next_area()?;
        if let Some((slot, run)) = self.allocate_in(index, page, count) {
            self.turn = self.turn.saturating_sub(run);
            return Some((slot, run));
        }
        // What is claimed at the end of this step is had in the next one.
        if self.areas[index].is_claiming() {
            return None;
        }
        // All that is free there is withheld, until the backing has it back.
        self.turn = 0;
        (0..self.areas.len()).find_map(|other| {
            let is_other = other != index && !self.areas[other].is_full();
            if is_other { self.allocate_in(other, page, count) } else { None }
        })
    }

    fn allocate_in(&mut self, index: usize, page: PageId, count: u32) -> Option<(Slot, u32)> {
        let Area { table, allocator, base, .. } = &mut self.areas[index];
        let (slot, run) = allocator.get().choose(table, count)?;
        let found = Slot(*base + slot);
        self.areas[index].take(slot, run, page);
        self.used += run;
        Some((found, run))
    }

    /// Makes a home for a window of memory; for its whole 2 MiB, where no areas take turns and it
    /// has none.
    #[cold]
    fn make_home(&mut self, page: PageId, homes: &mut Homes) {
        let window = (page.0 % CLUSTER / WINDOW) as usize;
        let Some(index) = self.area_at(page.0 / WINDOW).filter(|&index| !self.areas[index].is_scarce())
        else {
            return;
        };
        // Pages of the window that find their place taken go there, too.
        (self.in_hand, self.turn) = (index as u8, WINDOW);
        let alone = !self.equals(index).any(|other| other != index);
        let whole = alone && homes.0.iter().all(|&home| home == NONE);
        let Area { table, allocator, base, .. } = &mut self.areas[index];
        let allocator = allocator.get();
        if whole && let Some(first) = allocator.home(table, WINDOWS as u32) {
            let home = |n: u32| *base + (first + n) * WINDOW;
            homes.0 = core::array::from_fn(|n| home(n as u32));
        } else if !whole && let Some(own) = allocator.home(table, 1) {
            homes.0[window] = *base + own * WINDOW;
        }
    }

    /// Areas that take turns with this one.
    fn equals(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let priority = self.areas[index].priority;
        let is_equal = move |&other: &usize| {
            let area = &self.areas[other];
            area.priority == priority && area.stand == Stand::Open
        };
        (0..self.areas.len()).filter(is_equal)
    }

    /// The first area of the highest priority that has room.
    fn best(&self) -> Option<usize> {
        let mut areas = self.order.iter().map(|&index| usize::from(index));
        areas.find(|&index| !self.areas[index].is_full())
    }

    /// Areas that have room and take turns with this one, but those whose writes pile up. There is
    /// one at least: that with the least.
    fn quick(&self, best: usize) -> impl Iterator<Item = usize> + '_ {
        let writing = |index: usize| self.areas[index].writing;
        let candidates = move || self.equals(best).filter(|&index| !self.areas[index].is_full());
        let least = candidates().map(writing).min().unwrap_or(0);
        candidates().filter(move |&index| self.areas[index].writing <= PILED_UP + 4 * least)
    }

    /// The area for the home of a window of memory: by its number, so that neighbours are on two
    /// devices whoever else's pages leave between them.
    ///
    /// *The story:* it was the one whose turn it was. Of programs that go out in turn each had all
    /// its windows on one device.
    fn area_at(&self, window: u32) -> Option<usize> {
        let best = self.best()?;
        let count = self.quick(best).count();
        self.quick(best).nth(window as usize % count)
    }

    /// The area whose turn it is.
    fn next_area(&mut self) -> Option<usize> {
        let in_hand = usize::from(self.in_hand);
        let best = self.best()?;
        let has_turn = self.turn > 0
            && !self.areas[in_hand].is_full()
            && self.areas[in_hand].priority == self.areas[best].priority;
        if has_turn {
            return Some(in_hand);
        }
        // The one after the last, round the end.
        let after = self.quick(best).find(|&index| index > in_hand);
        let next = after.or_else(|| self.quick(best).next()).expect("the one with the least is quick");
        self.in_hand = next as u8;
        self.turn = WINDOW;
        Some(next)
    }

    /// The page that owns a slot lives elsewhere now (mremap).
    pub fn set_owner(&mut self, slot: Slot, page: PageId) {
        let (area, own) = self.find(slot);
        area.table.set_owner(own, page);
    }

    /// One more refers to the slot. False: no more can, and nothing has changed.
    ///
    /// The model test uses it (`swap/model.rs`), for a fork as the kernel has it. Live forks do not: a
    /// child knows its parent's files as sealed areas of its own, or has copies (decision 138), and the
    /// simulator forks nobody.
    #[must_use]
    #[cfg_attr(not(test), expect(dead_code, reason = "live forks seal areas instead"))]
    pub fn share(&mut self, slot: Slot) -> bool {
        let (area, own) = self.find(slot);
        area.table.share(own)
    }

    /// Gives a reference back; the slot is free when none is left.
    #[inline]
    pub fn release(&mut self, slot: Slot) {
        let (area, own) = self.find(slot);
        let before = area.table.used();
        let emptied = area.release(own).map(|cluster| Slot(area.base + cluster * CLUSTER));
        let freed = before - area.table.used();
        self.used -= freed;
        self.discards.extend(emptied);
    }

    /// As [`Areas::release`], for slots of one window.
    #[inline]
    pub fn release_run(&mut self, slot: Slot, count: u32) {
        let (area, own) = self.find(slot);
        let before = area.table.used();
        let emptied = area.release_run(own, count).map(|cluster| Slot(area.base + cluster * CLUSTER));
        let freed = before - area.table.used();
        self.used -= freed;
        self.discards.extend(emptied);
    }

    /// The page gives up its slot, which must never be used again: its write failed.
    pub fn condemn(&mut self, slot: Slot) {
        let (area, own) = self.find(slot);
        area.table.condemn(own);
        self.used -= 1;
    }

    /// The memory that had these homes is gone.
    pub fn disown(&mut self, homes: &mut Homes) {
        for home in &mut homes.0 {
            let home = core::mem::replace(home, NONE);
            if home != NONE {
                let (area, own) = self.find(Slot(home));
                area.allocator.get().disown(&area.table, own / WINDOW);
            }
        }
    }

    /// `count` pages are on their way to slots from this one on.
    pub fn write_begins(&mut self, slot: Slot, count: u32) {
        self.find(slot).0.writing += count;
    }

    /// They are there, or are not.
    pub fn write_ended(&mut self, slot: Slot, count: u32) {
        self.find(slot).0.writing -= count;
    }

    /// The slot's area has no room on its backing: it takes no more pages.
    pub fn close(&mut self, slot: Slot) {
        let area = self.find(slot).0;
        if area.stand == Stand::Open {
            area.stand = Stand::Closed;
        }
        self.stay_if_alone();
    }

    /// There is room again: it takes pages. False: it had room, or is not to take any.
    pub fn reopen(&mut self, area: AreaId) -> bool {
        let is_closed = self.is_closed(area);
        if is_closed {
            self.areas[usize::from(area.0)].stand = Stand::Open;
        }
        is_closed
    }

    /// Does it take no pages for want of room on its backing?
    pub fn is_closed(&self, area: AreaId) -> bool {
        let area = &self.areas[usize::from(area.0)];
        area.stand == Stand::Closed && !area.is_sealed
    }

    /// The area has failed: it takes no more pages, whatever comes, and what is in it is to be brought
    /// elsewhere. True: that is new.
    pub fn fail(&mut self, area: AreaId) -> bool {
        let area = &mut self.areas[usize::from(area.0)];
        area.leave();
        let is_new = !core::mem::replace(&mut area.has_failed, true);
        self.stay_if_alone();
        is_new
    }

    /// Has a write to the area failed?
    pub fn has_failed(&self, area: AreaId) -> bool {
        self.areas[usize::from(area.0)].has_failed
    }

    /// The first area from this one on whose pages are to be brought elsewhere, if there is one.
    #[inline]
    pub fn leaving(&self, from: AreaId) -> Option<AreaId> {
        let from = usize::from(from.0);
        let found = self.areas.iter().skip(from).position(|area| area.stand == Stand::Leaving)?;
        Some(AreaId((from + found) as u8))
    }

    /// A page of the slot's area is read so that it can be left.
    pub fn drain_begins(&mut self, slot: Slot) {
        self.find(slot).0.draining += 1;
    }

    /// So many such reads have ended.
    pub fn drain_ends(&mut self, slot: Slot, count: u32) {
        self.find(slot).0.draining -= count;
    }

    /// Pages that are being read so that the area can be left.
    pub fn draining(&self, area: AreaId) -> u32 {
        self.areas[usize::from(area.0)].draining
    }

    /// The same of all areas.
    pub fn draining_all(&self) -> u32 {
        self.areas.iter().map(|area| area.draining).sum()
    }

    /// The next slot in use of an area that leaves; `None` at its end.
    pub fn next_leaving(&mut self, area: AreaId) -> Option<(Slot, PageId)> {
        let area = &mut self.areas[usize::from(area.0)];
        let found = area.table.next_used(area.cursor);
        area.cursor = found.map_or(area.table.known(), |slot| slot + 1);
        let slot = found?;
        let page = area.table.owner(slot).expect("a slot in use has an owner");
        Some((Slot(area.base + slot), page))
    }

    /// Is nothing in an area that leaves, nor on its way there? Then it has been left.
    pub fn is_emptied(&mut self, area: AreaId) -> bool {
        let area = &mut self.areas[usize::from(area.0)];
        let is_emptied = area.table.used() == 0 && area.writing == 0;
        if is_emptied {
            area.stand = Stand::Left;
        }
        is_emptied
    }

    /// Rounds over the slots of an area that leaves so far.
    pub fn round(&self, area: AreaId) -> u32 {
        self.areas[usize::from(area.0)].round
    }

    /// A page of an area that leaves is busy: its slot is looked at again.
    pub fn look_again(&mut self, area: AreaId) {
        self.areas[usize::from(area.0)].again = true;
    }

    /// Is anything being written to the area, or read so that it can be left?
    pub fn is_busy(&self, area: AreaId) -> bool {
        let area = &self.areas[usize::from(area.0)];
        area.writing + area.draining > 0
    }

    /// A round is over. All that could be brought elsewhere was: the slots that are left are told.
    /// None: there is another round.
    pub fn round_ends(&mut self, area: AreaId) -> Option<u32> {
        let area = &mut self.areas[usize::from(area.0)];
        let was_busy = core::mem::take(&mut area.again);
        area.cursor = 1;
        if area.table.used() > 0 && (area.round < 2 || was_busy) {
            area.round = (area.round + 1).min(2);
            return None;
        }
        area.stand = Stand::Left;
        let left = area.table.used();
        (area.is_stuck, area.asks_again) = (left > 0, left > 0);
        self.are_stuck |= left > 0;
        Some(left)
    }

    /// A page that has this slot could not be read, and who needed it was told.
    pub fn told(&mut self, slot: Slot) {
        let area = self.find(slot).0;
        area.asks_again = area.is_stuck;
    }

    /// An area that was left with pages in it of which none is of use any more: they are gone, or `is_told`
    /// of the rest.
    pub fn next_freed(&mut self, is_told: impl Fn(PageId) -> bool) -> Option<AreaId> {
        if !self.are_stuck {
            return None;
        }
        let is_useless = |area: &mut Area| {
            let is_empty = area.table.used() == 0;
            if !area.is_stuck || area.stand != Stand::Left || !(is_empty || area.asks_again) {
                return false;
            }
            area.asks_again = false;
            area.is_stuck = !is_empty;
            let mut from = 1;
            while let Some(slot) = area.table.next_used(from) {
                if !area.table.owner(slot).is_some_and(&is_told) {
                    return false;
                }
                from = slot + 1;
            }
            true
        };
        let found = self.areas.iter_mut().position(is_useless);
        self.are_stuck = self.areas.iter().any(|area| area.is_stuck);
        found.map(|index| AreaId(index as u8))
    }

    /// Was an area ever asked to leave?
    #[inline]
    pub fn are_asked(&self) -> bool {
        self.are_asked
    }

    /// Does an area share a limit with others?
    #[inline]
    pub fn share_limits(&self) -> bool {
        self.share_limits
    }

    /// What an area is to claim, all told: by area.
    pub fn claims(&mut self) -> impl Iterator<Item = (AreaId, u32)> + '_ {
        let areas = self.areas.iter_mut().zip((0..).map(AreaId));
        areas.filter_map(|(area, id)| area.wanted_claim().map(|slots| (id, slots)))
    }

    /// Is a claim about to be asked for, that a page waits for?
    pub fn is_claiming(&self) -> bool {
        self.areas.iter().any(Area::is_claiming)
    }

    /// An area has a claim to so many slots and could have so many more; others claim, too.
    pub fn claimed(&mut self, area: AreaId, slots: u32, more: u32, has_company: bool) {
        let (area, discards) = (&mut self.areas[usize::from(area.0)], &mut self.discards);
        let base = area.base;
        area.claimed(slots, more, has_company, |cluster| discards.push(Slot(base + cluster * CLUSTER)));
    }

    /// Whether an area takes pages, and for how many it has slots.
    #[cfg(test)]
    pub(super) fn stand(&self, area: AreaId) -> (Stand, u32) {
        let area = &self.areas[usize::from(area.0)];
        (area.stand, area.capacity())
    }

    /// Slots of an area that are in service.
    #[cfg(test)]
    pub fn serving(&self, area: AreaId) -> u32 {
        self.areas[usize::from(area.0)].table.serving()
    }

    /// Claims that were refused may be asked for again.
    pub fn tick(&mut self) {
        self.areas.iter_mut().for_each(Area::tick);
    }

    /// A cluster that is to be given back to its backing: its first slot, and how many it has.
    pub fn next_discard(&mut self) -> Option<(Slot, u32)> {
        let slot = self.discards.pop()?;
        let (area, own) = self.look(slot);
        let size = area.table.cluster_size(own / CLUSTER);
        // The header stays.
        let skipped = u32::from(own == 0);
        Some((Slot(slot.0 + skipped), size - skipped))
    }

    /// The backing has the cluster back, or has `kept` it.
    pub fn discarded(&mut self, slot: Slot, kept: bool) {
        let (area, own) = self.find(slot);
        area.discarded(own / CLUSTER, kept);
    }
}
