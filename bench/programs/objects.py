"""Programs with many small objects, for `bench/programs/run`: what each is given to do.

Inputs are made up from a fixed seed, in the working directory, once. Nothing in them is zeroes or one repeated byte.
Debian's packages: jq, ruby, ghc, node-typescript, cargo or rustup's, nix-bin, clamav.
"""

import hashlib
import random


def written(path, make):
    """The file, made first where it is not there."""
    if not path.exists():
        path.write_text(make(random.Random(7)))
    return path


def records(chance):
    """JSON of some 50 MB: 250,000 records with a name, numbers and a list of words."""
    words = [f"{chance.getrandbits(40):010x}" for _ in range(50_000)]
    record = lambda number: (
        f'{{"id":{number},"name":"{chance.choice(words)}","x":{chance.random():.6f},"y":{chance.random():.6f},'
        f'"tags":["{chance.choice(words)}","{chance.choice(words)}","{chance.choice(words)}"],'
        f'"of":{{"city":"{chance.choice(words)}","zip":{chance.randrange(100_000)}}}}}'
    )
    return "[" + ",\n".join(record(number) for number in range(250_000)) + "]"


def haskell(chance):
    """A module of 1,200 functions that call each other."""
    lines = ["module Main where", ""]
    for number in range(1_200):
        other = f"f{chance.randrange(number)}" if number else "abs"
        cases = [f"  | x `mod` {chance.randrange(3, 99)} == {chance.randrange(3)} = {other} (x - {chance.randrange(1, 9)})" for _ in range(3)]
        lines += [f"f{number} :: Int -> Int", f"f{number} x", *cases, f"  | otherwise = x * {chance.randrange(2, 1_000)}", ""]
    return "\n".join([*lines, "main :: IO ()", "main = print (sum (map f1199 [1 .. 10]))", ""])


def typescript(chance):
    """6,000 interfaces, and functions that go from one to another."""
    lines = []
    for number in range(6_000):
        fields = "; ".join(f"{name}{chance.randrange(1000)}_{place}: {kind}" for place, (name, kind) in enumerate([("a", "number"), ("b", "string"), ("c", "Date")]))
        before = f" extends I{chance.randrange(number)}" if number and chance.random() < 0.5 else ""
        lines.append(f"export interface I{number}{before} {{ {fields}; of{number}?: I{chance.randrange(number + 1)} }}")
        lines.append(f"export function g{number}(x: I{number}): number {{ const y = {{ ...x, z: {chance.randrange(99)} }}; return Object.keys(y).length + y.z }}")
    return "\n".join(lines) + "\n"


def rust(chance):
    """A program of 3,000 types with a trait each, and calls between them."""
    lines = ["use std::fmt::Debug;", "pub trait Value: Debug { fn value(&self) -> u64; }"]
    for number in range(3_000):
        before = chance.randrange(number) if number else 0
        inner = f"T{before}" if number else "u8"
        lines.append(f"#[derive(Debug, Clone, Default, PartialEq)] pub struct T{number} {{ pub a: u64, pub b: Vec<Box<{inner}>>, pub c: String }}")
        lines.append(f"impl Value for T{number} {{ fn value(&self) -> u64 {{ self.a * {chance.randrange(2, 99)} + self.b.len() as u64 + self.c.len() as u64 }} }}")
    calls = " + ".join(f"T{number}::default().value()" for number in range(0, 3_000, 7))
    return "\n".join([*lines, f'fn main() {{ println!("{{}}", {calls}); }}', ""])


def signatures(chance):
    """1.2 million hashes of files that nobody has, as clamscan takes them (.hsb: hash, size, name)."""
    hashed = lambda: hashlib.sha256(chance.randbytes(16)).hexdigest()
    return "".join(f"{hashed()}:{chance.randrange(100, 1 << 20)}:Made.Up-{number}:73\n" for number in range(1_200_000))


NIX = """
let
  numbers = builtins.genList (n: n) 300000;
  pairs = builtins.listToAttrs (map (n: { name = "k${toString n}"; value = { id = n; text = builtins.hashString "md5" (toString n); }; }) numbers);
in builtins.foldl' (sum: n: sum + builtins.stringLength pairs."k${toString n}".text) 0 numbers
"""

RUBY = """
pairs = {}
4_000_000.times { |n| pairs[(n * 2_654_435_761) % 4_294_967_296] = n.to_s }
sum = 0
pairs.each { |key, value| sum += key ^ value.size }
3.times { |lap| 400_000.times { |n| sum += pairs[((n * 7919 + lap) % 4_000_000 * 2_654_435_761) % 4_294_967_296].size } }
puts sum
"""


def crate(work):
    """A crate of one large file, without dependencies."""
    place = work / "crate"
    (place / "src").mkdir(parents=True, exist_ok=True)
    (place / "Cargo.toml").write_text('[package]\nname = "made-up"\nversion = "0.1.0"\nedition = "2021"\n\n[workspace]\n')
    written(place / "src/main.rs", rust)
    build = "rm -rf target && exec cargo build --quiet --offline --target-dir target"
    return ["env", "RUSTFLAGS=-Awarnings", "sh", "-c", f"cd '{place}' && {build}"]


def compiled(work):
    """ghc without optimization; what it makes goes to a directory of its own."""
    source = written(work / "Main.hs", haskell)
    return ["ghc", "-v0", "-O0", "-fforce-recomp", "-outputdir", work / "ghc", "-o", work / "ghc-program", source]


def scanned(work):
    """clamscan of one file, with hashes to compare it with."""
    names = work / "signatures"
    names.mkdir(exist_ok=True)
    written(names / "made-up.hsb", signatures)
    return ["clamscan", "--no-summary", "-d", names, written(work / "Main.hs", haskell)]


# Name, and what makes the command from the working directory.
PROGRAMS = {
    "jq": lambda work: ["jq", "map(.x * .of.zip) | add", written(work / "records.json", records)],
    "ruby": lambda work: ["ruby", written(work / "pairs.rb", lambda _: RUBY)],
    "ghc": compiled,
    "tsc": lambda work: ["tsc", "--noEmit", "--target", "es2020", written(work / "types.ts", typescript)],
    "cargo": crate,
    "nix": lambda work: ["nix-instantiate", "--eval", "--strict", written(work / "pairs.nix", lambda _: NIX)],
    "clamscan": scanned,
}
