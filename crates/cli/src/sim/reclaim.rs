//! `overspill sim reclaim`: budget domains that contend for one memory, under the kernel's reclaim of
//! several eras. Options and the table; the work is in [`overspill_sim::streams::contest`].

use anyhow::{Context, Result, anyhow};
use overspill_mm::reclaim::Reclaimer;
use overspill_mm::reclaim::counters::Counters;
use overspill_mm::reclaim::lists::{DomainId, Kind};
use overspill_mm::reclaim::scan::Era;
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::options::{Amount, amount, names};
use overspill_sim::report::table::aligned;
use overspill_sim::streams::contest::{Contest, Entrant};
use overspill_sim::streams::{Outcome, Way};
use overspill_sim::sweep::parallel;
use overspill_sim::time::{MILLISECOND, SECOND};
use serde::Serialize;

use crate::human;
use crate::stdout::{print, print_json};

/// Of a domain's name in the table.
const NAME_CHARS_MAX: usize = 16;

/// What `--help` teaches.
pub const EXAMPLES: &str = "\
A domain is NAME:KEY=VALUE,... with
  memory=SIZE   a program with so much memory, of which it touches
  hot=PERCENT   the first so much [100%],
  touches=N     so often a second, at random [10000]
  readers=N     programs that read a file each, once, from its start
  writers=N     programs that write one
  file=SIZE     how long these files are [8 times the RAM]
  low=SIZE      of what it holds so much goes only when nobody else has more to
                give
  min=SIZE      and so much never
Files are sparse, so reading them costs no I/O; what was written goes to a disk
of 200 MB/s, swap takes 5 ms a page. Whoever writes waits while a fifth of what
is free or holds file pages is dirty; the flusher begins at a tenth. Who gets no
frame in 16 calls is ended, and its memory is free. MiB/s are until the last
program of the domain was done. At the end it is checked that all that was
written has arrived.

Examples:
  Two readers and a database that may not lose what it holds, and one that may:
      overspill sim reclaim --ram 256M db:memory=100M,low=110M \\
          other:memory=100M backup:readers=2
  A writer beside it, and what each kernel's loop makes of that:
      overspill sim reclaim --ram 256M db:memory=100M,low=110M \\
          log:writers=1,file=2G --reclaim kernel-3.15,kernel-3.16,kernel-6.1";

/// Options of `overspill sim reclaim`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The domains, as NAME:KEY=VALUE,...
    #[arg(required = true, value_name = "DOMAIN")]
    domains: Vec<String>,
    /// The memory of all together
    #[arg(long, value_name = "SIZE")]
    ram: String,
    /// Swap
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    swap: String,
    /// Whose loop over the lists: kernel-3.10, -3.15, -3.16, -6.1, or bounded, which is no kernel's
    #[arg(long, value_name = "LIST", default_value = "kernel-3.16,kernel-6.1,bounded")]
    reclaim: String,
    /// The end, in seconds of the simulated machine, if files are not read or written before
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    seconds: u64,
    /// Processors of the simulated machine
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    processors: u16,
    /// Of all chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulations at a time [default: one for each processor]
    #[arg(
        long,
        env = "OVERSPILL_SIM_JOBS",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    jobs: Option<u16>,
    /// Print JSON (its fields: docs/json.md)
    #[arg(long)]
    json: bool,
}

/// A row of the table.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Line {
    /// The domain.
    domain: String,
    /// What is told, with its unit.
    what: &'static str,
    /// By policy, in the order of `policies`.
    values: Vec<u64>,
}

/// All of it.
#[derive(Serialize)]
struct Table {
    /// The policies.
    policies: Vec<String>,
    /// The rows of the table.
    lines: Vec<Line>,
    /// What the kernel would count.
    counters: Vec<Counter>,
}

/// A counter of the kernel, with its name there.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Counter {
    /// The kernel's name for it.
    name: &'static str,
    /// By policy, in the order of `policies`.
    values: Vec<u64>,
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    let policies = names(&args.reclaim, &Era::ALL.map(Era::name)).context("--reclaim")?;
    let entrants = args.domains.iter().map(|text| Entrant::parse(text)).collect::<Result<Vec<_>, _>>();
    let contest = Contest {
        entrants: entrants.map_err(|error| anyhow!("{error}"))?,
        ram_bytes: bytes(&args.ram).context("--ram")?,
        swap_bytes: bytes(&args.swap).context("--swap")?,
        limit_ns: args.seconds * SECOND,
        processors: usize::from(args.processors),
        seed: args.seed,
    };
    contest.check().map_err(|error| anyhow!("{error}"))?;
    let run = |index: usize| contest.run(Era::by_name(&policies[index]).expect("the names were checked"));
    let outcomes = parallel(policies.len(), super::jobs(args.jobs), run, |_| {});
    let table = Table { lines: lines(&contest, &outcomes), policies, counters: counters(&outcomes) };
    if args.json {
        print_json(&table)?;
    } else {
        print(&render(&table))?;
    }
    Ok(0)
}

fn bytes(text: &str) -> Result<u64> {
    match amount(text)? {
        Amount::Bytes(bytes) => Ok(bytes),
        Amount::Permille(_) => Err(anyhow!("a size, as in 256M")),
    }
}

fn lines(contest: &Contest, outcomes: &[Outcome]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, entrant) in (0u8..).zip(&contest.entrants) {
        let id = DomainId(index);
        let mut say = |what, value: &dyn Fn(&Outcome) -> u64| {
            let values = outcomes.iter().map(value).collect();
            lines.push(Line { domain: entrant.name.clone(), what, values });
        };
        let share = |outcome: &Outcome| outcome.shares[usize::from(index)];
        say("MiB held at the end", &|it| mib(share(it).held));
        if entrant.memory > 0 {
            say("MiB held at least", &|it| mib(share(it).least_held));
            say("touches a second", &|it| share(it).touches * SECOND / it.elapsed_ns.max(1));
            say("pages from swap", &|it| share(it).faults.pswpin);
        }
        for (count, way, what) in
            [(entrant.readers, Way::Read, "MiB/s read"), (entrant.writers, Way::Write, "MiB/s written")]
        {
            if count > 0 {
                say(what, &|it| mib(it.pages_a_second_of(id, way)));
            }
        }
    }
    let mut say = |what, value: &dyn Fn(&Outcome) -> u64| {
        let values = outcomes.iter().map(value).collect();
        lines.push(Line { domain: "all".to_owned(), what, values });
    };
    say("allocation stalls", &|it| it.counters.allocstall);
    say("frames by largest call", &|it| it.largest_call);
    say("pages to swap", &|it| it.faults().pswpout);
    if contest.entrants.iter().any(|entrant| entrant.writers > 0) {
        say("written by the flusher", &|it| it.writeback.by_flusher);
        say("written by kswapd", &|it| it.writeback.by_reclaim);
        say("pauses of writers", &|it| it.writeback.pauses);
    }
    if outcomes.iter().any(|it| it.out_of_memory > 0) {
        say("programs ended, memory full", &|it| it.out_of_memory);
    }
    say("ms until the end", &|it| it.elapsed_ns / MILLISECOND);
    lines
}

/// Every counter of specification 5.8 that this machine has.
fn counters(outcomes: &[Outcome]) -> Vec<Counter> {
    type Value = fn(&Counters) -> u64;
    let named: [(&'static str, Value); 24] = [
        ("allocstall", |it| it.allocstall),
        ("pgscan_direct_throttle", |it| it.pgscan_direct_throttle),
        ("pgscan_kswapd", |it| it.pgscan_by(Reclaimer::Background)),
        ("pgscan_direct", |it| it.pgscan_by(Reclaimer::Direct)),
        ("pgscan_anon", |it| it.pgscan_of(Kind::Anon)),
        ("pgscan_file", |it| it.pgscan_of(Kind::File)),
        ("pgsteal_kswapd", |it| it.pgsteal_by(Reclaimer::Background)),
        ("pgsteal_direct", |it| it.pgsteal_by(Reclaimer::Direct)),
        ("pgsteal_anon", |it| it.pgsteal_of(Kind::Anon)),
        ("pgsteal_file", |it| it.pgsteal_of(Kind::File)),
        ("pgrefill", |it| it.pgrefill),
        ("pgactivate", |it| it.pgactivate),
        ("pgdeactivate", |it| it.pgdeactivate),
        ("workingset_refault_anon", |it| it.workingset_refault[0]),
        ("workingset_refault_file", |it| it.workingset_refault[1]),
        ("workingset_activate_anon", |it| it.workingset_activate[0]),
        ("workingset_activate_file", |it| it.workingset_activate[1]),
        ("workingset_restore_anon", |it| it.workingset_restore[0]),
        ("workingset_restore_file", |it| it.workingset_restore[1]),
        ("nr_vmscan_write", |it| it.page_writes()[0]),
        ("nr_vmscan_immediate_reclaim", |it| it.nr_vmscan_immediate_reclaim),
        ("pageoutrun", |it| it.pageoutrun),
        ("kswapd_low_wmark_hit_quickly", |it| it.kswapd_low_wmark_hit_quickly),
        ("kswapd_high_wmark_hit_quickly", |it| it.kswapd_high_wmark_hit_quickly),
    ];
    let of = |&(name, value): &(&'static str, Value)| Counter {
        name,
        values: outcomes.iter().map(|outcome| value(&outcome.counters)).collect(),
    };
    named.iter().map(of).collect()
}

fn mib(pages: u64) -> u64 {
    pages * PAGE_SIZE / (1 << 20)
}

fn render(table: &Table) -> String {
    let mut rows = vec![["domain", ""].map(str::to_owned).to_vec()];
    rows[0].extend(table.policies.iter().cloned());
    let mut named = None;
    for line in &table.lines {
        let is_first = named.replace(&line.domain) != Some(&line.domain);
        let name = is_first.then(|| human::clipped(&human::one_line(&line.domain), NAME_CHARS_MAX));
        let mut row = vec![name.unwrap_or_default(), line.what.to_owned()];
        row.extend(line.values.iter().map(u64::to_string));
        rows.push(row);
    }
    let right: Vec<bool> = (0..rows[0].len()).map(|column| column > 1).collect();
    aligned(&rows, &right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_domain_says_what_it_has_and_the_table_fits_a_terminal() {
        let contest = Contest {
            entrants: ["a-name-that-is-much-too-long-for-it:memory=4M", "log:writers=1,readers=1,file=8M"]
                .map(|text| Entrant::parse(text).expect("fine"))
                .to_vec(),
            ram_bytes: 32 << 20,
            swap_bytes: 1 << 30,
            limit_ns: SECOND,
            processors: 2,
            seed: 1,
        };
        let policies = ["kernel-3.16", "kernel-6.1", "bounded"].map(str::to_owned).to_vec();
        let outcomes: Vec<Outcome> =
            policies.iter().map(|name| contest.run(Era::by_name(name).expect("known"))).collect();
        let table = Table { lines: lines(&contest, &outcomes), policies, counters: counters(&outcomes) };
        let of = |what| table.lines.iter().find(|line| line.what == what).expect("a row");
        assert_eq!(of("MiB held at least").values, [4; 3]);
        assert!(of("MiB/s written").values.iter().all(|&value| value > 0));
        let has = |domain: &str, what| table.lines.iter().any(|it| it.domain == domain && it.what == what);
        assert!(has("all", "ms until the end") && !has("log", "MiB held at least"));
        assert!(!has("all", "programs ended, memory full"), "nobody was");
        let text = render(&table);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("log").count(), 1, "{text}");
    }

    #[test]
    fn what_was_scanned_is_counted_by_whom_and_by_kind() {
        let contest = Contest {
            entrants: vec![Entrant::parse("a:memory=64M").expect("fine")],
            ram_bytes: 16 << 20,
            swap_bytes: 1 << 30,
            limit_ns: 2 * SECOND,
            processors: 2,
            seed: 1,
        };
        let counters = counters(&[contest.run(Era::Since61)]);
        let counter = |name| counters.iter().find(|it| it.name == name).expect("a counter");
        let scanned = ["pgscan_kswapd", "pgscan_direct", "pgscan_anon", "pgscan_file"]
            .map(|name| counter(name).values.iter().sum::<u64>());
        assert!(scanned[0] > 0 && scanned[0] + scanned[1] == scanned[2] + scanned[3], "{scanned:?}");
    }

    #[test]
    fn who_was_ended_is_told_of() {
        let contest = Contest {
            entrants: vec![Entrant::parse("a:memory=64M").expect("fine")],
            ram_bytes: 16 << 20,
            swap_bytes: 0,
            limit_ns: 2 * SECOND,
            processors: 2,
            seed: 1,
        };
        let lines = lines(&contest, &[contest.run(Era::Since61)]);
        let of = |what| &lines.iter().find(|line| line.what == what).expect("a row").values;
        assert_eq!(*of("programs ended, memory full"), [1]);
        assert_eq!(*of("ms until the end"), [2000]);
    }
}
