//! The default: up to 256 streams a file, each with its own way and its own distance.
//!
//! What differs from the kernel's rules: a second read that continues any of the last 256
//! begins a stream at once, so interleaved readers need no luck; backward and strided readers are
//! streams, too; windows grow to what the device and the budget allow, no further than a reader's
//! rate needs, and shrink where pages go unused; and whoever reads at random gets what it asked
//! for, in a mapping, too. Unfit for: readers with no pattern over pages that will be read soon
//! (hot areas), where the kernel's marks left by chance pull in more.

mod stream;
#[cfg(test)]
mod tests;
mod track;

use alloc::boxed::Box;
use alloc::vec;

use super::{Advice, Ask, Cause, Extent, Fault, FileRead, MapAdvice, PageCache, Reads, window};
use crate::types::Nanos;
use stream::Stream;
use track::Track;

/// Streams of a file that are known at a time.
pub const STREAMS: usize = 256;
/// Reads that began no stream and are remembered.
const RECENT: usize = 256;
/// Of these so many may be a strided reader's, and so many are looked at where longer ago is in vain.
const NEAR: usize = 16;
/// A stream that was not used again after so many misses is none.
const UNUSED_MAX: u64 = 2 * RECENT as u64;
/// Looked at whenever there were so many.
const MISSES_SEEN: u64 = 64;
/// So many streams that continue a read of longer ago, of which none was used again, are in vain: that
/// is what readers at random come to. One read in so many looks there all the same.
const VAIN_MAX: u32 = 8;
const TRIED_ONE_IN: u64 = 64;
/// The largest distance between the pieces of a strided reader, in pages.
const STEP_MAX: u64 = 4096;
/// Reads at equal distance, the present one not counted, that make a strided reader.
const STRIDED_AFTER: u32 = 3;
/// Part of the frames that all windows together may take.
const FRAMES_PART: u64 = 2;
/// And the part that one window may, at most, and where that is much: what is missing of a loop lies
/// two windows farther back after each lap, and when it has come to the start of the file what is
/// needed later on that lap makes room for it.
const WINDOW_PART: u64 = 32;
const LARGE_PART: u64 = 64;
/// As much: what keeps a device busy.
const LARGE: u64 = 256;

/// Of the device and the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Pages in the largest window.
    pub window_max: u64,
    /// Frames that files may have.
    pub frames: u64,
    /// What a small read takes.
    pub latency_ns: Nanos,
    /// What a page more takes.
    pub page_ns: Nanos,
}

impl Default for Config {
    /// An NVMe drive; 8 MiB.
    fn default() -> Self {
        Config { window_max: 2048, frames: u64::MAX, latency_ns: 70_000, page_ns: 1_800 }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: Config,
    /// Streams of all files that were used after they began: they share the frames.
    live: u64,
}

/// A read that began no stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Recent {
    page: u64,
    pages: u64,
}

/// What it keeps for an open file.
#[derive(Clone, Debug)]
pub struct File {
    streams: Box<[Option<Stream>]>,
    recent: Box<[Option<Recent>]>,
    /// Where the next one is remembered: the one before that is the latest.
    recent_next: usize,
    /// Pages that were read, for streams or singly.
    taken: u64,
    /// Reads of what was missing.
    misses: u64,
    /// Streams that continue a read of long ago, since one of them was used again.
    vain: u32,
    random: bool,
    sequential: bool,
}

impl File {
    fn remember(&mut self, ask: &Ask) {
        self.recent[self.recent_next] = Some(Recent { page: ask.page, pages: ask.pages });
        self.recent_next = (self.recent_next + 1) % RECENT;
    }

    /// The remembered reads, latest first.
    fn latest_first(&self) -> impl Iterator<Item = Recent> {
        (1..=RECENT).filter_map(|back| self.recent[(self.recent_next + RECENT - back) % RECENT])
    }

    /// The way of a reader of which this is the second read, or a later one, and how many pages its
    /// first window needs to reach the next.
    fn recognise(&mut self, ask: &Ask) -> Option<(Track, u64)> {
        let Ask { page, pages, .. } = *ask;
        if page == 0 || self.sequential {
            return Some((Track::Forward, pages));
        }
        let tries = self.vain < VAIN_MAX || self.misses.is_multiple_of(TRIED_ONE_IN);
        let among = if tries { RECENT } else { NEAR };
        let found = self.latest_first().take(among).enumerate().find_map(|(back, recent)| {
            let track = match recent {
                Recent { page: first, pages: count } if first + count == page => Track::Forward,
                Recent { page: first, .. } if page + pages == first => Track::Backward,
                _ => return None,
            };
            Some((track, back))
        });
        if let Some((track, back)) = found {
            self.vain += u32::from(back >= NEAR);
            return Some((track, pages));
        }
        if self.was_strided_over(page - 1) {
            return Some((Track::Forward, pages));
        }
        self.recognise_strided(ask)
    }

    fn recognise_strided(&self, ask: &Ask) -> Option<(Track, u64)> {
        let Ask { page, pages, .. } = *ask;
        let step = self.latest_first().take(NEAR).find_map(|recent| {
            let step = page.wrapping_sub(recent.page) as i64;
            (step.unsigned_abs() <= STEP_MAX && step != 0 && self.is_strided(ask, step)).then_some(step)
        })?;
        // Pieces that leave little between them are read with what is between them.
        let distance = step.unsigned_abs();
        if distance > 2 * pages && !self.fills(step) {
            return Some((Track::Strided { origin: page, step, piece: pages }, pages));
        }
        Some((if step > 0 { Track::Forward } else { Track::Backward }, distance + pages))
    }

    /// Does the reader use what lies between its last read and a step further on, too? In a mapping
    /// records come page by page: the first of each is a read of its own, the rest a short stream
    /// from there.
    fn fills(&self, step: i64) -> bool {
        let Some(last) = self.latest_first().next() else { return false };
        let most = step.unsigned_abs() + step.unsigned_abs() / 2;
        self.streams.iter().flatten().any(|stream| stream.read_from(last.page + last.pages) > most)
    }

    /// Did a strided reader have this page? Many readers at equal distance look like one, for as long as
    /// each of them reads its first page.
    fn was_strided_over(&self, page: u64) -> bool {
        let strided = self.streams.iter().flatten().filter(|stream| stream.is_strided());
        strided
            .into_iter()
            .any(|stream| stream.track.locate(page, 1).is_some_and(|span| stream.has_come_past(span)))
    }

    /// Were there reads of the same size one step, two steps, ... before?
    fn is_strided(&self, ask: &Ask, step: i64) -> bool {
        let mut wanted = ask.page;
        let mut seen = 0;
        for recent in self.latest_first().take(NEAR) {
            if recent.pages == ask.pages && wanted.wrapping_sub(recent.page) as i64 == step {
                wanted = recent.page;
                seen += 1;
            }
        }
        seen >= STRIDED_AFTER
    }

    /// The place of the stream with which a reader goes on, and where it is there.
    fn stream_at(&mut self, page: u64, pages: u64) -> Option<(usize, track::Span)> {
        self.streams.iter().enumerate().find_map(|(place, stream)| {
            let stream = stream.as_ref()?;
            let span = stream.track.locate(page, pages)?;
            stream.follows(span).then_some((place, span))
        })
    }

    /// Keeps a new stream in place of one that was never used, or of the one not used for longest.
    /// True: that one was alive.
    fn keep(&mut self, mut stream: Stream) -> bool {
        self.taken += stream.window();
        (stream.stamp, stream.began) = (self.taken, self.misses);
        let worth = |place: &Option<Stream>| place.map(|stream| (stream.is_live, stream.stamp));
        let place = self.streams.iter_mut().min_by_key(|place| worth(place)).expect("there are places");
        place.replace(stream).is_some_and(|stream| stream.is_live)
    }

    /// Ends the streams that were not used while as much as there are frames was read for others: what
    /// they had ahead is gone. Tells how many of them were alive.
    fn end_stopped(&mut self, frames: u64) -> u64 {
        let since = self.taken.saturating_sub(frames);
        let used_until = self.misses.saturating_sub(UNUSED_MAX);
        let stopped = |stream: &Stream| stream.stamp < since || !stream.is_live && stream.began < used_until;
        let ended = self.streams.iter_mut().filter_map(|place| place.take_if(|stream| stopped(stream)));
        ended.filter(|stream| stream.is_live).count() as u64
    }
}

impl Adaptive {
    /// No files, no streams.
    #[must_use]
    pub fn new(config: Config) -> Adaptive {
        assert!(config.window_max > 0, "a window holds a page");
        Adaptive { config, live: 0 }
    }

    /// The largest window of one among the streams that there are.
    fn most(&self) -> u64 {
        // Two windows of a stream are in RAM at a time.
        let together = self.config.frames / (FRAMES_PART * 2 * self.live.max(1));
        let frames = self.config.frames;
        let part = (frames / LARGE_PART).max(LARGE.min(frames / WINDOW_PART));
        self.config.window_max.min(part).min(together)
    }

    /// Of what was answered last there was no room for a page and those that were to follow it.
    pub fn cut_short(&self, file: &mut File, page: u64) {
        let ordered = file.streams.iter_mut().flatten().filter_map(|stream| {
            let span = stream.track.locate(page, 1)?;
            stream.has_read(span).then_some((stream, span.at))
        });
        if let Some((stream, at)) = ordered.max_by_key(|(stream, _)| stream.stamp) {
            stream.cut_short(at);
        }
    }

    fn begin(&mut self, file: &mut File, way: (Track, u64), ask: &Ask, cause: Cause, reads: &mut Reads) {
        let (track, reach) = way;
        let span = track.locate(ask.page, ask.pages).expect("a reader is on its own way");
        let window = window::init(reach, self.most());
        let stream = Stream::begin(track, span, window, self.most(), cause, reads);
        self.live -= u64::from(file.keep(stream));
    }

    /// The stream with which a reader goes on: it lives.
    fn going_on<'a>(
        &mut self,
        file: &'a mut File,
        page: u64,
        pages: u64,
    ) -> Option<(&'a mut Stream, track::Span)> {
        let (place, span) = file.stream_at(page, pages)?;
        let stream = file.streams[place].as_mut().expect("it was found");
        file.taken += stream.window();
        stream.stamp = file.taken;
        if !core::mem::replace(&mut stream.is_live, true) {
            self.live += 1;
            file.vain = 0;
        }
        if self.live > 1 {
            self.live -= file.end_stopped(self.config.frames);
        }
        let stream = file.streams[place].as_mut().expect("it was used just now");
        Some((stream, span))
    }
}

impl FileRead for Adaptive {
    type File = File;

    fn open(&mut self) -> File {
        File {
            streams: vec![None; STREAMS].into_boxed_slice(),
            recent: vec![None; RECENT].into_boxed_slice(),
            recent_next: 0,
            taken: 0,
            misses: 0,
            vain: 0,
            random: false,
            sequential: false,
        }
    }

    fn close(&mut self, file: &mut File) {
        let streams = file.streams.iter_mut().filter_map(Option::take);
        let streams = streams.filter(|stream| stream.is_live).count() as u64;
        self.live = self.live.checked_sub(streams).expect("each stream is counted once");
    }

    fn missing(&mut self, file: &mut File, ask: &Ask, _: &dyn PageCache, reads: &mut Reads) {
        if file.random {
            return exactly(ask, reads);
        }
        if let Some((stream, span)) = self.going_on(file, ask.page, ask.pages) {
            return stream.missed(span, self.most(), reads);
        }
        file.misses += 1;
        if file.misses.is_multiple_of(MISSES_SEEN) {
            self.live -= file.end_stopped(self.config.frames);
        }
        match file.recognise(ask) {
            Some((track, reach)) => {
                let cause = if ask.page == 0 { Cause::Initial } else { Cause::Sequential };
                self.begin(file, (track, reach), ask, cause, reads);
            }
            None => {
                exactly(ask, reads);
                file.taken += ask.pages;
                file.remember(ask);
            }
        }
    }

    fn marked(&mut self, file: &mut File, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        if let Some((stream, span)) = self.going_on(file, ask.page, 1) {
            return stream.met_mark(span.at, ask.now, &self.config, self.most(), reads);
        }
        // A mark whose stream was forgotten: goes on where the cached pages end.
        let most = self.most();
        if let Some(missing) = cache.next_missing(ask.page + 1, most) {
            let rest = Ask { page: missing, pages: missing - ask.page, ..*ask };
            self.begin(file, (Track::Forward, rest.pages), &rest, Cause::Marked, reads);
        }
    }

    fn finished(&mut self, _: &mut File, _: u64) {}

    fn advise(&mut self, file: &mut File, advice: Advice, _: &dyn PageCache, reads: &mut Reads) {
        match advice {
            Advice::Normal => (file.random, file.sequential) = (false, false),
            Advice::Random => (file.random, file.sequential) = (true, false),
            Advice::Sequential => (file.random, file.sequential) = (false, true),
            // All of it: what cannot be had is cut by whoever reads, and said.
            Advice::WillNeed { page, pages } => {
                reads.push(Extent { start: page, pages, marker: None, cause: Cause::Forced });
            }
        }
    }

    fn fault_missing(&mut self, file: &mut File, fault: &Fault, cache: &dyn PageCache, reads: &mut Reads) {
        match fault.advice {
            MapAdvice::Random => exactly(&fault.ask, reads),
            MapAdvice::Sequential => {
                let before = core::mem::replace(&mut file.sequential, true);
                self.missing(file, &fault.ask, cache, reads);
                file.sequential = before;
            }
            MapAdvice::Normal => self.missing(file, &fault.ask, cache, reads),
        }
    }

    fn fault_cached(&mut self, file: &mut File, fault: &Fault, cache: &dyn PageCache, reads: &mut Reads) {
        if fault.marked {
            self.marked(file, &fault.ask, cache, reads);
        }
    }

    fn unused(&mut self, file: &mut File, page: u64) {
        for stream in file.streams.iter_mut().flatten() {
            if stream.track.locate(page, 1).is_some_and(|span| stream.has_read(span)) {
                stream.thrashed();
            }
        }
    }
}

fn exactly(ask: &Ask, reads: &mut Reads) {
    let Ask { page, pages, .. } = *ask;
    reads.push(Extent { start: page, pages, marker: None, cause: Cause::Random });
}
