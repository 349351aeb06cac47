//! The one module of the library with unsafe code: mappings as slices, descriptors that pass in and out.

use std::ops::Range;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};

use overspill_sys::file::{self, Open};
use overspill_sys::mem::{self, Advice, Mapping, Prot};
use overspill_sys::uffd::{Features, Mode, Uffd};
use overspill_sys::{Errno, Fd, PAGE_SIZE};

use crate::file::Page;

/// What mapping a shared region takes (5.19).
const SHARING: Features =
    Features::MISSING_SHMEM.union(Features::WP_HUGETLBFS_SHMEM).union(Features::PAGEFAULT_FLAG_WP);

/// Private memory of `pages` bytes (whole pages), with one page behind it that nobody may touch. It is not
/// locked, whatever the process wants of what it maps (mlockall).
///
/// *The story:* what is locked is filled with zeroes as soon as it may be touched. A mapped file was never
/// read.
pub(crate) fn map_private(pages: usize) -> Result<Mapping, Errno> {
    let mapping = Mapping::reserve(pages + PAGE_SIZE)?;
    mem::munlock(mapping.range())?;
    // SAFETY: the mapping is fresh and ours; none of the three changes content.
    unsafe {
        mem::mprotect(mapping.start()..mapping.start() + pages, Prot::RW)?;
        mapping.advise(Advice::NoHugePage)?;
        mapping.advise(Advice::DontFork)?;
    }
    Ok(mapping)
}

/// Drops whole pages of private memory: they are zero when they are touched next.
pub(crate) fn discard(mapping: &mut Mapping, bytes: Range<usize>) -> Result<(), Errno> {
    assert!(bytes.end <= mapping.len(), "it lies in the mapping");
    let start = mapping.start();
    // SAFETY: the pages are in the mapping, which nobody else has a reference to: the caller's is unique.
    unsafe { mem::madvise(start + bytes.start..start + bytes.end, Advice::DontNeed) }
}

/// Maps `pages` bytes (whole pages) of a shared region's file and registers that on a userfaultfd:
/// from now on touches of what is not there wait for whoever has the descriptor. ENOSYS: the kernel
/// is too old.
pub(crate) fn map_shared(file: &Fd, pages: usize) -> Result<(Mapping, Uffd), Errno> {
    let (uffd, granted) = Uffd::open(SHARING | Features::POISON, false)?;
    if !granted.contains(SHARING) {
        return Err(Errno::NOSYS);
    }
    let mapping = Mapping::shared(file, pages, Prot::RW, 0)?;
    for advice in [Advice::NoHugePage, Advice::DontFork] {
        // SAFETY: the mapping is fresh and ours; neither changes content.
        unsafe { mapping.advise(advice) }?;
    }
    uffd.register(mapping.range(), Mode::MISSING | Mode::WP)?;
    Ok((mapping, uffd))
}

/// Opens a file once more, past the page cache where that can be; `None` where it cannot be opened so at
/// all. No descriptor of it is closed: with any that is, the process lets go of its locks on the file.
pub(crate) fn open_direct(plain: i32, how: Open) -> Option<Fd> {
    let direct = file::open_number_again(plain, how | Open::DIRECT).ok()?;
    // A trial: some file systems take the flag and refuse the read.
    let mut page = [Page([0; PAGE_SIZE])];
    if file::pread(&direct, page_bytes_mut(&mut page), 0).is_err() {
        file::take_off_direct(&direct).ok()?;
    }
    Some(direct)
}

/// Where the word of [`word_of_process`] is; 0: nobody has asked yet.
static WORD: AtomicUsize = AtomicUsize::new(0);
/// There is none.
const REFUSED: usize = 1;

/// A word that is zero at first, and again in each child of fork. `None`: the kernel makes none.
pub(crate) fn word_of_process() -> Option<&'static AtomicU64> {
    let mut address = WORD.load(SeqCst);
    if address == 0 {
        let made = make_word().unwrap_or(REFUSED);
        // Of two that make one at once, one has made it for nothing. Nobody waits: a fork could come between.
        address = WORD.compare_exchange(0, made, SeqCst, SeqCst).err().unwrap_or(made);
    }
    // SAFETY: it stays mapped, in children, too, is aligned, and is only accessed so.
    (address != REFUSED).then(|| unsafe { AtomicU64::from_ptr(address as *mut u64) })
}

fn make_word() -> Result<usize, Errno> {
    let page = Mapping::anon(PAGE_SIZE, Prot::RW)?;
    // SAFETY: the mapping is fresh and ours, and its content a child's to lose.
    unsafe { page.advise(Advice::WipeOnFork) }?;
    Ok(page.leak().start)
}

/// The first `len` bytes of private memory.
pub(crate) fn bytes(mapping: &Mapping, len: usize) -> &[u8] {
    assert!(len <= mapping.len());
    // SAFETY: the mapping lives as long as the borrow; faults in it are answered by the pager,
    // which its owner keeps running; its bytes change only through `bytes_mut`.
    unsafe { std::slice::from_raw_parts(mapping.as_ptr(), len) }
}

/// The first `len` bytes of private memory.
pub(crate) fn bytes_mut(mapping: &mut Mapping, len: usize) -> &mut [u8] {
    assert!(len <= mapping.len());
    // SAFETY: as above, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr(), len) }
}

/// Pages as bytes.
pub(crate) fn page_bytes(pages: &[Page]) -> &[u8] {
    // SAFETY: a page is an array of bytes, without padding, and so is a slice of them.
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
}

/// Pages as bytes.
pub(crate) fn page_bytes_mut(pages: &mut [Page]) -> &mut [u8] {
    // SAFETY: as above; any bytes make a page, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), size_of_val(pages)) }
}

/// The first `len` bytes of shared memory.
pub(crate) fn atomic_bytes(mapping: &Mapping, len: usize) -> &[AtomicU8] {
    assert!(len <= mapping.len());
    // SAFETY: the mapping lives as long as the borrow and is writable; atomics may change under a
    // shared borrow, in other processes too.
    unsafe { std::slice::from_raw_parts(mapping.as_ptr(), len) }
}

/// The whole words in the first `len` bytes of shared memory.
pub(crate) fn atomic_words(mapping: &Mapping, len: usize) -> &[AtomicU64] {
    assert!(len <= mapping.len());
    // SAFETY: as above; a mapping begins at a page.
    unsafe { std::slice::from_raw_parts(mapping.as_ptr(), len / size_of::<u64>()) }
}

/// A descriptor that comes from outside.
pub(crate) fn fd_from(fd: OwnedFd) -> Fd {
    // SAFETY: the number was owned by what was just taken apart.
    unsafe { Fd::from_raw(fd.into_raw_fd()) }
}

/// A descriptor that goes outside.
pub(crate) fn fd_into(fd: Fd) -> OwnedFd {
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(fd.into_raw()) }
}
