//! Pages that are new to the lists of use, where there are access bits: the kernel gathers them for
//! each processor and adds them to the lists some at a time ("deferred and batched addition of
//! pages to the LRU", changelog of 2002: 16).
//!
//! What this changes is the order: pages of one program lie together on the lists, and later on
//! swap, although other programs fault at the same time. So a page is put beside the last one of
//! its batch, wherever that is by now; every address space stands for a processor.

use alloc::vec::Vec;

use crate::list::ListId;
use crate::mm::Mm;
use crate::readahead::SwapIn;
use crate::types::PageId;

/// By space: the last page of its batch, and how many that has.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(Vec<(PageId, u32)>);

impl Newcomers {
    /// Adds a page to its space's batch of at most `most`; gives the page beside which it belongs,
    /// unless a batch begins.
    fn join(&mut self, space: usize, id: PageId, most: u32) -> Option<PageId> {
        if space >= self.0.len() {
            self.0.resize(space + 1, (id, most));
        }
        let (last, count) = &mut self.0[space];
        let neighbour = (*count < most).then_some(*last);
        *count = if neighbour.is_some() { *count + 1 } else { 1 };
        *last = id;
        neighbour
    }
}

impl<P: SwapIn> Mm<P> {
    /// Puts a page that is new to `list` where its batch is.
    pub(crate) fn enlist(&mut self, list: ListId, id: PageId) {
        if self.config.newcomers > 1 {
            let (space, _) = self.pages.place(id);
            let neighbour = self.newcomers.join(usize::from(space.0), id, self.config.newcomers);
            if let Some(neighbour) = neighbour.filter(|&other| self.pages[other].list == list as u8) {
                return self.lists.insert_before(&mut self.pages, neighbour, id);
            }
        }
        self.lists.push_head(&mut self.pages, list, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_by_space_and_end() {
        let mut newcomers = Newcomers::default();
        let mut join = |space, id| newcomers.join(space, PageId(id), 3).map(|page| page.0);
        assert_eq!(
            [join(0, 1), join(1, 9), join(0, 2), join(1, 8), join(0, 3)],
            [None, None, Some(1), Some(9), Some(2)]
        );
        assert_eq!([join(0, 4), join(1, 7), join(0, 5)], [None, Some(8), Some(4)]);
    }
}
