//! What machine this is: RAM, kernel, processor, and the file system and device below a directory.
//! Every benchmark file carries it, because a figure without its machine means nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::{self, SysconfVar};
use serde::Serialize;

use crate::human;

/// The machine's description in JSON files.
#[derive(Serialize, Clone, Debug)]
pub struct Machine {
    /// Release of the running kernel.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Processors online.
    pub cores: usize,
    /// Bytes of RAM.
    pub ram_bytes: u64,
    /// What the swap directory lies on.
    pub swap_device: Device,
    /// Load averages at the end of the run: a busy machine measures itself.
    pub load_average: Option<String>,
    /// Commit that the command was built from, where it was known.
    pub commit: Option<&'static str>,
    /// Version of the command.
    pub overspill_version: &'static str,
    /// Time of the run, UTC.
    pub date: String,
}

/// A file system and the block device below it.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Device {
    /// Type of the file system.
    pub filesystem: String,
    /// Kernel name of the device; none for file systems without one.
    pub name: Option<String>,
    /// Whether it is a spinning disk.
    pub rotational: Option<bool>,
    /// Its I/O scheduler.
    pub scheduler: Option<String>,
}

/// Describes this machine, with the device below `swap_directory`.
pub fn describe(swap_directory: &Path) -> Machine {
    Machine {
        kernel: kernel_release(),
        cpu: cpu_model(),
        cores: processors(),
        ram_bytes: ram_bytes(),
        swap_device: device_of(swap_directory),
        load_average: first_line("/proc/loadavg"),
        commit: option_env!("OVERSPILL_COMMIT"),
        overspill_version: env!("CARGO_PKG_VERSION"),
        date: now(),
    }
}

/// Processors online, whatever part of them this process may use.
pub fn processors() -> usize {
    let online = unistd::sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// The date, UTC: `2026-11-21`.
pub fn today() -> String {
    now().chars().take_while(|&c| c != 'T').collect()
}

fn now() -> String {
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Bytes of RAM, or 0 where /proc is missing.
pub fn ram_bytes() -> u64 {
    meminfo_bytes("MemTotal").unwrap_or(0)
}

/// What shares such as 50% are counted from: the machine's RAM, or what the memory cgroup around
/// this process allows if that is less.
pub fn ram_for_shares() -> u64 {
    let machine = ram_bytes();
    crate::cgroup::own_limit_bytes().map_or(machine, |limit| limit.min(machine))
}

/// What to say of a budget that is more than there is, be it the machine or the memory cgroup that
/// has less.
pub fn budget_note(budget_bytes: u64) -> Option<String> {
    budget_note_on(ram_bytes(), ram_for_shares(), budget_bytes)
}

fn budget_note_on(machine_bytes: u64, allowed_bytes: u64, budget_bytes: u64) -> Option<String> {
    let whose = match allowed_bytes < machine_bytes {
        true => "what this memory cgroup gives,",
        false => "this machine's",
    };
    let [ram, allowed] = [budget_bytes, allowed_bytes].map(human::bytes);
    (allowed_bytes > 0 && budget_bytes > allowed_bytes)
        .then(|| format!("overspill: note: --ram {ram} is more than {whose} {allowed}"))
}

/// Shared memory and files in memory of all programs, in RAM; no pages of hugetlbfs.
pub fn shmem_bytes() -> Option<u64> {
    meminfo_bytes("Shmem")
}

/// A line of /proc/meminfo, in bytes.
pub fn meminfo_bytes(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// What programs have in pages of hugetlbfs, whatever their size; those of another size than the
/// default that are free count, too.
pub fn huge_bytes_in_use() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    huge_bytes_in_use_of(&text).unwrap_or(0)
}

fn huge_bytes_in_use_of(meminfo: &str) -> Option<u64> {
    let number = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let [all, size, free] = [number("Hugetlb")?, number("Hugepagesize")?, number("HugePages_Free")?];
    Some(all.saturating_sub(size * free) * 1024)
}

/// `6.18.44-generic`.
pub fn kernel_release() -> String {
    first_line("/proc/sys/kernel/osrelease").unwrap_or_default()
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1));
    model.map_or_else(|| std::env::consts::ARCH.to_string(), |name| name.trim().to_string())
}

/// The first line of a small file, such as those of /proc and /sys.
pub fn first_line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_string())
}

/// The kernel's file that says whether the disk under `path` rotates, if there is one.
pub fn rotational_file(path: &Path) -> Option<PathBuf> {
    let file = queue_of(&block_node(&device_number(path)?)?).join("rotational");
    file.exists().then_some(file)
}

/// `major:minor` of the device that holds `path`.
fn device_number(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.dev();
    Some(format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device)))
}

/// The directory of a block device; none for file systems without one.
fn block_node(number: &str) -> Option<PathBuf> {
    fs::canonicalize(Path::new("/sys/dev/block").join(number)).ok()
}

/// The request queue of a block device. A partition has none of its own: its disk is the directory
/// above.
fn queue_of(node: &Path) -> PathBuf {
    let disk = if node.join("queue").is_dir() { node } else { node.parent().unwrap_or(node) };
    disk.join("queue")
}

/// The file system and the device that hold `path`.
pub fn device_of(path: &Path) -> Device {
    let Some(number) = device_number(path) else { return Device::default() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let filesystem = filesystem_of(&mounts, &number).unwrap_or_default();
    let Some(node) = block_node(&number) else {
        return Device { filesystem, ..Device::default() };
    };
    let queue = queue_of(&node);
    let scheduler = first_line(queue.join("scheduler")).map(|line| chosen(&line).to_string());
    Device {
        filesystem,
        name: node.file_name().map(|name| name.to_string_lossy().into_owned()),
        rotational: first_line(queue.join("rotational")).map(|digit| digit == "1"),
        scheduler,
    }
}

/// The type of the file system with this device number, from mountinfo.
fn filesystem_of(mountinfo: &str, device: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let same = mount.split(' ').nth(2) == Some(device);
        same.then(|| filesystem.split(' ').next().unwrap_or_default().to_string())
    })
}

/// `mq-deadline` of `none [mq-deadline] kyber`.
pub fn chosen(line: &str) -> &str {
    let inside = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(line, |(inside, _)| inside)
}

/// `2026-11-21T20:03:56Z` (civil date from days since 1970, after H. Hinnant's public-domain
/// algorithm).
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_291_436), "2026-11-21T20:03:56Z");
    }

    #[test]
    fn huge_pages_in_use_are_those_that_are_not_free() {
        let text = "HugePages_Total:      16\nHugePages_Free:        4\nHugepagesize:       2048 kB\n\
                    Hugetlb:           32768 kB\n";
        assert_eq!(huge_bytes_in_use_of(text), Some(24 << 20));
        assert_eq!(huge_bytes_in_use_of("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn mountinfo_gives_the_type_and_sysfs_the_scheduler() {
        let mounts = "22 1 0:5 / /dev rw shared:2 - devtmpfs udev rw\n25 1 254:0 / / rw - ext4 /dev/vda rw\n";
        assert_eq!(filesystem_of(mounts, "254:0").as_deref(), Some("ext4"));
        assert_eq!(filesystem_of(mounts, "1:1"), None);
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn a_budget_beyond_what_there_is_is_told() {
        const GIB: u64 = 1 << 30;
        assert_eq!(budget_note_on(8 * GIB, 8 * GIB, 8 * GIB), None);
        assert_eq!(budget_note_on(0, 0, GIB), None, "nobody knows");
        let note = |allowed| budget_note_on(8 * GIB, allowed, 9 * GIB).unwrap();
        assert!(note(8 * GIB).contains("9.0 GiB is more than this machine's 8.0 GiB"), "{}", note(8 * GIB));
        assert!(note(GIB).contains("more than what this memory cgroup gives, 1.0 GiB"), "{}", note(GIB));
    }

    #[test]
    fn this_machine_has_ram_and_a_root() {
        assert!(ram_bytes() > 1 << 20);
        assert!(!device_of(Path::new("/")).filesystem.is_empty());
    }
}
