//! `overspill trace` and `overspill record`: what is in a trace, one format from another, parts of traces, new ones.
//!
//! The formats are the simulator's ([`overspill_sim::trace`]); here are the options, the printing, and the recording of a
//! program under valgrind's lackey, whose output goes through a named pipe and is never stored as text.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::BufReader;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};
use overspill_sim::options::show_bytes;
use overspill_sim::time::show;
use overspill_sim::trace::convert::{Copied, Selection, Summary, copy};
use overspill_sim::trace::lackey::LackeyReader;
use overspill_sim::trace::open::{KNOWN, create, open};
use overspill_sim::trace::own::{Seeker, Writer};
use overspill_sim::trace::{Format, NameRecord, PagerOp, Record, RecordReader, RecordWriter, TraceError};

use crate::os::{inherit, signals};
use crate::progress::Progress;
use crate::{exit, human};

/// Options of `overspill trace`.
#[derive(ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// Say what is in a trace
    Info {
        /// The trace; - is standard input
        trace: PathBuf,
        #[command(flatten)]
        from: From,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a trace in another format
    Convert {
        /// The trace to read; - is standard input
        trace: PathBuf,
        /// The trace to write
        output: PathBuf,
        #[command(flatten)]
        from: From,
        /// Format of the output: overspill, lackey, csv, oracle [default: by its name, else overspill]
        #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
        to: Option<Format>,
        /// Leave out accesses to pages that were accessed a moment ago
        #[arg(long)]
        thin: bool,
    },
    /// Write a part of a trace
    Cut {
        /// The trace to read; - is standard input
        trace: PathBuf,
        /// The trace to write
        output: PathBuf,
        #[command(flatten)]
        from: From,
        /// Only what happens at this time or later: 2s, 150ms, 10us, 5ns
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        after: Option<u64>,
        /// Only what happens before this time
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        before: Option<u64>,
        /// Leave out the first N of these
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: u64,
        /// Then take N
        #[arg(long, value_name = "N")]
        take: Option<u64>,
        /// Only these threads
        #[arg(long, value_name = "ID,...", value_delimiter = ',')]
        threads: Vec<u32>,
    },
}

#[derive(ClapArgs)]
struct From {
    /// Format of the trace, if it cannot be told from its beginning: overspill, lackey, strace, perf, csv, oracle
    #[arg(long = "from", value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,
}

/// Options of `overspill record`.
#[derive(ClapArgs)]
pub struct RecordArgs {
    /// The trace to write
    #[arg(short, long, value_name = "FILE", default_value = "overspill.ovt")]
    output: PathBuf,
    /// Keep every access, also those to pages that were accessed a moment ago (ten to a hundred times as many)
    #[arg(long)]
    exact: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// For options that name a format.
pub fn parse_format(text: &str) -> Result<Format, String> {
    Format::of_name(text).ok_or_else(|| format!("`{text}` is not a trace format; the formats are {KNOWN}"))
}

/// For options that are times.
fn parse_time(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("`{text}` is not a time; write 2s, 150ms, 10us or 5ns")),
    };
    let count: u64 = text[..digits].parse().map_err(|_| format!("`{text}` is not a time"))?;
    count.checked_mul(unit).ok_or_else(|| format!("`{text}` is too long a time"))
}

/// Puts the trace's name before what is wrong with it.
fn named<T>(path: &Path, result: Result<T, TraceError>) -> Result<T> {
    result.map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    match &args.command {
        TraceCommand::Info { trace, from, json } => info(trace, from.format, *json),
        TraceCommand::Convert { trace, output, from, to, thin } => {
            let selection = Selection { thin: *thin, ..Selection::default() };
            convert(trace, output, from.format, *to, &selection)
        }
        TraceCommand::Cut { trace, output, from, after, before, skip, take, threads } => {
            let selection = Selection {
                from_ns: after.unwrap_or(0),
                until_ns: before.unwrap_or(u64::MAX),
                skip: *skip,
                take: take.unwrap_or(u64::MAX),
                threads: threads.clone(),
                thin: false,
                rebase: true,
            };
            convert(trace, output, from.format, None, &selection)
        }
    }
}

fn info(path: &Path, format: Option<Format>, json: bool) -> Result<u8> {
    let (format, mut reader) = named(path, open(path, format))?;
    let summary = named(path, Summary::of(&mut *reader))?;
    let blocks = if format == Format::Own && path != Path::new("-") { blocks(path).ok() } else { None };
    if json {
        println!("{}", serde_json::to_string_pretty(&info_json(format, &summary, blocks))?);
    } else {
        print!("{}", info_text(format, &summary, blocks));
    }
    Ok(0)
}

/// Blocks and bytes of a trace in the own format.
fn blocks(path: &Path) -> Result<(usize, u64)> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    Ok((Seeker::new(BufReader::new(file))?.entries().len(), bytes))
}

fn info_json(format: Format, summary: &Summary, blocks: Option<(usize, u64)>) -> serde_json::Value {
    let pager: serde_json::Map<String, serde_json::Value> =
        PagerOp::ALL.iter().map(|op| (op.name().to_owned(), summary.pager[*op as usize].into())).collect();
    serde_json::json!({
        "schema_version": 1,
        "format": format.name(),
        "blocks": blocks.map(|(count, _)| count),
        "file_bytes": blocks.map(|(_, bytes)| bytes),
        "loads": summary.accesses[0],
        "stores": summary.accesses[1],
        "fetches": summary.accesses[2],
        "pager_events": pager,
        "file_calls": summary.file_calls,
        "file_bytes_read": summary.file_bytes_read,
        "file_bytes_written": summary.file_bytes_written,
        "files": summary.files,
        "regions": summary.regions,
        "pages": summary.pages,
        "pages_written": summary.pages_written,
        "threads": summary.threads,
        "first_ns": summary.span_ns.map(|(first, _)| first),
        "last_ns": summary.span_ns.map(|(_, last)| last),
        "notes": summary.notes,
    })
}

fn info_text(format: Format, summary: &Summary, blocks: Option<(usize, u64)>) -> String {
    let mut lines = vec![format!("format    {}", format.name())];
    lines.extend(summary.notes.iter().map(|note| format!("note      {note}")));
    if let Some((count, bytes)) = blocks {
        let records: u64 = summary.accesses.iter().chain(&summary.pager).sum::<u64>() + summary.file_calls;
        let each = overspill_sim::time::decimal(bytes, records.max(1));
        lines.push(format!("file      {count} blocks, {}, {each} bytes a record", show_bytes(bytes)));
    }
    if let Some((first, last)) = summary.span_ns {
        lines.push(format!("time      {} (from {} to {})", show(last - first), show(first), show(last)));
    }
    let [loads, stores, fetches] = summary.accesses;
    if loads + stores + fetches > 0 {
        lines.push(format!("accesses  {loads} loads, {stores} stores, {fetches} fetches"));
    }
    if summary.pages > 0 {
        let bytes = show_bytes(summary.pages * 4096);
        lines.push(format!("pages     {} ({bytes}), {} stored to", summary.pages, summary.pages_written));
    }
    let events: Vec<String> = PagerOp::ALL
        .iter()
        .filter(|op| summary.pager[**op as usize] > 0)
        .map(|op| format!("{} {}", summary.pager[*op as usize], op.name()))
        .collect();
    if !events.is_empty() {
        lines.push(format!("pager     {}", events.join(", ")));
    }
    if summary.file_calls > 0 {
        lines.push(format!(
            "files     {} files, {} calls, {} read, {} written",
            summary.files,
            summary.file_calls,
            show_bytes(summary.file_bytes_read),
            show_bytes(summary.file_bytes_written)
        ));
    }
    lines.push(format!("threads   {}", summary.threads));
    lines.join("\n") + "\n"
}

fn convert(
    path: &Path,
    output: &Path,
    from: Option<Format>,
    to: Option<Format>,
    selection: &Selection,
) -> Result<u8> {
    ensure!(!same_file(path, output), "{} cannot be read and written at once", path.display());
    let mut reader = named(path, open_at(path, from, selection.from_ns))?;
    let to = to.or_else(|| Format::of_path(output)).unwrap_or(Format::Own);
    let mut writer = named(output, create(output, to))?;
    let progress = Progress::new();
    let result = copy(&mut *reader, &mut *writer, selection, &mut |records| {
        progress.say(&format!("{} million records", records >> 20));
    });
    drop(progress);
    let copied = match result {
        Ok(copied) => copied,
        Err(error) => {
            // Half a trace is worse than none.
            let _ = std::fs::remove_file(output);
            return Err(anyhow!("{}: {error}", path.display()));
        }
    };
    say_left_out(&copied, to);
    Ok(0)
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// A reader that need not begin before `from_ns`: a jump, where the format allows it.
fn open_at(
    path: &Path,
    format: Option<Format>,
    from_ns: u64,
) -> Result<Box<dyn RecordReader + Send>, TraceError> {
    if from_ns > 0
        && path != Path::new("-")
        && format.is_none_or(|format| format == Format::Own)
        && let Ok(file) = std::fs::File::open(path)
        && let Ok(seeker) = Seeker::new(BufReader::new(file))
    {
        return Ok(Box::new(seeker.from_time(from_ns)?));
    }
    open(path, format).map(|(_, reader)| reader)
}

fn say_left_out(copied: &Copied, to: Format) {
    if copied.left_out > 0 {
        let (records, them) = if copied.left_out == 1 { ("record", "it") } else { ("records", "them") };
        eprintln!("overspill: {} {records} left out: {} has no place for {them}", copied.left_out, to.name());
    }
}

/// A directory of our own with a named pipe in it; both disappear with it.
struct Pipe {
    directory: PathBuf,
    path: PathBuf,
}

impl Pipe {
    fn new() -> Result<Pipe> {
        let directory = std::env::temp_dir().join(format!("overspill-record-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join("lackey");
        let pipe = Pipe { directory, path };
        nix::unistd::mkfifo(&pipe.path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
            .context("cannot make a named pipe")?;
        Ok(pipe)
    }

    /// Lets a reader that waits for a writer go on: it sees the end.
    fn release(&self, done: impl Fn() -> bool) {
        while !done() {
            let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
            drop(OpenOptions::new().write(true).custom_flags(nonblocking).open(&self.path));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs the program under lackey and writes its accesses.
pub fn record(args: &RecordArgs) -> Result<u8> {
    let program = &args.command[0];
    if let Err(reason) = crate::compare::require_program(program) {
        eprintln!("overspill: {reason}");
        return Ok(exit::NOT_FOUND);
    }
    let pipe = Pipe::new()?;
    let mut log_file = OsString::from("--log-file=");
    log_file.push(&pipe.path);
    let mut command = Command::new("valgrind");
    command
        .args([
            "-q",
            "--tool=lackey",
            "--trace-mem=yes",
            "--basic-counts=no",
            "--child-silent-after-fork=yes",
        ])
        .arg(log_file)
        .arg("--")
        .args(&args.command);
    signals::survive(&[nix::libc::SIGINT, nix::libc::SIGQUIT]);
    let (status, written) = std::thread::scope(|scope| -> Result<_> {
        let converter = scope.spawn(|| convert_lackey(&pipe.path, args));
        let started = inherit::spawn(&mut command, None).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!("record needs valgrind: apt-get install valgrind"),
            _ => anyhow!("cannot start valgrind: {error}"),
        });
        let status = started.and_then(|mut child| child.wait().context("cannot wait for the program"));
        pipe.release(|| converter.is_finished());
        let written = converter.join().map_err(|_| anyhow!("the converter failed"))?;
        Ok((status?, written?))
    })?;
    let (seen, kept) = written;
    let bytes = std::fs::metadata(&args.output).map_or(0, |metadata| metadata.len());
    eprintln!(
        "overspill: {seen} accesses, {kept} written to {} ({})",
        args.output.display(),
        human::bytes(bytes)
    );
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(u8::try_from(code).unwrap_or(exit::OWN_FAILURE)),
        (None, Some(signal)) => signals::die_by(signal),
        (None, None) => bail!("the program ended in no known way"),
    }
}

/// From the pipe to the trace; gives the accesses seen and written.
fn convert_lackey(pipe: &Path, args: &RecordArgs) -> Result<(u64, u64)> {
    let input = std::fs::File::open(pipe).context("cannot open the pipe")?;
    let mut reader = LackeyReader::new(BufReader::with_capacity(1 << 18, input));
    let file = std::fs::File::create(&args.output)
        .with_context(|| format!("cannot create {}", args.output.display()))?;
    let mut writer = Writer::new(std::io::BufWriter::with_capacity(1 << 18, file))?;
    let words: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let text = format!("recorded by overspill record, valgrind lackey: {}", words.join(" "));
    writer.write_record(&Record::Name(NameRecord { id: NameRecord::NOTE, text }))?;
    let selection = Selection { thin: !args.exact, ..Selection::default() };
    let copied = match copy(&mut reader, &mut writer, &selection, &mut |_| {}) {
        Ok(copied) => copied,
        Err(error) => {
            let _ = std::fs::remove_file(&args.output);
            return Err(anyhow!("valgrind's output: {error}"));
        }
    };
    Ok((copied.read, copied.written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_time("2s"), Ok(2_000_000_000));
        assert_eq!(parse_time("150ms"), Ok(150_000_000));
        assert_eq!(parse_time("10us"), Ok(10_000));
        for text in ["", "s", "5", "5h", "99999999999999999999s", "99999999999s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
