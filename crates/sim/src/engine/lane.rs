//! One thread of a program: its time, and its run through accesses that need nobody.
//!
//! This is the inner loop of the simulator. A hit costs a look at the view's bits; everything else
//! ends the run and is seen to by the engine.

use super::Options;
use super::histogram::Histogram;
use super::memory::{Memory, Place, UNNAMED, view};
use super::outcome::{FaultClass, ThreadOutcome};
use super::source::{Next, Source};
use crate::time::{LAST, Nanos, muldiv};
use crate::workload::{Access, WorkloadError};
use overspill_mm::Mm;
use overspill_mm::readahead::SwapIn;
use overspill_mm::types::{Access as Kind, PageId, SpaceId, Vpn};

/// Can it run?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneState {
    /// Yes.
    Runnable,
    /// Other threads of its trace must catch up first.
    Starved,
    /// It waits for a page.
    Blocked,
    /// It is in a system call that the worker must hear of.
    Calling,
    /// It has done everything.
    Finished,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// Its time has come to the limit.
    Limit,
    /// Nothing is left.
    Finished,
    /// Its program gives pages back.
    Gone,
    /// See [`LaneState::Starved`].
    Starved,
    /// A space without number.
    NewSpace(u16),
    /// A page that no region covers.
    NewChunk {
        /// Global number of the space.
        space: u16,
        /// The page.
        vpn: u64,
    },
    /// An access that does not go through.
    Fault {
        /// Global number of the space.
        space: u16,
        /// The page.
        vpn: u64,
        /// A store.
        write: bool,
    },
    /// The page is lost: the access failed and the thread goes on.
    Lost,
}

/// The thread.
#[derive(Debug)]
pub struct Lane {
    /// Index of its program.
    pub source: usize,
    thread: u16,
    /// Its own time: it has computed up to here.
    pub time: Nanos,
    /// See there.
    pub state: LaneState,
    /// The access that is being tried.
    current: Option<Access>,
    /// When the current access first faulted.
    fault_since: Option<Nanos>,
    /// What answered it, so far.
    pub class: FaultClass,
    /// Faults got over since the engine last looked.
    pub answered: Vec<(FaultClass, Nanos)>,
    refaults: Histogram,
    start: Nanos,
    accesses: u64,
    stalled_ns: Nanos,
}

impl Lane {
    /// A thread that begins at `now`.
    pub fn new(source: usize, thread: u16, now: Nanos) -> Lane {
        Lane {
            source,
            thread,
            time: now,
            state: LaneState::Runnable,
            current: None,
            fault_since: None,
            class: FaultClass::Soft,
            answered: Vec::new(),
            start: now,
            accesses: 0,
            stalled_ns: 0,
            refaults: Histogram::default(),
        }
    }

    /// Its number in its program.
    pub fn thread(&self) -> u16 {
        self.thread
    }

    /// Its figures.
    pub fn outcome(&self) -> ThreadOutcome {
        ThreadOutcome {
            program: self.source,
            thread: self.thread,
            start_ns: self.start,
            end_ns: self.time,
            accesses: self.accesses,
            stalled_ns: self.stalled_ns,
            refaults: self.refaults.clone(),
        }
    }

    /// Counts a fault that it got over.
    pub fn record(&mut self, class: FaultClass, latency_ns: Nanos) {
        if class != FaultClass::Fill {
            self.refaults.add(latency_ns);
        }
    }

    /// The access failed (SIGBUS): the program goes on without it.
    pub fn give_up(&mut self) {
        self.current = None;
        self.fault_since = None;
    }

    /// Has its current access faulted?
    pub fn is_faulting(&self) -> bool {
        self.fault_since.is_some()
    }

    /// Runs until `limit` or until something must be seen to.
    #[allow(clippy::too_many_arguments, reason = "the parts of the engine that a running thread touches")]
    pub fn run<P: SwapIn>(
        &mut self,
        source: &mut Source,
        spaces: &[Option<u16>],
        memory: &mut Memory,
        mm: &mut Mm<P>,
        options: &Options,
        stretch: (u32, u32),
        limit: Nanos,
        newcomers: &mut Vec<u16>,
    ) -> Result<RunEnd, WorkloadError> {
        self.state = LaneState::Runnable;
        let hit_ns = options.costs.hit_ns;
        let follow_stores = options.shadow || options.costs.sees_zero;
        loop {
            let access = match self.current {
                Some(access) => access,
                None => match source.next(self.thread, newcomers)? {
                    Next::Access(access) => {
                        self.time += think_ns(&access, stretch).min(LAST.saturating_sub(self.time));
                        self.current = Some(access);
                        access
                    }
                    Next::Later => {
                        self.state = LaneState::Starved;
                        return Ok(RunEnd::Starved);
                    }
                    Next::Gone => return Ok(RunEnd::Gone),
                    Next::End => {
                        self.state = LaneState::Finished;
                        return Ok(RunEnd::Finished);
                    }
                },
            };
            if self.time >= limit {
                return Ok(RunEnd::Limit);
            }
            let Some(&Some(space)) = spaces.get(usize::from(access.space)) else {
                return Ok(RunEnd::NewSpace(access.space));
            };
            let place = match memory.find_quickly(space, access.vpn) {
                Some(place) => place,
                // Nothing of these 2 MiB was touched yet.
                None if is_managed(mm, space, access.vpn) => memory.find_or_create(space, access.vpn).0,
                None => return Ok(RunEnd::NewChunk { space, vpn: access.vpn }),
            };
            let bits = memory.bits(place);
            if bits & view::PRESENT == 0 || access.write && bits & view::ZERO != 0 {
                if bits & view::LOST != 0 {
                    self.give_up();
                    return Ok(RunEnd::Lost);
                }
                self.fault_since.get_or_insert(self.time);
                return Ok(RunEnd::Fault { space, vpn: access.vpn, write: access.write });
            }
            // A feed is read apart from the faults, and what those bring into view is unused at first.
            let is_told = options.mm.probe.is_kernel() || self.fault_since.is_none();
            if options.mm.probe.tells_uses() && is_told {
                let is_marked = mark(memory, mm, place, space, &access);
                // The pager's orders reach the view some time after it has given them.
                assert!(is_marked || !options.mm.probe.is_kernel(), "mm knows that the page is in view");
            }
            if access.write && follow_stores {
                memory.store(place);
            }
            self.accesses += 1;
            self.current = None;
            if let Some(since) = self.fault_since.take() {
                self.stalled_ns += self.time - since;
                self.answered.push((self.class, self.time - since));
                self.class = FaultClass::Soft;
            }
            self.time += hit_ns;
        }
    }
}

fn is_managed<P: SwapIn>(mm: &Mm<P>, space: u16, vpn: u64) -> bool {
    mm.manages(SpaceId(space), Vpn(vpn), Vpn(vpn + 1))
}

#[inline]
fn think_ns(access: &Access, stretch: (u32, u32)) -> Nanos {
    if stretch.0 == stretch.1 {
        access.think_ns
    } else {
        muldiv(access.think_ns, u64::from(stretch.0), u64::from(stretch.1))
    }
}

/// The hardware sets the accessed and the dirty bit. False: `mm` has the page out of view already.
#[inline]
fn mark<P: SwapIn>(memory: &mut Memory, mm: &mut Mm<P>, place: Place, space: u16, access: &Access) -> bool {
    let mut base = memory.chunk(place.chunk).base;
    if base == UNNAMED {
        let id = mm.lookup(SpaceId(space), Vpn(access.vpn)).expect("a page in view is known to mm");
        base = id.0 - u32::from(place.page);
        memory.name(place, base);
    }
    let kind = if access.write { Kind::Write } else { Kind::Read };
    mm.mark_accessed(PageId(base + u32::from(place.page)), kind)
}
