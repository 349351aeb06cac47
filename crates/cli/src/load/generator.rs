//! Page numbers in the order of a pattern, one generator a thread. Deterministic: the same range
//! and seed give the same pages. A generator never ends and never leaves its range.

use overspill_sim::generate::graph::Graph;
use overspill_sim::rng::splitmix64;
use std::ops::Range;

use super::pattern::Pattern;

/// An endless sequence of pages.
pub trait Generator: Send {
    /// The next page to touch.
    fn next_page(&mut self) -> usize;

    /// A second has passed: time for the next phase, for a generator that has phases.
    fn next_phase(&mut self) {}
}

/// The generator of one thread of `pattern` over its `pages`.
pub fn generator(pattern: Pattern, pages: Range<usize>, seed: u64) -> Box<dyn Generator> {
    assert!(!pages.is_empty());
    match pattern {
        Pattern::Sequential => Box::new(Streams::new(pages, 1)),
        Pattern::Interleaved(streams) => Box::new(Streams::new(pages, streams as usize)),
        Pattern::Descending => Box::new(Descending { next: pages.end, pages }),
        Pattern::Stride(stride) => Box::new(Stride::new(pages, stride as usize)),
        Pattern::Random => Box::new(Random { pages, random: SplitMix(seed) }),
        Pattern::Mixed { .. } => unreachable!("mixed is made of threads of two other patterns"),
        Pattern::Phases => Box::new(Phases::new(pages, seed)),
        Pattern::Graph => {
            let graph = Graph::new(pages.len() as u64, seed);
            Box::new(GraphPages { start: pages.start, graph })
        }
    }
}

/// K ascending streams in turn, each cycling through its part; with K = 1 simply ascending.
struct Streams {
    parts: Vec<Range<usize>>,
    next: Vec<usize>,
    turn: usize,
}

impl Streams {
    fn new(pages: Range<usize>, streams: usize) -> Streams {
        let parts: Vec<_> =
            (0..streams).map(|index| part(&pages, index, streams)).filter(|p| !p.is_empty()).collect();
        let next = parts.iter().map(|part| part.start).collect();
        Streams { parts, next, turn: 0 }
    }
}

impl Generator for Streams {
    fn next_page(&mut self) -> usize {
        let part = &self.parts[self.turn];
        let page = self.next[self.turn];
        self.next[self.turn] = if page + 1 == part.end { part.start } else { page + 1 };
        self.turn = if self.turn + 1 == self.parts.len() { 0 } else { self.turn + 1 };
        page
    }
}

struct Descending {
    pages: Range<usize>,
    next: usize,
}

impl Generator for Descending {
    fn next_page(&mut self) -> usize {
        if self.next == self.pages.start {
            self.next = self.pages.end;
        }
        self.next -= 1;
        self.next
    }
}

struct Stride {
    pages: Range<usize>,
    stride: usize,
    offset: usize,
    next: usize,
}

impl Stride {
    fn new(pages: Range<usize>, stride: usize) -> Stride {
        let stride = stride.min(pages.len());
        Stride { next: pages.start, pages, stride, offset: 0 }
    }
}

impl Generator for Stride {
    fn next_page(&mut self) -> usize {
        if self.next >= self.pages.end {
            self.offset = (self.offset + 1) % self.stride;
            self.next = self.pages.start + self.offset;
        }
        let page = self.next;
        self.next += self.stride;
        page
    }
}

struct Random {
    pages: Range<usize>,
    random: SplitMix,
}

impl Generator for Random {
    fn next_page(&mut self) -> usize {
        self.pages.start + self.random.below(self.pages.len())
    }
}

/// The pages of a graph, from the range's first on.
struct GraphPages {
    start: usize,
    graph: Graph,
}

impl Generator for GraphPages {
    fn next_page(&mut self) -> usize {
        self.start + self.graph.next_page() as usize
    }
}

/// Sequential, random, stride, descending, interleaved: one after the other.
struct Phases {
    phases: Vec<Box<dyn Generator>>,
    now: usize,
}

impl Phases {
    fn new(pages: Range<usize>, seed: u64) -> Phases {
        let patterns = [
            Pattern::Sequential,
            Pattern::Random,
            Pattern::Stride(16),
            Pattern::Descending,
            Pattern::Interleaved(4),
        ];
        Phases { phases: patterns.map(|pattern| generator(pattern, pages.clone(), seed)).into(), now: 0 }
    }
}

impl Generator for Phases {
    fn next_page(&mut self) -> usize {
        self.phases[self.now].next_page()
    }

    fn next_phase(&mut self) {
        self.now = (self.now + 1) % self.phases.len();
    }
}

/// Part `index` of `count` equal parts of a range.
pub fn part(range: &Range<usize>, index: usize, count: usize) -> Range<usize> {
    assert!(index < count);
    let at = |index: usize| range.start + (range.len() as u128 * index as u128 / count as u128) as usize;
    at(index)..at(index + 1)
}

/// Steele, Lea and Flood's SplitMix64: small, and good enough to choose pages.
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 random bits.
    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// A number below `bound`, by multiplication; the bias is below 2^-32 for any memory that fits
    /// a machine.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pattern: &str, pages: Range<usize>, count: usize) -> Vec<usize> {
        let mut generator = generator(pattern.parse().unwrap(), pages, 1);
        (0..count).map(|_| generator.next_page()).collect()
    }

    #[test]
    fn orders_are_what_their_names_say() {
        assert_eq!(take("seq", 2..5, 5), [2, 3, 4, 2, 3]);
        assert_eq!(take("descending", 2..5, 5), [4, 3, 2, 4, 3]);
        assert_eq!(take("interleaved:2", 0..6, 7), [0, 3, 1, 4, 2, 5, 0]);
        assert_eq!(take("stride:3", 0..7, 8), [0, 3, 6, 1, 4, 2, 5, 0]);
    }

    #[test]
    fn a_lap_visits_every_page_once() {
        for pattern in ["seq", "descending", "stride:4", "stride:64", "stride:4096", "interleaved:4"] {
            let mut pages = take(pattern, 100..356, 256);
            pages.sort_unstable();
            assert_eq!(pages, (100..356).collect::<Vec<_>>(), "{pattern}");
        }
    }

    #[test]
    fn nothing_leaves_its_range() {
        for pattern in ["random", "phases", "graph", "interleaved:5", "stride:7"] {
            assert!(take(pattern, 10..17, 10_000).iter().all(|page| (10..17).contains(page)), "{pattern}");
        }
    }

    #[test]
    fn random_is_uniform() {
        let mut counts = [0u32; 16];
        for page in take("random", 0..16, 160_000) {
            counts[page] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    }

    #[test]
    fn phases_follow_one_another() {
        let mut phases = generator(Pattern::Phases, 0..100, 1);
        assert_eq!(phases.next_page(), 0);
        for _ in 0..3 {
            phases.next_phase();
        }
        assert_eq!(phases.next_page(), 99);
    }

    #[test]
    fn parts_cover_the_range() {
        let parts: Vec<_> = (0..3).map(|index| part(&(5..15), index, 3)).collect();
        assert_eq!(parts, [5..8, 8..11, 11..15]);
    }
}
