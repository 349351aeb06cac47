//! A small shell around `mm` that does everything at random: order and delay of completions,
//! failures, discards, moves, pauses. After every step all invariants are checked; every fault must
//! be answered; the bytes a page shows must be the last ones written to it.

use std::collections::{BTreeMap, BTreeSet};

use overspill_mm::readahead::{Mapping, Plan, SwapIn, Touch, Window};
use overspill_mm::reclaim::policy::Choice;
use overspill_mm::types::{Access, CHUNK_PAGES, PageId, RegionKind, Slot, SpaceId, Vpn};
use overspill_mm::{
    Action, Actions, AreaConfig, AreaId, Config, Event, IoId, Mm, Run, State, Unmapped, Warning, WriteResult,
};

/// Plans anything a policy may plan.
struct Wild(u64);

impl Wild {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }

    fn plan(&mut self, touch: &Touch) -> Option<Plan> {
        if self.next(4) == 0 {
            return None;
        }
        let mapping = if self.next(2) == 0 { Mapping::OnTouch } else { Mapping::Together };
        if self.next(4) == 0 {
            let slot = touch.slot?;
            return Some(Plan {
                window: Window::Slots { start: slot, count: 8 },
                marker: None,
                mapping,
                passed: None,
                wanted_first: self.next(2) == 0,
            });
        }
        let stride = [1, 1, -1, 3][self.next(4) as usize];
        let start = touch.vpn.offset(self.next(3) as i64 - 1);
        let window = Window::Pages { start, stride, count: self.next(40) as u32 };
        let passed = Some(Window::Pages { start: start.offset(-stride * 20), stride, count: 20 });
        let (marker, wanted_first) = (Some(start.offset(stride * 2)), self.next(3) == 0);
        Some(Plan { window, marker, mapping, passed, wanted_first })
    }
}

impl SwapIn for Wild {
    type Region = ();
    fn cached(&mut self, _: &mut (), touch: &Touch) -> Option<Plan> {
        self.plan(touch)
    }
    fn miss(&mut self, _: &mut (), touch: &Touch) -> Option<Plan> {
        self.plan(touch)
    }
    fn unused(&mut self, _: &mut (), _: Vpn) {}
}

const SPACE: SpaceId = SpaceId(0);
/// Slots that are claimed, and given back, together.
const CLUSTER: u32 = CHUNK_PAGES as u32;

/// Which devices fail now and then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    None,
    All,
    /// The first area's, and only when it is written to.
    FirstWrites,
}

impl Failing {
    fn may_fail(self, is_read: bool, area: AreaId) -> bool {
        self == Failing::All || self == Failing::FirstWrites && !is_read && area == AreaId(0)
    }
}

/// What an area has of what others use, too.
#[derive(Default)]
struct Claimed {
    slots: u32,
    /// Its clusters that may have blocks.
    clusters: BTreeSet<u32>,
}

impl Claimed {
    /// Whatever is written lies in what was claimed, of an area with so many slots.
    fn check(&self, slots: u32) {
        let sizes = self.clusters.iter().map(|cluster| CLUSTER.min(slots - cluster * CLUSTER));
        assert!(sizes.sum::<u32>() <= self.slots, "{:?} of {} claimed slots", self.clusters, self.slots);
    }
}

/// The world outside: what is really in the program's view, in the swap cache and on swap.
struct World {
    mm: Mm<Wild>,
    out: Actions,
    now: u64,
    random: Wild,
    /// vpn -> content, writable
    view: BTreeMap<u64, u64>,
    /// Pages that show the zero page, protected.
    zeroes: BTreeSet<u64>,
    cache: BTreeMap<PageId, u64>,
    swap: BTreeMap<u32, u64>,
    transfers: Vec<(IoId, Run, u32, bool)>,
    /// Slots whose blocks are being given back.
    discards: Vec<(Slot, u32)>,
    areas: u8,
    claims: BTreeMap<AreaId, Claimed>,
    left: Vec<AreaId>,
    /// Other worlds know what is in these.
    sealed: BTreeSet<AreaId>,
    /// Pages that were on swap when the world began.
    /// Areas that were forgotten.
    forgotten: u32,
    /// What each page must show.
    truth: BTreeMap<u64, u64>,
    waiting: BTreeMap<u64, Access>,
    failing: Failing,
    has_retired: bool,
    populated: bool,
    stores: u64,
}

impl World {
    fn new(seed: u64, failing: Failing) -> Self {
        let mut random = Wild(seed);
        let budget = 24 + random.next(200) as u32;
        let mut config = Config::live(budget, 64 + random.next(1200) as u32);
        config.reclaim = Choice::ALL[seed as usize % Choice::ALL.len()];
        config.unit = 1 << random.next(6);
        config.cache = random.next(40) as u32;
        config.compares = random.next(2) == 0;
        config.maps_zeroes = random.next(2) == 0;
        let mm = Mm::new(config, Wild(seed ^ 77));
        World {
            mm,
            out: Actions::new(),
            now: 0,
            random,
            view: BTreeMap::new(),
            zeroes: BTreeSet::new(),
            cache: BTreeMap::new(),
            swap: BTreeMap::new(),
            transfers: Vec::new(),
            discards: Vec::new(),
            areas: 1,
            claims: BTreeMap::new(),
            left: Vec::new(),
            sealed: BTreeSet::new(),
            forgotten: 0,
            truth: BTreeMap::new(),
            waiting: BTreeMap::new(),
            failing,
            has_retired: false,
            populated: false,
            stores: 0,
        }
    }

    fn feed(&mut self, event: Event) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.now += 1;
            let mut out = std::mem::take(&mut self.out);
            self.mm.step(self.now, event, &mut out);
            for action in out.drain() {
                self.carry_out(action, &mut events);
            }
            self.out = out;
            if events.is_empty() {
                self.mm.check();
                self.check_counters();
            }
        }
    }

    /// What is freed was looked at before, however the looks are divided.
    fn check_counters(&self) {
        self.mm.stats().check();
    }

    fn vpn(&self, id: PageId) -> u64 {
        self.mm.place(id).1.0
    }

    fn carry_out(&mut self, action: Action, events: &mut std::collections::VecDeque<Event>) {
        match action {
            Action::Read { io, run, slot } => self.transfers.push((io, run, slot.0, true)),
            Action::Write { io, run, slot } => {
                for (index, id) in run.pages().enumerate() {
                    assert!(self.cache.contains_key(&id), "written from the swap cache");
                    let slot = slot.0 + index as u32;
                    assert!(
                        !self
                            .transfers
                            .iter()
                            .any(|&(_, run, first, _)| (first..first + run.count).contains(&slot))
                    );
                    let is_discarded =
                        |&(first, count): &(Slot, u32)| (first.0..first.0 + count).contains(&slot);
                    assert!(!self.discards.iter().any(is_discarded), "{slot} is being given back");
                    let area = self.mm.area_of(Slot(slot));
                    assert!(!self.left.contains(&area), "{area:?} has been left");
                    assert!(!self.sealed.contains(&area), "{area:?} is known to others");
                    let (first, slots) = self.mm.area_place(area);
                    if let Some(claimed) = self.claims.get_mut(&area) {
                        claimed.clusters.insert((slot - first.0) / CLUSTER);
                        claimed.check(slots);
                    }
                }
                self.transfers.push((io, run, slot.0, false));
            }
            Action::ZeroFill { run } => {
                for id in run.pages() {
                    let vpn = self.vpn(id);
                    assert!(self.view.insert(vpn, 0).is_none(), "filled where nothing was");
                    self.answer(vpn);
                }
            }
            Action::ShowZeroes { run } => {
                for id in run.pages() {
                    let vpn = self.vpn(id);
                    assert!(!self.view.contains_key(&vpn) && self.zeroes.insert(vpn), "where nothing was");
                    self.answer(vpn);
                }
            }
            Action::TakeStores { run } => {
                for id in run.pages() {
                    let vpn = self.vpn(id);
                    assert!(self.zeroes.remove(&vpn), "stores are taken where the zero page is");
                    assert!(self.view.insert(vpn, 0).is_none());
                    self.answer(vpn);
                }
            }
            Action::Map { run } => {
                for id in run.pages() {
                    let vpn = self.vpn(id);
                    let content = self.cache.remove(&id).expect("mapped from the swap cache");
                    assert!(self.view.insert(vpn, content).is_none());
                    self.answer(vpn);
                }
            }
            Action::Unmap { run } => {
                let mut result = Unmapped::default();
                for (index, id) in run.pages().enumerate() {
                    let vpn = self.vpn(id);
                    if self.random.next(16) == 0 {
                        continue;
                    }
                    match self.view.remove(&vpn) {
                        None => result.gone |= 1 << index,
                        Some(content) => {
                            result.taken |= 1 << index;
                            result.zero |= u64::from(content == 0) << index;
                            let slot = self.mm.slot(id).filter(|_| self.mm.config().compares);
                            let same = slot.is_some_and(|slot| self.swap.get(&slot.0) == Some(&content));
                            result.same |= u64::from(same) << index;
                            self.cache.insert(id, content);
                        }
                    }
                }
                events.push_back(Event::Unmapped { run, result });
            }
            Action::Free { run } => {
                for id in run.pages() {
                    self.cache.remove(&id);
                }
            }
            Action::Rename { from, to } => {
                let content = self.cache.remove(&from).expect("renamed in the swap cache");
                self.cache.insert(to, content);
            }
            Action::Wake { run } => run.pages().for_each(|id| self.answer(self.vpn(id))),
            Action::Fail { page } => {
                let vpn = self.vpn(page);
                self.answer(vpn);
                self.truth.remove(&vpn);
            }
            Action::Confirm => events.push_back(Event::Confirmed),
            Action::Populated => self.populated = true,
            Action::Discard { slot, count } => {
                let area = self.mm.area_of(slot);
                assert!(!self.sealed.contains(&area), "others have pages in {area:?}");
                let cluster = (slot.0 - self.mm.area_place(area).0.0) / CLUSTER;
                if let Some(claimed) = self.claims.get_mut(&area) {
                    claimed.clusters.remove(&cluster);
                }
                self.swap.retain(|&other, _| !(slot.0..slot.0 + count).contains(&other));
                self.discards.push((slot, count));
            }
            Action::Claim { area, slots } => {
                let has = self.claims[&area].slots;
                // Others may have taken all that there was, or have left a part.
                let most = has.max(self.random.next(6000) as u32 / CLUSTER * CLUSTER);
                let slots = if slots > has { slots.min(most) } else { slots };
                events.push_back(self.news_of(area, slots));
            }
            Action::AreaLeft { area, slots } => {
                assert!(
                    self.failing == Failing::All || slots == 0,
                    "all that can be read is brought elsewhere"
                );
                self.left.push(area);
            }
            Action::Warn(warning) => self.has_retired |= warning == Warning::AreaRetired,
        }
    }

    /// The area has so many slots from now on.
    fn news_of(&mut self, area: AreaId, slots: u32) -> Event {
        let (_, limit) = self.mm.area_place(area);
        let claimed = self.claims.get_mut(&area).expect("who claims shares");
        claimed.slots = slots;
        claimed.check(limit);
        let (more, has_company) = (self.random.next(3000) as u32, self.random.next(2) == 0);
        Event::Claimed { area, slots, more, has_company }
    }

    /// The faulting thread goes on: it finds its page, or faults again.
    fn answer(&mut self, vpn: u64) {
        self.waiting.remove(&vpn);
    }

    fn touch(&mut self, vpn: u64, access: Access) {
        if self.waiting.contains_key(&vpn) {
            return;
        }
        match self.view.get(&vpn).copied() {
            Some(content) => {
                if let Some(&truth) = self.truth.get(&vpn) {
                    assert_eq!(content, truth, "page {vpn} shows what was last written");
                }
                if access == Access::Write {
                    self.stores += 1;
                    self.view.insert(vpn, self.stores);
                    self.truth.insert(vpn, self.stores);
                }
            }
            None if access == Access::Read && self.zeroes.contains(&vpn) => {
                assert_eq!(self.truth.get(&vpn).copied().unwrap_or(0), 0, "page {vpn} shows zeroes");
            }
            None => {
                self.waiting.insert(vpn, access);
                self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access });
            }
        }
    }

    fn complete_one(&mut self) {
        if self.transfers.is_empty() {
            return;
        }
        let pick = self.random.next(self.transfers.len() as u64) as usize;
        let (io, run, slot, is_read) = self.transfers.swap_remove(pick);
        let area = self.mm.area_of(Slot(slot));
        let fails = self.failing.may_fail(is_read, area) && self.random.next(200) == 0;
        if is_read {
            if !fails {
                for (index, id) in run.pages().enumerate() {
                    let content = self.swap[&(slot + index as u32)];
                    self.cache.insert(id, content);
                }
            }
            self.feed(Event::ReadDone { io, ok: !fails });
        } else {
            for (index, id) in run.pages().enumerate() {
                self.swap.insert(slot + index as u32, self.cache[&id]);
            }
            let result = if fails { WriteResult::Failed } else { WriteResult::Done };
            self.feed(Event::WriteDone { io, result });
        }
    }

    fn forget_range(&mut self, start: u64, end: u64) {
        for vpn in start..end {
            self.view.remove(&vpn);
            self.zeroes.remove(&vpn);
            self.truth.insert(vpn, 0);
        }
    }

    fn drain(&mut self) {
        loop {
            while !self.transfers.is_empty() {
                self.complete_one();
            }
            // Whoever was refused a claim asks again; some day all is had, or nothing is left.
            let is_over = self.waiting.is_empty() || self.claims.is_empty();
            if is_over {
                break;
            }
            self.feed(Event::Tick);
        }
    }

    fn random_step(&mut self, pages: u64) {
        let vpn = self.random.next(pages);
        match self.random.next(1000) {
            0..500 => self.touch(vpn, Access::Write),
            500..700 => self.touch(vpn, Access::Read),
            700..950 => self.complete_one(),
            950..970 => {
                if self.mm.has_idle_work() {
                    self.feed(Event::Idle);
                }
            }
            970..985 => {
                let end = (vpn + 1 + self.random.next(30)).min(pages);
                self.forget_range(vpn, end);
                self.feed(Event::Discarded { space: SPACE, start: Vpn(vpn), end: Vpn(end) });
            }
            985..988 => {
                let frames = 20 + self.random.next(200) as u32;
                self.feed(Event::Budget { frames });
            }
            988..992 => {
                self.feed(Event::WillNeed { space: SPACE, start: Vpn(vpn), end: Vpn(pages) });
            }
            992..994 => {
                let end = (vpn + 1 + self.random.next(60)).min(pages);
                self.forget_range(vpn, end);
                self.feed(Event::RegionRemoved { space: SPACE, start: Vpn(vpn), end: Vpn(end) });
                let (start, end) = (Vpn(vpn), Vpn(end));
                self.feed(match vpn % 2 {
                    0 => Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon },
                    _ => Event::RegionGrown { space: SPACE, start, end },
                });
            }
            994..997 => self.remap(pages),
            997 => self.change_areas(),
            _ => self.pause(),
        }
    }

    /// An area comes, or goes, or has its blocks back.
    fn change_areas(&mut self) {
        match self.random.next(5) {
            0 if self.areas < 6 => {
                let (slots, priority) = (64 + self.random.next(4000) as u32, self.random.next(2) as i16);
                let discards = self.random.next(2) == 0;
                let claims = self.random.next(2) as u32 * (1 + self.random.next(2000) as u32);
                if claims > 0 {
                    self.claims.insert(AreaId(self.areas), Claimed::default());
                }
                self.feed(Event::AreaAdded(AreaConfig { slots, priority, discards, claims }));
                self.areas += 1;
            }
            // The last one stays, so that there is somewhere to go.
            1 if self.areas > 1 => {
                let area = AreaId(self.random.next(u64::from(self.areas) - 1) as u8);
                let fails = self.random.next(3) == 0;
                self.feed(if fails { Event::AreaFailed { area } } else { Event::AreaLeaves { area } });
            }
            2 => {
                let area = AreaId(self.random.next(u64::from(self.areas)) as u8);
                if let Some(slots) = self.claims.get(&area).map(|claimed| claimed.slots) {
                    let news = self.news_of(area, slots);
                    self.feed(news);
                }
                self.feed(Event::Tick);
            }
            _ => {
                if let Some((slot, _)) = self.discards.pop() {
                    let kept = self.random.next(100) == 0;
                    self.feed(Event::DiscardDone { slot, kept });
                }
            }
        }
    }

    /// Moves a range on top of another one.
    fn remap(&mut self, pages: u64) {
        let len = 1 + self.random.next(pages / 4);
        let from = self.random.next(pages - len);
        let to = self.random.next(pages - len);
        if from.abs_diff(to) < len {
            return;
        }
        self.drain();
        for vpn in 0..len {
            self.view.remove(&(to + vpn));
            self.zeroes.remove(&(to + vpn));
            if self.zeroes.remove(&(from + vpn)) {
                self.zeroes.insert(to + vpn);
            }
            if let Some(content) = self.view.remove(&(from + vpn)) {
                self.view.insert(to + vpn, content);
            }
            let content = self.truth.insert(from + vpn, 0).unwrap_or(0);
            self.truth.insert(to + vpn, content);
        }
        let (from, to) = (Vpn(from), Vpn(to));
        self.feed(Event::Moved { space: SPACE, from, to, pages: len });
        let end = Vpn(from.0 + len);
        self.feed(Event::RegionAdded { space: SPACE, start: from, end, kind: RegionKind::Anon });
    }

    fn pause(&mut self) {
        self.populated = false;
        self.feed(Event::Pause);
        self.drain();
        if !self.populated {
            // What was refused is asked anew at the next look, at the latest.
            self.feed(Event::Tick);
            self.drain();
        }
        assert!(self.populated, "a pause ends");
        if self.failing != Failing::All {
            for (&vpn, &truth) in &self.truth {
                assert_eq!(self.view.get(&vpn).copied().unwrap_or(0), truth, "page {vpn} is in view");
            }
        }
        self.feed(Event::Resume);
    }

    /// Sealed areas in which nothing is are forgotten, and those behind them come to have other numbers.
    fn forget_emptied(&mut self) {
        for id in (0..self.areas).rev().map(AreaId) {
            if self.sealed.contains(&id) && self.mm.areas_beside(id).0 == 0 {
                self.mm.remove_area(id);
                self.areas -= 1;
                self.forgotten += 1;
                let renumbered = |other: AreaId| AreaId(other.0 - u8::from(other.0 > id.0));
                let others = |ids: &mut dyn Iterator<Item = AreaId>| -> Vec<AreaId> {
                    ids.filter(|&other| other != id).map(renumbered).collect()
                };
                self.sealed = others(&mut self.sealed.iter().copied()).into_iter().collect();
                self.left = others(&mut self.left.iter().copied());
            }
        }
    }

    /// A child that has what is in view, and inherits what is on swap. None: an area is on its leave.
    fn fork(&mut self, seed: u64, pages: u64) -> Option<World> {
        let used = (0..self.areas).map(AreaId).filter(|&id| self.mm.areas_beside(id).0 > 0);
        let used: Vec<AreaId> = used.collect();
        let is_open = |&id: &AreaId| self.mm.takes_pages(id) || self.sealed.contains(&id);
        if !self.claims.is_empty() || !used.iter().all(is_open) {
            return None;
        }
        self.populated = false;
        self.feed(Event::PauseOut);
        self.drain();
        assert!(self.populated && self.cache.is_empty(), "what is out is on swap");
        let out = self.mm.known_pages().filter(|&id| self.mm.state(id) == State::Swapped);
        let slot = |id| self.mm.slot(id).expect("it is on swap");
        let out: Vec<(u64, Slot)> = out.map(|id| (self.vpn(id), slot(id))).collect();
        self.forget_emptied();
        let used: Vec<AreaId> =
            (0..self.areas).map(AreaId).filter(|&id| self.mm.areas_beside(id).0 > 0).collect();
        let mut child = World::new(seed, self.failing);
        child.mm = Mm::new(Config { swap_slots: 0, ..*child.mm.config() }, Wild(seed));
        child.areas = 0;
        for id in used {
            self.mm.seal_area(id);
            self.sealed.insert(id);
            let (base, slots) = self.mm.area_place(id);
            child.sealed.insert(child.mm.inherit_area(base, slots));
            child.areas += 1;
        }
        for world in [&mut *self, &mut child] {
            let slots = 64 + world.random.next(1200) as u32;
            world.feed(Event::AreaAdded(AreaConfig { slots, ..AreaConfig::default() }));
            world.areas += 1;
        }
        (child.truth, child.view, child.stores) = (self.truth.clone(), self.view.clone(), self.stores);
        child.feed(Event::RegionAdded {
            space: SPACE,
            start: Vpn(0),
            end: Vpn(pages),
            kind: RegionKind::Anon,
        });
        for vpn in self.view.keys().copied().map(Vpn) {
            child.feed(Event::Resident { space: SPACE, start: vpn, end: vpn.offset(1) });
        }
        for &(vpn, slot) in &out {
            child.swap.insert(slot.0, self.swap[&slot.0]);
            child.feed(Event::Inherited { space: SPACE, vpn: Vpn(vpn), slot, count: 1 });
        }
        self.feed(Event::Resume);
        Some(child)
    }
}

/// Children of children, whose parents go on, end in whatever order; each shows what it stored last, or
/// what was there when it was made. What others know is not written, nor given back.
#[test]
fn worlds_that_fork_lose_nothing() {
    let (mut forks, mut forgotten) = (0, 0);
    for seed in 1..=60 {
        let mut worlds = vec![World::new(3000 + seed, Failing::None)];
        let pages = 100 + worlds[0].random.next(1500);
        let end = Vpn(pages);
        worlds[0].feed(Event::RegionAdded { space: SPACE, start: Vpn(0), end, kind: RegionKind::Anon });
        for step in 0..6000 {
            let count = worlds.len() as u64;
            let index = worlds[0].random.next(count) as usize;
            worlds[index].random_step(pages);
            if step % 500 == 499 && worlds.len() < 5 {
                let child = worlds[index].fork(seed * 100 + step, pages);
                forks += usize::from(child.is_some());
                worlds.extend(child);
            }
        }
        worlds.iter_mut().for_each(|world| read_back(world, pages));
        forgotten += worlds.iter().map(|world| world.forgotten).sum::<u32>();
    }
    assert!(forks > 100, "{forks} children were made");
    assert!(forgotten > 20, "{forgotten} areas were forgotten");
}

fn run(seed: u64, failing: Failing) -> World {
    let mut world = World::new(seed, failing);
    let pages = 100 + world.random.next(1500);
    let (start, end) = (Vpn(0), Vpn(pages));
    world.feed(Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
    for _ in 0..3000 {
        world.random_step(pages);
    }
    world.drain();
    assert!(world.waiting.is_empty(), "seed {seed}: faults without answer: {:?}", world.waiting);
    read_back(&mut world, pages);
    world
}

fn read_back(world: &mut World, pages: u64) {
    for vpn in 0..pages {
        // Twice: the first touch may fault, and the answer may have been "try again".
        for _ in 0..3 {
            world.touch(vpn, Access::Read);
            world.drain();
        }
    }
}

#[test]
fn random_worlds_lose_nothing() {
    for seed in 1..=150 {
        run(seed, Failing::None);
    }
}

/// What was in an area when its writes began to fail can be read, and is elsewhere in the end.
#[test]
fn an_area_that_cannot_be_written_to_is_emptied() {
    let mut retired = 0;
    for seed in 1..=60 {
        let mut world = run(2000 + seed, Failing::FirstWrites);
        if !world.has_retired {
            continue;
        }
        retired += 1;
        world.feed(Event::AreaAdded(AreaConfig { slots: 8000, ..AreaConfig::default() }));
        for _ in 0..2000 {
            world.feed(Event::Tick);
            world.drain();
        }
        let first = AreaId(0);
        assert_eq!(world.mm.areas_beside(first).0, 0, "seed {seed}: pages lie where no write succeeds");
        assert!(world.left.contains(&first), "seed {seed}: it is empty, and nobody is told");
    }
    assert!(retired > 20, "in {retired} worlds only the area failed");
}

#[test]
fn random_worlds_with_failing_devices_lose_only_what_failed() {
    for seed in 1..=100 {
        run(1000 + seed, Failing::All);
    }
}
