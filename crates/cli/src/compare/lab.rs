//! Runs one command one way and measures it: cgroup, swap, kernel settings, clocks and counters
//! around a child process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::WaitPidFlag;
use overspill_engine::shared::ENV;
use serde::Serialize;

use super::capture::{self, Captured};
use super::guardian::{Guardian, Resource};
use super::leftovers::Leftovers;
use super::stdin::Input;
use super::swap_file::SwapFile;
use super::way::{KernelRules, Way};
use crate::args::Tuning;
use crate::cgroup::{self, Group, Hierarchy, Limit};
use crate::checks::SwapPlace;
use crate::machine;
use crate::os::child::{self, Ended, Status};
use crate::os::{inherit, signals};
use crate::swap::arg::SwapArg;

const PAGE_BYTES: u64 = 4096;
/// What a fenced run may use beyond its budget.
const FENCE_BYTES: u64 = 32 << 20;
/// What is interrupted may put its things away for so long.
const GRACE: Duration = Duration::from_secs(1);
/// The kernel's swap file is this much larger than what it should need.
const SWAP_SPARE_BYTES: u64 = 64 << 20;
/// The kernel's read-ahead window, as a power of two.
pub const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
const PER_VMA: &str = "/sys/kernel/mm/swap/vma_ra_enabled";

/// What takes root: groups to run in, and somebody who undoes what was changed.
struct Grip {
    hierarchy: Hierarchy,
    guardian: Guardian,
}

impl Grip {
    fn get() -> Result<Grip> {
        let hierarchy = Hierarchy::find()?;
        let guardian = Guardian::start()?; // waits for other comparisons; until then a signal simply ends us
        Ok(Grip { hierarchy, guardian })
    }

    /// Has the kernel count memory by groups.
    fn enable(&mut self) -> Result<()> {
        let Some(path) = self.hierarchy.missing_controller() else { return Ok(()) };
        self.guardian.hold(Resource::Setting { path: path.clone(), value: "-memory".into() })?;
        fs::write(&path, "+memory").with_context(|| format!("cannot write +memory to {}", path.display()))
    }

    /// Sets something of the kernel's, and notes its value of now for the guardian.
    fn set(&mut self, path: &str, value: &str) -> Result<Resource> {
        let old = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let setting = Resource::Setting { path: path.into(), value: old.trim().to_string() };
        self.guardian.hold(setting.clone())?;
        fs::write(path, value).with_context(|| format!("cannot write {value} to {path}"))?;
        Ok(setting)
    }
}

/// Everything the runs share.
pub struct Lab {
    /// Only where a way needs it.
    grip: Option<Grip>,
    place: SwapPlace,
    swap_file: Option<SwapFile>,
    tuning: Tuning,
    /// The budget of each run that has one.
    budget_bytes: u64,
    /// What the kernel's swap must hold; learnt from the bare run where it is not known.
    need_bytes: u64,
    serial: u32,
}

/// One run.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Measurement {
    /// Which way.
    pub way: String,
    /// How it ended, as the table shows it.
    pub status: String,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// From start to end.
    pub wall_seconds: f64,
    /// CPU time in the programs.
    pub user_seconds: f64,
    /// CPU time in the kernel on their behalf.
    pub system_seconds: f64,
    /// Faults answered without reading: the kernel's, or under overspill the agent's.
    pub minor_faults: u64,
    /// Faults that had to read: the kernel's, or under overspill the agent's.
    pub major_faults: u64,
    /// Read from swap.
    pub swap_in_bytes: u64,
    /// Written to swap.
    pub swap_out_bytes: u64,
    /// The most memory held: the cgroup's peak, or under overspill the largest process's anonymous
    /// memory. Where no way needs a cgroup: the most that one process of the bare run held.
    pub peak_bytes: u64,
    /// The cgroup's peak, page cache included.
    pub cgroup_peak_bytes: u64,
    /// Length of its standard output.
    pub output_bytes: u64,
    /// Checksum of its standard output.
    pub output_hash: String,
    /// It left processes running, which were killed.
    pub left_behind: bool,
    /// The whole report of `overspill run`.
    pub overspill: Option<serde_json::Value>,
    /// What the built-in load said.
    pub load: Option<crate::load::Done>,
    /// The beginning of its standard output and the end of its standard error, for whoever started
    /// it.
    #[serde(skip)]
    pub captured: Captured,
}

impl Lab {
    /// Prepares for runs of these ways with a budget; `need_bytes` is what the command wants, 0 =
    /// unknown.
    pub fn new(
        place: SwapPlace,
        ways: &[Way],
        tuning: &Tuning,
        budget_bytes: u64,
        need_bytes: u64,
    ) -> Result<Lab> {
        let mut grip = if ways.iter().any(|way| way.needs_root()) { Some(Grip::get()?) } else { None };
        signals::survive(&signals::ENDING);
        grip.as_mut().map_or(Ok(()), Grip::enable)?;
        let mut tuning = tuning.clone();
        if tuning.swap.is_empty() {
            tuning.swap.push(SwapArg::plain(place.path.clone()));
        }
        Ok(Lab { grip, place, swap_file: None, tuning, budget_bytes, need_bytes, serial: 0 })
    }

    fn grip(&mut self) -> &mut Grip {
        self.grip.as_mut().expect("there is one when a way needs it")
    }

    /// Where kernel and overspill spill to.
    pub fn directory(&self) -> &Path {
        &self.place.directory
    }

    /// Runs `command` once.
    pub fn run(
        &mut self,
        way: Way,
        command: &[OsString],
        input: &Input,
        keep: Option<File>,
    ) -> Result<Measurement> {
        if signals::last().is_some() {
            return Err(anyhow!("interrupted"));
        }
        let kernel_settings = self.enter(way)?;
        let result = self.run_in_group(way, command, input, keep);
        // Before the settings: see the guardian's order.
        if let (Way::Kernel { .. }, Some(swap)) = (way, &self.swap_file) {
            swap.off()?;
        }
        for setting in kernel_settings.iter().rev() {
            self.grip().guardian.release(setting)?;
        }
        let measurement = result?;
        if way == Way::Bare && self.need_bytes < measurement.peak_bytes {
            self.need_bytes = measurement.peak_bytes;
        }
        Ok(measurement)
    }

    /// Switches on what the way needs of the kernel; returns the settings to restore.
    fn enter(&mut self, way: Way) -> Result<Vec<Resource>> {
        let Way::Kernel { page_cluster, rules } = way else { return Ok(Vec::new()) };
        if self.swap_file.is_none() {
            self.swap_file = Some(self.make_swap_file()?);
        }
        let mut settings = vec![self.grip().set(PAGE_CLUSTER, &page_cluster.to_string())?];
        match rules {
            KernelRules::AsFound => {}
            KernelRules::Cluster => settings.push(self.grip().set(PER_VMA, "false")?),
            KernelRules::Vma => {
                settings.push(self.grip().set(PER_VMA, "true")?);
                // The kernel asks when swap is switched on, and keeps to slots while any of its
                // disks rotates.
                if let Some(path) = machine::rotational_file(&self.place.directory) {
                    settings.push(self.grip().set(&path.to_string_lossy(), "0")?);
                }
            }
        }
        self.swap_file.as_ref().expect("made above").on()?;
        Ok(settings)
    }

    fn make_swap_file(&mut self) -> Result<SwapFile> {
        let path = SwapFile::path_in(&self.place.directory);
        self.grip().guardian.hold(Resource::SwapFile(path.clone()))?;
        let wanted = self.need_bytes.max(self.budget_bytes * 2);
        let default = wanted + wanted / 4 + SWAP_SPARE_BYTES;
        let bytes = self.tuning.swap_max.map_or(default, |size| size.bytes(machine::ram_for_shares()));
        SwapFile::create(&path, bytes.max(SWAP_SPARE_BYTES))
    }

    fn run_in_group(
        &mut self,
        way: Way,
        command: &[OsString],
        input: &Input,
        keep: Option<File>,
    ) -> Result<Measurement> {
        self.serial += 1;
        let limit = self.limit(way);
        let name = cgroup::unique_name(self.serial);
        let Some(grip) = &mut self.grip else {
            return self.run_child(way, command, input, keep, None);
        };
        let held = Resource::Cgroup(grip.hierarchy.group_path(&name));
        grip.guardian.hold(held.clone())?;
        let group = Group::create(&grip.hierarchy, &name, limit)?;
        let result = self.run_child(way, command, input, keep, Some(&group));
        self.grip().guardian.release(&held)?;
        result
    }

    fn limit(&self, way: Way) -> Limit {
        match way {
            Way::Kernel { .. } => Limit::Swapping(self.budget_bytes),
            Way::Overspill { fenced: true, .. } => Limit::Fenced(self.budget_bytes + FENCE_BYTES),
            Way::Bare | Way::Overspill { .. } => Limit::None,
        }
    }

    fn run_child(
        &self,
        way: Way,
        command: &[OsString],
        input: &Input,
        keep: Option<File>,
        group: Option<&Group>,
    ) -> Result<Measurement> {
        let mut report = File::from(memfd_create(c"overspill-report", MFdFlags::MFD_CLOEXEC)?);
        let mut child_command = match way {
            Way::Overspill { .. } => self.under_overspill(way, command, &report)?,
            Way::Bare | Way::Kernel { .. } => plain(command),
        };
        child_command.env_remove(ENV);
        Leftovers::mark(&mut child_command);
        child_command.stdin(input.open()?).stdout(Stdio::piped()).stderr(Stdio::piped());
        let leftovers = Leftovers::expected().context("cannot become the parent of orphans")?;
        nix::unistd::sync(); // what earlier runs wrote is not this run's business
        let before = SwapTraffic::now();
        let start = Instant::now();
        let spawned = inherit::spawn(&mut child_command, group.map(Group::entrance).transpose()?);
        let mut child =
            spawned.with_context(|| format!("cannot execute {}", child_command.get_program().display()))?;
        let streams = capture::start(&mut child, keep);
        let ended = await_end(child.id() as i32, start);
        let after = SwapTraffic::now();
        let left_behind = leftovers.end();
        let (ended, wall_seconds) = ended?;
        let mut measurement = Measurement::new(way, ended, wall_seconds);
        measurement.set_traffic(before, after);
        measurement.peak_bytes = ended.resident_peak_bytes;
        measurement.left_behind = left_behind;
        if let Some(group) = group {
            measurement.cgroup_peak_bytes = group.peak_bytes();
            measurement.peak_bytes = measurement.cgroup_peak_bytes;
            measurement.oom_kills = group.killed_count();
            cgroup::remove(group.path())?;
        }
        measurement.set_captured(streams.finish()?);
        if matches!(way, Way::Overspill { .. }) {
            report.rewind()?;
            measurement.set_report(&mut report)?;
        }
        Ok(measurement)
    }

    fn under_overspill(&self, way: Way, command: &[OsString], report: &File) -> Result<Command> {
        let Way::Overspill { readahead, reclaim, .. } = way else { unreachable!("only for this way") };
        let mut tuning = self.tuning.clone();
        tuning.readahead = readahead.or(tuning.readahead);
        tuning.reclaim = reclaim.or(tuning.reclaim);
        let mut overspill = Command::new(std::env::current_exe()?);
        overspill.arg("run").arg(format!("--ram={}", self.budget_bytes)).args(tuning.to_args());
        let report = format!("/proc/{}/fd/{}", std::process::id(), report.as_raw_fd());
        overspill.arg(format!("--json={report}")).arg("-q").arg("--").args(command);
        Ok(overspill)
    }
}

fn plain(command: &[OsString]) -> Command {
    let mut plain = Command::new(&command[0]);
    plain.args(&command[1..]);
    plain
}

/// Waits for the child, or for a signal that ends this process: that one the child has, too, and some time
/// to end by it.
///
/// *The story:* a signal that came before the first wait was forwarded, and not noticed: who was started
/// and did not heed it was waited for.
fn await_end(pid: i32, start: Instant) -> Result<(Ended, f64)> {
    signals::forward_to(pid);
    let interrupted = loop {
        if signals::last().is_some() {
            break true;
        }
        if child::wait_unreaped_among_orphans(pid)? {
            break signals::last().is_some();
        }
    };
    let wall_seconds = start.elapsed().as_secs_f64();
    signals::stop_forwarding();
    if interrupted {
        let asked = Instant::now();
        while child::reap(pid, WaitPidFlag::WNOHANG).is_none() && asked.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        return Err(anyhow!("interrupted"));
    }
    Ok((child::wait(pid)?, wall_seconds))
}

/// The kernel's own swapping since boot.
#[derive(Clone, Copy)]
struct SwapTraffic {
    pages_in: u64,
    pages_out: u64,
}

impl SwapTraffic {
    fn now() -> SwapTraffic {
        let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
        };
        SwapTraffic { pages_in: value("pswpin "), pages_out: value("pswpout ") }
    }
}

impl Measurement {
    fn new(way: Way, ended: Ended, wall_seconds: f64) -> Measurement {
        Measurement {
            way: way.to_string(),
            status: ended.status.text(),
            wall_seconds,
            user_seconds: ended.user.as_secs_f64(),
            system_seconds: ended.system.as_secs_f64(),
            minor_faults: ended.faults_minor,
            major_faults: ended.faults_major,
            ..Measurement::default()
        }
    }

    fn set_traffic(&mut self, before: SwapTraffic, after: SwapTraffic) {
        self.swap_in_bytes = after.pages_in.saturating_sub(before.pages_in) * PAGE_BYTES;
        self.swap_out_bytes = after.pages_out.saturating_sub(before.pages_out) * PAGE_BYTES;
    }

    fn set_captured(&mut self, captured: Captured) {
        self.output_bytes = captured.output_bytes;
        self.output_hash = format!("{:016x}", captured.output_hash);
        self.captured = captured;
    }

    /// Takes over what `overspill run` counted: it knows better than the kernel what went to its
    /// swap.
    fn set_report(&mut self, report: &mut File) -> Result<()> {
        let mut text = String::new();
        report.read_to_string(&mut text)?;
        if text.is_empty() {
            return Ok(()); // it failed before the program ran, and said why on its standard error
        }
        let report: serde_json::Value =
            serde_json::from_str(&text).context("the report of `overspill run`")?;
        let number = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let (faults, major) = (number("/vmstat/pgfault"), number("/vmstat/pgmajfault"));
        self.major_faults = major;
        self.minor_faults += faults.saturating_sub(major);
        self.swap_in_bytes = number("/vmstat/pswpin") * PAGE_BYTES;
        self.swap_out_bytes = number("/vmstat/pswpout") * PAGE_BYTES;
        self.peak_bytes = number("/resident_peak_bytes");
        self.overspill = Some(report);
        Ok(())
    }

    /// Whether it did not end by itself: the kernel killed it, or a part of it, as its group was
    /// out of memory.
    pub fn was_killed_for_memory(&self) -> bool {
        self.oom_kills > 0 && !self.is_success()
    }

    /// Whether the command ran to a normal end.
    pub fn is_success(&self) -> bool {
        self.status == Status::Exited(0).text()
    }

    /// CPU time of all kinds.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}
