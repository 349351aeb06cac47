//! Overspill on virtual time: the policy code of `mm`, unchanged, driven by traces and generators
//! against modelled devices.
//!
//! Time is an integer count of nanoseconds, chance comes from one seed, and no decision rests on a
//! float: the same seed, commit and options give the same bytes. Nothing here asks the real clock,
//! except [`calibrate`], which measures a real device to make a model of it.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod device;
pub mod engine;
pub mod files;
pub mod generate;
pub mod nearest;
pub mod options;
pub mod paper;
pub mod replace;
pub mod report;
pub mod rng;
pub mod soak;
pub mod streams;
pub mod sweep;
pub mod time;
pub mod trace;
pub mod workload;
