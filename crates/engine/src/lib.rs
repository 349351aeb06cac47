//! The live engine: binds `mm` to the kernel by way of userfaultfd and direct I/O.
//!
//! It has two owners: the agent inside an unmodified program (`preload`) and the library for Rust
//! programs (`pager`). Like everything the agent is made of it works without the standard library,
//! without libc and without thread-locals.
//!
//! From outside in: `reactor` waits, `engine` turns messages into events and actions into
//! transfers, `memory` moves pages (the one module with unsafe code), `staging` keeps the books of
//! the frames, `transfers` and `io` reach the device.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod child;
pub mod claims;
mod copies;
pub mod crowd;
pub mod discards;
pub mod doze;
mod engine;
pub mod estate;
pub mod file_table;
mod files;
mod fingerprint;
pub mod growth;
mod helper;
mod huge;
mod io;
pub mod join_words;
mod lending;
mod memory;
pub mod orders;
mod own_events;
pub mod packing;
mod passing;
pub mod patience;
pub mod pipes;
pub mod places;
mod pool;
pub mod purse;
pub mod raised;
mod ranges;
pub mod reactor;
pub mod report;
mod reservations;
mod robust;
mod seal;
pub mod setup;
pub mod shared;
mod shared_regions;
mod silence;
pub mod spill;
mod staging;
mod sums;
mod swapfile;
pub mod trace;
mod transfers;
pub mod turnstile;
mod view;
mod vigil;
mod waiters;

pub use engine::{Engine, Notice, heirs};
pub use files::{Program, Source};
pub use reactor::Reactor;
pub use setup::{FRAMES_MAX, Failure, Inheritance, MAX_POOL_PERCENT, STEPS, Settings, frames_of};
pub use shared_regions::MapperId;
pub use swapfile::{SwapKind, SwapPlace};
pub use view::Place;
