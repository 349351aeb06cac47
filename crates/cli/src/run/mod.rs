//! `overspill run`: start the program with the agent in it, survive until it ends, say what
//! happened, end as it ended.
//!
//! The launcher does no paging: that is the agent's work, inside the program. If the launcher is
//! killed what runs goes on, still within its budget, and so does what is started afterwards (`keeper`);
//! only the summary is lost. Nothing is left behind, for the memory that all share has no name.
//!
//! It looks at the whole tree meanwhile (`watch`): what it says at the end is computed from what it
//! saw, not from what the agents alone tell.

pub mod common;
pub mod dividing;
mod group;
pub mod launch;
pub mod places;
pub mod report;
pub mod shared_page;
mod status_line;
mod tracing;
pub mod tree;
mod watch;

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit};
use overspill_engine::shared::{CUSTODY_FILE, ENV, SOCKET_FILE, flags, socket_name};
use overspill_engine::{MAX_POOL_PERCENT, STEPS, SwapKind};
use overspill_sys::{Errno, proc_place};

use crate::args::{RunArgs, Tuning};
use crate::checks::{self, Ready, SwapPlace};
use crate::on_full::OnFull;
use crate::os::child::{self, Status};
use crate::os::inherit::Inherited;
use crate::os::{inherit, signals};
use crate::output::{self, Output};
use crate::stderr::{self, say};
use crate::{exit, human, machine, size};
use launch::custody::Custodian;
use launch::door::{self, Door};
use launch::entrance::Entrance;
use launch::{agent, program, room};
use report::{Report, Run, summary};
use shared_page::{Settings, SharedPage};
use tracing::{Prepared, Tracing};
use tree::descendants::{self, Descendants};
use tree::others;
use tree::strangers::Strangers;
use watch::{Options, Watch};

/// Runs the program; the result is this process's exit code.
pub fn main(args: &RunArgs) -> Result<u8> {
    let inherited = Inherited::note();
    let Some(program) = program::find(&args.command[0]) else {
        program::say_not_found(&args.command);
        return Ok(exit::NOT_FOUND);
    };
    if let Some(what) = args.tuning.on_full.filter(|&what| args.tuning.strict && what != OnFull::Kill) {
        say!(
            "overspill: --on-full {what} cannot be had beside --strict (or OVERSPILL_STRICT, or strict in a \
             configuration), which ends the program"
        );
        return Ok(exit::OWN_FAILURE);
    }
    // Without this a limit of file sizes (ulimit -f) would end the launcher without a word.
    signals::survive(&[libc::SIGXFSZ]);
    inherit::raise_limits();
    let ready = match checks::ready(&args.tuning) {
        Ok(ready) => ready,
        Err(check) => {
            say!("overspill: {}", check.line());
            return Ok(exit::OWN_FAILURE);
        }
    };
    if args.quiet {
        output::be_quiet();
    }
    let files = [("--json", &args.json), ("--output", &args.output), ("--trace", &args.trace)];
    output::ensure_apart(&files.map(|(name, path)| (name, path.as_deref())))?;
    let json = args.json.as_deref().map(Output::prepare).transpose()?;
    let summary = args.output.as_deref().map(Output::prepare).transpose()?;
    let ram_bytes = capped(args);
    if let Err(reason) = size::enough(ram_bytes) {
        say!("overspill: --ram {}: {reason}", args.ram);
        return Ok(exit::OWN_FAILURE);
    }
    let unmanageable = program::unmanageable(&program);
    print_notes(args, ram_bytes, unmanageable.as_deref());
    ready.swap.iter().for_each(|place| print_new_file(args, place));
    print_room(args, ram_bytes, &ready.swap);
    let page = Arc::new(shared_page(args, ram_bytes, &ready)?);
    let opened = door(&page, &ready.swap).and_then(|door| {
        let entrance = Entrance::open(&socket_name(page.token()), ready.agent.beside(SOCKET_FILE))?;
        // Without it what is executed after this process has ended has no limit.
        let _ = ready.agent.hand_over(&page, &entrance, &door);
        door.answer_at(entrance, |pid, _| door::is_descendant(pid))
    });
    if let Some(errno) = opened.err().filter(|_| !args.quiet) {
        let reason = errno_text(errno.raw_os_error() as u32);
        say!("overspill: note: other users and pid namespaces run unmanaged: {reason}");
    }
    let custodian = Custodian::start(page.token(), ready.agent.beside(CUSTODY_FILE), args.quiet);
    if custodian.is_err() && !args.quiet {
        say!("overspill: note: children of vfork may read zeroes if the process that made them is killed");
    }
    descendants::adopt_orphans().context("cannot become the parent of orphans")?;
    let trace = args.trace.as_deref().map(|path| Prepared::new(path, &page, &args.command)).transpose()?;

    signals::answer_status();
    signals::survive(&signals::forwarded());
    let divides = !args.tuning.per_process;
    let manages_files = args.tuning.files_min_bytes(ram_bytes) > 0;
    let options = Options { ram_bytes, divides, strict: args.tuning.strict, manages_files };
    let watch = Watch::start(page.clone(), ready.agent.path().into(), options);
    let watch = watch.context("cannot start a thread")?;
    let (start, start_ns) = (Instant::now(), tracing::monotonic_ns());
    let strangers = Strangers::note(ready.agent.keeper(), page.mark());
    let child = match start_program(args, &ready, &page) {
        Ok(child) => child,
        Err(error) => return Ok(cannot_execute(&program, &error)),
    };
    let pid = child.id();
    signals::forward_to(pid as i32);
    watch.begin(Descendants::new(pid, strangers));
    let tracing = trace.and_then(|trace| warned(trace.begin(start_ns)));
    if !names_a_descriptor(args, &ready.swap) {
        inherited.let_go();
    }
    if !names_a_file_here(args) {
        // Where that is refused it is in use, as it would be bare.
        let _ = std::env::set_current_dir("/");
    }
    child::wait_unreaped(pid as i32).context("cannot wait for the program")?;
    signals::stop_forwarding();
    let wall_seconds = start.elapsed().as_secs_f64();
    // As long as it is not reaped nobody else has its number.
    let watched = watch.finish();
    custodian.map(Custodian::finish).ok();
    let ended = child::wait(pid as i32).context("cannot wait for the program")?;
    drop(ready.agent); // before the ways out that run no destructors
    let processor_ns = (ended.user + ended.system).as_nanos() as u64;

    let shown: Vec<String> = ready.swap.iter().map(|place| place.path.display().to_string()).collect();
    let swap = shown.join(", ");
    let run = Run { args, ram_bytes, swap, pid, ended, wall_seconds, unmanageable, watched };
    let report = Report::new(run);
    let agents_ns = report.sum("agent_cpu_ns");
    let finish_trace = |tracing: Tracing| tracing.finish(processor_ns.saturating_sub(agents_ns));
    tracing.map(finish_trace).and_then(warned);
    write_report(args, &report, json, summary);
    finish(args, &report)
}

/// Is a file of this directory, or by way of it, written to? All other names are absolute by now.
///
/// *The story:* what was mounted where a program was started was in use for as long as the run, whatever the
/// program did.
fn names_a_file_here(args: &RunArgs) -> bool {
    [&args.json, &args.output, &args.trace].into_iter().flatten().any(|path| path.is_relative())
}

/// Is something to be written, or swapped, to what this process was given open?
fn names_a_descriptor(args: &RunArgs, swap: &[SwapPlace]) -> bool {
    const DESCRIPTORS: [&str; 4] = ["/dev/fd", "/dev/stdin", "/dev/stdout", "/proc"];
    let files = [&args.json, &args.output, &args.trace].into_iter().flatten();
    let mut paths = files.chain(swap.iter().map(|place| &place.path));
    paths.any(|path| DESCRIPTORS.iter().any(|start| path.starts_with(start)))
}

/// Ends like the program: its code, its signal, or 125 when swap was full under `--strict`.
fn finish(args: &RunArgs, report: &Report) -> Result<u8> {
    if let Some(reason) = &report.strict_refused {
        say!("overspill: {reason}: --strict runs nothing without a limit");
        return Ok(exit::OWN_FAILURE);
    }
    if report.strict_ended {
        if args.quiet || args.output.is_some() {
            say!("overspill: {}", report.verdict.text); // nobody has said it on standard error yet
        }
        return Ok(exit::OWN_FAILURE);
    }
    match report.status() {
        Status::Exited(code) => Ok(u8::try_from(code).expect("exit codes have 8 bits")),
        Status::Signaled(signal) => signals::die_by(signal),
    }
}

fn print_notes(args: &RunArgs, ram_bytes: u64, unmanageable: Option<&str>) {
    if args.quiet {
        return;
    }
    if let Some(note) = machine::budget_note(ram_bytes) {
        say!("{note}");
    }
    if let Some(reason) = unmanageable {
        say!("overspill: note: {reason}: it has no limit, but for what it starts in its place");
    }
}

/// The budget: no more than that of the run that this one is in. What an inner run has is off the outer
/// one's budget, which cannot page it.
///
/// *The story:* a script that ran something in 2G was run in 1G, which was passed without a word.
fn capped(args: &RunArgs) -> u64 {
    let asked = args.ram.bytes(machine::ram_for_shares());
    let Some(outer) = others::budget().filter(|outer| outer.ram_bytes < asked) else { return asked };
    if !args.quiet {
        let (ram, has, pid) = (args.ram, human::bytes(outer.ram_bytes), outer.launcher);
        let outer = format!("the run around this one (pid {pid}) has {has}");
        say!("overspill: note: --ram {ram}: {outer}, and this one no more");
    }
    outer.ram_bytes
}

/// The places as agents read them.
fn encoded(places: &[SwapPlace]) -> Vec<u8> {
    let place = |place: &SwapPlace| overspill_engine::SwapPlace {
        kind: place.kind,
        path: CString::new(place.path.as_os_str().as_bytes()).expect("it was found by that name"),
        bytes_max: place.bytes_max,
        priority: place.priority,
        limit: None,
    };
    overspill_engine::SwapPlace::encode(&places.iter().map(place).collect::<Vec<_>>())
}

fn print_new_file(args: &RunArgs, place: &SwapPlace) {
    if let Some(note) = place.note().filter(|_| !args.quiet) {
        say!("overspill: note: {note}");
    }
}

/// Says how much room is wanted and how much there is, where that is too little.
fn print_room(args: &RunArgs, ram_bytes: u64, places: &[SwapPlace]) {
    let asked = args.tuning.swap_max.map(|size| size.bytes(machine::ram_for_shares()));
    if let Some(note) = room::note(asked.unwrap_or(ram_bytes), places).filter(|_| !args.quiet) {
        say!("overspill: note: {note}");
    }
}

/// With fewer none is kept for roots without a /proc: the command could not be started for want of it.
const DESCRIPTORS_MANY: u64 = 64;

/// Directories are opened here, too: an agent may not be able to. Where there is none a file beside
/// the first place serves whoever cannot open an area.
fn door(page: &SharedPage, places: &[SwapPlace]) -> Result<Door, Errno> {
    let takes_files = |place: &&SwapPlace| place.kind != SwapKind::Area;
    let all_areas = !places.iter().any(|place| takes_files(&place));
    let directories = places
        .iter()
        .enumerate()
        .filter(|(index, place)| takes_files(place) || all_areas && *index == 0)
        .filter_map(|(index, place)| {
            Some((index, CString::new(place.directory.as_os_str().as_bytes()).ok()?))
        })
        .collect();
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let proc = (descriptors >= DESCRIPTORS_MANY).then(|| proc_place::detached().ok()).flatten();
    Ok(Door { page: page.descriptor()?, directories, proc })
}

fn shared_page(args: &RunArgs, ram_bytes: u64, ready: &Ready) -> Result<SharedPage> {
    let (tuning, swap) = (&args.tuning, &ready.swap);
    let settings = Settings {
        ram_bytes,
        swap_bytes_max: tuning.swap_max.map_or(0, |size| size.bytes(machine::ram_for_shares())),
        page_cluster: tuning.page_cluster.unwrap_or(u32::MAX),
        flags: flag_bits(args),
        readahead: tuning.readahead.unwrap_or_default().number(),
        reclaim: tuning.reclaim.unwrap_or_default().number(),
        max_pool_percent: tuning.max_pool_percent.unwrap_or(MAX_POOL_PERCENT),
        files_min_bytes: tuning.files_min_bytes(ram_bytes),
        swap_places: encoded(swap).into(),
        agent_path: ready.agent.path().as_os_str().as_bytes().into(),
    };
    SharedPage::new(&settings).context("cannot make the memory shared with the agent")
}

fn flag_bits(args: &RunArgs) -> u32 {
    let tuning = &args.tuning;
    let bits = [
        (tuning.ends_when_full(), flags::STRICT),
        (tuning.on_full == Some(OnFull::Stop), flags::STOP_WHEN_FULL),
        (tuning.no_move, flags::NO_MOVE),
        (tuning.no_uring, flags::NO_URING),
        (tuning.no_checksum, flags::NO_CHECKSUM),
        (tuning.encrypt, flags::ENCRYPT),
        (tuning.fixed_pool, flags::FIXED_POOL),
        (tuning.per_process, flags::PER_PROCESS),
        (args.quiet, flags::QUIET),
        (tuning.idle.unwrap_or_default().polls(), flags::POLL_IDLE),
        (args.trace.is_some(), flags::TRACE),
    ];
    bits.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum()
}

/// For so long a start that lacks a descriptor is tried again: our other threads have some open for a moment.
///
/// *The story:* with `ulimit -n 11` one start of forty said "Too many open files".
const DESCRIPTORS_WAIT: Duration = Duration::from_millis(100);

/// Starts the program, which agents know by its number.
fn start_program(args: &RunArgs, ready: &Ready, page: &Arc<SharedPage>) -> io::Result<Child> {
    page.set_starter(parent_id())?;
    let deadline = Instant::now() + DESCRIPTORS_WAIT;
    loop {
        let mut command = command(args, ready.agent.path(), page);
        // A descriptor more may not be had.
        inherit::tell_number(&mut command, page.clone(), SharedPage::command_at());
        match inherit::spawn(&mut command, None) {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            started => return started,
        }
    }
}

/// The program with the agent's `library` in it.
fn command(args: &RunArgs, library: &Path, page: &SharedPage) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let present = std::env::var_os("LD_PRELOAD");
    command.env("LD_PRELOAD", agent::preload_value(library, present.as_deref()));
    let sanitizer = agent::sanitizer_value(std::env::var_os(agent::SANITIZER).as_deref());
    command.env(agent::SANITIZER, sanitizer);
    command.env(ENV, page.address());
    command
}

fn cannot_execute(program: &Path, error: &io::Error) -> u8 {
    if let Some(interpreter) = program::missing_interpreter(program) {
        say!("overspill: {}: its interpreter {} is missing", program.display(), interpreter.display());
        return exit::CANNOT_EXECUTE;
    }
    say!("overspill: cannot execute {}: {}", program.display(), os_text(error));
    let resources = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    let out_of_resources = resources.contains(&error.raw_os_error().unwrap_or(0));
    if out_of_resources { exit::OWN_FAILURE } else { exit::CANNOT_EXECUTE }
}

/// `Permission denied`, without the number that the standard library adds.
fn os_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => errno_text(number as u32),
        None => error.to_string(),
    }
}

fn errno_text(number: u32) -> String {
    nix::errno::Errno::from_raw(number as i32).desc().to_string()
}

/// What an agent that gave up was doing, and the kernel's answer.
fn failure_text(step: u32, error: u32) -> String {
    match STEPS.get(step as usize) {
        Some(name) => format!("the agent could not {name}: {}", errno_text(error)),
        None => format!("the agent gave up at step {step}: {}", errno_text(error)),
    }
}

/// Once the program has started, what goes wrong is a warning, not a failure.
fn warned<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error| say!("overspill: {error:#}")).ok()
}

/// Writes what was asked for.
fn write_report(args: &RunArgs, report: &Report, json: Option<Output>, summary: Option<Output>) {
    if let Some(json) = json {
        let text =
            serde_json::to_string_pretty(report).expect("a report has no maps with keys that are no strings");
        warned(json.write(report.pid, &(text + "\n")));
    }
    let text = summary::text(report);
    match summary {
        Some(file) => _ = warned(file.write(report.pid, &text)),
        None if args.quiet => {}
        None => stderr::write(&text),
    }
}

impl Tuning {
    /// Is the program ended when swap is full?
    pub fn ends_when_full(&self) -> bool {
        self.strict || self.on_full == Some(OnFull::Kill)
    }

    /// The least of a mapping of a file that is managed; 0: none is. Below half of the budget a file
    /// is likely to fit: then nobody can serve it better than the kernel.
    pub fn files_min_bytes(&self, ram_bytes: u64) -> u64 {
        match self.files {
            None => 0,
            Some(_) if self.no_files => 0,
            Some(None) => (ram_bytes / 2).max(1),
            Some(Some(size)) => size.bytes(machine::ram_for_shares()).max(1),
        }
    }

    /// These options as command-line arguments.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        let mut option = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                let mut word = OsString::from(format!("--{name}="));
                word.push(value);
                args.push(word);
            }
        };
        self.swap.iter().for_each(|swap| option("swap", Some(swap.to_word())));
        option("swap-max", self.swap_max.map(|size| size.to_string().into()));
        option("page-cluster", self.page_cluster.map(|n| n.to_string().into()));
        option("max-pool-percent", self.max_pool_percent.map(|n| n.to_string().into()));
        option("on-full", self.on_full.map(|what| what.to_string().into()));
        option("idle", self.idle.map(|idle| idle.to_string().into()));
        option("readahead", self.readahead.map(|policy| policy.to_string().into()));
        option("reclaim", self.reclaim.map(|policy| policy.to_string().into()));
        // Of both what holds is repeated.
        if let Some(size) = self.files.filter(|_| !self.no_files) {
            args.push(size.map_or_else(|| "--files".into(), |size| format!("--files={size}").into()));
        }
        let switches = [
            ("no-files", self.no_files),
            ("erase", self.erase),
            ("strict", self.strict),
            ("no-move", self.no_move),
            ("no-uring", self.no_uring),
            ("no-checksum", self.no_checksum),
            ("encrypt", self.encrypt),
            ("fixed-pool", self.fixed_pool),
            ("per-process", self.per_process),
        ];
        args.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| format!("--{name}").into()));
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    /// An option of the table that `to_args` forgets is lost on the way to the runs of `compare`
    /// and `bench`, and in the command that a summary proposes.
    #[test]
    fn every_option_goes_on_to_another_command_line() {
        let command = Tuning::augment_args(clap::Command::new("x"));
        let ids: Vec<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
        assert!(ids.len() > 10, "{ids:?}");
        for id in &ids {
            let option = format!("--{}", id.replace('_', "-"));
            let value = match id.as_str() {
                "swap" => "=/nowhere/at-all:1G:prio=3",
                "swap_max" | "files" => "=1G",
                "page_cluster" | "max_pool_percent" => "=5",
                "readahead" => "=linux",
                "reclaim" => "=lru",
                "idle" => "=sleep",
                "on_full" => "=stop",
                _ => "",
            };
            let word = format!("{option}{value}");
            let matches = command.clone().try_get_matches_from(["x", word.as_str()]);
            let tuning =
                Tuning::from_arg_matches(&matches.unwrap_or_else(|error| panic!("{error}"))).unwrap();
            assert_eq!(tuning.to_args(), [word.as_str()], "{id}");
        }
    }

    /// *The story:* `--files --no-files` was taken, and "next" repeated both.
    #[test]
    fn of_options_that_exclude_each_other_the_later_one_holds() {
        let args = |words: [&str; 2]| {
            let command = Tuning::augment_args(clap::Command::new("x"));
            let matches = command.try_get_matches_from(["x", words[0], words[1]]).unwrap();
            Tuning::from_arg_matches(&matches).unwrap().to_args()
        };
        assert_eq!(args(["--files", "--no-files"]), ["--no-files"]);
        assert_eq!(args(["--no-files", "--files=1G"]), ["--files=1G"]);
        let both = Tuning { files: Some(None), no_files: true, ..Tuning::default() };
        assert_eq!(both.to_args(), ["--no-files"], "as where one of them comes from the environment");
    }
}
