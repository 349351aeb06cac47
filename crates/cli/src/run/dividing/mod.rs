//! The budget of a tree, divided between its processes by need; pure values, which the watcher feeds.

pub mod divider;
pub mod pace;
pub mod turns;
