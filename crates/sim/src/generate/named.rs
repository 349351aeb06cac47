//! Loads by name: `random:size=1G,touches=1M,write=50`, and the loads of the benchmarks that the
//! project compares itself with (specification, section 6), their sizes scaled to what a simulation
//! gets through.

use super::pattern::{Pattern, Spec, Stream};
use crate::nearest;
use crate::options::{Amount, amount, entries, show_bytes};
use crate::time::{Nanos, SECOND};
use crate::workload::Workload;
use overspill_mm::types::{PAGE_SIZE, RegionKind};
use std::collections::HashSet;
use thiserror::Error;

/// One or more programs, and the RAM and time that belong to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The programs.
    pub programs: Vec<Spec>,
    /// The RAM with which the load was published, if it was.
    pub ram_bytes: Option<u64>,
    /// When it ends, if not by itself.
    pub until_ns: Option<Nanos>,
}

impl Load {
    /// The programs at their beginning.
    #[must_use]
    pub fn start(&self) -> Vec<Box<dyn Workload + Send>> {
        self.programs
            .iter()
            .map(|spec| Box::new(Stream::new(spec.clone())) as Box<dyn Workload + Send>)
            .collect()
    }

    /// Other chances: each program gets a seed made from its own and `seed`. Seed 1 changes nothing.
    pub fn reseed(&mut self, seed: u64) {
        for spec in &mut self.programs {
            spec.seed = spec.seed.wrapping_add(seed.wrapping_sub(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
    }

    /// Pages of all programs.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.programs.iter().map(|spec| spec.pages).sum()
    }
}

/// A load that cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LoadError {
    /// Not one of the names.
    #[error("no load '{name}'{}; there are {}", nearest::hint(name, NAMES), NAMES.join(", "))]
    Name {
        /// What was typed.
        name: String,
    },
    /// A colon, and no more.
    #[error("nothing follows the colon of `{text}`")]
    Nothing {
        /// What was typed.
        text: String,
    },
    /// Not `key=value`, or not a key of this load.
    #[error("'{entry}' does not fit{hint}")]
    Entry {
        /// What was typed.
        entry: String,
        /// What would.
        hint: String,
    },
}

/// The loads; those that `bench` has too are called as there, and written as there: `stride:16`, `mixed:4+8`.
pub const NAMES: [&str; 13] = [
    "seq",
    "descending",
    "random",
    "zipf",
    "stride",
    "interleaved",
    "moving",
    "phases",
    "graph",
    "usemem",
    "usemem-random",
    "swapload",
    "mixed",
];

/// Other words for some of them.
const SYNONYMS: [(&str, &str); 2] = [("sequential", "seq"), ("strided", "stride")];

const HINT: &str = "keys are size=1G, touches=1M or laps=3, write=PERCENT, repeat=N, think=NS, \
                    programs=N, shared, prefill, seed=N, and stride=, streams=, exponent=0.8, \
                    window=SIZE, dwell=N where the load has them; swapload has random; mixed has \
                    scale=64";

/// A value of each key.
const KEYS: [(&str, &str); 17] = [
    ("size", "size=1G, 4K at least"),
    ("touches", "touches=1M"),
    ("laps", "laps=3"),
    ("write", "write=20, in percent"),
    ("repeat", "repeat=8"),
    ("think", "think=100, in nanoseconds"),
    ("programs", "programs=4, 1024 at most"),
    ("seed", "seed=7"),
    ("stride", "stride=16, in pages"),
    ("streams", "streams=4"),
    ("exponent", "exponent=0.8, from 0 to 4"),
    ("window", "window=64M"),
    ("dwell", "dwell=8"),
    ("scale", "scale=64"),
    ("shared", "shared, without a value"),
    ("prefill", "prefill, without a value"),
    ("random", "random, without a value"),
];

/// Keys that some loads have, and which.
const OWN_KEYS: [(&str, &[&str]); 7] = [
    ("stride", &["stride", "phases"]),
    ("streams", &["interleaved", "phases"]),
    ("exponent", &["zipf"]),
    ("window", &["moving"]),
    ("dwell", &["moving"]),
    ("scale", &["mixed"]),
    ("random", &["swapload"]),
];

/// Keys that nearly all loads have, and those that do not: the load says it itself.
const FIXED: [(&str, &[&str]); 2] = [("usemem", &["think"]), ("usemem-random", &["think"])];

/// The same of `mixed` as published, and of `mixed:4+8`.
const FIXED_AS_PUBLISHED: [&str; 6] = ["size", "touches", "laps", "repeat", "programs", "prefill"];
const FIXED_BY_COUNTS: [&str; 2] = ["scale", "programs"];

/// What `bench` writes behind a load's name.
const PARAMETERS: [(&str, &str); 3] = [
    ("stride", "stride:16, from 1 to 4096"),
    ("interleaved", "interleaved:4, from 1 to 4096"),
    ("mixed", "mixed:4+8, 1024 at most together"),
];

/// How to write what does not fit: that key, or all of them where there is no such key.
fn how_to_write(name: &str, entry: &str) -> String {
    if entry.starts_with(|first: char| first.is_ascii_digit())
        && let Some((_, example)) = PARAMETERS.iter().find(|(load, _)| *load == name)
    {
        return format!(": write {example}");
    }
    let typed = key_of(entry);
    match KEYS.iter().find(|(key, _)| *key == typed) {
        Some((_, example)) => format!(": write {example}"),
        None => nearest::hint(typed, KEYS.map(|(key, _)| key)) + ": " + HINT,
    }
}

/// What stands before the `=`.
fn key_of(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(key, _)| key)
}

/// Streams and strides beyond this are mistakes.
const PARAMETER_MAX: u64 = 4096;

/// Programs beyond this: what a machine does then takes the simulator the square of them, and more.
const PROGRAMS_MAX: u32 = 1024;

/// A table with a line for each page of a program is no larger: it has 28 bytes a page.
const TABLE_PAGES_MAX: u64 = 1 << 28;

/// The keys, as typed.
#[derive(Clone, Copy)]
struct Keys {
    size_bytes: Option<u64>,
    touches: Option<u64>,
    laps: Option<u64>,
    write_percent: Option<u64>,
    repeat: u32,
    think_ns: u32,
    programs: u64,
    shared: bool,
    prefill: bool,
    random: bool,
    seed: u64,
    stride: u64,
    streams: u64,
    tenths: u32,
    window_bytes: u64,
    dwell: u64,
    scale: u64,
    /// Programs of each kind, as typed behind `mixed:`.
    counts: Option<(u64, u64)>,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys {
            size_bytes: None,
            touches: None,
            laps: None,
            write_percent: None,
            repeat: 1,
            think_ns: 100,
            programs: 1,
            shared: false,
            prefill: false,
            random: false,
            seed: 1,
            stride: 4,
            streams: 4,
            tenths: 10,
            window_bytes: 64 << 20,
            dwell: 8,
            scale: 64,
            counts: None,
        }
    }
}

/// A count with the suffixes of sizes, in powers of 1000 (`5M` touches are five million).
fn count(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'm' | b'M' => (&text[..text.len() - 1], 1_000_000),
        b'g' | b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn size(text: &str) -> Option<u64> {
    match amount(text) {
        Ok(Amount::Bytes(bytes)) if (PAGE_SIZE..=1 << 46).contains(&bytes) => Some(bytes),
        _ => None,
    }
}

impl Keys {
    fn parse(name: &str, text: &str) -> Result<Keys, LoadError> {
        let mut keys = Keys::default();
        let list = if text.is_empty() { Vec::new() } else { entries(text).unwrap_or(vec![text]) };
        let mut given = HashSet::new();
        for (index, entry) in list.into_iter().enumerate() {
            let is_parameter = index == 0 && keys.set_parameter(name, entry).is_some();
            if is_parameter {
                continue;
            }
            let wrong = |hint| LoadError::Entry { entry: entry.to_owned(), hint };
            if !given.insert(key_of(entry)) {
                return Err(wrong(format!(": {} was given before", key_of(entry))));
            }
            keys.set(entry).ok_or_else(|| wrong(how_to_write(name, entry)))?;
            if !keys.matters(name, key_of(entry)) {
                return Err(wrong(format!(": it changes nothing of {name}")));
            }
        }
        Ok(keys)
    }

    /// Does the load ask for that key?
    fn matters(&self, name: &str, key: &str) -> bool {
        if name == "mixed" {
            let fixed = if self.counts.is_some() { &FIXED_BY_COUNTS[..] } else { &FIXED_AS_PUBLISHED };
            if fixed.contains(&key) {
                return false;
            }
        }
        let is_fixed = FIXED.iter().any(|(load, keys)| *load == name && keys.contains(&key));
        let own = OWN_KEYS.iter().find(|(own, _)| *own == key);
        !is_fixed && own.is_none_or(|(_, loads)| loads.contains(&name))
    }

    /// What `bench` writes behind the name, if that is what `entry` is.
    fn set_parameter(&mut self, name: &str, entry: &str) -> Option<()> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=PARAMETER_MAX).contains(number));
        match name {
            "stride" => self.stride = number(entry)?,
            "interleaved" => self.streams = number(entry)?,
            "mixed" => {
                let (sequential, random) = entry.split_once('+')?;
                let (sequential, random) = (number(sequential)?, number(random)?);
                if sequential + random > u64::from(PROGRAMS_MAX) {
                    return None;
                }
                self.counts = Some((sequential, random));
            }
            _ => return None,
        }
        Some(())
    }

    fn set(&mut self, entry: &str) -> Option<()> {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let small = |least: u32, most: u32| value.parse().ok().filter(|value| (least..=most).contains(value));
        let positive = || count(value).filter(|&count| count > 0);
        match key {
            "size" => self.size_bytes = Some(size(value)?),
            "touches" => self.touches = Some(positive()?),
            "laps" => self.laps = Some(positive()?),
            "write" => self.write_percent = Some(u64::from(small(0, 100)?)),
            "repeat" => self.repeat = small(1, 1 << 20)?,
            "think" => self.think_ns = small(0, u32::MAX)?,
            "programs" => self.programs = u64::from(small(1, PROGRAMS_MAX)?),
            "seed" => self.seed = value.parse().ok()?,
            "stride" => self.stride = positive()?,
            "streams" => self.streams = positive()?,
            "exponent" => self.tenths = tenths(value)?,
            "window" => self.window_bytes = size(value)?,
            "dwell" => self.dwell = positive()?,
            "scale" => self.scale = positive()?,
            "shared" if value.is_empty() => self.shared = true,
            "prefill" if value.is_empty() => self.prefill = true,
            "random" if value.is_empty() => self.random = true,
            _ => return None,
        }
        Some(())
    }

    fn fits_a_table(&self) -> Result<(), LoadError> {
        let bytes = self.size_bytes.unwrap_or(0);
        if bytes / PAGE_SIZE / self.programs <= TABLE_PAGES_MAX {
            return Ok(());
        }
        let most = show_bytes(TABLE_PAGES_MAX * PAGE_SIZE);
        let hint = format!(": a zipf load has a table of its pages, of {most} at most for each program");
        Err(LoadError::Entry { entry: format!("size={}", show_bytes(bytes)), hint })
    }

    fn kind(&self) -> RegionKind {
        if self.shared { RegionKind::Shared } else { RegionKind::Anon }
    }

    /// As many programs of one pattern as wanted, each with its share of the size and its own seed.
    fn programs(&self, pattern: &Pattern, size_bytes: u64) -> Vec<Spec> {
        let pages = (self.size_bytes.unwrap_or(size_bytes) / PAGE_SIZE / self.programs).max(1);
        let touches = match (self.touches, self.laps) {
            (Some(touches), _) => touches / self.programs,
            (None, laps) => pages.saturating_mul(laps.unwrap_or(3)),
        };
        (0..self.programs)
            .map(|index| Spec {
                start: (1 << 20) + index * (1 << 30),
                pages,
                kind: self.kind(),
                pattern: pattern.clone(),
                touches,
                write_percent: self.write_percent.unwrap_or(50),
                prefill: self.prefill,
                repeat: self.repeat,
                think_ns: self.think_ns,
                seed: self.seed.wrapping_add(index),
            })
            .collect()
    }
}

/// `0.8` is 8, `1` is 10.
fn tenths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction = fraction.parse::<u32>().ok().filter(|&fraction| fraction < 10)?;
    whole.parse::<u32>().ok().map(|whole| whole * 10 + fraction).filter(|&tenths| tenths <= 40)
}

/// The load that `text` describes: `NAME` or `NAME:key=value,...`.
pub fn parse(text: &str) -> Result<Load, LoadError> {
    let (typed, rest) = text.split_once(':').unwrap_or((text, ""));
    let synonym = SYNONYMS.iter().find(|(word, _)| *word == typed);
    let name = synonym.map_or(typed, |(_, name)| name);
    if !NAMES.contains(&name) {
        return Err(LoadError::Name { name: name.to_owned() });
    }
    if rest.is_empty() && typed != text {
        return Err(LoadError::Nothing { text: text.to_owned() });
    }
    let keys = Keys::parse(name, rest)?;
    if name == "zipf" {
        keys.fits_a_table()?;
    }
    let plain = |pattern: Pattern| Load {
        programs: keys.programs(&pattern, 256 << 20),
        ram_bytes: None,
        until_ns: None,
    };
    Ok(match name {
        "seq" => plain(Pattern::Sequential),
        "descending" => plain(Pattern::Descending),
        "random" => plain(Pattern::Random),
        "zipf" => plain(Pattern::Zipf { tenths: keys.tenths }),
        "stride" => plain(Pattern::Strided { stride: keys.stride }),
        "interleaved" => plain(Pattern::Interleaved { streams: keys.streams }),
        "moving" => plain(Pattern::Moving { size: keys.window_bytes / PAGE_SIZE, dwell: keys.dwell }),
        "phases" => plain(phases(&keys)),
        "graph" => built(plain(Pattern::Graph)),
        "usemem" => usemem(&keys, false),
        "usemem-random" => usemem(&keys, true),
        "swapload" => swapload(&keys),
        _ => keys.counts.map_or_else(|| mixed(&keys), |counts| two_kinds(&keys, counts)),
    })
}

/// Its memory is filled first, as a program does that builds its graph.
fn built(mut load: Load) -> Load {
    load.programs.iter_mut().for_each(|spec| spec.prefill = true);
    load
}

fn phases(keys: &Keys) -> Pattern {
    let patterns = vec![
        Pattern::Sequential,
        Pattern::Random,
        Pattern::Strided { stride: keys.stride },
        Pattern::Interleaved { streams: keys.streams },
        Pattern::Descending,
    ];
    let pages = keys.size_bytes.unwrap_or(256 << 20) / PAGE_SIZE;
    Pattern::Phases { length: pages.div_ceil(2).max(1), patterns }
}

/// vm-scalability's usemem (specification 6.1): every 8-byte word written in order, or as many
/// random words. A page's 512 words in a row are one touch that takes the time of 512 stores.
fn usemem(keys: &Keys, random: bool) -> Load {
    const WORDS: u64 = PAGE_SIZE / 8;
    const STORE_NS: u32 = 1;
    let pattern = if random { Pattern::Random } else { Pattern::Sequential };
    let mut programs = keys.programs(&pattern, 256 << 20);
    for spec in &mut programs {
        let laps = keys.laps.unwrap_or(1);
        spec.touches = match keys.touches {
            Some(touches) => touches / keys.programs,
            None if random => spec.pages.saturating_mul(WORDS).saturating_mul(laps),
            None => spec.pages.saturating_mul(laps),
        };
        spec.think_ns = if random { STORE_NS } else { STORE_NS * WORDS as u32 };
        spec.write_percent = keys.write_percent.unwrap_or(100);
    }
    Load { programs, ram_bytes: None, until_ns: None }
}

/// The load of the swap-in detector's announcement (specification 6.6): 1000 MB in 900 MB, one word
/// a page, 5 million touches, in order or random.
fn swapload(keys: &Keys) -> Load {
    let pattern = if keys.random { Pattern::Random } else { Pattern::Sequential };
    let mut programs = keys.programs(&pattern, 1000 << 20);
    for spec in &mut programs {
        if keys.touches.is_none() && keys.laps.is_none() {
            spec.touches = 5_000_000 / keys.programs;
        }
        spec.write_percent = keys.write_percent.unwrap_or(100);
        spec.prefill = true;
    }
    Load { programs, ram_bytes: Some(900 << 20), until_ns: None }
}

/// The load of the per-region read-ahead's announcement (specification 6.7, seed 5), its sizes
/// divided by `scale`: 4 programs write 50 GB in order, 8 write 30 GB at random, in 32 GB, for 300
/// s (divided as well).
fn mixed(keys: &Keys) -> Load {
    let share = |bytes: u64, programs: u64| (bytes / keys.scale / programs / PAGE_SIZE).max(1);
    let spec = |index: u64, pages, pattern: &Pattern, think_ns| Spec {
        start: (1 << 20) + index * (1 << 30),
        pages,
        kind: keys.kind(),
        pattern: pattern.clone(),
        touches: u64::MAX,
        write_percent: keys.write_percent.unwrap_or(100),
        prefill: false,
        repeat: 1,
        think_ns,
        seed: keys.seed.wrapping_add(index),
    };
    let foreground = share(50_000_000_000, 4);
    let background = share(30_000_000_000, 8);
    let programs = (0..4)
        .map(|index| spec(index, foreground, &Pattern::Sequential, 512))
        .chain((4..12).map(|index| spec(index, background, &Pattern::Random, keys.think_ns)))
        .collect();
    Load { programs, ram_bytes: Some(32_000_000_000 / keys.scale), until_ns: Some(300 * SECOND / keys.scale) }
}

/// The load that `bench` calls `mixed:K+L`: so many programs in order in one half of the memory, so
/// many at random in the other. (Those of `bench` are threads.)
fn two_kinds(keys: &Keys, (sequential, random): (u64, u64)) -> Load {
    let half = Keys { size_bytes: Some(keys.size_bytes.unwrap_or(256 << 20) / 2), ..*keys };
    let kind = |pattern: &Pattern, programs: u64| Keys { programs, ..half }.programs(pattern, 0);
    let mut programs = kind(&Pattern::Sequential, sequential);
    programs.extend(kind(&Pattern::Random, random));
    for (index, spec) in (0..).zip(&mut programs) {
        spec.start = (1 << 20) + index * (1 << 30);
        spec.seed = keys.seed.wrapping_add(index);
    }
    Load { programs, ram_bytes: None, until_ns: None }
}

/// A load in a line, for reports.
#[must_use]
pub fn describe(load: &Load) -> String {
    let bytes = load.pages() * PAGE_SIZE;
    match &load.programs[..] {
        [one] => format!("{:?} over {}, {} touches", one.pattern, show_bytes(bytes), one.touches),
        many => format!("{} programs over {}", many.len(), show_bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* `seq:`, where something was left out, was `seq`.
    #[test]
    fn a_colon_wants_something_behind_it() {
        for text in ["seq:", "stride:", "mixed:"] {
            let error = parse(text).expect_err("it is refused").to_string();
            assert_eq!(error, format!("nothing follows the colon of `{text}`"));
        }
    }

    #[test]
    fn every_name_makes_a_load() {
        for name in NAMES {
            let load = parse(name).expect("a load");
            assert!(!load.programs.is_empty() && load.pages() > 0, "{name}");
            let mut programs = load.start();
            assert!(programs[0].next().expect("no error").is_some(), "{name}");
            assert!(!describe(&load).is_empty());
        }
    }

    /// *The story:* `bench` said stride:16 and `sim` strided:stride=16, seq and sequential, and
    /// `mixed:1+1` was no load here.
    #[test]
    fn the_words_of_bench_are_loads_here() {
        for (bench, own) in [
            ("seq", "sequential"),
            ("stride:16", "strided:stride=16"),
            ("interleaved:7", "interleaved:streams=7"),
            ("stride:16,size=1M", "stride:size=1M,stride=16"),
        ] {
            assert_eq!(parse(bench), parse(own), "{bench}");
        }
        let mixed = parse("mixed:1+2,size=64M,laps=2").expect("a load");
        let patterns: Vec<_> = mixed.programs.iter().map(|spec| spec.pattern.clone()).collect();
        assert_eq!(patterns, [Pattern::Sequential, Pattern::Random, Pattern::Random]);
        assert_eq!(mixed.pages(), 16_384);
        assert_eq!(mixed.programs[0].pages, 8192);
        let error = parse("sqe").expect_err("no load").to_string();
        assert!(error.contains("did you mean `seq`?"), "{error}");
        assert!(parse("mixed:0+1").is_err() && parse("random:3").is_err());
    }

    /// *The story:* `zipf:size=1x`, `zipf:sise=1G` and `stride:0` were all answered with the list of
    /// all keys, and `touches=0` with a table of zeroes.
    #[test]
    fn mistakes_are_told_how_to_be_written() {
        for (text, part) in [
            ("zipf:size=1x", "'size=1x' does not fit: write size=1G"),
            ("zipf:sise=1G", "did you mean `size`?"),
            ("zipf:colour=red", "does not fit: keys are size=1G"),
            ("stride:0", "write stride:16"),
            ("mixed:4", "write mixed:4+8"),
            // 4096 programs took a minute for each row of a table, and nothing was said meanwhile.
            ("seq:programs=4096,size=4K", "write programs=4, 1024 at most"),
            ("mixed:1000+1000", "1024 at most together"),
            ("zipf:4", "keys are"),
            ("seq:touches=0", "write touches=1M"),
            // It was a panic, a long while later.
            ("zipf:size=32T", "a table of its pages, of 1 TiB at most for each program"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (key, example) in KEYS {
            let word = example.split(',').next().expect("an example");
            let own = OWN_KEYS.iter().find(|(own, _)| *own == key);
            let load = own.map_or("zipf", |(_, loads)| loads[0]);
            assert!(word.starts_with(key) && parse(&format!("{load}:{word}")).is_ok(), "{example}");
        }
    }

    /// *The story:* `seq:stride=16` went in order, `random:exponent=2` was uniform and `mixed:laps=9` ended
    /// by the clock; a sweep of what changes nothing was a table of equal rows.
    #[test]
    fn a_key_that_changes_nothing_is_a_mistake() {
        for text in [
            "seq:stride=16",
            "random:exponent=2",
            "zipf:window=4M",
            "seq:random",
            "seq:scale=4",
            "usemem:think=5",
            "mixed:laps=9",
            "mixed:1+1,scale=4",
            "mixed:1+1,programs=4",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("it changes nothing of"), "{text}: {error}");
        }
        let all = "size=1M,touches=9,write=1,repeat=2,programs=2,shared,prefill,seed=3";
        for name in NAMES.into_iter().filter(|&name| name != "mixed") {
            assert!(parse(&format!("{name}:{all}")).is_ok(), "{name}");
        }
        assert!(parse("mixed:scale=64,write=5,think=7,shared,seed=2").is_ok());
        assert!(parse("mixed:1+1,size=1M,laps=2,repeat=2,think=7,prefill").is_ok());
    }

    /// *The story:* the touches of many laps were counted modulo 2^64.
    #[test]
    fn touches_are_as_many_as_there_can_be() {
        for text in ["usemem-random:laps=9000000000000000000", "usemem:laps=9000000000000000000"] {
            assert_eq!(parse(text).expect("a load").programs[0].touches, u64::MAX, "{text}");
        }
    }

    #[test]
    fn keys() {
        let load =
            parse("zipf:size=64M,touches=5M,write=10,programs=4,exponent=0.8,shared,seed=9").expect("a load");
        assert_eq!(load.programs.len(), 4);
        let spec = &load.programs[1];
        assert_eq!((spec.pages, spec.touches, spec.write_percent, spec.seed), (4096, 1_250_000, 10, 10));
        assert_eq!((spec.kind, spec.pattern.clone()), (RegionKind::Shared, Pattern::Zipf { tenths: 8 }));
        let swapload = parse("swapload:random").expect("a load");
        assert_eq!((swapload.pages(), swapload.programs[0].touches), (256_000, 5_000_000));
        assert_eq!(swapload.ram_bytes, Some(900 << 20));
        let usemem = parse("usemem:size=1M").expect("a load");
        assert_eq!((usemem.programs[0].touches, usemem.programs[0].think_ns), (256, 512));
        for text in [
            "",
            "zip",
            "zipf:size=0",
            "zipf:size",
            "random:colour=red",
            "random:write=101",
            "random:,",
            "random:shared=1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
