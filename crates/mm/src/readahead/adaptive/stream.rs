//! One stream of a region: where it goes, how much of what was read for it was used, how large its
//! next window may be.
//!
//! A stream is matched by place, never by who came last: threads and streams interleave. It knows
//! its two newest windows (the reader is in one, the other waits for it) and judges them by the
//! touches that can be observed.

use crate::readahead::{Mapping, SAMPLES, Window};
use crate::types::Vpn;

/// Evidence from which a window needs no stake, has its marker at its beginning, and (proven) is
/// mapped together.
pub(super) const FREE: u8 = 3;
pub(super) const PROVEN: u8 = 4;
/// More evidence than this is not kept. Windows of a stream that has less are sampled.
const EVIDENCE_MAX: u8 = 8;
/// The largest window of a stream that is not proven: each of its touches is a soft fault.
const UNPROVEN_MAX: u16 = 16;
/// The largest window to which one grows that is used in part.
const PARTLY_MAX: u16 = 64;
/// A stream is stale when it was not seen for this many touches of the region, or for this many
/// times as many as lay between its last two windows if that is more: whoever comes to its place
/// then comes by chance as likely as not.
const STALE: u32 = 64;
const STALE_INTERVALS: u32 = 16;
/// The largest window that the marker of a stale stream asks for.
const STALE_WINDOW: u16 = 16;
/// How far beyond its windows a stream is recognised, in steps; farther where most pages are in RAM
/// anyway, so that it is seen here and there only.
const REACH: i64 = 4;
const REACH_RESIDENT: i64 = 16;

/// The largest stride that is taken for chance.
const CHANCE_MAX: i16 = 8;

/// The smallest window after which the next is ordered before it has arrived: below, a stream that
/// ends costs more.
const OVERLAPPED_MIN: u16 = 64;

/// What is known of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Pages planned.
    count: u16,
    /// Pages whose first touch will be seen: those really read, but the marker alone of a window
    /// mapped together.
    watched: u16,
    /// Those that were touched.
    hits: u16,
}

/// A stream. `stride` 0 means that the entry is not in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The first page not planned yet.
    next: Vpn,
    stride: i16,
    /// How large the next window should be.
    window: u16,
    newest: Part,
    before: Part,
    /// Index of the marker in the newest window.
    marker: u16,
    mapping: Mapping,
    /// The newest window was bet, lost pages already, was in RAM in part, steps over a page that was touched.
    bet: bool,
    doubted: bool,
    holes: bool,
    refuted: bool,
    /// Predictions that came true, less those that did not.
    pub evidence: u8,
    /// When its newest window was planned, in touches of the region, and how many of those lay
    /// between the last two.
    last: u32,
    interval: u16,
    /// Pages that it has gone through, as far as they can be counted.
    run: u16,
}

/// What a judgement found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// As good as all was used.
    Used,
    /// A third or more: a soft fault saved is worth two pages read in vain.
    Partly,
    /// Less.
    Wasted,
}

impl Default for Stream {
    fn default() -> Self {
        Stream {
            next: Vpn(0),
            stride: 0,
            window: 0,
            newest: Part::default(),
            before: Part::default(),
            marker: 0,
            mapping: Mapping::OnTouch,
            bet: false,
            doubted: false,
            holes: false,
            refuted: false,
            evidence: 0,
            last: 0,
            interval: 0,
            run: 0,
        }
    }
}

impl Stream {
    /// A stream that goes on with `next`.
    pub fn new(next: Vpn, stride: i64, evidence: u8, window: u16, clock: u32) -> Self {
        let stride = i16::try_from(stride).expect("strides are bounded");
        assert!(stride != 0 && window > 0, "a stream moves and wants pages");
        Stream { next, stride, window, evidence, last: clock, ..Stream::default() }
    }

    pub fn stride(&self) -> i64 {
        i64::from(self.stride)
    }

    pub fn next(&self) -> Vpn {
        self.next
    }

    /// Pages that it went through.
    pub fn run(&self) -> u16 {
        self.run
    }

    pub fn is_dense(&self) -> bool {
        self.stride.abs() == 1
    }

    /// Was nothing read for it yet, and is its next page only waited for?
    pub fn is_windowless(&self) -> bool {
        self.newest.count == 0
    }

    /// How its next window is mapped. In a `trusted` region bets are mapped together too: they are
    /// short, and their last page is the marker.
    pub fn mapping(&self, trusted: bool) -> Mapping {
        match self.evidence {
            EVIDENCE_MAX.. => Mapping::Together,
            PROVEN.. => Mapping::Sampled,
            FREE.. => Mapping::OnTouch,
            _ if trusted => Mapping::Together,
            _ => Mapping::OnTouch,
        }
    }

    /// How its newest window is mapped.
    pub fn newest_mapping(&self) -> Mapping {
        self.mapping
    }

    pub fn is_proven(&self) -> bool {
        self.evidence >= PROVEN
    }

    /// How dispensable it is: the longer without a window the more, a proven one much less.
    pub fn idleness(&self, clock: u32) -> u32 {
        if self.is_proven() { self.age(clock) / 8 } else { self.age(clock) }
    }

    /// Touches of the region since its last window; the largest number for an entry that is not in use.
    fn age(&self, clock: u32) -> u32 {
        if self.stride == 0 { u32::MAX } else { clock.wrapping_sub(self.last) }
    }

    fn is_stale(&self, clock: u32) -> bool {
        self.age(clock) > STALE.max(u32::from(self.interval) * STALE_INTERVALS)
    }

    /// Where `vpn` is on the stream's path, in steps from `next`: negative in the windows, else at
    /// most its reach. `None`: not on the path, or the stream is too old to be believed (a marker
    /// always is).
    pub fn steps_to(&self, vpn: Vpn, clock: u32, marker: bool) -> Option<i64> {
        if self.stride == 0 || (self.is_stale(clock) && !marker) {
            return None;
        }
        let distance = vpn.0.wrapping_sub(self.next.0) as i64;
        (distance % self.stride() == 0 && self.spans(distance)).then(|| distance / self.stride())
    }

    /// Does it step over `vpn`, for the second time in a window, and is the region in RAM in part?
    /// Then its short stride is chance: other pages are touched as well, but unseen.
    pub fn is_refuted_by(&mut self, vpn: Vpn, clock: u32) -> bool {
        let distance = vpn.0.wrapping_sub(self.next.0) as i64;
        let may_be_chance = self.holes && (2..=CHANCE_MAX).contains(&self.stride.abs());
        let steps_over = may_be_chance && !self.is_stale(clock) && self.spans(distance);
        steps_over && core::mem::replace(&mut self.refuted, true)
    }

    /// Is a page at this distance from `next` between the beginning of its windows and the end of its reach?
    fn spans(&self, distance: i64) -> bool {
        let behind = -i64::from(self.newest.count) - i64::from(self.before.count);
        (behind..=self.reach()).contains(&(distance / self.stride()))
    }

    fn reach(&self) -> i64 {
        let Part { count, watched, .. } = self.newest;
        match count {
            0 => 0,
            _ if self.is_dense() && self.mapping == Mapping::OnTouch && watched * 2 <= count => {
                REACH_RESIDENT.max(i64::from(count))
            }
            _ => REACH,
        }
    }

    /// Is the first touch of a page in its windows a sample of their use? In a window mapped
    /// together others are seen too, if the reader comes before the page does, but those are not
    /// chosen by chance.
    pub fn is_sample(&self, steps: i64, marker: bool) -> bool {
        !self.is_in_newest(steps)
            || match self.mapping {
                Mapping::OnTouch | Mapping::Filling => true,
                Mapping::Sampled => self.passes_marker(steps),
                Mapping::Together => marker,
            }
    }

    /// A sample was touched. Gives the number of bet pages that this speaks for.
    pub fn hit(&mut self, steps: i64) -> u16 {
        if !self.is_in_newest(steps) {
            self.before.hits = (self.before.hits + 1).min(self.before.watched);
            return 0;
        }
        self.newest.hits = (self.newest.hits + 1).min(self.newest.watched);
        match self.bet {
            true if self.mapping == Mapping::Together => self.newest.count,
            bet => u16::from(bet),
        }
    }

    fn is_in_newest(&self, steps: i64) -> bool {
        steps < 0 && -steps <= i64::from(self.newest.count)
    }

    /// Does a touch at `steps` ask for the next window? In a window mapped together only the `marker` does.
    pub fn is_due(&self, steps: i64, marker: bool) -> bool {
        match self.mapping {
            Mapping::OnTouch | Mapping::Filling => self.passes_marker(steps),
            Mapping::Sampled | Mapping::Together => marker && self.is_in_newest(steps),
        }
    }

    /// The page at `steps` was touched while it was on its way: does it lie in the newest window of
    /// a stream that is believed? Then the reader is faster than the device, and the next window is
    /// ordered before this one has arrived.
    pub fn is_waited_for(&self, steps: i64) -> bool {
        self.mapping == Mapping::Together && self.newest.count >= OVERLAPPED_MIN && self.is_in_newest(steps)
    }

    fn passes_marker(&self, steps: i64) -> bool {
        self.is_in_newest(steps) && steps + i64::from(self.newest.count) >= i64::from(self.marker)
    }

    /// The reader has come to `steps`: judges what it has passed, and sets evidence and window by
    /// it. The page it stands on says nothing (it is used, or nobody would judge): if it was `hit`,
    /// it is left out. A reader that `waited` before it came to the newest window's marker has not
    /// been tested by that yet.
    pub fn judge(&mut self, steps: i64, hit: bool, waited: bool, clock: u32) -> Verdict {
        if hit && self.newest.hits > 0 {
            self.newest.hits -= 1;
            self.newest.watched = self.newest.watched.saturating_sub(1);
        }
        let Part { count, watched, hits } = self.newest;
        let passed = i64::from(count) + steps.min(-1) + i64::from(!hit);
        let due_in_newest = match waited && !self.passes_marker(steps) {
            true => 0,
            false => (u32::from(watched) * passed as u32).div_ceil(u32::from(count).max(1)),
        };
        let due = u32::from(self.before.watched) + due_in_newest;
        let used = u32::from(self.before.hits) + u32::from(hits);
        let verdict = match used {
            used if used * 4 >= due * 3 => Verdict::Used,
            used if used * 3 >= due => Verdict::Partly,
            _ => Verdict::Wasted,
        };
        if due == 0 && waited {
            return Verdict::Used;
        }
        if self.is_stale(clock) {
            self.evidence = self.evidence.min(FREE);
            self.window = self.window.min(STALE_WINDOW);
        }
        self.learn(verdict, used, due.saturating_sub(used));
        verdict
    }

    /// A used page speaks for the stream, an unused one three times as much against it: the
    /// logarithms of how much likelier each is where nearly all, and where half of the pages are
    /// used.
    fn learn(&mut self, verdict: Verdict, used: u32, unused: u32) {
        let evidence = i64::from(self.evidence);
        let sum = evidence + i64::from(used) - 3 * i64::from(unused);
        let evidence = match verdict {
            Verdict::Used => sum.max(evidence + 1),
            Verdict::Partly => sum.max((evidence + 1).min(i64::from(FREE))),
            Verdict::Wasted => sum.min(evidence / 2),
        };
        self.evidence = evidence.clamp(0, i64::from(EVIDENCE_MAX)) as u8;
        self.window = match verdict {
            _ if self.newest.count == 0 => self.window,
            Verdict::Used => self.window.saturating_mul(2),
            Verdict::Partly => self.window.max(self.window.saturating_mul(2).min(PARTLY_MAX)),
            Verdict::Wasted => (self.window / 2).max(2),
        };
    }

    fn shrink(&mut self) {
        self.window = (self.window / 2).max(2);
    }

    /// A page of one of its windows was evicted before its first touch.
    pub fn disappointed(&mut self, steps: i64) {
        if self.is_in_newest(steps) && !self.doubted {
            self.doubted = true;
            self.shrink();
            self.evidence = self.evidence.min(FREE);
        }
    }

    /// The page at `steps`, in the window before the newest, is gone again: how many pages have to
    /// be looked at once more, to the end of the newest window, and which of them is its marker.
    pub fn refill(&self, steps: i64) -> Option<(u16, u16)> {
        let is_before = steps < 0 && !self.is_in_newest(steps) && self.newest.count > 0;
        let count = steps.unsigned_abs() as u16;
        is_before.then(|| (count, count - (self.newest.count - self.marker)))
    }

    /// The pages that its next window should have, within `most`.
    pub fn wish(&mut self, most: u16) -> u16 {
        self.window = self.window.min(most).max(1);
        if self.is_proven() { self.window } else { self.window.min(UNPROVEN_MAX) }
    }

    /// The window before the newest: when the reader is in the newest, it has gone through that.
    pub fn passed(&self) -> Option<Window> {
        let (before, newest) = (u32::from(self.before.count), i64::from(self.newest.count));
        let start = self.next.offset(-self.stride() * (newest + i64::from(before)));
        (before > 0).then_some(Window::Pages { start, stride: self.stride(), count: before })
    }

    /// Goes on at `first` with a window of `count` pages, the marker at `marker`.
    pub fn plan(&mut self, first: Vpn, count: u16, marker: u16, mapping: Mapping, bet: bool, clock: u32) {
        let passed = if self.newest.count == 0 { 1 } else { self.newest.count };
        self.run = self.run.saturating_add(passed);
        self.before = self.newest;
        let watched = match mapping {
            Mapping::OnTouch | Mapping::Filling => count,
            Mapping::Sampled => count.min(SAMPLES as u16),
            Mapping::Together => count.min(1),
        };
        self.newest = Part { count, watched, hits: 0 };
        self.next = first.offset(self.stride() * i64::from(count));
        (self.marker, self.mapping, self.bet) = (marker, mapping, bet);
        (self.doubted, self.refuted) = (false, false);
        self.interval = u16::try_from(clock.wrapping_sub(self.last)).unwrap_or(u16::MAX);
        self.last = clock;
    }

    /// Does a window that begins there, or its second page where a fault began it, belong to it as the
    /// newest one?
    pub fn has_planned(&self, start: Vpn, stride: i64) -> bool {
        let first = self.next.offset(-self.stride() * i64::from(self.newest.count));
        stride == self.stride() && (start == first || start.offset(stride) == first)
    }

    /// Only `read` pages of the newest window had to be read. Gives the number of pages that were
    /// bet but not spent.
    pub fn issued(&mut self, read: u32) -> u16 {
        let read = read.min(u32::from(self.newest.count)) as u16;
        self.newest.watched = self.newest.watched.min(read);
        self.holes = read < self.newest.count;
        if self.bet { self.newest.count - read } else { 0 }
    }

    /// The newest window lacks its last `missing` pages. Gives the number of pages that were bet
    /// but not spent.
    pub fn cut_short(&mut self, missing: u32) -> u16 {
        let missing = missing.min(u32::from(self.newest.count)) as u16;
        self.newest.count -= missing;
        self.newest.watched = self.newest.watched.min(self.newest.count);
        self.next = self.next.offset(-self.stride() * i64::from(missing));
        self.marker = self.marker.min(self.newest.count.saturating_sub(1));
        if self.bet { missing } else { 0 }
    }

    /// Takes another direction from `next` on.
    pub fn turn(&mut self, next: Vpn, stride: i64, evidence: u8) {
        *self = Stream { run: self.run, ..Stream::new(next, stride, evidence, self.window, self.last) };
    }
}
