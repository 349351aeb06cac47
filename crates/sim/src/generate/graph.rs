//! The pages that breadth-first search and PageRank touch, over a Kronecker graph that is not held.
//!
//! The graph is that of the initiator (9 3; 3 1)/16, near the one of the Graph500 benchmark. Its
//! edges follow from the vertex, the number of the edge and the seed, and where a vertex's edges
//! begin follows from its number, so that a generator of any size is a bitmap and a queue. A search
//! follows the vertices in the order in which it found them, PageRank in that of their numbers. The
//! region has the arrays that a program has: where the edges of each vertex begin (8 bytes), the
//! edges (4), and a value for each vertex (8: its parent, or its rank), the vertices in an order of
//! their own. One search from some root, one round of PageRank, and so on, for ever.

use crate::rng::splitmix64;
use overspill_mm::types::PAGE_SIZE;
use std::collections::VecDeque;

/// Bytes of a vertex in each of its two arrays, and of an edge.
const VERTEX_BYTES: u64 = 8;
const EDGE_BYTES: u64 = 4;
/// At least so many edges a vertex.
const EDGES_MIN: u64 = 16;

/// What is touched next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Where the next vertex's edges begin.
    Vertex,
    /// The next edge.
    Edge,
    /// The vertex at its end.
    Target,
}

/// A search or a round of PageRank under way.
#[derive(Clone, Debug)]
pub struct Graph {
    seed: u64,
    /// Vertices are 2^bits.
    bits: u32,
    edges: u64,
    searches: bool,
    rounds: u64,
    step: Step,
    vertex: u64,
    edge: u64,
    edges_end: u64,
    /// The page of edges that was touched last.
    edges_page: Option<u64>,
    /// Of a search: vertices that were found, and those of them that wait.
    seen: Bitmap,
    queue: VecDeque<u32>,
}

/// A set of vertices.
#[derive(Clone, Debug)]
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn new(bits: u32) -> Bitmap {
        Bitmap(vec![0; (1_usize << bits).div_ceil(64)])
    }

    /// Adds a vertex; false when it was there.
    fn add(&mut self, vertex: u64) -> bool {
        let (word, bit) = (&mut self.0[(vertex / 64) as usize], 1 << (vertex % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

impl Graph {
    /// A graph that fills `pages` pages.
    #[must_use]
    pub fn new(pages: u64, seed: u64) -> Graph {
        let bytes = pages * PAGE_SIZE;
        let vertices = (bytes / (2 * VERTEX_BYTES + EDGES_MIN * EDGE_BYTES)).max(1);
        let bits = vertices.ilog2().min(u32::BITS - 1);
        let edges = (bytes - ((2 * VERTEX_BYTES) << bits)) / EDGE_BYTES;
        let mut graph = Graph {
            seed,
            bits,
            edges,
            searches: false,
            rounds: 0,
            step: Step::Vertex,
            vertex: 0,
            edge: 0,
            edges_end: 0,
            edges_page: None,
            seen: Bitmap::new(bits),
            queue: VecDeque::new(),
        };
        graph.begin();
        graph
    }

    /// The next page touched.
    pub fn next_page(&mut self) -> u64 {
        loop {
            match self.step {
                Step::Vertex => {
                    let Some(vertex) = self.next_vertex() else {
                        self.begin();
                        continue;
                    };
                    self.vertex = vertex;
                    (self.edge, self.edges_end) = (self.edges_before(vertex), self.edges_before(vertex + 1));
                    self.edges_page = None;
                    self.step = Step::Edge;
                    return self.place(vertex) * VERTEX_BYTES / PAGE_SIZE;
                }
                Step::Edge if self.edge == self.edges_end => {
                    self.vertex += 1;
                    self.step = Step::Vertex;
                }
                Step::Edge => {
                    self.step = Step::Target;
                    let page = ((VERTEX_BYTES << self.bits) + self.edge * EDGE_BYTES) / PAGE_SIZE;
                    if self.edges_page.replace(page) != Some(page) {
                        return page;
                    }
                }
                Step::Target => {
                    let target = self.target(self.edge);
                    self.edge += 1;
                    self.step = Step::Edge;
                    if self.searches && self.seen.add(target) {
                        self.queue.push_back(target as u32);
                    }
                    let values = (VERTEX_BYTES << self.bits) + self.edges * EDGE_BYTES;
                    return (values + self.place(target) * VERTEX_BYTES) / PAGE_SIZE;
                }
            }
        }
    }

    /// A search after a round of PageRank, and the other way round.
    fn begin(&mut self) {
        self.searches = !self.searches;
        self.rounds += 1;
        (self.step, self.vertex) = (Step::Vertex, 0);
        if self.searches {
            // The vertices of small numbers have edges.
            let root = self.random(u64::MAX - self.rounds) & self.random(self.rounds) & self.mask();
            self.seen.clear();
            self.seen.add(root);
            self.queue.push_back(root as u32);
        }
    }

    /// The next vertex whose edges are followed.
    fn next_vertex(&mut self) -> Option<u64> {
        if !self.searches {
            return (self.vertex <= self.mask()).then_some(self.vertex);
        }
        self.queue.pop_front().map(u64::from)
    }

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    fn random(&self, number: u64) -> u64 {
        splitmix64(&mut (self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The vertex at the end of an edge: each bit of its number is set in one case of four.
    fn target(&self, edge: u64) -> u64 {
        let random = self.random(edge);
        random & random.rotate_left(32) & self.mask()
    }

    /// Edges of the vertices before this one. A bit that is not set makes three times as many edges
    /// as one that is: the sum over all smaller numbers goes by the highest bit in which they differ.
    fn edges_before(&self, vertex: u64) -> u64 {
        if vertex > self.mask() {
            return self.edges;
        }
        let (mut sum, mut weight) = (0_u128, 1_u128);
        for bit in (0..self.bits).rev() {
            if vertex >> bit & 1 == 1 {
                sum += (3 * weight) << (2 * bit);
            } else {
                weight *= 3;
            }
        }
        ((u128::from(self.edges) * sum) >> (2 * self.bits)) as u64
    }

    /// Where a vertex stands in the arrays: nowhere near those of similar numbers.
    fn place(&self, vertex: u64) -> u64 {
        let mixed = vertex.wrapping_mul(0x9e37_79b9_7f4a_7c15) & self.mask();
        (mixed ^ (mixed >> (self.bits / 2 + 1))) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_shared_out_by_the_bits_that_are_not_set() {
        let graph = Graph::new(1024, 1);
        let count = |vertex| graph.edges_before(vertex + 1) - graph.edges_before(vertex);
        assert_eq!(graph.edges_before(0), 0);
        assert_eq!((0..=graph.mask()).map(count).sum::<u64>(), graph.edges);
        let (most, fewer) = (count(0), count(1));
        assert!(most > 2 * fewer && fewer > most / 4, "three times as many: {most} and {fewer}");
    }

    #[test]
    fn places_are_a_permutation() {
        let graph = Graph::new(512, 1);
        let mut places: Vec<u64> = (0..=graph.mask()).map(|vertex| graph.place(vertex)).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..=graph.mask()));
    }

    /// A search and a round of PageRank touch nearly everything, the hubs' pages over and over.
    #[test]
    fn rounds_end_and_stay_within_the_region() {
        const PAGES: u64 = 256;
        let mut graph = Graph::new(PAGES, 7);
        let mut counts = [0_u32; PAGES as usize];
        while graph.rounds < 3 {
            counts[graph.next_page() as usize] += 1;
        }
        let touched = counts.iter().filter(|&&count| count > 0).count();
        assert!(touched > PAGES as usize * 9 / 10, "{touched} of {PAGES}");
        let most = counts.iter().max().expect("there are pages");
        assert!(u64::from(*most) > graph.edges / 100, "hubs are touched often: {most}");
    }

    #[test]
    fn the_smallest_graphs_go_on() {
        for pages in 1..20 {
            let mut graph = Graph::new(pages, 3);
            assert!((0..2000).all(|_| graph.next_page() < pages), "{pages} pages");
        }
    }
}
