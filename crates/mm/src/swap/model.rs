//! Random allocation, freeing, sharing, claiming, giving back, failing and leaving against a simple model: no
//! difference in ten million operations (in a debug build, which is thirty times slower, in
//! 300,000).
//!
//! The model knows each slot by its number, with the pages that refer to it; the areas must hand
//! out a slot that nobody has, of an area that takes pages, whenever there is one that is not being
//! given back, and must agree on every count.

use std::collections::BTreeMap;

use super::area::Stand;
use super::*;
use crate::types::PageId;

const OPERATIONS: u32 = if cfg!(debug_assertions) { 300_000 } else { 10_000_000 };
/// Windows of memory whose pages are evicted.
const CHUNKS: usize = 24;

/// What is known of a slot in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Used {
    page: PageId,
    references: u32,
    /// In the list of slots in use.
    at: usize,
}

/// An area as the model has it.
struct Known {
    first: u32,
    slots: u32,
    used: u32,
    lost: u32,
    withheld: u32,
    stand: Stand,
    is_asked: bool,
    has_failed: bool,
    /// What it has claimed, if it has to.
    claim: Option<u32>,
}

impl Known {
    fn leave(&mut self) {
        if matches!(self.stand, Stand::Open | Stand::Closed) {
            self.stand = Stand::Leaving;
        }
    }

    fn stay(&mut self) {
        if self.stand == Stand::Leaving && !self.has_failed {
            self.stand = Stand::Open;
        }
    }
}

struct Model {
    areas: Areas,
    random: u64,
    homes: Vec<Homes>,
    known: Vec<Known>,
    used: Vec<Option<Used>>,
    /// The slots in use, in no order.
    list: Vec<u32>,
    bad: Vec<bool>,
    /// Clusters that are being given back: first slot and count.
    withheld: Vec<(Slot, u32)>,
    is_withheld: Vec<bool>,
    drained: BTreeMap<u8, u32>,
}

impl Model {
    fn new(placement: Placement, seed: u64) -> Self {
        Model {
            areas: Areas::new(placement),
            random: seed,
            homes: vec![Homes::NONE; CHUNKS],
            known: Vec::new(),
            used: Vec::new(),
            list: Vec::new(),
            bad: Vec::new(),
            withheld: Vec::new(),
            is_withheld: Vec::new(),
            drained: BTreeMap::new(),
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) * u64::from(bound)) >> 32) as u32
    }

    fn add_area(&mut self) {
        if self.known.len() >= 12 {
            return;
        }
        let (slots, priority) = (2 + self.below(6000), self.below(3) as i16);
        let discards = self.below(2) == 0;
        let claims = if self.below(2) == 0 { 1 + self.below(2000) } else { 0 };
        let id = self.areas.add(&AreaConfig { slots, priority, discards, claims });
        let (first, count) = self.areas.place_of(id);
        assert_eq!(count, slots);
        let end = (first.0 + slots) as usize;
        self.used.resize(end, None);
        self.bad.resize(end, false);
        self.is_withheld.resize(end, false);
        self.bad[first.0 as usize] = true;
        let claim = (claims > 0).then_some(0);
        let (stand, is_asked, has_failed) = (Stand::Open, false, false);
        let (first, used, lost, withheld) = (first.0, 0, 1, 0);
        let mut known = Known { first, slots, used, lost, withheld, stand, is_asked, has_failed, claim };
        let bad = if claim.is_some() { 0 } else { self.below(3) };
        for _ in 0..bad {
            let page = 1 + self.below(slots - 1);
            let slot = (first + page) as usize;
            if !std::mem::replace(&mut self.bad[slot], true) {
                self.areas.exclude(id, page);
                known.lost += 1;
            }
        }
        self.known.push(known);
    }

    fn known_of(&mut self, slot: u32) -> &mut Known {
        let id = usize::from(self.areas.area_of(Slot(slot)).0);
        let known = &mut self.known[id];
        assert!((known.first..known.first + known.slots).contains(&slot), "a slot lies in its area");
        known
    }

    fn allocate(&mut self) {
        let chunk = self.below(CHUNKS as u32) as usize;
        let offset = self.below(CLUSTER);
        let count = 1 + self.below(16.min(WINDOW - offset % WINDOW));
        let page = PageId(chunk as u32 * CLUSTER + offset);
        let found = self.areas.allocate_run(page, count, &mut self.homes[chunk]);
        let Some((slot, run)) = found else {
            self.check_that_none_is_free();
            return;
        };
        assert!(run >= 1 && run <= count);
        for (slot, page) in (slot.0..slot.0 + run).zip(page.0..) {
            let index = slot as usize;
            assert!(!self.bad[index] && !self.is_withheld[index], "{slot} must not be used");
            assert_eq!(self.used[index], None, "{slot} is somebody's");
            self.used[index] = Some(Used { page: PageId(page), references: 1, at: self.list.len() });
            self.list.push(slot);
        }
        let known = self.known_of(slot.0);
        assert_eq!(known.stand, Stand::Open, "the area takes no pages");
        known.used += run;
    }

    /// Where a claim is about to be asked for that is waited for.
    fn check_that_none_is_free(&self) {
        let serving = |id: usize| match self.known[id].claim {
            // The header is lost before there is anything.
            Some(_) => self.areas.serving(AreaId(id as u8)).max(1),
            None => self.known[id].slots,
        };
        let is_full = |id: usize| {
            let known = &self.known[id];
            known.stand != Stand::Open || known.used + known.lost + known.withheld == serving(id)
        };
        let none_is_free = self.areas.is_claiming() || (0..self.known.len()).all(is_full);
        assert!(none_is_free, "there is a free slot, and it is not found");
    }

    /// Claims are granted, or not; what is given back is.
    fn answer_claims(&mut self) {
        let asked: Vec<(AreaId, u32)> = self.areas.claims().collect();
        for (id, slots) in asked {
            let has = self.known[usize::from(id.0)].claim.expect("it shares a limit");
            let some = self.below(3) * CLUSTER;
            self.tell(id, if slots > has { slots.min(has + some) } else { slots });
        }
        if self.below(4) == 0 {
            self.areas.tick();
            let id = self.below(self.known.len() as u32);
            if let Some(has) = self.known[id as usize].claim {
                self.tell(AreaId(id as u8), has);
            }
        }
    }

    fn tell(&mut self, id: AreaId, slots: u32) {
        self.known[usize::from(id.0)].claim = Some(slots);
        assert!(self.areas.serving(id) <= slots, "what is in service is claimed");
        let (more, has_company) = (self.below(2) * self.below(2000), self.below(2) == 0);
        self.areas.claimed(id, slots, more, has_company);
        self.note_discards();
    }

    /// A slot in use, at random.
    fn pick(&mut self) -> Option<u32> {
        let count = self.list.len() as u32;
        (count > 0).then(|| self.below(count)).map(|at| self.list[at as usize])
    }

    fn forget(&mut self, slot: u32) {
        let used = self.used[slot as usize].take().expect("it was in use");
        self.list.swap_remove(used.at);
        if let Some(&moved) = self.list.get(used.at) {
            self.used[moved as usize].as_mut().expect("what is listed is in use").at = used.at;
        }
        self.known_of(slot).used -= 1;
    }

    fn release(&mut self, slot: u32) {
        let used = self.used[slot as usize].as_mut().expect("it was in use");
        used.references -= 1;
        if used.references == 0 {
            self.forget(slot);
        }
        self.areas.release(Slot(slot));
        self.note_discards();
    }

    /// As many neighbours as there are in the window, each once.
    fn release_run(&mut self, slot: u32) {
        let window_end = slot - slot % WINDOW + WINDOW;
        let is_used = |slot: &u32| self.used.get(*slot as usize).is_some_and(Option::is_some);
        let count = (slot..window_end).take_while(is_used).count() as u32;
        for slot in slot..slot + count {
            let used = self.used[slot as usize].as_mut().expect("it was in use");
            used.references -= 1;
            if used.references == 0 {
                self.forget(slot);
            }
        }
        self.areas.release_run(Slot(slot), count);
        self.note_discards();
    }

    fn note_discards(&mut self) {
        while let Some((slot, count)) = self.areas.next_discard() {
            for slot in slot.0..slot.0 + count {
                assert!(self.used[slot as usize].is_none(), "what is given back is nobody's");
                assert!(!std::mem::replace(&mut self.is_withheld[slot as usize], true));
            }
            let bad = (slot.0..slot.0 + count).filter(|&slot| self.bad[slot as usize]).count();
            assert_eq!(bad, 0, "a cluster with a bad slot is never empty");
            self.known_of(slot.0).withheld += count;
            self.withheld.push((slot, count));
        }
    }

    fn discarded(&mut self) {
        let count = self.withheld.len() as u32;
        if count > 0 {
            let at = self.below(count) as usize;
            let (slot, count) = self.withheld.swap_remove(at);
            self.is_withheld[slot.0 as usize..(slot.0 + count) as usize].fill(false);
            self.known_of(slot.0).withheld -= count;
            let kept = self.below(50) == 0;
            self.areas.discarded(slot, kept);
        }
    }

    fn fail(&mut self, slot: u32) {
        let used = self.used[slot as usize].expect("it is in use");
        if used.references > 1 {
            return;
        }
        self.forget(slot);
        self.bad[slot as usize] = true;
        self.known_of(slot).lost += 1;
        self.areas.condemn(Slot(slot));
        if self.below(50) == 0 {
            self.areas.close(Slot(slot));
            let known = self.known_of(slot);
            known.stand = if known.stand == Stand::Open { Stand::Closed } else { known.stand };
            self.stay_if_alone();
        }
    }

    /// An area fails, has room again, or is asked to leave, or those that were do, or do not after all.
    fn change(&mut self) {
        let id = AreaId(self.below(self.known.len() as u32) as u8);
        let known = &mut self.known[usize::from(id.0)];
        match self.random % 12 {
            0 => {
                assert_eq!(self.areas.fail(id), !known.has_failed);
                known.has_failed = true;
                known.leave();
            }
            1..4 => {
                self.areas.ask_to_leave(id);
                known.is_asked = true;
            }
            4..6 => {
                let is_closed = known.stand == Stand::Closed;
                assert_eq!(self.areas.reopen(id), is_closed);
                known.stand = if is_closed { Stand::Open } else { known.stand };
            }
            _ => self.leave_if_room(),
        }
        self.stay_if_alone();
    }

    fn leave_if_room(&mut self) {
        let (pages, stays) = (self.below(12_000), self.below(2) == 0);
        let capacity = |id: usize| self.areas.stand(AreaId(id as u8)).1;
        let is_other = |id: &usize| self.known[*id].stand == Stand::Open && !self.known[*id].is_asked;
        let others: Vec<u32> = (0..self.known.len()).filter(is_other).map(capacity).collect();
        let has_room = !others.is_empty() && others.iter().sum::<u32>() >= pages;
        self.areas.leave_if_room(pages, stays);
        for known in self.known.iter_mut().filter(|known| known.is_asked) {
            if has_room {
                known.leave();
            } else if stays {
                known.stay();
            }
        }
    }

    /// Where nobody takes pages those do that leave by order; then all is as it should be.
    fn stay_if_alone(&mut self) {
        if self.known.iter().all(|known| known.stand != Stand::Open) {
            self.known.iter_mut().filter(|known| known.is_asked).for_each(Known::stay);
        }
        self.check_stands();
    }

    fn check_stands(&self) {
        for (known, id) in self.known.iter().zip((0..).map(AreaId)) {
            assert_eq!(self.areas.stand(id).0, known.stand, "{id:?}");
            assert_eq!(self.areas.has_failed(id), known.has_failed, "{id:?}");
            assert!(!known.has_failed || matches!(known.stand, Stand::Leaving | Stand::Left));
        }
    }

    fn drain(&mut self) {
        let first = AreaId(self.below(self.known.len() as u32) as u8);
        let Some(id) = self.areas.leaving(first) else { return };
        for _ in 0..64 {
            let Some((slot, page)) = self.areas.next_leaving(id) else {
                if let Some(slots) = self.areas.round_ends(id) {
                    assert_eq!(slots, self.known[usize::from(id.0)].used);
                    assert_eq!(self.drained.insert(id.0, slots), None, "an area leaves once");
                    self.known[usize::from(id.0)].stand = Stand::Left;
                }
                return;
            };
            assert_eq!(self.used[slot.0 as usize].map(|used| used.page), Some(page));
            while self.used[slot.0 as usize].is_some() {
                self.release(slot.0);
            }
        }
    }

    fn step(&mut self) {
        let busy = self.list.len() > 12_000;
        match self.below(1000) {
            0..450 if !busy => self.allocate(),
            0..800 => {
                let Some(slot) = self.pick() else { return };
                if self.below(4) == 0 { self.release_run(slot) } else { self.release(slot) }
            }
            800..850 => {
                let Some(slot) = self.pick() else { return };
                assert!(self.areas.share(Slot(slot)));
                self.used[slot as usize].as_mut().expect("picked").references += 1;
            }
            850..870 => {
                let Some(slot) = self.pick() else { return };
                let page = PageId(self.below(CHUNKS as u32 * CLUSTER));
                self.areas.set_owner(Slot(slot), page);
                self.used[slot as usize].as_mut().expect("picked").page = page;
            }
            870..880 => {
                let chunk = self.below(CHUNKS as u32) as usize;
                self.areas.disown(&mut self.homes[chunk]);
            }
            880..920 => self.discarded(),
            920..921 => {
                if let Some(slot) = self.pick() {
                    self.fail(slot);
                }
            }
            921..960 => self.drain(),
            // Several at a time: what leaves is soon left.
            960..961 if self.below(10) == 0 => (0..12).for_each(|_| self.change()),
            961..963 => self.add_area(),
            // A burst, so that areas fill up.
            963..970 if !busy => (0..200).for_each(|_| self.allocate()),
            970..985 => self.answer_claims(),
            _ => {}
        }
    }

    fn check(&self) {
        self.check_stands();
        assert_eq!(self.areas.used() as usize, self.list.len());
        assert_eq!(self.areas.used(), self.known.iter().map(|known| known.used).sum::<u32>());
        for (slot, used) in self.used.iter().enumerate() {
            assert_eq!(self.areas.owner(Slot(slot as u32)), used.map(|used| used.page), "slot {slot}");
        }
    }
}

fn differences(placement: Placement, operations: u32) {
    let (mut done, mut round) = (0, 0);
    while done < operations {
        round += 1;
        let mut model = Model::new(placement, 0x27_0000 + round);
        model.add_area();
        for operation in 0..100_000.min(operations - done) {
            model.step();
            if operation % 10_000 == 0 {
                model.check();
            }
        }
        model.check();
        done += 100_000.min(operations - done);
    }
}

#[test]
fn by_address_differs_in_nothing() {
    differences(Placement::ByAddress, OPERATIONS / 10 * 7);
}

#[test]
fn in_order_differs_in_nothing() {
    differences(Placement::InOrder, OPERATIONS / 10);
}

#[test]
fn on_ssds_differs_in_nothing() {
    differences(Placement::Ssd, OPERATIONS / 10);
}

#[test]
fn next_fit_differs_in_nothing() {
    differences(Placement::NextFit, OPERATIONS / 10);
}
