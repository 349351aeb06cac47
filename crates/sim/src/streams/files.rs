//! Files: which of their pages have a frame, and what of them is on the disk.
//!
//! A page that a program writes has a version, one more with each store: the one in memory, the one
//! that was sent to the disk last, the one that is there. A page that leaves memory must be there as
//! it was; that is asserted. Pages of which memory is newer wait in the order in which they became
//! so, for the flusher.

use crate::time::Nanos;
use overspill_mm::reclaim::lists::PageNumber;
use std::collections::VecDeque;

const NONE: u32 = u32::MAX;

/// How often a page was stored to.
#[derive(Clone, Copy, Default)]
struct Versions {
    memory: u32,
    sent: u32,
    disk: u32,
}

impl Versions {
    fn is_dirty(self) -> bool {
        self.memory != self.sent
    }
}

#[derive(Clone, Default)]
struct File {
    frames: Vec<u32>,
    /// Of files that are written.
    versions: Vec<Versions>,
}

/// A page of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    pub file: u16,
    pub index: u32,
}

/// A page that became dirty, and when.
struct Dirtied {
    spot: Spot,
    at: Nanos,
}

/// All files.
#[derive(Default)]
pub struct Files {
    files: Vec<File>,
    dirtied: VecDeque<Dirtied>,
    /// Pages of which memory is newer, and pages on their way.
    dirty: u64,
    sent: u64,
}

impl Files {
    /// The file has at least so many pages.
    pub fn open(&mut self, file: u16, pages: u32, is_written: bool) {
        let index = usize::from(file);
        if self.files.len() <= index {
            self.files.resize(index + 1, File::default());
        }
        let File { frames, versions } = &mut self.files[index];
        frames.resize(frames.len().max(pages as usize), NONE);
        if is_written {
            versions.resize(versions.len().max(frames.len()), Versions::default());
        }
    }

    /// The page's frame, if it has one.
    pub fn frame(&self, spot: Spot) -> Option<PageNumber> {
        let frame = self.files[usize::from(spot.file)].frames[spot.index as usize];
        (frame != NONE).then_some(PageNumber(frame))
    }

    /// The page has a frame.
    pub fn enter(&mut self, spot: Spot, page: PageNumber) {
        self.files[usize::from(spot.file)].frames[spot.index as usize] = page.0;
    }

    /// The page has lost its frame.
    ///
    /// # Panics
    /// When what it held is nowhere else.
    pub fn leave(&mut self, spot: Spot) {
        self.files[usize::from(spot.file)].frames[spot.index as usize] = NONE;
        let versions = self.versions(spot);
        assert_eq!(versions.memory, versions.disk, "what leaves memory is on the disk: {spot:?}");
    }

    /// Has the disk anything of the page? A hole is read without it.
    pub fn is_hole(&self, spot: Spot) -> bool {
        self.versions(spot).disk == 0
    }

    fn versions(&self, spot: Spot) -> Versions {
        let versions = &self.files[usize::from(spot.file)].versions;
        versions.get(spot.index as usize).copied().unwrap_or_default()
    }

    fn versions_mut(&mut self, spot: Spot) -> &mut Versions {
        &mut self.files[usize::from(spot.file)].versions[spot.index as usize]
    }

    /// A program stores to the page.
    pub fn store(&mut self, spot: Spot, at: Nanos) {
        let versions = self.versions_mut(spot);
        let was_dirty = versions.is_dirty();
        versions.memory += 1;
        if !was_dirty {
            self.dirty += 1;
            self.dirtied.push_back(Dirtied { spot, at });
        }
    }

    /// What memory has of the page is on its way.
    pub fn send(&mut self, spot: Spot) {
        let versions = self.versions_mut(spot);
        assert!(versions.is_dirty(), "only what the disk does not have is sent");
        assert_eq!(versions.sent, versions.disk, "one version of a page is on its way at a time");
        versions.sent = versions.memory;
        (self.dirty, self.sent) = (self.dirty - 1, self.sent + 1);
    }

    /// It has arrived.
    pub fn arrive(&mut self, spot: Spot) {
        let versions = self.versions_mut(spot);
        assert_ne!(versions.sent, versions.disk, "something was on its way");
        versions.disk = versions.sent;
        self.sent -= 1;
    }

    /// Pages of which memory is newer than the disk and than what is on its way there.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// These, and those on their way.
    pub fn unwritten(&self) -> u64 {
        self.dirty + self.sent
    }

    /// Takes the page that has waited longest, if it has since `before`. One that was sent meanwhile
    /// by somebody else is passed over; one whose older version is still on its way waits again.
    pub fn next_dirty(&mut self, before: Nanos, now: Nanos) -> Option<Spot> {
        for _ in 0..self.dirtied.len() {
            let Dirtied { at, .. } = *self.dirtied.front()?;
            if at > before {
                return None;
            }
            let Dirtied { spot, .. } = self.dirtied.pop_front()?;
            let versions = self.versions(spot);
            if !versions.is_dirty() {
                continue;
            }
            if versions.sent == versions.disk {
                return Some(spot);
            }
            self.dirtied.push_back(Dirtied { spot, at: now });
        }
        None
    }

    /// All files are gone. The pages must be, too.
    pub fn clear(&mut self) {
        assert_eq!(self.sent, 0, "nothing is on its way");
        *self = Files::default();
    }

    /// What the disk has of every page is what was stored last.
    pub fn are_written(&self) -> bool {
        let is_written = |versions: &Versions| versions.memory == versions.disk;
        self.files.iter().flat_map(|file| &file.versions).all(is_written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPOT: Spot = Spot { file: 0, index: 3 };

    fn one_file() -> Files {
        let mut files = Files::default();
        files.open(0, 8, true);
        files.enter(SPOT, PageNumber(7));
        files
    }

    #[test]
    fn a_page_is_sent_as_often_as_it_must_be() {
        let mut files = one_file();
        (0..3).for_each(|at| files.store(SPOT, at));
        assert_eq!((files.dirty(), files.unwritten()), (1, 1), "one page, however many stores");
        assert_eq!(files.next_dirty(0, 9), Some(SPOT));
        files.send(SPOT);
        files.store(SPOT, 10);
        assert_eq!((files.dirty(), files.unwritten()), (1, 2), "stored to while it is on its way");
        assert_eq!(files.next_dirty(10, 11), None, "one version at a time");
        files.arrive(SPOT);
        assert!(!files.are_written());
        assert_eq!(files.next_dirty(11, 12), Some(SPOT), "it waits again");
        files.send(SPOT);
        files.arrive(SPOT);
        assert!(files.are_written() && files.unwritten() == 0 && !files.is_hole(SPOT));
        files.leave(SPOT);
    }

    #[test]
    fn who_is_younger_waits_and_who_was_sent_is_passed_over() {
        let mut files = one_file();
        files.store(SPOT, 5);
        assert_eq!(files.next_dirty(4, 9), None);
        files.send(SPOT);
        assert_eq!(files.next_dirty(9, 9), None);
        assert_eq!(files.dirty(), 0);
    }

    #[test]
    #[should_panic(expected = "is on the disk")]
    fn a_page_that_was_not_written_may_not_leave() {
        let mut files = one_file();
        files.store(SPOT, 0);
        files.leave(SPOT);
    }
}
