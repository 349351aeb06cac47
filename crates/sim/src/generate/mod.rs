//! Generators: programs whose accesses follow a rule.
//!
//! Each stream is a [`crate::workload::Workload`] of one thread and one region, made from a few
//! numbers and a seed; [`named`] makes whole loads of one or more of them from a line of text. None
//! holds its accesses in memory.

pub mod graph;
pub mod named;
pub mod pattern;
pub mod zipf;

pub use named::{Load, parse};
pub use pattern::{Pattern, Spec, Stream};
