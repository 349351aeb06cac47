//! The load of `bench reclaim`: several readers that stream through memory beside a program with a
//! hot set, each a process of its own, under one budget.
//!
//! `overspill neighbours` starts them all, waits until every one has filled its memory, lets the hot
//! one run alone for a while, then all together until the last reader has ended. It prints one line
//! of JSON. The words of a page are as in [`super`]: whoever meets another page's number fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::generator::{SplitMix, generator};
use super::pattern::Pattern;
use super::traffic::{Meter, Traffic};
use super::worker::{check, tag};
use super::{describe, noise};
use crate::os::memory::{PAGE_BYTES, Pages};
use crate::size::Size;

/// How long the hot one runs before the readers begin.
const ALONE: Duration = Duration::from_millis(500);
/// Touches between two looks at the clock or at whether to stop.
const BATCH: u64 = 64;
/// A touch that takes longer was answered by somebody, not by the processor.
const SLOW: Duration = Duration::from_micros(20);

/// Which process of the tree it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// It starts the others.
    All,
    /// It goes through its memory in order.
    Reader,
    /// It touches its memory at random until it is told to stop.
    Hot,
}

/// `overspill neighbours`.
#[derive(Args, Clone, Debug)]
pub struct NeighboursArgs {
    /// How many stream
    #[arg(long, default_value_t = 3)]
    pub readers: u32,
    /// Memory of each of them
    #[arg(long)]
    pub stream: Size,
    /// How often each goes through it
    #[arg(long, default_value_t = 2)]
    pub laps: u32,
    /// Memory of the hot one
    #[arg(long)]
    pub hot: Size,
    /// Which process this is
    #[arg(long, default_value = "all")]
    pub role: Role,
}

/// What one process did after everybody was ready.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Part {
    /// Touches.
    pub touches: u64,
    /// Time of them.
    pub seconds: f64,
    /// Touches that had to wait for anybody.
    pub slow: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// What was swapped meanwhile: the process's under overspill, else the whole system's.
    pub traffic: Traffic,
}

/// The line of JSON.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Neighbours {
    /// The readers, in the order of their start.
    pub readers: Vec<Part>,
    /// The hot one, alone.
    pub alone: Part,
    /// The hot one, while the readers ran.
    pub beside: Part,
}

impl Neighbours {
    /// The last reader's time.
    pub fn seconds(&self) -> f64 {
        self.readers.iter().map(|reader| reader.seconds).fold(0.0, f64::max)
    }

    /// The last reader's time less the first one's.
    pub fn range(&self) -> f64 {
        self.seconds() - self.readers.iter().map(|reader| reader.seconds).fold(f64::INFINITY, f64::min)
    }

    /// Standard deviation of the readers' times.
    pub fn deviation(&self) -> f64 {
        let count = self.readers.len().max(1) as f64;
        let mean = self.readers.iter().map(|reader| reader.seconds).sum::<f64>() / count;
        let squares = self.readers.iter().map(|reader| (reader.seconds - mean).powi(2));
        (squares.sum::<f64>() / count).sqrt()
    }

    /// Of the hot one's touches beside readers, the share that nobody had to answer.
    pub fn kept(&self) -> f64 {
        1.0 - self.beside.slow as f64 / self.beside.touches.max(1) as f64
    }

    /// The hot one's rate beside readers, of that alone.
    pub fn speed(&self) -> f64 {
        let rate = |part: &Part| part.touches as f64 / part.seconds.max(f64::EPSILON);
        rate(&self.beside) / rate(&self.alone).max(f64::EPSILON)
    }
}

impl NeighboursArgs {
    /// The command line, without the program.
    pub fn command_line(&self) -> Vec<String> {
        vec![
            "neighbours".to_owned(),
            format!("--readers={}", self.readers),
            format!("--stream={}", self.stream),
            format!("--laps={}", self.laps),
            format!("--hot={}", self.hot),
        ]
    }
}

/// Runs one process of the tree, or all.
pub fn main(args: &NeighboursArgs) -> Result<u8> {
    match args.role {
        Role::All => tree(args)?,
        Role::Reader => reader(args)?,
        Role::Hot => hot(args)?,
    }
    Ok(0)
}

fn tell<T: Serialize>(value: &T) -> Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

/// A process of the tree, and the two ends of the talk with it.
struct Neighbour {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Neighbour {
    fn start(args: &NeighboursArgs, role: &str) -> Result<Neighbour> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args.command_line()).arg(format!("--role={role}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Neighbour { child, orders, answers })
    }

    fn order(&mut self) -> Result<()> {
        let orders = self.orders.as_mut().expect("nobody has closed it");
        orders.write_all(b"go\n").context("a process of the load ended early")
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "a process of the load ended early");
        Ok(line)
    }

    fn part(&mut self) -> Result<Part> {
        Ok(serde_json::from_str(&self.answer()?)?)
    }

    fn end(mut self) -> Result<()> {
        drop(self.orders.take());
        ensure!(self.child.wait()?.success(), "a process of the load failed");
        Ok(())
    }
}

fn tree(args: &NeighboursArgs) -> Result<()> {
    let mut readers =
        (0..args.readers).map(|_| Neighbour::start(args, "reader")).collect::<Result<Vec<_>>>()?;
    for reader in &mut readers {
        reader.answer()?;
    }
    // The hot set is filled last: what is used now is in RAM when the readers begin.
    let mut hot = Neighbour::start(args, "hot")?;
    hot.answer()?;
    hot.order()?;
    std::thread::sleep(ALONE);
    hot.order()?;
    let alone = hot.part()?;
    for reader in &mut readers {
        reader.order()?;
    }
    let parts = readers.iter_mut().map(Neighbour::part).collect::<Result<Vec<_>>>()?;
    hot.order()?;
    let beside = hot.part()?;
    tell(&Neighbours { readers: parts, alone, beside })?;
    hot.end()?;
    readers.into_iter().try_for_each(Neighbour::end)
}

fn filled(size: Size) -> Result<Pages> {
    let count = usize::try_from(size.bytes(crate::machine::ram_bytes()))? / PAGE_BYTES;
    ensure!(count > 0, "a process of the load has no page");
    let pages = Pages::new(count, false).context("no memory for the load")?;
    for page in 0..count {
        let [first, rest @ ..] = pages.words(page);
        first.store(tag(page), Relaxed);
        rest.iter().zip(noise(page)).for_each(|(word, noise)| word.store(noise, Relaxed));
    }
    Ok(pages)
}

fn wait_for_order() -> Result<()> {
    let mut line = [0; 3];
    std::io::stdin().read_exact(&mut line).context("nobody waits for this process")
}

/// Touches pages in the order that `next` gives until `ends` says so.
fn touch(pages: &Pages, mut next: impl FnMut() -> usize, mut ends: impl FnMut(u64) -> bool) -> Result<Part> {
    let meter = Meter::find();
    let before = meter.now();
    let start = Instant::now();
    let mut part = Part::default();
    while !ends(part.touches) {
        for _ in 0..BATCH {
            let page = next();
            let begin = Instant::now();
            let word = pages.words(page)[0].load(Relaxed);
            let took = begin.elapsed();
            check(page, word).map_err(describe)?;
            part.slow += u64::from(took >= SLOW);
            part.longest_ns = part.longest_ns.max(took.as_nanos() as u64);
        }
        part.touches += BATCH;
    }
    part.seconds = start.elapsed().as_secs_f64();
    part.traffic = meter.now().since(before);
    Ok(part)
}

fn reader(args: &NeighboursArgs) -> Result<()> {
    let pages = filled(args.stream)?;
    tell(&"ready")?;
    wait_for_order()?;
    let mut order = generator(Pattern::Sequential, 0..pages.count(), 1);
    let goal = pages.count() as u64 * u64::from(args.laps);
    tell(&touch(&pages, || order.next_page(), |touches| touches >= goal)?)
}

fn hot(args: &NeighboursArgs) -> Result<()> {
    let pages = filled(args.hot)?;
    tell(&"ready")?;
    wait_for_order()?;
    for seed in 1..=2 {
        let stop = AtomicBool::new(false);
        let part = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let order = wait_for_order();
                stop.store(true, Relaxed);
                order
            });
            let mut random = SplitMix(seed);
            let part = touch(&pages, || random.below(pages.count()), |_| stop.load(Relaxed));
            waiter.join().expect("it only reads").and(part)
        })?;
        tell(&part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_that_of_the_readers() {
        let part = |seconds, touches, slow| Part { seconds, touches, slow, ..Part::default() };
        let done = Neighbours {
            readers: vec![part(2.0, 1, 0), part(4.0, 1, 0)],
            alone: part(1.0, 1000, 0),
            beside: part(4.0, 1000, 10),
        };
        assert_eq!((done.seconds(), done.range(), done.deviation()), (4.0, 2.0, 1.0));
        assert_eq!((done.kept(), done.speed()), (0.99, 0.25));
    }

    #[test]
    fn what_is_touched_is_what_was_stored() {
        let pages = filled(Size::Bytes(1 << 20)).unwrap();
        let mut page = 0;
        let next = || {
            page = (page + 1) % 256;
            page
        };
        let part = touch(&pages, next, |touches| touches >= 512).unwrap();
        assert_eq!(part.touches, 512);
        pages.words(9)[0].store(3, Relaxed);
        assert!(touch(&pages, || 9, |touches| touches > 0).is_err());
    }
}
