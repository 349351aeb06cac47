//! What this kernel lets us do, found out by doing it on scratch memory.
//!
//! Every line of the answer is the result of a real attempt, not of a version number or a flag: kernels are
//! configured, patched and fenced in. It takes a millisecond or a few, leaves nothing behind, and never waits
//! longer than a fraction of a second.

mod trial;

use crate::file;
use crate::mem::{Mapping, Prot};
use crate::pagemap::{PageRegion, Pagemap, Query};
use crate::procfs::{self, Fields, Limit};
use crate::uffd::{Features, Source, Uffd};
use crate::uring::{Ring, Sqe};
use crate::{Errno, PAGE_SIZE, mem};

/// Works, or why not.
pub type Check = Result<(), Errno>;

/// What a kernel lets this process do.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Version of the kernel.
    pub kernel: (u32, u32, u32),
    /// How a userfaultfd can be had; the best way that works.
    pub userfaultfd: Result<Source, Errno>,
    /// Its features (all that the kernel has, also those that take permissions).
    pub features: Features,
    /// A fault is told and answered with UFFDIO_COPY; a fault from inside a system call unless
    /// [`Source::UserMode`].
    pub missing: Check,
    /// Changes of the address space are told (REMAP, REMOVE, UNMAP).
    pub events: Check,
    /// fork() is told; EPERM without CAP_SYS_PTRACE.
    pub event_fork: Check,
    /// UFFDIO_MOVE takes a page away and puts it elsewhere (6.8).
    pub move_pages: Check,
    /// A store to a write-protected page is told (5.7).
    pub write_protect: Check,
    /// UFFDIO_POISON makes a page fail (6.6).
    pub poison: Check,
    /// PAGEMAP_SCAN tells which pages are present (6.7).
    pub pagemap_scan: Check,
    /// The older page map tells which pages are present.
    pub pagemap: Check,
    /// /proc/self/mem can be read and written.
    pub own_memory: Check,
    /// io_uring reads a file.
    pub io_uring: Check,
    /// A thread without libc runs and ends.
    pub raw_thread: Check,
    /// vm.unprivileged_userfaultfd, where there is one.
    pub unprivileged_userfaultfd: Option<i64>,
    /// kernel.io_uring_disabled, where there is one (6.6).
    pub io_uring_disabled: Option<i64>,
    /// vm.overcommit_memory.
    pub overcommit_memory: Option<i64>,
    /// vm.max_map_count.
    pub mappings_max: Option<i64>,
    /// Bytes of memory this process may lock, `u64::MAX` for any.
    pub locked_bytes_max: Option<u64>,
    /// Bytes a file may grow to, `u64::MAX` for any.
    pub file_bytes_max: Option<u64>,
    /// Seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp: Option<u64>,
    /// RAM of the machine in bytes.
    pub ram_bytes: Option<u64>,
}

impl Probe {
    /// Everything eviction by UFFDIO_MOVE needs; the first thing that fails otherwise.
    pub fn can_move(&self) -> Check {
        self.userfaultfd?;
        self.missing?;
        self.events?;
        self.move_pages
    }
}

/// Tries everything. Call it from an ordinary thread of a process that manages no memory yet.
#[must_use]
pub fn probe() -> Probe {
    let userfaultfd = source();
    let user_mode_only = userfaultfd == Ok(Source::UserMode);
    let trial = |check: fn(bool) -> Check| userfaultfd.map(drop).and_then(|()| check(user_mode_only));
    let status = Fields::of_process().ok();
    Probe {
        kernel: procfs::kernel_version(),
        userfaultfd,
        features: Uffd::available(user_mode_only).unwrap_or_default(),
        missing: trial(trial::missing),
        events: trial(trial::events),
        event_fork: trial(trial::event_fork),
        move_pages: trial(trial::move_pages),
        write_protect: trial(trial::write_protect),
        poison: trial(trial::poison),
        pagemap_scan: Pagemap::open().and_then(|pagemap| match pagemap.can_scan() {
            true => finds_a_page(&pagemap),
            false => Err(Errno::NOTTY),
        }),
        pagemap: Pagemap::open_basic().and_then(|pagemap| finds_a_page(&pagemap)),
        own_memory: own_memory(),
        io_uring: io_uring(),
        raw_thread: trial::raw_thread(),
        unprivileged_userfaultfd: procfs::number_in(c"/proc/sys/vm/unprivileged_userfaultfd"),
        io_uring_disabled: procfs::number_in(c"/proc/sys/kernel/io_uring_disabled"),
        overcommit_memory: procfs::number_in(c"/proc/sys/vm/overcommit_memory"),
        mappings_max: procfs::number_in(c"/proc/sys/vm/max_map_count"),
        locked_bytes_max: procfs::limit(Limit::LockedMemory).ok().map(|(current, _)| current),
        file_bytes_max: procfs::limit(Limit::FileSize).ok().map(|(current, _)| current),
        seccomp: status.and_then(|fields| fields.number("Seccomp")),
        ram_bytes: Fields::of_machine().ok().and_then(|fields| fields.number("MemTotal")),
    }
}

/// The best way to get a userfaultfd; the error is that of the way that takes most permissions.
fn source() -> Result<Source, Errno> {
    match Uffd::open(Features::empty(), false) {
        Ok((uffd, _)) => Ok(uffd.source()),
        Err(errno) => match Uffd::open(Features::empty(), true) {
            Ok((uffd, _)) => Ok(uffd.source()),
            Err(_) => Err(errno),
        },
    }
}

/// Of three pages, the one that was stored to is found.
fn finds_a_page(pagemap: &Pagemap) -> Check {
    let memory = trial::scratch(3)?;
    trial::store(memory.page(1), 1);
    let mut out = [PageRegion::default(); 3];
    let query = Query { required: crate::pagemap::Categories::PRESENT, ..Query::default() };
    let scan = pagemap.scan(memory.range(), query, &mut out)?;
    trial::expect(scan.regions == 1 && out[0].start as usize == memory.page(1) && out[0].pages() == 1)
}

/// A word goes in and comes out.
fn own_memory() -> Check {
    let memory = trial::scratch(1)?;
    let own = mem::OwnMemory::open()?;
    let mut word = [0; 8];
    // SAFETY: the memory is ours.
    let written = unsafe { own.write(memory.start(), &7u64.to_ne_bytes())? };
    let read = own.read(&mut word, memory.start())?;
    trial::expect(written == 8 && read == 8 && u64::from_ne_bytes(word) == 7)
}

/// A page of a memory file is read.
fn io_uring() -> Check {
    let mut ring = Ring::best(4, 8)?;
    let file = file::memfd(c"overspill-probe")?;
    file::pwrite(&file, &7u64.to_ne_bytes(), 0)?;
    let memory = Mapping::anon(PAGE_SIZE, Prot::RW)?;
    // SAFETY: memory and file outlive the request, which is waited for.
    unsafe { ring.push(Sqe::read(file.raw(), memory.start(), 8, 0, 1)) }.map_err(|_| Errno::NOSPC)?;
    ring.submit_and_wait(1, None)?;
    let count = ring.pop().ok_or(Errno::IO)?.outcome()?;
    trial::expect(count == 8 && trial::load(memory.start()) == 7)
}
