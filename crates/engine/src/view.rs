//! The memory in view: the program's own, by address, and shared regions. Which of the two a page
//! belongs to is decided here and nowhere else.

use overspill_mm::types::{SpaceId, Vpn};
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::memory::{Manner, Memory, Put, Taken};
use crate::shared_regions::SharedRegions;
use crate::staging::Frame;

/// The space of this process: its page numbers are addresses.
pub(crate) const PROGRAM: SpaceId = SpaceId(0);
/// The space of the shared regions.
pub(crate) const SHARED: SpaceId = SpaceId(1);

/// A page of some space.
pub type Place = (SpaceId, Vpn);

/// All memory in view.
pub(crate) struct View {
    pub program: Memory,
    pub shared: SharedRegions,
}

impl View {
    /// Do pages pass to staging and back without being copied? Then they want holes there, and leave holes.
    pub fn moves(&self, (space, _): Place) -> bool {
        space == PROGRAM && self.program.can_move()
    }

    /// Takes `count` (at most a block) pages from `first` on out of view, into frames.
    /// For those that are `watched` see [`Memory::take_out`].
    pub fn take_out(&mut self, (space, first): Place, frame: Frame, count: u32, watched: u64) -> Taken {
        match space {
            PROGRAM => self.program.take_out(address(first), frame, count, watched),
            _ => self.shared.take_out(first, self.program.frame_address(frame), count),
        }
    }

    /// Puts `count` (at most a block) frames into view, waking whoever waits there.
    pub fn put_in(&mut self, (space, first): Place, frame: Frame, count: u32, manner: Manner) -> Put {
        match space {
            PROGRAM => self.program.put_in(address(first), frame, count, manner),
            _ => self.shared.put_in(first, self.program.frame_address(frame), count),
        }
    }

    /// Of `count` pages from `first` on: how many at the head are not guarded, and how many behind those are.
    pub fn guards(&mut self, (space, first): Place, count: u32) -> (u32, u32) {
        match space {
            PROGRAM => self.program.guards(address(first), count),
            _ => (count, 0),
        }
    }

    /// Fills `count` pages with zeroes, waking whoever waits there. Returns how many were done.
    pub fn fill_fresh(&mut self, (space, first): Place, count: u32) -> u32 {
        match space {
            PROGRAM => self.program.fill_fresh(address(first), count),
            _ => self.shared.fill_fresh(first, count),
        }
    }

    /// Lets the threads that wait for these pages try again.
    pub fn wake(&mut self, (space, first): Place, count: u32) {
        match space {
            PROGRAM => self.program.wake(addresses(first, count)),
            _ => self.shared.wake(first, count),
        }
    }

    /// Is the page really not there?
    pub fn is_missing(&self, (space, vpn): Place) -> bool {
        match space {
            PROGRAM => self.program.is_missing(address(vpn)),
            _ => self.shared.is_missing(vpn),
        }
    }

    /// The page is lost: touches of it raise SIGBUS. False where the kernel cannot do that.
    pub fn poison(&mut self, (space, vpn): Place) -> bool {
        match space {
            PROGRAM => self.program.poison(addresses(vpn, 1)),
            _ => self.shared.poison(vpn),
        }
    }
}

/// The page of the program at an address.
pub(crate) fn vpn(address: usize) -> Vpn {
    Vpn((address / PAGE_SIZE) as u64)
}

/// The address of a page of the program.
pub(crate) fn address(vpn: Vpn) -> usize {
    vpn.0 as usize * PAGE_SIZE
}

/// The whole pages of a range of the program.
pub(crate) fn vpns(range: &AddressRange) -> (Vpn, Vpn) {
    (vpn(range.start), vpn(range.end.next_multiple_of(PAGE_SIZE)))
}

fn addresses(first: Vpn, count: u32) -> AddressRange {
    address(first)..address(first) + count as usize * PAGE_SIZE
}
