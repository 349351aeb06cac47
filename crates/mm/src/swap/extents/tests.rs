//! All lookups against a plain model, and the kernel's rules for building the map.

use super::packing::{Packer, Unfit, probe};
use super::*;

/// xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Extents and where every page lies, page by page.
fn random_extents(random: &mut Random, count: u64, pages_max: u64) -> (Extents, Vec<u64>) {
    let (mut extents, mut model) = (Extents::new(), Vec::new());
    let mut block = 0;
    for _ in 0..count {
        // One in eight follows the last one on the backing, too.
        block = if random.below(8) == 0 { block } else { random.below(1 << 40) };
        let pages = 1 + random.below(pages_max);
        let merges = model.last().is_some_and(|&last| last + 1 == block);
        assert_eq!(extents.push(pages as u32, block), !merges, "merged if and only if it follows");
        model.extend(block..block + pages);
        block += pages;
    }
    (extents, model)
}

fn agrees<L: Lookup>(map: &L, model: &[u64], random: &mut Random) {
    let mut cursors = [L::Cursor::default(), L::Cursor::default()];
    for look in 0..2000 {
        let cursor = &mut cursors[look % 2];
        let page = random.below(model.len() as u64) as u32;
        // Random pages, then a few in order, as windows are.
        for page in page..(page + 3).min(model.len() as u32) {
            assert_eq!(map.find(cursor, page).block_of(page), Some(model[page as usize]), "page {page}");
        }
        let count = (1 + random.below(40) as u32).min(model.len() as u32 - page);
        let parts: Vec<Extent> = split(map, cursor, page, count).collect();
        let covered = parts.iter().flat_map(|part| (0..part.count).map(|n| part.block + u64::from(n)));
        assert!(covered.eq(model[page as usize..(page + count) as usize].iter().copied()));
        let straddles = parts.iter().any(|part| map.find(cursor, part.page).end() < part.end());
        assert!(!straddles, "a part lies in one extent");
    }
}

#[test]
fn all_lookups_agree_with_a_plain_model() {
    let mut random = Random(0x5eed_0027);
    for (count, pages_max) in [(1, 5), (2, 1), (60, 1), (700, 300), (3000, 7)] {
        let (extents, model) = random_extents(&mut random, count, pages_max);
        assert_eq!(extents.pages() as usize, model.len());
        agrees(&ListMap::new(&extents), &model, &mut random);
        agrees(&TreeMap::new(&extents), &model, &mut random);
        agrees(&SortedMap::new(&extents), &model, &mut random);
    }
}

/// Files grow while they are in use; what is small in one place and large in another moves the stride.
#[test]
fn maps_that_grow_stay_right() {
    let mut random = Random(77);
    let (mut list, mut tree, mut sorted) = (ListMap::default(), TreeMap::default(), SortedMap::default());
    let mut model = Vec::new();
    for round in 0..6 {
        let pages_max = [3000, 1, 2, 500, 1, 9000][round];
        for _ in 0..[40, 2000, 30, 100, 500, 30][round] {
            let (count, block) = (1 + random.below(pages_max) as u32, random.below(1 << 40));
            let extent = Extent { page: model.len() as u32, count, block };
            list.append(extent);
            tree.append(extent);
            sorted.append(extent);
            model.extend(block..block + u64::from(count));
        }
        agrees(&list, &model, &mut random);
        agrees(&tree, &model, &mut random);
        agrees(&sorted, &model, &mut random);
        assert!(tree.black_height() <= 13);
        assert!(sorted.extent_bytes() < 32, "{}", sorted.extent_bytes());
    }
}

/// The seed's memory: the tree has 8 bytes of links more than the list; ours has less than either.
#[test]
fn bytes_an_extent() {
    let extents = Extents::artificial(84_656, 242);
    let (list, tree) = (ListMap::new(&extents), TreeMap::new(&extents));
    let sorted = SortedMap::new(&extents);
    let payload = size_of::<Extent>();
    assert_eq!([list.extent_bytes() - payload, tree.extent_bytes() - payload], [16, 24]);
    assert!(sorted.extent_bytes() <= 20, "{} bytes in all, links and extent", sorted.extent_bytes());
}

/// Specification 3.2: with one task in order the cursor suffices; with several it is of no use; the tree takes some 15 compares.
#[test]
fn steps_are_those_of_the_kernel() {
    let extents = Extents::artificial(20_000, 256);
    let (list, tree) = (ListMap::new(&extents), TreeMap::new(&extents));
    let (mut cursor, pages) = (0, extents.pages());
    let in_order: u64 = (0..pages).map(|page| u64::from(list.steps(&mut cursor, page))).sum();
    assert!(in_order < u64::from(pages) + 20_000, "one task in order: one node, and one more at each border");
    let (mut random, mut steps) = (Random(3), [0; 2]);
    for _ in 0..400 {
        let page = random.below(u64::from(pages)) as u32;
        steps[0] += list.steps(&mut cursor, page);
        steps[1] += tree.steps(&mut (), page);
    }
    assert!((8000..12_000).contains(&(steps[0] / 400)), "half of the list: {}", steps[0] / 400);
    assert!((12..18).contains(&(steps[1] / 400)), "{}", steps[1] / 400);
    let sorted = SortedMap::new(&extents);
    let looked_at = |_| sorted.steps(&mut u32::MAX.clone(), random.below(u64::from(pages)) as u32);
    assert!((0..400).map(looked_at).max() <= Some(4), "a stride of the default has two extents or three");
    let back = list.steps(&mut cursor, 0) + list.steps(&mut cursor, pages - 1);
    assert!(back > 20_000, "backwards is a full circle");
}

#[test]
fn probing_packs_what_is_aligned_and_contiguous() {
    // Blocks of 1 KiB; device blocks 8..16 are two pages, then one block that begins no page, then a page at 100.
    let device: Vec<u64> = (8..16).chain([3]).chain(100..104).collect();
    let map = |block: u64| device.get(block as usize).copied();
    let extents = probe(device.len() as u64, 10, map).unwrap();
    let run = |page, count, block| Extent { page, count, block };
    assert_eq!(extents.runs(), [run(0, 2, 2), run(2, 1, 25)], "the stray block is lost, pages are packed");
    assert_eq!(probe(20, 10, map), Err(Unfit::Hole(13 * 1024)));
    assert_eq!(probe(3, 10, |block| Some(block + 1)), Err(Unfit::NoPages));
    // A page that begins well and goes on elsewhere: one block later it is tried again.
    let device = [4, 5, 9, 8, 9, 10, 11];
    let extents = probe(7, 10, |block| Some(device[block as usize])).unwrap();
    assert_eq!(extents.runs(), [run(0, 1, 2)]);
}

#[test]
fn runs_of_the_file_system_are_joined_and_rounded_inwards() {
    let mut packer = Packer::default();
    packer.add(0, 6144, 2048).unwrap();
    packer.add(2048, 8192, 4096).unwrap();
    packer.add(6144, 1 << 20, 8192 + 1024).unwrap();
    packer.add(15_360, 5 << 20, 1024).unwrap();
    let extents = packer.clone().finish(16_384).unwrap();
    let run = |page, count, block| Extent { page, count, block };
    assert_eq!(extents.runs(), [run(0, 1, 2), run(1, 2, 256)], "6144..12288 has one whole page");
    assert_eq!(packer.finish(20_000), Err(Unfit::Hole(16_384)), "the end is missing");
    assert_eq!(Packer::default().add(4096, 0, 4096), Err(Unfit::Hole(0)));
    let mut packer = Packer::default();
    packer.add(0, 100, 4096).unwrap();
    assert_eq!(packer.finish(4096), Err(Unfit::NoPages), "shorter than a page once it is aligned");
}

#[test]
fn the_span_leaves_the_header_out() {
    let mut extents = Extents::new();
    extents.push(1, 5000);
    extents.push(10, 100);
    extents.push(10, 300);
    assert_eq!(extents.span(), 210, "100 to 309; the header at 5000 does not count");
    let mut whole = Extents::new();
    whole.push(100, 7);
    assert_eq!(whole.span(), 99);
}
