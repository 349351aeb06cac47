//! The default policy: several streams a region, windows that grow as long as they are used.
//!
//! A region keeps sixteen streams, each with a place, a stride and two windows: the reader is in
//! one while the next is being read, asked for by the touch of a marker. Windows double while they
//! are used and halve when they are not; those of a proven stream are mapped together, and a few
//! pages left unmapped tell whether they are still used. A window used in part is mapped page by
//! page, so that what nobody wants is the first to go. What no stream explains goes to a short
//! memory of points, in which repeated steps are found.
//!
//! Nothing is read on mere hope: a window that no fulfilled prediction supports is bet from the
//! region's *credit*. Pages cost one each, a touched page pays two back, misses without neighbours
//! use it up. So random access soon reads nothing beside what it faults on, while three equal steps
//! still open a stream.
//!
//! A set of pages that is touched at random and comes back for others that nobody wants is read by
//! neighbourhoods: see `around.rs`.
//!
//! A device serves whoever asked first, so that a large window makes everybody else wait for it.
//! While faults that no stream explains come as often as windows do, windows are kept short and are
//! not ordered before their marker.
//!
//! Sources: markers and two windows from the kernel's file read-ahead; equal steps from Leap
//! (specification 7.4); counting what was evicted unused from Konstantin (1.5); the rest from 7.5.
//! Unfit for: pointer chasing, and more streams in one region than it keeps (their windows stay
//! small).

mod around;
mod recent;
mod stream;

#[cfg(test)]
mod tests;

use super::{Mapping, Plan, SwapIn, Touch, Window};
use crate::types::Vpn;
use around::{Around, BLOCK, Lone};
use recent::{Progression, Recent};
use stream::{FREE, PROVEN, Stream, Verdict};

/// Streams a region keeps.
const STREAMS: usize = 16;
/// Credit of a new region, the most it can have, and the least that is bet.
const CREDIT_INITIAL: u16 = 16;
const CREDIT_MAX: u16 = 64;
/// The most that strided streams earn: they say nothing about neighbours.
const CREDIT_MAX_STRIDED: u16 = 32;
const STAKE_MIN: u16 = 4;
/// What a useful page pays back.
const REWARD: u16 = 2;
/// Credit needed to bet on the pages after a miss that has no, one, or more neighbours among the last ones.
const CREDIT_NEEDED: [u16; 3] = [48, 24, 8];
/// Credit from which windows are mapped together even before their stream is proven.
const CREDIT_TRUSTED: u16 = 56;
/// The first window of a stream, without the faulting page.
const WINDOW_FIRST: u16 = 4;
/// The smallest window that is aligned.
const ALIGNED_MIN: u16 = 32;
/// Run that a new region's streams are expected to have.
const RUN_INITIAL: u16 = 4096;
/// A marker lies on one of the first this many pages of a proven window, another one each time: so
/// it samples all.
const MARKER_SPREAD: u16 = 8;

/// The largest window while others wait for the device, too.
const CROWDED_WINDOW: u16 = 16;
/// A lone miss adds so much to the crowd, a window takes one from it; from the middle on there is one.
const CROWD_PER_MISS: u8 = 4;
const CROWD: u8 = 8;
const CROWD_MAX: u8 = 16;

/// How far the policy may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Pages in the largest window: what is consumed, or the device delivers, in the time a read takes.
    pub max_window: u16,
    /// The same for strides over 1, where every page is a request of its own.
    pub max_strided: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config { max_window: 256, max_strided: 128 }
    }
}

impl Config {
    /// Windows up to `max_window`, half of it for strides, and none above a power of two and 1/64
    /// of the budget's `frames`: a few streams must not push out what they have just read.
    #[must_use]
    pub fn new(max_window: u16, frames: u32) -> Self {
        let share = (frames / 64).clamp(u32::from(WINDOW_FIRST), 1 << 15);
        let share = 1 << share.ilog2();
        // While anything is read ahead, a stride wants a page at least: a stream moves.
        let max_strided = (max_window / 2).min(share).max(u16::from(max_window > 0));
        Config { max_window: max_window.min(share), max_strided }
    }
}

/// The policy; what it learns about places is in the regions.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    /// May be changed at any time.
    pub config: Config,
    /// Others who share the device, but not this policy, wait for single pages.
    pub others_wait: bool,
    /// Lone misses against windows, of late, in all regions: the device is one.
    crowd: u8,
    /// Lone misses that made a crowd.
    crowding: u32,
    around: Around,
}

/// What a region remembers.
#[derive(Clone, Debug)]
pub struct Region {
    streams: [Stream; STREAMS],
    recent: Recent,
    /// Touches seen so far.
    clock: u32,
    /// Pages that streams used to run (a moving mean): a window is at most a quarter of it, or half
    /// of what its own stream has run.
    typical_run: u16,
    /// Pages that may be bet.
    credit: u16,
    /// Stride of the stream that proved itself last.
    stride: i16,
    /// The stream whose newest window the last plan is.
    planned: Option<u8>,
    /// The last window of a stream that came to what is in RAM: its reader has left it, too, when
    /// another stream begins.
    ended: Option<Window>,
}

const _: () = assert!(size_of::<Region>() <= 1024 && WINDOW_FIRST <= STAKE_MIN);

impl Default for Region {
    fn default() -> Self {
        Region {
            streams: [Stream::default(); STREAMS],
            recent: Recent::default(),
            clock: 0,
            typical_run: RUN_INITIAL,
            credit: CREDIT_INITIAL,
            stride: 1,
            planned: None,
            ended: None,
        }
    }
}

impl SwapIn for Adaptive {
    type Region = Region;

    fn spans_holes(&self) -> bool {
        true
    }

    fn cached(&mut self, region: &mut Region, touch: &Touch) -> Option<Plan> {
        self.touched(region, touch, false)
    }

    fn miss(&mut self, region: &mut Region, touch: &Touch) -> Option<Plan> {
        self.touched(region, touch, true)
    }

    fn unused(&mut self, region: &mut Region, vpn: Vpn) {
        match region.find(vpn, false) {
            Some((index, steps)) if steps < 0 => region.streams[index].disappointed(steps),
            _ => region.credit = region.credit.saturating_sub(1),
        }
    }

    fn issued(&mut self, region: &mut Region, plan: &Plan, read: u32) {
        if let Some(index) = region.planner(plan) {
            let stream = &mut region.streams[index];
            let returned = stream.issued(read);
            if read == 0 {
                region.ended = stream.passed();
            }
            region.earn(returned);
        }
    }

    fn cut_short(&mut self, region: &mut Region, plan: &Plan, covered: u32) {
        if let Some(index) = region.planner(plan) {
            let missing = plan.window.count().saturating_sub(covered);
            let returned = region.streams[index].cut_short(missing);
            region.earn(returned);
        }
    }
}

impl Adaptive {
    fn touched(&mut self, region: &mut Region, touch: &Touch, missed: bool) -> Option<Plan> {
        if self.config.max_window == 0 {
            return None;
        }
        region.clock = region.clock.wrapping_add(1);
        match region.find(touch.vpn, touch.marker) {
            Some((index, steps)) => self.follow(region, index, steps, touch, missed),
            None if touch.marker && !self.around.has_read(touch.vpn) => self.adopt(region, touch),
            None if missed && let Some(index) = region.refute(touch.vpn) => {
                self.follow(region, index, 0, touch, missed)
            }
            None => {
                if touch.read_ahead {
                    self.around.used();
                }
                self.explore(region, touch, missed)
            }
        }
    }

    /// A touch on a stream's path.
    fn follow(
        &mut self,
        region: &mut Region,
        index: usize,
        steps: i64,
        touch: &Touch,
        missed: bool,
    ) -> Option<Plan> {
        let inside = steps < 0;
        let hit = touch.read_ahead && inside && region.streams[index].is_sample(steps, touch.marker);
        region.note(index, steps, hit, touch.vpn);
        let stream = &region.streams[index];
        if missed && let Some((count, marker)) = stream.refill(steps) {
            let count = count.min(room(touch.vpn, stream.stride(), touch));
            region.planned = None;
            return Some(window(touch.vpn, stream.stride(), count, marker, stream.newest_mapping()));
        }
        let is_due = stream.is_due(steps, touch.marker);
        let waited = !is_due && touch.arriving && !self.is_crowded() && stream.is_waited_for(steps);
        if inside && !missed && !is_due && !waited {
            return None;
        }
        region.judge(index, steps, hit, waited, touch);
        let fault = (missed || !inside).then_some(touch.vpn);
        self.plan(region, index, touch, fault)
    }

    /// The marker of a stream that had to make room for another: the stream is there again. Most of
    /// what is planned now is in RAM already.
    fn adopt(&mut self, region: &mut Region, touch: &Touch) -> Option<Plan> {
        let stride = i64::from(region.stride);
        let next = touch.vpn.offset(stride);
        let index = region.replace(Stream::new(next, stride, PROVEN, u16::MAX, region.clock));
        self.plan(region, index, touch, None)
    }

    /// A touch that no stream explains.
    fn explore(&mut self, region: &mut Region, touch: &Touch, missed: bool) -> Option<Plan> {
        let pages = touch.region_end.0 - touch.region_start.0;
        let found = region.recent.progression(touch.vpn, pages, i64::from(region.stride));
        let (below, above) = region.recent.neighbours(touch.vpn);
        region.recent.push(touch.vpn);
        if missed {
            let is_lone = found.is_none() && below + above == 0;
            region.settle_lone_miss(is_lone);
            self.crowd = (self.crowd + if is_lone { CROWD_PER_MISS } else { 0 }).min(CROWD_MAX);
            self.crowding = self.crowding.wrapping_add(u32::from(is_lone && self.crowd >= CROWD));
        }
        let reads_around = missed && found.is_none() && self.around.miss(&lone(touch));
        let (stride, evidence) = match found {
            Some(Progression { stride, steps }) => (stride, steps),
            None if reads_around => {
                region.planned = None;
                self.around.read(touch.vpn);
                return Some(self.block(touch));
            }
            None if missed && region.credit >= CREDIT_NEEDED[(below + above).min(2) as usize] => {
                (if above > below { -1 } else { 1 }, 0)
            }
            None => return None,
        };
        let index = region.replace(Stream::new(
            touch.vpn.offset(stride),
            stride,
            evidence,
            WINDOW_FIRST,
            region.clock,
        ));
        self.plan(region, index, touch, Some(touch.vpn))
    }

    /// The block around a miss, within the region.
    fn block(&self, touch: &Touch) -> Plan {
        let pages = u64::from(BLOCK.min(1 << self.config.max_window.ilog2()));
        let first = Vpn(touch.vpn.0 / pages * pages);
        let (start, end) = (first.max(touch.region_start), touch.region_end.min(first.offset(pages as i64)));
        let window = Window::Pages { start, stride: 1, count: (end.0 - start.0) as u32 };
        // Who waits for the first touch of each page may have to make room before: all but one come
        // into view at once. That one tells what the block is worth, touched or missed.
        let beside = Vpn(touch.vpn.0 ^ 1);
        let marker = (start <= beside && beside < end).then_some(beside);
        Plan { window, marker, mapping: Mapping::Together, passed: None, wanted_first: false }
    }

    /// The next window of a stream: from the page after `fault` on if a fault is answered with it,
    /// else where the last ended.
    fn plan(&mut self, region: &mut Region, index: usize, touch: &Touch, fault: Option<Vpn>) -> Option<Plan> {
        let wish = self.wish(region, index);
        self.crowd = self.crowd.saturating_sub(1);
        let stream = &mut region.streams[index];
        let stride = stream.stride();
        let first = fault.map_or(stream.next(), |vpn| vpn.offset(stride));
        let count = aligned(first, stride, wish).min(room(first, stride, touch));
        let is_bet = stream.evidence < FREE;
        let mapping = stream.mapping(region.credit >= CREDIT_TRUSTED);
        let marker = if is_bet { count.saturating_sub(1) } else { early_marker(count, region.clock) };
        let passed = stream.passed().or_else(|| region.ended.take());
        stream.plan(first, count, marker, mapping, is_bet, region.clock);
        region.planned = Some(index as u8);
        region.credit -= if is_bet { count } else { 0 };
        let extra = u16::from(fault.is_some());
        (count > 0).then(|| Plan {
            passed,
            ..window(fault.unwrap_or(first), stride, count + extra, marker + extra, mapping)
        })
    }

    /// Do others than streams wait for the device?
    fn is_crowded(&self) -> bool {
        self.crowd >= CROWD || self.others_wait
    }

    /// How many misses so far were single ones among as many as there are windows, modulo 2^32.
    #[must_use]
    pub fn crowding(&self) -> u32 {
        self.crowding
    }

    /// The pages that the next window of a stream should have: as many as it has earned, as streams
    /// here use to run, and as the credit allows.
    fn wish(&self, region: &mut Region, index: usize) -> u16 {
        let stream = &mut region.streams[index];
        let limit = if stream.is_dense() { self.config.max_window } else { self.config.max_strided };
        let limit = if self.is_crowded() { limit.min(CROWDED_WINDOW) } else { limit };
        let typical = (region.typical_run / 4).max(stream.run() / 2).max(2);
        let wish = stream.wish(typical.min(limit));
        match stream.evidence {
            FREE.. => wish,
            _ if region.credit < STAKE_MIN => 0,
            _ => wish.min(region.credit),
        }
    }
}

fn lone(touch: &Touch) -> Lone {
    Lone { now: touch.now, vpn: touch.vpn, clock: touch.clock, left_at: touch.left_at }
}

/// The plan for `count` pages, the `marker`th of which is the marker.
fn window(start: Vpn, stride: i64, count: u16, marker: u16, mapping: Mapping) -> Plan {
    let marker = (marker < count).then(|| start.offset(stride * i64::from(marker)));
    Plan {
        window: Window::Pages { start, stride, count: u32::from(count) },
        marker,
        mapping,
        passed: None,
        wanted_first: false,
    }
}

/// Pages from `first` to the end of the region in the direction of `stride`.
fn room(first: Vpn, stride: i64, touch: &Touch) -> u16 {
    if first < touch.region_start || first >= touch.region_end {
        return 0;
    }
    let span = if stride > 0 { touch.region_end.0 - 1 - first.0 } else { first.0 - touch.region_start.0 };
    u16::try_from(span / stride.unsigned_abs() + 1).unwrap_or(u16::MAX)
}

/// `count` or a little less, so that a large window of consecutive pages ends where a page-table
/// page may: else every other window would be two requests.
fn aligned(first: Vpn, stride: i64, count: u16) -> u16 {
    if stride.abs() != 1 || count < ALIGNED_MIN {
        return count;
    }
    let grain = 1 << count.ilog2();
    let over = match stride {
        1 => (first.0 + u64::from(count)) % grain,
        _ => (u64::from(count) + grain - 1 - first.0 % grain) % grain,
    } as u16;
    if over <= count / 4 * 3 { count - over } else { count }
}

/// The index of a proven window's marker: among its first pages, a different one each time.
fn early_marker(count: u16, clock: u32) -> u16 {
    let spread = (count / 4).clamp(1, MARKER_SPREAD);
    (clock.wrapping_mul(0x9E37_79B9) >> 16) as u16 % spread
}

impl Region {
    /// The stream whose newest window a plan is: that of the last plan, or of one that had to wait.
    ///
    /// *The story:* what became of a window that had waited for frames was told to the stream that had
    /// planned another one meanwhile.
    fn planner(&self, plan: &Plan) -> Option<usize> {
        let last = usize::from(self.planned?);
        let Window::Pages { start, stride, .. } = plan.window else { return None };
        let planned = |&index: &usize| self.streams[index].has_planned(start, stride);
        Some(last).filter(planned).or_else(|| (0..STREAMS).find(planned))
    }

    /// The stream on whose path `vpn` lies, and how many steps from its next page. The nearest to
    /// that page wins.
    fn find(&self, vpn: Vpn, marker: bool) -> Option<(usize, i64)> {
        let on_path = |(index, stream): (usize, &Stream)| {
            stream.steps_to(vpn, self.clock, marker).map(|steps| (index, steps))
        };
        self.streams.iter().enumerate().filter_map(on_path).min_by_key(|(_, steps)| steps.unsigned_abs())
    }

    /// The stream whose stride is refuted by a miss at `vpn`, if there is one, goes on there page by page.
    fn refute(&mut self, vpn: Vpn) -> Option<usize> {
        let index = self.streams.iter_mut().position(|stream| stream.is_refuted_by(vpn, self.clock))?;
        let stream = &mut self.streams[index];
        stream.turn(vpn, stream.stride().signum(), FREE - 1);
        Some(index)
    }

    /// Puts a new stream in place of the one not seen for longest, unproven ones first.
    fn replace(&mut self, stream: Stream) -> usize {
        let idleness = |&index: &usize| self.streams[index].idleness(self.clock);
        let index = (0..STREAMS).max_by_key(idleness).expect("there are streams");
        let run = self.streams[index].run();
        if run > 1 {
            self.typical_run = self.typical_run - self.typical_run / 4 + run / 4;
        }
        self.streams[index] = stream;
        index
    }

    /// Keeps what a touch on a stream's path tells: a prediction came true, and where an unproven
    /// stream was touched.
    fn note(&mut self, index: usize, steps: i64, hit: bool, vpn: Vpn) {
        let stream = &mut self.streams[index];
        let came_true = if hit { stream.hit(steps) } else { u16::from(stream.is_windowless()) };
        if stream.evidence <= PROVEN {
            self.recent.push(vpn);
        }
        self.reward(index, came_true);
    }

    /// Judges a stream and draws the conclusions: a stride to look for, points explained, or a
    /// stream that goes another way than believed.
    fn judge(&mut self, index: usize, steps: i64, hit: bool, waited: bool, touch: &Touch) {
        let stream = &mut self.streams[index];
        let was_proven = stream.is_proven();
        let verdict = stream.judge(steps, hit, waited, self.clock);
        if stream.is_proven() {
            self.stride = stream.stride() as i16;
        }
        if verdict == Verdict::Used {
            if stream.is_proven() && !was_proven {
                self.recent.explain(touch.vpn, stream.stride());
            }
            return;
        }
        let pages = touch.region_end.0 - touch.region_start.0;
        if let Some(stride) = self.recent.pattern(touch.vpn, pages)
            && stride != stream.stride()
        {
            stream.turn(touch.vpn.offset(stride), stride, FREE - 1);
        }
    }

    /// A miss that has nothing to do with those before it costs credit, one that has earns it.
    fn settle_lone_miss(&mut self, is_lone: bool) {
        if is_lone {
            self.credit = self.credit.saturating_sub(1);
        } else {
            self.earn(REWARD);
        }
    }

    /// A stream's prediction of this many pages came true.
    fn reward(&mut self, index: usize, pages: u16) {
        if self.streams[index].is_dense() || self.credit < CREDIT_MAX_STRIDED {
            self.earn(pages.saturating_mul(REWARD));
        }
    }

    fn earn(&mut self, credit: u16) {
        self.credit = self.credit.saturating_add(credit).min(CREDIT_MAX);
    }
}

#[cfg(test)]
mod alignment {
    use super::*;

    #[test]
    fn large_windows_end_on_a_border() {
        assert_eq!(aligned(Vpn(1000), 1, 64), 64 - 40);
        assert_eq!(aligned(Vpn(1024), 1, 64), 64);
        assert_eq!(aligned(Vpn(1024 + 63), -1, 64), 64);
        assert_eq!(aligned(Vpn(1000), -1, 64), 41, "1000 down to 960");
        assert_eq!(aligned(Vpn(1023), 1, 64), 64, "a window of one page is none");
        assert_eq!(aligned(Vpn(1000), 1, 16), 16);
        assert_eq!(aligned(Vpn(1000), 4, 64), 64);
    }
}
