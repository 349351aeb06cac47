//! How a process got on in the last while: computing, waiting for pages, or neither. The kernel
//! tells processor time in ticks of up to 10 ms, which is as long as a look, so that a look alone is
//! no ground to judge by.

/// How long a while is, in microseconds.
pub const WHILE_US: u64 = 300_000;

/// A process's whiles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    now: Times,
    last: Option<Times>,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Computed, by all threads.
    pub ran: u64,
    /// Waited for pages.
    pub waited: u64,
    /// Passed.
    pub passed: u64,
}

impl Pace {
    /// A look.
    pub fn observe(&mut self, times: Times) {
        self.now.ran += times.ran;
        self.now.waited += times.waited;
        self.now.passed += times.passed;
        if self.now.passed >= WHILE_US {
            self.last = Some(core::mem::take(&mut self.now));
        }
    }

    /// The last while, if one is over.
    pub fn last(&self) -> Option<Times> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_several_looks_make_a_while() {
        let mut pace = Pace::default();
        for look in 0..70 {
            assert_eq!(pace.last().is_some(), look >= 30);
            pace.observe(Times { ran: if look % 3 == 0 { 10_000 } else { 0 }, waited: 500, passed: 10_000 });
        }
        assert_eq!(pace.last(), Some(Times { ran: 100_000, waited: 15_000, passed: 300_000 }));
    }
}
