//! `--reclaim`: the reclaim policies of `mm` by name. The agent knows them by their place in the
//! list of names.

use std::fmt;
use std::str::FromStr;

use overspill_mm::reclaim::policy::{Choice, NAMES};
use overspill_sim::nearest;

/// A reclaim policy; the default is the first of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaim(Choice);

impl Reclaim {
    /// What `--reclaim` calls it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// What `mm` calls it.
    pub fn choice(self) -> Choice {
        self.0
    }

    /// What the agent calls it.
    pub fn number(self) -> u32 {
        let index = NAMES.iter().position(|name| *name == self.name()).expect("the list has all names");
        u32::try_from(index).expect("a handful of policies")
    }

    /// The option's help, with all names.
    pub fn help() -> String {
        format!("Which pages leave RAM: {} [default: {}]", NAMES.join(", "), NAMES[0])
    }
}

impl FromStr for Reclaim {
    type Err = String;

    fn from_str(text: &str) -> Result<Reclaim, String> {
        let hint = || nearest::hint(text, NAMES);
        Choice::by_name(text)
            .map(Reclaim)
            .ok_or_else(|| format!("the reclaim policies are {}{}", NAMES.join(", "), hint()))
    }
}

impl fmt::Display for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_the_first_is_the_default() {
        for (index, name) in NAMES.iter().enumerate() {
            let policy: Reclaim = name.parse().unwrap();
            assert_eq!((policy.to_string().as_str(), policy.number() as usize), (*name, index));
        }
        assert_eq!(Reclaim::default().number(), 0);
        assert!("fifi".parse::<Reclaim>().unwrap_err().ends_with("(did you mean `fifo`?)"));
    }
}
