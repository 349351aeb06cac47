//! The books of the compressed pool: which slots have an entry, where it stands, and who goes next.
//!
//! Entries are appended to segments, like a log. What is removed or replaced leaves a gap, and a
//! segment without entries is given back; one with gaps is emptied by moving its entries on, the
//! oldest one by writing to the areas what only the pool has. What is moved on keeps its age, so it
//! has segments of its own. An entry is *dirty* if the area does not hold what it holds.
//!
//! One batch of entries at a time is on its way to the areas. A slot of that batch that is written
//! again meanwhile must go into the pool, whatever its content and whether there is room or not, so
//! that no two writes to one slot are under way. A page that does not compress is passed on to the
//! areas, and as a copy of what they have it is not tried again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::Held;
use crate::slot_table::SlotTable;
use crate::types::{PAGE_SIZE, Slot};

/// Frames of a segment.
pub const SEGMENT_FRAMES: u32 = 64;
/// Its bytes.
pub const SEGMENT_BYTES: usize = SEGMENT_FRAMES as usize * PAGE_BYTES;
/// Entries that can be on their way to the areas.
pub const LEAVING_MAX: u32 = 64;

const PAGE_BYTES: usize = PAGE_SIZE as usize;
/// So many [`Chore::Move`] are done at once at most: each takes some 50 us, in which nobody is answered.
const MOVES_MAX: u32 = 4;
/// Entries begin at multiples of this.
const UNIT: usize = 8;
/// A page that does not get smaller than this is not worth its place.
const PACKED_MAX: usize = PAGE_BYTES * 3 / 4;
/// A segment with no more bytes in use is emptied by moving its entries on rather than by writing.
/// Where pages leave at random, such a pool is full to more than nine tenths, and for each page that
/// comes in up to seven are copied (packed: a few microseconds; to write and read one takes a hundred).
const SPARSE_BYTES: usize = SEGMENT_BYTES / 8 * 7;
/// Empty segments whose memory is kept for the next ones: to get it anew costs 64 faults.
const KEPT_SEGMENTS: u32 = 4;
/// A page of one word again and again is packed to that word: nothing else becomes so short.
pub const FILLED_BYTES: usize = 8;
/// Segments beyond the limit: for what must be taken (a write of 256 pages for each entry that is
/// on its way to the areas, none of which compresses), and for what is moved on.
const SPARE_SEGMENTS: u32 = LEAVING_MAX * 256 / (SEGMENT_FRAMES - 1) + 8;
/// Places are 32 bits: so many segments have one for each of their units.
const SEGMENTS_MAX: u32 = u32::MAX / (SEGMENT_BYTES / UNIT) as u32 - SPARE_SEGMENTS - 1;

/// The most segments that a pool of so many frames ever has.
#[must_use]
pub fn segments_max(frames_max: u32) -> u32 {
    (frames_max / SEGMENT_FRAMES).min(SEGMENTS_MAX) + SPARE_SEGMENTS
}

/// Where an entry is: its number among all units, plus 1; 0 = nowhere.
type Place = u32;

/// Where the bytes of an entry are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The segment.
    pub segment: u32,
    /// From its start.
    pub offset: usize,
    /// How many; as many as a page has: it is not compressed.
    pub len: usize,
}

/// An entry's bytes are to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// From here.
    pub from: Spot,
    /// To here.
    pub to: Spot,
}

/// What is to be done for there to be room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chore {
    /// Nothing, or nothing can be done.
    Nothing,
    /// Copy these, in order; the books are kept already.
    Move(Vec<Moved>),
    /// Write these slots, neighbours together, in order, until the device takes no more:
    /// [`Tier::leaves`] for each that it took.
    Write(Vec<Range<u32>>),
}

/// Sees to it that there is room in a pool: lets go of what nobody wants ([`Tier::sweep`]), moves
/// entries on, whose bytes are to `follow`, and gives the slots to write, as in [`Chore::Write`].
pub fn make_room<P: AsMut<Tier>>(
    pool: &mut P,
    used: u32,
    is_wanted: impl Fn(u32) -> bool,
    mut follow: impl FnMut(&mut P, &[Moved]),
) -> Vec<Range<u32>> {
    pool.as_mut().sweep(used, &is_wanted);
    for _ in 0..MOVES_MAX {
        match pool.as_mut().chore(&is_wanted) {
            Chore::Nothing => break,
            Chore::Move(moved) => follow(pool, &moved),
            Chore::Write(runs) => return runs,
        }
    }
    Vec::new()
}

impl AsMut<Tier> for Tier {
    fn as_mut(&mut self) -> &mut Tier {
        self
    }
}

/// Why a page was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It does not compress well.
    Stiff,
    /// There is no room.
    Full,
}

/// How long ago an entry was put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    /// It is among the youngest, of which there are as many as the pool has frames.
    Young,
    /// Neither.
    Middle,
    /// It is in the oldest quarter of the pool.
    Old,
}

/// Totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Pages that were compressed, to be stored or in vain, and the bytes they became.
    pub tried: u64,
    /// See `tried`.
    pub tried_bytes: u64,
    /// Pages stored.
    pub stored: u64,
    /// Pages loaded.
    pub loaded: u64,
    /// Those of them that were old, and those that were young, where a whole read was.
    pub old_loads: u64,
    /// See `old_loads`.
    pub young_loads: u64,
    /// Pages that were ordered to be written to the areas.
    pub written_back: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: u32,
    offset: u32,
    len: u16,
    dirty: bool,
}

struct Segment {
    /// How many were allocated before it.
    number: u64,
    /// As a number, that of the segment whose age its entries have.
    age: u64,
    /// Bytes from the start on that were given to entries, and those of entries that are still there.
    used: usize,
    live: usize,
    /// In the order of their offsets; some are there no more.
    entries: Vec<Entry>,
}

/// Who fills a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    /// What comes in.
    Incoming,
    /// What is moved on, from a segment of this age. Ages are kept apart by quarters of the pool.
    MovedOn { quarter: usize, age: u64 },
}

/// How many there are.
const HEADS: usize = 5;
/// With fewer segments all that is moved on goes together: one for each quarter would be too many.
const QUARTERED_MIN: usize = 128;

impl Head {
    fn index(self) -> usize {
        match self {
            Head::Incoming => 0,
            Head::MovedOn { quarter, .. } => 1 + quarter,
        }
    }
}

/// An entry that is being written to the areas.
#[derive(Clone, Copy)]
struct Leaving {
    slot: u32,
    /// With another one it was replaced.
    stamp: Option<u64>,
}

/// The pool's books.
pub struct Tier {
    segments_max: u32,
    segments: Vec<Option<Segment>>,
    /// Full segments, the oldest first.
    full: VecDeque<u32>,
    /// Those that are being filled, one for each [`Head`].
    open: [Option<u32>; HEADS],
    allocated: u32,
    allocations: u64,
    /// Numbers of segments that are not there.
    vacant: Vec<u32>,
    /// Empty ones that have their memory still.
    freed: Vec<u32>,
    /// Most segments it may have.
    limit: u32,
    entries: u32,
    place_of: SlotTable<Place>,
    /// Slots whose last content did not compress when it was tried.
    stiff: SlotTable<bool>,
    leaving: Vec<Leaving>,
    /// Requests of that batch that have not ended.
    writes: u32,
    /// The areas take no more: entries stay until their pages are wanted, nothing is added.
    stopped: bool,
    totals: Totals,
}

impl Tier {
    /// A pool that will never have more than so many frames.
    #[must_use]
    pub fn new(frames_max: u32) -> Self {
        Tier {
            segments_max: segments_max(frames_max) - SPARE_SEGMENTS,
            segments: Vec::new(),
            full: VecDeque::new(),
            open: [None; HEADS],
            allocated: 0,
            allocations: 0,
            vacant: Vec::new(),
            freed: Vec::new(),
            limit: 0,
            entries: 0,
            place_of: SlotTable::default(),
            stiff: SlotTable::default(),
            leaving: Vec::new(),
            writes: 0,
            stopped: false,
            totals: Totals::default(),
        }
    }

    // How much there is.

    /// Most frames that it may take from now on. What it has beyond that goes when somebody takes it
    /// out.
    pub fn set_limit(&mut self, frames: u32) {
        let limit = (frames / SEGMENT_FRAMES).min(self.segments_max);
        self.limit = if self.stopped { 0 } else { limit };
    }

    /// The areas take no more: nothing is taken any more, as it could not leave. False: that was so
    /// before.
    pub fn stop(&mut self) -> bool {
        self.limit = 0;
        !core::mem::replace(&mut self.stopped, true)
    }

    /// See [`Tier::stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// May anything be put in?
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Frames that it takes of the budget.
    #[must_use]
    pub fn frames(&self) -> u32 {
        (self.allocated + self.freed.len() as u32) * SEGMENT_FRAMES
    }

    /// Entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Held {
        Held { pages: self.entries, frames: self.frames() }
    }

    /// Totals since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    // What is where.

    /// Is there an entry for the slot?
    #[must_use]
    pub fn holds(&self, slot: u32) -> bool {
        self.place(slot) != 0
    }

    /// Where the bytes of the slot's entry are.
    #[must_use]
    pub fn spot(&self, slot: u32) -> Option<Spot> {
        let place = Some(self.place(slot)).filter(|&place| place != 0)?;
        let entry = self.entry(place);
        Some(Spot { segment: segment_of(place), offset: offset_of(place), len: entry.len.into() })
    }

    /// Is there an entry whose content the area does not have?
    #[must_use]
    pub fn is_dirty(&self, slot: u32) -> bool {
        let place = self.place(slot);
        place != 0 && self.entry(place).dirty
    }

    /// How old the slot's entry is: by how many segments are older. (Not by how long ago: where
    /// pages leave at random, a few stay for very long.)
    #[must_use]
    pub fn age(&self, slot: u32) -> Option<Age> {
        let place = Some(self.place(slot)).filter(|&place| place != 0)?;
        let older = self.older_than(self.segment(segment_of(place)).age) as u64;
        let all = self.full.len() as u64 + 1;
        Some(if older * 4 < all && all > 1 {
            Age::Old
        } else if (all - older) * u64::from(self.entries) <= all * u64::from(self.frames()) {
            Age::Young
        } else {
            Age::Middle
        })
    }

    // What goes in and out.

    /// May pages go into the pool in place of being written to these slots? No, for want of it, and
    /// when it is off; yes in any case, where earlier contents are on their way to the areas.
    #[must_use]
    pub fn admits(&self, slots: Range<u32>) -> bool {
        self.is_on() || self.must_take(slots)
    }

    /// Must what is written to these slots be taken?
    #[must_use]
    pub fn must_take(&self, slots: Range<u32>) -> bool {
        self.leaving.iter().any(|leaving| slots.contains(&leaving.slot))
    }

    /// Is it worth packing a copy of what the area has in the slot?
    #[must_use]
    pub fn is_worth_packing(&self, slot: u32) -> bool {
        self.is_on() && !self.holds(slot) && !self.stiff.get(Slot(slot))
    }

    /// A page was packed to so many bytes, and is what the slot stands for from now on, in place of
    /// what was there. The answer is where its bytes go: all of the page, if so many are told. What
    /// must be taken is taken even if it does not compress and there is no room. Refused as stiff,
    /// what was there stays; for want of room, it is gone.
    pub fn put(&mut self, slot: u32, packed: usize, dirty: bool, must: bool) -> Result<Spot, Refused> {
        self.totals.tried += 1;
        self.totals.tried_bytes += packed.min(PAGE_BYTES) as u64;
        let whole = packed > PACKED_MAX;
        self.stiff.set(Slot(slot), whole);
        if whole && !must {
            return Err(Refused::Stiff);
        }
        self.remove(slot);
        let len = if whole { PAGE_BYTES } else { packed };
        let room = self.room(Head::Incoming, footprint(len), must).ok_or(Refused::Full)?;
        let spot = self.append(room, slot, len, dirty);
        self.totals.stored += 1;
        Ok(spot)
    }

    /// The program's read of this slot is answered from the pool.
    pub fn note_loaded(&mut self) {
        self.totals.loaded += 1;
    }

    /// A read that begins with this slot is answered by the pool alone.
    pub fn note_whole_read(&mut self, slot: u32) {
        let age = self.age(slot);
        self.totals.old_loads += u64::from(age == Some(Age::Old));
        self.totals.young_loads += u64::from(age == Some(Age::Young));
    }

    /// Removes the slot's entry. True: it was dirty.
    pub fn remove(&mut self, slot: u32) -> bool {
        let place = self.place(slot);
        if place == 0 {
            return false;
        }
        let entry = self.entry(place);
        assert_eq!(entry.slot, slot, "an entry knows its slot");
        self.place_of.set(Slot(slot), 0);
        self.entries -= 1;
        let number = segment_of(place);
        let segment = self.segments[number as usize].as_mut().expect("an entry is in a segment");
        segment.live -= footprint(entry.len.into());
        if segment.live == 0 {
            self.free(number);
        }
        entry.dirty
    }

    /// A segment that nothing is in any more, and nothing soon will be: its memory is to be given back.
    pub fn next_freed(&mut self) -> Option<u32> {
        let kept =
            if self.entries == 0 { 0 } else { self.limit.saturating_sub(self.allocated).min(KEPT_SEGMENTS) };
        if self.freed.len() <= kept as usize {
            return None;
        }
        let segment = self.freed.swap_remove(0);
        self.vacant.push(segment);
        Some(segment)
    }

    /// The memory of the segment that was named last could not be given back: it is counted as before.
    pub fn could_not_free(&mut self, segment: u32) {
        assert_eq!(self.vacant.pop(), Some(segment), "it was named last");
        self.freed.push(segment);
    }

    // Room.

    /// What is to be done for there to be room, if that is wanted. `is_wanted` says whether anybody
    /// has the slot still. Where the areas take no more, entries go one by one as the program wants
    /// its pages back, and the gaps are closed.
    pub fn chore(&mut self, is_wanted: impl Fn(u32) -> bool) -> Chore {
        let is_too_large = self.allocated > self.limit;
        let is_nearly_full = self.is_on() && self.allocated + 2 > self.limit;
        if self.entries == 0 || !is_too_large && !is_nearly_full {
            return Chore::Nothing;
        }
        let moved = self.compact();
        if !moved.is_empty() {
            return Chore::Move(moved);
        }
        if !self.leaving.is_empty() || self.stopped {
            return Chore::Nothing;
        }
        self.oldest_to_write(is_wanted)
    }

    /// Entries of slots that nobody has any more go when they are most of it; `used` slots are in use.
    ///
    /// *The story:* they went only as room was wanted. A pager whose regions were all gone kept 443
    /// frames of a budget of 2,048 for what nobody could ever ask for (the test
    /// `regions_come_and_go`).
    pub fn sweep(&mut self, used: u32, is_wanted: impl Fn(u32) -> bool) {
        let unwanted = self.entries.saturating_sub(used);
        if unwanted == 0 || unwanted < self.entries / 2 {
            return;
        }
        let unwanted: Vec<Slot> = self.place_of.noted().filter(|slot| !is_wanted(slot.0)).collect();
        for slot in unwanted {
            self.remove(slot.0);
        }
    }

    /// Moves the entries of the sparsest segment on, if it is sparse enough for that to pay.
    fn compact(&mut self) -> Vec<Moved> {
        if self.full.len() < QUARTERED_MIN {
            self.close_quarters();
        }
        let live = |number: &u32| self.segment(*number).live;
        // What is on its way to the areas goes soon, and moved on it would not.
        let leaving = self.segments_of_leaving();
        let sparse = self.full.iter().copied().filter(|number| live(number) <= SPARSE_BYTES);
        let sparsest = sparse.filter(|number| !leaving.contains(number)).min_by_key(live);
        let Some(sparsest) = sparsest else { return Vec::new() };
        let (entries, head) = (self.listed(sparsest), self.head_after(sparsest));
        entries.into_iter().map(|entry| self.move_on(entry, sparsest, head)).collect()
    }

    /// Where the entries of this full segment go when they are moved on.
    fn head_after(&self, segment: u32) -> Head {
        let age = self.segment(segment).age;
        let is_large = self.full.len() >= QUARTERED_MIN;
        let quarter = if is_large { self.older_than(age) * (HEADS - 1) / self.full.len() } else { 0 };
        Head::MovedOn { quarter, age }
    }

    /// How many full segments are.
    fn older_than(&self, age: u64) -> usize {
        self.full.partition_point(|&full| self.segment(full).age < age)
    }

    fn move_on(&mut self, entry: Entry, segment: u32, head: Head) -> Moved {
        let from = Spot { segment, offset: entry.offset as usize, len: entry.len.into() };
        // Before the old segment is free: its number must not be the new one's, as the bytes are
        // still there. The segment that is emptied makes up for the one that this may open.
        let room = self.room(head, footprint(from.len), true).expect("what must be has room");
        self.remove(entry.slot);
        Moved { from, to: self.append(room, entry.slot, from.len, entry.dirty) }
    }

    /// Empties the oldest segment: what nobody needs or the area has goes, the rest is to be written
    /// first, as much as fits.
    fn oldest_to_write(&mut self, is_wanted: impl Fn(u32) -> bool) -> Chore {
        let moved_on = self.open[1..].iter().flatten().next().copied();
        let oldest = self.full.front().copied().or(moved_on).or(self.open[0]);
        let listed = oldest.map_or_else(Vec::new, |number| self.listed(number));
        let mut dirty = Vec::new();
        for entry in listed {
            if entry.dirty && is_wanted(entry.slot) {
                dirty.push(entry.slot);
            } else {
                self.remove(entry.slot);
            }
        }
        dirty.sort_unstable();
        dirty.truncate(LEAVING_MAX as usize);
        let mut runs: Vec<Range<u32>> = Vec::new();
        for slot in dirty {
            match runs.last_mut() {
                Some(run) if run.end == slot => run.end += 1,
                _ => runs.push(slot..slot + 1),
            }
        }
        if runs.is_empty() { Chore::Nothing } else { Chore::Write(runs) }
    }

    /// Entries that are on their way to the areas: the next one has this number.
    #[must_use]
    pub fn leaving(&self) -> u32 {
        self.leaving.len() as u32
    }

    /// The slot of the entry with this number.
    #[must_use]
    pub fn leaving_slot(&self, at: u32) -> u32 {
        self.leaving[at as usize].slot
    }

    /// These slots of a [`Chore::Write`] are on their way, in one request.
    pub fn leaves(&mut self, slots: Range<u32>) {
        self.writes += 1;
        self.totals.written_back += u64::from(slots.end - slots.start);
        for slot in slots {
            self.leaving.push(Leaving { slot, stamp: self.stamp(slot) });
        }
        assert!(self.leaving.len() <= LEAVING_MAX as usize, "a batch has its size");
    }

    /// A request of `count` entries, from number `at` on, has ended. What arrived, and was not
    /// replaced meanwhile, goes.
    pub fn left(&mut self, at: u32, count: u32, arrived: bool) {
        self.writes -= 1;
        for index in at..at + count {
            let Leaving { slot, stamp } = self.leaving[index as usize];
            if arrived && self.stamp(slot) == stamp {
                self.remove(slot);
            }
        }
        if self.writes == 0 {
            self.leaving.clear();
        }
    }

    /// A number that no other entry ever has; none if the slot has no entry.
    fn stamp(&self, slot: u32) -> Option<u64> {
        let place = Some(self.place(slot)).filter(|&place| place != 0)?;
        Some(self.segment(segment_of(place)).number * SEGMENT_BYTES as u64 + offset_of(place) as u64)
    }

    // The log.

    fn append(&mut self, number: u32, slot: u32, len: usize, dirty: bool) -> Spot {
        let segment = self.segments[number as usize].as_mut().expect("it has room");
        let offset = segment.used;
        segment.used += footprint(len);
        segment.live += footprint(len);
        segment.entries.push(Entry { slot, offset: offset as u32, len: len as u16, dirty });
        assert_eq!(self.place(slot), 0, "a slot has one entry");
        self.place_of.set(Slot(slot), place(number, offset));
        self.entries += 1;
        Spot { segment: number, offset, len }
    }

    /// A segment with room for so many bytes: the open one, or a new one.
    fn room(&mut self, head: Head, bytes: usize, must: bool) -> Option<u32> {
        if let Some(open) = self.open[head.index()] {
            if self.segment(open).used + bytes <= SEGMENT_BYTES {
                return Some(open);
            }
            self.close(head.index(), open);
        }
        if self.allocated >= self.limit && !must {
            return None;
        }
        let opened = self.allocate(head);
        self.open[head.index()] = Some(opened);
        Some(opened)
    }

    /// The segment of this head is full: it takes its place among the others by its age.
    fn close(&mut self, head: usize, segment: u32) {
        let age = self.segment(segment).age;
        let at = self.full.partition_point(|&full| self.segment(full).age <= age);
        self.full.insert(at, segment);
        self.open[head] = None;
    }

    /// What was for one quarter of a large pool each is full, for a small one.
    fn close_quarters(&mut self) {
        for head in 2..HEADS {
            if let Some(segment) = self.open[head] {
                self.close(head, segment);
            }
        }
    }

    fn allocate(&mut self, head: Head) -> u32 {
        let number = self.allocations;
        let age = match head {
            Head::Incoming => number,
            Head::MovedOn { age, .. } => age,
        };
        let segment = Segment { number, age, used: 0, live: 0, entries: Vec::new() };
        self.allocated += 1;
        self.allocations += 1;
        let empty = self.freed.pop().or_else(|| self.vacant.pop());
        let index = empty.unwrap_or(self.segments.len() as u32);
        if index as usize == self.segments.len() {
            assert!(index < self.segments_max + SPARE_SEGMENTS, "what must be taken is little");
            self.segments.push(None);
        }
        self.segments[index as usize] = Some(segment);
        index
    }

    fn free(&mut self, index: u32) {
        self.segments[index as usize] = None;
        self.freed.push(index);
        self.allocated -= 1;
        match self.open.iter_mut().find(|open| **open == Some(index)) {
            Some(open) => *open = None,
            None => self.full.retain(|&full| full != index),
        }
    }

    /// The entries of a segment that are still there.
    fn listed(&self, number: u32) -> Vec<Entry> {
        let is_there = |entry: &&Entry| self.place(entry.slot) == place(number, entry.offset as usize);
        self.segment(number).entries.iter().filter(is_there).copied().collect()
    }

    /// Where entries are that are on their way to the areas: one or two segments, as a rule.
    fn segments_of_leaving(&self) -> Vec<u32> {
        let places = self.leaving.iter().map(|leaving| self.place(leaving.slot));
        let mut segments: Vec<u32> = places.filter(|&place| place != 0).map(segment_of).collect();
        segments.sort_unstable();
        segments.dedup();
        segments
    }

    fn entry(&self, place: Place) -> Entry {
        let entries = &self.segment(segment_of(place)).entries;
        let offset = offset_of(place) as u32;
        let at = entries.binary_search_by_key(&offset, |entry| entry.offset);
        entries[at.expect("a place is an entry's")]
    }

    fn place(&self, slot: u32) -> Place {
        self.place_of.get(Slot(slot))
    }

    fn segment(&self, number: u32) -> &Segment {
        self.segments[number as usize].as_ref().expect("an entry is in a segment")
    }
}

/// Bytes that an entry takes.
fn footprint(len: usize) -> usize {
    len.max(1).next_multiple_of(UNIT)
}

fn place(segment: u32, offset: usize) -> Place {
    segment * (SEGMENT_BYTES / UNIT) as u32 + (offset / UNIT) as u32 + 1
}

fn segment_of(place: Place) -> u32 {
    (place - 1) / (SEGMENT_BYTES / UNIT) as u32
}

fn offset_of(place: Place) -> usize {
    (place - 1) as usize % (SEGMENT_BYTES / UNIT) * UNIT
}

#[cfg(test)]
#[path = "tier_tests.rs"]
mod tests;
