//! Writes of encrypted pages: from their frames into envelopes, and from there to the device.
//!
//! There are envelopes for some writes only. Those that find none wait, in order, for others to
//! end; there is always one under way then.

use alloc::collections::VecDeque;

use overspill_mm::{IoId, Run};
use overspill_sys::{AddressRange, Errno};

use super::Engine;
use crate::seal::{Envelopes, Seals};
use crate::sums::Sums;
use crate::transfers::Pieces;

/// What is there where pages are encrypted.
pub(super) struct Sealing {
    envelopes: Envelopes,
    /// Writes that wait for envelopes.
    waiting: VecDeque<(IoId, Run, u32)>,
}

impl Engine {
    /// Pages are encrypted on their way out, under a key of this engine's own.
    pub(crate) fn with_encryption(mut self) -> Result<Self, Errno> {
        let (seals, envelopes) = (Seals::new()?, Envelopes::new()?);
        self.sums = Sums::sealed(seals);
        self.sealing = Some(Sealing { envelopes, waiting: VecDeque::new() });
        Ok(self)
    }

    /// The memory that this takes: the envelopes, and the key.
    pub(super) fn sealing_ranges(&self) -> [AddressRange; 2] {
        let envelopes = self.sealing.as_ref().map_or(0..0, |sealing| sealing.envelopes.range());
        [envelopes, self.sums.key_range()]
    }

    /// Orders a write of encrypted pages, now or when there are envelopes.
    pub(super) fn seal(&mut self, io: IoId, run: Run, slot: u32) {
        let sealing = self.sealing.as_mut().expect("pages are encrypted");
        sealing.waiting.push_back((io, run, slot));
        self.seal_waiting();
    }

    /// A write has ended: its envelopes are others'.
    pub(super) fn sealed_write_ends(&mut self, io: IoId) {
        if let Some(sealing) = &mut self.sealing {
            sealing.envelopes.give_back(io);
            self.seal_waiting();
        }
    }

    fn seal_waiting(&mut self) {
        let sealing = self.sealing.as_mut().expect("pages are encrypted");
        let seals = self.sums.seals().expect("they are encrypted with something");
        while let Some(&(io, run, slot)) = sealing.waiting.front()
            && sealing.envelopes.suffice(run.count)
        {
            sealing.waiting.pop_front();
            let mut pieces = Pieces::default();
            for (page, slot) in run.pages().zip(slot..) {
                let frame = self.staging.frame(page).expect("what is written has a frame");
                let (address, envelope) = sealing.envelopes.take(io);
                envelope.copy_from_slice(self.view.program.frame_page(frame));
                seals.seal(slot, envelope);
                pieces.push(address, 1);
            }
            self.transfers.write(io, slot, &pieces);
        }
    }
}
