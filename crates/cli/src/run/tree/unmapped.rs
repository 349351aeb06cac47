//! Shared memory that is there though nobody has mapped it: what was allocated ahead (fallocate), what was
//! mapped in pieces one after the other, what is written to a file on tmpfs. Each file that a process of the
//! tree has open counts once, and so does each segment of System V that one of them has made.
//!
//! It is asked for when the machine has more shared memory than the tree's mappings and others explain. No
//! file is asked that does not lie in memory: one of a network, or of a program of the run, may not answer.
//!
//! *The story:* Java with ZGC, and whoever calls fallocate on a memfd. 200 MiB, of which a quarter had been
//! touched, "never needed more than 50.2 MiB", under `--strict`, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::memfd::{MFdFlags, memfd_create};
use overspill_sys::clock;

use super::descendants::Look;
use crate::machine;

/// How often files are asked for, and after so many times the processor time that it took.
const PAUSE: Duration = Duration::from_millis(100);
const SHARE: u64 = 300;
/// ... but at once when the machine has so much less than it had then.
const FALLEN_BYTES: u64 = 1 << 20;
/// It matters from this part of the budget on.
const PART: u64 = 16;
/// Files have their times from a clock that is so much behind.
const COARSE: Duration = Duration::from_millis(20);
/// Blocks of what stat tells.
const BLOCK_BYTES: u64 = 512;

/// What processes have mapped, each page once, by their numbers.
type Mapped = [(u32, u64)];

fn sum(mapped: &Mapped) -> u64 {
    mapped.iter().map(|(_, bytes)| bytes).sum()
}

/// A file, by its device and its number; or a segment of System V.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Id {
    File(u64, u64),
    Segment(u64),
}

/// What is known of it.
pub struct Unmapped {
    ram_bytes: u64,
    began: SystemTime,
    /// The kernel's own mount, of memfd.
    memfd_mount: Option<u64>,
    /// The machine's shared memory now, and when files were asked for; and the least that others had of it.
    shmem_bytes: u64,
    asked_shmem_bytes: u64,
    others_bytes: u64,
    /// What files had that were there before the run, when they were seen first.
    before: BTreeMap<Id, u64>,
    /// What each process has open, or made: what several have counts with the first.
    held: BTreeMap<u32, u64>,
    again: Instant,
}

impl Unmapped {
    /// Of a run that begins now, with such a budget.
    pub fn new(ram_bytes: u64) -> Unmapped {
        let shmem_bytes = machine::shmem_bytes().unwrap_or(0);
        Unmapped {
            ram_bytes,
            began: SystemTime::now() - COARSE,
            memfd_mount: memfd_create(c"overspill-mount", MFdFlags::MFD_CLOEXEC)
                .ok()
                .and_then(|file| mount(&file)),
            shmem_bytes,
            asked_shmem_bytes: shmem_bytes,
            others_bytes: shmem_bytes,
            before: BTreeMap::new(),
            held: BTreeMap::new(),
            again: Instant::now(),
        }
    }

    /// Asks for what may have changed. `mapped`: what each has mapped, each page once.
    pub fn look(&mut self, looks: &[Look], mapped: &Mapped) {
        let is_due = Instant::now() >= self.again;
        if !is_due && self.held.is_empty() {
            return;
        }
        self.shmem_bytes = machine::shmem_bytes().unwrap_or(0);
        let has_fallen = self.shmem_bytes + FALLEN_BYTES < self.asked_shmem_bytes;
        if is_due || has_fallen {
            self.ask(looks, mapped);
        }
    }

    /// Asks at once: something hangs on it.
    pub fn ask(&mut self, looks: &[Look], mapped: &Mapped) {
        let mapped_bytes = sum(mapped);
        let began_ns = clock::thread_cpu_ns();
        self.shmem_bytes = machine::shmem_bytes().unwrap_or(0);
        self.asked_shmem_bytes = self.shmem_bytes;
        self.note_others(mapped_bytes);
        self.held.clear();
        if self.most(mapped_bytes) > self.ram_bytes / PART {
            self.find(looks);
            self.note_others(mapped_bytes);
        }
        let took = Duration::from_nanos((clock::thread_cpu_ns() - began_ns) * SHARE);
        self.again = Instant::now() + PAUSE.max(took);
    }

    fn note_others(&mut self, mapped_bytes: u64) {
        let own = mapped_bytes.max(self.held.values().sum());
        self.others_bytes = self.others_bytes.min(self.shmem_bytes.saturating_sub(own));
    }

    /// The most that there can be beside what is mapped. What the kernel has swapped out is not in RAM.
    fn most(&self, mapped_bytes: u64) -> u64 {
        self.shmem_bytes.saturating_sub(mapped_bytes).saturating_sub(self.others_bytes)
    }

    /// What all have beside what they have mapped.
    pub fn bytes(&self, mapped: &Mapped) -> u64 {
        self.parts(mapped).values().sum()
    }

    /// ... and what each has.
    pub fn parts(&self, mapped: &Mapped) -> BTreeMap<u32, u64> {
        if self.held.is_empty() {
            return BTreeMap::new();
        }
        let all = sum(mapped);
        let held: u64 = self.held.values().sum();
        let mut rest = held.saturating_sub(all).min(self.most(all));
        let mut part = |&(pid, bytes): &(u32, u64)| {
            let held = self.held.get(&pid).copied().unwrap_or(0);
            let part = held.saturating_sub(bytes).min(rest);
            rest -= part;
            (part > 0).then_some((pid, part))
        };
        mapped.iter().filter_map(&mut part).collect()
    }

    fn find(&mut self, looks: &[Look]) {
        let mut seen = BTreeSet::new();
        let segments = fs::read_to_string("/proc/sysvipc/shm").map_or(Vec::new(), |text| segments(&text));
        for look in looks.iter().filter(|look| !look.is_guest) {
            let own = segments.iter().filter(|segment| segment.maker == look.pid);
            let mut things: Vec<Thing> = own.map(|segment| segment.thing).collect();
            self.find_files(look.pid, &mut things);
            let new: Vec<Thing> = things.into_iter().filter(|thing| seen.insert(thing.id)).collect();
            let bytes: u64 = new.iter().map(|thing| self.counted(thing)).sum();
            if bytes > 0 {
                self.held.insert(look.pid, bytes);
            }
        }
        self.before.retain(|id, _| seen.contains(id));
    }

    /// Of what was there before the run what it has grown by since it was seen first.
    fn counted(&mut self, thing: &Thing) -> u64 {
        if thing.made >= self.began {
            return thing.bytes;
        }
        thing.bytes.saturating_sub(*self.before.entry(thing.id).or_insert(thing.bytes))
    }

    /// The files in memory that a process has open.
    fn find_files(&self, pid: u32, things: &mut Vec<Thing>) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return };
        let mut mounts: Option<BTreeSet<u64>> = None;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.display()));
            let Some(mount) = info.ok().and_then(|text| mount_of_info(&text)) else { continue };
            let mounts = mounts.get_or_insert_with(|| mounts_in_memory(pid));
            if self.memfd_mount == Some(mount) || mounts.contains(&mount) {
                things.extend(Thing::of_file(&entry.path()));
            }
        }
    }
}

/// A file in memory, or a segment.
#[derive(Clone, Copy, Debug)]
struct Thing {
    id: Id,
    bytes: u64,
    made: SystemTime,
}

impl Thing {
    /// When it was made; where the kernel does not tell, when it was changed last.
    fn of_file(path: &std::path::Path) -> Option<Thing> {
        let file = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(file.ctime()).unwrap_or(0));
        // The second that it was changed in may have begun before the run.
        let made = file.created().unwrap_or(changed + Duration::from_secs(1));
        Some(Thing { id: Id::File(file.dev(), file.ino()), bytes: file.blocks() * BLOCK_BYTES, made })
    }
}

/// A segment of System V, and who made it.
struct Segment {
    maker: u32,
    thing: Thing,
}

/// Of the text of /proc/sysvipc/shm.
fn segments(text: &str) -> Vec<Segment> {
    let mut lines = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let names = lines.next().unwrap_or_default();
    let at = |name: &str| names.iter().position(|one| *one == name);
    let Some(at) = ["shmid", "cpid", "ctime", "rss"].map(at).into_iter().collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    let segment = |words: Vec<&str>| {
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let made = UNIX_EPOCH + Duration::from_secs(number(at[2])? + 1);
        let thing = Thing { id: Id::Segment(number(at[0])?), bytes: number(at[3])?, made };
        Some(Segment { maker: u32::try_from(number(at[1])?).ok()?, thing })
    };
    lines.filter_map(segment).collect()
}

fn mount(file: &OwnedFd) -> Option<u64> {
    mount_of_info(&fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?)
}

/// Of the text of /proc/PID/fdinfo/N.
fn mount_of_info(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

fn mounts_in_memory(pid: u32) -> BTreeSet<u64> {
    fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_or(BTreeSet::new(), |text| mounts_of(&text))
}

/// Of the text of /proc/PID/mountinfo.
fn mounts_of(text: &str) -> BTreeSet<u64> {
    let mount = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        file_system.starts_with("tmpfs ").then(|| mount.split(' ').next()?.parse().ok())?
    };
    text.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MIB: u64 = 1 << 20;

    fn own_look() -> Look {
        Look { pid: std::process::id(), ..Look::default() }
    }

    /// See the head of this file: what is in a file of memory is there, though nobody has mapped it.
    #[test]
    fn files_in_memory_count_that_are_not_mapped() {
        let mut unmapped = Unmapped { others_bytes: 0, ..Unmapped::new(MIB) };
        let file = memfd_create(c"unmapped", MFdFlags::MFD_CLOEXEC).unwrap();
        let again = file.try_clone().unwrap();
        std::fs::File::from(file).write_all(&vec![1; 48 << 20]).unwrap();
        let look = own_look();
        unmapped.ask(&[look], &[]);
        let held = unmapped.held[&look.pid];
        assert!((48 * MIB..96 * MIB).contains(&held), "{held}: it is there once");
        drop(again);
    }

    /// Nobody holds what others have written before, who only reads it.
    #[test]
    fn of_what_was_there_before_counts_what_it_grows_by() {
        let mut unmapped = Unmapped::new(MIB);
        let thing = |mib: u64, made: SystemTime| Thing { id: Id::File(1, 2), bytes: mib * MIB, made };
        let before = unmapped.began - Duration::from_secs(60);
        assert_eq!(unmapped.counted(&thing(100, before)), 0);
        assert_eq!(unmapped.counted(&thing(130, before)), 30 * MIB);
        assert_eq!(unmapped.counted(&thing(130, unmapped.began)), 130 * MIB);
    }

    #[test]
    fn what_is_mapped_is_not_counted_again_nor_more_than_the_machine_has() {
        let unmapped = |shmem: u64| Unmapped {
            held: [(5, 100 * MIB), (7, 50 * MIB)].into(),
            shmem_bytes: (1000 + shmem) * MIB,
            others_bytes: 1000 * MIB,
            ..Unmapped::new(64 * MIB)
        };
        let parts = |shmem: u64, mapped: [u64; 2]| -> Vec<(u32, u64)> {
            let mapped = [(5, mapped[0] * MIB), (7, mapped[1] * MIB)];
            unmapped(shmem).parts(&mapped).into_iter().map(|(pid, bytes)| (pid, bytes / MIB)).collect()
        };
        assert_eq!(parts(200, [0, 0]), [(5, 100), (7, 50)]);
        assert_eq!(parts(200, [60, 10]), [(5, 40), (7, 40)]);
        assert_eq!(parts(200, [0, 120]), [(5, 30)], "what several have mapped counts with one of them");
        assert_eq!(parts(200, [200, 0]), []);
        assert_eq!(parts(90, [30, 0]), [(5, 60)], "the rest was swapped out, or is not there");
    }

    #[test]
    fn what_proc_tells_is_read() {
        let text = "\
key shmid perms  size cpid lpid nattch uid gid cuid cgid atime dtime ctime       rss swap
  0     3   600 104857600   77   77      0   0   0    0    0     5     6     7 104857600    0\n";
        let told = segments(text);
        assert_eq!((told.len(), told[0].maker, told[0].thing.bytes), (1, 77, 100 * MIB));
        assert_eq!(told[0].thing.made, UNIX_EPOCH + Duration::from_secs(8));
        assert!(segments("").is_empty());
        let mounts = "\
22 28 0:21 / /proc rw shared:12 - proc proc rw\n\
24 28 0:5 / /dev/shm rw,nosuid shared:3 master:1 - tmpfs tmpfs rw,size=64k\n\
28 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        assert_eq!(mounts_of(mounts), [24].into());
        assert_eq!(mount_of_info("pos:\t0\nflags:\t02\nmnt_id:\t13\nino:\t7\n"), Some(13));
        assert_eq!(mount_of_info(""), None);
    }
}
