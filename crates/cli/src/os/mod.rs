//! The command's only unsafe code: what no safe wrapper offers. Each file owns one thing.
//!
//! - [`descriptor`]: descriptors to and from the standard library's.
//! - [`inherit`]: what the caller handed down and the standard library changes before `main`, given
//!   on to the child.
//! - [`signals`]: signal handlers that forward or note, and dying by a signal.
//! - [`child`]: waiting for a child together with the CPU time and the faults of its whole tree.
//! - [`memory`]: the bench load's memory, one atomic word a page.
//! - [`mapped`]: a file's mapping, for reading.
//! - [`lease`]: whether anybody else has a file open or mapped.
//! - [`swap`]: switching the kernel's swap on and off for `compare`.
//! - [`xattr`]: whether a program has file capabilities.

pub mod child;
pub mod descriptor;
pub mod inherit;
pub mod lease;
pub mod mapped;
pub mod memory;
pub mod signals;
pub mod swap;
pub mod xattr;
