//! A range of addresses that one thread tells all others: where the agent's own thread is, who speaks, and
//! the mapping that forbids forks.
//!
//! *The story:* only the start was cleared when such a thread's memory was given back. The range was all
//! that lies below its end from then on, and taken for the agent's own: nothing was managed any more.

use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use overspill_sys::AddressRange;

/// The start says whether there is a range: it is told last, and taken back first.
pub struct ToldRange {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl ToldRange {
    /// There is none.
    pub const fn none() -> ToldRange {
        ToldRange { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    /// The range; 0..0 where there is none.
    pub fn get(&self) -> AddressRange {
        loop {
            let (start, end) = (self.start.load(SeqCst), self.end.load(SeqCst));
            // The two belong together unless another one was told in between.
            if self.start.load(SeqCst) == start {
                return if start == 0 { 0..0 } else { start..end };
            }
        }
    }

    /// Is there one?
    pub fn is_there(&self) -> bool {
        self.start.load(SeqCst) != 0
    }

    /// Tells one, where there is none.
    pub fn set(&self, range: AddressRange) {
        self.end.store(range.end, SeqCst);
        self.start.store(range.start, SeqCst);
    }

    /// There is none any more.
    pub fn clear(&self) {
        self.start.store(0, SeqCst);
    }

    /// The same, unless another one was told since.
    pub fn clear_this(&self, range: &AddressRange) {
        let _ = self.start.compare_exchange(range.start, 0, SeqCst, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See the head of this file.
    #[test]
    fn nothing_is_left_of_a_range_that_is_taken_back() {
        let told = ToldRange::none();
        told.set(0x1000..0x3000);
        assert_eq!((told.get(), told.is_there()), (0x1000..0x3000, true));
        told.clear();
        assert_eq!((told.get(), told.is_there()), (0..0, false));
        told.set(0x5000..0x6000);
        told.clear_this(&(0x1000..0x3000));
        assert_eq!(told.get(), 0x5000..0x6000, "it is another one");
        told.clear_this(&(0x5000..0x6000));
        assert_eq!(told.get(), 0..0);
    }
}
