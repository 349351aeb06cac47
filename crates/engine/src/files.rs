//! The files that regions stand for: which slots are which pages of which file.
//!
//! To `mm` a page of a file is a slot that it never allocates and never writes
//! ([`Slot::is_file`]). Here is what such a slot means: a descriptor, an offset, and how many of
//! its bytes there are. Pages behind the file's end are not read at all, its last page in part.
//! Where a page lies in memory is not known here: mappings are cut and moved, slots are not.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use overspill_mm::types::Slot;
use overspill_sys::mem::Mapping;
use overspill_sys::{Errno, Fd, PAGE_SIZE, file, lease};

use crate::file_table::MappedFile;

const PAGE: u64 = PAGE_SIZE as u64;

/// A file to map.
#[derive(Debug)]
pub struct Source {
    /// The file, open for reading; past the page cache where that can be.
    pub file: Fd,
    /// The mapping's first byte in it; a multiple of the page size.
    pub offset: u64,
    /// The file's length.
    pub len: u64,
    /// The program may store to its pages, which are its own then.
    pub writable: bool,
    /// What is stored is meant for the file: stores are followed from one sync to the next.
    pub shared: bool,
    /// Of a program that does not know of this.
    pub program: Option<Program>,
}

/// What goes with a file that an unmodified program has mapped.
pub struct Program {
    /// Its place in the table that the program's threads look at.
    pub place: &'static MappedFile,
    /// Its number there.
    pub index: usize,
    /// The file, open for reading, as anybody would open it. What is mapped is mapped by this one: a
    /// mapping keeps its open file, and that one's lease.
    pub plain: Fd,
    /// The same part of it, mapped by the kernel, for children of fork.
    pub twin: Mapping,
    /// A read lease is held on the [`Source`]'s file.
    pub leased: bool,
    /// Nobody can write to it past such a lease ([`file::Space::is_local`]).
    pub is_local: bool,
    /// What was known of it last; `None`: it is to be taken for changed.
    pub known: Option<file::Status>,
}

impl Program {
    /// This is known of the file now: was it written to? Not while the lease is held, if all writers
    /// meet it.
    ///
    /// *The story:* `touch` sent a leased mapping back to the kernel, and who wrote to one without a
    /// lease and set the time back was not seen.
    /// *The other story:* a lease was believed of a network's file, too. The server's other clients know
    /// nothing of it: pages in RAM stayed as they were, and those that had left came back new.
    fn is_changed(&mut self, now: file::Status) -> bool {
        let Some(known) = self.known.replace(now) else { return true };
        !(self.leased && self.is_local) && now.may_be_written_since(&known)
    }
}

impl core::fmt::Debug for Program {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Program")
            .field("index", &self.index)
            .field("leased", &self.leased)
            .finish_non_exhaustive()
    }
}

/// A mapped part of a file.
pub(crate) struct Mapped {
    pub source: Source,
    pub pages: u32,
    pub first_slot: u32,
    /// Of writable ones without protection: the fingerprints of what was read, 0 = not known.
    prints: Vec<u64>,
    /// Of protected ones: a bit for each page that was stored to.
    stored: Vec<AtomicU64>,
    /// While what was stored is being written to the file: the same for stores since that began.
    since_sync: Option<Vec<u64>>,
    is_protected: bool,
    /// The shortest that the file was seen since the last look.
    shortest: u64,
    /// Slots behind the file's end whose touch may not raise SIGBUS by itself yet.
    pub unpoisoned: Range<u32>,
    /// It is the kernel's again, but for what was stored to.
    is_handed_back: bool,
    /// Of one handed back: some of what was stored to shows the file again.
    has_rest: bool,
}

/// What was seen of a file.
pub(crate) struct Seen {
    /// The shortest that it was since the last look, and its length now.
    pub lengths: [u64; 2],
    /// Somebody has written to it, or wants to.
    pub is_changed: bool,
}

/// Where bytes are to be read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// The descriptor.
    pub fd: i32,
    /// The first byte.
    pub offset: u64,
    /// Bytes from there to the end of the file.
    pub available: u64,
}

/// All of them, in the order of their slots.
#[derive(Default)]
pub(crate) struct Files {
    mapped: Vec<Mapped>,
    /// Of them, those whose stores are the file's.
    shared: usize,
}

impl Files {
    /// Gives the pages of a mapping slots; where `protects`, stores to them are told before they are
    /// made. ENOSPC: there are too many.
    pub fn add(&mut self, source: Source, pages: u64, protects: bool) -> Result<Slot, Errno> {
        assert!(source.offset.is_multiple_of(PAGE), "mappings begin at pages of the file");
        let pages = u32::try_from(pages).map_err(|_| Errno::NOSPC)?;
        let (at, first_slot) = self.gap(pages).ok_or(Errno::NOSPC)?;
        let is_protected = protects && (source.writable || source.program.is_some());
        let words = if is_protected { pages.div_ceil(u64::BITS) } else { 0 };
        let stored = (0..words).map(|_| AtomicU64::new(0)).collect();
        let mapped = Mapped {
            source,
            pages,
            first_slot,
            prints: Vec::new(),
            stored,
            since_sync: None,
            is_protected,
            shortest: u64::MAX,
            unpoisoned: 0..0,
            is_handed_back: false,
            has_rest: false,
        };
        mapped.publish();
        self.shared += usize::from(mapped.source.shared);
        self.mapped.insert(at, mapped);
        Ok(Slot(first_slot))
    }

    /// The first place where so many slots are free, with one left out at the end so that no request
    /// spans two mappings.
    fn gap(&self, pages: u32) -> Option<(usize, u32)> {
        let mut from = Slot::FILES;
        let needed = pages.checked_add(1)?;
        for (at, mapped) in self.mapped.iter().enumerate() {
            if mapped.first_slot - from >= needed {
                return Some((at, from));
            }
            from = mapped.first_slot.checked_add(mapped.pages)?.checked_add(1)?;
        }
        from.checked_add(needed)?;
        Some((self.mapped.len(), from))
    }

    /// Forgets a mapping, and closes its file.
    pub fn remove(&mut self, first_slot: u32) {
        let Some(at) = self.mapped.iter().position(|mapped| mapped.first_slot == first_slot) else { return };
        let mut mapped = self.mapped.remove(at);
        self.shared -= usize::from(mapped.source.shared);
        mapped.give_up_lease();
        // Before what children look at is gone.
        if let Some(program) = &mapped.source.program {
            program.place.withdraw();
        }
    }

    /// The mapping whose first slot it is, if that is not over.
    pub fn find(&mut self, first_slot: u32) -> Option<&mut Mapped> {
        self.mapped.iter_mut().find(|mapped| mapped.first_slot == first_slot)
    }

    /// The mapping to which a slot belongs.
    pub fn of_slot(&mut self, slot: Slot) -> &mut Mapped {
        self.mapped
            .iter_mut()
            .find(|mapped| (mapped.first_slot..mapped.first_slot + mapped.pages).contains(&slot.0))
            .expect("a file's slot is known as long as a page has it")
    }

    /// Where a slot's bytes are.
    pub fn spot(&mut self, slot: Slot) -> Spot {
        let mapped = self.of_slot(slot);
        let offset = mapped.source.offset + u64::from(slot.0 - mapped.first_slot) * PAGE;
        let available = mapped.source.len.saturating_sub(offset);
        Spot { fd: mapped.source.file.raw(), offset, available }
    }

    /// All of them.
    pub fn each(&mut self) -> impl Iterator<Item = &mut Mapped> {
        self.mapped.iter_mut()
    }

    /// Are there any whose stores are the file's?
    pub fn has_shared(&self) -> bool {
        self.shared > 0
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }
}

impl Mapped {
    /// The slots that lie behind the file's end wholly, if some do.
    pub fn first_beyond(&self) -> Option<u32> {
        let beyond = self.slots_beyond(self.source.len);
        (!beyond.is_empty()).then_some(beyond.start)
    }

    /// Those that would lie behind its end wholly if it were so long.
    pub fn slots_beyond(&self, len: u64) -> Range<u32> {
        let inside = len.saturating_sub(self.source.offset).div_ceil(PAGE).min(self.pages.into());
        self.first_slot + inside as u32..self.first_slot + self.pages
    }

    /// The page that the end would divide if it were so long, if that has not been stored to. Where
    /// stores are not told nobody knows, and it stays.
    ///
    /// *The story:* without UFFDIO_MOVE a store to the last page was lost when somebody appended to the
    /// file.
    pub fn divided_clean(&self, len: u64) -> Option<Slot> {
        if self.source.writable && !self.is_protected {
            return None;
        }
        let index = len.checked_sub(self.source.offset)? / PAGE;
        let index = u32::try_from(index).ok().filter(|&index| index < self.pages)?;
        let slot = Slot(self.first_slot + index);
        (!len.is_multiple_of(PAGE) && !self.is_stored(slot)).then_some(slot)
    }

    /// Looks at the file.
    pub fn look(&mut self) -> Seen {
        let unchanged = [self.source.len; 2];
        let program = &mut self.source.program;
        let leased = program.as_ref().is_some_and(|program| program.leased);
        if leased && lease::is_breaking(&self.source.file) {
            return Seen { lengths: unchanged, is_changed: true };
        }
        let Ok(status) = file::status(&self.source.file) else {
            return Seen { lengths: unchanged, is_changed: false };
        };
        let shortest = core::mem::replace(&mut self.shortest, u64::MAX).min(status.len);
        let is_changed = program.as_mut().is_some_and(|program| program.is_changed(status));
        Seen { lengths: [shortest, status.len], is_changed }
    }

    /// What was seen could not be followed: it is seen again at the next look.
    pub fn note_unsettled(&mut self, seen: Seen) {
        self.shortest = self.shortest.min(seen.lengths[0]);
        if let Some(program) = self.source.program.as_mut().filter(|_| seen.is_changed) {
            program.known = None;
        }
    }

    /// A read has failed: the file may have been cut, and may grow again before anybody looks.
    pub fn note_failed_read(&mut self) {
        if let Ok(status) = file::status(&self.source.file) {
            self.shortest = self.shortest.min(status.len);
        }
    }

    /// It is the kernel's again, but for what was stored to. True: it was not before.
    pub fn note_handed_back(&mut self) -> bool {
        !core::mem::replace(&mut self.is_handed_back, true)
    }

    /// Was it handed back?
    pub fn is_handed_back(&self) -> bool {
        self.is_handed_back
    }

    /// Is there something that could not be handed back with the rest, and can be now? It is the
    /// caller's to do so.
    pub fn take_rest(&mut self) -> bool {
        core::mem::take(&mut self.has_rest)
    }

    fn publish(&self) {
        if let Some(program) = &self.source.program {
            program.place.publish(&program.twin.range(), &self.stored);
        }
    }

    /// Whoever waits for the lease goes on. What is the kernel's needs none.
    ///
    /// *The story:* a mapping that was handed back kept its lease, since the kernel's had been made by the
    /// open file that had it. Whoever opened the file for writing waited for 45 s (`torture file-lease`).
    pub fn give_up_lease(&mut self) {
        let program = self.source.program.as_mut();
        if program.is_some_and(|program| core::mem::take(&mut program.leased)) {
            let _ = lease::give_up(&self.source.file);
        }
    }

    /// Does whoever wants to write to it wait for a lease?
    pub fn is_leased(&self) -> bool {
        self.source.program.as_ref().is_some_and(|program| program.leased && program.is_local)
    }

    /// Are stores to its pages told before they are made?
    pub fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// May the program store to it now?
    pub fn may_store(&self) -> bool {
        self.source.program.as_ref().map_or(self.source.writable, |program| program.place.may_store())
    }

    fn index(&self, slot: Slot) -> usize {
        (slot.0 - self.first_slot) as usize
    }

    fn indices(&self, slots: &Range<u32>) -> Range<usize> {
        (slots.start - self.first_slot) as usize..(slots.end - self.first_slot) as usize
    }

    /// The words of what was stored to, each with the slot of its first bit. A large file has many, and most
    /// are zero: nobody's faults are answered while they are looked at.
    ///
    /// *The story:* they were looked at bit by bit. A sync of a sparse file of 1 TiB of which one page was
    /// stored to kept everybody waiting for 2.5 s.
    fn words(&self) -> impl Iterator<Item = (u32, &AtomicU64)> {
        (self.first_slot..).step_by(64).zip(&self.stored)
    }

    /// A page is about to be stored to.
    pub fn note_store(&mut self, slot: Slot) {
        let index = self.index(slot);
        self.stored[index / 64].fetch_or(1 << (index % 64), SeqCst);
        if let Some(since) = &mut self.since_sync {
            since[index / 64] |= 1 << (index % 64);
        }
    }

    /// Are further stores to a page to be told? Not where one has been, since a sync began if one is
    /// under way.
    pub fn wants_stores(&self, slot: Slot) -> bool {
        let index = self.index(slot);
        let is_noted = |since: &Vec<u64>| since[index / 64] >> (index % 64) & 1 != 0;
        self.is_protected && !self.since_sync.as_ref().map_or_else(|| self.is_stored(slot), is_noted)
    }

    /// What was stored is going to be written to the file. The runs of slots that this concerns, in the
    /// file's order: stores to them are to be told again.
    pub fn begin_sync(&mut self) -> Vec<Range<u32>> {
        assert!(self.source.shared && self.since_sync.is_none(), "one sync of a shared mapping at a time");
        self.since_sync = Some(vec![0; self.stored.len()]);
        let mut runs = Vec::new();
        for (first, stored) in self.words() {
            extend(&mut runs, first, stored.load(SeqCst));
        }
        runs
    }

    /// The sync has ended. If it went well the file holds what was stored before it began: the runs of
    /// slots whose pages are as the file has them now.
    pub fn end_sync(&mut self, went_well: bool) -> Vec<Range<u32>> {
        let since = self.since_sync.take().expect("a sync ends once");
        let mut clean = Vec::new();
        if !went_well {
            return clean;
        }
        // What is stored to since is stored to: where nothing is, the other need not be touched.
        for ((first, stored), since) in self.words().zip(since.iter()) {
            if stored.load(SeqCst) != 0 {
                extend(&mut clean, first, stored.fetch_and(*since, SeqCst) & !since);
            }
        }
        clean
    }

    /// The stores to pages are gone; the next ones are told again, during a sync as well.
    ///
    /// *The story:* a file was cut and grew while it was synced. A page that had been stored to since the
    /// sync began came back open, and nobody heard of what was stored then.
    pub fn forget_stores(&mut self, slots: Range<u32>) {
        self.has_rest |= self.is_handed_back;
        if !self.is_protected {
            return;
        }
        for (word, bits) in words_of(self.indices(&slots)) {
            if self.stored[word].load(SeqCst) == 0 {
                continue;
            }
            self.stored[word].fetch_and(!bits, SeqCst);
            if let Some(since) = &mut self.since_sync {
                since[word] &= !bits;
            }
        }
    }

    /// The runs of those that were not stored to.
    pub fn not_stored(&self, slots: Range<u32>) -> Vec<Range<u32>> {
        if !self.is_protected {
            return if slots.is_empty() { Vec::new() } else { vec![slots] };
        }
        let mut runs = Vec::new();
        for (word, bits) in words_of(self.indices(&slots)) {
            let first = self.first_slot + word as u32 * u64::BITS;
            extend(&mut runs, first, bits & !self.stored[word].load(SeqCst));
        }
        runs
    }

    /// Was the page stored to?
    pub fn is_stored(&self, slot: Slot) -> bool {
        let index = self.index(slot);
        self.is_protected && self.stored[index / 64].load(SeqCst) >> (index % 64) & 1 != 0
    }

    /// Was any?
    pub fn has_stores(&self) -> bool {
        self.stored.iter().any(|word| word.load(SeqCst) != 0)
    }

    /// Notes what was read for a slot.
    pub fn note(&mut self, slot: Slot, print: u64) {
        let index = self.index(slot);
        if self.prints.len() <= index {
            self.prints.resize(index + 1, 0);
        }
        self.prints[index] = print;
    }

    /// Is that what was read for the slot?
    pub fn is(&self, slot: Slot, print: u64) -> bool {
        self.prints.get(self.index(slot)) == Some(&print)
    }
}

/// Slots more, in ascending order: those that have a bit, counted from `first` on.
fn extend(runs: &mut Vec<Range<u32>>, first: u32, mut bits: u64) {
    let mut at = first;
    while bits != 0 {
        let gap = bits.trailing_zeros();
        let count = (bits >> gap).trailing_ones();
        let (start, end) = (at + gap, at + gap + count);
        match runs.last_mut().filter(|run| run.end == start) {
            Some(run) => run.end = end,
            None => runs.push(start..end),
        }
        at = end;
        bits = bits.checked_shr(gap + count).unwrap_or(0);
    }
}

/// The words in which bits lie, and which bits of each.
fn words_of(indices: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words =
        indices.start / 64..if indices.is_empty() { indices.start / 64 } else { indices.end.div_ceil(64) };
    words.map(move |word| {
        let below = |end: usize| match end.saturating_sub(word * 64) {
            count @ 0..64 => (1 << count) - 1,
            _ => u64::MAX,
        };
        (word, below(indices.end) & !below(indices.start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let file = file::memfd(c"files").expect("memory files are there");
        Source { file, offset: 0, len: 10 * PAGE, writable: true, shared: true, program: None }
    }

    #[test]
    fn slots_are_used_again_and_never_touch() {
        let mut files = Files::default();
        let first = files.add(source(), 10, true).unwrap();
        let second = files.add(source(), 5, true).unwrap();
        assert_eq!((first.0, second.0), (Slot::FILES, Slot::FILES + 11));
        files.remove(first.0);
        assert_eq!(files.add(source(), 11, true).unwrap().0, second.0 + 6, "too long for the gap");
        assert_eq!(files.add(source(), 10, true).unwrap(), first);
        assert_eq!(files.add(source(), u64::from(u32::MAX), true), Err(Errno::NOSPC));
    }

    #[test]
    fn stores_are_remembered_and_forgotten() {
        let mut files = Files::default();
        let first = files.add(source(), 100, true).unwrap();
        let mapped = files.of_slot(first);
        assert_eq!(mapped.first_beyond(), Some(first.0 + 10));
        mapped.note_store(Slot(first.0 + 70));
        assert!(mapped.is_stored(Slot(first.0 + 70)) && !mapped.is_stored(Slot(first.0 + 71)));
        mapped.forget_stores(first.0 + 64..first.0 + 80);
        assert!(!mapped.has_stores());
    }

    /// A store while what was stored before is on its way to the file is the next sync's.
    #[test]
    fn a_sync_settles_what_was_stored_before_it_began() {
        let mut files = Files::default();
        let first = files.add(source(), 100, true).unwrap();
        let mapped = files.of_slot(first);
        let slot = |at: u32| Slot(first.0 + at);
        [3, 4, 70].into_iter().for_each(|at| mapped.note_store(slot(at)));
        assert!(!mapped.wants_stores(slot(3)) && mapped.wants_stores(slot(5)));
        let run = |from: u32, to: u32| first.0 + from..first.0 + to;
        assert_eq!(mapped.begin_sync(), [run(3, 5), run(70, 71)]);
        assert!(mapped.wants_stores(slot(3)) && mapped.is_stored(slot(3)), "it is not in the file yet");
        [4, 9].into_iter().for_each(|at| mapped.note_store(slot(at)));
        assert!(!mapped.wants_stores(slot(4)));
        assert_eq!(mapped.end_sync(false), []);
        assert_eq!(mapped.begin_sync(), [run(3, 5), run(9, 10), run(70, 71)], "all of it, once more");
        mapped.note_store(slot(4));
        assert_eq!(mapped.end_sync(true), [run(3, 4), run(9, 10), run(70, 71)]);
        assert_eq!(mapped.not_stored(run(3, 7)), [run(3, 4), run(5, 7)]);
        assert_eq!(mapped.begin_sync(), [run(4, 5)]);
        mapped.note_store(slot(4));
        mapped.forget_stores(run(0, 50));
        assert!(mapped.wants_stores(slot(4)), "the file was cut, and may grow again");
        mapped.note_store(slot(4));
        mapped.end_sync(true);
        assert_eq!(mapped.begin_sync(), [run(4, 5)]);
        mapped.end_sync(true);
        assert!(!mapped.has_stores());
    }

    #[test]
    fn runs_are_the_same_by_words_as_by_bits() {
        let bits = [0, 1, 1 << 63, u64::MAX, 0b1011_0111 << 40 | 3, u64::MAX << 5, u64::MAX >> 7, 5 << 61];
        for (one, two) in bits.iter().flat_map(|one| bits.map(|two| (*one, two))) {
            let mut runs = Vec::new();
            extend(&mut runs, 1000, one);
            extend(&mut runs, 1064, two);
            let wanted = |at: u32| u128::from(two) << 64 >> at & 1 != 0 || at < 64 && one >> at & 1 != 0;
            let found: Vec<u32> = runs.iter().cloned().flatten().collect();
            let expected: Vec<u32> = (0..128).filter(|&at| wanted(at)).map(|at| 1000 + at).collect();
            assert_eq!(found, expected, "{one:#x}, {two:#x}");
            assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
        }
        for (start, end) in (0..=130).flat_map(|start| [0, 1, 63, 64, 65, 128, 130].map(|end| (start, end))) {
            let at = |(word, bits): (usize, u64)| {
                (0..64).filter(move |at| bits >> at & 1 != 0).map(move |at| word * 64 + at)
            };
            let found: Vec<usize> = words_of(start..end).flat_map(at).collect();
            assert_eq!(found, (start..end).collect::<Vec<_>>());
        }
    }

    /// *The story:* see [`Mapped::words`].
    #[test]
    fn a_sync_of_a_large_file_looks_at_what_was_stored_to() {
        const PAGES: u32 = 1 << 28;
        let mut files = Files::default();
        let first = files.add(source(), PAGES.into(), true).unwrap();
        let mapped = files.of_slot(first);
        mapped.note_store(Slot(first.0 + 12_345));
        let begin_ns = overspill_sys::clock::thread_cpu_ns();
        let run = first.0 + 12_345..first.0 + 12_346;
        assert_eq!(mapped.begin_sync(), core::slice::from_ref(&run));
        assert_eq!(mapped.end_sync(true), core::slice::from_ref(&run));
        let all = first.0..first.0 + PAGES;
        assert_eq!(mapped.not_stored(all.clone()), core::slice::from_ref(&all));
        mapped.forget_stores(first.0..first.0 + PAGES);
        let took_ns = overspill_sys::clock::thread_cpu_ns() - begin_ns;
        // By bits it is some seconds.
        assert!(took_ns < 1_000_000_000, "{took_ns} ns of this thread");
    }

    #[test]
    fn the_shortest_that_a_file_was_is_seen() {
        let mut files = Files::default();
        let first = files.add(source(), 100, true).unwrap();
        let mapped = files.of_slot(first);
        let resize = |mapped: &Mapped, len| file::truncate(&mapped.source.file, len).unwrap();
        resize(mapped, 5 * PAGE + 7);
        mapped.note_failed_read();
        resize(mapped, 20 * PAGE);
        assert_eq!(mapped.look().lengths, [5 * PAGE + 7, 20 * PAGE]);
        assert_eq!(mapped.look().lengths, [20 * PAGE; 2]);
        let divided = |mapped: &Mapped, len| mapped.divided_clean(len).map(|slot| slot.0 - first.0);
        let lengths = [5 * PAGE, 5 * PAGE + 7, 200 * PAGE + 1];
        assert_eq!(lengths.map(|len| divided(mapped, len)), [None, Some(5), None]);
        assert_eq!([0, 200 * PAGE + 1].map(|len| mapped.slots_beyond(len).len()), [100, 0]);
        mapped.note_store(Slot(first.0 + 5));
        assert_eq!(divided(mapped, 5 * PAGE + 7), None);
    }

    /// Takes a lease, if there are any here; until a moment ago somebody wrote to the file.
    fn take_lease(file: &Fd) -> bool {
        for _ in 0..200 {
            match lease::take(file) {
                Ok(()) => return true,
                // A child that another test made has the descriptor still.
                Err(Errno::AGAIN) => std::thread::sleep(std::time::Duration::from_millis(5)),
                Err(_) => return false,
            }
        }
        false
    }

    /// *The story:* `touch` sent a mapping back to the kernel although its lease was held, and a change
    /// after which the time was set back was not seen where there is none. Then a lease was believed
    /// where not all writers meet it; and a new name, or chmod, sent a mapping back.
    #[test]
    fn a_lease_says_more_than_times_do_where_all_meet_it() {
        static TABLE: crate::file_table::FileTable = crate::file_table::FileTable::new();
        let path = std::env::temp_dir().join(std::format!("overspill-leased-{}", std::process::id()));
        std::fs::write(&path, [1; 5000]).unwrap();
        let opened = std::fs::File::open(&path).unwrap();
        let open = || {
            let copy = std::os::fd::IntoRawFd::into_raw_fd(opened.try_clone().unwrap());
            // SAFETY: the number was owned by what was just taken apart.
            unsafe { Fd::from_raw(copy) }
        };
        let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1000);
        for (wanted, is_local) in [(true, true), (true, false), (false, true)] {
            let mut files = Files::default();
            let plain = open();
            let leased = wanted && take_lease(&plain);
            let twin = Mapping::aside(&plain, 2 * PAGE_SIZE, 0, true).unwrap();
            let is_believed = leased && is_local;
            let known = file::status(&plain).ok();
            let index = TABLE.take().unwrap();
            let program = Program { place: TABLE.file(index), index, plain, twin, leased, is_local, known };
            let source = Source {
                file: open(),
                offset: 0,
                len: 5000,
                writable: false,
                shared: false,
                program: Some(program),
            };
            let first = files.add(source, 2, true).unwrap();
            let mut is_changed = || files.of_slot(first).look().is_changed;
            assert!(!is_changed());
            std::thread::sleep(std::time::Duration::from_millis(20));
            opened.set_modified(before).unwrap();
            assert_eq!(is_changed(), !is_believed);
            assert!(!is_changed());
            std::thread::sleep(std::time::Duration::from_millis(20));
            let name = path.with_extension("name");
            std::fs::hard_link(&path, &name).unwrap();
            assert!(!is_changed(), "it has a new name");
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::remove_file(&name).unwrap();
            assert!(!is_changed(), "and lost it");
            if !leased {
                std::thread::sleep(std::time::Duration::from_millis(20));
                std::fs::write(&path, [2; 5000]).unwrap();
                opened.set_modified(before).unwrap();
                assert!(is_changed(), "written, and the time set back");
            }
            let seen = Seen { lengths: [5000; 2], is_changed: true };
            files.of_slot(first).note_unsettled(seen);
            assert!(files.of_slot(first).look().is_changed, "what could not be followed is seen again");
            files.of_slot(first).give_up_lease();
            assert!(!files.of_slot(first).source.program.as_ref().unwrap().leased);
            assert!(lease::is_breaking(&files.of_slot(first).source.file), "there is none any more");
            files.remove(first.0);
            assert!(TABLE.file(index).twin().is_empty());
        }
        std::fs::remove_file(&path).unwrap();
    }
}
