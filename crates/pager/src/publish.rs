//! How what was stored to a shared mapping of a file gets there: in the file's order, in large
//! requests, by whoever syncs.
//!
//! Which pages were stored to the engine knows ([`overspill_engine::Engine::begin_sync`]). Until a
//! sync has gone well all of them count as stored to: what could not be written or settled is here
//! still, in RAM or on swap, and the next sync writes it once more.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use overspill_engine::Engine;
use overspill_sys::mem::{Mapping, copy_from_self};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use crate::file::{Page, Store};
use crate::link::Wire;
use crate::{Error, raw};

/// Pages in the largest request, 1 MiB.
const REQUEST_MAX: usize = 256;

/// Runs of pages that are protected in one go. Nobody's faults are answered meanwhile.
const PORTION: usize = 4096;

/// Of the budget, what is read ahead for a sync at most, and in how many pieces: the engine remembers 64,
/// and others want some of them.
const AHEAD_PART: u32 = 16;
const AHEAD_PIECES: usize = 32;

/// Bytes whose slots are given up in one go.
const FREED: usize = 4 << 20;

/// How often a sync tries to begin while the process is changing its mappings, 1 ms apart.
const ATTEMPTS: usize = 1000;

/// A file that a mapping publishes to.
pub(crate) struct Publisher {
    store: Box<dyn Store>,
    /// The bytes of the file that the region stands for. What lies beside them in their first and last
    /// page is others'.
    bytes: Range<u64>,
    /// Held by whoever syncs: what a device failed to write it tells to one of those who ask it.
    alone: Mutex<()>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Publisher {
    pub fn new(store: Box<dyn Store>, bytes: Range<u64>) -> Publisher {
        Publisher { store, bytes, alone: Mutex::new(()) }
    }

    /// Writes what was stored to the mapping, and returns when it is on stable storage.
    ///
    /// *The story:* a child that was forked during a sync waited for ever, as the lock's holder is not
    /// in it.
    pub fn sync(&self, mapping: &Mapping, wire: &Wire) -> Result<(), Error> {
        if !wire.is_ours() {
            return Err(Error::Stopped);
        }
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let start = mapping.start();
        let runs = begin(start, wire)?;
        let outcome = self.write_and_settle(mapping, &runs, wire);
        let went_well = outcome.is_ok();
        let clean = wire.ask(move |engine| engine.end_sync(start, went_well))?;
        free_synced(start, &clean, wire)?;
        outcome.map_err(Error::Io)
    }

    fn write_and_settle(&self, mapping: &Mapping, runs: &[Range<usize>], wire: &Wire) -> Result<(), Errno> {
        if runs.is_empty() {
            return Ok(());
        }
        let mut buffer = vec![Page([0; PAGE_SIZE]); REQUEST_MAX];
        let pieces = pieces(runs);
        let mut ahead = Ahead::new(mapping.start(), &pieces, wire);
        // What cannot be read or written keeps nothing else from the device.
        let mut outcome = Ok(());
        for (at, piece) in pieces.iter().enumerate() {
            ahead.reach(at);
            outcome = outcome.and(self.publish(mapping, piece.clone(), &mut buffer));
        }
        // Settled is what could be written, whatever became of the rest.
        let settled = self.store.sync(false);
        outcome.and(settled)
    }

    /// Writes bytes of the mapping as they are now. The kernel copies them: it fails where a touch would
    /// raise SIGBUS. What the file no longer has is passed over, another such page is an error.
    ///
    /// *The story:* a file that was cut during a sync ended the process, and so did each sync of a
    /// mapping with a page that swap had lost.
    fn publish(&self, mapping: &Mapping, bytes: Range<usize>, buffer: &mut [Page]) -> Result<(), Errno> {
        let (mut at, mut outcome) = (bytes.start, Ok(()));
        while at < bytes.end {
            let wanted = &mut buffer[..(bytes.end - at) / PAGE_SIZE];
            let copied = match copy_from_self(raw::page_bytes_mut(wanted), mapping.start() + at) {
                Ok(copied) => copied / PAGE_SIZE,
                Err(Errno::FAULT) => 0,
                Err(errno) => return Err(errno),
            };
            let page = self.first() + (at / PAGE_SIZE) as u64;
            let written = if copied > 0 { self.write(page, &buffer[..copied]) } else { self.pass_over(page) };
            outcome = outcome.and(written);
            at += copied.max(1) * PAGE_SIZE;
        }
        outcome
    }

    fn first(&self) -> u64 {
        self.bytes.start / PAGE_SIZE as u64
    }

    /// A page of the file cannot be read through the mapping: that is as it should be behind its end.
    fn pass_over(&self, page: u64) -> Result<(), Errno> {
        if page * PAGE_SIZE as u64 >= self.store.len()? { Ok(()) } else { Err(Errno::IO) }
    }

    /// Writes pages, as far as the region stands for their bytes; page by page what cannot be written
    /// together. The file does not become longer.
    ///
    /// *The story:* zeroes were written over what somebody had appended within the last page, and of two
    /// regions that met within a page each undid what the other had synced.
    fn write(&self, first: u64, pages: &[Page]) -> Result<(), Errno> {
        let end = self.bytes.end.min(self.store.len()?);
        let head = (self.bytes.start % PAGE_SIZE as u64) as usize;
        if first == self.first() && head > 0 {
            let start = self.bytes.start - head as u64;
            let to = end.saturating_sub(start).min(PAGE_SIZE as u64) as usize;
            let (page, rest) = pages.split_at(1);
            let part = raw::page_bytes(page).get(head..to).unwrap_or(&[]);
            let written = self.store.write_part(part, self.bytes.start);
            return written.and(self.write_whole(first + 1, rest, end));
        }
        self.write_whole(first, pages, end)
    }

    fn write_whole(&self, first: u64, pages: &[Page], end: u64) -> Result<(), Errno> {
        if pages.is_empty() || self.store.write(first, pages, end).is_ok() {
            return Ok(());
        }
        let singly = (first..).zip(pages.chunks(1)).map(|(page, copy)| self.store.write(page, copy, end));
        singly.fold(Ok(()), Result::and)
    }
}

/// The runs, in pieces of one request each.
fn pieces(runs: &[Range<usize>]) -> Vec<Range<usize>> {
    const BYTES: usize = REQUEST_MAX * PAGE_SIZE;
    let of_run = |run: &Range<usize>| {
        let end = run.end;
        run.clone().step_by(BYTES).map(move |at| at..end.min(at + BYTES))
    };
    runs.iter().flat_map(of_run).collect()
}

/// Has pages read that are about to be published and have left, many at a time.
///
/// *The story:* whoever synced met them one by one, with two or three requests for 16 neighbours. Then as
/// many pieces as there were were asked for, of which the engine remembered 64 and no prefetch beside
/// them; and in small budgets none was, an order for each piece.
struct Ahead<'a> {
    start: usize,
    pieces: &'a [Range<usize>],
    wire: &'a Wire,
    /// Bytes that may be asked for and not published.
    most: usize,
    /// The first piece that was not asked for.
    next: usize,
    /// Before this one nothing more is asked for: the engine had no use for it.
    again: usize,
}

impl<'a> Ahead<'a> {
    fn new(start: usize, pieces: &'a [Range<usize>], wire: &'a Wire) -> Ahead<'a> {
        let budget = wire.ask(|engine| engine.budget()).unwrap_or(0);
        let most = (budget / AHEAD_PART) as usize * PAGE_SIZE;
        Ahead { start, pieces, wire, most, next: 0, again: 0 }
    }

    /// The piece of that number comes now. When half of what was asked for is done, more is.
    fn reach(&mut self, at: usize) {
        self.next = self.next.max(at);
        let ahead: usize = self.pieces[at..self.next].iter().map(Range::len).sum();
        if at >= self.again && self.next - at < AHEAD_PIECES / 2 && ahead < self.most / 2 {
            self.ask(at, self.most - ahead);
        }
    }

    fn ask(&mut self, at: usize, room: usize) {
        let wanted = self.wanted(AHEAD_PIECES - (self.next - at), room, self.next == at);
        let count = wanted.len();
        if count == 0 {
            return;
        }
        let take =
            move |engine: &mut Engine| wanted.iter().take_while(|part| engine.foresee(part) == 0).count();
        // Who cannot be told of it reads what is missing as it is met.
        let taken = self.wire.ask(take).unwrap_or(0);
        self.next += taken;
        if taken < count {
            self.again = at + AHEAD_PIECES / 2;
        }
    }

    /// The next pieces, as many as there is room for. What comes now is cut to that.
    fn wanted(&self, count: usize, mut room: usize, comes_now: bool) -> Vec<AddressRange> {
        let mut wanted = Vec::new();
        for piece in self.pieces[self.next..].iter().take(count) {
            let len = if comes_now && wanted.is_empty() { piece.len().min(room) } else { piece.len() };
            if len > room {
                break;
            }
            room -= len;
            let start = self.start + piece.start;
            wanted.push(start..start + len);
        }
        wanted
    }
}

/// What is in the file needs no place on swap any more. The pager's thread serves others in between.
///
/// *The story:* the end of a sync was a visit to each page that had been written, one after the other,
/// and whoever had a fault waited.
fn free_synced(start: usize, runs: &[Range<usize>], wire: &Wire) -> Result<(), Error> {
    let pieces = pieces(runs);
    let mut rest = &pieces[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let is_in = |piece: &&Range<usize>| {
            let is_in = bytes < FREED;
            bytes += piece.len();
            is_in
        };
        let (portion, others) = rest.split_at(rest.iter().take_while(is_in).count());
        let portion = portion.to_vec();
        wire.ask(move |engine| engine.free_synced(start, &portion))?;
        rest = others;
    }
    Ok(())
}

/// Begins a sync: the runs of bytes to be written, stores to which are told from now on.
fn begin(start: usize, wire: &Wire) -> Result<Vec<Range<usize>>, Error> {
    for _ in 0..ATTEMPTS {
        let runs = wire.ask(move |engine| engine.begin_sync(start))?;
        if protect(start, &runs, wire)? {
            return Ok(runs);
        }
        wire.ask(move |engine| engine.end_sync(start, false))?;
        // The pager's thread hears of the change that is under way in between.
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::Io(Errno::AGAIN))
}

/// Has stores to the runs be told. False: the mapping is changing just now.
fn protect(start: usize, runs: &[Range<usize>], wire: &Wire) -> Result<bool, Error> {
    for portion in runs.chunks(PORTION) {
        let portion = portion.to_vec();
        if !wire.ask(move |engine| engine.tell_stores(start, &portion))? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

    use overspill_sys::Fd;
    use overspill_sys::file::{self, Open};
    use overspill_sys::mem::{self, Prot};

    use super::*;
    use crate::{FileRegion, MapOptions, Pager};

    const PAGES: usize = 2048;

    /// A device that forgets what it fails to settle, as a kernel does after it has told so once.
    #[derive(Default)]
    struct Device {
        stable: Mutex<Vec<u8>>,
        pending: Mutex<Vec<(u64, Vec<Page>)>>,
        /// The page that cannot be written.
        bad_page: AtomicU64,
        failing_syncs: AtomicU64,
        largest: AtomicU64,
        /// The file that is mapped, as long as it is to be cut to half with the next write.
        to_cut: Mutex<Option<Fd>>,
        /// Pages that it is shorter by then.
        missing: AtomicUsize,
    }

    impl Device {
        fn cut_now(&self) {
            if let Some(plain) = self.to_cut.lock().unwrap().take() {
                file::truncate(&plain, (PAGES / 2 * PAGE_SIZE) as u64).unwrap();
                self.missing.store(PAGES / 2, SeqCst);
                // Until the pager has seen it.
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }

    struct Handle(Arc<Device>);

    impl Store for Handle {
        fn len(&self) -> Result<u64, Errno> {
            Ok(((PAGES - self.0.missing.load(SeqCst)) * PAGE_SIZE) as u64)
        }

        fn read(&self, _: u64, _: &mut [Page]) -> Result<u64, Errno> {
            unreachable!("pages are read by the engine")
        }

        fn write(&self, first: u64, pages: &[Page], _: u64) -> Result<(), Errno> {
            let device = &self.0;
            if (first..first + pages.len() as u64).contains(&device.bad_page.load(SeqCst)) {
                return Err(Errno::IO);
            }
            device.largest.fetch_max(pages.len() as u64, SeqCst);
            device.cut_now();
            device.pending.lock().unwrap().push((first, pages.to_vec()));
            Ok(())
        }

        fn write_part(&self, _: &[u8], _: u64) -> Result<(), Errno> {
            unreachable!("the region begins with a page")
        }

        fn set_len(&self, _: u64) -> Result<(), Errno> {
            unreachable!("a mapping changes no length")
        }

        fn sync(&self, _: bool) -> Result<(), Errno> {
            let device = &self.0;
            let pending = std::mem::take(&mut *device.pending.lock().unwrap());
            if device.failing_syncs.load(SeqCst) > 0 {
                device.failing_syncs.fetch_sub(1, SeqCst);
                return Err(Errno::NOSPC);
            }
            let mut stable = device.stable.lock().unwrap();
            assert!(pending.is_sorted_by_key(|(first, _)| *first), "in the file's order");
            for (first, pages) in pending {
                let at = first as usize * PAGE_SIZE;
                stable[at..at + pages.len() * PAGE_SIZE].copy_from_slice(raw::page_bytes(&pages));
            }
            Ok(())
        }
    }

    fn region(pager: &Pager, device: &Arc<Device>) -> FileRegion {
        region_of(pager, device, false)
    }

    /// `cut`: the file becomes half as long with the first write.
    fn region_of(pager: &Pager, device: &Arc<Device>, cut: bool) -> FileRegion {
        *device.stable.lock().unwrap() = vec![0; PAGES * PAGE_SIZE];
        device.bad_page.store(u64::MAX, SeqCst);
        let plain = file::memfd(c"publish").unwrap();
        file::truncate(&plain, (PAGES * PAGE_SIZE) as u64).unwrap();
        *device.to_cut.lock().unwrap() = cut.then(|| file::open_again(&plain, Open::READ_WRITE).unwrap());
        let options = MapOptions::new().shared();
        let store: Box<dyn Store> = Box::new(Handle(Arc::clone(device)));
        FileRegion::of(plain, Some(store), &options, &pager.link, Error::Map).unwrap()
    }

    fn pager() -> Pager {
        // Half of the file: what was stored to leaves.
        Pager::builder().ram((PAGES / 2 * PAGE_SIZE) as u64).swap("/var/tmp").build().unwrap()
    }

    /// A kernel takes what it could not settle for clean: its next sync goes well, and the data is lost.
    #[test]
    fn a_failed_sync_is_told_once_and_loses_nothing() {
        let (pager, device) = (pager(), Arc::<Device>::default());
        let mut region = region(&pager, &device);
        let fill = |region: &mut FileRegion, value: u8| region.as_mut().unwrap().fill(value);
        let is_stable = |value: u8| device.stable.lock().unwrap().iter().all(|&byte| byte == value);
        fill(&mut region, 1);
        region.sync().unwrap();
        assert!(is_stable(1));
        assert_eq!(device.largest.load(SeqCst), 256, "in large requests");
        fill(&mut region, 2);
        device.failing_syncs.store(1, SeqCst);
        assert!(matches!(region.sync(), Err(Error::Io(Errno::NOSPC))));
        assert!(is_stable(1));
        region.sync().unwrap();
        assert!(is_stable(2), "all of it, once more");
        fill(&mut region, 3);
        device.failing_syncs.store(2, SeqCst);
        assert!(region.sync().is_err() && region.sync().is_err());
        assert!(region.iter().all(|&byte| byte == 3), "it is here still");
        drop(region);
        assert!(is_stable(3), "the end of a mapping syncs, too");
    }

    #[test]
    fn a_page_that_cannot_be_written_keeps_no_other_from_the_device() {
        let (pager, device) = (pager(), Arc::<Device>::default());
        let mut region = region(&pager, &device);
        region.as_mut().unwrap().fill(7);
        device.bad_page.store(1000, SeqCst);
        assert!(matches!(region.sync(), Err(Error::Io(Errno::IO))));
        let written = device.stable.lock().unwrap().chunks(PAGE_SIZE).filter(|page| page[9] == 7).count();
        assert_eq!(written, PAGES - 1);
        assert!(region.sync().is_err(), "it is told as long as it is so");
        device.bad_page.store(u64::MAX, SeqCst);
        region.sync().unwrap();
        assert!(device.stable.lock().unwrap().iter().all(|&byte| byte == 7));
    }

    /// What is not there any more is not written, and nothing is touched for it.
    #[test]
    fn a_file_may_be_cut_during_a_sync() {
        let (pager, device) = (pager(), Arc::<Device>::default());
        let mut region = region_of(&pager, &device, true);
        region.as_mut().unwrap().fill(7);
        region.sync().unwrap();
        let stable = device.stable.lock().unwrap();
        assert!(stable[..PAGES / 2 * PAGE_SIZE].iter().all(|&byte| byte == 7));
        assert!(stable[PAGES / 2 * PAGE_SIZE..].iter().all(|&byte| byte == 0));
    }

    fn set_access(page: AddressRange, access: Prot) {
        // SAFETY: the page is the region's, and nobody touches it meanwhile but by the kernel.
        unsafe { mem::mprotect(page, access) }.unwrap();
    }

    #[test]
    fn a_page_that_cannot_be_read_keeps_no_other_from_the_device() {
        let (pager, device) = (pager(), Arc::<Device>::default());
        let mut region = region(&pager, &device);
        region.as_mut().unwrap().fill(7);
        let lost = region.as_ptr() as usize + 1000 * PAGE_SIZE;
        set_access(lost..lost + PAGE_SIZE, Prot::empty());
        assert!(matches!(region.sync(), Err(Error::Io(Errno::IO))));
        let written = device.stable.lock().unwrap().chunks(PAGE_SIZE).filter(|page| page[9] == 7).count();
        assert_eq!(written, PAGES - 1);
        set_access(lost..lost + PAGE_SIZE, Prot::RW);
        region.sync().unwrap();
        assert!(device.stable.lock().unwrap().iter().all(|&byte| byte == 7));
    }

    /// *The story:* all that was to be published was asked for at once. The engine remembers 64 parts:
    /// what was more was forgotten, and counted as read; and a prefetch beside it was left out wholly.
    #[test]
    fn what_is_read_ahead_leaves_room_for_others() {
        let (pager, device) =
            (Pager::builder().ram(16 << 20).swap("/var/tmp").build().unwrap(), Arc::default());
        let mut region = region(&pager, &device);
        region.as_mut().unwrap().fill(1);
        let others = pager.map_file("/proc/self/exe", &MapOptions::new().private()).unwrap();
        let pieces: Vec<_> = (0..PAGES / 2).map(|n| 2 * n * PAGE_SIZE..(2 * n + 1) * PAGE_SIZE).collect();
        let mut ahead = Ahead::new(region.as_ptr() as usize, &pieces, pager.link.wire());
        ahead.reach(0);
        assert_eq!(ahead.next, AHEAD_PIECES);
        assert_eq!(others.prefetch(0..PAGE_SIZE).unwrap(), 0, "it is left out");
        // Each piece was asked for before it comes, unless the engine had no use for it.
        for at in 1..pieces.len() {
            ahead.reach(at);
            assert!(ahead.next > at || ahead.again > at, "piece {at}");
            assert!(ahead.next <= at + AHEAD_PIECES);
            assert_eq!(region[pieces[at].start], 1);
        }
    }

    #[test]
    fn what_is_read_ahead_has_its_part_of_the_budget() {
        let (pager, device) = (pager(), Arc::default());
        let region = region(&pager, &device);
        let most = PAGES / 2 / 16;
        let pages = |from: usize, count: usize| from * PAGE_SIZE..(from + count) * PAGE_SIZE;
        let pieces = [pages(0, 256), pages(300, most / 2), pages(400, most / 2), pages(500, 1)];
        let start = region.as_ptr() as usize;
        let mut ahead = Ahead::new(start, &pieces, pager.link.wire());
        let part = |piece: Range<usize>| start + piece.start..start + piece.end;
        assert_eq!(ahead.wanted(9, ahead.most, true), [part(pages(0, most))], "as much as it may have");
        assert_eq!(ahead.wanted(9, ahead.most, false), [], "or not yet");
        ahead.next = 1;
        let wanted = [1, 2].map(|piece| part(pieces[piece].clone()));
        assert_eq!(ahead.wanted(9, ahead.most, true), wanted);
        assert_eq!(ahead.wanted(1, ahead.most, true), wanted[..1]);
    }

    /// Slots are given up in portions, after a sync has ended: what is stored to in between has its own.
    #[test]
    fn what_is_stored_to_as_a_sync_ends_is_kept() {
        let (pager, device) = (pager(), Arc::<Device>::default());
        let mut region = region(&pager, &device);
        let (start, wire) = (region.as_ptr() as usize, Arc::clone(pager.link.wire()));
        region.as_mut().unwrap().fill(1);
        let runs = begin(start, &wire).unwrap();
        let clean = wire.ask(move |engine| engine.end_sync(start, true)).unwrap();
        assert_eq!(clean, runs);
        assert_eq!(clean.iter().map(Range::len).sum::<usize>(), PAGES * PAGE_SIZE);
        let second = |page: usize| page.is_multiple_of(2);
        let pages = region.as_mut().unwrap().chunks_mut(PAGE_SIZE).enumerate();
        pages.filter(|(page, _)| second(*page)).for_each(|(_, bytes)| bytes.fill(2));
        free_synced(start, &clean, &wire).unwrap();
        // All of them leave, and come back: from the file, which has nothing, or from swap.
        for _ in 0..2 {
            for (page, bytes) in region.chunks(PAGE_SIZE).enumerate() {
                let is_as_stored = bytes.iter().all(|&byte| byte == 2);
                assert!(is_as_stored || !second(page), "page {page}");
            }
        }
        region.sync().unwrap();
        assert!(device.stable.lock().unwrap().chunks(2 * PAGE_SIZE).all(|pages| pages[0] == 2));
    }
}
