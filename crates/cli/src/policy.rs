//! The read-ahead policies by name, and the numbers by which the agent knows them.

use std::fmt;
use std::str::FromStr;

/// Name and number of every policy; the first is the default.
const POLICIES: [(&str, u32); 5] = [("adaptive", 0), ("linux", 1), ("vma", 2), ("cluster", 3), ("none", 4)];

/// A read-ahead policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadAhead {
    index: usize,
}

impl ReadAhead {
    /// What `--readahead` calls it.
    pub fn name(self) -> &'static str {
        POLICIES[self.index].0
    }

    /// What the agent calls it.
    pub fn number(self) -> u32 {
        POLICIES[self.index].1
    }
}

impl FromStr for ReadAhead {
    type Err = String;

    fn from_str(text: &str) -> Result<ReadAhead, String> {
        let index = POLICIES.iter().position(|(name, _)| *name == text);
        index.map(|index| ReadAhead { index }).ok_or_else(|| {
            let names: Vec<_> = POLICIES.iter().map(|(name, _)| *name).collect();
            format!("the policies are {}", names.join(", "))
        })
    }
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
