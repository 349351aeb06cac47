//! A running pager: what it maps, its knobs, its counters.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use overspill_engine::{Engine, Settings, frames_of};
use overspill_mm::Vmstat;
use overspill_mm::readahead::policy::{Knobs, Policy};
use overspill_sys::PAGE_SIZE;

use crate::file::{Inodes, Room};
use crate::link::Link;
use crate::{Builder, Error, File, FileOptions, FileRegion, MapOptions, Region, SharedRegion};

/// A running pager. It goes on while regions live; with the last of them its thread ends.
///
/// It is of the process that made it: in a child of fork all that it answers is [`Error::Stopped`], and of
/// what it has mapped see [`Region`].
#[derive(Debug)]
pub struct Pager {
    pub(crate) link: Arc<Link>,
    /// What its cached files have of the budget.
    room: Arc<Room>,
    /// Frames that the budget may ever be.
    most: u32,
    /// The files that are open, or mapped for stores.
    inodes: Inodes,
}

/// The counters of a pager at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The kernel-named counters.
    pub vmstat: Vmstat,
    /// Frames that regions hold, in pages. Pages of shared regions count once, however many processes map
    /// them.
    pub frames: u32,
    /// Frames that cached files have of the budget, in pages: those beside the ones above.
    pub file_frames: u32,
    /// Swap in use, in pages.
    pub slots: u32,
}

impl Pager {
    /// A pager with defaults, to be changed and built.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn start(settings: Settings, ram: u32) -> Result<Pager, Error> {
        let (room, most) = (Arc::new(Room::new(ram)), settings.frames);
        let link = Arc::new(Link::start(settings, Arc::clone(&room))?);
        let pager = Pager { link, room, most, inodes: Inodes::default() };
        pager.allow(ram)?;
        Ok(pager)
    }

    fn allow(&self, frames: u32) -> Result<(), Error> {
        let room = Arc::clone(&self.room);
        self.link.wire().ask(move |engine| {
            engine.policy_mut().frames = frames;
            room.allow(engine, frames);
        })
    }

    /// Changes the budget, to `bytes`. Where it becomes smaller what is beyond it leaves RAM from now on,
    /// within tenths of a second where the device keeps up: [`Pager::stats`] tells how far that is. Files
    /// give back what they have beyond half of it, however many they are.
    ///
    /// # Errors
    /// [`Error::BudgetTooSmall`]: less than [`Builder::RAM_MIN`]. [`Error::BudgetTooLarge`]: more than
    /// [`Builder::ram_max`]. [`Error::Stopped`].
    pub fn set_ram(&self, bytes: u64) -> Result<(), Error> {
        if bytes < Builder::RAM_MIN {
            return Err(Error::BudgetTooSmall);
        }
        if bytes / PAGE_SIZE as u64 > u64::from(self.most) {
            return Err(Error::BudgetTooLarge(u64::from(self.most) * PAGE_SIZE as u64));
        }
        self.allow(frames_of(bytes))
    }

    /// A region of zeroes that may be larger than the budget, or than the machine. `len` is rounded
    /// up to whole pages. When swap is full regions go on in RAM, above the budget: a line on standard error
    /// says so.
    ///
    /// # Errors
    /// [`Error::Map`] when there is no address space for it. [`Error::Stopped`].
    pub fn map_anon(&self, len: usize) -> Result<Region, Error> {
        Region::new(len, &self.link)
    }

    /// A region that stands for a file, which may be larger than the budget. Its pages are read as
    /// they are touched, and ahead; those that were only read leave without being written. It has the length
    /// that the file has now, and does not grow with it.
    ///
    /// Of the same bytes a pager has one shared mapping, and no [`File`] beside that. Another pager in this
    /// process is as any other program: its stores and this one's undo one another.
    ///
    /// # Errors
    /// [`Error::File`]: it cannot be opened or is empty; it is a directory (EISDIR), or else no regular file,
    /// or has nothing to read where it says so (ENODEV; some files of /sys do). [`Error::Map`]: there is no
    /// address space for it, also where it is larger than some 8 TiB (ENOSPC), or its stores are to be the
    /// file's and there is no UFFDIO_MOVE (EOPNOTSUPP). [`Error::Stopped`].
    /// [`Error::InUse`]: its stores are to be the file's ([`MapOptions::shared`]), and those bytes are
    /// mapped so already, or the file is open ([`Pager::open_file`]).
    pub fn map_file(&self, path: impl AsRef<Path>, options: &MapOptions) -> Result<FileRegion, Error> {
        FileRegion::new(path.as_ref(), options, &self.link, &self.inodes)
    }

    /// A file with a cache in this pager's budget, of which it takes as much as it uses and as regions
    /// leave free; half of the budget, for all files, if they want it all. A small file takes no more than it
    /// has pages, and what files have and do not use is the regions' as they need it. Of a file that is open
    /// already it is the same cache.
    ///
    /// # Errors
    /// [`Error::File`]: the kernel's reason; EINVAL, to make a file that is not written to; EISDIR, it is
    /// a directory; ENODEV, it is no regular file either, or has bytes and says that it has none (files of
    /// /proc do). [`Error::InUse`]: it is mapped by [`MapOptions::shared`]. [`Error::Start`]: no thread can
    /// be started for it. [`Error::Stopped`].
    pub fn open_file(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File, Error> {
        File::open(path.as_ref(), options, &self.link, &self.room, &self.inodes)
    }

    /// A region of zeroes that other processes can map too ([`SharedRegion::handle`]). Its frames
    /// are part of the same budget. `len` is rounded up to whole pages.
    ///
    /// # Errors
    /// [`Error::Share`] when the kernel refuses; it must be 5.19 or later. [`Error::Stopped`].
    pub fn map_shared(&self, len: usize) -> Result<SharedRegion, Error> {
        SharedRegion::new(len, &self.link)
    }

    /// Starts reading bytes `range` of the region, as far as the budget has room.
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn prefetch(&self, region: &Region, range: Range<usize>) {
        region.prefetch(range);
    }

    /// The counters.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let room = Arc::clone(&self.room);
        self.link.wire().ask(move |engine| Stats {
            vmstat: *engine.mm().stats(),
            frames: engine.frames(),
            file_frames: room.taken(),
            slots: engine.mm().slots_used(),
        })
    }

    /// Does it move pages by UFFDIO_MOVE? Otherwise [`MapOptions::shared`] cannot be had, and of what a
    /// device writes into a region without the processor some may be lost: see [`Region`].
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn uses_move(&self) -> Result<bool, Error> {
        self.link.wire().ask(|engine| engine.tells_stores())
    }

    // Knobs. All of them may change at any time and hold from the next fault on.

    /// The knobs of swap-in read-ahead, as they hold where a region has none of its own.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn knobs(&self) -> Result<Knobs, Error> {
        self.link.wire().ask(|engine| engine.policy_mut().knobs)
    }

    /// The kernel's `vm.page-cluster`: log2 of the pages in the largest window of the kernel's
    /// policies; 0 switches them off. Values above 31 count as 31.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_page_cluster(&self, page_cluster: u8) -> Result<(), Error> {
        self.knob(move |knobs| knobs.page_cluster = page_cluster)
    }

    /// The kernel's `/sys/kernel/mm/swap/vma_ra_enabled`: may the `linux` policy read ahead by
    /// region (private memory only)? Otherwise, and always for shared memory, it reads by slot.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_vma_ra_enabled(&self, enabled: bool) -> Result<(), Error> {
        self.knob(move |knobs| knobs.vma_ra_enabled = enabled)
    }

    /// Pages in the largest window of the `adaptive` policy; 0 switches it off.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_max_window(&self, pages: u16) -> Result<(), Error> {
        self.knob(move |knobs| knobs.max_window = pages)
    }

    /// Another policy from now on, in its initial state; the knobs are those of the policy.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_readahead(&self, mut policy: Policy) -> Result<(), Error> {
        self.link.wire().ask(move |engine| {
            policy.frames = engine.policy_mut().frames;
            *engine.policy_mut() = policy;
        })
    }

    fn knob(&self, change: impl FnOnce(&mut Knobs) + Send + 'static) -> Result<(), Error> {
        self.link.wire().ask(move |engine: &mut Engine| change(&mut engine.policy_mut().knobs))
    }
}

/// No address space has so many bytes: the kernel refuses them, and a page more or less of them is
/// still a number.
const BYTES_MAX: usize = isize::MAX as usize / 2;

/// `len` bytes in whole pages, at least one.
pub(crate) fn whole_pages(len: usize) -> usize {
    len.clamp(1, BYTES_MAX).next_multiple_of(PAGE_SIZE)
}
