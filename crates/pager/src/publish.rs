//! How what was stored to a shared mapping of a file gets there: in the file's order, in large
//! requests, by whoever syncs.
//!
//! Which pages were stored to the engine knows ([`overspill_engine::Engine::begin_sync`]). Until a
//! sync has gone well all of them count as stored to: what could not be written or settled is here
//! still, in RAM or on swap, and the next sync writes it once more.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use overspill_sys::mem::Mapping;
use overspill_sys::{Errno, PAGE_SIZE};

use crate::file::{Page, Store};
use crate::link::Wire;
use crate::{Error, raw};

/// Pages in the largest request, 1 MiB.
const REQUEST_MAX: usize = 256;

/// A file that a mapping publishes to.
pub(crate) struct Publisher {
    store: Box<dyn Store>,
    /// The page of the file that the mapping begins with.
    first: u64,
    /// Held by whoever syncs: what a device failed to write it tells to one of those who ask it.
    alone: Mutex<()>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("first", &self.first).finish_non_exhaustive()
    }
}

impl Publisher {
    pub fn new(store: Box<dyn Store>, first: u64) -> Publisher {
        Publisher { store, first, alone: Mutex::new(()) }
    }

    /// Writes what was stored to the mapping, and returns when it is on stable storage.
    pub fn sync(&self, mapping: &Mapping, wire: &Wire) -> Result<(), Error> {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let start = mapping.start();
        let runs = wire.ask(move |engine| engine.begin_sync(start))?.map_err(Error::Io)?;
        let outcome = self.write_and_settle(mapping, &runs);
        let went_well = outcome.is_ok();
        wire.ask(move |engine| engine.end_sync(start, went_well))?;
        outcome.map_err(Error::Io)
    }

    fn write_and_settle(&self, mapping: &Mapping, runs: &[Range<usize>]) -> Result<(), Errno> {
        if runs.is_empty() {
            return Ok(());
        }
        let mut buffer = vec![Page([0; PAGE_SIZE]); REQUEST_MAX];
        // What cannot be written keeps nothing else from the device.
        let mut outcome = Ok(());
        for run in runs {
            for at in run.clone().step_by(REQUEST_MAX * PAGE_SIZE) {
                let bytes = at..run.end.min(at + REQUEST_MAX * PAGE_SIZE);
                outcome = outcome.and(self.write(mapping, bytes, &mut buffer));
            }
        }
        // Settled is what could be written, whatever became of the rest.
        let settled = self.store.sync(false);
        outcome.and(settled)
    }

    /// Writes bytes of the mapping as they are now; page by page what cannot be written together. The
    /// file does not become longer.
    fn write(&self, mapping: &Mapping, bytes: Range<usize>, buffer: &mut [Page]) -> Result<(), Errno> {
        let pages = &mut buffer[..bytes.len() / PAGE_SIZE];
        let words = &raw::atomic_words(mapping, bytes.end)[bytes.start / 8..];
        // Others may store meanwhile: each word is an old one or a new one.
        for (copy, word) in raw::page_bytes_mut(pages).as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *copy = word.load(Relaxed).to_ne_bytes();
        }
        let (first, len) = (self.first + (bytes.start / PAGE_SIZE) as u64, self.store.len()?);
        if self.store.write(first, pages, len).is_ok() {
            return Ok(());
        }
        let singly = (first..).zip(pages.chunks(1)).map(|(page, copy)| self.store.write(page, copy, len));
        singly.fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use overspill_sys::file;

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
    }

    struct Handle(Arc<Device>);

    impl Store for Handle {
        fn is_writable(&self) -> bool {
            true
        }

        fn len(&self) -> Result<u64, Errno> {
            Ok((PAGES * PAGE_SIZE) as u64)
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
            device.pending.lock().unwrap().push((first, pages.to_vec()));
            Ok(())
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
        *device.stable.lock().unwrap() = vec![0; PAGES * PAGE_SIZE];
        device.bad_page.store(u64::MAX, SeqCst);
        let plain = file::memfd(c"publish").unwrap();
        file::truncate(&plain, (PAGES * PAGE_SIZE) as u64).unwrap();
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
}
