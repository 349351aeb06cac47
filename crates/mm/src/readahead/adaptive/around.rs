//! When a set of pages that is touched at random comes back, its pages are read by neighbourhoods.
//!
//! A program fills its memory, and then goes on in a part of it. That part comes back by misses that
//! no stream explains, one page each, although every page around each of them is wanted soon, and
//! what leaves for them never is. Where memory is touched at random for good the neighbours are
//! wanted just as little as what leaves for them: then each page too many is a loss.
//!
//! The two are told apart by what comes back, without reading anything on trial. Of a miss the pages
//! of its block of 16 are looked for among the last misses; and has the page itself left since the
//! first of those? At random both are as likely, page for page, however large the memory is and
//! whatever it is that reclaims. Where neighbours come four times as often blocks are read, until
//! what was read is not used, or what leaves comes back.

use alloc::boxed::Box;

use crate::types::{Nanos, Vpn};

/// log2 of the pages of a block.
const BLOCK_BITS: u32 = 4;
/// Pages of a block.
pub(super) const BLOCK: u16 = 1 << BLOCK_BITS;
/// The last misses, among which neighbours are looked for.
const NOW: u32 = 512;
/// What misses right after its neighbour is of the same object, and says nothing of others.
const AT_ONCE: u32 = 16;
/// Places for misses; a power of two.
const PLACES_BITS: u32 = 10;
/// Neighbours that are seen before they are compared: at random a 15th of it comes back, with few of
/// which it is chance.
const NEIGHBOURS: u32 = 240;
/// Each spell in vain doubles them, up to so many times as many.
const DOUBLINGS: u32 = 6;
/// So many times as often as what left must neighbours come, page for page.
const MARGIN: u64 = 4;
/// After so many misses what was seen counts half.
const HALVED_AFTER: u32 = 1 << 16;
/// After so many misses it is looked whether to go on.
const LOOK: u32 = 512;
/// Of what was read this part of what is to be expected must be used, as long as nothing is certain.
const USED_SHARE: u32 = 8;
/// Of what missed at most this part left since blocks are read.
const RETURNED_SHARE: u32 = 8;
/// Fewer than these are chance.
const FEW: u32 = 16;
/// Who misses nothing for so long has what it wanted: 100 ms.
const QUIET: Nanos = 100_000_000;

/// A miss that nothing explains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lone {
    pub now: Nanos,
    pub vpn: Vpn,
    /// The clock of reclaim, which only goes on, and what it was when the page left.
    pub clock: u32,
    pub left_at: u32,
}

/// What is known of neighbourhoods.
#[derive(Clone, Debug)]
pub(super) struct Around {
    places: Box<[Place]>,
    /// The clock at the last misses.
    clocks: Box<[u32]>,
    misses: u32,
    /// Misses when they were compared last, and since then: neighbours that missed, and misses of
    /// what left since the first of the last.
    compared_at: u32,
    neighbours: u32,
    returned: u32,
    /// How many spells were in vain, one after another.
    in_vain: u32,
    spell: Option<Spell>,
}

/// A miss, by its block.
#[derive(Clone, Copy, Debug)]
struct Place {
    vpn: u64,
    at: u32,
    /// The block was read.
    is_read: bool,
}

/// Blocks are read.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    /// The clock when it began.
    clock: u32,
    last_miss: Nanos,
    /// Pages that are away and wanted, as far as neighbours told.
    absent: u32,
    misses: u32,
    /// Since the last look.
    returned: u32,
    /// Blocks that were read, of each of which one page came unseen; and such pages that were
    /// touched, or missed as they had left first.
    blocks: u32,
    used: u32,
}

impl Default for Around {
    fn default() -> Self {
        Around {
            places: alloc::vec![Place { vpn: u64::MAX, at: 0, is_read: false }; 1 << PLACES_BITS]
                .into_boxed_slice(),
            clocks: alloc::vec![0; NOW as usize].into_boxed_slice(),
            misses: 0,
            compared_at: 0,
            neighbours: 0,
            returned: 0,
            in_vain: 0,
            spell: None,
        }
    }
}

fn index(vpn: Vpn) -> usize {
    ((vpn.0 >> BLOCK_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES_BITS)) as usize
}

impl Around {
    /// Is its block to be read?
    pub fn miss(&mut self, miss: &Lone) -> bool {
        self.misses = self.misses.wrapping_add(1);
        let misses_ago = self.neighbour(miss.vpn);
        let age = miss.clock.wrapping_sub(miss.left_at);
        let newest = &mut self.clocks[(self.misses % NOW) as usize];
        let oldest = core::mem::replace(newest, miss.clock);
        match &mut self.spell {
            Some(spell) => {
                spell.used += u32::from(misses_ago.is_some());
                spell.returned += u32::from(age < miss.clock.wrapping_sub(spell.clock));
                if let Some(is_over) = spell.ends(miss.now) {
                    self.in_vain = if is_over { 0 } else { (self.in_vain + 1).min(DOUBLINGS) };
                    self.spell = None;
                    self.forget();
                }
            }
            // Where little leaves nothing can come back, and of the first misses nobody knows what did.
            None if self.misses > NOW && miss.clock.wrapping_sub(oldest) >= NOW / 2 => {
                self.neighbours += u32::from(misses_ago.is_some_and(|ago| (AT_ONCE..NOW).contains(&ago)));
                self.returned += u32::from(age < miss.clock.wrapping_sub(oldest));
                self.compare(miss);
            }
            None => {}
        }
        self.spell.is_some()
    }

    /// How many misses ago another page of the block missed, if that is known.
    fn neighbour(&mut self, vpn: Vpn) -> Option<u32> {
        let place = Place { vpn: vpn.0, at: self.misses, is_read: false };
        let last = core::mem::replace(&mut self.places[index(vpn)], place);
        let is_neighbour = last.is_of(vpn) && last.vpn != vpn.0;
        is_neighbour.then(|| self.misses.wrapping_sub(last.at))
    }

    /// Was it read with its block, of late? Its marker stands for no stream then.
    pub fn has_read(&self, vpn: Vpn) -> bool {
        let place = &self.places[index(vpn)];
        place.is_read && place.is_of(vpn)
    }

    fn compare(&mut self, miss: &Lone) {
        let since = self.misses.wrapping_sub(self.compared_at);
        if self.neighbours < NEIGHBOURS << self.in_vain {
            if since >= HALVED_AFTER {
                (self.neighbours, self.returned) = (self.neighbours / 2, self.returned / 2);
                self.compared_at = self.compared_at.wrapping_add(since / 2);
            }
            return;
        }
        let beside = u64::from(BLOCK) - 1;
        if u64::from(self.neighbours) >= MARGIN * beside * u64::from(self.returned) {
            // Of `NOW` misses the pages beside them are so many.
            let absent = u64::from(since) * u64::from(NOW) * beside / u64::from(self.neighbours);
            let absent = u32::try_from(absent).unwrap_or(u32::MAX);
            self.spell = Some(Spell { clock: miss.clock, last_miss: miss.now, absent, ..Spell::default() });
        }
        self.forget();
    }

    fn forget(&mut self) {
        (self.neighbours, self.returned, self.compared_at) = (0, 0, self.misses);
    }

    /// The block of a page that missed just now is being read.
    pub fn read(&mut self, vpn: Vpn) {
        self.places[index(vpn)].is_read = true;
        if let Some(spell) = &mut self.spell {
            spell.blocks = spell.blocks.saturating_add(1);
        }
    }

    /// A page that came unseen with its block was touched.
    pub fn used(&mut self) {
        if let Some(spell) = &mut self.spell {
            spell.used = spell.used.saturating_add(1);
        }
    }
}

impl Place {
    fn is_of(&self, vpn: Vpn) -> bool {
        self.vpn >> BLOCK_BITS == vpn.0 >> BLOCK_BITS
    }
}

impl Spell {
    /// Whether it ends, and then: as nothing misses any more (true), or in vain.
    fn ends(&mut self, now: Nanos) -> Option<bool> {
        let is_over = now.saturating_sub(self.last_miss) > QUIET;
        self.last_miss = now;
        self.misses = self.misses.saturating_add(1);
        if is_over {
            return Some(true);
        }
        let is_due = self.misses.is_multiple_of(LOOK);
        (is_due && !self.is_worth_it()).then_some(false)
    }

    /// If what is read is wanted just as much as what misses, it is touched as often, page for page.
    /// (Of blocks there were half as many on the average, and no more are remembered.) What has left
    /// for it is not wanted, or it comes back.
    fn is_worth_it(&mut self) -> bool {
        let blocks = u64::from(self.blocks.min(1 << PLACES_BITS) / 2);
        let used_to_be = u64::from(self.misses) * blocks / u64::from(self.absent.max(1));
        let is_used =
            used_to_be < u64::from(FEW) || u64::from(self.used) >= used_to_be / u64::from(USED_SHARE);
        let returned = core::mem::take(&mut self.returned);
        is_used && returned <= LOOK / RETURNED_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Random;
    use super::*;

    const FRAMES: usize = 20_000;

    /// Memory of which `FRAMES` pages are in RAM. Per eviction the clock goes on by `steps`, as
    /// pages become active, too.
    struct Memory {
        around: Around,
        random: Random,
        left_at: Vec<Option<u32>>,
        present: Vec<u64>,
        clock: u32,
        steps: u32,
    }

    impl Memory {
        fn new(pages: u64, steps: u32) -> Memory {
            let mut left_at = vec![Some(0); pages as usize];
            left_at[..FRAMES].fill(None);
            let present = (0..FRAMES as u64).collect();
            Memory { around: Around::default(), random: Random(1), left_at, present, clock: 9999, steps }
        }

        /// A touch, for which some page leaves. Whether the block would be read, if it is a miss.
        fn touch(&mut self, vpn: u64) -> Option<bool> {
            let left_at = self.left_at[vpn as usize]?;
            let miss = Lone { now: 0, vpn: Vpn(vpn), clock: self.clock, left_at };
            let reads = self.around.miss(&miss);
            let victim = self.random.below(self.present.len() as u64) as usize;
            let victim = core::mem::replace(&mut self.present[victim], vpn);
            self.left_at[victim as usize] = Some(self.clock);
            self.left_at[vpn as usize] = None;
            self.clock += self.steps;
            Some(reads)
        }
    }

    #[test]
    fn at_random_for_good_pages_are_read_one_by_one() {
        for (pages, steps) in [(21_000, 1), (25_000, 1), (40_000, 9), (100_000, 1), (400_000, 30)] {
            let mut memory = Memory::new(pages, steps);
            let mut misses = 0;
            while misses < 400_000 {
                let vpn = memory.random.below(pages);
                match memory.touch(vpn) {
                    Some(true) => panic!("{pages} pages: a block after {misses}"),
                    Some(false) => misses += 1,
                    None => {}
                }
            }
        }
    }

    /// Of each object the first and the fourth page are touched, one after the other.
    #[test]
    fn pages_of_one_object_are_no_neighbourhood() {
        let mut memory = Memory::new(100_000, 1);
        for _ in 0..200_000 {
            let object = memory.random.below(100_000 / 16) * 16;
            for vpn in [object, object + 3] {
                assert_ne!(memory.touch(vpn), Some(true));
            }
        }
    }

    /// A set of which a part is away, for which what nobody wants leaves.
    fn comes_back(pages: u64) -> u32 {
        let (mut around, mut random, mut misses) = (Around::default(), Random(1), 0);
        let mut is_away = vec![true; pages as usize];
        loop {
            let vpn = random.below(pages);
            if core::mem::replace(&mut is_away[vpn as usize], false) {
                misses += 1;
                let miss = Lone { now: 0, vpn: Vpn(vpn), clock: 100_000 + misses, left_at: misses % 9 };
                if around.miss(&miss) || misses == 50_000 {
                    return misses;
                }
            }
        }
    }

    /// *The story:* of 800 MiB the first half was touched at random in 440. It came back by 57,000
    /// reads of a page each, in 3.8 s.
    #[test]
    fn a_set_that_comes_back_for_what_nobody_wants_is_read_by_blocks() {
        for pages in [10_000, 20_000, 57_000] {
            let misses = comes_back(pages);
            assert!(misses < 3000, "{pages}: {misses}");
        }
    }

    #[test]
    fn what_is_not_used_or_comes_back_ends_it_and_nothing_else() {
        let spell = Spell { absent: 57_000, clock: 1000, ..Spell::default() };
        let begun = Around { spell: Some(spell), ..Around::default() };
        // Of the pages that came unseen a share is touched at each miss as if they were away.
        let run = |eighths: u32, left_at: u32, pace: u64| {
            let (mut around, mut waiting, mut touched) = (begun.clone(), 0, 0);
            let mut misses = 0..8 * LOOK;
            let goes_on = misses.all(|miss| {
                let (now, vpn) = (u64::from(miss) * pace, Vpn(u64::from(miss) * 99));
                let goes_on = around.miss(&Lone { now, vpn, clock: 2000 + miss, left_at });
                around.read(vpn);
                (waiting, touched) = (waiting + 1, touched + waiting * eighths / 8);
                (0..touched / 57_000).for_each(|_| around.used());
                touched %= 57_000;
                goes_on
            });
            (goes_on, around.in_vain)
        };
        assert_eq!([run(8, 999, 50_000), run(2, 999, 50_000)], [(true, 0); 2]);
        assert_eq!(run(0, 999, 50_000), (false, 1), "nothing is used");
        assert_eq!(run(8, 1001, 50_000), (false, 1), "what leaves comes back");
        assert_eq!(run(8, 999, 3 * QUIET), (false, 0), "that is over");
    }
}
