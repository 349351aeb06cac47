//! Lookup as the kernel had it before 5.3: a circular list and one cursor for everybody.
//!
//! The search begins at the extent of the last one and steps forward, round the end, until it has the page. So one task in order
//! is answered at once, and several at different places walk half of the list each, because they move the cursor under each other.
//! Kept for comparison; unfit for anything with many extents.

use alloc::vec::Vec;

use super::{Extent, Extents, Lookup};

/// An extent and its links (the kernel's `list_head`: 16 bytes).
#[derive(Clone, Copy, Debug)]
struct Node {
    extent: Extent,
    next: u64,
    #[expect(dead_code, reason = "the kernel's list has it, and its memory counts")]
    prev: u64,
}

/// The circular list.
#[derive(Clone, Debug, Default)]
pub struct ListMap {
    nodes: Vec<Node>,
}

impl ListMap {
    /// The list of these extents.
    #[must_use]
    pub fn new(extents: &Extents) -> Self {
        let mut map = ListMap::default();
        extents.runs().iter().for_each(|&extent| map.append(extent));
        map
    }

    /// The extent of the page, and the nodes looked at. The cursor is stored after each step.
    fn walk(&self, cursor: &mut u32, page: u32) -> (Extent, u32) {
        for steps in 1..=self.nodes.len() as u32 {
            let node = &self.nodes[*cursor as usize];
            if node.extent.block_of(page).is_some() {
                return (node.extent, steps);
            }
            *cursor = node.next as u32;
        }
        panic!("page {page} is in no extent");
    }
}

impl Lookup for ListMap {
    /// The node that was found last, whoever asked.
    type Cursor = u32;

    fn append(&mut self, extent: Extent) {
        let last = self.nodes.len() as u64;
        if let Some(node) = self.nodes.last_mut() {
            node.next = last;
        }
        self.nodes.push(Node { extent, next: 0, prev: last.saturating_sub(1) });
    }

    fn find(&self, cursor: &mut u32, page: u32) -> Extent {
        self.walk(cursor, page).0
    }

    fn steps(&self, cursor: &mut u32, page: u32) -> u32 {
        self.walk(cursor, page).1
    }

    fn extent_bytes(&self) -> usize {
        size_of::<Node>()
    }
}
