//! Pages that the kernel reads and writes when a thread ends, and does not wait for: they stay in RAM.
//!
//! A thread's list of robust futexes (get_robust_list(2)) leads through the memory of the program:
//! its head lies in the thread's control block, its entries are the locks that the thread holds.
//! When the thread ends the kernel follows it and marks each lock, so that whoever waits learns
//! that the owner died; at the first page that is missing it gives up. Beside the head glibc keeps
//! the word that pthread_join waits for, which the kernel clears then, too. Words elsewhere are
//! known as far as the program told of them ([`JoinWords`]).
//!
//! What is known is not taken out of view. The lists are read after other pages were, and a page
//! that is on one goes back. Who takes a lock stores to it: that waits while the page is out. C
//! libraries put a lock that was just taken at the head of its list. So each time it is read from
//! there until it goes on as it did when it was last read whole ([`SAME_ENOUGH`]), and as a whole for a
//! share of the time only. That overlooks, for so long, a lock behind so many that were all given
//! back and taken again in the order of before; and those of a thread that was made since the
//! threads were last listed ([`LIST_NS`]).
//!
//! *The story:* a lock's page was out when its owner ended. Nobody was told; who waited for the
//! lock waits today.
//!
//! *Another story:* 1500 locks, 32 KiB apart, were read as a whole each time, from the start again
//! for each page that went back: 48 MiB four times in 48 took a minute in place of a third of a second.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overspill_mm::types::Nanos;
use overspill_sys::mem::OwnMemory;
use overspill_sys::procfs::{self, Tasks};
use overspill_sys::{AddressRange, PAGE_SIZE, clock, thread};

use crate::join_words::JoinWords;

/// Threads are listed so often, and less often where that takes long.
const LIST_NS: Nanos = 5_000_000;
const LIST_SHARE: u64 = 50;
/// With more threads their lists are not read for each batch of pages, but share the time.
const THREADS_FEW: usize = 32;
/// Reading all lists as a whole takes such a share of the time, too.
const READ_SHARE: u64 = 20;
/// The same while a list cannot be read to its end.
const CUT_SHARE: u64 = 1;
/// So many entries in a row, each with the next one that it had, speak for the rest of a list.
const SAME_ENOUGH: usize = 8;
/// The kernel follows a list no further.
const ENTRIES_MAX: usize = 2048;
/// glibc's words for the kernel lie so close to the head.
const NEAR_BYTES: usize = 256;
/// Marks an entry of a lock with priority inheritance.
const PI: usize = 1;

/// Where the kernel will look.
pub(crate) struct Robust {
    memory: Arc<OwnMemory>,
    words: &'static JoinWords,
    /// The threads' list; None: it could not be opened.
    tasks: Option<Tasks>,
    heads: Vec<usize>,
    /// Pages by their addresses, in order.
    pages: Vec<usize>,
    /// Entries as they were when the lists were last read whole, each with its next one; in order.
    links: Vec<(usize, usize)>,
    /// Pages of those that are out.
    missing: Vec<usize>,
    next_list: Nanos,
    next_read: Nanos,
    next_whole: Nanos,
}

impl Robust {
    /// `memory` is read, without waiting for it.
    pub fn new(memory: Arc<OwnMemory>, words: &'static JoinWords) -> Self {
        let (heads, pages, links, missing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let tasks = Tasks::open().ok();
        Robust {
            memory,
            words,
            tasks,
            heads,
            pages,
            links,
            missing,
            next_list: 0,
            next_read: 0,
            next_whole: 0,
        }
    }

    /// Reads the lists, after pages were taken out of view; `again` after some of them were put back.
    pub fn look(&mut self, again: bool) {
        let now = clock::monotonic_ns();
        if now >= self.next_list {
            self.list_threads();
            let ended = clock::monotonic_ns();
            self.next_list = ended + LIST_NS.max((ended - now) * LIST_SHARE);
            self.next_read = 0;
        }
        if now < self.next_read {
            return;
        }
        // What lies behind a page that was out is not known.
        let is_cut = !self.missing.is_empty();
        let is_whole = now >= self.next_whole || again && is_cut;
        if is_whole {
            self.read_whole();
        } else {
            self.read_heads();
        }
        let ended = clock::monotonic_ns();
        let took = ended - now;
        self.next_read = if self.heads.len() > THREADS_FEW { ended + took * READ_SHARE } else { 0 };
        if is_whole {
            let share = if self.missing.is_empty() { READ_SHARE } else { CUT_SHARE };
            self.next_whole = ended + took * share;
        }
    }

    /// What the program told of.
    pub fn words(&self) -> &'static JoinWords {
        self.words
    }

    /// Which pages of a range (at most 64) have to stay, as far as is known: bit i for page i.
    pub fn kept(&self, range: &AddressRange) -> u64 {
        let behind = &self.pages[self.pages.partition_point(|&page| page < range.start)..];
        let listed = behind.iter().copied().take_while(|&page| page < range.end);
        let told = self.words.each().filter(|word| range.contains(word));
        listed.chain(told).fold(0, |kept, address| kept | 1 << ((address - range.start) / PAGE_SIZE))
    }

    /// A page that is out and has to be in.
    pub fn missing(&mut self) -> Option<usize> {
        self.missing.pop()
    }

    fn list_threads(&mut self) {
        self.heads.clear();
        let heads = &mut self.heads;
        // What is known stays where threads cannot be listed.
        if let Some(tasks) = &self.tasks {
            let _ = tasks.for_each(|thread| match procfs::robust_list(thread) {
                Ok((head, _)) if head != 0 => heads.push(head),
                _ => {}
            });
        }
        self.words.forget_those(thread::is_gone);
    }

    /// Reads all lists to their ends.
    fn read_whole(&mut self) {
        self.pages.clear();
        self.links.clear();
        let mut links = Vec::new();
        self.read_lists(|link| {
            links.push(link);
            false
        });
        links.sort_unstable();
        self.links = links;
        for word in self.words.each() {
            if self.memory.read(&mut [0; 4], word) != Ok(4) {
                self.missing.push(page_of(word));
            }
        }
    }

    /// Reads what is new at the heads of the lists.
    fn read_heads(&mut self) {
        let links = core::mem::take(&mut self.links);
        self.read_lists(|link| links.binary_search(&link).is_ok());
        self.links = links;
    }

    /// Reads lists as [`follow`] does, and adds what pages they lead to.
    fn read_lists(&mut self, mut is_known: impl FnMut((usize, usize)) -> bool) {
        let Robust { memory, heads, pages, missing, .. } = self;
        missing.clear();
        let mut more = Vec::new();
        for &head in heads.iter() {
            let mut keep = |address: usize| {
                let page = page_of(address);
                if more.last() != Some(&page) && pages.binary_search(&page).is_err() {
                    more.push(page);
                }
            };
            keep(head.saturating_sub(NEAR_BYTES));
            let read = |address: usize, words: &mut [u8]| {
                keep(address);
                let is_read = memory.read(words, address) == Ok(words.len());
                if !is_read {
                    missing.push(page_of(address));
                }
                is_read
            };
            follow(head, read, &mut is_known);
        }
        if !more.is_empty() {
            pages.append(&mut more);
            pages.sort_unstable();
            pages.dedup();
        }
    }
}

fn page_of(address: usize) -> usize {
    address / PAGE_SIZE * PAGE_SIZE
}

const WORD: usize = size_of::<usize>();

/// Follows a list: calls `read` for what lies at an address, until it says that this cannot be
/// read, or `is_known` of [`SAME_ENOUGH`] in a row (an entry and its next one) that they are. A
/// lock's own word is asked for, too, where it is in another page.
fn follow(
    head: usize,
    mut read: impl FnMut(usize, &mut [u8]) -> bool,
    mut is_known: impl FnMut((usize, usize)) -> bool,
) {
    let mut words = [0; 3 * WORD];
    if !read(head, &mut words) {
        return;
    }
    let [mut next, offset, pending] = [0, 1, 2].map(|index| word(&words, index));
    let lock = |entry: usize| (entry & !PI).wrapping_add(offset);
    if pending & !PI != 0 {
        read(lock(pending), &mut [0; 4]);
    }
    let mut known = 0;
    for _ in 0..ENTRIES_MAX {
        let entry = next & !PI;
        if entry == head || entry == 0 {
            return;
        }
        if page_of(lock(entry)) != page_of(entry) {
            read(lock(entry), &mut [0; 4]);
        }
        let mut link = [0; WORD];
        if !read(entry, &mut link) {
            return;
        }
        next = word(&link, 0);
        known = if is_known((entry, next & !PI)) { known + 1 } else { 0 };
        if known == SAME_ENOUGH {
            return;
        }
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
    fn asked(memory: &[(usize, usize)], head: usize, known: &[(usize, usize)]) -> Vec<usize> {
        let memory: BTreeMap<usize, usize> = memory.iter().copied().collect();
        let mut asked = Vec::new();
        let read = |address: usize, bytes: &mut [u8]| {
            asked.push(address);
            bytes.chunks_mut(WORD).enumerate().all(|(index, bytes)| {
                let value = memory.get(&(address + index * WORD));
                value.is_some_and(|value| {
                    bytes.copy_from_slice(&value.to_ne_bytes()[..bytes.len()]);
                    true
                })
            })
        };
        follow(head, read, |link| known.contains(&link));
        asked
    }

    #[test]
    fn locks_that_are_held_and_one_that_is_being_taken() {
        const OFFSET: usize = (-32isize).cast_unsigned();
        let head = [(0x1000, 0x5020), (0x1008, OFFSET), (0x1010, 0x9021)];
        // Of the second one the word is in the page before that of the entry.
        let locks = [(0x5020, 0x7011), (0x5000, 1), (0x7010, 0x1000), (0x6ff0, 1), (0x9000, 1)];
        let found = asked(&[&head[..], &locks].concat(), 0x1000, &[]);
        assert_eq!(found, [0x1000, 0x9000, 0x5020, 0x6ff0, 0x7010]);
    }

    #[test]
    fn a_list_ends_where_it_cannot_be_read_or_goes_round() {
        assert_eq!(asked(&[], 0x1000, &[]), [0x1000]);
        let out = [(0x1000, 0x5020), (0x1008, 0), (0x1010, 0)];
        assert_eq!(asked(&out, 0x1000, &[]), [0x1000, 0x5020]);
        let round = [(0x1000, 0x5020), (0x1008, 0), (0x1010, 0), (0x5020, 0x5020)];
        assert_eq!(asked(&round, 0x1000, &[]).len(), 1 + ENTRIES_MAX);
    }

    /// The entries of a list of locks, the last one that was taken first, each with its next one.
    fn links(locks: &[usize]) -> Vec<(usize, usize)> {
        let next = locks[1..].iter().copied().chain([0x1000]);
        locks.iter().copied().zip(next).collect()
    }

    /// How many of a list with these links are asked for, and whether those of `wanted` are.
    fn asked_anew(links: &[(usize, usize)], known: &[(usize, usize)], wanted: &[usize]) -> (usize, bool) {
        let head = [(0x1000, links[0].0), (0x1008, 0), (0x1010, 0)];
        let asked = asked(&[&head[..], links].concat(), 0x1000, known);
        (asked.len(), wanted.iter().all(|address| asked.contains(address)))
    }

    #[test]
    fn what_is_new_is_found_without_reading_all() {
        let before: Vec<usize> = (1..=1000).rev().map(|lock| 0x10000 * lock).collect();
        let known = links(&before);
        assert_eq!(asked_anew(&known, &known, &[]), (1 + SAME_ENOUGH, true));
        // One was given back, and taken again behind another one: the head is the one of before.
        let now = [&[before[0], 0x3000, before[1], 0x4000], &before[2..]].concat();
        assert_eq!(asked_anew(&links(&now), &known, &[0x3000, 0x4000]), (1 + 4 + SAME_ENOUGH, true));
    }
}
