//! The patterns, and the stream that walks them.

use super::graph::Graph;
use super::zipf::Zipf;
use crate::rng::Rng;
use crate::workload::{Access, RegionSpec, Workload, WorkloadError};
use overspill_mm::types::RegionKind;

/// In which order the pages of a region are touched. `pages` is the region's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// In order, over and over.
    Sequential,
    /// From the last to the first, over and over.
    Descending,
    /// Each independently of the others.
    Random,
    /// By Zipf's law with exponent `tenths`/10 over the pages in a shuffled order.
    Zipf {
        /// Ten times the exponent.
        tenths: u32,
    },
    /// Every `stride`-th page, then the pages after those, until all have been touched; over and over.
    Strided {
        /// Distance in pages.
        stride: u64,
    },
    /// `streams` equal parts, each walked in order, one page of each in turn.
    Interleaved {
        /// How many.
        streams: u64,
    },
    /// A window of `size` pages in which touches are random; it moves on by one page every `dwell` touches.
    Moving {
        /// Pages in the window.
        size: u64,
        /// Touches for each page that it moves.
        dwell: u64,
    },
    /// One pattern after another, `length` touches each, over and over.
    Phases {
        /// Touches of a phase.
        length: u64,
        /// The patterns.
        patterns: Vec<Pattern>,
    },
    /// Breadth-first search and PageRank over a Kronecker graph, in turn.
    Graph,
}

/// A generator's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// First page.
    pub start: u64,
    /// Pages.
    pub pages: u64,
    /// What backs them.
    pub kind: RegionKind,
    /// The order.
    pub pattern: Pattern,
    /// Touches in all.
    pub touches: u64,
    /// Touches in a hundred that are stores.
    pub write_percent: u64,
    /// Write every page once, in order, before anything else (these touches are not among `touches`).
    pub prefill: bool,
    /// Touches of a page before the next one.
    pub repeat: u32,
    /// What is computed before each touch.
    pub think_ns: u32,
    /// The seed.
    pub seed: u64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            start: 1 << 20,
            pages: 1024,
            kind: RegionKind::Anon,
            pattern: Pattern::Sequential,
            touches: 1024,
            write_percent: 100,
            prefill: false,
            repeat: 1,
            think_ns: 100,
            seed: 1,
        }
    }
}

/// A pattern's state.
#[derive(Clone, Debug)]
enum Walk {
    Sequential,
    Descending,
    Random,
    Zipf { table: Zipf, order: Vec<u32> },
    Strided { stride: u64 },
    Interleaved { streams: u64 },
    Moving { size: u64, dwell: u64 },
    Phases { length: u64, walks: Vec<Walk> },
    Graph(Box<Graph>),
}

impl Walk {
    fn new(pattern: &Pattern, pages: u64, rng: &mut Rng) -> Walk {
        match pattern {
            Pattern::Sequential => Walk::Sequential,
            Pattern::Descending => Walk::Descending,
            Pattern::Random => Walk::Random,
            Pattern::Zipf { tenths } => {
                let mut order: Vec<u32> =
                    (0..u32::try_from(pages).expect("a Zipf table is made for every page")).collect();
                rng.shuffle(&mut order);
                Walk::Zipf { table: Zipf::new(pages, *tenths), order }
            }
            Pattern::Strided { stride } => Walk::Strided { stride: (*stride).clamp(1, pages) },
            Pattern::Interleaved { streams } => Walk::Interleaved { streams: (*streams).clamp(1, pages) },
            Pattern::Moving { size, dwell } => {
                Walk::Moving { size: (*size).clamp(1, pages), dwell: (*dwell).max(1) }
            }
            Pattern::Phases { length, patterns } => {
                assert!(!patterns.is_empty(), "a phase has a pattern");
                let walks = patterns.iter().map(|pattern| Walk::new(pattern, pages, rng)).collect();
                Walk::Phases { length: (*length).max(1), walks }
            }
            Pattern::Graph => Walk::Graph(Box::new(Graph::new(pages, rng.next_u64()))),
        }
    }

    /// The page of touch number `index`.
    #[inline]
    fn page(&mut self, index: u64, pages: u64, rng: &mut Rng) -> u64 {
        match self {
            Walk::Sequential => index % pages,
            Walk::Descending => pages - 1 - index % pages,
            Walk::Random => rng.below(pages),
            Walk::Zipf { table, order } => u64::from(order[table.draw(rng) as usize]),
            Walk::Strided { stride } => strided(index % pages, *stride, pages),
            Walk::Interleaved { streams } => interleaved(index % pages, *streams, pages),
            Walk::Moving { size, dwell } => (index / *dwell + rng.below(*size)) % pages,
            Walk::Phases { length, walks } => {
                let phase = (index / *length) as usize % walks.len();
                walks[phase].page(index, pages, rng)
            }
            Walk::Graph(graph) => graph.next_page(),
        }
    }
}

/// Touch `index` (below `pages`) of a strided sweep: lanes 0, 1, .. stride - 1; lane k has the
/// pages k, k + stride, ...
fn strided(index: u64, stride: u64, pages: u64) -> u64 {
    let (long, rest) = (pages / stride + 1, pages % stride);
    // The first `rest` lanes have one page more than the others.
    if index < rest * long {
        return index / long + index % long * stride;
    }
    let index = index - rest * long;
    let short = pages / stride;
    rest + index / short + index % short * stride
}

/// Touch `index` of a round through equal parts; what does not divide evenly comes last, in order.
fn interleaved(index: u64, streams: u64, pages: u64) -> u64 {
    let part = pages / streams;
    if index < part * streams { index % streams * part + index / streams } else { index }
}

/// A generator at work.
#[derive(Clone, Debug)]
pub struct Stream {
    spec: Spec,
    walk: Walk,
    rng: Rng,
    /// Touches done, prefill and repetitions apart.
    index: u64,
    prefilled: u64,
    repeats_left: u32,
    last: u64,
}

impl Stream {
    /// At its beginning.
    #[must_use]
    pub fn new(spec: Spec) -> Stream {
        assert!(spec.pages > 0 && spec.repeat > 0, "a region has pages, and each touch happens");
        let mut rng = Rng::new(spec.seed);
        let walk = Walk::new(&spec.pattern, spec.pages, &mut rng);
        Stream { spec, walk, rng, index: 0, prefilled: 0, repeats_left: 0, last: 0 }
    }

    fn access(&mut self, vpn: u64, write: bool) -> Access {
        Access { vpn, think_ns: u64::from(self.spec.think_ns), thread: 0, space: 0, write }
    }
}

impl Workload for Stream {
    #[inline]
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        if self.spec.prefill && self.prefilled < self.spec.pages {
            let vpn = self.spec.start + self.prefilled;
            self.prefilled += 1;
            return Ok(Some(self.access(vpn, true)));
        }
        if self.repeats_left == 0 {
            if self.index >= self.spec.touches {
                return Ok(None);
            }
            self.last = self.spec.start + self.walk.page(self.index, self.spec.pages, &mut self.rng);
            self.index += 1;
            self.repeats_left = self.spec.repeat;
        }
        self.repeats_left -= 1;
        let write = match self.spec.write_percent {
            0 => false,
            100.. => true,
            percent => self.rng.ratio(percent, 100),
        };
        Ok(Some(self.access(self.last, write)))
    }

    fn regions(&self) -> Vec<RegionSpec> {
        let end = self.spec.start + self.spec.pages;
        vec![RegionSpec { space: 0, start: self.spec.start, end, kind: self.spec.kind }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pattern: Pattern, pages: u64, touches: u64) -> Vec<u64> {
        let spec = Spec { start: 0, pages, pattern, touches, ..Spec::default() };
        let mut stream = Stream::new(spec);
        std::iter::from_fn(|| stream.next().expect("no error")).map(|access| access.vpn).collect()
    }

    #[test]
    fn orders() {
        assert_eq!(pages(Pattern::Sequential, 3, 5), [0, 1, 2, 0, 1]);
        assert_eq!(pages(Pattern::Descending, 3, 4), [2, 1, 0, 2]);
        assert_eq!(pages(Pattern::Strided { stride: 3 }, 8, 9), [0, 3, 6, 1, 4, 7, 2, 5, 0]);
        assert_eq!(pages(Pattern::Interleaved { streams: 2 }, 7, 8), [0, 3, 1, 4, 2, 5, 6, 0]);
        let moving = pages(Pattern::Moving { size: 4, dwell: 2 }, 100, 20);
        assert!(
            moving
                .iter()
                .enumerate()
                .all(|(index, &page)| { (index as u64 / 2..index as u64 / 2 + 4).contains(&page) })
        );
        let phases = Pattern::Phases { length: 2, patterns: vec![Pattern::Sequential, Pattern::Descending] };
        assert_eq!(pages(phases, 10, 6), [0, 1, 7, 6, 4, 5]);
    }

    #[test]
    fn sweeps_touch_every_page_once() {
        for count in [1, 2, 5, 16, 97] {
            for pattern in [
                Pattern::Sequential,
                Pattern::Descending,
                Pattern::Strided { stride: 4 },
                Pattern::Strided { stride: 97 },
                Pattern::Interleaved { streams: 4 },
            ] {
                let mut seen = pages(pattern.clone(), count, count);
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{pattern:?} {count}");
            }
        }
    }

    #[test]
    fn zipf_has_favourites_anywhere() {
        let touched = pages(Pattern::Zipf { tenths: 10 }, 1000, 20_000);
        let mut counts = vec![0_u32; 1000];
        touched.iter().for_each(|&page| counts[page as usize] += 1);
        let favourite = counts.iter().enumerate().max_by_key(|(_, count)| **count).expect("not empty");
        assert!(*favourite.1 > 2000 && favourite.0 > 10, "{favourite:?}");
    }

    #[test]
    fn prefill_and_repeat() {
        let spec = Spec {
            start: 10,
            pages: 2,
            touches: 2,
            prefill: true,
            repeat: 2,
            write_percent: 0,
            ..Spec::default()
        };
        let mut stream = Stream::new(spec);
        let list: Vec<_> = std::iter::from_fn(|| stream.next().expect("no error"))
            .map(|access| (access.vpn, access.write))
            .collect();
        assert_eq!(list, [(10, true), (11, true), (10, false), (10, false), (11, false), (11, false)]);
    }
}
