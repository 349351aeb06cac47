//! `overspill record`: a program's page accesses, exactly, by valgrind's lackey.
//!
//! What lackey prints goes through a pipe to a thread that makes a trace of it; it is never stored
//! as text. The pipe has no name: valgrind opens it as a file of this process, so nothing is left
//! behind, however this ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args as ClapArgs;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use overspill_sim::time;
use overspill_sim::trace::convert::{Copied, Selection, copy};
use overspill_sim::trace::lackey::LackeyReader;
use overspill_sim::trace::own::Writer;
use overspill_sim::trace::{NameRecord, Record, RecordReader, RecordWriter, TraceError};

use crate::human;
use crate::os::child::{self, Status};
use crate::os::{inherit, signals};
use crate::output;
use crate::part::Part;
use crate::progress::Progress;
use crate::run::launch::program;
use crate::stderr::say;

/// Room in the pipe: lackey writes line by line and should not have to wait for each.
const PIPE_BYTES: i32 = 1 << 20;

/// Lackey writes line by line, and a reader who waits for each is woken for each; in this time
/// thousands of lines come together, but not more than the pipe holds.
const GATHERING: Duration = Duration::from_millis(2);

/// How long the pipe may be silent before somebody looks what has become of the program.
const SILENCE_MS: u16 = 5;

/// Options of `overspill record`.
#[derive(ClapArgs)]
pub struct Args {
    /// The trace to write: what has that name stays until all is recorded, in FILE.part
    #[arg(short, long, value_name = "FILE", default_value = "overspill.ovt", value_parser = output::file_name())]
    output: PathBuf,
    /// Keep every access, also those to pages that were accessed a moment ago (ten to a hundred
    /// times as many)
    #[arg(long)]
    exact: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the program under lackey, writes its accesses, and ends as it ended.
pub fn main(args: &Args) -> Result<u8> {
    if let Some(code) = program::refused(&args.command) {
        return Ok(code);
    }
    // Nothing is replaced for a run that cannot be.
    if program::find(OsStr::new("valgrind")).is_none() {
        return Err(cannot_start(io::ErrorKind::NotFound.into()));
    }
    let cannot = || format!("cannot write {}", args.output.display());
    let part = Part::prepare(&args.output).with_context(cannot)?;
    let trace =
        part.begin().map_err(|error| TraceError::io(0, error)).and_then(|file| begin(file, &args.command));
    let trace = trace.with_context(cannot)?;
    let (reader, writer) = pipe()?;
    signals::survive(&signals::forwarded());
    let child = inherit::spawn(&mut valgrind(&writer, &args.command), None).map_err(cannot_start)?;
    let pid = child.id() as i32;
    let (status, copied) = std::thread::scope(|scope| {
        let lines = Lines { from: reader, writer: &writer, pid, lackey: None, scant: false };
        let converter = scope.spawn(|| convert(lines, trace, args.exact));
        signals::forward_to(pid);
        let ended = child::wait_unreaped(pid);
        writer.close();
        let copied = converter.join().expect("the converter does not panic");
        signals::stop_forwarding();
        ended.and_then(|()| child::wait(pid)).map(|ended| (ended.status, copied))
    })
    .context("cannot wait for the program")?;
    say(args, part, copied, writer.last_program().as_deref())?;
    match status {
        Status::Exited(code) => Ok(u8::try_from(code).expect("exit codes have 8 bits")),
        Status::Signaled(signal) => signals::die_by(signal),
    }
}

/// A block goes into the file as a whole, so no more than one is missing where this is killed.
type Output = Writer<File>;

/// Begins the note on where a trace comes from.
const ORIGIN: &str = "recorded by overspill record, valgrind lackey: ";
/// The note after it.
const TIMES: &str = "times are counts of instructions, one a nanosecond";

/// Does a note in a trace say that its times are counts of instructions? The first of them always meant
/// that.
pub fn counts_instructions(note: &str) -> bool {
    note == TIMES || note.starts_with(ORIGIN)
}

/// The trace, with notes on where it comes from.
fn begin(file: File, command: &[OsString]) -> Result<Output, TraceError> {
    let mut trace = Writer::new(file)?;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    for text in [format!("{ORIGIN}{}", words.join(" ")), TIMES.to_owned()] {
        trace.write_record(&Record::Name(NameRecord { id: NameRecord::NOTE, text }))?;
    }
    Ok(trace)
}

fn valgrind(pipe: &WriteEnd, words: &[OsString]) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args([
            "-q",
            "--tool=lackey",
            "--trace-mem=yes",
            "--basic-counts=no",
            "--child-silent-after-fork=yes",
        ])
        .arg(format!("--log-file={}", pipe.address))
        .arg("--")
        .args(words);
    command
}

fn cannot_start(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => anyhow!("record needs valgrind: apt-get install valgrind"),
        _ => anyhow!("cannot start valgrind: {error}"),
    }
}

/// Says what came of it.
fn say(args: &Args, part: Part, copied: Result<Copied, TraceError>, became: Option<&Path>) -> Result<()> {
    let Copied { read, written, .. } = match copied {
        Ok(copied) => {
            part.finish().with_context(|| format!("cannot write {}", args.output.display()))?;
            copied
        }
        Err(error) => {
            part.give_up();
            return Err(anyhow!("cannot record to {}: {error}", args.output.display()));
        }
    };
    let bytes = std::fs::metadata(&args.output).map_or(0, |metadata| metadata.len());
    say!(
        "overspill: {read} accesses, {written} written to {} ({})",
        args.output.display(),
        human::bytes(bytes)
    );
    if let Some(other) = became {
        let other = other.display();
        say!(
            "overspill: note: the program then became {other} (exec), whose accesses are missing: record that"
        );
    }
    Ok(())
}

/// From the pipe to the trace. When it gives up, its end of the pipe is closed, and that ends the
/// program.
fn convert(lines: Lines<'_>, mut trace: Output, exact: bool) -> Result<Copied, TraceError> {
    let time_ns = AtomicU64::new(0);
    let reader = LackeyReader::new(BufReader::with_capacity(1 << 18, lines));
    let selection = Selection { thin: !exact, ..Selection::default() };
    let progress = Progress::new();
    copy(&mut Timed { reader, time_ns: &time_ns }, &mut trace, &selection, &mut |records| {
        let time = time::show(time_ns.load(Relaxed));
        progress.say(&format!("{} million accesses, {time} of the program", records >> 20));
    })
}

/// A reader, and how far it is in the program's time.
struct Timed<'a, R> {
    reader: R,
    time_ns: &'a AtomicU64,
}

impl<R: RecordReader> RecordReader for Timed<'_, R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        let record = self.reader.next_record()?;
        if let Some(Record::Access(access)) = &record {
            self.time_ns.store(access.time_ns, Relaxed);
        }
        Ok(record)
    }

    fn is_in_order(&self) -> bool {
        self.reader.is_in_order()
    }
}

/// A pipe for lackey's lines: the end to read from, and the one for valgrind.
fn pipe() -> Result<(OwnedFd, WriteEnd)> {
    let (from, to) = nix::unistd::pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
    // A smaller pipe is slower, nothing else.
    let _ = fcntl(&to, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    let address = format!("/proc/{}/fd/{}", std::process::id(), to.as_raw_fd());
    let ours = Mutex::new(Some(to));
    Ok((from, WriteEnd { ours, closed: AtomicBool::new(false), became: Mutex::default(), address }))
}

/// The end that valgrind opens by its address, and what is known of the program there.
struct WriteEnd {
    /// Ours, until valgrind has its own.
    ours: Mutex<Option<OwnedFd>>,
    /// The program has ended.
    closed: AtomicBool,
    /// The last of the programs that took its place.
    became: Mutex<Option<PathBuf>>,
    address: String,
}

impl WriteEnd {
    fn close(&self) {
        self.closed.store(true, SeqCst);
        self.let_go();
    }

    fn let_go(&self) {
        self.ours.lock().expect("nobody panics with the lock").take();
    }

    fn last_program(&self) -> Option<PathBuf> {
        self.became.lock().expect("nobody panics with the lock").take()
    }
}

/// What comes through the pipe. Children of the program have it open too, so it ends not only when
/// nobody can write any more, but also when it is empty after the program has ended.
struct Lines<'a> {
    from: OwnedFd,
    writer: &'a WriteEnd,
    pid: i32,
    /// What the process executes while valgrind is at work.
    lackey: Option<PathBuf>,
    /// There was less than could be taken.
    scant: bool,
}

impl Lines<'_> {
    /// Waits until there is something to read, or the pipe's end; false if the program ended and
    /// left nothing.
    fn wait(&self) -> io::Result<bool> {
        loop {
            // Asked first: what the program wrote before its end is found by the look that follows.
            let closed = self.writer.closed.load(SeqCst);
            let mut descriptors = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
            match poll(&mut descriptors, PollTimeout::from(SILENCE_MS)) {
                Ok(0) if closed => return Ok(false),
                Ok(0) => self.look(),
                Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Valgrind does not follow exec: the program is silent then, and its process executes
    /// something else.
    fn look(&self) {
        let (Some(before), Some(now)) = (&self.lackey, executable(self.pid)) else { return };
        if *before != now {
            *self.writer.became.lock().expect("nobody panics with the lock") = Some(now);
        }
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.scant {
            std::thread::sleep(GATHERING);
        }
        if !self.wait()? {
            return Ok(0);
        }
        let count = nix::unistd::read(&self.from, buffer)?;
        self.scant = count < buffer.len();
        if self.lackey.is_none() {
            // Whoever wrote this has the pipe open: from here on its end is seen.
            self.writer.let_go();
            self.lackey = executable(self.pid);
        }
        Ok(count)
    }
}

/// What a process executes; nothing once it has ended.
fn executable(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).ok()
}
