//! The memory manager: a sans-I/O state machine. No clock, no threads, no floats, no I/O, no dependencies.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod readahead;
pub mod types;
