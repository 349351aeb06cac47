//! Making room.
//!
//! `live` is what the pager does, and the simulator's kernels: it takes pages out of view, writes
//! and frees them. Which ones is a policy's, by name ([`policy::Choice`]), one file each: `adaptive`
//! (the default), `reuse` (the default where accessed bits are told), `dueling` (both contend), `probing`,
//! `plain` (lru, fifo), `eras` (a kernel's two lists), `bits` (a kernel's with accessed bits). `arrivals`
//! and `regret` are what `reuse` and `probing` share, `chance` how many pages wait for a second chance.
//! `appetite` says how many frames are kept free for them, `streams` what a stream leaves behind,
//! `newcomers` and `ageing` what a kernel's lists do with accessed bits.
//!
//! Everything else here is the kernel's reclaim as values that can be put side by side
//! (specification, section 5): a machine of its own, [`node::Node`], that knows pages by number,
//! on four lists for each budget domain, anonymous and file, and frees them for two callers,
//! [`direct`] and [`background`], each with a goal and a reason. Nothing here knows what a page
//! holds, where it is read from or what time it is: whoever drives it is told what was freed and
//! what must be written ([`node::Order`]), and says when a write has ended.
//!
//! One file a rule: `marks` (what a touch does), `ratio` (when the inactive list is low),
//! `fractions` (whose turn it is), `targets` (how much), `scan` (the loop, in its eras), `shadow`
//! (how long a page was away), `watermarks` (when to start and to stop). They are functions of
//! numbers, checked against every line of the specification's tables.

mod adaptive;
pub(crate) mod ageing;
pub(crate) mod appetite;
mod arrivals;
pub mod background;
mod bits;
mod chance;
pub mod counters;
pub mod direct;
mod dueling;
mod eras;
pub mod fractions;
pub mod lists;
pub(crate) mod live;
pub mod marks;
pub(crate) mod newcomers;
pub mod node;
mod plain;
pub mod policy;
mod probing;
pub mod ratio;
mod regret;
mod reuse;
pub mod scan;
pub mod shadow;
pub(crate) mod streams;
pub mod targets;
pub mod watermarks;

/// Pages looked at, at a time, and the goal of a direct reclaim (SWAP_CLUSTER_MAX).
pub const BATCH: u32 = 32;
/// The first priority: a list is scanned by its length shifted right by this, then by one less.
pub const PRIORITY_FIRST: u32 = 12;

/// Which kernel's rules hold, but for the scan loop, which has eras of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// 3.16.
    Early,
    /// 6.19.
    Late,
}

/// Who reclaims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimer {
    /// kswapd: frames are kept free ahead of demand.
    Background,
    /// The side that wants a frame and finds too few free.
    Direct,
    /// The side that finds a domain at its limit.
    Domain,
}
