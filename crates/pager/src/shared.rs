//! Shared regions: several processes map one region, whose pages live partly in RAM and partly on swap.
//!
//! The process that has the pager makes the region, and for every other one a [`Handle`], which is
//! one end of a socket: it can be inherited by a child, become its standard input, or be sent over
//! another socket. Over it the other process gets the region's file, maps that, and sends back the
//! userfaultfd on which its mapping is registered (see `door`).

use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use overspill_engine::{MapperId, Place};
use overspill_mm::readahead::policy::Overrides;
use overspill_sys::event::{self, PollFd};
use overspill_sys::mem::{self, Mapping};
use overspill_sys::socket::{self, Letter};
use overspill_sys::uffd::Uffd;
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, file, thread};

use crate::door::{HELLO, HERE, RELEASED, WELCOME};
use crate::link::Link;
use crate::pager::whole_pages;
use crate::process::Process;
use crate::{Error, RegionStats, raw, region};

/// Between two tries to hear from the pager, where the kernel could not read.
const PAUSE: Duration = Duration::from_millis(20);

/// The bytes of a shared region as this process maps them.
///
/// Other processes change them at any moment, so they are atomics; who needs plain bytes has a
/// pointer, and the duty to see to it that nobody else writes what is read.
#[derive(Debug)]
pub struct SharedView {
    mapping: Mapping,
    len: usize,
}

impl SharedView {
    /// Length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[AtomicU8] {
        raw::atomic_bytes(&self.mapping, self.len)
    }

    /// All whole words of 8 bytes, in the processor's byte order.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        raw::atomic_words(&self.mapping, self.len)
    }

    /// The first byte, for system calls and for those who see to synchronisation themselves. It is
    /// valid for `len` bytes while the region lives; the mapping must not be moved or replaced. Of
    /// what is written without the processor (direct I/O, registered buffers of io_uring) only what
    /// arrives while its page is in RAM is kept: bounce it through private memory.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }
}

/// A shared region, in the process that has its pager.
///
/// ```no_run
/// use std::process::{Command, Stdio};
/// use std::sync::atomic::Ordering::Relaxed;
/// use overspill_pager::{Handle, Overrides, Pager, SharedRegion};
///
/// fn owner() -> Result<(), Box<dyn std::error::Error>> {
///     let pager = Pager::builder().ram(256 << 20).build()?;
///     let region = pager.map_shared(4 << 30)?;
///     let mut other = Command::new("worker").stdin(Stdio::from(region.handle()?)).spawn()?;
///     region.words()[7].store(1, Relaxed);
///     pager.set_page_cluster(5)?;
///     region.set_readahead(Overrides { max_window: Some(64), ..Overrides::default() })?;
///     other.wait()?;
///     println!("{:?}, {:?}", pager.stats()?, region.stats()?);
///     Ok(())
/// }
///
/// fn worker(stdin: std::os::fd::OwnedFd) -> Result<(), overspill_pager::Error> {
///     let region = SharedRegion::join(Handle::from(stdin))?;
///     println!("{}", region.words()[7].load(Relaxed));
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// When it is dropped while other processes map the region, the region goes on for them.
#[derive(Debug)]
pub struct SharedRegion {
    /// Taken when dropped: the mapping must be gone before the pager lets go of it.
    view: Option<SharedView>,
    place: Place,
    mapper: MapperId,
    file: Fd,
    link: Arc<Link>,
}

impl SharedRegion {
    pub(crate) fn new(len: usize, link: &Arc<Link>) -> Result<SharedRegion, Error> {
        let pages = whole_pages(len);
        let file = file::memfd(c"overspill").map_err(Error::Share)?;
        file::truncate(&file, pages as u64).map_err(Error::Share)?;
        let (mapping, uffd) = raw::map_shared(&file, pages).map_err(Error::Share)?;
        let theirs = file.duplicate().map_err(Error::Share)?;
        let address = mapping.start();
        let count = (pages / PAGE_SIZE) as u64;
        let shared = link.wire().ask(move |engine| engine.share(theirs, count, uffd, address))?;
        let (place, mapper) = shared.map_err(Error::Share)?;
        let view = Some(SharedView { mapping, len });
        Ok(SharedRegion { view, place, mapper, file, link: Arc::clone(link) })
    }

    /// A ticket with which one other process can join, once.
    ///
    /// # Errors
    /// [`Error::Share`] when there are no descriptors left. [`Error::Stopped`].
    pub fn handle(&self) -> Result<Handle, Error> {
        self.link.door()?.invite(self.place, &self.file, self.len).map(|socket| Handle { socket })
    }

    /// Joins a region of a pager in another process (or in this one).
    ///
    /// # Errors
    /// [`Error::BadHandle`], [`Error::Stopped`], and [`Error::Share`] when the kernel refuses
    /// userfaultfd or the mapping.
    pub fn join(handle: Handle) -> Result<Joined, Error> {
        Joined::new(handle.socket)
    }

    /// Bytes of it that are in RAM and in view, whoever maps them; what is on its way out is not counted.
    ///
    /// # Errors
    /// [`Error::Share`]: the kernel's reason.
    pub fn resident(&self) -> Result<u64, Error> {
        file::status(&self.file).map(|status| status.allocated_bytes).map_err(Error::Share)
    }

    /// Starts reading bytes `range`, as far as the budget has room.
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn prefetch(&self, range: Range<usize>) {
        region::prefetch(self.link.wire(), self.place, self.len(), &range);
    }

    /// Forgets the content of the whole pages in bytes `range`, for everybody: they show zeroes
    /// when they are touched next. (madvise would forget only what is in RAM.)
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::Share`].
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn discard(&self, range: Range<usize>) -> Result<(), Error> {
        assert!(range.start <= range.end && range.end <= self.len(), "the range lies in the region");
        let (start, end) = (range.start.div_ceil(PAGE_SIZE), range.end / PAGE_SIZE);
        if start >= end {
            return Ok(());
        }
        let first = region::page_of(self.place, start * PAGE_SIZE);
        let done = self.link.wire().ask(move |engine| engine.discard_shared(first, (end - start) as u64))?;
        done.map_err(Error::Share)
    }

    /// The counters of this region; touches of all processes count.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats(&self) -> Result<RegionStats, Error> {
        region::stats(self.link.wire(), self.place)
    }

    /// Read-ahead knobs of this region alone, in place of the pager's; `None` in a knob: the
    /// pager's holds. From the next fault on.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_readahead(&self, knobs: Overrides) -> Result<(), Error> {
        region::set_readahead(self.link.wire(), self.place, knobs)
    }
}

impl Deref for SharedRegion {
    type Target = SharedView;
    fn deref(&self) -> &SharedView {
        self.view.as_ref().expect("a region has its mapping until it is dropped")
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        if !self.link.wire().is_ours() {
            std::mem::forget(self.view.take());
            return;
        }
        drop(self.view.take());
        let (place, mapper) = (self.place, self.mapper);
        let _ = self.link.wire().ask(move |engine| engine.leave(place, mapper));
    }
}

/// A ticket to a shared region, for one process: one end of a socket.
///
/// As a descriptor it can be inherited (it is close-on-exec unless it becomes a standard stream of
/// a [`Command`](std::process::Command)) or sent over another socket. Keep no copy of it: the pager
/// takes a process for gone when the last copy is closed.
#[derive(Debug)]
pub struct Handle {
    socket: Fd,
}

impl From<OwnedFd> for Handle {
    fn from(fd: OwnedFd) -> Handle {
        Handle { socket: raw::fd_from(fd) }
    }
}

impl From<Handle> for OwnedFd {
    fn from(handle: Handle) -> OwnedFd {
        raw::fd_into(handle.socket)
    }
}

impl From<Handle> for std::process::Stdio {
    fn from(handle: Handle) -> Self {
        OwnedFd::from(handle).into()
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.raw()
    }
}

/// A shared region, in a process that has joined it.
///
/// Should the process with the pager die, what it had on swap is lost, and so is the region: every
/// touch of it raises SIGBUS from then on. A pager that ends in order brings everything in before;
/// the region is ordinary shared memory then.
#[derive(Debug)]
pub struct Joined {
    view: Option<SharedView>,
    tie: Arc<Tie>,
    watcher: Option<JoinHandle<()>>,
    process: Process,
}

/// What binds a process to the pager.
#[derive(Debug)]
struct Tie {
    line: Line,
    /// Kept open, because the kernel fills what is missing with zeroes when the last descriptor is closed.
    uffd: Uffd,
    file: Fd,
    range: AddressRange,
    leaving: AtomicBool,
}

impl Joined {
    fn new(socket: Fd) -> Result<Joined, Error> {
        let line = Line::new(socket);
        let Some((Letter { kind: HELLO, value: len }, Some(file))) = hear(&line)? else {
            return Err(Error::BadHandle);
        };
        let len = usize::try_from(len).map_err(|_| Error::BadHandle)?;
        let (mapping, uffd) = raw::map_shared(&file, whole_pages(len)).map_err(Error::Share)?;
        let letter = Letter { kind: HERE, value: mapping.start() as u64 };
        socket::send(&line.socket, letter, Some(uffd.fd())).map_err(|_| Error::Stopped)?;
        match hear(&line)? {
            Some((Letter { kind: WELCOME, value: 0 }, _)) => {}
            Some((Letter { kind: WELCOME, value }, _)) => {
                return Err(Error::Share(Errno::from_raw_os_error(value as i32)));
            }
            _ => return Err(Error::Stopped),
        }
        let range = mapping.range();
        let tie = Arc::new(Tie { line, uffd, file, range, leaving: AtomicBool::new(false) });
        let watched = Arc::clone(&tie);
        let watcher = std::thread::Builder::new()
            .name("overspill tie".into())
            .spawn(move || watched.watch())
            .map_err(|_| Error::Share(Errno::AGAIN))?;
        let (view, process) = (Some(SharedView { mapping, len }), Process::this());
        Ok(Joined { view, tie, watcher: Some(watcher), process })
    }
}

/// The way to the pager: the socket, and the process that made it.
///
/// *The story:* the pager's end was known by the end of the socket alone. Of that every child of fork
/// has a copy, and so had who joined after a fork without exec: the pager was killed, and whoever
/// touched what was out waited for ever.
#[derive(Debug)]
struct Line {
    socket: Fd,
    /// None where it is of another pid namespace. It is opened before the pager says welcome, so the
    /// number was not another's by then.
    pager: Option<Fd>,
}

impl Line {
    fn new(socket: Fd) -> Line {
        let maker = socket::peer(&socket).map(|(process, _)| process);
        let pager = maker.and_then(mem::pidfd).ok();
        Line { socket, pager }
    }

    /// The next letter; `None`: the pager is gone, and has said nothing more.
    fn receive(&self) -> Result<Option<(Letter, Option<Fd>)>, Errno> {
        let mut fds = [PollFd::readable(&self.socket), PollFd::maybe_readable(self.pager.as_ref())];
        while event::poll(&mut fds, None)? == 0 {}
        // It may have said something before it died.
        if fds[1].is_ready() && event::poll(&mut fds[..1], Some(0))? == 0 {
            return Ok(None);
        }
        socket::receive(&self.socket)
    }
}

/// The next letter. EBADMSG and the like: whatever the descriptor is, it is no handle.
fn hear(line: &Line) -> Result<Option<(Letter, Option<Fd>)>, Error> {
    match line.receive() {
        Ok(None) => Err(Error::Stopped),
        Ok(some) => Ok(some),
        Err(_) => Err(Error::BadHandle),
    }
}

impl Tie {
    /// Waits for the pager's end.
    ///
    /// *The story:* whatever else ended the wait, a signal's handler on this thread, was taken for the
    /// pager's end, and the region was lost to all processes.
    fn watch(&self) {
        let _ = thread::block_program_signals();
        loop {
            match self.line.receive() {
                Ok(Some((Letter { kind: RELEASED, .. }, _))) => return,
                Ok(None) => break,
                _ => std::thread::sleep(PAUSE),
            }
        }
        if !self.leaving.load(Ordering::Acquire) {
            // Nobody can bring back what is missing. A file of no length has no pages to touch:
            // SIGBUS, also for those who wait already.
            let _ = file::truncate(&self.file, 0);
            let _ = self.uffd.wake(self.range.clone());
        }
    }
}

impl Deref for Joined {
    type Target = SharedView;
    fn deref(&self) -> &SharedView {
        self.view.as_ref().expect("a region has its mapping until it is dropped")
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The socket is the parent's, too, and the child has neither the memory nor the watcher.
            std::mem::forget((self.view.take(), self.watcher.take()));
            return;
        }
        drop(self.view.take());
        self.tie.leaving.store(true, Ordering::Release);
        socket::shut_down(&self.tie.line.socket);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}
