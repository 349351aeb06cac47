//! Exit codes of the command's own, where people and scripts know them from env(1), timeout(1) and
//! xargs(1).

/// Overspill itself failed.
pub const OWN_FAILURE: u8 = 125;
/// The program was found but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;
