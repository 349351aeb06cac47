//! What owners do with shared regions, which are known by their first page.

use alloc::vec::Vec;

use overspill_mm::types::{RegionKind, Vpn};
use overspill_mm::{Event, State};
use overspill_sys::uffd::Uffd;
use overspill_sys::{Errno, Fd};

use super::Engine;
use crate::shared_regions::MapperId;
use crate::view::{Place, SHARED};

impl Engine {
    /// Makes a shared region of the `pages` pages of `file`, a memory file that is one hole. It is
    /// already mapped as [`Engine::join`] has it. Returns its first page.
    pub fn share(
        &mut self,
        file: Fd,
        pages: u64,
        uffd: Uffd,
        address: usize,
    ) -> Result<(Place, MapperId), Errno> {
        let start = self.view.shared.add(file, pages)?;
        let joined = self.view.shared.join(start, uffd, address);
        let mapper = joined.inspect_err(|_| self.view.shared.remove(start))?;
        let end = Vpn(start.0 + pages);
        self.feed(Event::RegionAdded { space: SHARED, start, end, kind: RegionKind::Shared });
        Ok(((SHARED, start), mapper))
    }

    /// Some process has mapped the file of a shared region, wholly, at `address` there, and
    /// registered that on `uffd` for missing pages and write protection. EINVAL: it has not.
    pub fn join(&mut self, (_, region): Place, uffd: Uffd, address: usize) -> Result<MapperId, Errno> {
        self.view.shared.join(region, uffd, address)
    }

    /// That process maps it no more, or is gone. With the last one the region is forgotten.
    pub fn leave(&mut self, (_, start): Place, mapper: MapperId) {
        if self.view.shared.leave(start, mapper) == 0 {
            let end = Vpn(start.0 + self.view.shared.pages(start));
            self.feed(Event::RegionRemoved { space: SHARED, start, end });
            self.view.shared.remove(start);
        }
    }

    /// The content of `pages` pages of a shared region is to be forgotten: they show zeroes when
    /// they are touched next.
    pub fn discard_shared(&mut self, (space, start): Place, pages: u64) -> Result<(), Errno> {
        self.view.shared.punch(start, pages)?;
        self.feed(Event::Discarded { space, start, end: Vpn(start.0 + pages) });
        Ok(())
    }

    /// Are there any?
    #[must_use]
    pub fn is_sharing(&self) -> bool {
        self.view.shared.starts().next().is_some()
    }

    /// After [`Engine::pause`] and [`Notice::Populated`](super::Notice::Populated): lets go of all
    /// shared regions, which are ordinary shared memory from now on. What could not be read back
    /// raises SIGBUS.
    pub fn release_shared(&mut self) {
        let starts: Vec<Vpn> = self.view.shared.starts().collect();
        for start in starts {
            for page in (0..self.view.shared.pages(start)).map(|n| start.offset(n as i64)) {
                if self.mm.lookup(SHARED, page).is_some_and(|id| self.mm.state(id) == State::Swapped) {
                    self.view.poison((SHARED, page));
                }
            }
            self.view.shared.release(start);
        }
    }
}
