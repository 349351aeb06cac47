//! The streams of one file, and which of them a page belongs to.
//!
//! Every miss asks that, readers at random most of all, to whom no stream belongs. So beside the
//! streams lies what they reach, 16 bytes for each: a stream is looked at where the page is in that.
//! Places for streams are made as they are needed.
//!
//! *The story:* a miss of a random reader went through 256 places of 120 bytes up to three times, and
//! 33 KiB were taken for a file of which one page was read.

use alloc::vec::Vec;

use super::STREAMS;
use super::stream::Stream;
use super::track::{Reach, Span};

/// A stream that was not used again after so many misses is none.
const UNUSED_MAX: u64 = 512;

/// The streams.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    places: Vec<Option<Stream>>,
    /// Of each place: a page outside is not its stream's. Empty where there is no stream.
    reaches: Vec<Reach>,
    strided: usize,
    /// None has stopped before more than so much was read, or so many misses were met.
    going_until: (u64, u64),
}

impl Streams {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Stream> {
        self.places.iter().flatten()
    }

    /// Those whose reader leaves pages out.
    pub fn strided(&self) -> impl Iterator<Item = &Stream> {
        let looked_at = if self.strided == 0 { 0 } else { self.places.len() };
        self.places[..looked_at].iter().flatten().filter(|stream| stream.is_strided())
    }

    /// The places of those that may have to do with pages `page .. page + pages`.
    fn near(&self, page: u64, pages: u64) -> impl Iterator<Item = usize> + use<'_> {
        let last = page.saturating_add(pages - 1);
        let reaches = self.reaches.iter().enumerate();
        reaches.filter(move |(_, reach)| reach.first <= last && page <= reach.last).map(|(place, _)| place)
    }

    /// The place of the stream with which a reader of these pages goes on, and where it is there.
    #[must_use]
    pub fn followed_by(&self, page: u64, pages: u64) -> Option<(usize, Span)> {
        self.near(page, pages).find_map(|place| {
            let stream = self.at(place);
            let span = stream.track.locate(page, pages)?;
            stream.follows(span).then_some((place, span))
        })
    }

    /// The places of those that read this page ahead, and where it is there.
    pub fn that_read(&self, page: u64) -> impl Iterator<Item = (usize, Span)> + use<'_> {
        self.near(page, 1).filter_map(move |place| {
            let stream = self.at(place);
            let span = stream.track.locate(page, 1)?;
            stream.has_read(span).then_some((place, span))
        })
    }

    /// The stream at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> &Stream {
        self.places[place].as_ref().expect("a stream is there")
    }

    /// Changes the stream at a place.
    pub fn change<T>(&mut self, place: usize, change: impl FnOnce(&mut Stream) -> T) -> T {
        let stream = self.places[place].as_mut().expect("a stream is there");
        let outcome = change(stream);
        self.reaches[place] = stream.reach();
        outcome
    }

    /// Keeps a new stream; gives the one whose place it took: one that was never used, or the one not
    /// used for longest.
    pub fn keep(&mut self, stream: Stream) -> Option<Stream> {
        self.going_until.1 = self.going_until.1.min(stream.began.saturating_add(UNUSED_MAX));
        let place = match self.reaches.iter().position(|reach| *reach == Reach::NOWHERE) {
            Some(place) => place,
            None if self.places.len() < STREAMS => {
                self.places.push(None);
                self.reaches.push(Reach::NOWHERE);
                self.places.len() - 1
            }
            None => {
                let worth = |&place: &usize| (self.at(place).is_live, self.at(place).stamp);
                (0..STREAMS).min_by_key(worth).expect("there are places")
            }
        };
        self.put(place, Some(stream))
    }

    fn put(&mut self, place: usize, stream: Option<Stream>) -> Option<Stream> {
        self.reaches[place] = stream.as_ref().map_or(Reach::NOWHERE, Stream::reach);
        self.strided += usize::from(stream.as_ref().is_some_and(Stream::is_strided));
        let before = core::mem::replace(&mut self.places[place], stream);
        self.strided -= usize::from(before.as_ref().is_some_and(Stream::is_strided));
        before
    }

    /// Ends the streams that were not used while as much as there are `frames` was read for others of
    /// the `taken` pages: what they had ahead is gone; and those never used again after all these
    /// `misses`. Tells how many of them were alive.
    pub fn end_stopped(&mut self, taken: u64, misses: u64, frames: u64) -> u64 {
        if taken <= self.going_until.0 && misses <= self.going_until.1 {
            return 0;
        }
        let mut ended = 0;
        let mut until = None;
        for place in 0..self.places.len() {
            let Some(stream) = &self.places[place] else { continue };
            let used_until = stream.stamp.saturating_add(frames);
            let begun_until = if stream.is_live { u64::MAX } else { stream.began.saturating_add(UNUSED_MAX) };
            if used_until < taken || begun_until < misses {
                ended += u64::from(stream.is_live);
                self.put(place, None);
            } else {
                let (used, begun) = until.unwrap_or((u64::MAX, u64::MAX));
                until = Some((used.min(used_until), begun.min(begun_until)));
            }
        }
        // Those that come later stop later; where there is none the next one is looked at in time.
        self.going_until = until.unwrap_or((taken, misses));
        ended
    }

    /// A page that was read ahead went before it was used.
    pub fn thrashed(&mut self, page: u64) {
        for place in 0..self.places.len() {
            let reach = self.reaches[place];
            if reach.first <= page && page <= reach.last {
                let stream = self.places[place].as_mut().expect("what reaches somewhere is there");
                if stream.track.locate(page, 1).is_some_and(|span| stream.has_read(span)) {
                    stream.thrashed();
                }
            }
        }
    }

    /// There are none any more; gives how many were alive.
    pub fn end_all(&mut self) -> u64 {
        let live = self.all().filter(|stream| stream.is_live).count() as u64;
        *self = Streams::default();
        live
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::track::Track;
    use super::*;
    use crate::fileread::{Cause, Reads};

    fn stream(track: Track, page: u64, stamp: u64) -> Stream {
        let span = track.locate(page, 1).expect("on the track");
        let most = Config::default().window_max;
        let mut stream = Stream::begin(track, span, 16, most, Cause::Sequential, &mut Reads::new(1 << 40));
        (stream.stamp, stream.began) = (stamp, stamp);
        stream
    }

    /// What lies beside the streams leaves none out: it is what looking at all of them finds.
    #[test]
    fn a_page_finds_the_streams_that_have_it_and_no_others() {
        let mut streams = Streams::default();
        let tracks = |n: u64| {
            let origin = 1000 * n + 500;
            let ascending = Track::Strided { origin, step: 40, piece: 3 };
            let descending = Track::Strided { origin, step: -40, piece: 3 };
            [Track::Forward, Track::Backward, ascending, descending][n as usize % 4]
        };
        for n in 0..40 {
            assert!(streams.keep(stream(tracks(n), 1000 * n + 500, n)).is_none());
        }
        for place in (0..40).step_by(3) {
            let next = streams.at(place).reach().last;
            let mut reads = Reads::new(1 << 40);
            let (config, most) = (Config::default(), 64);
            let span = streams.at(place).track.locate(next, 1);
            if let Some(span) = span {
                streams.change(place, |stream| stream.met_mark(span.at, 0, &config, most, &mut reads));
            }
        }
        let by_all = |page: u64, pages: u64| {
            let found = streams.all().filter_map(|stream| Some((stream, stream.track.locate(page, pages)?)));
            let mut following = found.filter(|(stream, span)| stream.follows(*span));
            following.next().map(|(stream, span)| (*stream, span))
        };
        let mut found = 0;
        for page in 0..41_000 {
            for pages in [1, 3] {
                let quick = streams.followed_by(page, pages).map(|(place, span)| (*streams.at(place), span));
                assert_eq!(quick, by_all(page, pages), "page {page}");
                found += u32::from(quick.is_some());
            }
            let has =
                |stream: &&Stream| stream.track.locate(page, 1).is_some_and(|span| stream.has_read(span));
            assert_eq!(streams.that_read(page).count(), streams.all().filter(has).count(), "page {page}");
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn places_are_made_as_they_are_needed_and_used_again() {
        let mut streams = Streams::default();
        for n in 0..STREAMS as u64 {
            assert!(streams.keep(stream(Track::Forward, 1000 * n, n)).is_none());
            assert_eq!(streams.places.len(), n as usize + 1);
        }
        streams.change(0, |stream| stream.is_live = true);
        let replaced = streams.keep(stream(Track::Forward, 900_000, 300)).expect("there is no other place");
        assert_eq!(replaced.stamp, 1, "the oldest that was never used");
        assert_eq!(streams.end_stopped(300, 300, 1000), 0);
        assert_eq!(streams.all().count(), STREAMS);
        assert_eq!(
            streams.end_stopped(1001, 100 + UNUSED_MAX, 1000),
            1,
            "the one in use read nothing lately"
        );
        assert_eq!(streams.all().map(|stream| stream.stamp).min(), Some(100));
        assert!(streams.keep(stream(Track::Forward, 1, 999)).is_none());
        assert_eq!((streams.places.len(), streams.end_all()), (STREAMS, 0));
    }
}
