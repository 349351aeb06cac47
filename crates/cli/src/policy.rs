//! `--readahead`: the policies of `mm` by name. The agent knows them by their place in the list of names.

use std::fmt;
use std::str::FromStr;

use overspill_mm::readahead::policy::NAMES;
use overspill_sim::nearest;

/// A read-ahead policy; the default is the first of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadAhead {
    index: usize,
}

impl ReadAhead {
    /// What `--readahead` calls it.
    pub fn name(self) -> &'static str {
        NAMES[self.index]
    }

    /// What the agent calls it.
    pub fn number(self) -> u32 {
        u32::try_from(self.index).expect("a handful of policies")
    }

    /// The option's help, with all names.
    pub fn help() -> String {
        format!("Read-ahead policy: {} [default: {}]", NAMES.join(", "), NAMES[0])
    }
}

impl FromStr for ReadAhead {
    type Err = String;

    fn from_str(text: &str) -> Result<ReadAhead, String> {
        let index = NAMES.iter().position(|name| *name == text);
        let hint = || nearest::hint(text, NAMES);
        index
            .map(|index| ReadAhead { index })
            .ok_or_else(|| format!("the policies are {}{}", NAMES.join(", "), hint()))
    }
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_adaptive_is_the_default() {
        for (index, name) in NAMES.iter().enumerate() {
            let policy: ReadAhead = name.parse().unwrap();
            assert_eq!((policy.to_string().as_str(), policy.number() as usize), (*name, index));
        }
        assert_eq!(ReadAhead::default().name(), "adaptive");
        assert!("magic".parse::<ReadAhead>().is_err());
        assert!("lniux".parse::<ReadAhead>().unwrap_err().ends_with("(did you mean `linux`?)"));
    }
}
