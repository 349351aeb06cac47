//! The memory manager of Overspill: a sans-I/O state machine that decides which pages of a program
//! are in RAM.
//!
//! `Mm::step(now, Event, &mut Actions)` is all there is: faults, finished transfers and changes of
//! the address space go in; reads, writes, mappings and unmappings come out. There is no clock, no
//! thread, no float, no I/O, no dependency and no unsafe code here, so that the live pager and the
//! simulator run the same policy, and the same events give the same actions, byte for byte.
//!
//! A fault's way through the files: `fault` (what is wanted, what else to read) -> the shell reads
//! -> `transfer` (what arrived, what is mapped) -> `reclaim` (what must go). `range` is for whole
//! ranges, `page`, `list`, `region` and `swap` are the tables that they share, `check` proves the
//! invariants.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod asked;
mod check;
mod chunks;
mod drain;
pub mod event;
mod fault;
pub mod fileread;
pub mod filescan;
mod filler;
pub mod fingerprint;
mod ledger;
mod list;
mod mm;
mod overfull;
mod pace;
pub mod page;
mod part;
mod passing;
pub mod pool;
pub mod probe;
mod range;
pub mod readahead;
pub mod reclaim;
mod region;
pub mod reserve;
pub mod slot_table;
pub mod stats;
pub mod swap;
mod transfer;
pub mod types;
mod waiting;
mod zeroes;

pub use event::{Action, Actions, Event, IoId, Run, Unmapped, Warning, WriteResult};
pub use mm::{Config, Mm};
pub use page::State;
pub use probe::Probe;
pub use stats::{RegionStats, Vmstat};
pub use swap::{AreaConfig, AreaId, Placement};
