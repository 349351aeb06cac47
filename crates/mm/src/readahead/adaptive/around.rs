//! When a set of pages that is touched at random comes back, its pages are read by neighbourhoods.
//!
//! A program fills its memory, and then goes on in a part of it. That part comes back by misses that
//! no stream explains, one page each, although every page around each of them is wanted soon, and
//! what leaves for them never is. Where memory is touched at random for good the neighbours are
//! wanted just as little as what leaves for them: then each page too many is a loss.
//!
//! The two are told apart by what comes back, without reading anything on trial. Of a miss the pages
//! of its block of 16 are looked for among the last misses; and how often is the page itself one
//! that left within as many evictions? At random both are as likely, page for page, however large
//! the memory is and whatever it is that reclaims. Where neighbours come four times as often blocks
//! are read, until what was read is not used, or what leaves comes back.

use alloc::boxed::Box;

use crate::types::{Nanos, Vpn};

/// log2 of the pages of a block.
const BLOCK_BITS: u32 = 4;
/// Pages of a block.
pub(super) const BLOCK: u16 = 1 << BLOCK_BITS;
/// Misses, and evictions, that count as just now.
const NOW: u32 = 512;
/// Places for misses; a power of two.
const PLACES: usize = 1024;
/// Neighbours that are seen before they are compared: at random a 15th of it comes back, with few of
/// which it is chance.
const NEIGHBOURS: u32 = 240;
/// So many times as often as what left must neighbours come, page for page.
const MARGIN: u32 = 4;
/// After so many misses it is looked whether to go on.
const LOOK: u32 = 512;
/// Of what was read this part of what is to be expected must be used, as long as nothing is certain.
const USED_SHARE: u32 = 8;
/// Of what missed at most this part left just now.
const RETURNED_SHARE: u32 = 8;
/// Fewer than these are chance.
const FEW: u32 = 16;
/// Who misses nothing for so long has what it wanted: 100 ms.
const QUIET: Nanos = 100_000_000;

/// What is known of neighbourhoods.
#[derive(Clone, Debug)]
pub(super) struct Around {
    places: Box<[Place]>,
    misses: u32,
    /// Misses when they were compared last, and since then: neighbours that missed, and misses of
    /// what left just now.
    compared_at: u32,
    neighbours: u32,
    returned: u32,
    spell: Option<Spell>,
}

/// A miss.
#[derive(Clone, Copy, Debug)]
struct Place {
    vpn: u64,
    at: u32,
}

/// Blocks are read.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    last_miss: Nanos,
    /// Pages that are away and wanted, as far as neighbours told.
    absent: u32,
    misses: u32,
    returned: u32,
    /// Blocks that were read, of each of which one page came unseen; and such pages that were
    /// touched, or missed as they had left first.
    blocks: u32,
    used: u32,
}

impl Default for Around {
    fn default() -> Self {
        let places = alloc::vec![Place { vpn: u64::MAX, at: 0 }; PLACES].into_boxed_slice();
        Around { places, misses: 0, compared_at: 0, neighbours: 0, returned: 0, spell: None }
    }
}

impl Around {
    /// A miss that nothing explains, of a page that left so many evictions ago. Is its block to be
    /// read?
    pub fn miss(&mut self, now: Nanos, vpn: Vpn, evictions: u32) -> bool {
        let returned = u32::from(evictions < NOW);
        self.misses = self.misses.wrapping_add(1);
        let misses_ago = self.neighbour(vpn);
        match &mut self.spell {
            Some(spell) => {
                spell.used += u32::from(misses_ago.is_some());
                if !spell.goes_on(now, returned) {
                    self.spell = None;
                }
            }
            None => self.compare(now, misses_ago.is_some_and(|misses| misses < NOW), returned),
        }
        self.spell.is_some()
    }

    /// How many misses ago another page of the block missed, if that is known.
    fn neighbour(&mut self, vpn: Vpn) -> Option<u32> {
        let block = vpn.0 >> BLOCK_BITS;
        let index = (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        let last = core::mem::replace(&mut self.places[index], Place { vpn: vpn.0, at: self.misses });
        let is_neighbour = last.vpn >> BLOCK_BITS == block && last.vpn != vpn.0;
        is_neighbour.then(|| self.misses.wrapping_sub(last.at))
    }

    fn compare(&mut self, now: Nanos, is_neighbour: bool, returned: u32) {
        self.neighbours += u32::from(is_neighbour);
        self.returned += returned;
        if self.neighbours < NEIGHBOURS {
            return;
        }
        let beside = u32::from(BLOCK) - 1;
        if self.neighbours >= MARGIN * beside * self.returned {
            // Of `NOW` misses the pages beside them are so many.
            let misses = u64::from(self.misses.wrapping_sub(self.compared_at));
            let absent = misses * u64::from(NOW * beside) / u64::from(self.neighbours);
            let absent = u32::try_from(absent).unwrap_or(u32::MAX);
            self.spell = Some(Spell { last_miss: now, absent, ..Spell::default() });
        }
        (self.neighbours, self.returned, self.compared_at) = (0, 0, self.misses);
    }

    /// A block is being read.
    pub fn read(&mut self) {
        if let Some(spell) = &mut self.spell {
            spell.blocks = spell.blocks.saturating_add(1);
        }
    }

    /// A page that was read ahead for no stream was touched.
    pub fn used(&mut self) {
        if let Some(spell) = &mut self.spell {
            spell.used = spell.used.saturating_add(1);
        }
    }
}

impl Spell {
    fn goes_on(&mut self, now: Nanos, returned: u32) -> bool {
        let is_over = now.saturating_sub(self.last_miss) > QUIET;
        self.last_miss = now;
        self.misses = self.misses.saturating_add(1);
        self.returned += returned;
        !is_over && (!self.misses.is_multiple_of(LOOK) || self.is_worth_it())
    }

    /// If what is read is wanted just as much as what misses, it is touched as often, page for page;
    /// and if what leaves is, it comes back as often. (Of blocks there were half as many on the
    /// average, and no more are remembered.)
    fn is_worth_it(&self) -> bool {
        let touches = |misses: u32, pages: u32| {
            let touches = u64::from(misses) * u64::from(pages) / u64::from(self.absent.max(1));
            u32::try_from(touches).unwrap_or(u32::MAX)
        };
        let used_to_be = touches(self.misses, self.blocks.min(PLACES as u32) / 2);
        let is_used = used_to_be < FEW || self.used >= used_to_be / USED_SHARE;
        let back_to_be = touches(self.misses, NOW);
        let comes_back = self.returned > self.misses / RETURNED_SHARE
            || (back_to_be >= FEW && self.returned >= back_to_be / MARGIN);
        is_used && !comes_back
    }
}

const _: () = assert!(PLACES == 1 << (64 - 54));

#[cfg(test)]
mod tests {
    use super::super::super::testing::Random;
    use super::*;

    const FRAMES: usize = 20_000;

    /// Memory that is touched at random, of which `FRAMES` pages are in RAM. What leaves is the page
    /// that came first of those that `is_cold`, or any. Returns the misses until blocks are read, if
    /// they are within `limit`.
    fn begins_after(pages: u64, cold: u64, limit: u32) -> Option<u32> {
        let mut random = Random(1);
        let (mut around, mut evictions) = (Around::default(), 0u32);
        let mut left_at: Vec<Option<u32>> = vec![Some(0); (pages + cold) as usize];
        let mut present: Vec<u64> =
            if cold > 0 { (pages..pages + cold).collect() } else { (0..FRAMES as u64).collect() };
        present.iter().for_each(|&page| left_at[page as usize] = None);
        evictions += NOW;
        let mut misses = 0;
        while misses < limit {
            let vpn = random.below(pages);
            let Some(at) = left_at[vpn as usize] else { continue };
            misses += 1;
            if around.miss(0, Vpn(vpn), evictions - at) {
                return Some(misses);
            }
            let victim = match cold {
                0 => present.swap_remove(random.below(present.len() as u64) as usize),
                _ => present.pop()?,
            };
            left_at[victim as usize] = Some(evictions);
            left_at[vpn as usize] = None;
            evictions += 1;
            if cold == 0 {
                present.push(vpn);
            }
        }
        None
    }

    /// *The story:* of 800 MiB the first half was touched at random in 440. It came back by 57,000
    /// reads of a page each, in 3.8 s.
    #[test]
    fn a_set_that_comes_back_for_what_nobody_wants_is_read_by_blocks() {
        for pages in [10_000, 20_000] {
            let misses = begins_after(pages, FRAMES as u64, 20_000);
            assert!(misses.is_some_and(|misses| misses < 2000), "{pages}: {misses:?}");
        }
    }

    #[test]
    fn at_random_for_good_pages_are_read_one_by_one() {
        for pages in [21_000, 25_000, 40_000, 100_000, 400_000] {
            assert_eq!(begins_after(pages, 0, 400_000), None, "{pages}");
        }
    }

    #[test]
    fn what_is_not_used_or_comes_back_ends_it() {
        let spell = Spell { absent: 57_000, ..Spell::default() };
        let begun = Around { spell: Some(spell), ..Around::default() };
        // Of the pages that came unseen a share is touched at each miss as if they were away.
        let goes_on = |eighths: u32, evictions: u32| {
            let (mut around, mut waiting, mut touched) = (begun.clone(), 0, 0);
            (0..8 * LOOK).all(|miss| {
                let goes_on = around.miss(u64::from(miss) * 50_000, Vpn(u64::from(miss) * 99), evictions);
                around.read();
                (waiting, touched) = (waiting + 1, touched + waiting * eighths / 8);
                (0..touched / 57_000).for_each(|_| around.used());
                touched %= 57_000;
                goes_on
            })
        };
        assert!(goes_on(8, 1 << 20) && goes_on(2, 1 << 20));
        assert!(!goes_on(0, 1 << 20), "nothing is used");
        assert!(!goes_on(8, 3), "what leaves comes back");
        let mut quiet = begun.clone();
        assert!(quiet.miss(0, Vpn(1), 9999) && quiet.miss(QUIET, Vpn(2), 9999));
        assert!(!quiet.miss(3 * QUIET, Vpn(3), 9999), "that is over");
    }
}
