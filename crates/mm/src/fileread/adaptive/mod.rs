//! The default: up to 256 streams a file, each with its own way and its own distance.
//!
//! What differs from the kernel's rules: a second read that continues any of the last 256
//! begins a stream at once, so interleaved readers need no luck; backward and strided readers are
//! streams, too; windows grow to what the device and the budget allow, no further than a reader's
//! rate needs, and shrink where pages go unused; and whoever reads at random gets what it asked
//! for, in a mapping, too, but where there is room that nobody needs. Unfit for: readers with no
//! pattern over pages that will be read soon (hot areas), where the kernel's marks left by chance
//! pull in more.

mod around;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod track;

use alloc::vec::Vec;

use super::{Advice, Ask, Cause, Extent, Fault, FileRead, MapAdvice, PageCache, Reads, window};
use crate::types::{CHUNK_PAGES, Nanos};
use stream::Stream;
use streams::Streams;
use track::{Span, Track};

/// Streams of a file that are known at a time.
pub const STREAMS: usize = 256;
/// Reads that began no stream and are remembered.
const RECENT: usize = 256;
/// Of these so many may be a strided reader's, and so many are looked at where longer ago is in vain.
const NEAR: usize = 16;
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
    streams: Streams,
    recent: Vec<Recent>,
    /// Where the next one is remembered: the one before that is the latest.
    recent_next: usize,
    /// Pages that were read, for streams or singly.
    taken: u64,
    /// Reads of what was missing.
    misses: u64,
    /// Reads in a row that no stream explains.
    alone: u64,
    /// Streams that continue a read of long ago, since one of them was used again.
    vain: u32,
    random: bool,
    sequential: bool,
}

impl File {
    fn remember(&mut self, ask: &Ask) {
        let read = Recent { page: ask.page, pages: ask.pages };
        match self.recent.get_mut(self.recent_next) {
            Some(oldest) => *oldest = read,
            None => self.recent.push(read),
        }
        self.recent_next = (self.recent_next + 1) % RECENT;
    }

    /// The remembered reads, latest first.
    fn latest_first(&self) -> impl Iterator<Item = Recent> {
        let (newer, older) = self.recent.split_at(self.recent_next);
        newer.iter().rev().chain(older.iter().rev()).copied()
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
        self.streams.all().any(|stream| stream.read_from(last.page + last.pages) > most)
    }

    /// Did a strided reader have this page? Many readers at equal distance look like one, for as long as
    /// each of them reads its first page.
    fn was_strided_over(&self, page: u64) -> bool {
        let has_come_past =
            |stream: &Stream| stream.track.locate(page, 1).is_some_and(|span| stream.has_come_past(span));
        self.streams.strided().any(has_come_past)
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

    /// Keeps a new stream. True: it took the place of one that was alive.
    fn keep(&mut self, mut stream: Stream) -> bool {
        self.taken += stream.window();
        (stream.stamp, stream.began) = (self.taken, self.misses);
        self.streams.keep(stream).is_some_and(|replaced| replaced.is_live)
    }

    fn end_stopped(&mut self, frames: u64) -> u64 {
        self.streams.end_stopped(self.taken, self.misses, frames)
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
        let part = whole(frames / LARGE_PART).max(LARGE.min(frames / WINDOW_PART));
        self.config.window_max.min(part).min(together)
    }

    /// Of what was answered last there was no room for a page and those that were to follow it.
    pub fn cut_short(&self, file: &mut File, page: u64) {
        let ordered = file.streams.that_read(page);
        if let Some((place, span)) = ordered.max_by_key(|&(place, _)| file.streams.at(place).stamp) {
            file.streams.change(place, |stream| stream.cut_short(span.at));
        }
    }

    fn begin(&mut self, file: &mut File, way: (Track, u64), ask: &Ask, cause: Cause, reads: &mut Reads) {
        let (track, reach) = way;
        let span = track.locate(ask.page, ask.pages).expect("a reader is on its own way");
        let window = window::init(reach, self.most());
        let stream = Stream::begin(track, span, window, self.most(), cause, reads);
        self.live -= u64::from(file.keep(stream));
    }

    /// The place of the stream with which a reader goes on, and where it is there: it lives.
    fn going_on(&mut self, file: &mut File, page: u64, pages: u64) -> Option<(usize, Span)> {
        let (place, span) = file.streams.followed_by(page, pages)?;
        file.taken += file.streams.at(place).window();
        let taken = file.taken;
        let was_live = file.streams.change(place, |stream| {
            stream.stamp = taken;
            core::mem::replace(&mut stream.is_live, true)
        });
        if !was_live {
            self.live += 1;
            (file.vain, file.alone) = (0, 0);
        }
        if self.live > 1 {
            self.live -= file.end_stopped(self.config.frames);
        }
        Some((place, span))
    }
}

impl FileRead for Adaptive {
    type File = File;

    fn open(&mut self) -> File {
        File {
            streams: Streams::default(),
            recent: Vec::new(),
            recent_next: 0,
            taken: 0,
            misses: 0,
            alone: 0,
            vain: 0,
            random: false,
            sequential: false,
        }
    }

    fn close(&mut self, file: &mut File) {
        let live = file.streams.end_all();
        self.live = self.live.checked_sub(live).expect("each stream is counted once");
    }

    fn missing(&mut self, file: &mut File, ask: &Ask, _: &dyn PageCache, reads: &mut Reads) {
        if file.random {
            return exactly(ask, reads);
        }
        if let Some((place, span)) = self.going_on(file, ask.page, ask.pages) {
            let most = self.most();
            return file.streams.change(place, |stream| stream.missed(span, most, reads));
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
                file.alone += 1;
                around::read(&self.config, file.alone, ask, reads);
                file.taken += ask.pages;
                file.remember(ask);
            }
        }
    }

    fn marked(&mut self, file: &mut File, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        if let Some((place, span)) = self.going_on(file, ask.page, 1) {
            let (config, most) = (self.config, self.most());
            let goes_on = |stream: &mut Stream| stream.met_mark(span.at, ask.now, &config, most, reads);
            return file.streams.change(place, goes_on);
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
        file.streams.thrashed(page);
    }
}

/// So many pages, or about as many in whole chunks.
fn whole(pages: u64) -> u64 {
    let chunks = (pages + CHUNK_PAGES / 4) / CHUNK_PAGES;
    if chunks == 0 { pages } else { chunks * CHUNK_PAGES }
}

fn exactly(ask: &Ask, reads: &mut Reads) {
    let Ask { page, pages, .. } = *ask;
    reads.push(Extent { start: page, pages, marker: None, cause: Cause::Random });
}
