//! The access patterns of the bench load, by name: what order the pages are touched in. Parsing and
//! printing only; [`super::generator`] makes the page numbers.

use std::fmt;
use std::str::FromStr;

use overspill_sim::nearest;

/// An access pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Ascending, over and over.
    Sequential,
    /// Uniformly random.
    Random,
    /// From the last page to the first, over and over.
    Descending,
    /// So many ascending streams in turn, each in its part of the memory.
    Interleaved(u32),
    /// Every so-manieth page, then the same one page further on, until every page had its turn.
    Stride(u32),
    /// Threads that go in order through the first half beside threads that touch the second half at
    /// random.
    Mixed {
        /// Threads of the first kind.
        sequential: u32,
        /// Threads of the second kind.
        random: u32,
    },
    /// A new pattern every second.
    Phases,
    /// Breadth-first search and PageRank over a Kronecker graph, in turn.
    Graph,
}

/// What can follow `overspill bench`, for people.
const KNOWN: &str = "seq, random, descending, interleaved:K, stride:S, mixed:K+L, phases, graph";
/// The names alone, those of the suites among them.
const NAMES: [&str; 10] =
    ["seq", "random", "descending", "interleaved", "stride", "mixed", "phases", "graph", "swapin", "all"];
/// Loads that only `overspill sim` has.
const SIMULATED: [&str; 5] = ["zipf", "moving", "usemem", "usemem-random", "swapload"];

/// Streams, strides and threads beyond this are mistakes.
const PARAMETER_MAX: u32 = 4096;

impl Pattern {
    /// Whether the work is bounded by time unless the user says otherwise: threads of different
    /// speed must overlap.
    pub fn is_timed(self) -> bool {
        matches!(self, Pattern::Mixed { .. } | Pattern::Phases)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let (name, parameter) = match text.split_once(':') {
            Some((name, parameter)) => (name, Some(parameter)),
            None => (text, None),
        };
        match (name, parameter) {
            ("seq" | "sequential", None) => Ok(Pattern::Sequential),
            ("random", None) => Ok(Pattern::Random),
            ("descending", None) => Ok(Pattern::Descending),
            ("phases", None) => Ok(Pattern::Phases),
            ("graph", None) => Ok(Pattern::Graph),
            ("interleaved", parameter) => {
                Ok(Pattern::Interleaved(number(valued("streams", parameter.unwrap_or("4")))?))
            }
            ("stride" | "strided", parameter) => {
                Ok(Pattern::Stride(number(valued("stride", parameter.unwrap_or("16")))?))
            }
            ("mixed", parameter) => {
                let parameter = parameter.unwrap_or("1+1");
                let counts = parameter.split_once('+').ok_or("mixed:K+L has two thread counts")?;
                Ok(Pattern::Mixed { sequential: number(counts.0)?, random: number(counts.1)? })
            }
            _ if SIMULATED.contains(&name) => Err(format!(
                "`{name}` can only be simulated (overspill sim {name}); the patterns are {KNOWN}"
            )),
            _ => Err(format!("the patterns are {KNOWN}{}", nearest::hint(name, NAMES))),
        }
    }
}

/// `stride:16` is also `stride:stride=16`, as the simulator has it.
fn valued<'a>(key: &str, text: &'a str) -> &'a str {
    text.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')).unwrap_or(text)
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ 1..=PARAMETER_MAX) => Ok(number),
        _ => Err(format!("`{text}` is not a number from 1 to {PARAMETER_MAX}")),
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Sequential => f.write_str("seq"),
            Pattern::Random => f.write_str("random"),
            Pattern::Descending => f.write_str("descending"),
            Pattern::Interleaved(streams) => write!(f, "interleaved:{streams}"),
            Pattern::Stride(stride) => write!(f, "stride:{stride}"),
            Pattern::Mixed { sequential, random } => write!(f, "mixed:{sequential}+{random}"),
            Pattern::Phases => f.write_str("phases"),
            Pattern::Graph => f.write_str("graph"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let all =
            ["seq", "random", "descending", "interleaved:4", "stride:64", "mixed:4+8", "phases", "graph"];
        for name in all {
            assert_eq!(name.parse::<Pattern>().unwrap().to_string(), name);
        }
        assert_eq!("stride".parse(), Ok(Pattern::Stride(16)));
        assert_eq!("strided:stride=8".parse(), Ok(Pattern::Stride(8)));
        assert_eq!("sequential".parse(), Ok(Pattern::Sequential));
    }

    #[test]
    fn nonsense_is_refused() {
        for name in [
            "",
            "sequentially",
            "stride:0",
            "stride:x",
            "mixed:3",
            "mixed:0+1",
            "random:3",
            "interleaved:99999",
        ] {
            assert!(name.parse::<Pattern>().is_err(), "{name}");
        }
    }
}
