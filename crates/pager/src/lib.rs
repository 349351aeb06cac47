//! The library: memory larger than its budget, for a Rust program that asks for it.
//!
//! ```no_run
//! use overspill_pager::Pager;
//! # fn main() -> Result<(), overspill_pager::Error> {
//! let pager = Pager::builder().ram(256 << 20).swap("/var/tmp").build()?;
//! let mut table = pager.map_anon(4 << 30)?;
//! table[123_456_789] = 7;
//! pager.prefetch(&table, 0..64 << 20);
//! println!("{:?}", pager.stats());
//! # Ok(())
//! # }
//! ```
//!
//! [`Pager::map_shared`] makes memory that other processes map too, [`SharedRegion::join`] is what
//! they do. The knobs of swap-in read-ahead have the kernel's names, and hold for all regions
//! ([`Pager::set_page_cluster`]) or for one ([`Region::set_readahead`]).
//!
//! [`Pager::map_file`] maps a file, for reading, with stores that stay private, or with stores that
//! are the file's once they are synced, and
//! [`Pager::open_file`] opens one with a cache that reads ahead and writes back; both live in the
//! same budget.
//!
//! One thread of the pager's own serves the faults. Its memory is not managed memory, and nothing
//! it does touches a region: a pager that waits for itself waits for ever.

mod builder;
mod door;
mod error;
mod file;
mod file_region;
mod link;
mod pager;
mod process;
mod publish;
mod raw;
mod region;
mod shared;

pub use builder::Builder;
pub use error::Error;
pub use file::{File, FileOptions, FileStats};
pub use file_region::{FileRegion, MapOptions, SharedStores};
pub use overspill_mm::Vmstat;
pub use overspill_mm::fileread::policy::NAMES as FILE_READAHEAD_NAMES;
pub use overspill_mm::fileread::{Advice, MapAdvice};
pub use overspill_mm::readahead::policy::{Config, Knobs, NAMES, Overrides, Policy, WINDOW_BUCKETS};
pub use overspill_mm::reclaim::policy::Choice as Reclaim;
pub use overspill_sys::{Errno, PAGE_SIZE};
pub use pager::{Pager, Stats};
pub use region::{Region, RegionStats};
pub use shared::{Handle, Joined, SharedRegion, SharedView};
