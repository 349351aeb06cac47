//! The compressed pool, a tier of swap between the frames and the areas: `tier` decides what goes
//! in, where it stands, what leaves and when, and `size` how much of the budget it may have.
//!
//! To the rest of `mm` a slot is written when its pages are in the pool, and read when they were
//! unpacked. A shell packs, keeps the bytes where it is told, and carries out what is to leave.

mod size;
mod tier;

pub use size::{Figures, Held, PoolSize, Waits};
pub use tier::{
    Age, Chore, FILLED_BYTES, LEAVING_MAX, Moved, Refused, SEGMENT_BYTES, SEGMENT_FRAMES, Spot, Tier, Totals,
    make_room, segments_max,
};
