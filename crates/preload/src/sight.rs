//! What the process can see of itself by files that it may not open any more once it has forbidden
//! others to look into it (PR_SET_DUMPABLE), if it is not root. They are opened before it begins, in
//! the agent's own table of descriptors, where they take no more room than later.
//!
//! A child of fork has its parent's ban from the start, and opens neither. The launcher, if that is root,
//! opens the page map for it.
//!
//! *The story:* they were opened near the budget. Programs like ssh-agent were not managed.

use overspill_sys::Fd;
use overspill_sys::mem::OwnMemory;
use overspill_sys::pagemap::Pagemap;

use crate::settings;

/// The files, as far as they could be opened.
#[derive(Default)]
pub struct Sight {
    pub pagemap: Option<Pagemap>,
    pub memory: Option<OwnMemory>,
}

impl Sight {
    /// Opens them. `given`: the page map, as the launcher opened it.
    pub fn open(given: Option<Fd>) -> Sight {
        let memory = settings::is_rich().then(OwnMemory::open);
        let pagemap = Pagemap::open().or_else(|errno| given.map_or(Err(errno), Pagemap::given));
        Sight { pagemap: pagemap.ok(), memory: memory.and_then(Result::ok) }
    }
}
