//! The ways to run one command: with all the RAM, on the kernel's swap, under overspill.

use std::fmt;
use std::str::FromStr;

use crate::policy::ReadAhead;

/// A way to run a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// With all the RAM it wants.
    Bare,
    /// On the kernel's swap, in a memory cgroup of the budget.
    Kernel {
        /// `vm.page-cluster`.
        page_cluster: u32,
        /// Without the kernel's per-VMA read-ahead.
        cluster_only: bool,
    },
    /// Under `overspill run`.
    Overspill {
        /// `--readahead`, unless the command line's own.
        readahead: Option<ReadAhead>,
        /// Inside a memory cgroup of the budget and a little more, without swap: it must not need the kernel's help.
        fenced: bool,
    },
}

/// Beyond this the kernel refuses.
const PAGE_CLUSTER_MAX: u32 = 31;

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        let words: Vec<&str> = text.split(':').collect();
        let kernel = |cluster: &str, cluster_only| match cluster.parse() {
            Ok(page_cluster @ 0..=PAGE_CLUSTER_MAX) => Ok(Way::Kernel { page_cluster, cluster_only }),
            _ => Err(format!("`{cluster}` is no page-cluster: 0 to {PAGE_CLUSTER_MAX}")),
        };
        match words[..] {
            ["bare"] => Ok(Way::Bare),
            ["kernel", cluster] => kernel(cluster, false),
            ["kernel", cluster, "cluster"] => kernel(cluster, true),
            [name @ ("overspill" | "fence")] => {
                Ok(Way::Overspill { readahead: None, fenced: name == "fence" })
            }
            [name @ ("overspill" | "fence"), policy] => {
                Ok(Way::Overspill { readahead: Some(policy.parse()?), fenced: name == "fence" })
            }
            _ => {
                Err("the ways are bare, kernel:N, kernel:N:cluster, overspill, overspill:POLICY, fence"
                    .into())
            }
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Bare => f.write_str("bare"),
            Way::Kernel { page_cluster, cluster_only: false } => write!(f, "kernel:{page_cluster}"),
            Way::Kernel { page_cluster, cluster_only: true } => write!(f, "kernel:{page_cluster}:cluster"),
            Way::Overspill { readahead, fenced } => {
                f.write_str(if *fenced { "fence" } else { "overspill" })?;
                readahead.map_or(Ok(()), |policy| write!(f, ":{policy}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in
            ["bare", "kernel:0", "kernel:5:cluster", "overspill", "overspill:linux", "fence", "fence:none"]
        {
            assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
        }
        for name in ["", "kernel", "kernel:x", "kernel:32", "kernel:3:vma", "overspill:fast", "bare:1"] {
            assert!(name.parse::<Way>().is_err(), "{name}");
        }
    }
}
