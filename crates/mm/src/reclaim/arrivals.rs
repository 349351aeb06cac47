//! Time as reclaim's policies have it: pages that got a frame so far, in steps that fit a page's
//! stamp.

use super::policy::{Scene, Stamp};

/// A step is this part of the budget, so that stamps wrap after 64 budgets.
const STEPS: u32 = 1024;

/// The clock.
#[derive(Debug)]
pub(super) struct Arrivals {
    count: u32,
    /// log2 of the arrivals in a step.
    shift: u32,
}

impl Arrivals {
    pub fn new(budget: u32) -> Arrivals {
        Arrivals { count: 0, shift: (budget / STEPS).max(1).ilog2() }
    }

    pub fn add(&mut self, pages: u32) {
        self.count = self.count.wrapping_add(pages);
    }

    pub fn now(&self) -> Stamp {
        (self.count >> self.shift) as Stamp
    }

    /// Steps since `stamp`.
    pub fn age(&self, stamp: Stamp) -> u32 {
        u32::from(self.now().wrapping_sub(stamp))
    }

    /// The same in arrivals.
    pub fn pages_in(&self, steps: u32) -> u64 {
        u64::from(steps) << self.shift
    }

    /// log2 of the arrivals in a step.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Arrivals in as many steps as the budget has: about the budget itself.
    pub fn budget(&self) -> u32 {
        STEPS << self.shift
    }

    /// Are so many steps no more than so many budgets?
    pub fn is_within(&self, steps: u32, budgets: u32, scene: &Scene) -> bool {
        self.pages_in(steps) <= u64::from(scene.budget) * u64::from(budgets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_wrap() {
        let mut arrivals = Arrivals::new(1 << 20);
        arrivals.count = u32::MAX - 100;
        let stamp = arrivals.now();
        arrivals.add(1024 * 50 + 101);
        assert_eq!(arrivals.age(stamp), 51);
        assert_eq!(arrivals.pages_in(51), 51 * 1024);
    }
}
