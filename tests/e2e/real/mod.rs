//! Programs that people use, at a half and at a quarter of the RAM they want: their output must be,
//! byte for byte, that of a bare run.
//!
//! What a program wants is the most anonymous memory that its largest process held in a bare run,
//! which is made once per program and whose output is the one to match.

mod inputs;
mod programs;
mod redis;
mod resp;
mod stress;

pub use programs::python;
pub use redis::saves;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use crate::again::Verdict;
use crate::context::{Context, Mode};
use crate::launch::{Launch, MIB};
use crate::{Outcome, Test, ensure};

/// A program whose standard output depends on its input alone.
struct Program {
    name: &'static str,
    /// Makes its input and says how to run it; called before each run.
    prepare: fn(&'static Context) -> Outcome<Launch<'static>>,
}

const PROGRAMS: [Program; 8] = [
    Program { name: "sort", prepare: programs::sort },
    Program { name: "python-objects", prepare: programs::python_objects },
    Program { name: "python-numpy", prepare: programs::python_numpy },
    Program { name: "sqlite", prepare: programs::sqlite },
    Program { name: "xz", prepare: programs::xz },
    Program { name: "zstd", prepare: programs::zstd },
    Program { name: "gcc", prepare: programs::gcc },
    Program { name: "java", prepare: programs::java },
];

/// Budgets, as (name, divisor of what the program wants).
const BUDGETS: [(&str, u64); 2] = [("half", 2), ("quarter", 4)];

/// Below this a budget says nothing about paging: the program is too small for the test.
const WANT_BYTES_MIN: u64 = 96 * MIB;

/// All of this directory.
pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (budget, divisor) in BUDGETS {
        for program in &PROGRAMS {
            let body = move |context| compare(context, program, budget, divisor);
            tests.push(Test::new(format!("real::{}::{budget}", program.name), body));
        }
        tests.push(Test::new(format!("real::redis::{budget}"), move |context| {
            redis::test(context, budget, divisor)
        }));
        tests.push(Test::new(format!("real::stress-ng::{budget}"), move |context| {
            stress::test(context, budget, divisor)
        }));
    }
    tests
}

/// What a bare run has shown.
#[derive(Clone, Debug)]
struct Bare {
    want_bytes: u64,
    stdout: PathBuf,
}

/// The bare run of a program, made when first asked for; or why there is none.
fn bare(context: &'static Context, program: &Program) -> Outcome<Bare> {
    type Cell = Arc<OnceLock<Outcome<Bare>>>;
    static RUNS: Mutex<BTreeMap<&str, Cell>> = Mutex::new(BTreeMap::new());
    let cell = RUNS.lock().map_err(|_| "another test panicked")?.entry(program.name).or_default().clone();
    cell.get_or_init(|| {
        let finished = (program.prepare)(context)?.run()?;
        finished.succeeded()?;
        let stdout = context.path(format!("real-{}.expected", program.name));
        std::fs::rename(&finished.stdout, &stdout).map_err(|error| error.to_string())?;
        let want_bytes = finished.peak.anon_bytes;
        let wants = format!("{} wants {} MiB", program.name, want_bytes / MIB);
        eprintln!("e2e: {wants} and takes {:.2} s bare", finished.wall.as_secs_f64());
        ensure!(want_bytes >= WANT_BYTES_MIN, "{wants}: its input is too small for this test");
        Ok(Bare { want_bytes, stdout })
    })
    .clone()
}

fn compare(context: &'static Context, program: &Program, budget: &str, divisor: u64) -> Outcome<Verdict> {
    let bare = bare(context, program)?;
    let finished = (program.prepare)(context)?.ram(bare.want_bytes / divisor).timeout(600).run()?;
    finished.succeeded()?;
    if context.mode == Mode::Broken {
        damage(&finished.stdout)?;
    }
    let same = same_content(&bare.stdout, &finished.stdout)?;
    ensure!(
        same,
        "{}",
        finished.complain(&format!("at {budget} the output differs from that of a bare run"))
    );
    finished.paged()?.within_budget()
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn same_content(one: &Path, other: &Path) -> Outcome<bool> {
    let (one, other) = (read(one)?, read(other)?);
    Ok(!one.is_empty() && one == other)
}

/// Flips a bit in the middle of a file.
fn damage(path: &Path) -> Outcome {
    let mut bytes = read(path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).map_err(|error| error.to_string())
}
