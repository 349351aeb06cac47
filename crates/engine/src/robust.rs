//! Pages that the kernel reads and writes when a thread ends, and does not wait for: they stay in RAM.
//!
//! A thread's list of robust futexes (get_robust_list(2)) leads through the memory of the program:
//! its head lies in the thread's control block, its entries are the locks that the thread holds.
//! When the thread ends the kernel follows it and marks each lock, so that whoever waits learns
//! that the owner died; at the first page that is missing it gives up. Beside the head glibc keeps
//! the word that pthread_join waits for, which the kernel clears then, too.
//!
//! The lists are read after a page was taken out of view, and a page that is on one goes back. Who
//! takes a lock stores to it: that waits while the page is out. So no lock is overlooked but of a
//! thread that was made since the threads were last listed ([`LIST_NS`]).
//!
//! *The story:* a lock's page was out when its owner ended. Nobody was told; who waited for the
//! lock waits today.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overspill_mm::types::Nanos;
use overspill_sys::mem::OwnMemory;
use overspill_sys::{AddressRange, PAGE_SIZE, clock, procfs};

/// Threads are listed so often, and less often where that takes long.
const LIST_NS: Nanos = 5_000_000;
const LIST_SHARE: u64 = 50;
/// With more threads their lists are not read for each batch of pages, but share the time.
const THREADS_FEW: usize = 32;
const READ_SHARE: u64 = 20;
/// The kernel follows a list no further.
const ENTRIES_MAX: usize = 2048;
/// glibc's words for the kernel lie so close to the head.
const NEAR_BYTES: usize = 256;
/// Marks an entry of a lock with priority inheritance.
const PI: usize = 1;

/// Where the kernel will look.
pub(crate) struct Robust {
    memory: Arc<OwnMemory>,
    heads: Vec<usize>,
    /// Pages by their addresses.
    pages: Vec<usize>,
    /// Pages of those that are out.
    missing: Vec<usize>,
    next_list: Nanos,
    next_read: Nanos,
}

impl Robust {
    /// `memory` is read, without waiting for it.
    pub fn new(memory: Arc<OwnMemory>) -> Self {
        let (heads, pages, missing) = (Vec::new(), Vec::new(), Vec::new());
        Robust { memory, heads, pages, missing, next_list: 0, next_read: 0 }
    }

    /// Reads the lists, after pages were taken out of view.
    pub fn look(&mut self) {
        let now = clock::monotonic_ns();
        if now >= self.next_list {
            self.list_threads();
            let ended = clock::monotonic_ns();
            self.next_list = ended + LIST_NS.max((ended - now) * LIST_SHARE);
            self.next_read = 0;
        }
        if now >= self.next_read {
            self.read_lists();
            let took = clock::monotonic_ns() - now;
            self.next_read = if self.heads.len() > THREADS_FEW { now + took * READ_SHARE } else { 0 };
        }
    }

    /// Which pages of a range (at most 64) have to stay, as the lists were read: bit i for page i.
    pub fn kept(&self, range: &AddressRange) -> u64 {
        let inside = self.pages.iter().filter(|page| range.contains(page));
        inside.fold(0, |kept, page| kept | 1 << ((page - range.start) / PAGE_SIZE))
    }

    /// A page that is out and has to be in.
    pub fn missing(&mut self) -> Option<usize> {
        self.missing.pop()
    }

    fn list_threads(&mut self) {
        self.heads.clear();
        let heads = &mut self.heads;
        // What is known stays where threads cannot be listed.
        let _ = procfs::for_each_thread(|thread| match procfs::robust_list(thread) {
            Ok((head, _)) if head != 0 => heads.push(head),
            _ => {}
        });
    }

    fn read_lists(&mut self) {
        let Robust { memory, heads, pages, missing, .. } = self;
        pages.clear();
        missing.clear();
        for &head in heads.iter() {
            let mut keep = |address: usize| {
                let page = address / PAGE_SIZE * PAGE_SIZE;
                if pages.last() != Some(&page) {
                    pages.push(page);
                }
            };
            keep(head.saturating_sub(NEAR_BYTES));
            keep(head);
            follow(head, |address, words| {
                keep(address);
                let read = memory.read(words, address) == Ok(words.len());
                if !read {
                    missing.push(address / PAGE_SIZE * PAGE_SIZE);
                }
                read
            });
        }
    }
}

const WORD: usize = size_of::<usize>();

/// Follows a list: calls `read` for what lies at an address, until it says that this cannot be
/// read. A lock's own word is asked for, too.
fn follow(head: usize, mut read: impl FnMut(usize, &mut [u8]) -> bool) {
    let mut words = [0; 3 * WORD];
    if !read(head, &mut words) {
        return;
    }
    let [mut next, offset, pending] = [0, 1, 2].map(|index| word(&words, index));
    let lock = |entry: usize| (entry & !PI).wrapping_add(offset);
    if pending & !PI != 0 {
        read(lock(pending), &mut [0; 4]);
    }
    for _ in 0..ENTRIES_MAX {
        let entry = next & !PI;
        if entry == head || entry == 0 {
            return;
        }
        read(lock(entry), &mut [0; 4]);
        let mut link = [0; WORD];
        if !read(entry, &mut link) {
            return;
        }
        next = word(&link, 0);
    }
}

fn word(bytes: &[u8], index: usize) -> usize {
    let (words, _) = bytes.as_chunks::<WORD>();
    usize::from_ne_bytes(words[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// What was asked for, of a memory of words; what is not there cannot be read.
    fn asked(memory: &[(usize, usize)], head: usize) -> Vec<usize> {
        let memory: BTreeMap<usize, usize> = memory.iter().copied().collect();
        let mut asked = Vec::new();
        follow(head, |address, bytes| {
            asked.push(address);
            bytes.chunks_mut(WORD).enumerate().all(|(index, bytes)| {
                let value = memory.get(&(address + index * WORD));
                value.is_some_and(|value| {
                    bytes.copy_from_slice(&value.to_ne_bytes()[..bytes.len()]);
                    true
                })
            })
        });
        asked
    }

    #[test]
    fn locks_that_are_held_and_one_that_is_being_taken() {
        const OFFSET: usize = (-32isize).cast_unsigned();
        let head = [(0x1000, 0x5020), (0x1008, OFFSET), (0x1010, 0x9021)];
        let locks = [(0x5020, 0x6021), (0x5000, 1), (0x6020, 0x1000), (0x6000, 1), (0x9000, 1)];
        let found = asked(&[&head[..], &locks].concat(), 0x1000);
        assert_eq!(found, [0x1000, 0x9000, 0x5000, 0x5020, 0x6000, 0x6020]);
    }

    #[test]
    fn a_list_ends_where_it_cannot_be_read_or_goes_round() {
        assert_eq!(asked(&[], 0x1000), [0x1000]);
        let out = [(0x1000, 0x5020), (0x1008, 0), (0x1010, 0)];
        assert_eq!(asked(&out, 0x1000), [0x1000, 0x5020, 0x5020]);
        let round = [(0x1000, 0x5020), (0x1008, 0), (0x1010, 0), (0x5020, 0x5020)];
        assert_eq!(asked(&round, 0x1000).len(), 1 + 2 * ENTRIES_MAX);
    }
}
