//! Lookup as the kernel has had it since 5.3: a red-black tree by first page, without any cursor.
//!
//! An extent is always put at the right-most place, since extents come in order; the search goes down from the root. The links are
//! 24 bytes an extent (parent with colour, left, right), 8 more than the list's.

use alloc::vec::Vec;

use super::{Extent, Extents, Lookup};

const NIL: u64 = u64::MAX;

/// An extent and its links (the kernel's `rb_node`: 24 bytes).
#[derive(Clone, Copy, Debug)]
struct Node {
    extent: Extent,
    /// The parent, times two; plus one when the node is red.
    parent_colour: u64,
    left: u64,
    right: u64,
}

/// The balanced tree.
#[derive(Clone, Debug)]
pub struct TreeMap {
    nodes: Vec<Node>,
    root: u64,
    last: u64,
}

impl Default for TreeMap {
    fn default() -> Self {
        TreeMap { nodes: Vec::new(), root: NIL, last: NIL }
    }
}

impl TreeMap {
    /// The tree of these extents.
    #[must_use]
    pub fn new(extents: &Extents) -> Self {
        let mut map = TreeMap::default();
        extents.runs().iter().for_each(|&extent| map.append(extent));
        map
    }

    fn node(&self, at: u64) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u64) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn is_red(&self, at: u64) -> bool {
        at != NIL && self.node(at).parent_colour & 1 != 0
    }

    fn parent(&self, at: u64) -> u64 {
        match self.node(at).parent_colour >> 1 {
            parent if parent == NIL >> 1 => NIL,
            parent => parent,
        }
    }

    fn set_parent(&mut self, at: u64, parent: u64) {
        let colour = self.node(at).parent_colour & 1;
        self.node_mut(at).parent_colour = parent << 1 | colour;
    }

    fn paint(&mut self, at: u64, red: bool) {
        let parent = self.node(at).parent_colour & !1;
        self.node_mut(at).parent_colour = parent | u64::from(red);
    }

    /// `at` becomes the left child of its right child.
    fn rotate_left(&mut self, at: u64) {
        let (parent, up) = (self.parent(at), self.node(at).right);
        let between = self.node(up).left;
        self.node_mut(at).right = between;
        if between != NIL {
            self.set_parent(between, at);
        }
        self.node_mut(up).left = at;
        self.set_parent(at, up);
        self.set_parent(up, parent);
        match parent {
            NIL => self.root = up,
            // Insertion at the right end rotates on the right spine only.
            parent => self.node_mut(parent).right = up,
        }
    }

    /// A red node was put at the right end: nobody on the right spine has a red uncle on its right, so two of the six cases of a
    /// red-black tree are all that can happen.
    fn rebalance(&mut self, mut at: u64) {
        while let parent = self.parent(at)
            && self.is_red(parent)
        {
            let grandparent = self.parent(parent);
            let uncle = self.node(grandparent).left;
            if self.is_red(uncle) {
                self.paint(uncle, false);
                self.paint(parent, false);
                self.paint(grandparent, true);
                at = grandparent;
            } else {
                self.paint(parent, false);
                self.paint(grandparent, true);
                self.rotate_left(grandparent);
            }
        }
        let root = self.root;
        self.paint(root, false);
    }

    fn descend(&self, page: u32) -> (Extent, u32) {
        let (mut at, mut steps) = (self.root, 0);
        while at != NIL {
            let node = self.node(at);
            steps += 1;
            at = if page < node.extent.page {
                node.left
            } else if page >= node.extent.end() {
                node.right
            } else {
                return (node.extent, steps);
            };
        }
        panic!("page {page} is in no extent");
    }

    /// Checks the rules of a red-black tree and returns the number of black nodes on every way down.
    #[cfg(test)]
    pub(super) fn black_height(&self) -> u32 {
        assert!(!self.is_red(self.root), "the root is black");
        self.black_height_below(self.root)
    }

    #[cfg(test)]
    fn black_height_below(&self, at: u64) -> u32 {
        if at == NIL {
            return 1;
        }
        let Node { left, right, .. } = *self.node(at);
        for child in [left, right] {
            assert!(!self.is_red(at) || !self.is_red(child), "a red node has black children");
            assert!(child == NIL || self.parent(child) == at, "a child knows its parent");
        }
        let heights = [left, right].map(|child| self.black_height_below(child));
        assert_eq!(heights[0], heights[1], "every way down has as many black nodes");
        heights[0] + u32::from(!self.is_red(at))
    }
}

impl Lookup for TreeMap {
    type Cursor = ();

    fn append(&mut self, extent: Extent) {
        let (at, last) = (self.nodes.len() as u64, self.last);
        self.nodes.push(Node { extent, parent_colour: last << 1 | 1, left: NIL, right: NIL });
        match last {
            NIL => self.root = at,
            last => self.node_mut(last).right = at,
        }
        self.last = at;
        self.rebalance(at);
    }

    fn find(&self, (): &mut (), page: u32) -> Extent {
        self.descend(page).0
    }

    fn steps(&self, (): &mut (), page: u32) -> u32 {
        self.descend(page).1
    }

    fn extent_bytes(&self) -> usize {
        size_of::<Node>()
    }
}
