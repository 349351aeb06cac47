//! The agent's side of mapped files: whether one is managed, and how it comes to be.
//!
//! Managed are regular files on a disk of which nobody is writing: the agent opens the file once
//! more, past the page cache, and takes a read lease on it, so that it hears of writers before they
//! write. Where the file is somebody else's there is no lease; private mappings are managed all the
//! same, and shared ones of files that this user cannot write to and that have been still for a
//! while. What does not fit stays with the kernel, and is said.

mod taking;

use core::fmt::Display;
use core::sync::atomic::Ordering::SeqCst;

use linux_raw_sys::general::{MADV_RANDOM, MADV_SEQUENTIAL, PROT_WRITE};
use overspill_engine::report::{Left, Report};
use overspill_engine::{Engine, Program, Source};
use overspill_mm::fileread::MapAdvice;
use overspill_sys::file::{self, Open, TMPFS_MAGIC};
use overspill_sys::mem::{self, Advice, Buffer, Mapping, Prot};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock, lease};

use crate::files::{self, Tail, Wish};
use crate::{fork, limits};

/// A file that changed later is not still.
const STILL_NS: i128 = 300_000_000_000;

/// Why a mapping stays with the kernel.
struct Refusal(Left, &'static str);

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::BUSY => Refusal(Left::Locked, "what is mapped is locked"),
            _ => Refusal(Left::Other, "the kernel refused what it takes"),
        }
    }
}

pub use taking::take;

/// Tells of what the kernel has, as far as it is new.
pub fn note_what_the_kernel_has(report: &Report) {
    files::each_left(|why, bytes| report.note_file_left(why, bytes));
    let (mappings, bytes) = files::newly_kept();
    report.note_files_kept(mappings, bytes);
}

/// Does what the program's threads ask for. `say` is told what stays with the kernel.
pub fn serve(engine: &mut Engine, say: impl Fn(&dyn Display)) {
    note_what_the_kernel_has(engine.report());
    while let Some(wish) = files::take() {
        let value = match wish {
            // A child that is being made would find it in its memory, and not in the table.
            Wish::Map { .. } if fork::is_paused() || fork::is_under_way() => files::LATER,
            Wish::Map { .. } => map(engine, wish, &say),
            Wish::HandBack((start, end), why) => usize::from(engine.hand_back_range(&(start..end), why)),
            Wish::WillNeed((start, end)) => {
                will_need(engine, start..end, &say);
                0
            }
            Wish::Advise((start, end), advice) => {
                advise(engine, start..end, advice);
                0
            }
            Wish::Take(_) if fork::is_paused() || fork::is_under_way() => 0,
            Wish::Take((start, end)) => {
                taking::take(engine, &(start..end), &say);
                0
            }
            Wish::MapTail(Tail { at, len, file, offset, prot, replaces }) => {
                let mapped = engine.map_tail(file, at..at + len, offset, prot, replaces);
                mapped.map_or_else(|errno| errno.raw_os_error() as usize, |()| 0)
            }
        };
        files::answer(value);
    }
}

fn map(engine: &mut Engine, wish: Wish, say: &impl Fn(&dyn Display)) -> usize {
    match managed(engine, wish) {
        Ok(None) => files::LATER,
        Ok(Some(range)) => {
            engine.report().note_file(range.len() as u64);
            range.start
        }
        Err(Refusal(reason, why)) => {
            let Wish::Map { thread, fd, len, .. } = wish else { return 0 };
            engine.report().note_file_left(reason, len as u64);
            say(&Line { file: file::descriptor_of_thread(thread, fd).ok(), mib: len >> 20, why });
            0
        }
    }
}

/// A line about what stays with the kernel.
struct Line {
    file: Option<Fd>,
    mib: usize,
    why: &'static str,
}

impl Display for Line {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut text = [0; 128];
        let name = self.file.as_ref().and_then(|file| file::name_of(file, &mut text));
        let name = name.and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("a file");
        write!(f, "{name} ({} MiB) stays with the kernel: {}", self.mib, self.why)
    }
}

/// Maps a file for the program, and manages it. `None`: that is to be tried again.
///
/// *The story:* the descriptor was looked up in the first thread's table. A thread with a table of its own
/// (unshare(CLONE_FILES)) had another file there, and got the first thread's (`torture file-own-table`).
fn managed(engine: &mut Engine, wish: Wish) -> Result<Option<AddressRange>, Refusal> {
    let Wish::Map { wish, len, prot, shared, thread, fd, file, offset } = wish else {
        return Err(Refusal(Left::Other, ""));
    };
    let given = file::descriptor_of_thread(thread, fd)?;
    let status = file::status(&given)?;
    if (status.device, status.inode) != file {
        return Err(Refusal(Left::Other, "its descriptor is one thread's own, or is closed already"));
    }
    let source = source(engine, &given, prot, shared, offset, len)?;
    let index = source.program.as_ref().map(|program| program.index);
    let mapped = make(engine, wish, len, source);
    if let Some(index) = index.filter(|_| !matches!(mapped, Ok(Some(_)))) {
        files::table().give_back(index);
    }
    mapped
}

/// What a mapping of `len` bytes of an open file, from `offset` on, is made of.
fn source(
    engine: &Engine,
    given: &Fd,
    prot: u32,
    shared: bool,
    offset: u64,
    len: usize,
) -> Result<Source, Refusal> {
    if engine.evicts_slowly() {
        return Err(Refusal(Left::Other, "this kernel cannot move pages"));
    }
    let status = file::status(given)?;
    let space = file::space(given)?;
    if space.magic == TMPFS_MAGIC {
        return Err(Refusal(Left::InMemory, "it is in RAM anyway"));
    }
    let plain = file::open_again(given, Open::empty())
        .map_err(|_| Refusal(Left::Other, "it cannot be opened again"))?;
    let direct = open_direct(given).ok_or(Refusal(Left::Other, "its file system has no direct reads"))?;
    let leased = hold(&direct, given, shared, &status)?;
    let twin = twin(&plain, len, offset, shared)?;
    let index = files::table().take().ok_or(Refusal(Left::Other, "too many files are mapped"))?;
    let place = files::table().file(index);
    place.offset.store(offset, SeqCst);
    place.identify(status.device, status.inode);
    place.prot.store(prot, SeqCst);
    place.shared.store(shared, SeqCst);
    place.lies.store(prot & PROT_WRITE == 0, SeqCst);
    let writable = prot & PROT_WRITE != 0;
    // Once more: until the lease was held it could change.
    let status = file::status(&plain).inspect_err(|_| files::table().give_back(index))?;
    let (is_local, known) = (space.is_local(), Some(status));
    let program = Program { place, index, plain, twin, leased, is_local, known };
    Ok(Source { file: direct, offset, len: status.len, writable, shared: false, program: Some(program) })
}

/// Past the page cache, if that can be: some file systems take the flag and refuse the read.
fn open_direct(given: &Fd) -> Option<Fd> {
    let direct = file::open_again(given, Open::DIRECT).ok()?;
    let mut page = Buffer::new(PAGE_SIZE).ok()?;
    file::pread(&direct, page.bytes_mut(0, PAGE_SIZE), 0).ok()?;
    Some(direct)
}

/// The same part of the file, mapped by the kernel, for children: they need neither a descriptor nor a
/// right to open it again. It takes addresses only.
///
/// *The stories:* a child mapped the file by a descriptor that its parent had opened before the fork. A
/// program that had given up its rights, or its /proc, or had no descriptor left could open none, and its
/// children ended by SIGSEGV (`torture file-fork-rights`). Other threads may close such a descriptor, too,
/// or it was of the file that the place had been of before (`torture file-fork-beside`).
fn twin(plain: &Fd, len: usize, offset: u64, shared: bool) -> Result<Mapping, Refusal> {
    if limits::ADDRESSES.is_set() {
        return Err(Refusal(Left::Other, "there is a limit on addresses (RLIMIT_AS)"));
    }
    Ok(Mapping::aside(plain, len.next_multiple_of(PAGE_SIZE), offset, shared)?)
}

/// Takes a lease, or finds that it does without one. True: there is one. What is mapped must not be so by
/// the open file that has it: it would be kept for as long.
fn hold(direct: &Fd, given: &Fd, shared: bool, status: &file::Status) -> Result<bool, Refusal> {
    match lease::take(direct) {
        Ok(()) => return Ok(true),
        Err(Errno::AGAIN) => return Err(Refusal(Left::Changing, "somebody writes to it")),
        Err(_) => {}
    }
    let may_write = file::open_again(given, Open::READ_WRITE).is_ok();
    let is_still = status.changed_ns + STILL_NS < clock::realtime_ns();
    if shared && (may_write || !is_still) {
        return Err(Refusal(Left::Changing, "it is shared, and may be written to unheard"));
    }
    Ok(false)
}

/// Makes the mapping: the pages of the file are managed, what lies behind its end is the kernel's. `None`:
/// that is to be tried again.
fn make(
    engine: &mut Engine,
    wish: usize,
    len: usize,
    source: Source,
) -> Result<Option<AddressRange>, Refusal> {
    let program = source.program.as_ref().expect("the program's mappings come with what goes along");
    let len = len.next_multiple_of(PAGE_SIZE);
    let in_file = source.len.saturating_sub(source.offset).next_multiple_of(PAGE_SIZE as u64);
    let ours = usize::try_from(in_file).unwrap_or(usize::MAX).min(len);
    if ours == 0 {
        return Err(Refusal(Left::Other, "nothing of it is there"));
    }
    let start = mem::map_for_program(wish, len)?;
    let rest = start + ours..start + len;
    let shared = program.place.shared.load(SeqCst);
    let prot = Prot::from_bits_truncate(program.place.prot.load(SeqCst));
    let (plain, offset) = (program.plain.raw(), source.offset + ours as u64);
    // SAFETY: the memory was just mapped, and nobody knows of it.
    let behind = |rest| unsafe { mem::map_file_fixed(rest, plain, offset, prot, shared) };
    let made = if rest.is_empty() { Ok(()) } else { behind(rest) };
    let made = made.and_then(|()| engine.register_empty(start..start + ours));
    let made = made.and_then(|()| engine.add_file(start..start + ours, source));
    if made.is_err() {
        // Not by this thread: it is the one that is told.
        engine.unmap_unknown(start..start + len);
    }
    match made {
        Ok(()) => Ok(Some(start..start + len)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What is not read of what was asked for is said: the kernel cuts in silence.
fn will_need(engine: &mut Engine, range: AddressRange, say: &impl Fn(&dyn Display)) {
    let left = engine.foresee(&range) * PAGE_SIZE as u64;
    engine.report().note_foreseen(range.len() as u64, left);
    if left > 0 {
        let (all, read) = (range.len() as u64 >> 20, (range.len() as u64 - left) >> 20);
        say(&format_args!(
            "{all} MiB of a file were asked for ahead: {read} MiB are read, a quarter of the budget"
        ));
    }
}

fn advise(engine: &mut Engine, range: AddressRange, advice: u32) {
    let advice = match advice {
        MADV_RANDOM => MapAdvice::Random,
        MADV_SEQUENTIAL => MapAdvice::Sequential,
        _ => MapAdvice::Normal,
    };
    engine.advise_files(&range, advice);
}

/// What the program has said of a file while that was the kernel's.
fn note_mark(engine: &mut Engine, range: AddressRange, advice: Advice) {
    match advice {
        Advice::Random => engine.advise_files(&range, MapAdvice::Random),
        Advice::Sequential => engine.advise_files(&range, MapAdvice::Sequential),
        _ => {}
    }
}
