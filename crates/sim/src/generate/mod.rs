//! Generators: programs whose accesses follow a rule.
//!
//! Each is a [`Workload`] of one thread and one region, made from a few numbers and a seed; [`crate::engine::Engine::add`]
//! runs as many of them side by side as are wanted. None holds its accesses in memory.

pub mod pattern;
pub mod zipf;

pub use pattern::{Pattern, Spec, Stream};
