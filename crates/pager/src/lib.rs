//! The live engine: binds `mm` to the kernel.
#![cfg_attr(not(test), no_std)]

pub mod shared;
