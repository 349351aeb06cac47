//! What the kernel kept while it fitted ([`kept`]) is managed from now on.
//!
//! The program may read it all the while. So the managed memory is made elsewhere, complete, and moved
//! over the mapping in one call, for which nobody can see a state in between: until then a touch finds
//! the kernel's page, from then on it waits for the same bytes. What lies there is asked again in the
//! agent's turn, in which no call of libc changes it. What cannot be taken is the kernel's for good, and
//! is said.

use alloc::ffi::CString;
use alloc::format;
use core::fmt::Display;

use linux_raw_sys::general::PROT_READ;
use overspill_engine::report::Left;
use overspill_engine::{Engine, Source};
use overspill_sys::file::{self, Open};
use overspill_sys::maps::{BUFFER_BYTES, Maps, Name, Vma};
use overspill_sys::mem::{self, Prot};
use overspill_sys::pagemap::Query;
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, overlap};

use super::{Line, Refusal};
use crate::kept::{self, FileId, Kept};
use crate::{files, filters, remap, withheld};

/// A part of a file as the kernel has it mapped.
#[derive(Clone, PartialEq, Eq)]
struct Piece {
    range: AddressRange,
    /// All of the mapping.
    mapping: AddressRange,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    shared: bool,
    /// Its name, if it has one.
    path: Option<CString>,
}

impl Piece {
    /// What of a mapping is in a range; `None`: it is no mapping of a file for reading.
    fn of(vma: &Vma<'_>, within: &AddressRange) -> Option<Piece> {
        let Name::File { path, deleted } = vma.name else { return None };
        if vma.prot != Prot::READ {
            return None;
        }
        let range = vma.start.max(within.start)..vma.end.min(within.end);
        let offset = vma.offset + (range.start - vma.start) as u64;
        let path = if deleted { None } else { CString::new(path).ok() };
        let (device, inode, shared) = (vma.device, vma.inode, vma.shared);
        Some(Piece { range, mapping: vma.range(), offset, device, inode, shared, path })
    }

    /// Its file, opened anew: what is mapped there, by privilege, or what has its name. `None`: that is
    /// not the file of which the program had this mapped.
    ///
    /// What stat tells of a file is compared with what it told then, as the device that the kernel lists
    /// for a mapping is another one on Btrfs and overlays.
    fn open(&self, file: FileId) -> Option<Fd> {
        let AddressRange { start, end } = self.mapping;
        let link = CString::new(format!("/proc/self/map_files/{start:x}-{end:x}"));
        let linked = link.ok().and_then(|link| file::open(&link, Open::empty()).ok());
        let by_name = || self.path.as_ref().and_then(|path| file::open(path, Open::NON_BLOCKING).ok());
        let is_same = |fd: &Fd| file::status(fd).is_ok_and(|found| (found.device, found.inode) == file);
        linked.filter(is_same).or_else(|| by_name().filter(is_same))
    }
}

/// The first mapping at or behind an address: where it ends, and what of it can be taken.
fn look(maps: &Maps, at: usize, within: &AddressRange) -> Option<(usize, Option<Piece>)> {
    let seen = |vma: &Vma<'_>| (vma.start, vma.end, Piece::of(vma, within));
    let (start, end, piece) = maps.query(at, true, &mut [0; BUFFER_BYTES], seen).ok()??;
    (start < within.end).then_some((end, piece))
}

/// What became of a piece.
enum Outcome {
    Taken,
    /// Something was changing there.
    Changed,
    /// Some call was under way all the while.
    Busy,
}

/// Manages what the kernel keeps of a range: whole pieces. False: some of it is to be tried again.
pub fn take(engine: &mut Engine, range: &AddressRange, say: &impl Fn(&dyn Display)) -> bool {
    if filters::is_filtered() {
        // A child could not open what it needs. The thread that went behind it gives up what is kept.
        return false;
    }
    let Ok(maps) = Maps::open() else { return false };
    let mut is_done = true;
    for kept in kept::pieces().filter(|kept| overlap(&kept.range, range)) {
        match take_kept(engine, &maps, &kept, say) {
            Outcome::Taken => {}
            Outcome::Changed => is_done = false,
            // The next one would wait as long for that, and faults with it.
            Outcome::Busy => return false,
        }
    }
    is_done
}

fn take_kept(engine: &mut Engine, maps: &Maps, kept: &Kept, say: &impl Fn(&dyn Display)) -> Outcome {
    let mut at = kept.range.start;
    while at < kept.range.end
        && let Some((end, piece)) = look(maps, at, &kept.range)
    {
        at = end;
        let Some(piece) = piece else { continue };
        match take_piece(engine, maps, &piece, kept) {
            Ok(Outcome::Taken) => engine.report().note_file(piece.range.len() as u64),
            Ok(other) => return other,
            Err(Refusal(reason, why)) => {
                if kept::settle(&piece.range, kept.mapping, || true).is_none() {
                    return Outcome::Changed;
                }
                engine.report().note_file_left(reason, piece.range.len() as u64);
                let mib = piece.range.len() >> 20;
                say(&Line { file: piece.open(kept.file), mib, why });
            }
        }
    }
    // What lies behind the file's end, or was changed by calls that nobody saw, stays as it is.
    match kept::settle(&kept.range, kept.mapping, || true) {
        Some(_) => Outcome::Taken,
        None => Outcome::Changed,
    }
}

fn take_piece(engine: &mut Engine, maps: &Maps, piece: &Piece, kept: &Kept) -> Result<Outcome, Refusal> {
    let file = piece.open(kept.file).ok_or(Refusal(Left::Other, "it cannot be opened again"))?;
    let source = super::source(engine, &file, PROT_READ, piece.shared, piece.offset, piece.range.len())?;
    let index = source.program.as_ref().expect("a program's mapping has a place").index;
    let outcome = cover(engine, maps, piece, kept.mapping, source);
    if !matches!(outcome, Ok(Outcome::Taken)) {
        files::table().give_back(index);
    }
    outcome
}

fn cover(
    engine: &mut Engine,
    maps: &Maps,
    piece: &Piece,
    mapping: usize,
    source: Source,
) -> Result<Outcome, Refusal> {
    if engine.pagemap().has_any(piece.range.clone(), Query::OWN_CONTENT)? {
        return Err(Refusal(Left::Writable, "it was stored to"));
    }
    if mem::is_locked(piece.range.clone()) {
        return Err(Errno::BUSY.into());
    }
    let in_file = source.len.saturating_sub(source.offset).next_multiple_of(PAGE_SIZE as u64);
    let len = usize::try_from(in_file).unwrap_or(usize::MAX).min(piece.range.len());
    if len == 0 {
        return Err(Refusal(Left::Other, "nothing of it is there"));
    }
    let start = mem::map_for_program(0, len)?;
    let made = start..start + len;
    let is_made = engine.register_empty(made.clone()).and_then(|()| engine.add_file(made.clone(), source));
    if let Err(errno) = is_made {
        engine.unmap_unknown(made);
        return if errno == Errno::AGAIN { Ok(Outcome::Changed) } else { Err(errno.into()) };
    }
    engine.await_idle_helper();
    let outcome = move_over(engine, maps, piece, mapping, &made);
    if !matches!(outcome, Ok(Outcome::Taken)) {
        engine.remove_file(made.clone());
        engine.unmap_unknown(made);
    }
    outcome
}

/// Moves what was made over the piece, in the agent's turn.
fn move_over(
    engine: &mut Engine,
    maps: &Maps,
    piece: &Piece,
    mapping: usize,
    made: &AddressRange,
) -> Result<Outcome, Refusal> {
    let turn = remap::Turn::take(|| engine.handle_changes());
    if !turn.is_alone() {
        return Ok(Outcome::Busy);
    }
    let marks = engine.marks_of(&piece.range);
    let now = || look(maps, piece.range.start, &piece.range).and_then(|(_, now)| now);
    let mut moved = Err(Errno::AGAIN);
    // In the turn: a call that follows finds it managed.
    kept::settle(&piece.range, mapping, || {
        if kept::holds(&piece.range, mapping) && now().as_ref() == Some(piece) {
            withheld::keeping_marks(&piece.range, &mut || {
                moved = engine.move_over(made.clone(), piece.range.start);
                moved.is_ok()
            });
        }
        moved.is_ok()
    });
    match moved {
        Ok(()) => {
            marks.set(&piece.range, |range, advice| super::note_mark(engine, range, advice));
            Ok(Outcome::Taken)
        }
        Err(Errno::AGAIN) => Ok(Outcome::Changed),
        Err(errno) => Err(errno.into()),
    }
}
