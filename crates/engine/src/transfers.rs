//! Requests to the swap areas: one for each `Read` or `Write` of `mm`, vectored over the staging
//! frames of its pages.
//!
//! Each area has its own queue of what the device does not take yet, so that a slow one keeps
//! nobody waiting but its own. This module keeps what the kernel needs while a request is under way
//! and tells how each one ended; it knows nothing of pages.
//!
//! A request that the file system did in part is not at its end: the rest is ordered again, and
//! says why it stopped there. *The story:* a file system that was nearly full took the first part
//! of a write. That was taken for EIO, so "swap is full" became "a write failed", and `--strict`
//! did not end the program.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::IoId;
use overspill_mm::types::Slot;
use overspill_sys::mem::IoVec;
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{Errno, Fd, PAGE_SIZE, clock, file, through};

use crate::files::Files;
use crate::io::{Io, Punched};
use crate::passing::{self, Refused};
use crate::swapfile::GivesBack;

/// Largest number of pieces of one request: its pages, when no two of them lie in neighbouring
/// frames.
const PIECES: usize = 512;

/// Bit of a tag: a write of the compressed pool.
const WRITE_BACK: u64 = 1 << 63;
/// Bit of a tag: slots whose blocks are given back.
const DISCARD: u64 = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// A write of the compressed pool, of so many pages.
    WriteBack(u32),
}

/// A request, or what is left of it.
struct Request {
    kind: Kind,
    /// The swap area; none: of another file.
    area: Option<usize>,
    fd: i32,
    offset: u64,
    /// What must arrive: less than the pieces hold where a file ends within its last page.
    bytes: usize,
    pieces: Vec<IoVec>,
    /// It could not be done just then.
    refused: Option<Refused>,
}

impl Request {
    const NONE: Request = Request {
        kind: Kind::Read,
        area: None,
        fd: -1,
        offset: 0,
        bytes: 0,
        pieces: Vec::new(),
        refused: None,
    };

    /// What the plain call says, which waits.
    ///
    /// # Safety
    /// The pieces stay put, and nobody else has the request under way.
    unsafe fn plain(&self) -> Result<u32, Errno> {
        // SAFETY: the caller vouches for the pieces; the descriptor is that of an open file.
        let done = unsafe {
            match self.kind {
                Kind::Read => file::preadv(self.fd, &self.pieces, self.offset),
                _ => file::pwritev(self.fd, &self.pieces, self.offset),
            }
        };
        done.map(|bytes| bytes as u32)
    }

    /// The result; what the plain call says where it was only not to be done just then.
    ///
    /// *The story* (by reading: on 6.18 no request was cancelled at the limit on processes): a ring may
    /// cancel what it finds no thread for, and a call may find no memory. One such write was taken for a
    /// device that fails: the area was given up, and swap was over. A page that could not be read twice
    /// was lost.
    fn insist(&self, result: Result<u32, Errno>) -> Result<u32, Errno> {
        // A read of a file may wait for whoever serves the file, who may wait for this thread.
        if self.area.is_none() || !result.is_err_and(passing::passes) {
            return result;
        }
        // SAFETY: as when it was ordered: the pieces stay put until it has ended, and nobody else has the
        // request under way.
        unsafe { self.plain() }
    }

    /// When it is to be made again, as it was only not to be done just then. None: it is at its end.
    fn again_at(&mut self, result: Result<u32, Errno>) -> Option<u64> {
        if !result.is_err_and(passing::passes) {
            return None;
        }
        let patience = if self.area.is_some() { passing::AREA_NS } else { passing::FILE_NS };
        let now = clock::monotonic_ns();
        let refused = self.refused.get_or_insert_with(|| Refused::first(now));
        refused.pause(now, patience).map(|pause| now + pause)
    }

    /// The first `bytes` are done.
    fn advance(&mut self, bytes: usize) {
        assert!(bytes < self.bytes, "a request that is done has no rest");
        self.refused = None;
        self.offset += bytes as u64;
        self.bytes -= bytes;
        let mut done = bytes;
        self.pieces.retain_mut(|piece| {
            let part = done.min(piece.len);
            done -= part;
            piece.base += part;
            piece.len -= part;
            piece.len > 0
        });
    }

    /// What a result says: `None` where something was done and the rest is to be ordered. Only
    /// whole pages count, as direct I/O goes on at such offsets only.
    fn judge(&mut self, result: Result<u32, Errno>) -> Option<Result<(), Errno>> {
        let done = match result {
            Ok(done) if done as usize >= self.bytes && self.bytes > 0 => return Some(Ok(())),
            Ok(done) => done as usize / PAGE_SIZE * PAGE_SIZE,
            Err(errno) => return Some(Err(errno)),
        };
        // Of what lies behind a file's end, as far as is known, nothing counts: it may have grown by now.
        if done == 0 || self.bytes == 0 {
            // A file ends early, or a file system has no room and does not say so.
            return Some(Err(if self.kind == Kind::Read { Errno::IO } else { Errno::NOSPC }));
        }
        self.advance(done);
        None
    }

    /// Does a write go beyond what files may have (RLIMIT_FSIZE)?
    fn passes_limit(&self) -> bool {
        let end = self.offset + self.bytes as u64;
        self.kind != Kind::Read && procfs::limit(Limit::FileSize).is_ok_and(|(most, _)| most < end)
    }
}

/// The pieces of one request, neighbours joined.
pub(crate) struct Pieces {
    pieces: [IoVec; PIECES],
    count: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces { pieces: [IoVec { base: 0, len: 0 }; PIECES], count: 0 }
    }
}

impl Pieces {
    /// Adds `pages` pages that begin at an address.
    pub fn push(&mut self, address: usize, pages: u32) {
        let len = pages as usize * PAGE_SIZE;
        if let Some(last) = self.count.checked_sub(1).map(|last| &mut self.pieces[last])
            && last.base + last.len == address
        {
            last.len += len;
            return;
        }
        self.pieces[self.count] = IoVec { base: address, len };
        self.count += 1;
    }

    fn as_slice(&self) -> &[IoVec] {
        &self.pieces[..self.count]
    }
}

/// How a request ended.
pub(crate) enum Ended {
    /// A read; `Err` has the reason (a short read counts as EIO).
    Read(IoId, Result<(), Errno>),
    /// A write.
    Write(IoId, Result<(), Errno>),
    /// A write of the compressed pool; see [`Transfers::write_back`].
    WriteBack { at: u32, pages: u32, outcome: Result<(), Errno> },
    /// Blocks were given back, as far as that can be: the first of their slots.
    Discard { slot: u32, kept: bool },
}

/// A swap area, and what it has to do.
struct Area {
    /// None: it was left.
    file: Option<Fd>,
    /// Of a device: holds the lock on it.
    lock: Option<Fd>,
    /// The number of its header among the slots of all areas.
    base: u32,
    gives_back: GivesBack,
    in_flight: u32,
    /// Ordered, but not taken by the device yet, by their tags.
    backlog: VecDeque<u64>,
    /// It is to be closed once nothing is under way.
    closes: bool,
}

impl Area {
    fn offset_of(&self, slot: u32) -> u64 {
        u64::from(slot - self.base) * PAGE_SIZE as u64
    }
}

/// The requests under way.
pub(crate) struct Transfers {
    /// Dropped first: threads are waited for while the descriptors and pieces of requests are there.
    io: Io,
    /// In ascending order of their slots.
    areas: Vec<Area>,
    files: Files,
    /// Requests for other files that the device does not take yet, by their tags.
    backlog: VecDeque<u64>,
    /// By their [`IoId`].
    requests: Vec<Request>,
    /// Those of the compressed pool, by what it calls them.
    write_backs: Vec<Request>,
    in_flight: u32,
    /// Requests that could not be done just then: when they are made again, and their tags.
    postponed: Vec<(u64, u64)>,
    /// Blocks that were given back at once, or kept, by their first slot.
    discarded: VecDeque<(u32, bool)>,
}

impl Transfers {
    pub fn new(io: Io) -> Self {
        let (areas, requests, write_backs) = (Vec::new(), Vec::new(), Vec::new());
        let (files, backlog, discarded) = (Files::default(), VecDeque::new(), VecDeque::new());
        let (in_flight, postponed) = (0, Vec::new());
        Transfers { io, areas, files, backlog, requests, write_backs, in_flight, postponed, discarded }
    }

    /// One more area, whose slots begin at `base`, above those of all others.
    pub fn add_area(&mut self, file: Fd, lock: Option<Fd>, base: u32, gives_back: GivesBack) {
        assert!(self.areas.last().is_none_or(|last| last.base < base), "areas come in order");
        let (file, backlog) = (Some(file), VecDeque::new());
        self.areas.push(Area { file, lock, base, gives_back, in_flight: 0, backlog, closes: false });
    }

    /// The descriptor of an area.
    pub fn descriptor_of(&self, area: usize) -> Option<u32> {
        Some(self.areas[area].file.as_ref()?.raw() as u32)
    }

    /// What is free where an area lies that takes its room as it is used.
    pub fn room_of(&self, area: usize) -> Option<u64> {
        if self.areas[area].gives_back != GivesBack::Holes {
            return None;
        }
        let space = file::space(self.areas[area].file.as_ref()?).ok()?;
        Some(space.available_bytes)
    }

    /// Is no file of the program's managed?
    pub fn has_no_files(&self) -> bool {
        self.files.is_empty()
    }

    /// Nothing is in an area any more: its file is closed, once nothing is under way there.
    pub fn close_area(&mut self, area: usize) {
        self.areas[area].closes = true;
        self.close_if_idle(area);
    }

    /// Areas that were closed, so that nothing is under way there, nor told of it any more, from the last to
    /// the first. None at all while anything is under way anywhere: requests know areas by their places.
    pub fn closed(&self) -> impl Iterator<Item = usize> + use<> {
        let may = self.in_flight == 0 && self.discarded.is_empty();
        let closed = |area: &usize| may && self.areas[*area].file.is_none();
        (0..self.areas.len()).rev().filter(closed).collect::<Vec<usize>>().into_iter()
    }

    /// A closed area is forgotten; those behind it come to have the place before theirs.
    pub fn remove_area(&mut self, area: usize) {
        assert!(self.in_flight == 0 && self.discarded.is_empty(), "requests know areas by their places");
        assert!(self.areas[area].file.is_none(), "nothing is there");
        self.areas.remove(area);
    }

    fn close_if_idle(&mut self, area: usize) {
        let area = &mut self.areas[area];
        if area.closes && area.in_flight == 0 && area.backlog.is_empty() {
            (area.file, area.lock) = (None, None);
        }
    }

    fn area_of(&self, slot: u32) -> usize {
        let behind = self.areas.iter().take_while(|area| area.base <= slot).count();
        behind.checked_sub(1).expect("a slot lies in an area")
    }

    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The files beside the swap file.
    pub fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Orders a read of consecutive slots into `pieces`.
    pub fn read(&mut self, io: IoId, slot: u32, pieces: &Pieces) {
        self.order(Kind::Read, u64::from(io.0), slot, pieces.as_slice());
    }

    /// Orders a write of `pieces` to consecutive slots.
    pub fn write(&mut self, io: IoId, slot: u32, pieces: &Pieces) {
        self.order(Kind::Write, u64::from(io.0), slot, pieces.as_slice());
    }

    /// Orders a write of `pages` (at least one) pages at `address` to consecutive slots, for the
    /// compressed pool, which calls it `at`. False: the device takes no more now.
    pub fn write_back(&mut self, at: u32, slot: u32, address: usize, pages: u32) -> bool {
        let tag = WRITE_BACK | u64::from(at);
        let piece = IoVec { base: address, len: pages as usize * PAGE_SIZE };
        self.prepare(Kind::WriteBack(pages), tag, slot, &[piece]);
        let ordered = self.areas[self.area_of(slot)].backlog.is_empty() && self.start(tag);
        self.in_flight += u32::from(ordered);
        ordered
    }

    fn order(&mut self, kind: Kind, tag: u64, slot: u32, pieces: &[IoVec]) {
        self.prepare(kind, tag, slot, pieces);
        self.in_flight += 1;
        self.start_or_wait(tag);
    }

    fn prepare(&mut self, kind: Kind, tag: u64, slot: u32, pieces: &[IoVec]) {
        let bytes = pieces.iter().map(|piece| piece.len).sum();
        let (area, fd, offset, bytes) = if Slot(slot).is_file() {
            let spot = self.files.spot(Slot(slot));
            let available = usize::try_from(spot.available).unwrap_or(usize::MAX);
            (None, spot.fd, spot.offset, available.min(bytes))
        } else {
            let area = self.area_of(slot);
            // What is in one that was left was lost, and whoever needed it was told: EBADF tells it again.
            let (fd, offset) =
                (self.areas[area].file.as_ref().map_or(-1, Fd::raw), self.areas[area].offset_of(slot));
            (Some(area), fd, offset, bytes)
        };
        let request = self.request(tag);
        (request.kind, request.area, request.fd) = (kind, area, fd);
        (request.offset, request.bytes, request.refused) = (offset, bytes, None);
        request.pieces.clear();
        request.pieces.extend_from_slice(pieces);
    }

    /// The request with a tag; an empty one at first.
    fn request(&mut self, tag: u64) -> &mut Request {
        let (requests, index) = match tag & WRITE_BACK {
            0 => (&mut self.requests, tag as usize),
            _ => (&mut self.write_backs, (tag & !WRITE_BACK) as usize),
        };
        if requests.len() <= index {
            requests.resize_with(index + 1, || Request::NONE);
        }
        &mut requests[index]
    }

    fn backlog_of(&mut self, area: Option<usize>) -> &mut VecDeque<u64> {
        area.map_or(&mut self.backlog, |area| &mut self.areas[area].backlog)
    }

    fn start_or_wait(&mut self, tag: u64) {
        let area = self.request(tag).area;
        if !self.backlog_of(area).is_empty() || !self.start(tag) {
            self.backlog_of(area).push_back(tag);
        }
    }

    /// Gives a request to the device; false when that takes no more now.
    fn start(&mut self, tag: u64) -> bool {
        // The pieces are not touched before the request ended: a tag is unique while its request is
        // under way.
        let requests = if tag & WRITE_BACK == 0 { &self.requests } else { &self.write_backs };
        let request = &requests[(tag & !WRITE_BACK) as usize];
        let write = request.kind != Kind::Read;
        let (has_others, share) = (self.areas.len() > 1, self.io.share());
        let mut area = request.area.map(|area| &mut self.areas[area]);
        let may = !has_others || area.as_ref().is_none_or(|area| area.in_flight < share);
        let started = may && self.io.order(write, request.fd, &request.pieces, request.offset, tag);
        if let Some(area) = &mut area {
            area.in_flight += u32::from(started);
        }
        started
    }

    /// A write was refused as the program has limited its files (RLIMIT_FSIZE), of which the swap file
    /// is none: it is made in a way that asks nobody for leave, and waited for.
    ///
    /// *The stories:* a program lowered that limit while it was paged. Swap was called full from then on.
    /// And the limit lay within a page: the kernel writes up to it, which is no whole block, and the write
    /// failed for another reason (EINVAL).
    fn write_through(&mut self, tag: u64) -> Result<(), Errno> {
        let request = core::mem::replace(self.request(tag), Request::NONE);
        let file = request.area.and_then(|area| self.areas[area].file.as_ref());
        let written = file.map(|file| through::write(file, &request.pieces, request.offset));
        *self.request(tag) = request;
        // Why not is known.
        written.and_then(Result::ok).ok_or(Errno::FBIG)
    }

    /// Reads `pages` slots to pages at `address`, and waits for them. False: they could not be read,
    /// or do not lie in one area.
    pub fn read_now(&self, slot: u32, address: usize, pages: u32) -> bool {
        self.do_now(Kind::Read, slot, address, pages)
    }

    /// As [`Transfers::read_now`], for writes.
    pub fn write_now(&self, slot: u32, address: usize, pages: u32) -> bool {
        self.do_now(Kind::Write, slot, address, pages)
    }

    /// *The story:* a call that was interrupted, found no memory or did a part was taken for a page that
    /// cannot be read. A child of fork lost it, though the device was well.
    fn do_now(&self, kind: Kind, slot: u32, address: usize, pages: u32) -> bool {
        let Some((file, offset)) = self.place_of(slot, pages) else { return false };
        let bytes = pages as usize * PAGE_SIZE;
        let pieces = alloc::vec![IoVec { base: address, len: bytes }];
        let area = Some(self.area_of(slot));
        let mut request = Request { kind, area, fd: file.raw(), offset, bytes, pieces, refused: None };
        loop {
            // SAFETY: the caller's pages are its own, nobody stores to them, and no request is under way
            // for them.
            let result = unsafe { request.plain() };
            if let Some(time) = request.again_at(result) {
                clock::sleep_ns(time.saturating_sub(clock::monotonic_ns()));
            } else if let Some(outcome) = request.judge(result) {
                return outcome.is_ok();
            }
        }
    }

    /// The file of so many slots, and where they are in it. None: they do not lie in one area, or that was
    /// left.
    fn place_of(&self, slot: u32, pages: u32) -> Option<(&Fd, u64)> {
        let index = self.area_of(slot);
        let area = &self.areas[index];
        let file = area.file.as_ref().filter(|_| index == self.area_of(slot + pages - 1));
        file.map(|file| (file, area.offset_of(slot)))
    }

    /// Gives the blocks of slots that nobody uses back to the file system or the device;
    /// [`Ended::Discard`] follows.
    pub fn discard(&mut self, slot: u32, count: u32) {
        let index = self.area_of(slot);
        let area = &mut self.areas[index];
        let (offset, bytes) = (area.offset_of(slot), u64::from(count) * PAGE_SIZE as u64);
        let tag = DISCARD | u64::from(slot);
        let done = match (&area.file, area.gives_back) {
            (Some(file), GivesBack::Holes) => self.io.punch(file, offset, bytes, tag),
            (Some(file), GivesBack::Discards) if self.io.discard(file, offset, bytes, tag) => {
                Punched::Ordered
            }
            _ => Punched::Refused,
        };
        if done == Punched::Ordered {
            self.in_flight += 1;
            area.in_flight += 1;
            return;
        }
        if area.gives_back == GivesBack::Discards && !self.io.is_uring() {
            area.gives_back = GivesBack::DiscardsNow;
        }
        let mut kept = done == Punched::Refused;
        if let (Some(file), GivesBack::DiscardsNow) = (&area.file, area.gives_back) {
            kept = file::discard_blocks(file, offset, bytes).is_err();
            area.gives_back = if kept { GivesBack::Nothing } else { area.gives_back };
        }
        // Refused, the blocks stay: they are of use to the next pages.
        self.discarded.push_back((slot, kept));
    }

    /// Who cannot give blocks back keeps them. Where the device, or the ring, knows no such thing it is
    /// tried in the other way from now on.
    fn discard_ended(&mut self, slot: u32, succeeded: bool) {
        let index = self.area_of(slot);
        let area = &mut self.areas[index];
        if !succeeded && area.gives_back == GivesBack::Discards {
            area.gives_back = GivesBack::DiscardsNow;
        }
        area.in_flight -= 1;
        self.in_flight -= 1;
        self.close_if_idle(index);
    }

    /// Hands what was ordered to the kernel.
    pub fn submit(&mut self) {
        for area in (0..self.areas.len()).map(Some).chain([None]) {
            while let Some(&tag) = self.backlog_of(area).front() {
                if !self.start(tag) {
                    break;
                }
                self.backlog_of(area).pop_front();
            }
        }
        self.io.submit();
    }

    /// Waits until a request ended or `timeout_ns` passed.
    pub fn wait(&mut self, timeout_ns: u64) {
        let now = clock::monotonic_ns();
        let due = self.postponed.iter().map(|&(time, _)| time.saturating_sub(now)).min();
        let timeout_ns = due.map_or(timeout_ns, |due| due.min(timeout_ns));
        let waiting = self.areas.iter().map(|area| &area.backlog).chain([&self.backlog]);
        let aside = self.postponed.len() + waiting.map(VecDeque::len).sum::<usize>();
        if self.in_flight as usize > aside {
            self.io.wait(timeout_ns);
        } else {
            // Nothing is at the device, so nothing ends there.
            clock::sleep_ns(timeout_ns);
        }
    }

    /// Requests under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// A request that is to be made again by now.
    fn next_due(&mut self) -> Option<u64> {
        if self.postponed.is_empty() {
            return None;
        }
        let now = clock::monotonic_ns();
        let index = self.postponed.iter().position(|&(time, _)| time <= now)?;
        Some(self.postponed.swap_remove(index).1)
    }

    /// The next request that ended.
    pub fn next_ended(&mut self) -> Option<Ended> {
        if let Some((slot, kept)) = self.discarded.pop_front() {
            return Some(Ended::Discard { slot, kept });
        }
        loop {
            let (tag, result) = match self.next_due() {
                // Whoever serves a file of the program's may wait for this thread.
                Some(tag) if self.request(tag).area.is_none() => {
                    self.start_or_wait(tag);
                    continue;
                }
                // SAFETY: as when it was ordered: the pieces stay put until it has ended, and it is not
                // under way.
                Some(tag) => (tag, unsafe { self.request(tag).plain() }),
                None => {
                    let ended = self.io.pop()?;
                    (ended.user_data, ended.outcome())
                }
            };
            if tag & (WRITE_BACK | DISCARD) == DISCARD {
                let (slot, kept) = (tag as u32, result.is_err());
                self.discard_ended(slot, !kept);
                return Some(Ended::Discard { slot, kept });
            }
            let request = self.request(tag);
            let result = request.insist(result);
            if let Some(time) = request.again_at(result) {
                self.postponed.push((time, tag));
                continue;
            }
            let (kind, area) = (request.kind, request.area);
            let judged = request.judge(result);
            if let Some(area) = area {
                self.areas[area].in_flight -= 1;
            }
            let Some(mut outcome) = judged else {
                self.start_or_wait(tag);
                continue;
            };
            if let Err(errno) = outcome
                && (errno == Errno::FBIG || self.request(tag).passes_limit())
            {
                outcome = self.write_through(tag);
            }
            self.in_flight -= 1;
            if let Some(area) = area {
                self.close_if_idle(area);
            }
            let index = (tag & !WRITE_BACK) as u32;
            return Some(match kind {
                Kind::Read => Ended::Read(IoId(index), outcome),
                Kind::Write => Ended::Write(IoId(index), outcome),
                Kind::WriteBack(pages) => Ended::WriteBack { at: index, pages, outcome },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind) -> Request {
        let piece = |base: usize, pages: usize| IoVec { base, len: pages * PAGE_SIZE };
        let pieces = std::vec![piece(0x10_000, 2), piece(0x40_000, 3)];
        let offset = 7 * PAGE_SIZE as u64;
        Request { kind, area: None, fd: 3, offset, bytes: 5 * PAGE_SIZE, pieces, refused: None }
    }

    /// See the head of the file.
    #[test]
    fn a_write_that_was_done_in_part_goes_on_and_says_why_it_stops() {
        let mut write = request(Kind::Write);
        assert_eq!(write.judge(Ok(3 * PAGE_SIZE as u32 + 512)), None, "the rest is to be written");
        assert_eq!((write.offset, write.bytes), (10 * PAGE_SIZE as u64, 2 * PAGE_SIZE));
        assert_eq!(write.pieces.len(), 1);
        assert_eq!((write.pieces[0].base, write.pieces[0].len), (0x41_000, 2 * PAGE_SIZE));
        assert_eq!(write.judge(Err(Errno::NOSPC)), Some(Err(Errno::NOSPC)));
        assert_eq!(request(Kind::Write).judge(Ok(0)), Some(Err(Errno::NOSPC)));
        assert_eq!(request(Kind::WriteBack(5)).judge(Ok(512)), Some(Err(Errno::NOSPC)));
    }

    /// *The story:* an area was closed while blocks of it were still to be given back. What the ring had
    /// not been handed yet went to whatever file had the descriptor's number by then.
    #[test]
    fn an_area_is_open_until_its_blocks_are_given_back() {
        let Ok(io @ Io::Ring(_)) = Io::new(true) else { return };
        let mut transfers = Transfers::new(io);
        transfers.add_area(file::memfd(c"area").expect("memory files are there"), None, 1, GivesBack::Holes);
        transfers.discard(2, 3);
        transfers.close_area(0);
        assert!(transfers.areas[0].file.is_some(), "it is closed under a request");
        transfers.submit();
        transfers.wait(1_000_000_000);
        assert!(matches!(transfers.next_ended(), Some(Ended::Discard { slot: 2, .. })));
        assert!(transfers.areas[0].file.is_none() && transfers.in_flight() == 0);
    }

    /// A device that does not answer for now has so many requests and no more: the ring has room for
    /// those of the others. Where there is no other the device has all of it.
    #[test]
    fn a_slow_area_leaves_room_for_the_others() {
        let page = std::vec![7_u8; PAGE_SIZE];
        let mut pieces = Pieces::default();
        pieces.push(page.as_ptr() as usize, 1);
        let ways = [(true, &[1, 5000][..]), (true, &[1]), (false, &[1, 5000])];
        for (use_uring, bases) in ways {
            let io = Io::new(use_uring).expect("there are threads at least");
            let share = io.share();
            let mut transfers = Transfers::new(io);
            for &base in bases {
                let file = file::memfd(c"area").expect("memory files are there");
                transfers.add_area(file, None, base, GivesBack::Nothing);
            }
            // What has ended and was not looked at is under way here.
            let count = share + 10;
            (0..count).for_each(|n| transfers.write(IoId(n), 2 + n, &pieces));
            let waits = if bases.len() > 1 { 10 } else { 0 };
            assert_eq!(transfers.areas[0].backlog.len(), waits, "of an area of {}", bases.len());
            assert_eq!(transfers.areas[0].in_flight, count - waits as u32);
            if bases.len() > 1 {
                transfers.write(IoId(count), 5001, &pieces);
                assert_eq!((transfers.areas[1].in_flight, transfers.areas[1].backlog.len()), (1, 0));
            }
            let mut done = 0;
            while transfers.in_flight() > 0 {
                transfers.submit();
                transfers.wait(1_000_000_000);
                while let Some(ended) = transfers.next_ended() {
                    assert!(matches!(ended, Ended::Write(_, Ok(()))));
                    done += 1;
                }
            }
            assert_eq!(done, count + bases.len() as u32 - 1, "what waited went, too");
        }
    }

    /// *The story:* the descriptors of swap were closed before the threads were waited for. What was
    /// queued went to whatever file had the number by then, from memory that was somebody else's.
    #[test]
    fn descriptors_are_open_until_the_threads_are_done() {
        let area = file::memfd(c"area").expect("memory files are there");
        file::pwrite(&area, &std::vec![7; 33 * PAGE_SIZE], 0).expect("and can be written");
        let mut pages = std::vec![0_u8; 32 * PAGE_SIZE];
        let mut transfers = Transfers::new(Io::new(false).expect("there are threads"));
        transfers.add_area(area, None, 1, GivesBack::Nothing);
        for (n, page) in (0..).zip(pages.chunks_mut(PAGE_SIZE)) {
            let mut pieces = Pieces::default();
            pieces.push(page.as_mut_ptr() as usize, 1);
            transfers.read(IoId(n), 2 + n, &pieces);
        }
        drop(transfers);
        assert!(pages.iter().all(|&byte| byte == 7), "read from a descriptor that was closed");
    }

    /// See [`Request::insist`].
    #[test]
    fn what_could_not_be_done_just_then_is_done() {
        let file = file::memfd(c"area").expect("memory files are there");
        let mut page = std::vec![7_u8; PAGE_SIZE];
        let pieces = std::vec![IoVec { base: page.as_mut_ptr() as usize, len: PAGE_SIZE }];
        let of_kind =
            |kind| Request { kind, area: Some(0), fd: file.raw(), bytes: PAGE_SIZE, ..request(kind) };
        let write = Request { pieces: pieces.clone(), ..of_kind(Kind::Write) };
        let read = Request { pieces, ..of_kind(Kind::Read) };
        for passing in [Errno::INTR, Errno::AGAIN, Errno::NOMEM, Errno::CANCELED] {
            page.fill(passing.raw_os_error() as u8);
            assert_eq!(write.insist(Err(passing)), Ok(PAGE_SIZE as u32));
            page.fill(0);
            assert_eq!(read.insist(Err(passing)), Ok(PAGE_SIZE as u32));
            assert!(page.iter().all(|&byte| byte == passing.raw_os_error() as u8), "the page is lost");
        }
        assert_eq!(read.insist(Err(Errno::IO)), Err(Errno::IO), "a device that fails");
        let of_file = Request { area: None, pieces: read.pieces.clone(), ..request(Kind::Read) };
        assert_eq!(of_file.insist(Err(Errno::AGAIN)), Err(Errno::AGAIN), "who serves it may wait for us");
        let closed = Request { fd: -1, ..read };
        assert_eq!(closed.insist(Err(Errno::AGAIN)), Err(Errno::BADF), "and what the call itself says");
    }

    /// See `passing.rs`.
    #[test]
    fn what_was_postponed_is_done_and_is_under_way_until_then() {
        for use_uring in [true, false] {
            let mut transfers = Transfers::new(Io::new(use_uring).expect("there are threads at least"));
            let file = file::memfd(c"area").expect("memory files are there");
            transfers.add_area(file, None, 1, GivesBack::Nothing);
            let page = std::vec![7_u8; PAGE_SIZE];
            let mut pieces = Pieces::default();
            pieces.push(page.as_ptr() as usize, 1);
            transfers.prepare(Kind::Write, 0, 2, pieces.as_slice());
            (transfers.in_flight, transfers.areas[0].in_flight) = (1, 1);
            let began = clock::monotonic_ns();
            let again = transfers.request(0).again_at(Err(Errno::NOMEM)).expect("it passes");
            assert!(transfers.request(0).again_at(Err(Errno::IO)).is_none(), "a device that fails");
            transfers.postponed.push((again, 0));
            transfers.close_area(0);
            let mut waits = 0;
            let ended = loop {
                match transfers.next_ended() {
                    Some(ended) => break ended,
                    None => transfers.wait(10_000_000_000),
                }
                waits += 1;
            };
            assert!(matches!(ended, Ended::Write(IoId(0), Ok(()))));
            let took = clock::monotonic_ns() - began;
            assert!((1_000_000..5_000_000_000).contains(&took), "{took} ns");
            assert!((1..=3).contains(&waits), "it waits, and does not look again and again: {waits}");
            assert!(transfers.in_flight() == 0 && transfers.areas[0].file.is_none());
        }
    }

    /// What was lost is lost still, and nothing is read from whatever has the descriptor's number by now.
    #[test]
    fn nothing_is_read_from_an_area_that_was_left() {
        for use_uring in [true, false] {
            let mut transfers = Transfers::new(Io::new(use_uring).expect("there are threads at least"));
            let file = file::memfd(c"area").expect("memory files are there");
            transfers.add_area(file, None, 1, GivesBack::Nothing);
            transfers.close_area(0);
            let mut page = std::vec![7_u8; PAGE_SIZE];
            let mut pieces = Pieces::default();
            pieces.push(page.as_mut_ptr() as usize, 1);
            assert!(!transfers.read_now(2, page.as_mut_ptr() as usize, 1));
            transfers.read(IoId(0), 2, &pieces);
            transfers.submit();
            transfers.wait(1_000_000_000);
            assert!(matches!(transfers.next_ended(), Some(Ended::Read(IoId(0), Err(_)))));
            assert!(page.iter().all(|&byte| byte == 7) && transfers.in_flight() == 0);
        }
    }

    /// *The story:* a call that did a part only was taken for pages that cannot be read.
    #[test]
    fn what_is_done_now_is_done_as_a_whole() {
        let file = file::memfd(c"area").expect("memory files are there");
        file::pwrite(&file, &std::vec![7; 3 * PAGE_SIZE], 0).expect("and can be written");
        let mut transfers = Transfers::new(Io::new(false).expect("there are threads"));
        transfers.add_area(file, None, 1, GivesBack::Nothing);
        let mut pages = std::vec![0_u8; 2 * PAGE_SIZE];
        assert!(transfers.read_now(2, pages.as_mut_ptr() as usize, 2));
        assert!(pages.iter().all(|&byte| byte == 7));
        assert!(!transfers.read_now(3, pages.as_mut_ptr() as usize, 2), "there is one only");
    }

    #[test]
    fn a_read_that_ends_early_has_failed() {
        let mut read = request(Kind::Read);
        assert_eq!(read.judge(Ok(PAGE_SIZE as u32)), None);
        assert_eq!((read.pieces[0].base, read.pieces[0].len), (0x11_000, PAGE_SIZE));
        assert_eq!(read.judge(Ok(0)), Some(Err(Errno::IO)));
        assert_eq!(request(Kind::Read).judge(Ok(5 * PAGE_SIZE as u32)), Some(Ok(())));
    }
}
