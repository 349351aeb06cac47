//! Runs one program, under overspill or bare, to its end or its timeout, and keeps all there is to
//! know about the run.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::again::{Held, Verdict, mib};
use crate::context::{Context, Mode};
use crate::sampler::{Peak, Sampler};
use crate::{Outcome, ensure, json, proc};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;

/// A program to be run.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    context: &'a Context,
    /// Names the files of the run.
    name: String,
    words: Vec<OsString>,
    stdin: Option<PathBuf>,
    directory: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    ram_bytes: Option<u64>,
    options: Vec<OsString>,
    swap: PathBuf,
    cgroup: Option<PathBuf>,
    timeout: Duration,
}

impl<'a> Launch<'a> {
    /// A run without a budget: bare in every mode.
    pub fn new(context: &'a Context, name: impl Into<String>, program: impl AsRef<OsStr>) -> Self {
        Self {
            context,
            name: name.into().replace([':', '/'], "-"),
            words: vec![program.as_ref().to_owned()],
            stdin: None,
            directory: None,
            variables: Vec::new(),
            ram_bytes: None,
            options: Vec::new(),
            swap: context.swap.clone(),
            cgroup: None,
            timeout: Duration::from_secs(300),
        }
    }

    /// Arguments of the program.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// A file as its standard input.
    pub fn stdin(mut self, path: impl Into<PathBuf>) -> Self {
        self.stdin = Some(path.into());
        self
    }

    /// Its working directory.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Under overspill with this budget, when the mode is to use it.
    pub fn ram(mut self, bytes: u64) -> Self {
        self.ram_bytes = Some(bytes);
        self
    }

    /// Options of `overspill run`.
    pub fn options<S: AsRef<OsStr>>(mut self, options: impl IntoIterator<Item = S>) -> Self {
        self.options.extend(options.into_iter().map(|option| option.as_ref().to_owned()));
        self
    }

    /// Another swap directory than the common one.
    pub fn swap(mut self, path: impl Into<PathBuf>) -> Self {
        self.swap = path.into();
        self
    }

    /// Inside a memory cgroup, launcher included.
    pub fn cgroup(mut self, path: impl Into<PathBuf>) -> Self {
        self.cgroup = Some(path.into());
        self
    }

    /// Another timeout than five minutes.
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.timeout = Duration::from_secs(seconds);
        self
    }

    fn patience(&self) -> Duration {
        if self.context.slow { self.timeout * 10 } else { self.timeout }
    }

    /// Whether overspill is between us and the program.
    fn managed(&self) -> bool {
        self.ram_bytes.is_some() && self.context.mode == Mode::Overspill
    }

    /// Where its standard output goes.
    pub fn stdout_path(&self) -> PathBuf {
        self.file("stdout")
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.context.path(format!("{}.{suffix}", self.name))
    }

    /// Starts it and returns at once.
    pub fn start(self) -> Outcome<Running<'a>> {
        let report = self.file("json");
        // An earlier run's report must not be taken for this one's.
        let _ = std::fs::remove_file(&report);
        let mut command = if self.managed() {
            let mut command = self.context.overspill_command();
            command.args(["run", "--ram"]).arg(self.ram_bytes.unwrap_or_default().to_string());
            command.arg("--swap").arg(&self.swap).arg("--json").arg(&report);
            command.args(&self.options).arg("--").args(&self.words);
            command
        } else {
            let mut command = Command::new(&self.words[0]);
            command.args(&self.words[1..]);
            command
        };
        let create = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
        command.stdout(create(&self.file("stdout"))?).stderr(create(&self.file("stderr"))?);
        command.stdin(match &self.stdin {
            Some(path) => File::open(path).map_err(|error| format!("{}: {error}", path.display()))?.into(),
            None => Stdio::null(),
        });
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(cgroup) = self.cgroup.clone() {
            // SAFETY: between fork and exec it opens a file and writes to it; this program's other
            // threads hold no lock that this needs, glibc's allocator being usable after a fork.
            unsafe { command.pre_exec(move || std::fs::write(cgroup.join("cgroup.procs"), "0")) };
        }
        let shown = format!("{command:?}");
        let started = Instant::now();
        let child = command.spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
        let sampler = Sampler::start(child.id(), self.managed());
        Ok(Running { launch: self, child, sampler, started, shown })
    }

    /// Runs it to its end.
    pub fn run(self) -> Outcome<Finished> {
        self.start()?.finish()
    }
}

/// A program that has been started.
#[derive(Debug)]
pub struct Running<'a> {
    launch: Launch<'a>,
    child: Child,
    sampler: Sampler,
    started: Instant,
    shown: String,
}

impl Running<'_> {
    /// The process that was started: the launcher, or the program when bare.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program: the launcher's first child that has become another program, and is not the keeper of
    /// the agent's library.
    pub fn program_pid(&self) -> Outcome<u32> {
        if !self.launch.managed() {
            return Ok(self.pid());
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            let own = proc::command_line(self.pid());
            let is_program = |pid: &u32| {
                let line = proc::command_line(*pid);
                !line.is_empty() && line != own && line.get(1).is_none_or(|word| word != "keep")
            };
            if let Some(pid) = proc::tree(self.pid()).into_iter().skip(1).find(is_program) {
                return Ok(pid);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("the launcher has started nothing: {}", self.shown))
    }

    /// The most anonymous memory that a process of it has held so far.
    pub fn peak_bytes(&self) -> u64 {
        self.sampler.peak().anon_bytes
    }

    /// Fails unless anonymous memory has stayed within the budget + 2 % + 8 MiB so far.
    pub fn within_budget(&self) -> Outcome {
        let (peak, bound) = (self.sampler.peak(), bound_bytes(self.launch.ram_bytes.unwrap_or(u64::MAX / 2)));
        let within = !self.launch.managed() || self.launch.context.slow || peak.anon_bytes <= bound;
        ensure!(within, "{} held {} of {} MiB: {}", peak.name, mib(peak.anon_bytes), mib(bound), self.shown);
        Ok(())
    }

    /// Kills it and what it has started.
    pub fn kill(&self) {
        proc::kill_tree(self.pid(), &[]);
    }

    /// Waits for the end; after the timeout says where it hangs and kills it.
    pub fn finish(mut self) -> Outcome<Finished> {
        let status = loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if self.started.elapsed() > self.launch.patience() => return Err(self.give_up()),
                None => std::thread::sleep(Duration::from_millis(3)),
            }
        };
        let wall = self.started.elapsed();
        let (peak, _) = self.sampler.finish();
        let stderr = read(&self.launch.file("stderr"));
        let report = std::fs::read(self.launch.file("json")).ok();
        let report = report.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Finished {
            status,
            wall,
            peak,
            stdout: self.launch.file("stdout"),
            stderr,
            report,
            managed: self.launch.managed(),
            peak_counts: !self.launch.context.slow,
            ram_bytes: self.launch.ram_bytes.unwrap_or(u64::MAX),
            shown: self.shown,
        })
    }

    fn give_up(mut self) -> String {
        let (seconds, pid) = (self.launch.patience().as_secs(), self.pid());
        let hang = proc::where_it_hangs(pid);
        let (_, seen) = self.sampler.finish();
        proc::kill_tree(pid, &seen);
        let _ = self.child.wait();
        let stderr = read(&self.launch.file("stderr"));
        format!("not done after {seconds} s: {}\n{hang}stderr:\n{}", self.shown, tail(&stderr))
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub status: ExitStatus,
    /// How long it took.
    pub wall: Duration,
    /// Its largest process, as sampled.
    pub peak: Peak,
    /// The file with its standard output.
    pub stdout: PathBuf,
    /// Its standard error.
    pub stderr: String,
    /// What `--json` wrote.
    pub report: Option<Value>,
    /// The command line.
    pub shown: String,
    managed: bool,
    peak_counts: bool,
    ram_bytes: u64,
}

impl Finished {
    /// Fails unless it ended with 0.
    pub fn succeeded(&self) -> Outcome<&Self> {
        ensure!(self.status.success(), "{}", self.complain(&format!("ended with {}", self.status)));
        Ok(self)
    }

    /// Fails unless it ended with that exit status.
    pub fn exited(&self, code: i32) -> Outcome<&Self> {
        let expected = format!("ended with {}, expected exit status {code}", self.status);
        ensure!(self.status.code() == Some(code), "{}", self.complain(&expected));
        Ok(self)
    }

    /// Fails unless that signal killed it.
    pub fn killed_by(&self, signal: i32) -> Outcome<&Self> {
        let expected = format!("ended with {}, expected signal {signal}", self.status);
        ensure!(self.status.signal() == Some(signal), "{}", self.complain(&expected));
        Ok(self)
    }

    /// Whether anonymous memory stayed within the budget + 2 % + 8 MiB, by our own samples and by
    /// the report. To be asked last: a test that has nothing else to complain of may be run again.
    pub fn within_budget(&self) -> Outcome<Verdict> {
        if !self.managed || !self.peak_counts {
            return Ok(Verdict::default());
        }
        let (sampled, reported) =
            (self.peak.anon_bytes, json::number(self.report()?, "resident_peak_bytes")?);
        let (name, bound_bytes) = (&self.peak.name, bound_bytes(self.ram_bytes));
        let held = format!(
            "{name} held {}, or {} by the report, of {} MiB",
            mib(sampled),
            mib(reported),
            mib(bound_bytes)
        );
        let (bytes, complaint) = (sampled.max(reported), self.complain(&held));
        Ok(Verdict(Some(Held { bytes, bound_bytes, complaint })))
    }

    /// Fails unless pages really went out, to swap or compressed; or more came in than the budget
    /// holds, as clean pages of files leave without being written.
    pub fn paged(&self) -> Outcome<&Self> {
        if self.managed {
            let report = self.report()?;
            let written = json::number(report, "pswpout")? + json::number(report, "zswpout")?;
            let read_bytes = (json::number(report, "pswpin")? + json::number(report, "files_read")?) * 4096;
            let is_more = read_bytes > self.ram_bytes;
            ensure!(
                written > 0 || is_more,
                "{}",
                self.complain("nothing was paged out: the run proves nothing")
            );
        }
        Ok(self)
    }

    /// What `--json` wrote.
    pub fn report(&self) -> Outcome<&Value> {
        self.report.as_ref().ok_or_else(|| self.complain("--json wrote no report"))
    }

    /// A complaint with the command and the end of its standard error.
    pub fn complain(&self, what: &str) -> String {
        format!("{what}: {}\nstderr:\n{}", self.shown, tail(&self.stderr))
    }
}

/// What a budget allows at its peak, agent included.
fn bound_bytes(ram_bytes: u64) -> u64 {
    ram_bytes + ram_bytes / 50 + 8 * MIB
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(25);
    lines[start..].iter().map(|line| format!("  {}\n", line.chars().take(400).collect::<String>())).collect()
}
