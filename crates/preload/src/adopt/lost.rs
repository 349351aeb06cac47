//! What is managed by the books, and whose mapping was replaced without an event: shmat with SHM_REMAP by
//! the bare instruction, or behind a filter (see `attaching`). Each look at the mappings asks of each
//! that is managed whether it is registered still, and gives up what is not. Pages that were out went with
//! the mapping; what is there now is looked at as any memory is.

use alloc::vec::Vec;

use overspill_engine::Engine;
use overspill_sys::maps::Maps;
use overspill_sys::{AddressRange, clock};

/// Asking takes a microsecond a mapping, of the time a third at most: there may be fifty thousand.
const SHARE: u64 = 2;

#[derive(Default)]
pub(super) struct Lost {
    /// Where such mappings, or holes, begin.
    starts: Vec<usize>,
    /// The end of the last mapping that was looked at.
    end: usize,
    began: u64,
    took: u64,
    /// Nobody is asked before.
    from: u64,
    asks: bool,
}

impl Lost {
    /// The mappings are looked at from now on, in order.
    pub fn begin(&mut self) {
        self.starts.clear();
        self.end = 0;
        self.began = clock::monotonic_ns();
        self.asks = self.began >= self.from;
    }

    /// A mapping, which the last one and perhaps a hole lie before.
    pub fn look_at(&mut self, engine: &Engine, mapping: AddressRange) {
        let hole = self.end..mapping.start.max(self.end);
        self.end = mapping.end;
        if self.asks {
            let managed = [hole, mapping].into_iter().filter(|part| !part.is_empty() && engine.manages(part));
            self.starts.extend(managed.map(|part| part.start).filter(|&start| engine.is_lost(start)));
        }
    }

    /// All were looked at.
    pub fn end(&mut self) {
        if self.asks {
            let now = clock::monotonic_ns();
            self.took = now - self.began;
            self.from = now + self.took * SHARE;
        }
    }

    /// Gives up what was found. True if there was anything.
    ///
    /// What the list of mappings said of it may be old by now. A mapping is registered as a whole or not at
    /// all: one that is the same before it is asked for and after it is what the answer is of.
    pub fn give_up(&mut self, engine: &mut Engine, maps: &Maps, buffer: &mut [u8]) -> bool {
        let mut is_any = false;
        for start in core::mem::take(&mut self.starts) {
            let mut around = || {
                let next = maps.query(start, true, buffer, |vma| vma.range()).ok()??;
                Some(if next.contains(&start) { next } else { start..next.start })
            };
            engine.handle_changes();
            let before = around();
            let is_lost = engine.is_lost(start);
            if let Some(lost) = before.filter(|before| is_lost && around().as_ref() == Some(before)) {
                engine.forget_lost(lost);
                is_any = true;
            }
        }
        is_any
    }
}
