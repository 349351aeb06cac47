//! The processes of a run, as /proc and their agents tell of them: who belongs to it, what each holds, and
//! what of it nobody can page. What was seen is kept in the books of [`census`].

pub mod census;
pub mod descendants;
pub mod extras;
pub mod filled;
pub mod kin;
pub mod objection;
pub mod others;
pub mod strangers;
pub mod unmapped;
