//! What it takes for each process of a run to have an agent: the library, the program, the ways to the
//! launcher, and who clears up when the run is over.

pub mod agent;
pub mod custody;
pub mod door;
pub mod entrance;
pub mod keeper;
pub mod program;
pub mod room;
