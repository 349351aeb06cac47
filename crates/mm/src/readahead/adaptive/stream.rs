//! One stream of a region: where it goes, how much of what was read for it was used, how large its next window may be.
//!
//! A stream is matched by place, never by who came last: threads and streams interleave. It knows its two newest windows
//! (the reader is in one, the other waits for it) and judges them by the touches that can be observed.

use crate::readahead::{Mapping, SAMPLES};
use crate::types::Vpn;

/// Evidence from which a window needs no stake, has its marker at its beginning, and (proven) is mapped together.
pub(super) const FREE: u8 = 3;
pub(super) const PROVEN: u8 = 4;
/// More evidence than this is not kept. Windows of a stream that has less are sampled.
const EVIDENCE_MAX: u8 = 8;
/// The largest window of a stream that is not proven: each of its touches is a soft fault.
const UNPROVEN_MAX: u16 = 16;
/// The largest window to which one grows that is used in part.
const HALF_MAX: u16 = 64;
/// A stream is stale when it was not seen for this many touches of the region, or for this many times as many as lay
/// between its last two windows if that is more: whoever comes to its place then comes by chance as likely as not.
const STALE: u32 = 64;
const STALE_INTERVALS: u32 = 16;
/// The largest window that the marker of a stale stream asks for.
const STALE_WINDOW: u16 = 16;
/// How far beyond its windows a stream is recognised, in steps; farther where most pages are in RAM anyway, so that it
/// is seen here and there only.
const REACH: i64 = 4;
const REACH_RESIDENT: i64 = 16;

/// What is known of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Pages planned.
    count: u16,
    /// Pages whose first touch will be seen: those really read, but the marker alone of a window mapped together.
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
    /// The newest window was bet, and lost pages already.
    bet: bool,
    doubted: bool,
    /// Predictions that came true, less those that did not.
    pub evidence: u8,
    /// When its newest window was planned, in touches of the region, and how many of those lay between the last two.
    last: u32,
    interval: u16,
    /// Pages that it has gone through.
    run: u32,
}

/// What a judgement found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// As good as all was used.
    Used,
    /// Half or more.
    Half,
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
    pub fn run(&self) -> u32 {
        self.run
    }

    pub fn is_dense(&self) -> bool {
        self.stride.abs() == 1
    }

    /// Was nothing read for it yet, and is its next page only waited for?
    pub fn is_windowless(&self) -> bool {
        self.newest.count == 0
    }

    /// How its next window is mapped. In a `trusted` region even unproven streams are spared the soft faults.
    pub fn mapping(&self, trusted: bool) -> Mapping {
        match self.evidence {
            EVIDENCE_MAX.. => Mapping::Together,
            PROVEN.. => Mapping::Sampled,
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

    /// Where `vpn` is on the stream's path, in steps from `next`: negative in the windows, else at most its reach. `None`:
    /// not on the path, or the stream is too old to be believed (a marker always is).
    pub fn steps_to(&self, vpn: Vpn, clock: u32, marker: bool) -> Option<i64> {
        if self.stride == 0 || (self.is_stale(clock) && !marker) {
            return None;
        }
        let distance = vpn.0.wrapping_sub(self.next.0) as i64;
        let steps = distance / self.stride();
        let behind = -i64::from(self.newest.count) - i64::from(self.before.count);
        (distance % self.stride() == 0 && steps >= behind && steps <= self.reach()).then_some(steps)
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

    /// A page that was read ahead for it was touched. Gives the number of bet pages that this speaks for.
    pub fn hit(&mut self, steps: i64) -> u16 {
        if !self.is_in_newest(steps) {
            self.before.hits = self.before.hits.saturating_add(1);
            return 0;
        }
        self.newest.hits = self.newest.hits.saturating_add(1);
        match self.bet {
            true if self.mapping == Mapping::Together && self.passes_marker(steps) => self.newest.count,
            bet => u16::from(bet),
        }
    }

    fn is_in_newest(&self, steps: i64) -> bool {
        steps < 0 && -steps <= i64::from(self.newest.count)
    }

    /// Is the page `steps` from `next` in the newest window, at or behind its marker?
    pub fn passes_marker(&self, steps: i64) -> bool {
        self.is_in_newest(steps) && steps + i64::from(self.newest.count) >= i64::from(self.marker)
    }

    /// The reader has come to `steps`: judges what it has passed, and sets evidence and window by it. The page it stands on
    /// says nothing (it is used, or nobody would judge): if it was `hit`, it is left out.
    pub fn judge(&mut self, steps: i64, hit: bool, clock: u32) -> Verdict {
        if hit && self.newest.hits > 0 {
            self.newest.hits -= 1;
            self.newest.watched = self.newest.watched.saturating_sub(1);
        }
        let Part { count, watched, hits } = self.newest;
        let passed = i64::from(count) + steps.min(-1) + i64::from(!hit);
        let due = u32::from(self.before.watched)
            + (u32::from(watched) * passed as u32).div_ceil(u32::from(count).max(1));
        let used = u32::from(self.before.hits) + u32::from(hits);
        let verdict = match used {
            used if used * 4 >= due * 3 => Verdict::Used,
            used if used * 3 >= due => Verdict::Half,
            _ => Verdict::Wasted,
        };
        if self.is_stale(clock) {
            self.evidence = self.evidence.min(FREE);
            self.window = self.window.min(STALE_WINDOW);
        }
        self.learn(verdict, used);
        verdict
    }

    fn learn(&mut self, verdict: Verdict, used: u32) {
        match verdict {
            Verdict::Used => {
                if self.newest.count > 0 {
                    self.window = self.window.saturating_mul(2);
                }
                let more = used.clamp(1, u32::from(EVIDENCE_MAX)) as u8;
                self.evidence = (self.evidence + more).min(EVIDENCE_MAX);
            }
            Verdict::Half => {
                self.window = self.window.max(self.window.saturating_mul(2).min(HALF_MAX));
                self.evidence = (self.evidence + 1).min(PROVEN);
            }
            Verdict::Wasted => {
                self.shrink();
                // Samples failed, or all were counted.
                self.evidence = if self.mapping == Mapping::OnTouch { self.evidence / 2 } else { FREE };
            }
        }
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

    /// The page at `steps`, in the window before the newest, is gone again: what has to be looked at once more, from there to
    /// the end of the newest window, and the place of its marker.
    pub fn refill(&self, steps: i64) -> Option<(u32, Vpn)> {
        let is_before = steps < 0 && !self.is_in_newest(steps) && self.newest.count > 0;
        let back = i64::from(self.newest.count - self.marker);
        is_before.then(|| (steps.unsigned_abs() as u32, self.next.offset(-self.stride() * back)))
    }

    /// The pages that its next window should have, within `most`.
    pub fn wish(&mut self, most: u16) -> u16 {
        self.window = self.window.min(most);
        if self.is_proven() { self.window } else { self.window.min(UNPROVEN_MAX) }
    }

    /// Goes on at `first` with a window of `count` pages, the marker at `marker`.
    pub fn plan(&mut self, first: Vpn, count: u16, marker: u16, mapping: Mapping, bet: bool, clock: u32) {
        let passed = if self.newest.count == 0 { 1 } else { self.newest.count };
        self.run = self.run.saturating_add(u32::from(passed));
        self.before = self.newest;
        let watched = match mapping {
            Mapping::OnTouch => count,
            Mapping::Sampled => count.min(SAMPLES as u16),
            Mapping::Together => count.min(1),
        };
        self.newest = Part { count, watched, hits: 0 };
        self.next = first.offset(self.stride() * i64::from(count));
        (self.marker, self.mapping, self.bet, self.doubted) = (marker, mapping, bet, false);
        self.interval = u16::try_from(clock.wrapping_sub(self.last)).unwrap_or(u16::MAX);
        self.last = clock;
    }

    /// Only `read` pages of the newest window had to be read. Gives the number of pages that were bet but not spent.
    pub fn issued(&mut self, read: u32) -> u16 {
        let read = read.min(u32::from(self.newest.count)) as u16;
        self.newest.watched = self.newest.watched.min(read);
        if self.bet { self.newest.count - read } else { 0 }
    }

    /// The newest window lacks its last `missing` pages. Gives the number of pages that were bet but not spent.
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
