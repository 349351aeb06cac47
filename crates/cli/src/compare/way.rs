//! The ways to run one command: with all the RAM, on the kernel's swap, under overspill.

use std::fmt;
use std::str::FromStr;

use overspill_sim::nearest;

use crate::policy::ReadAhead;
use crate::reclaim_policy::Reclaim;

/// A way to run a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// With all the RAM it wants.
    Bare,
    /// On the kernel's swap, in a memory cgroup of the budget.
    Kernel {
        /// `vm.page-cluster`.
        page_cluster: u32,
        /// By which rules it reads ahead.
        rules: KernelRules,
    },
    /// Under `overspill run`.
    Overspill {
        /// `--readahead`, unless the command line's own.
        readahead: Option<ReadAhead>,
        /// `--reclaim`, unless the command line's own.
        reclaim: Option<Reclaim>,
        /// Inside a memory cgroup of the budget and a little more, without swap: it must not need
        /// the kernel's help.
        fenced: bool,
    },
}

/// The kernel's two kinds of swap-in read-ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelRules {
    /// Those that this machine uses by itself.
    AsFound,
    /// By aligned blocks of slots.
    Cluster,
    /// By the region that is touched: for private memory, and only on disks that do not call
    /// themselves rotating.
    Vma,
}

impl Way {
    /// Whether it takes a cgroup, or the kernel's swap.
    pub fn needs_root(self) -> bool {
        !matches!(self, Way::Bare | Way::Overspill { fenced: false, .. })
    }
}

/// Beyond this the kernel refuses.
const PAGE_CLUSTER_MAX: u32 = 31;

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        let words: Vec<&str> = text.split(':').collect();
        let kernel = |cluster: &str, rules| match cluster.parse() {
            Ok(page_cluster @ 0..=PAGE_CLUSTER_MAX) => Ok(Way::Kernel { page_cluster, rules }),
            _ => Err(format!("`{cluster}` is no page-cluster: 0 to {PAGE_CLUSTER_MAX}")),
        };
        match words[..] {
            ["bare"] => Ok(Way::Bare),
            ["kernel", cluster] => kernel(cluster, KernelRules::AsFound),
            ["kernel", cluster, "cluster"] => kernel(cluster, KernelRules::Cluster),
            ["kernel", cluster, "vma"] => kernel(cluster, KernelRules::Vma),
            [name @ ("overspill" | "fence")] => {
                Ok(Way::Overspill { readahead: None, reclaim: None, fenced: name == "fence" })
            }
            [name @ ("overspill" | "fence"), readahead] => Ok(Way::Overspill {
                readahead: Some(readahead.parse()?),
                reclaim: None,
                fenced: name == "fence",
            }),
            [name @ ("overspill" | "fence"), readahead, reclaim] => Ok(Way::Overspill {
                readahead: Some(readahead.parse()?),
                reclaim: Some(reclaim.parse()?),
                fenced: name == "fence",
            }),
            _ => Err(format!(
                "the ways are bare, kernel:N, kernel:N:cluster, kernel:N:vma, overspill, \
                 overspill:READAHEAD, overspill:READAHEAD:RECLAIM, fence, and so on{}",
                nearest::hint(words[0], ["bare", "kernel", "overspill", "fence"])
            )),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Bare => f.write_str("bare"),
            Way::Kernel { page_cluster, rules } => {
                write!(f, "kernel:{page_cluster}")?;
                f.write_str(match rules {
                    KernelRules::AsFound => "",
                    KernelRules::Cluster => ":cluster",
                    KernelRules::Vma => ":vma",
                })
            }
            Way::Overspill { readahead, reclaim, fenced } => {
                f.write_str(if *fenced { "fence" } else { "overspill" })?;
                readahead.map_or(Ok(()), |policy| write!(f, ":{policy}"))?;
                reclaim.map_or(Ok(()), |policy| write!(f, ":{policy}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let names = [
            "bare",
            "kernel:0",
            "kernel:5:cluster",
            "kernel:3:vma",
            "overspill",
            "overspill:linux",
            "fence",
            "fence:none",
            "overspill:adaptive:kernel-6.1",
        ];
        for name in names {
            assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
        }
        for name in ["", "kernel", "kernel:x", "kernel:32", "kernel:3:slot", "overspill:fast", "bare:1"] {
            assert!(name.parse::<Way>().is_err(), "{name}");
        }
    }
}
