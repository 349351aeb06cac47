//! What goes into the state machine and what comes out of it.

use crate::swap::{AreaConfig, AreaId};
use crate::types::{Access, PageId, RegionKind, Slot, SpaceId, Vpn};

/// A request under way; unique while it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct IoId(pub u32);

/// Consecutive pages of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first page.
    pub first: PageId,
    /// How many; at least one.
    pub count: u32,
}

impl Run {
    /// One page.
    #[must_use]
    pub fn one(first: PageId) -> Self {
        Run { first, count: 1 }
    }

    /// The pages in ascending order.
    pub fn pages(self) -> impl DoubleEndedIterator<Item = PageId> {
        (self.first.0..self.first.0 + self.count).map(PageId)
    }
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteResult {
    /// The bytes are in their slots.
    Done,
    /// The file system had no room: the slots are worthless, the area counts as full.
    NoSpace,
    /// The device failed: the area is retired.
    Failed,
}

/// What became of the pages of an [`Action::Unmap`]; bit i stands for page i of the run. A page in
/// none of the sets was busy (pinned, shared, locked) and is still mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unmapped {
    /// Out of the program's view, its bytes in a frame of the swap cache.
    pub taken: u64,
    /// Subset of `taken`: all bytes are zero.
    pub zero: u64,
    /// Subset of `taken`, of pages with a slot: the bytes are those of the slot, so that they need
    /// not be written again.
    pub same: u64,
    /// There was no page: the program had dropped it.
    pub gone: u64,
}

/// Something happened.
#[allow(missing_docs, reason = "the variant says what its fields are, the types say the units")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `[start, end)` is managed from now on.
    RegionAdded { space: SpaceId, start: Vpn, end: Vpn, kind: RegionKind },
    /// The same, of private memory that is managed from `end` on and has grown down by `[start, end)`.
    RegionGrown { space: SpaceId, start: Vpn, end: Vpn },
    /// `[start, end)` was unmapped by the program.
    RegionRemoved { space: SpaceId, start: Vpn, end: Vpn },
    /// These pages of a region are present, with frames, although `mm` thinks they were never touched,
    /// or never stored to.
    Resident { space: SpaceId, start: Vpn, end: Vpn },
    /// The program discarded the content of `[start, end)` (madvise DONTNEED, FREE, REMOVE).
    Discarded { space: SpaceId, start: Vpn, end: Vpn },
    /// What the pages of `[start, end)` of a file region hold was written to their file: it is what the
    /// file has.
    Published { space: SpaceId, start: Vpn, end: Vpn },
    /// `[from, from + pages)` is now at `to` (mremap). No I/O may be under way for these pages.
    Moved { space: SpaceId, from: Vpn, to: Vpn, pages: u64 },
    /// The program touched a page that is not in its view.
    Fault { space: SpaceId, vpn: Vpn, access: Access },
    /// A read ended.
    ReadDone { io: IoId, ok: bool },
    /// A read ended at once, without the device: what was read ahead with it is mapped, since a
    /// fault for each page would cost more than the pages did. Markers wait for their touch.
    Unpacked { io: IoId },
    /// A write ended.
    WriteDone { io: IoId, result: WriteResult },
    /// Answer to [`Action::Unmap`].
    Unmapped { run: Run, result: Unmapped },
    /// A [`Action::Map`] could not be carried out, because the address range is changing: the
    /// frames are still in the swap cache. An event that says what changed follows.
    NotMapped { run: Run },
    /// As `NotMapped`, for [`Action::ZeroFill`] and [`Action::ShowZeroes`]: nothing was filled.
    NotFilled { run: Run },
    /// As `NotMapped`, for [`Action::TakeStores`]: the pages show the zero page still, where they are now.
    StillZeroes { run: Run },
    /// The program will need `[start, end)` soon.
    WillNeed { space: SpaceId, start: Vpn, end: Vpn },
    /// Answer to [`Action::Confirm`]: all orders before it were carried out, and what was refused
    /// of them was told.
    Confirmed,
    /// Bring everything in and stop reclaiming ([`Action::Populated`] says when it is done).
    Pause,
    /// The same, but what is in a slot of an area, and nowhere else, stays there.
    PauseOut,
    /// Go on after `Pause`, or `PauseOut`.
    Resume,
    /// Pages from this place on, of which nothing is known, are in `count` slots of an area that was
    /// inherited ([`Mm::inherit_area`](crate::Mm::inherit_area)).
    Inherited { space: SpaceId, vpn: Vpn, slot: Slot, count: u32 },
    /// One more swap area; it gets the next [`AreaId`].
    AreaAdded(AreaConfig),
    /// An area is to be used no more: what is in it is brought elsewhere ([`Action::AreaLeft`]).
    AreaLeaves { area: AreaId },
    /// A write to an area has failed that `mm` did not order: it takes no more pages, and what is in it is
    /// brought elsewhere.
    AreaFailed { area: AreaId },
    /// Answer to [`Action::Discard`]. `kept`: the backing cannot give blocks back, and has them still.
    DiscardDone { slot: Slot, kept: bool },
    /// Answer to [`Action::Claim`], or news at a tick: the area may use so many slots, and could have so
    /// many more. `has_company` says that others claim of the same limit.
    Claimed { area: AreaId, slots: u32, more: u32, has_company: bool },
    /// The budget changed.
    Budget { frames: u32 },
    /// The shell has nothing else to do while requests are under way: what will have to be done can
    /// be done now. Only to be fed while [`Mm::has_idle_work`](crate::Mm::has_idle_work).
    Idle,
    /// Time passed.
    Tick,
}

/// Something must be done. Actions are carried out in order.
#[allow(missing_docs, reason = "the variant says what its fields are, the types say the units")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Read `run` from consecutive slots into frames of the swap cache.
    Read { io: IoId, run: Run, slot: Slot },
    /// Write `run` from the swap cache to consecutive slots.
    Write { io: IoId, run: Run, slot: Slot },
    /// Give each page of `run` a zeroed frame in the program's view; answers waiting faults.
    ZeroFill { run: Run },
    /// Show the kernel's zero page in each page of `run`, protected; answers waiting faults. The first
    /// store to one is an [`Event::Fault`], and what has a frame all the same is told by
    /// [`Event::Resident`].
    ShowZeroes { run: Run },
    /// The pages of `run`, which show the zero page, may be stored to; answers waiting faults.
    TakeStores { run: Run },
    /// Move `run` from the swap cache into the program's view; answers waiting faults.
    Map { run: Run },
    /// Take `run` out of the program's view, into the swap cache; answered by [`Event::Unmapped`].
    Unmap { run: Run },
    /// The frames of `run` in the swap cache are free.
    Free { run: Run },
    /// What the swap cache holds for `from` belongs to `to` now.
    Rename { from: PageId, to: PageId },
    /// A fault on `run` is obsolete: let the thread try again.
    Wake { run: Run },
    /// The page is lost: its read failed twice. Its next touch must fail (SIGBUS).
    Fail { page: PageId },
    /// Nobody uses these slots: their backing may have its blocks back. They are not used before
    /// [`Event::DiscardDone`].
    Discard { slot: Slot, count: u32 },
    /// The area wants to use so many slots, all told, of what others use, too; answered by
    /// [`Event::Claimed`]. Fewer than it has: others may have the rest.
    Claim { area: AreaId, slots: u32 },
    /// An area that was to leave, or that failed, is used no more; `slots` are those that could not
    /// be brought elsewhere.
    AreaLeft { area: AreaId, slots: u32 },
    /// Answer with [`Event::Confirmed`], after the answers to all orders before.
    Confirm,
    /// Everything is in the program's view (answer to [`Event::Pause`]), or in a slot
    /// ([`Event::PauseOut`]).
    Populated,
    /// Something the user should know, once.
    Warn(Warning),
}

/// What an [`Action::Warn`] warns of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warning {
    /// No slot is left: the program goes on above its budget.
    SwapFull,
    /// A write failed: the area takes no more pages.
    AreaRetired,
    /// A page could not be read back.
    PageLost,
}

/// The actions of one step, in order. Kept by the shell and reused, so that a step does not allocate.
#[derive(Default, Debug)]
pub struct Actions(alloc::vec::Vec<Action>);

impl Actions {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Actions::default()
    }

    /// The actions, oldest first; the list is empty afterwards.
    pub fn drain(&mut self) -> alloc::vec::Drain<'_, Action> {
        self.0.drain(..)
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The actions so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Action] {
        &self.0
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    /// Adds an action before those from there on.
    pub(crate) fn insert(&mut self, at: usize, action: Action) {
        self.0.insert(at, action);
    }

    /// Adds `Free { id }`, joined with the last action when that frees the page before.
    pub(crate) fn push_free(&mut self, id: PageId) {
        if let Some(Action::Free { run }) = self.0.last_mut()
            && run.first.0 + run.count == id.0
            && !id.0.is_multiple_of(512)
        {
            run.count += 1;
            return;
        }
        self.push(Action::Free { run: Run::one(id) });
    }

    /// Adds `Unmap { id }`, joined with the last action when that unmaps the page before.
    pub(crate) fn push_unmap(&mut self, id: PageId, most: u32) {
        if let Some(Action::Unmap { run }) = self.0.last_mut()
            && run.first.0 + run.count == id.0
            && run.count < most
            && !id.0.is_multiple_of(512)
        {
            run.count += 1;
            return;
        }
        self.push(Action::Unmap { run: Run::one(id) });
    }

    /// Adds `Map { id }`, joined with the last action when that maps the page before.
    pub(crate) fn push_map(&mut self, id: PageId) {
        if let Some(Action::Map { run }) = self.0.last_mut()
            && run.first.0 + run.count == id.0
            && !id.0.is_multiple_of(512)
        {
            run.count += 1;
            return;
        }
        self.push(Action::Map { run: Run::one(id) });
    }
}
