//! How much of the budget a compressed pool may have.
//!
//! A frame given to the pool holds the pages of several frames, but a page in it costs some microseconds at each touch, and one
//! in a frame nothing. So it pays where single pages are waited for on the device, and where they compress; it does not
//! where windows are read ahead, which come faster than they could be unpacked. The shell says what it sees
//! ([`Figures`]), a few dozen times a second; the answer is a number of frames.
//!
//! What is loaded from the youngest part of the pool, as many pages as the pool has frames, would not have left RAM without
//! the pool: each load is a loss. What is loaded from the oldest part saves a read. So the pool grows while the program waits
//! for single pages and its oldest part earns more than the youngest costs, and shrinks where it is the other way round,
//! or where what is read comes by windows. Where pages do not compress it is given up for a while.

use crate::types::Nanos;

/// How often a decision is made.
const PERIOD_NS: Nanos = 20_000_000;
/// What a single page read from a device costs the program that waits for it, a page of a window, and a page unpacked.
const SINGLE_NS: u64 = 110_000;
const WINDOW_PAGE_NS: u64 = 4_000;
const LOAD_NS: u64 = 45_000;
/// The pool begins when waiting for single pages takes this share of the time, and grows while it takes a tenth.
const BEGIN_SHARE: u64 = 4;
const GROW_SHARE: u64 = 10;
/// ... in so many periods in a row.
const BEGIN_PERIODS: u32 = 3;
/// It grows and shrinks by this share of its largest size.
const STEPS: u32 = 16;
/// ... but by no less than this: a shell keeps some frames of it free.
const STEP_MIN: u32 = 256;
/// So many loads say something.
const LOADS_MIN: u64 = 64;
/// Pages must come down to this many percent on average, of so many that were tried since the last verdict.
const PACKED_PERCENT_MAX: u64 = 70;
const TRIED_MIN: u64 = 256;
/// For so long a pool that did not pay is not tried again; each time twice as long.
const REST_NS_MIN: Nanos = 2_000_000_000;
const REST_NS_MAX: Nanos = 64_000_000_000;

/// What the shell saw, in totals since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Reads of a few pages from the device, each of which somebody waits for.
    pub single_reads: u64,
    /// Pages read from the device by windows.
    pub window_pages: u64,
    /// Faults that were answered by unpacking.
    pub loads: u64,
    /// Those with a page of the oldest quarter of the pool.
    pub old_loads: u64,
    /// Those with one of the youngest pages in it, as many as it has frames.
    pub young_loads: u64,
    /// Pages that were compressed, in vain or not, and the bytes that they became.
    pub tried: u64,
    /// See `tried`.
    pub tried_bytes: u64,
}

impl Figures {
    fn since(&self, before: &Figures) -> Figures {
        Figures {
            single_reads: self.single_reads - before.single_reads,
            window_pages: self.window_pages - before.window_pages,
            loads: self.loads - before.loads,
            old_loads: self.old_loads - before.old_loads,
            young_loads: self.young_loads - before.young_loads,
            tried: self.tried - before.tried,
            tried_bytes: self.tried_bytes - before.tried_bytes,
        }
    }
}

/// Decides.
#[derive(Debug)]
pub struct PoolSize {
    frames_max: u32,
    frames: u32,
    before: Figures,
    /// What was tried since the last verdict on how pages compress.
    judged: Figures,
    decided: Nanos,
    waiting_periods: u32,
    rest_until: Nanos,
    rest_ns: Nanos,
}

impl PoolSize {
    /// A pool of `frames_max` frames at most; 0: never any.
    #[must_use]
    pub fn new(frames_max: u32) -> Self {
        PoolSize {
            frames_max,
            frames: 0,
            before: Figures::default(),
            judged: Figures::default(),
            decided: 0,
            waiting_periods: 0,
            rest_until: 0,
            rest_ns: REST_NS_MIN,
        }
    }

    /// The frames that the pool may have, given what has happened until `now` and the frames that it has (`held`). To be
    /// called often.
    pub fn decide(&mut self, now: Nanos, figures: &Figures, held: u32) -> u32 {
        let elapsed = now.saturating_sub(self.decided);
        if self.frames_max == 0 || elapsed < PERIOD_NS {
            return self.frames;
        }
        let seen = figures.since(&self.before);
        (self.before, self.decided) = (*figures, now);
        if self.frames == 0 {
            self.begin(now, elapsed, &seen, figures);
        } else if self.is_stiff(figures) {
            self.frames = 0;
            self.rest_until = now + self.rest_ns;
            self.rest_ns = (self.rest_ns * 2).min(REST_NS_MAX);
        } else {
            self.adjust(elapsed, &seen, held);
        }
        self.frames
    }

    fn begin(&mut self, now: Nanos, elapsed: Nanos, seen: &Figures, figures: &Figures) {
        let waits = seen.single_reads * SINGLE_NS >= elapsed / BEGIN_SHARE && !is_by_windows(seen);
        self.waiting_periods = if waits { self.waiting_periods + 1 } else { 0 };
        if self.waiting_periods >= BEGIN_PERIODS && now >= self.rest_until {
            self.frames = self.step();
            self.judged = *figures;
            self.waiting_periods = 0;
        }
    }

    /// Do pages compress too little?
    fn is_stiff(&mut self, figures: &Figures) -> bool {
        let tried = figures.since(&self.judged);
        if tried.tried < TRIED_MIN {
            return false;
        }
        self.judged = *figures;
        let stiff = tried.tried_bytes * 100 > tried.tried * 4096 * PACKED_PERCENT_MAX;
        if !stiff {
            self.rest_ns = REST_NS_MIN;
        }
        stiff
    }

    fn adjust(&mut self, elapsed: Nanos, seen: &Figures, held: u32) {
        let step = self.step();
        let earned = seen.old_loads * 4 * (SINGLE_NS - LOAD_NS);
        let lost = seen.young_loads * LOAD_NS;
        let says_something = seen.loads >= LOADS_MIN;
        let pays = !says_something || earned >= lost;
        let waits = seen.single_reads * SINGLE_NS >= elapsed / GROW_SHARE;
        if is_by_windows(seen) {
            self.frames -= step.min(self.frames);
        } else if says_something && earned + earned / 2 < lost {
            self.frames = (self.frames - (step / 4).min(self.frames)).max(step);
        } else if pays && waits && held + step >= self.frames {
            self.frames = (self.frames + step).min(self.frames_max);
        }
    }

    fn step(&self) -> u32 {
        (self.frames_max / STEPS).max(STEP_MIN).min(self.frames_max)
    }
}

/// Does most of what is read come by windows?
fn is_by_windows(seen: &Figures) -> bool {
    let windows = seen.window_pages * WINDOW_PAGE_NS;
    windows > seen.single_reads * SINGLE_NS + seen.loads * (SINGLE_NS - LOAD_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `periods` periods pass, in each of which `add` adds to the figures; the pool has all that it may.
    fn pass(
        size: &mut PoolSize,
        now: &mut Nanos,
        figures: &mut Figures,
        periods: u32,
        add: impl Fn(&mut Figures),
    ) {
        for _ in 0..periods {
            *now += PERIOD_NS;
            add(figures);
            let held = size.frames;
            size.decide(*now, figures, held);
        }
    }

    fn random(figures: &mut Figures) {
        figures.single_reads += 150;
    }

    fn packs(figures: &mut Figures) {
        figures.single_reads += 150;
        figures.tried += 300;
        figures.tried_bytes += 300 * 1300;
    }

    #[test]
    fn it_grows_to_the_limit_while_single_pages_are_waited_for() {
        let (mut size, mut now, mut figures) = (PoolSize::new(4096), 0, Figures::default());
        pass(&mut size, &mut now, &mut figures, 2, packs);
        assert_eq!(size.frames, 0, "it takes a while");
        pass(&mut size, &mut now, &mut figures, 1, packs);
        assert_eq!(size.frames, 256);
        pass(&mut size, &mut now, &mut figures, 100, packs);
        assert_eq!(size.frames, 4096);
    }

    #[test]
    fn nothing_is_given_to_what_is_read_by_windows_or_not_at_all() {
        let (mut size, mut now, mut figures) = (PoolSize::new(4096), 0, Figures::default());
        let windows = |figures: &mut Figures| {
            figures.window_pages += 5000;
            figures.single_reads += 60;
        };
        pass(&mut size, &mut now, &mut figures, 100, windows);
        pass(&mut size, &mut now, &mut figures, 100, |_| {});
        assert_eq!(size.frames, 0);
        pass(&mut size, &mut now, &mut figures, 100, packs);
        assert_eq!(size.frames, 4096);
        pass(&mut size, &mut now, &mut figures, 100, |_| {});
        assert_eq!(size.frames, 4096, "a quiet program may go on as before");
        pass(&mut size, &mut now, &mut figures, 16, windows);
        assert_eq!(size.frames, 0);
    }

    #[test]
    fn what_does_not_compress_is_left_alone_for_longer_and_longer() {
        let (mut size, mut now, mut figures) = (PoolSize::new(4096), 0, Figures::default());
        let stiff = |figures: &mut Figures| {
            random(figures);
            figures.tried += 300;
            figures.tried_bytes += 300 * 4096;
        };
        let mut on = 0;
        for _ in 0..60 * 1_000_000_000 / PERIOD_NS {
            pass(&mut size, &mut now, &mut figures, 1, stiff);
            on += u32::from(size.frames > 0);
        }
        assert!((3..=10).contains(&on), "{on} periods of a minute");
    }

    #[test]
    fn a_pool_whose_old_part_is_idle_shrinks() {
        let (mut size, mut now, mut figures) = (PoolSize::new(4096), 0, Figures::default());
        pass(&mut size, &mut now, &mut figures, 30, packs);
        assert_eq!(size.frames, 4096);
        let hot = |figures: &mut Figures| {
            figures.loads += 1000;
            figures.young_loads += 900;
            figures.old_loads += 5;
        };
        pass(&mut size, &mut now, &mut figures, 200, hot);
        assert_eq!(size.frames, 256);
    }

    #[test]
    fn a_limit_of_nothing_is_kept() {
        let (mut size, mut now, mut figures) = (PoolSize::new(0), 0, Figures::default());
        pass(&mut size, &mut now, &mut figures, 100, random);
        assert_eq!(size.frames, 0);
    }
}
