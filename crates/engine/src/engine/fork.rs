//! What owners do around a fork of the program: the doorbell that announces it, the pause, and making pages exclusive again.

use overspill_mm::Event;
use overspill_sys::{AddressRange, Errno};

use super::Engine;

/// Memory that is unshared by one call of the helper.
const UNSHARE_BYTES: usize = 1 << 20;

impl Engine {
    /// Page addresses in this range are doorbells: a touch is a [`Notice::Doorbell`](super::Notice::Doorbell).
    pub fn set_doorbells(&mut self, range: AddressRange) -> Result<(), Errno> {
        self.view.program.register_doorbell(range.clone())?;
        self.doorbells = range;
        Ok(())
    }

    /// Lets the threads at a doorbell go on, and silences it until [`Engine::resume_after_fork`].
    pub fn answer_doorbell(&mut self, address: usize) {
        self.view.program.fill_fresh(address, 1);
    }

    /// Brings everything in and stops reclaiming until [`Engine::resume_after_fork`];
    /// [`Notice::Populated`](super::Notice::Populated) follows.
    pub fn pause(&mut self) {
        self.feed(Event::Pause);
    }

    /// After a fork, still paused: the kernel refuses to move pages that a child shares, or shared until it ended. Notes
    /// what is present, to be made the program's own by [`Engine::unshare_some`].
    pub fn start_unsharing(&mut self) {
        self.to_unshare.clear();
        let mut parts = core::mem::take(&mut self.to_unshare);
        for region in self.regions() {
            self.view.program.present_runs(region, |run| {
                let mut start = run.start;
                while start < run.end {
                    let end = run.end.min(start + UNSHARE_BYTES);
                    parts.push(start..end);
                    start = end;
                }
            });
        }
        self.to_unshare = parts;
    }

    /// Has the helper thread unshare the next part. True when all is done.
    pub fn unshare_some(&mut self) -> bool {
        if let Some(range) = self.to_unshare.last().cloned()
            && self.view.program.unshare(range)
        {
            self.to_unshare.pop();
        }
        self.to_unshare.is_empty() && self.view.program.helper_is_idle()
    }

    /// Goes on after [`Engine::pause`], with the doorbell armed again.
    pub fn resume_after_fork(&mut self, doorbell: usize) {
        self.view.program.rearm(doorbell);
        self.feed(Event::Resume);
    }
}
