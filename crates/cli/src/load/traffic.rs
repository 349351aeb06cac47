//! What was swapped while the load touched its memory, without filling and verifying: by the library's counters where that
//! manages the memory, by the agent's where that does, else by the kernel's, which are the whole system's.

use overspill_engine::shared::ENV;
use overspill_pager::{Pager, Stats, Vmstat};
use serde::{Deserialize, Serialize};

use crate::run::shared_page::SharedPage;

/// Pages that went in and out.
#[derive(Serialize, Deserialize, Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Read from swap, read-ahead included.
    pub pages_in: u64,
    /// Written to swap.
    pub pages_out: u64,
    /// Read ahead.
    pub read_ahead: u64,
    /// Read ahead and touched.
    pub read_ahead_hits: u64,
}

impl Traffic {
    fn from_counters(value: impl Fn(&str) -> u64) -> Traffic {
        Traffic {
            pages_in: value("pswpin"),
            pages_out: value("pswpout"),
            read_ahead: value("swap_ra"),
            read_ahead_hits: value("swap_ra_hit"),
        }
    }

    /// What came to it after `before`.
    pub fn since(self, before: Traffic) -> Traffic {
        Traffic {
            pages_in: self.pages_in.saturating_sub(before.pages_in),
            pages_out: self.pages_out.saturating_sub(before.pages_out),
            read_ahead: self.read_ahead.saturating_sub(before.read_ahead),
            read_ahead_hits: self.read_ahead_hits.saturating_sub(before.read_ahead_hits),
        }
    }
}

/// Where the counters of this process stand.
pub enum Meter {
    /// The pager of the load's memory.
    Library(Pager),
    /// The memory shared with the agent of this process.
    Agent(SharedPage),
    /// The whole system's counters.
    Kernel,
}

impl Meter {
    /// The agent's counters if there is an agent, else the kernel's.
    pub fn find() -> Meter {
        let page = std::env::var(ENV).ok().and_then(|address| SharedPage::open(&address).ok());
        match page.filter(|page| agent(page).is_some()) {
            Some(page) => Meter::Agent(page),
            None => Meter::Kernel,
        }
    }

    /// The counters of a pager.
    pub fn library(pager: Pager) -> Meter {
        Meter::Library(pager)
    }

    /// The counters since the beginning of whoever counts.
    pub fn now(&self) -> Traffic {
        match self {
            Meter::Library(pager) => pager.stats().map_or_else(|_| Traffic::default(), library),
            Meter::Agent(page) => agent(page).unwrap_or_default(),
            Meter::Kernel => kernel(),
        }
    }
}

fn library(stats: Stats) -> Traffic {
    let Vmstat { pswpin, pswpout, swap_ra, swap_ra_hit, .. } = stats.vmstat;
    Traffic { pages_in: pswpin, pages_out: pswpout, read_ahead: swap_ra, read_ahead_hits: swap_ra_hit }
}

fn agent(page: &SharedPage) -> Option<Traffic> {
    let reports = page.reports().ok()?;
    let mut own = reports.iter().filter(|report| !report.is_over);
    let own = own.find(|report| report.pid == std::process::id())?;
    Some(Traffic::from_counters(|name| own.counter(name)))
}

fn kernel() -> Traffic {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    Traffic::from_counters(|name| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        text.lines().find_map(value).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_what_happened_meanwhile() {
        let before = Traffic { pages_in: 5, pages_out: 1, read_ahead: 4, read_ahead_hits: 1 };
        let after = Traffic { pages_in: 15, pages_out: 1, read_ahead: 10, read_ahead_hits: 5 };
        let between = after.since(before);
        assert_eq!((between.pages_in, between.pages_out), (10, 0));
    }

    #[test]
    fn names_that_begin_alike_are_told_apart() {
        let counters = [("swap_ra", 7), ("swap_ra_hit", 3), ("pswpin", 9), ("pswpout", 2)];
        let traffic =
            Traffic::from_counters(|name| counters.iter().find(|counter| counter.0 == name).unwrap().1);
        assert_eq!(traffic, Traffic { pages_in: 9, pages_out: 2, read_ahead: 7, read_ahead_hits: 3 });
    }

    #[test]
    fn without_an_agent_the_kernel_counts() {
        assert!(matches!(Meter::find(), Meter::Kernel));
        let (first, second) = (kernel(), kernel());
        assert!(second.pages_in >= first.pages_in);
    }
}
