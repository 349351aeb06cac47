//! Inputs of the programs, made from fixed seeds: the same on every machine, never checked in.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::Outcome;
use crate::context::Context;

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Writes a file unless it is there with just that length.
fn file(context: &Context, name: &str, make: impl FnOnce() -> Vec<u8>) -> Outcome<PathBuf> {
    let path = context.path(name);
    let content = make();
    if path.metadata().is_ok_and(|metadata| metadata.len() == content.len() as u64) {
        return Ok(path);
    }
    std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// A program text of the tests.
pub fn text(context: &Context, name: &str, content: &str) -> Outcome<PathBuf> {
    let path = context.path(name);
    std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Three million numbers, one a line, shuffled.
pub fn numbers(context: &Context) -> Outcome<PathBuf> {
    const COUNT: usize = 3_000_000;
    file(context, "numbers.txt", || {
        let mut rng = Rng(3);
        let mut numbers: Vec<u32> = (1..=COUNT as u32).collect();
        (1..COUNT).rev().for_each(|last| numbers.swap(last, rng.below(last + 1)));
        let mut lines = String::new();
        numbers.iter().for_each(|number| _ = writeln!(lines, "{number}"));
        lines.into_bytes()
    })
}

/// Blocks of text, each from a few sentences of its own: a compressor touches all of its tables in
/// the end, but few of them at a time. (On text without such locality it touches them all the time
/// at random, and no budget below what it wants makes sense.)
pub fn corpus(context: &Context) -> Outcome<PathBuf> {
    const BLOCKS: usize = 96;
    const BLOCK_LEN: usize = 64 << 10;
    const SENTENCES: usize = 10;
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 \n";
    file(context, "corpus.txt", || {
        let mut rng = Rng(5);
        let mut bytes = Vec::with_capacity(BLOCKS * BLOCK_LEN + 4096);
        for block in 1..=BLOCKS {
            let sentences: Vec<Vec<u8>> = (0..SENTENCES)
                .map(|_| (0..60 + rng.below(80)).map(|_| ALPHABET[rng.below(64)]).collect())
                .collect();
            while bytes.len() < block * BLOCK_LEN {
                bytes.extend_from_slice(&sentences[rng.below(SENTENCES)]);
                // A number breaks the repetition.
                bytes.extend_from_slice(rng.below(1000).to_string().as_bytes());
            }
        }
        bytes
    })
}

/// A C file of many functions and tables.
pub fn c_source(context: &Context) -> Outcome<PathBuf> {
    const FUNCTIONS: usize = 700;
    const TABLES: usize = 800;
    file(context, "generated.c", || {
        let mut source = String::from("typedef unsigned long word;\nword twist(word);\n");
        for number in 0..FUNCTIONS {
            let (a, b, c) = (number % 17 + 3, number % 3, number * 31 % 1009 + 1);
            let (left, one, other) = (number % 13 + 1, number % 8, (number + 3) % 8);
            let _ = writeln!(
                source,
                "word function_{number}(word *a, word n) {{
    word sum = {number}, i, last[8] = {{ {number}, {b}, 3 }};
    for (i = 0; i < n; i++) {{
        if (a[i] % {a} == {b}) sum += a[i] * {c}u ^ last[i & 7];
        else sum = (sum << {left}) | (sum >> {});
        switch (sum & 7) {{
        case {one}: last[i & 7] = sum; break;
        case {other}: a[i] ^= last[{one}]; break;
        default: sum += twist(a[n / 2]);
        }}
    }}
    return sum + last[{one}];
}}",
                64 - left
            );
        }
        let mut rng = Rng(7);
        for number in 0..TABLES {
            let values: Vec<String> = (0..1000).map(|_| rng.below(1 << 32).to_string()).collect();
            let _ = writeln!(source, "const word table_{number}[] = {{{}}};", values.join(","));
        }
        source.into_bytes()
    })
}
