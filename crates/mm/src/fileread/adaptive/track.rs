//! A track: the way of a reader through a file, laid out as a line.
//!
//! Forward, backward and strided readers differ only in what a position on the line is: a page, a
//! page counted from the far end, a piece. All else ([`super::stream`]) is the same for them.

use super::super::{Cause, EXTENTS_MAX, Extent, Passed, Reads};
use crate::types::CHUNK_PAGES;

/// Pages are counted from here where the reader descends; files end long before.
const MIRROR: u64 = 1 << 52;

/// How a reader goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Track {
    /// To higher pages.
    Forward,
    /// To lower pages.
    Backward,
    /// By pieces of equal size at a fixed distance, more than two pieces from each other.
    Strided {
        /// First page of the piece at position 0.
        origin: u64,
        /// From one piece's first page to the next one's.
        step: i64,
        /// Pages in a piece.
        piece: u64,
    },
}

/// Places on a track: `at .. at + count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first.
    pub at: u64,
    /// How many.
    pub count: u64,
}

/// The pages between which some places lie, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Reach {
    /// No page lies there.
    pub const NOWHERE: Reach = Reach { first: u64::MAX, last: 0 };
}

impl Track {
    /// Where the places `from ..= to` lie.
    #[must_use]
    pub fn reach(self, from: u64, to: u64) -> Reach {
        match self {
            Track::Forward => Reach { first: from, last: to },
            Track::Backward => Reach { first: MIRROR.saturating_sub(to), last: MIRROR.saturating_sub(from) },
            Track::Strided { origin, step, piece } => {
                let start = |at: u64| i128::from(origin) + i128::from(step) * i128::from(at);
                let (one, other) = (start(from), start(to));
                let page = |page: i128| u64::try_from(page.max(0)).unwrap_or(u64::MAX);
                Reach { first: page(one.min(other)), last: page(one.max(other) + i128::from(piece) - 1) }
            }
        }
    }

    /// Where pages `page .. page + pages` lie on the track; `None` where they are off it.
    #[must_use]
    pub fn locate(self, page: u64, pages: u64) -> Option<Span> {
        match self {
            Track::Forward => Some(Span { at: page, count: pages }),
            Track::Backward => {
                (page + pages <= MIRROR).then(|| Span { at: MIRROR - (page + pages - 1), count: pages })
            }
            Track::Strided { origin, step, piece } => {
                let (way, distance) = (i128::from(page) - i128::from(origin), i128::from(step));
                let at = if distance > 0 { way.div_euclid(distance) } else { -way.div_euclid(-distance) };
                let within = way - at * distance;
                let is_on = at >= 0 && within >= 0 && within + i128::from(pages) <= i128::from(piece);
                is_on.then_some(Span { at: at as u64, count: 1 })
            }
        }
    }

    /// Pages in one place of the track.
    #[must_use]
    pub fn place_pages(self) -> u64 {
        if let Track::Strided { piece, .. } = self { piece } else { 1 }
    }

    /// The most places that one answer can hold.
    #[must_use]
    pub fn span_max(self) -> u64 {
        if matches!(self, Track::Strided { .. }) { EXTENTS_MAX as u64 / 2 } else { u64::MAX }
    }

    /// Tells that a reader at place `at` has passed the places of `behind`, counted from there back.
    pub fn pass(self, at: u64, behind: Span, reads: &mut Reads) {
        // Behind the start of a file lies its end: whoever is told has to go round.
        match self {
            Track::Forward => {
                let nearest = at as i64 - (behind.at + 1) as i64;
                reads.pass(Passed { nearest, pages: behind.count, above: false });
            }
            Track::Backward => {
                let nearest = (MIRROR + behind.at + 1) as i64 - at as i64;
                reads.pass(Passed { nearest, pages: behind.count, above: true });
            }
            // What lies between the pieces may be another reader's.
            Track::Strided { .. } => {}
        }
    }

    /// The end of places that end with a whole chunk, at or before `end`.
    #[must_use]
    pub fn whole_until(self, end: u64) -> u64 {
        match self {
            Track::Forward => end - end % CHUNK_PAGES,
            // The first page of a chunk is its last place.
            Track::Backward => end - (end - 1) % CHUNK_PAGES,
            Track::Strided { .. } => end,
        }
    }

    /// Adds a span to an answer, with the mark at the first page used of place `marker`.
    pub fn push(self, span: Span, marker: u64, cause: Cause, reads: &mut Reads) {
        match self {
            Track::Forward => {
                let marker = Some(marker);
                reads.push(Extent { start: span.at, pages: span.count, marker, cause });
            }
            Track::Backward => {
                // A track ends at the file's first page.
                let count = span.count.min((MIRROR + 1).saturating_sub(span.at));
                if count > 0 {
                    let start = MIRROR - (span.at + count - 1);
                    let marker = MIRROR.checked_sub(marker);
                    reads.push(Extent { start, pages: count, marker, cause: Cause::Backward });
                }
            }
            Track::Strided { origin, step, piece } => {
                for at in span.at..span.at + span.count {
                    let start = i128::from(origin) + i128::from(step) * i128::from(at);
                    let Ok(start) = u64::try_from(start) else { return };
                    let marker = (at == marker).then_some(start);
                    reads.push(Extent { start, pages: piece, marker, cause: Cause::Strided });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(track: Track, at: u64, count: u64, marker: u64) -> Vec<(u64, u64, Option<u64>)> {
        let mut reads = Reads::new(1 << 30);
        track.push(Span { at, count }, marker, Cause::Next, &mut reads);
        reads.extents().iter().map(|extent| (extent.start, extent.pages, extent.marker)).collect()
    }

    #[test]
    fn what_is_located_is_what_is_read() {
        let descending = Track::Strided { origin: 1000, step: -50, piece: 4 };
        let ascending = Track::Strided { origin: 1000, step: 50, piece: 4 };
        for track in [Track::Forward, Track::Backward, ascending, descending] {
            let span = track.locate(900, 4).or_else(|| track.locate(1100, 4)).expect("on the track");
            let read = pushed(track, span.at, span.count, span.at);
            let (start, pages, marker) = read[0];
            assert!(pages == 4 && (start == 900 || start == 1100), "{track:?}: {read:?}");
            assert!(marker.is_some(), "{track:?}");
        }
        assert_eq!(ascending.locate(999, 1), None);
        assert_eq!(ascending.locate(1053, 2), None);
        assert_eq!(descending.locate(1001, 1), Some(Span { at: 0, count: 1 }));
        assert_eq!(descending.locate(1050, 1), None);
    }

    #[test]
    fn what_is_passed_lies_behind_the_reader() {
        let passed = |track: Track, page: u64| {
            let mut reads = Reads::new(1 << 30);
            let span = track.locate(page, 1).expect("on the track");
            track.pass(span.at, Span { at: 4, count: 100 }, &mut reads);
            reads.passed().map(|passed| (passed.nearest, passed.pages, passed.above))
        };
        assert_eq!(passed(Track::Forward, 1000), Some((995, 100, false)));
        assert_eq!(passed(Track::Forward, 4), Some((-1, 100, false)), "from the file's end on");
        assert_eq!(passed(Track::Backward, 1000), Some((1005, 100, true)));
    }

    #[test]
    fn a_track_ends_with_the_file() {
        let span = Track::Backward.locate(3, 1).expect("on the track");
        assert_eq!(pushed(Track::Backward, span.at, 100, span.at), [(0, 4, Some(3))]);
        assert_eq!(pushed(Track::Backward, span.at + 4, 100, span.at), []);
        let descending = Track::Strided { origin: 60, step: -50, piece: 4 };
        assert_eq!(pushed(descending, 0, 5, 0), [(60, 4, Some(60)), (10, 4, None)]);
    }
}
