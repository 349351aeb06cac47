//! The textbook's two, as far as they can be followed without accessed bits: to compare with.
//!
//! `lru` orders pages by the touches that it sees. It sees those of pages out of view, so it keeps
//! a quarter of all pages there, the oldest ones (VMS did so: segmented FIFO), and whoever is
//! touched is the newest again. Each such touch is a soft fault. `fifo` orders pages by arrival and
//! keeps only those out of view that are being written; one that is touched even so begins anew,
//! since a page cannot be taken from who waits for it. Neither has an active list.

use super::BATCH;
use super::policy::{Away, Follows, Place, Policy, Scene, Stamp, Waited};

/// `lru` keeps one page in so many out of view.
const UNVIEWED: u32 = 4;

/// Whether touches are looked for.
#[derive(Debug)]
pub(crate) struct Plain {
    looks: bool,
}

impl Plain {
    pub fn lru() -> Plain {
        Plain { looks: true }
    }

    pub fn fifo() -> Plain {
        Plain { looks: false }
    }
}

impl Policy for Plain {
    fn touched(&mut self, _: &Scene, _: Waited, _: Stamp) -> Place {
        Place::INACTIVE
    }

    fn refault(&mut self, _: &Scene, _: &Away) -> Place {
        Place::INACTIVE
    }

    /// There are active pages only where the policy was another one before.
    fn deactivates(&mut self, scene: &Scene) -> u32 {
        scene.active.min(BATCH)
    }

    fn kept(&self, scene: &Scene) -> u32 {
        let pages = scene.inactive + scene.active + scene.cached;
        if self.looks { (pages / UNVIEWED).max(scene.windows) } else { scene.windows }
    }

    fn follows(&self) -> Follows {
        Follows::Nobody
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lru_keeps_a_quarter_out_of_view_and_fifo_windows_only() {
        let scene = Scene { budget: 100, inactive: 70, cached: 10, windows: 8, ..Scene::default() };
        assert_eq!((Plain::lru().kept(&scene), Plain::fifo().kept(&scene)), (20, 8));
    }
}
