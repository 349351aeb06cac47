//! What a lookup in an extent map costs: `cargo run --release -p overspill-mm --example extent_lookup`.
//!
//! Every map is asked for the same random pages, each lookup waiting for the last one's answer; the figures are nanoseconds a
//! lookup, the best of five rounds. Beside the three maps of the library stand two that were tried and not taken: a plain binary
//! search, and the array in Eytzinger's order. With a name of one of them as argument (`sorted`, `tree`, ...) only that one runs, once
//! and without a clock: for callgrind, which counts its instructions.

use std::hint::black_box;
use std::time::Instant;

use overspill_mm::swap::extents::{Extent, Extents, ListMap, Lookup, SortedMap, TreeMap};

const LOOKUPS: u32 = 1_000_000;
/// The list is slow: as many nodes are walked in this many lookups.
const LOOKUPS_LIST: u32 = 2_000;

/// Tried: binary search over extents in order.
struct Binary(Vec<Extent>);

impl Binary {
    fn find(&self, page: u32) -> Extent {
        self.0[self.0.partition_point(|run| run.page <= page) - 1]
    }
}

/// Tried: the first pages in the order in which a search meets them, as a heap lies in its array.
struct Eytzinger {
    first: Vec<u32>,
    /// The extent of a node.
    of: Vec<u32>,
    runs: Vec<Extent>,
}

impl Eytzinger {
    fn new(extents: &Extents) -> Self {
        let runs = extents.runs().to_vec();
        let mut map = Eytzinger { first: vec![0; runs.len() + 1], of: vec![0; runs.len() + 1], runs };
        map.fill(1, &mut 0);
        map
    }

    fn fill(&mut self, node: usize, next: &mut usize) {
        if node < self.first.len() {
            self.fill(2 * node, next);
            (self.first[node], self.of[node]) = (self.runs[*next].page, *next as u32);
            *next += 1;
            self.fill(2 * node + 1, next);
        }
    }

    fn find(&self, page: u32) -> Extent {
        let mut node = 1;
        while node < self.first.len() {
            node = 2 * node + usize::from(self.first[node] <= page);
        }
        // The last turn to the right leads to the extent.
        node >>= node.trailing_zeros() + 1;
        self.runs[self.of[node] as usize]
    }
}

/// The sum of the places of random pages, each chosen by the last one's too.
fn run(pages: u32, lookups: u32, mut find: impl FnMut(u32) -> Extent) -> u64 {
    let (mut seed, mut sum) = (0x2545_f491_4f6c_dd1du64, 0);
    for _ in 0..lookups {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = ((u64::from((seed >> 32) as u32) ^ (sum & 1)) * u64::from(pages)) >> 32;
        let extent = find(page as u32);
        sum += extent.block_of(page as u32).expect("the extent has the page");
    }
    sum
}

/// The best of five rounds, in tenths of a nanosecond a lookup.
fn timed(pages: u32, lookups: u32, mut find: impl FnMut(u32) -> Extent) -> u128 {
    let round = |_| {
        let begun = Instant::now();
        black_box(run(pages, lookups, &mut find));
        begun.elapsed().as_nanos() * 10 / u128::from(lookups)
    };
    (0..5).map(round).min().unwrap_or(0)
}

/// One way to look a page up.
type Find<'a> = &'a mut dyn FnMut(u32) -> Extent;

fn main() {
    let only = std::env::args().nth(1);
    println!("{:>8} {:>10} {:>10} {:>16}", "extents", "map", "ns", "bytes an extent");
    for count in [84_656, 20_000, 2_000, 2] {
        let extents = Extents::artificial(count, 242);
        let pages = extents.pages();
        let (list, tree) = (ListMap::new(&extents), TreeMap::new(&extents));
        let (sorted, eytzinger) = (SortedMap::new(&extents), Eytzinger::new(&extents));
        let binary = Binary(extents.runs().to_vec());
        let bytes = |map: &str| match map {
            "list" => list.extent_bytes(),
            "tree" => tree.extent_bytes(),
            "sorted" => sorted.extent_bytes(),
            "binary" => size_of::<Extent>(),
            _ => size_of::<Extent>() + 8,
        };
        let mut cursors = [0; 2];
        let [shared, own] = cursors.each_mut();
        let mut maps: [(&str, u32, Find<'_>); 5] = [
            ("list", LOOKUPS_LIST, &mut |page| list.find(shared, page)),
            ("tree", LOOKUPS, &mut |page| tree.find(&mut (), page)),
            ("binary", LOOKUPS, &mut |page| binary.find(page)),
            ("eytzinger", LOOKUPS, &mut |page| eytzinger.find(page)),
            ("sorted", LOOKUPS, &mut |page| sorted.find(own, page)),
        ];
        for (name, lookups, find) in &mut maps {
            match &only {
                Some(only) if only == name => println!("{name} {}", run(pages, *lookups, find)),
                Some(_) => {}
                None => {
                    let tenths = timed(pages, *lookups, find);
                    println!("{count:>8} {name:>10} {:>8}.{} {:>16}", tenths / 10, tenths % 10, bytes(name));
                }
            }
        }
        if only.is_some() {
            return;
        }
    }
}
