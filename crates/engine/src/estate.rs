//! What a child of fork inherits of its parent's pages that are out: where they were, in which slots,
//! and what tells that they come back right.
//!
//! The parent writes it to a file in memory, by the books of the fork's moment; the child reads it
//! there, and opens the areas by the parent's descriptors. Slots keep their numbers: sums go by them.

use alloc::ffi::CString;
use alloc::vec::Vec;

use overspill_mm::types::{Slot, Vpn};
use overspill_sys::{AddressRange, Errno, Fd, file};

const MAGIC: u64 = 0x6f76_6572_7370_696c;
const WORD: usize = size_of::<u64>();
/// Bytes written or read at a time.
const PIECE: usize = 64 << 10;

/// An area that both only read from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstateArea {
    /// The parent's descriptor.
    pub descriptor: u32,
    /// The number of its header, and its slots up to the last one that is inherited.
    pub base: u32,
    /// See there.
    pub slots: u32,
    /// Of the place that it lies in.
    pub path: CString,
}

/// Neighbours in memory and in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstateRun {
    /// The first page.
    pub vpn: Vpn,
    /// Its slot.
    pub slot: Slot,
    /// How many.
    pub count: u32,
}

/// All that is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estate {
    /// Says whose it is: what the child was told.
    pub token: u64,
    /// Of the function that makes the sums.
    pub seed: u64,
    /// In ascending order of their numbers.
    pub areas: Vec<EstateArea>,
    /// What was managed.
    pub regions: Vec<AddressRange>,
    /// What was out.
    pub runs: Vec<EstateRun>,
    /// A sum for each page of the runs.
    pub sums: Vec<u64>,
}

impl Estate {
    /// Adds a page that is out.
    pub fn push(&mut self, vpn: Vpn, slot: Slot, sum: u64) {
        self.sums.push(sum);
        match self.runs.last_mut() {
            Some(run) if run.vpn.0 + u64::from(run.count) == vpn.0 && run.slot.0 + run.count == slot.0 => {
                run.count += 1;
            }
            _ => self.runs.push(EstateRun { vpn, slot, count: 1 }),
        }
    }

    /// How many of an area's `slots`, the first of which is `base`, lie before the end of what is
    /// inherited of them. The numbers of the others are free for the child's own areas.
    ///
    /// *The story:* a child took all numbers of an area that was as large as the disk is. Its children
    /// did so again, and on a disk with 8 TiB the first one, else one of their line, had no numbers left
    /// for an area of its own: nothing of it could leave RAM.
    pub fn reach(&self, base: u32, slots: u32) -> u32 {
        let of_area = self.runs.iter().filter(|run| (base..base + slots).contains(&run.slot.0));
        of_area.map(|run| run.slot.0 + run.count - base).max().unwrap_or(0)
    }

    /// Every page with its slot and its sum.
    pub fn pages(&self) -> impl Iterator<Item = (Vpn, Slot, u64)> + '_ {
        let each = |run: &EstateRun| {
            let (vpn, slot) = (run.vpn.0, run.slot.0);
            (0..run.count).map(move |n| (Vpn(vpn + u64::from(n)), Slot(slot + n)))
        };
        self.runs.iter().flat_map(each).zip(&self.sums).map(|((vpn, slot), &sum)| (vpn, slot, sum))
    }

    /// Writes it to an empty file.
    pub fn write(&self, to: &Fd) -> Result<(), Errno> {
        let mut out = Writer { to, at: 0, piece: Vec::with_capacity(PIECE) };
        let counts = [self.areas.len(), self.regions.len(), self.runs.len(), self.sums.len()];
        out.put(&[MAGIC, self.token, self.seed])?;
        out.put(&counts.map(|count| count as u64))?;
        for area in &self.areas {
            out.put(&[area.descriptor, area.base, area.slots].map(u64::from))?;
            out.put_text(area.path.as_bytes())?;
        }
        for region in &self.regions {
            out.put(&[region.start as u64, region.end as u64])?;
        }
        for run in &self.runs {
            out.put(&[run.vpn.0, u64::from(run.slot.0), u64::from(run.count)])?;
        }
        out.put(&self.sums)?;
        out.put(&[MAGIC])?;
        out.flush()
    }

    /// Reads what was written for who was told this token.
    pub fn read(from: &Fd, token: u64) -> Result<Estate, Errno> {
        let mut words = Reader { from, at: 0, piece: Vec::new(), used: 0 };
        if words.next()? != MAGIC || words.next()? != token {
            return Err(Errno::INVAL);
        }
        let seed = words.next()?;
        let mut count = || words.next().map(|count| count as usize);
        let (areas, regions, runs, sums) = (count()?, count()?, count()?, count()?);
        let mut estate = Estate { token, seed, ..Estate::default() };
        for _ in 0..areas {
            let [descriptor, base, slots] = [words.small()?, words.small()?, words.small()?];
            estate.areas.push(EstateArea { descriptor, base, slots, path: words.text()? });
        }
        for _ in 0..regions {
            let (start, end) = (words.next()? as usize, words.next()? as usize);
            estate.regions.push(start..end);
        }
        for _ in 0..runs {
            let (vpn, slot, count) = (Vpn(words.next()?), Slot(words.small()?), words.small()?);
            estate.runs.push(EstateRun { vpn, slot, count });
        }
        estate.sums.reserve(sums);
        for _ in 0..sums {
            estate.sums.push(words.next()?);
        }
        let pages = estate.runs.iter().map(|run| run.count as usize).sum::<usize>();
        if words.next()? == MAGIC && pages == sums { Ok(estate) } else { Err(Errno::INVAL) }
    }
}

struct Writer<'a> {
    to: &'a Fd,
    at: u64,
    piece: Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, words: &[u64]) -> Result<(), Errno> {
        for word in words {
            self.piece.extend_from_slice(&word.to_ne_bytes());
            if self.piece.len() >= PIECE {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Its length, then its bytes, the last word filled up.
    fn put_text(&mut self, text: &[u8]) -> Result<(), Errno> {
        self.put(&[text.len() as u64])?;
        text.chunks(WORD).try_for_each(|part| {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            self.put(&[u64::from_ne_bytes(word)])
        })
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let mut rest = self.piece.as_slice();
        while !rest.is_empty() {
            let done = file::pwrite(self.to, rest, self.at)?;
            if done == 0 {
                return Err(Errno::NOSPC);
            }
            self.at += done as u64;
            rest = &rest[done..];
        }
        self.piece.clear();
        Ok(())
    }
}

struct Reader<'a> {
    from: &'a Fd,
    at: u64,
    piece: Vec<u8>,
    used: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u64, Errno> {
        if self.piece.len() - self.used < WORD {
            // What is written is whole words, and so is what is read of it.
            self.piece.resize(PIECE, 0);
            let done = file::pread(self.from, &mut self.piece, self.at)? / WORD * WORD;
            self.piece.truncate(done);
            (self.at, self.used) = (self.at + done as u64, 0);
        }
        let word = self.piece.get(self.used..self.used + WORD).ok_or(Errno::INVAL)?;
        self.used += WORD;
        Ok(u64::from_ne_bytes(word.try_into().expect("it is a word")))
    }

    fn small(&mut self) -> Result<u32, Errno> {
        u32::try_from(self.next()?).map_err(|_| Errno::INVAL)
    }

    fn text(&mut self) -> Result<CString, Errno> {
        let (len, mut bytes) = (self.next()? as usize, Vec::new());
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next()?.to_ne_bytes());
        }
        bytes.truncate(len);
        CString::new(bytes).map_err(|_| Errno::INVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estate(pages: u64) -> Estate {
        let mut estate = Estate { token: 9, seed: 3, ..Estate::default() };
        let area = |descriptor, base, slots, path| EstateArea { descriptor, base, slots, path };
        estate.areas.push(area(7, 0, 4096, CString::from(c"/var/tmp")));
        estate.areas.push(area(9, 4096, 512, CString::from(c"")));
        estate.regions.push(0x10000..0x9000_0000);
        for n in 0..pages {
            // Each tenth page is not out.
            let at = n + n / 10;
            estate.push(Vpn(16 + at), Slot(1 + at as u32), n * 77);
        }
        estate
    }

    #[test]
    fn what_was_written_is_read_by_who_was_told_of_it() {
        for pages in [0, 1, 10, 11, 100_000] {
            let (file, written) = (file::memfd(c"estate").unwrap(), estate(pages));
            written.write(&file).unwrap();
            assert_eq!(Estate::read(&file, 9), Ok(written));
            assert_eq!(Estate::read(&file, 8), Err(Errno::INVAL), "it is another one's");
        }
    }

    #[test]
    fn one_that_is_not_whole_is_refused() {
        let file = file::memfd(c"estate").unwrap();
        estate(5000).write(&file).unwrap();
        let whole = file::status(&file).unwrap().len;
        for len in [0, 8, 100, whole / 2, whole - 8] {
            file::truncate(&file, len).unwrap();
            assert_eq!(Estate::read(&file, 9), Err(Errno::INVAL), "{len}");
        }
    }

    /// See [`Estate::reach`].
    #[test]
    fn numbers_behind_what_is_inherited_are_free() {
        let mut estate = Estate::default();
        (0..10).for_each(|n| estate.push(Vpn(n), Slot(100 + n as u32), 0));
        estate.push(Vpn(20), Slot(4096 + 7), 0);
        assert_eq!(estate.reach(0, 4096), 110);
        assert_eq!(estate.reach(4096, 1 << 20), 8);
        assert_eq!(estate.reach(1 << 20, 512), 0);
    }

    #[test]
    fn neighbours_are_one_run_and_each_page_has_its_sum() {
        let estate = estate(25);
        assert_eq!(estate.runs.len(), 3);
        let pages: Vec<_> = estate.pages().collect();
        assert_eq!(pages[10], (Vpn(16 + 11), Slot(12), 770));
        assert_eq!(pages.len(), 25);
    }
}
