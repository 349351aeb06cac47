//! One reader's stream along a track: how far it was read ahead, and how large the next window is.
//!
//! A window is marked at its first place, so that the next one is on its way while it is used. It
//! grows while the marks are met; it is as small as the reader's rate allows once that is known; it
//! is halved when pages went before they were used.

use super::super::{Cause, Reads};
use super::Config;
use super::track::{Reach, Span, Track};
use crate::types::{CHUNK_PAGES, Nanos};

/// Pages in the smallest window.
const PAGES_MIN: u64 = 4;
/// Windows below this grow fourfold, others twofold.
const FAST_BELOW: u64 = 64;
/// A reader may skip so many places beyond what was read ahead and still be the same.
const GAP: u64 = 2;
/// So many places right behind a reader are left alone: others may follow close by.
const FOLLOWERS: u64 = 64;
/// Worthless behind a reader are so many of its windows.
const BEHIND: u64 = 4;
/// A window lasts for so many times of what the device needs for it.
const LEAD: u64 = 4;

/// The stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Where it goes.
    pub track: Track,
    /// When it was used last, in pages that were read of the file.
    pub stamp: u64,
    /// After so many misses it began.
    pub began: u64,
    /// It was used after it had begun.
    pub is_live: bool,
    /// Places from here to `frontier` are the last two windows.
    tail: u64,
    /// The first place that was not read ahead.
    frontier: u64,
    /// The place that bears the mark.
    marker: u64,
    /// Pages in the last window.
    window: u64,
    /// Pages that did not thrash.
    cap: u64,
    /// When the last mark was met; 0: none, or no clock.
    met: Nanos,
    /// How many marks in a row.
    marks: u32,
}

impl Stream {
    /// A reader was recognised at `span`: reads its first window, `window` pages or more.
    pub fn begin(
        track: Track,
        span: Span,
        window: u64,
        most: u64,
        cause: Cause,
        reads: &mut Reads,
    ) -> Stream {
        let mut stream = Stream {
            track,
            stamp: 0,
            began: 0,
            is_live: false,
            tail: span.at,
            frontier: span.at,
            marker: span.at,
            window: window.clamp(PAGES_MIN, most.max(PAGES_MIN)),
            cap: u64::MAX,
            met: 0,
            marks: 0,
        };
        stream.restart(span, cause, reads);
        stream
    }

    /// Does a reader at `span` go on with this stream? One that was not used yet has to be met where it
    /// goes on: what happens to lie within it may be anybody's.
    #[must_use]
    pub fn follows(&self, span: Span) -> bool {
        let is_next = span.at == self.marker || self.frontier <= span.at;
        if !self.is_live && !is_next {
            return false;
        }
        self.tail <= span.at && span.at <= self.frontier + self.gap()
    }

    /// Is the page of this place one that was read ahead for this stream?
    #[must_use]
    pub fn has_read(&self, span: Span) -> bool {
        self.tail <= span.at && span.at < self.frontier
    }

    /// The pages outside of which it neither has read nor is met.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.track.reach(self.tail, self.frontier.saturating_add(self.gap()))
    }

    /// Pages in its last window.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Does its reader leave pages out?
    #[must_use]
    pub fn is_strided(&self) -> bool {
        matches!(self.track, Track::Strided { .. })
    }

    /// Has it come past this place, or read it ahead?
    #[must_use]
    pub fn has_come_past(&self, span: Span) -> bool {
        span.at < self.frontier
    }

    /// How far a forward reader that was last met near page `page` was read ahead from there.
    #[must_use]
    pub fn read_from(&self, page: u64) -> u64 {
        let is_near = self.track == Track::Forward && self.tail.abs_diff(page) < self.window;
        if is_near { self.frontier.saturating_sub(page) } else { 0 }
    }

    fn gap(&self) -> u64 {
        if self.is_strided() { 0 } else { GAP }
    }

    /// Places in a window of so many pages, and not fewer than are wanted.
    fn places(&self, wanted: u64) -> u64 {
        (self.window / self.track.place_pages()).max(wanted).max(1).min(self.track.span_max())
    }

    /// Places in a window from `at` on. A large one ends with a whole chunk, so that the next ones are of
    /// whole chunks: such a read, and all that becomes of it, is one huge page's.
    fn places_from(&self, at: u64, wanted: u64) -> u64 {
        let count = self.places(wanted);
        if count < CHUNK_PAGES {
            return count;
        }
        (self.track.whole_until(at + count) - at).max(wanted)
    }

    /// Reads a window from `span` on, for a reader that waits there.
    fn restart(&mut self, span: Span, cause: Cause, reads: &mut Reads) {
        let count = self.places_from(span.at, span.count);
        // What lies ahead of the request is asked for; where nothing does, the half of it.
        self.marker = if count > span.count { span.at + span.count } else { span.at + count / 2 };
        (self.tail, self.frontier) = (span.at, span.at + count);
        self.track.push(Span { at: span.at, count }, self.marker, cause, reads);
        self.track.pass(span.at, behind(count), reads);
    }

    /// A wanted place is missing.
    pub fn missed(&mut self, span: Span, most: u64, reads: &mut Reads) {
        if span.at < self.frontier {
            self.thrashed();
            self.window = self.window.min(self.cap);
        } else {
            self.window = self.grown(most);
        }
        self.marks = 0;
        self.met = 0;
        self.restart(span, Cause::Sequential, reads);
    }

    /// The mark at place `at` was met at `now`. One that a window before the last one left has the
    /// last one ahead of it: nothing more is read, and only what the reader has passed is told.
    pub fn met_mark(&mut self, at: u64, now: Nanos, config: &Config, most: u64, reads: &mut Reads) {
        if at < self.marker {
            return self.track.pass(at, behind(self.places(1)), reads);
        }
        self.marks += 1;
        self.cap = self.cap.saturating_add(self.cap / 8);
        let grown = self.grown(most);
        let needed = self.needed(now, config);
        self.window = needed.map_or(grown, |needed| grown.min(needed.max(PAGES_MIN)));
        self.met = now;
        let span = Span { at: self.frontier, count: self.places_from(self.frontier, 1) };
        self.track.pass(at, behind(span.count), reads);
        (self.tail, self.marker, self.frontier) = (self.marker, span.at, span.at + span.count);
        self.track.push(span, span.at, Cause::Next, reads);
    }

    /// There was no room for the last window from place `at` on: the next one goes on there.
    pub fn cut_short(&mut self, at: u64) {
        assert!(self.tail <= at && at < self.frontier, "what is cut was ordered");
        self.frontier = at;
        self.marker = self.marker.min(at);
    }

    /// Pages went before they were used: half of the window is the most that pays.
    pub fn thrashed(&mut self) {
        self.cap = self.cap.min((self.window / 2).max(PAGES_MIN));
    }

    fn grown(&self, most: u64) -> u64 {
        let factor = if self.window < FAST_BELOW { 4 } else { 2 };
        self.window.saturating_mul(factor).min(self.cap).min(most.max(PAGES_MIN))
    }

    /// Pages that keep the device ahead of a reader of this rate, and are worth a request.
    fn needed(&self, now: Nanos, config: &Config) -> Option<u64> {
        if self.met == 0 || now <= self.met || self.marks < 2 {
            return None;
        }
        let used = self.frontier.saturating_sub(self.marker).saturating_mul(self.track.place_pages());
        let service_ns = config.latency_ns + used.saturating_mul(config.page_ns);
        let in_service = u128::from(used) * u128::from(service_ns) / u128::from(now - self.met);
        let worth = 2 * config.latency_ns / config.page_ns.max(1);
        Some(u64::try_from(in_service).unwrap_or(u64::MAX).saturating_mul(LEAD).max(worth))
    }
}

/// The places behind a reader that a window of `count` makes worthless, but for the nearest. Two such
/// windows lie ahead of it then, and those of the time when they grew come to one more: where a loop
/// meets what is missing, so much has to go, and all of it has been used on this lap. What came in whole
/// chunks goes in whole chunks.
fn behind(count: u64) -> Span {
    let near = if count < CHUNK_PAGES { count.min(FOLLOWERS) } else { CHUNK_PAGES };
    Span { at: near, count: BEHIND * count }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads() -> Reads {
        Reads::new(1 << 30)
    }

    /// A stream that began at place 1000 and has met its first mark.
    fn stream() -> (Stream, Config) {
        let config = Config::default();
        let span = Span { at: 1000, count: 1 };
        let mut stream =
            Stream::begin(Track::Forward, span, 64, config.window_max, Cause::Sequential, &mut reads());
        assert_eq!((stream.marker, stream.frontier), (1001, 1064));
        stream.met_mark(1001, 0, &config, config.window_max, &mut reads());
        assert_eq!(stream.marker, 1064);
        (stream, config)
    }

    /// *The story:* one pass over 256 MiB in 128 read 311. After a miss within what was read ahead two
    /// marks were ahead of the reader; at the first of them all up to the second was taken for passed,
    /// and left at once.
    #[test]
    fn a_mark_that_is_not_the_last_passes_only_what_is_behind_it() {
        let (mut stream, config) = stream();
        stream.missed(Span { at: 1010, count: 1 }, config.window_max, &mut reads());
        stream.met_mark(1011, 0, &config, config.window_max, &mut reads());
        assert!(stream.marker > 1064, "{stream:?}");
        let (before, mut answer) = (stream, reads());
        stream.met_mark(1064, 0, &config, config.window_max, &mut answer);
        assert!(answer.extents().is_empty() && stream == before);
        assert!(answer.passed().expect("told").nearest < 1064);
    }

    #[test]
    fn what_had_no_room_is_read_by_the_next_window() {
        let (mut stream, config) = stream();
        stream.cut_short(1100);
        let mut answer = reads();
        stream.met_mark(1064, 0, &config, config.window_max, &mut answer);
        assert_eq!((answer.extents()[0].start, answer.extents()[0].marker), (1100, Some(1100)));
        let missed = |stream: &Stream, at| stream.follows(Span { at, count: 1 });
        stream.cut_short(1100);
        assert!(missed(&stream, 1100), "nothing of it: a miss there goes on with the stream");
    }
}
