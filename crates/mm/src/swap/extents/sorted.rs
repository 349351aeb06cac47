//! The default lookup: sorted arrays, a table that says where to begin, and a cursor for each
//! worker.
//!
//! The area is divided into equal strides of pages, about one or two for each extent; the table
//! has, for each stride, the extent of its first page. So a lookup reads one entry of the table and
//! looks at the few extents of one stride: by halves, since a file may have many small extents in
//! one place. A worker whose pages come in order does not get that far: its cursor has the extent.
//! What was compared, and the figures, are in docs/decisions/0068-extent-lookup.md.

use alloc::vec::Vec;

use super::{Extent, Extents, Lookup};

/// Sorted extents.
#[derive(Clone, Debug, Default)]
pub struct SortedMap {
    /// First page of each extent, and behind the last one its end.
    first: Vec<u32>,
    block: Vec<u64>,
    /// For each stride the extent of its first page.
    starts: Vec<u32>,
    /// log2 of the pages in a stride.
    shift: u32,
}

/// With fewer strides than that the table is not made smaller.
const STRIDES_MIN: usize = 64;

impl SortedMap {
    /// The map of these extents.
    #[must_use]
    pub fn new(extents: &Extents) -> Self {
        let runs = extents.runs();
        let mut map = SortedMap {
            first: runs.iter().map(|run| run.page).chain([extents.pages()]).collect(),
            block: runs.iter().map(|run| run.block).collect(),
            ..SortedMap::default()
        };
        map.rebuild();
        map
    }

    fn pages(&self) -> u32 {
        self.first.last().copied().unwrap_or(0)
    }

    /// Chooses the stride anew: the largest with which there are at least as many as extents.
    fn rebuild(&mut self) {
        let pages = self.pages();
        self.shift = 0;
        while pages >> (self.shift + 1) >= self.block.len() as u32 && self.shift < 31 {
            self.shift += 1;
        }
        self.starts.clear();
        self.extend();
    }

    /// Adds the strides that begin in extents which are there already.
    fn extend(&mut self) {
        let mut index = self.starts.last().copied().unwrap_or(0) as usize;
        let (pages, shift) = (u64::from(self.pages()), self.shift);
        while let page = (self.starts.len() as u64) << shift
            && page < pages
        {
            while u64::from(self.first[index + 1]) <= page {
                index += 1;
            }
            self.starts.push(index as u32);
        }
    }

    #[inline]
    fn extent(&self, index: usize) -> Extent {
        let page = self.first[index];
        Extent { page, count: self.first[index + 1] - page, block: self.block[index] }
    }

    /// The extent of a page, by the table, and the entries looked at.
    #[inline]
    fn search(&self, page: u32) -> (usize, u32) {
        let stride = (page >> self.shift) as usize;
        let mut low = self.starts[stride] as usize;
        // The first page of the next stride lies in the last extent that comes into question.
        let high = self.starts.get(stride + 1).map_or(self.block.len() - 1, |&next| next as usize);
        let (mut count, mut steps) = (high - low + 1, 1);
        while count > 1 {
            let half = count / 2;
            // A choice, not a jump: random pages would mispredict every second one.
            low = if self.first[low + half] <= page { low + half } else { low };
            count -= half;
            steps += 1;
        }
        (low, steps)
    }

    #[inline]
    fn locate(&self, cursor: &mut u32, page: u32) -> (usize, u32) {
        let index = *cursor as usize;
        if index < self.block.len() && self.first[index] <= page && page < self.first[index + 1] {
            return (index, 1);
        }
        assert!(page < self.pages(), "page {page} is in no extent");
        let (index, steps) = self.search(page);
        *cursor = index as u32;
        (index, steps + 1)
    }
}

impl Lookup for SortedMap {
    /// The extent that this worker found last.
    type Cursor = u32;

    fn append(&mut self, extent: Extent) {
        assert_eq!(extent.page, self.pages(), "extents come in ascending order, without gaps");
        if self.first.is_empty() {
            self.first.push(0);
        }
        self.first.push(extent.end());
        self.block.push(extent.block);
        let strides = (u64::from(self.pages()) >> self.shift) as usize;
        let is_coarse = strides < self.block.len() / 2 && self.shift > 0;
        let is_fine = strides > STRIDES_MIN + 4 * self.block.len();
        if is_coarse || is_fine { self.rebuild() } else { self.extend() }
    }

    #[inline]
    fn find(&self, cursor: &mut u32, page: u32) -> Extent {
        let (index, _) = self.locate(cursor, page);
        self.extent(index)
    }

    fn steps(&self, cursor: &mut u32, page: u32) -> u32 {
        self.locate(cursor, page).1
    }

    fn extent_bytes(&self) -> usize {
        let bytes = self.first.len() * 4 + self.block.len() * 8 + self.starts.len() * 4;
        bytes.div_ceil(self.block.len().max(1))
    }
}
