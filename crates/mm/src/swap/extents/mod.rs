//! The extent map: which place on the backing each page of a swap area has (specification 3.2).
//!
//! A file lies on its device in runs. [`Extents`] is the list of these runs, built in ascending order and merged; on top of it
//! stand three lookups behind one trait, because they are compared: [`list`] with one shared cursor (the kernel before 5.3),
//! [`tree`] (since 5.3, the seed) and [`sorted`] (ours, and the default). [`packing`] says which pages of a file are usable at
//! all. Nothing here reads a file or waits; who asks the file system is the shell.

pub mod list;
pub mod packing;
pub mod sorted;
pub mod tree;

use alloc::vec::Vec;

pub use list::ListMap;
pub use sorted::SortedMap;
pub use tree::TreeMap;

/// A run of pages of the area that is contiguous on the backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First page of the area.
    pub page: u32,
    /// How many; at least one.
    pub count: u32,
    /// Where the first one lies, in pages of the backing.
    pub block: u64,
}

impl Extent {
    /// The page behind the last one.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.page + self.count
    }

    /// Where the page lies, if it is one of these.
    #[must_use]
    pub fn block_of(&self, page: u32) -> Option<u64> {
        let offset = page.checked_sub(self.page)?;
        (offset < self.count).then(|| self.block + u64::from(offset))
    }
}

/// The runs of an area, in ascending order, neighbours on the backing merged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents {
    runs: Vec<Extent>,
}

impl Extents {
    /// No pages.
    #[must_use]
    pub fn new() -> Self {
        Extents::default()
    }

    /// `count` pages of the area follow, which lie at `block`. True: it is a new extent; false: it was merged with the last one.
    ///
    /// # Panics
    /// When there are more than 2^32 pages.
    pub fn push(&mut self, count: u32, block: u64) -> bool {
        assert!(count > 0, "an extent has pages");
        let page = self.pages();
        assert!(page.checked_add(count).is_some(), "page numbers are 32 bits");
        if let Some(last) = self.runs.last_mut()
            && last.block + u64::from(last.count) == block
        {
            last.count += count;
            return false;
        }
        self.runs.push(Extent { page, count, block });
        true
    }

    /// The extent that begins where the last one ended, or is merged with it: the kernel's rule that pages come in order is an
    /// assertion here.
    ///
    /// # Panics
    /// When the extent does not begin where the last one ended.
    pub fn append(&mut self, extent: Extent) -> bool {
        assert_eq!(extent.page, self.pages(), "extents come in ascending order, without gaps");
        self.push(extent.count, extent.block)
    }

    /// Pages in all.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.runs.last().map_or(0, Extent::end)
    }

    /// The runs in ascending order.
    #[must_use]
    pub fn runs(&self) -> &[Extent] {
        &self.runs
    }

    /// From the lowest to the highest place, the header page left out: what the kernel tells at swapon.
    #[must_use]
    pub fn span(&self) -> u64 {
        let places = self.runs.iter().filter_map(|run| {
            let skipped = u32::from(run.page == 0);
            let end = run.block + u64::from(run.count);
            (run.count > skipped).then_some((run.block + u64::from(skipped), end))
        });
        let (low, high) =
            places.fold((u64::MAX, 0), |(low, high), (first, end)| (low.min(first), high.max(end)));
        high.saturating_sub(low)
    }

    /// The same pages cut at every multiple of `pages`, and the parts spread so that no two are neighbours on the backing: what
    /// the seed's author did to an unfragmented file.
    #[must_use]
    pub fn artificial(extents: u32, pages: u32) -> Extents {
        let mut cut = Extents::new();
        for number in 0..u64::from(extents) {
            cut.push(pages, number * 2 * u64::from(pages));
        }
        cut
    }
}

/// How a page is found. Every lookup has the same pages of the same extents; they differ in time and memory.
pub trait Lookup {
    /// What a worker keeps between its lookups; where the rule has one cursor for all, all workers hand over the same.
    type Cursor: Default;

    /// Adds the extent behind the last one: growing files do that while they are in use.
    fn append(&mut self, extent: Extent);

    /// The extent of a page that the area has.
    ///
    /// # Panics
    /// When the area has no such page: that a lookup fails is a bug of the caller.
    fn find(&self, cursor: &mut Self::Cursor, page: u32) -> Extent;

    /// Steps that [`Lookup::find`] would take: nodes looked at. For simulations of its cost.
    fn steps(&self, cursor: &mut Self::Cursor, page: u32) -> u32;

    /// Bytes of memory an extent.
    fn extent_bytes(&self) -> usize;
}

/// The parts of a run of pages that are contiguous on the backing, in order: a transfer never straddles an extent's end.
pub fn split<'a, L: Lookup>(
    map: &'a L,
    cursor: &'a mut L::Cursor,
    page: u32,
    count: u32,
) -> impl Iterator<Item = Extent> + 'a {
    let (mut next, end) = (page, page + count);
    core::iter::from_fn(move || {
        if next == end {
            return None;
        }
        let extent = map.find(cursor, next);
        let block = extent.block_of(next).expect("what was found has the page");
        let part = Extent { page: next, count: extent.end().min(end) - next, block };
        next = part.page + part.count;
        Some(part)
    })
}

#[cfg(test)]
mod tests;
