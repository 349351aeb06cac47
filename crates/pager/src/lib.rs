//! The live engine: binds `mm` to the kernel.
#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
mod api;
mod dropper;
pub mod engine;
mod io;
mod memory;
mod own_events;
pub mod reactor;
pub mod report;
pub mod setup;
pub mod shared;
mod staging;
mod swapfile;
mod transfers;

#[cfg(feature = "std")]
pub use api::{Builder, Error, Pager, Region, Stats};
pub use engine::{Engine, Notice};
pub use reactor::Reactor;
pub use setup::{Failure, STEPS, Settings};
pub use swapfile::SwapPlace;
