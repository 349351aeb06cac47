//! Memory that several processes of a run have, by forks: each page counts once, with one of them.

pub mod copies;
pub mod heritage;
pub mod lending;
pub mod sharing;
