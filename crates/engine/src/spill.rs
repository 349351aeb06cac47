//! What went to each of the places that a run spills to, and what is there: for whoever looks at the run.
//!
//! The places are known by the numbers of their limits ([`crate::claims`]). What was written and read is
//! added up for the run, so that it stays when a process has ended; what is there each process tells by
//! itself, so that it goes with it. Nothing is decided by any of this.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use overspill_sys::PAGE_SIZE;

use crate::claims::LIMITS;
use crate::shared::{PROCESSES, Process, Shared};

/// Places that there can be: the first is the file of a process that finds each area taken by another one.
pub const SPOTS: usize = LIMITS;

/// How a place stands; of two areas, or processes, that have it the higher one counts.
pub mod stand {
    /// It is not open.
    pub const NONE: u32 = 0;
    /// By order, or as it failed, nothing is there any more.
    pub const DRAINED: u32 = 1;
    /// It takes pages.
    pub const OPEN: u32 = 2;
    /// Its file system has no room.
    pub const CLOSED: u32 = 3;
    /// What is there is brought elsewhere.
    pub const DRAINING: u32 = 4;
    /// A write has failed.
    pub const FAILED: u32 = 5;
}

/// Of the run, for one place.
#[repr(C)]
#[derive(Default)]
pub struct Total {
    /// Bytes written there.
    pub written: AtomicU64,
    /// Bytes read.
    pub read: AtomicU64,
    /// The most that was seen there at a time.
    pub peak: AtomicU64,
    /// What a process may use of it.
    pub size: AtomicU64,
    /// What was told of it last: a value of [`stand`].
    pub stand: AtomicU64,
}

/// Of a process, for one place.
#[repr(C)]
#[derive(Default)]
pub struct Here {
    /// Pages that it has there. What a fork left in common each has.
    pub pages: AtomicU32,
    /// A value of [`stand`].
    pub stand: AtomicU32,
}

/// Of a process.
pub type Row = [Here; SPOTS];

/// In the shared page.
#[repr(C)]
pub struct Spill {
    /// By place.
    pub totals: [Total; SPOTS],
    /// By the process's place in their table.
    pub rows: [Row; PROCESSES],
}

/// What a process has at a place.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub pages: u32,
    pub bytes_max: u64,
    pub stand: u32,
}

impl Told {
    /// With another area of the same place.
    pub fn and(self, other: Told) -> Told {
        Told {
            pages: self.pages + other.pages,
            bytes_max: self.bytes_max.max(other.bytes_max),
            stand: self.stand.max(other.stand),
        }
    }
}

/// Tells it of one process.
pub struct Teller {
    totals: &'static [Total; SPOTS],
    row: &'static Row,
}

impl Teller {
    /// Of the process that reports there. None: it has no place among the others.
    #[must_use]
    pub fn of(shared: &'static Shared, process: &Process) -> Option<Teller> {
        let own = shared.processes.iter().position(|other| core::ptr::eq(other, process))?;
        Some(Teller { totals: &shared.spill.totals, row: &shared.spill.rows[own] })
    }

    /// So many pages go to a place, or come from it.
    pub(crate) fn moved(&self, spot: u8, writes: bool, pages: u32) {
        let total = &self.totals[usize::from(spot)];
        let bytes = u64::from(pages) * PAGE_SIZE as u64;
        (if writes { &total.written } else { &total.read }).fetch_add(bytes, Relaxed);
    }

    /// What there is at each place.
    pub(crate) fn tell(&self, told: &[Told; SPOTS]) {
        for ((told, here), total) in told.iter().zip(self.row).zip(self.totals) {
            if told.pages != here.pages.load(Relaxed) {
                here.pages.store(told.pages, Relaxed);
                total.peak.fetch_max(u64::from(told.pages) * PAGE_SIZE as u64, Relaxed);
            }
            if told.stand != here.stand.load(Relaxed) {
                here.stand.store(told.stand, Relaxed);
                total.size.fetch_max(told.bytes_max, Relaxed);
                total.stand.store(u64::from(told.stand), Relaxed);
            }
        }
    }
}

/// Empties the row of a place that somebody claims.
pub fn clear(row: &Row) {
    for here in row {
        here.pages.store(0, Relaxed);
        here.stand.store(stand::NONE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    fn table<T: Default>() -> &'static [T; SPOTS] {
        Box::leak(Box::new(core::array::from_fn(|_| T::default())))
    }

    #[test]
    fn what_moved_is_the_runs_and_what_is_there_the_processs() {
        let totals = table::<Total>();
        let [first, second] = [0, 1].map(|_| Teller { totals, row: table::<Here>() });
        for teller in [&first, &second] {
            teller.moved(2, true, 3);
            teller.moved(2, false, 1);
        }
        let area = |pages, stand| Told { pages, bytes_max: 1 << 20, stand };
        let mut told = [Told::default(); SPOTS];
        told[2] = area(5, stand::OPEN).and(area(2, stand::NONE));
        first.tell(&told);
        told[2] = area(1, stand::FAILED);
        first.tell(&told);
        let values = |total: &Total| {
            [&total.written, &total.read, &total.peak, &total.size, &total.stand]
                .map(|value| value.load(Relaxed))
        };
        assert_eq!(values(&totals[2]), [6 << 12, 2 << 12, 7 << 12, 1 << 20, u64::from(stand::FAILED)]);
        assert_eq!(values(&totals[1]), [0; 5]);
        assert_eq!((first.row[2].pages.load(Relaxed), second.row[2].pages.load(Relaxed)), (1, 0));
        clear(first.row);
        assert_eq!((first.row[2].pages.load(Relaxed), first.row[2].stand.load(Relaxed)), (0, stand::NONE));
    }
}
