//! What the processor's part of memory management costs, for the two systems that are modelled.
//!
//! Each entry is the time of an operation plus a time for each of its pages, so that batching pays
//! as it does in the real thing. The live pager's figures are the design's cost table (measured on
//! a virtualised two-core machine, Linux 6.18), with idle processors awake, as the pager keeps
//! them; today's kernel's are of the same machine: its first touch from the same table, its
//! requests from a load of `sim validate` (stride:16 by slot took 12.9 s, a lone swap-in 92 us
//! where the device takes 63), the rest estimates.

use crate::time::Nanos;

/// The first touch of a page that nobody but the kernel manages (docs/costs.md).
pub const UNMANAGED_FILL_NS: Nanos = 1_900;

/// A cost: once an operation, and for each page of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Once.
    pub op_ns: Nanos,
    /// For each page.
    pub page_ns: Nanos,
}

impl Cost {
    const fn new(op_ns: Nanos, page_ns: Nanos) -> Cost {
        Cost { op_ns, page_ns }
    }

    /// The time for `pages` in one operation.
    #[must_use]
    pub fn of(self, pages: u32) -> Nanos {
        self.op_ns + self.page_ns * u64::from(pages)
    }
}

/// Who does the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// One thread of its own, to which faults are sent: one thing after another, asleep when there
    /// is nothing to do.
    Reactor {
        /// From a message's arrival until a sleeping reactor runs.
        wake_ns: Nanos,
        /// How long it looks for more before it sleeps.
        spin_ns: Nanos,
    },
    /// Each faulting thread, in the kernel, side by side.
    Kernel,
}

/// The table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Who does the work.
    pub worker: Worker,
    /// A touch that finds its page in view: the program's own time.
    pub hit_ns: Nanos,
    /// From the touch of an absent page until the worker could know.
    pub trap_ns: Nanos,
    /// From the answer until the faulting thread runs.
    pub resume_ns: Nanos,
    /// A decision.
    pub step_ns: Nanos,
    /// Zeroed pages into view.
    pub fill: Cost,
    /// Pages from the swap cache into view.
    pub map: Cost,
    /// Pages out of view.
    pub unmap: Cost,
    /// Frames given back.
    pub free: Cost,
    /// A transfer handed to the device.
    pub submit: Cost,
    /// Its completion taken back.
    pub complete: Cost,
    /// All-zero pages are recognised when they leave the program's view.
    pub sees_zero: bool,
}

impl Costs {
    /// The live pager: userfaultfd, UFFDIO_MOVE, io_uring, one reactor.
    #[must_use]
    pub const fn pager() -> Costs {
        Costs {
            worker: Worker::Reactor { wake_ns: 3_000, spin_ns: 50_000 },
            hit_ns: 0,
            trap_ns: 2_000,
            resume_ns: 8_000,
            step_ns: 300,
            fill: Cost::new(900, 1_000),
            map: Cost::new(870, 125),
            unmap: Cost::new(870, 125),
            free: Cost::new(300, 50),
            submit: Cost::new(1_500, 30),
            complete: Cost::new(300, 0),
            sees_zero: true,
        }
    }

    /// Today's kernel: faults handled where they happen. A completion wakes a thread that sleeps.
    #[must_use]
    pub const fn kernel() -> Costs {
        Costs { submit: Cost::new(5_000, 300), complete: Cost::new(10_000, 0), ..Costs::kernel_2012() }
    }

    /// A kernel of 2012 to 2017 on a machine of its own. Where the device's constants were solved
    /// from published times, they hold most of what the processor did, too.
    #[must_use]
    pub const fn kernel_2012() -> Costs {
        Costs {
            worker: Worker::Kernel,
            hit_ns: 0,
            trap_ns: 500,
            resume_ns: 300,
            step_ns: 200,
            fill: Cost::new(300, 600),
            map: Cost::new(200, 300),
            unmap: Cost::new(500, 400),
            free: Cost::new(0, 100),
            submit: Cost::new(1_500, 300),
            complete: Cost::new(0, 0),
            sees_zero: false,
        }
    }

    /// Nothing costs anything: for counting only.
    #[must_use]
    pub const fn free() -> Costs {
        const NONE: Cost = Cost::new(0, 0);
        Costs {
            worker: Worker::Kernel,
            hit_ns: 0,
            trap_ns: 0,
            resume_ns: 0,
            step_ns: 0,
            fill: NONE,
            map: NONE,
            unmap: NONE,
            free: NONE,
            submit: NONE,
            complete: NONE,
            sees_zero: false,
        }
    }
}
