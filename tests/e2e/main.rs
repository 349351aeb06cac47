//! The live tests: `overspill` as built, against programs that stress memory and programs that people use.
//!
//! `OVERSPILL_E2E` chooses how the programs are run:
//!
//! - `overspill` (the default): under `overspill run`, with a budget far below what they need.
//! - `bare`: without it. Everything must pass: proves that a failure is overspill's.
//! - `broken`: without it, and damaged on purpose. Every test must fail inside, and so pass: proves
//!   that it can fail.
//!
//! A test that lacks a permission or a package fails and says so; none is skipped.

mod advice;
mod afterwards;
mod again;
mod bad_input;
mod bounds;
mod citizens;
mod context;
mod entry;
mod files;
mod json;
mod kills;
mod kills_areas;
mod launch;
mod launcher;
mod lost_limits;
mod newcomer;
mod packages;
mod proc;
mod real;
mod sampler;
mod scratch;
mod status;
mod sums;
mod swap_areas;
mod swap_bounds;
mod swap_encrypt;
mod swap_faults;
mod swap_info;
mod swap_live;
mod torture;
mod tree_sampler;
mod trees;
mod uring_off;

use std::sync::Mutex;

use again::Verdict;
use context::{Context, Mode};
use libtest_mimic::{Arguments, Trial};

/// The result of a test: what is wrong, in words.
type Outcome<T = ()> = Result<T, String>;

/// Fails with a formatted text unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

fn main() {
    let mut arguments = Arguments::from_args();
    // A shell starts background jobs with the first two ignored, nohup with the third, and what is
    // ignored stays so in every program that is tested.
    for ignored in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: no handler is installed, and no other thread runs yet.
        unsafe { libc::signal(ignored, libc::SIG_DFL) };
    }
    // Budgets are measured and memory is sampled: tests that run side by side would disturb each other.
    arguments.test_threads.get_or_insert(1);
    let context = match Context::new() {
        Ok(context) => context,
        Err(complaint) => {
            eprintln!("e2e: {complaint}");
            std::process::exit(1);
        }
    };
    let context: &'static Context = Box::leak(Box::new(context));
    println!("e2e: programs run {}; scratch files in {}", context.mode, context.scratch.display());
    let tests = collect(context, |name| is_selected(&arguments, name));
    let trials = tests.into_iter().map(|test| {
        Trial::test(test.name.clone(), move || {
            let started = std::time::Instant::now();
            let (outcome, repeated) = again::repeat(|| (test.body)(context));
            eprint!("({:.2} s) ", started.elapsed().as_secs_f64());
            if let Some(repeated) = repeated {
                let line = format!("peak bound passed at first: {} {repeated}", test.name);
                eprint!("({line}) ");
                REPEATED.lock().expect("a push does not panic").push(line);
            }
            context.mode.judge(outcome).map_err(Into::into)
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let repeated = REPEATED.lock().expect("a push does not panic");
    repeated.iter().for_each(|line| println!("e2e: {line}"));
    println!("e2e: {} tests were run again as their peak bound was passed at first", repeated.len());
    conclusion.exit();
}

/// Whether a test of that name is to run.
fn is_selected(arguments: &Arguments, name: &str) -> bool {
    let fits =
        |filter: &String| if arguments.exact { name == filter } else { name.contains(filter.as_str()) };
    arguments.filter.as_ref().is_none_or(fits) && !arguments.skip.iter().any(fits)
}

/// What is to be said of tests that were run again, a line each.
static REPEATED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// One test before it becomes a trial.
struct Test {
    name: String,
    body: Box<dyn Fn(&'static Context) -> Outcome<Verdict> + Send>,
}

impl Test {
    /// A test by name.
    fn new<V: Into<Verdict>>(
        name: impl Into<String>,
        body: impl Fn(&'static Context) -> Outcome<V> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(move |context| body(context).map(Into::into)) }
    }
}

/// Programs first, then what has a meaning only under overspill.
fn collect(context: &Context, selected: impl Fn(&str) -> bool + Copy) -> Vec<Test> {
    let mut tests = torture::tests(context, selected);
    tests.extend(real::tests());
    tests.extend(status::tests());
    if context.mode == Mode::Overspill {
        tests.extend(advice::tests());
        tests.extend(bad_input::tests());
        tests.extend(citizens::tests());
        tests.extend(trees::tests());
        tests.extend(lost_limits::tests());
        tests.extend(sums::tests());
        tests.extend(launcher::tests());
        tests.extend(afterwards::tests());
        tests.extend(entry::tests());
        tests.extend(bounds::tests(context, selected));
        tests.extend(swap_areas::tests());
        tests.extend(swap_bounds::tests());
        tests.extend(swap_info::tests());
        tests.extend(swap_encrypt::tests());
        tests.extend(swap_live::tests());
        tests.extend(swap_faults::tests());
        tests.extend(files::tests());
        tests.extend(kills::tests());
        tests.extend(newcomer::tests());
        tests.extend(uring_off::tests());
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_and_skip_leaves_out() {
        let selected = |words: &[&str]| {
            let words = ["e2e"].iter().chain(words);
            is_selected(&Arguments::from_iter(words), "torture::direct::no-move")
        };
        assert!(selected(&[]) && selected(&["direct"]) && selected(&["--exact", "torture::direct::no-move"]));
        assert!(!selected(&["::default"]) && !selected(&["--exact", "direct"]));
        assert!(!selected(&["direct", "--skip", "no-move"]) && selected(&["direct", "--skip", "arenas"]));
    }
}
