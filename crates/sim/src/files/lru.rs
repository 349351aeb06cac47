//! The order in which cached pages of files leave: a seam, and the smallest thing that fills it.
//!
//! [`Lru`] is what the page cache asks; [`TwoLists`] is the kernel's classic answer for file pages:
//! new ones are inactive, the second use makes a page active, the active list is no longer than the
//! other one. The four lists of `mm` can be put in its place.

use std::collections::HashMap;

/// A page of a file: its file in the upper bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(u64);

const PAGE_BITS: u32 = 40;

impl Key {
    /// Page `page` of file `file`.
    #[must_use]
    pub fn new(file: usize, page: u64) -> Key {
        assert!(page >> PAGE_BITS == 0 && file < 1 << (64 - PAGE_BITS), "a page of some file");
        Key((file as u64) << PAGE_BITS | page)
    }

    /// The file.
    #[must_use]
    pub fn file(self) -> usize {
        (self.0 >> PAGE_BITS) as usize
    }

    /// The page.
    #[must_use]
    pub fn page(self) -> u64 {
        self.0 & ((1 << PAGE_BITS) - 1)
    }
}

/// What decides which cached page leaves.
pub trait Lru {
    /// A page has arrived.
    fn added(&mut self, key: Key);
    /// A page was used.
    fn touched(&mut self, key: Key);
    /// The page that is to leave; it is forgotten.
    fn evict(&mut self) -> Option<Key>;
    /// Pages that do not leave next, as they were used more than once.
    fn active(&self) -> u64;
}

const NONE: u32 = u32::MAX;
const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

#[derive(Clone, Copy)]
struct Node {
    key: Key,
    prev: u32,
    next: u32,
    list: usize,
    referenced: bool,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    count: u64,
}

/// Inactive and active.
pub struct TwoLists {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    lists: [List; 2],
    index: HashMap<Key, u32>,
}

impl Default for TwoLists {
    fn default() -> Self {
        let empty = List { head: NONE, tail: NONE, count: 0 };
        TwoLists { nodes: Vec::new(), vacant: Vec::new(), lists: [empty; 2], index: HashMap::new() }
    }
}

impl TwoLists {
    fn push_head(&mut self, at: u32, list: usize) {
        let head = self.lists[list].head;
        let node = &mut self.nodes[at as usize];
        (node.prev, node.next, node.list) = (NONE, head, list);
        match self.nodes.get_mut(head as usize) {
            Some(old) => old.prev = at,
            None => self.lists[list].tail = at,
        }
        self.lists[list].head = at;
        self.lists[list].count += 1;
    }

    fn remove(&mut self, at: u32) {
        let Node { prev, next, list, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(prev as usize) {
            Some(node) => node.next = next,
            None => self.lists[list].head = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.prev = prev,
            None => self.lists[list].tail = prev,
        }
        self.lists[list].count -= 1;
    }

    fn balance(&mut self) {
        while self.lists[ACTIVE].count > self.lists[INACTIVE].count {
            let at = self.lists[ACTIVE].tail;
            self.remove(at);
            self.nodes[at as usize].referenced = false;
            self.push_head(at, INACTIVE);
        }
    }
}

impl Lru for TwoLists {
    fn added(&mut self, key: Key) {
        let node = Node { key, prev: NONE, next: NONE, list: INACTIVE, referenced: false };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("a cache has fewer than 2^32 pages")
            }
        };
        let before = self.index.insert(key, at);
        assert!(before.is_none(), "a page arrives once");
        self.push_head(at, INACTIVE);
    }

    fn touched(&mut self, key: Key) {
        let at = self.index[&key];
        let node = &mut self.nodes[at as usize];
        if !std::mem::replace(&mut node.referenced, true) || node.list == ACTIVE {
            return;
        }
        self.remove(at);
        self.push_head(at, ACTIVE);
    }

    fn evict(&mut self) -> Option<Key> {
        self.balance();
        let at = self.lists[INACTIVE].tail;
        let key = self.nodes.get(at as usize)?.key;
        self.remove(at);
        self.index.remove(&key);
        self.vacant.push(at);
        Some(key)
    }

    fn active(&self) -> u64 {
        self.lists[ACTIVE].count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_twice_outlives_what_was_used_once() {
        let mut lru = TwoLists::default();
        let key = |page| Key::new(3, page);
        (0..10).for_each(|page| lru.added(key(page)));
        for _ in 0..2 {
            lru.touched(key(0));
            lru.touched(key(4));
        }
        let order: Vec<u64> = std::iter::from_fn(|| lru.evict()).map(Key::page).collect();
        assert_eq!(order, [1, 2, 3, 5, 6, 7, 8, 9, 0, 4]);
        assert_eq!(Key::new(3, 9).file(), 3);
    }
}
