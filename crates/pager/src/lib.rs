//! The live engine: binds `mm` to the kernel.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod clock;
mod dropper;
pub mod engine;
mod io;
mod memory;
pub mod report;
pub mod shared;
mod staging;
mod transfers;
