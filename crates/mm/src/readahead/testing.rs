//! A small simulator for the tests of this folder: one region, everything on swap, a policy, strict
//! LRU of what is mapped.
//!
//! It carries out plans as the contract in [`super`] says and keeps what no policy may know: which
//! pages were really touched. Time is virtual and crude (one device queue, one thread): enough to
//! see whether a reader waits.

use std::collections::VecDeque;

use super::{Mapping, Plan, SAMPLES, SwapIn, Touch, Window};
use crate::types::{RegionKind, Slot, Vpn};

/// Nanoseconds of a touch, of a soft fault, of a read's way to the program, of an operation and of
/// a page on the device (77,000 single pages or 2 GB/s).
const TOUCH: u64 = 100;
const SOFT_FAULT: u64 = 20_000;
const LATENCY: u64 = 70_000;
const OPERATION: u64 = 11_000;
const TRANSFER: u64 = 2_000;
/// What is not mapped may fill this part of the frames; then the oldest of it goes, else the mapped
/// page not touched for longest.
const CACHE_SHARE: usize = 32;
/// Pages that are allocated together.
const PIECE: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Swapped,
    Cached,
    Mapped,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    state: State,
    /// Marked as read ahead, as the marker.
    read_ahead: bool,
    marker: bool,
    /// Touched since it was read.
    seen: bool,
    /// When it is (or was) there.
    ready: u64,
    /// Position in the LRU order.
    stamp: u64,
    /// How many had left before it, when it left.
    left_at: u32,
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Touches.
    pub touches: u64,
    /// Faults that had to read.
    pub misses: u64,
    /// Faults that found their page in the swap cache.
    pub soft: u64,
    /// Those among them whose page had been read ahead.
    pub hits: u64,
    /// Pages read, and the part of them beside the faulting ones.
    pub read: u64,
    pub ahead: u64,
    /// Pages read ahead that nobody has touched (yet, or ever).
    pub untouched: u64,
    /// Times the reader waited for a page that was on its way.
    pub waits: u64,
    /// Sum of the windows of all misses.
    pub windows: u64,
}

impl Counts {
    /// Pages read in vain, of 1000 read.
    pub fn vain(&self) -> u64 {
        self.untouched * 1000 / self.read.max(1)
    }

    /// What happened since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            touches: self.touches - before.touches,
            misses: self.misses - before.misses,
            soft: self.soft - before.soft,
            hits: self.hits - before.hits,
            read: self.read - before.read,
            ahead: self.ahead - before.ahead,
            untouched: self.untouched.saturating_sub(before.untouched),
            waits: self.waits - before.waits,
            windows: self.windows - before.windows,
        }
    }
}

/// One miss: the page, and the newly read ones among which it is, as `[first, last]`, and how many they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    pub fault: u64,
    pub first: u64,
    pub last: u64,
    pub read: u64,
}

/// The simulator.
pub struct Sim<P: SwapIn> {
    pub policy: P,
    pub region: P::Region,
    pub kind: RegionKind,
    pub counts: Counts,
    pub last_miss: Option<Miss>,
    /// Virtual time of the program, and when the device will have done what it was asked for.
    pub now: u64,
    /// Nanoseconds from one touch to the next.
    pub pace: u64,
    device: u64,
    start: u64,
    end: u64,
    /// In pieces, so that a sparsely used region is small.
    pages: Vec<Option<Box<[Page; PIECE]>>>,
    frames: usize,
    /// Most pages that a plan may read: as if frames ran out then.
    pub spare: usize,
    resident: usize,
    cached: usize,
    /// Mapped pages by their last touch, cached ones by arrival, the oldest first; what does not
    /// bear a page's last stamp is void.
    mapped: VecDeque<(u64, u64)>,
    unmapped: VecDeque<(u64, u64)>,
    stamps: u64,
    evictions: u32,
}

impl<P: SwapIn> Sim<P> {
    /// A region `[start, start + pages)`; page `start` lies in slot `start % 4096` (so that slots
    /// can equal page numbers).
    pub fn new(policy: P, start: u64, pages: u64, frames: usize) -> Self {
        Sim {
            policy,
            region: P::Region::default(),
            kind: RegionKind::Anon,
            counts: Counts::default(),
            last_miss: None,
            now: 0,
            pace: TOUCH,
            device: 0,
            start,
            end: start + pages,
            pages: vec![None; (pages as usize).div_ceil(PIECE)],
            frames,
            spare: usize::MAX,
            resident: 0,
            cached: 0,
            mapped: VecDeque::new(),
            unmapped: VecDeque::new(),
            stamps: 0,
            evictions: 0,
        }
    }

    /// All touches, in order.
    pub fn run(&mut self, touches: impl IntoIterator<Item = u64>) -> Counts {
        let before = self.counts;
        for vpn in touches {
            self.touch(vpn);
        }
        self.counts.since(&before)
    }

    /// One touch.
    pub fn touch(&mut self, vpn: u64) {
        self.counts.touches += 1;
        self.now += self.pace;
        let page = *self.page(vpn);
        if page.state != State::Swapped {
            self.first_touch(vpn);
        }
        match page.state {
            State::Mapped => {
                if page.ready > self.now {
                    let touch = Touch { arriving: true, ..self.describe(vpn, page.read_ahead, page.marker) };
                    if let Some(plan) = self.policy.cached(&mut self.region, &touch) {
                        self.carry_out(&plan, None);
                    }
                }
                self.wait(page.ready);
                self.place(vpn, State::Mapped);
            }
            State::Cached => self.soft_fault(vpn, page),
            State::Swapped => self.miss(vpn),
        }
    }

    fn soft_fault(&mut self, vpn: u64, page: Page) {
        self.counts.soft += 1;
        self.counts.hits += u64::from(page.read_ahead);
        let touch =
            Touch { arriving: page.ready > self.now, ..self.describe(vpn, page.read_ahead, page.marker) };
        let plan = self.policy.cached(&mut self.region, &touch);
        let here = self.page(vpn);
        (here.read_ahead, here.marker) = (false, false);
        self.place(vpn, State::Mapped);
        if let Some(plan) = plan {
            self.carry_out(&plan, None);
        }
        self.wait(page.ready);
        self.now += SOFT_FAULT;
    }

    fn miss(&mut self, vpn: u64) {
        self.counts.misses += 1;
        let touch = self.describe(vpn, false, false);
        let plan = self.policy.miss(&mut self.region, &touch);
        self.read(vpn);
        self.place(vpn, State::Mapped);
        self.page(vpn).seen = true;
        self.last_miss = Some(Miss { fault: vpn, first: vpn, last: vpn, read: 1 });
        self.request(1, 1);
        self.now = self.device + LATENCY;
        self.page(vpn).ready = self.now;
        if let Some(plan) = plan {
            self.carry_out(&plan, Some(vpn));
        }
    }

    /// Reads what is on swap of the plan, marks it, tells the policy how much it was.
    fn carry_out(&mut self, plan: &Plan, fault: Option<u64>) {
        let touched = fault.map(|_| self.last_miss);
        let mut fresh = Vec::new();
        let (mut operations, mut previous, mut covered) = (0, None, 0);
        let all = self.window(plan.window);
        for &vpn in &all {
            if fresh.len() == self.spare {
                break;
            }
            covered += 1;
            if fault.is_none_or(|fault| fault != vpn) {
                let marks = self.policy.marks_cached();
                match self.page(vpn).state {
                    State::Swapped => {
                        self.read(vpn);
                        fresh.push(vpn);
                        operations += u64::from(previous.is_none_or(|p: u64| p.abs_diff(vpn) != 1));
                        previous = Some(vpn);
                    }
                    State::Cached if marks => self.page(vpn).read_ahead = true,
                    _ => {}
                }
            }
        }
        let read = fresh.len() as u64;
        self.counts.ahead += read;
        self.counts.untouched += read;
        self.request(operations, read);
        self.mark(plan, &all, &fresh);
        if let (Some(Some(miss)), Some(&first), Some(&last)) = (touched, all.iter().min(), all.iter().max()) {
            self.last_miss = Some(Miss { first, last, read: read + 1, ..miss });
            self.counts.windows += all.len() as u64;
        }
        if covered < all.len() {
            self.policy.cut_short(&mut self.region, plan, covered as u32);
        }
        self.policy.issued(&mut self.region, plan, read as u32);
    }

    fn mark(&mut self, plan: &Plan, all: &[u64], fresh: &[u64]) {
        let ready = self.device + LATENCY;
        for &vpn in fresh {
            let page = self.page(vpn);
            (page.ready, page.read_ahead) = (ready, plan.mapping == Mapping::OnTouch);
            if !page.read_ahead {
                self.place(vpn, State::Mapped);
            }
        }
        let Some(Vpn(wished)) = plan.marker else { return };
        let wished = all.iter().position(|&vpn| vpn == wished).expect("the marker is in the window");
        let unmapped = if plan.mapping == Mapping::Sampled { SAMPLES } else { 1 };
        let samples = all[wished..].iter().copied().filter(|vpn| fresh.contains(vpn)).take(unmapped);
        for (index, vpn) in samples.enumerate() {
            self.place(vpn, State::Cached);
            let page = self.page(vpn);
            (page.read_ahead, page.marker) = (true, index == 0);
        }
    }

    fn window(&self, window: Window) -> Vec<u64> {
        let end = self.end;
        let pages: Vec<u64> = match window {
            Window::Pages { start, stride, count } => {
                (0..i64::from(count)).map(|n| start.offset(n * stride).0).collect()
            }
            Window::Slots { start, count } => {
                let base = self.start - self.start % 4096;
                let owned = |slot| base + u64::from(slot);
                let slots = start.0..start.0 + count;
                return slots.map(owned).filter(|vpn| (self.start..end).contains(vpn)).collect();
            }
        };
        assert!(pages.iter().all(|vpn| (self.start..end).contains(vpn)), "{window:?} leaves the region");
        pages
    }

    fn describe(&self, vpn: u64, read_ahead: bool, marker: bool) -> Touch {
        let end = self.end;
        Touch {
            now: self.now,
            vpn: Vpn(vpn),
            slot: Some(Slot((vpn - (self.start - self.start % 4096)) as u32)),
            area_slots: (end - (self.start - self.start % 4096)) as u32,
            region_start: Vpn(self.start),
            region_end: Vpn(end),
            kind: self.kind,
            clock: self.evictions,
            left_at: self.left_at(vpn),
            room: 0,
            read_ahead,
            marker,
            arriving: false,
        }
    }

    fn left_at(&self, vpn: u64) -> u32 {
        let index = (vpn - self.start) as usize;
        self.pages[index / PIECE].as_ref().map_or(0, |piece| piece[index % PIECE].left_at)
    }

    fn page(&mut self, vpn: u64) -> &mut Page {
        assert!((self.start..self.end).contains(&vpn), "page {vpn} is outside");
        let index = (vpn - self.start) as usize;
        let piece = self.pages[index / PIECE].get_or_insert_with(|| Box::new([Page::default(); PIECE]));
        &mut piece[index % PIECE]
    }

    fn request(&mut self, operations: u64, pages: u64) {
        self.device = self.device.max(self.now) + operations * OPERATION + pages * TRANSFER;
    }

    fn wait(&mut self, ready: u64) {
        self.counts.waits += u64::from(ready > self.now);
        self.now = self.now.max(ready);
    }

    fn first_touch(&mut self, vpn: u64) {
        let page = self.page(vpn);
        let fresh = !page.seen;
        page.seen = true;
        self.counts.untouched -= u64::from(fresh);
    }

    /// Takes a frame for a page on swap.
    fn read(&mut self, vpn: u64) {
        while self.resident >= self.frames {
            let few = self.cached <= self.frames / CACHE_SHARE && self.cached < self.resident;
            let queue = if few { &mut self.mapped } else { &mut self.unmapped };
            let (stamp, vpn) = queue.pop_front().expect("a full cache has a tail");
            if self.page(vpn).stamp == stamp {
                self.evict(vpn);
            }
        }
        self.counts.read += 1;
        let page = self.page(vpn);
        assert_eq!(page.state, State::Swapped, "read once");
        *page = Page { stamp: page.stamp, left_at: page.left_at, ..Page::default() };
        self.place(vpn, State::Cached);
    }

    /// Evicts a page, if it is there.
    pub fn evict(&mut self, vpn: u64) {
        let page = *self.page(vpn);
        if page.state == State::Swapped {
            return;
        }
        self.place(vpn, State::Swapped);
        self.page(vpn).left_at = self.evictions;
        self.evictions += 1;
        self.policy.swapped_out(&mut self.region, 1);
        if page.read_ahead {
            self.policy.unused(&mut self.region, Vpn(vpn));
        }
    }

    /// Evicts every page.
    pub fn evict_all(&mut self) {
        (self.start..self.end).for_each(|vpn| self.evict(vpn));
    }

    /// Takes a mapped page out of the program's view, into the swap cache.
    pub fn deactivate(&mut self, vpn: u64) {
        assert_eq!(self.page(vpn).state, State::Mapped);
        self.place(vpn, State::Cached);
    }

    /// Changes a page's state and makes it the youngest of its kind.
    fn place(&mut self, vpn: u64, state: State) {
        let page = self.page(vpn);
        let old = core::mem::replace(&mut page.state, state);
        self.cached = self.cached + usize::from(state == State::Cached) - usize::from(old == State::Cached);
        self.resident =
            self.resident + usize::from(state != State::Swapped) - usize::from(old != State::Swapped);
        self.stamps += 1;
        let stamp = self.stamps;
        self.page(vpn).stamp = stamp;
        match state {
            State::Swapped => {}
            State::Cached => self.unmapped.push_back((stamp, vpn)),
            State::Mapped => self.mapped.push_back((stamp, vpn)),
        }
    }
}

/// A generator of pseudo-random numbers (a multiplicative congruence, high bits).
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
