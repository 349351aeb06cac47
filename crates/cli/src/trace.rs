//! `overspill trace`: what is in a trace, one format from another, parts of traces. The formats are
//! the simulator's ([`overspill_sim::trace`]); here are the options and the printing.

use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};
use overspill_sim::nearest;
use overspill_sim::options::show_bytes;
use overspill_sim::time::show;
use overspill_sim::trace::convert::{Copied, Selection, Summary, copy, write_origin};
use overspill_sim::trace::open::{KNOWN, open, open_file, writer};
use overspill_sim::trace::own::Seeker;
use overspill_sim::trace::{Format, PagerOp, Record, RecordReader, TraceError};

use crate::human;
use crate::os::signals;
use crate::output::{self, Anew};
use crate::progress::Progress;
use crate::stderr::say;
use crate::stdout::{print, print_json};

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
        /// Print JSON (its fields: docs/json.md)
        #[arg(long)]
        json: bool,
    },
    /// Write a trace in another format
    Convert {
        /// The trace to read; - is standard input
        trace: PathBuf,
        /// The trace to write; - is standard output
        #[arg(value_parser = output::file_name_or_stdout())]
        output: PathBuf,
        #[command(flatten)]
        from: From,
        /// Format of the output: overspill, lackey, strace, perf, csv, oracle, numbers [default: by
        /// its name, else overspill]
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
        /// The trace to write; - is standard output
        #[arg(value_parser = output::file_name_or_stdout())]
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
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        take: Option<u64>,
        /// Only these threads
        #[arg(long, value_name = "ID,...", value_delimiter = ',')]
        threads: Vec<u32>,
    },
}

#[derive(ClapArgs)]
struct From {
    /// Format of the trace, if it cannot be told from its beginning: overspill, lackey, strace,
    /// perf, csv, oracle, numbers
    #[arg(long = "from", value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,
}

/// For options that name a format.
pub fn parse_format(text: &str) -> Result<Format, String> {
    let hint = || nearest::hint(text, KNOWN.split(", "));
    Format::of_name(text)
        .ok_or_else(|| format!("`{text}` is not a trace format{}; the formats are {KNOWN}", hint()))
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
            cut(trace, output, from.format, &selection)
        }
    }
}

/// A trace with nothing in it is a mistake, too.
fn convert(
    path: &Path,
    output: &Path,
    from: Option<Format>,
    to: Option<Format>,
    selection: &Selection,
) -> Result<u8> {
    copy_file(path, output, from, to, selection, |copied| {
        ensure!(copied.eligible > 0, "{}: there is no record in it to convert", path.display());
        Ok(())
    })
}

/// A part with nothing in it is a mistake.
fn cut(path: &Path, output: &Path, from: Option<Format>, selection: &Selection) -> Result<u8> {
    let shown = path.display();
    copy_file(path, output, from, None, selection, |copied| match copied.eligible {
        0 => bail!("{shown}: it has no record of these times and threads"),
        count if count <= selection.skip => {
            bail!("{shown}: --skip {} leaves nothing of {count} records", selection.skip)
        }
        _ => Ok(()),
    })
}

fn info(path: &Path, format: Option<Format>, json: bool) -> Result<u8> {
    let (format, mut reader) = named(path, open(path, format))?;
    let summary = named(path, Summary::of(&mut *reader))?;
    let blocks = if format == Format::Own && path != Path::new("-") { blocks(path).ok() } else { None };
    if json {
        print_json(&info_json(format, &summary, blocks))?;
    } else {
        print(&info_text(format, &summary, blocks))?;
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
        "size_mean_bytes": summary.size_mean,
    })
}

fn info_text(format: Format, summary: &Summary, blocks: Option<(usize, u64)>) -> String {
    let mut lines = vec![format!("format    {}", format.name())];
    let indented = |text: &str| human::folded(text, &" ".repeat(10)).lines().map(str::to_owned).collect();
    let note = |note: &String| -> Vec<String> { indented(&format!("note      {}", human::one_line(note))) };
    lines.extend(summary.notes.iter().flat_map(note));
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
        // *The story:* of a live trace, which does not know, it was said that none was stored to.
        let knows_stores = loads + stores + fetches > 0;
        let stored = format!(", {} stored to", summary.pages_written);
        let stored = if knows_stores { stored } else { String::new() };
        lines.push(format!("pages     {} ({bytes}){stored}", summary.pages));
    }
    if let Some(bytes) = summary.size_mean {
        lines.push(format!(
            "sizes     {} on average; each counts as a page, whatever its size",
            show_bytes(bytes)
        ));
    }
    let events: Vec<String> = PagerOp::ALL
        .iter()
        .filter(|op| summary.pager[**op as usize] > 0)
        .map(|op| format!("{} {}", summary.pager[*op as usize], op.name()))
        .collect();
    if !events.is_empty() {
        lines.extend::<Vec<String>>(indented(&format!("pager     {}", events.join(", "))));
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

/// Copies what is selected, unless `judge` thinks nothing of it.
fn copy_file(
    path: &Path,
    output: &Path,
    from: Option<Format>,
    to: Option<Format>,
    selection: &Selection,
    judge: impl FnOnce(&Copied) -> Result<()>,
) -> Result<u8> {
    let input = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    ensure!(!output::same_file(input, output), "{} cannot be read and written at once", path.display());
    let (from, mut reader) = named(path, open_at(path, from, selection.from_ns))?;
    let to = to.or_else(|| Format::of_path(output)).unwrap_or(Format::Own);
    let anew = Anew::begin(output).with_context(|| output.display().to_string())?;
    let is_part = from == Format::Own && path.extension().is_some_and(|end| end == "part");
    let mut reader = AsFarAsItGoes { reader: &mut *reader, is_part, records: 0, ended: None };
    let copied = copy_to(&anew, path, &mut reader, (from, to), selection).and_then(|copied| {
        judge(&copied)?;
        let is_held = copied.kept > 0 || copied.eligible <= selection.skip;
        ensure!(is_held, "{}: {} has no place for anything that is in it", path.display(), to.name());
        Ok(copied)
    });
    match copied {
        Ok(copied) => {
            anew.finish().with_context(|| format!("cannot write {}", output.display()))?;
            say_left_out(&copied, to);
            if let Some(error) = reader.ended {
                say!("overspill: note: {}: {error}: what came before was taken", path.display());
            }
            Ok(0)
        }
        Err(error) => {
            anew.give_up();
            Err(error)
        }
    }
}

/// Of the part that is left of a recording (`crate::part`) what there is, and why there is no more.
struct AsFarAsItGoes<'a> {
    reader: &'a mut dyn RecordReader,
    is_part: bool,
    records: u64,
    ended: Option<TraceError>,
}

impl RecordReader for AsFarAsItGoes<'_> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        match self.reader.next_record() {
            Err(error @ TraceError::Truncated { .. }) if self.is_part && self.records > 0 => {
                self.ended = Some(error);
                Ok(None)
            }
            result => {
                self.records += 1;
                result
            }
        }
    }

    fn is_in_order(&self) -> bool {
        self.reader.is_in_order()
    }
}

fn copy_to(
    anew: &Anew,
    path: &Path,
    reader: &mut dyn RecordReader,
    (from, to): (Format, Format),
    selection: &Selection,
) -> Result<Copied> {
    let of_trace = |error: TraceError| match error {
        TraceError::Output { error, .. } if error.kind() == ErrorKind::BrokenPipe => {
            signals::die_by(nix::libc::SIGPIPE) // who stops reading (`| head`) wants no word
        }
        error => anyhow!("{}: {error}", path.display()),
    };
    let mut writer = writer(anew.file().try_clone()?, to).map_err(of_trace)?;
    if from != to {
        write_origin(from, &mut *writer).map_err(of_trace)?;
    }
    let progress = Progress::new();
    copy(reader, &mut *writer, selection, &mut |records| {
        progress.say(&format!("{} million records", records >> 20));
    })
    .map_err(of_trace)
}

/// A reader that need not begin before `from_ns`: a jump, where the format allows it.
fn open_at(
    path: &Path,
    format: Option<Format>,
    from_ns: u64,
) -> Result<(Format, Box<dyn RecordReader + Send>), TraceError> {
    if from_ns > 0
        && path != Path::new("-")
        && format.is_none_or(|format| format == Format::Own)
        && let Ok(file) = open_file(path)
        && let Ok(seeker) = Seeker::new(BufReader::new(file))
    {
        return Ok((Format::Own, Box::new(seeker.from_time(from_ns)?)));
    }
    open(path, format)
}

fn say_left_out(copied: &Copied, to: Format) {
    if copied.left_out > 0 {
        let (records, them) = if copied.left_out == 1 { ("record", "it") } else { ("records", "them") };
        say!("overspill: {} {records} left out: {} has no place for {them}", copied.left_out, to.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* of a live trace the line of the pager's events had 181 columns.
    #[test]
    fn what_is_in_a_trace_fits_a_terminal() {
        let summary = Summary { pager: [9_999_999; PagerOp::ALL.len()], pages: 256, ..Summary::default() };
        let text = info_text(Format::Own, &summary, Some((7, 861_184)));
        assert!(text.contains("\n          ") && text.contains("9999999 refault"), "{text}");
        assert!(text.contains("pages     256 (1 MiB)\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
    }

    /// *The story:* objects of 64 KiB were pages of 4, and nobody said so.
    #[test]
    fn sizes_that_count_for_nothing_are_told() {
        let summary = Summary { pages: 5800, size_mean: Some(65_536), ..Summary::default() };
        let text = info_text(Format::Oracle, &summary, None);
        assert!(
            text.contains("\nsizes     64 KiB on average; each counts as a page, whatever its size\n"),
            "{text}"
        );
    }

    /// *The story:* the command that is noted in a trace was printed as it was.
    #[test]
    fn a_note_is_words_and_fits_a_terminal() {
        let note = format!("recorded: \x1b[2J{}", "prog with words ".repeat(20));
        let text = info_text(Format::Own, &Summary { notes: vec![note], ..Summary::default() }, None);
        assert!(text.contains(r"note      recorded: \u{1b}[2Jprog"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
    }

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
