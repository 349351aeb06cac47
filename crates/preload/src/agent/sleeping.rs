//! Who could awake while the agent sleeps beside a program that does nothing.

use overspill_engine::doze::Sleepers;
use overspill_sys::procfs;
use overspill_sys::thread;

use super::{Manager, all_threads};

impl Manager<'_> {
    /// Who could awake while nobody looks.
    pub(super) fn sleepers(&mut self) -> Sleepers {
        Sleepers {
            threads: self.program_threads(),
            processors: self.processors,
            is_alone: self.agent.purse.is_alone(),
            has_huge_pages: self.huge.may_come(),
        }
    }

    /// [`all_threads`] without the agent's own. Those are looked for when the number of all has changed.
    fn program_threads(&mut self) -> u32 {
        let all = all_threads();
        if self.own_threads.0 != all {
            let mut own = 0;
            let listed = procfs::for_each_thread(|tid| own += u32::from(thread::is_own(tid)));
            self.own_threads = (all, if listed.is_ok() { own } else { 0 });
        }
        all - self.own_threads.1.min(all)
    }
}
