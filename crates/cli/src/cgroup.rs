//! Memory cgroups, version 1 and 2: finding the hierarchy, making a group of a given size, reading
//! its peak, and removing it with everything in it.
//!
//! Groups are made at the root of the hierarchy as this process sees it, which needs root (or a
//! delegated hierarchy).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// How long removed processes may take to leave their group.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(20);
/// Limits above this are the kernel's way to say "none".
const UNLIMITED_BYTES_MIN: u64 = 1 << 60;

/// Which interface the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `memory.limit_in_bytes` and so on.
    V1,
    /// `memory.max` and so on.
    V2,
}

/// The mounted hierarchy that controls memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hierarchy {
    /// Its interface.
    pub version: Version,
    /// Where it is mounted.
    pub root: PathBuf,
}

/// What a group allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// As much RAM as there is, and no swap.
    None,
    /// So many bytes of RAM, and as much of the kernel's swap as there is.
    Swapping(u64),
    /// So many bytes of RAM, and no swap: beyond that the kernel kills.
    Fenced(u64),
}

/// A group of ours.
#[derive(Debug)]
pub struct Group {
    version: Version,
    path: PathBuf,
}

impl Hierarchy {
    /// The hierarchy that controls memory on this machine.
    pub fn find() -> Result<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
        Hierarchy::among(&mounts).ok_or_else(|| {
            anyhow!(
                "no memory cgroup controller is mounted; mend it with: mount -t cgroup2 none /sys/fs/cgroup"
            )
        })
    }

    fn among(mounts: &str) -> Option<Hierarchy> {
        let mut second_version = None;
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(1);
            let (root, kind, options) = (words.next()?, words.next()?, words.next()?);
            if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
                return Some(Hierarchy { version: Version::V1, root: root.into() });
            }
            let controls_memory = || {
                let controllers =
                    fs::read_to_string(Path::new(root).join("cgroup.controllers")).unwrap_or_default();
                controllers.split_whitespace().any(|controller| controller == "memory")
            };
            if kind == "cgroup2" && controls_memory() {
                second_version = Some(Hierarchy { version: Version::V2, root: root.into() });
            }
        }
        second_version
    }

    /// The limit around this very process, if there is one: that of its group and of all groups
    /// above.
    pub fn own_limit_bytes(&self) -> Option<u64> {
        self.limit_bytes(&self.own_name()?)
    }

    /// The name of this process's group, as /proc gives it.
    fn own_name(&self) -> Option<String> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        own_path(&groups, self.version).map(str::to_owned)
    }

    /// The limit around the group of that name, as /proc gives it.
    fn limit_bytes(&self, name: &str) -> Option<u64> {
        let group = self.group(name);
        let of = |path: &Path| Bound::new(self.version, path).limit_bytes();
        let limit = match self.version {
            Version::V1 => stat(&group, "hierarchical_memory_limit"),
            Version::V2 => {
                group.ancestors().take_while(|ancestor| ancestor.starts_with(&self.root)).filter_map(of).min()
            }
        };
        limit.filter(|&limit| limit < UNLIMITED_BYTES_MIN)
    }

    /// The groups around this process that have a limit.
    fn own_bounds(&self) -> Option<Vec<Bound>> {
        Some(self.bounds(&self.own_name()?))
    }

    fn bounds(&self, name: &str) -> Vec<Bound> {
        let group = self.group(name);
        let ancestors = group.ancestors().take_while(|ancestor| ancestor.starts_with(&self.root));
        let bounds = ancestors.map(|path| Bound::new(self.version, path));
        bounds.filter(|bound| bound.limit_bytes().is_some()).collect()
    }

    /// The directory of the group of that name. What a container has mounted is its group, whatever the
    /// name.
    fn group(&self, name: &str) -> PathBuf {
        let group = self.root.join(name.trim_start_matches('/'));
        if group.is_dir() { group } else { self.root.clone() }
    }

    /// The file in which the memory controller has yet to be switched on for groups below the root
    /// (version 2): write `+memory`, and `-memory` to undo it.
    pub fn missing_controller(&self) -> Option<PathBuf> {
        let control = self.root.join("cgroup.subtree_control");
        let controllers = fs::read_to_string(&control).unwrap_or_default();
        let is_missing = !controllers.split_whitespace().any(|controller| controller == "memory");
        (self.version == Version::V2 && is_missing).then_some(control)
    }

    /// Where a group of this name would be.
    pub fn group_path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// The group of this process, whether it has a limit or not.
#[derive(Debug)]
pub struct Own {
    version: Version,
    path: PathBuf,
}

impl Own {
    /// It, where one can be found.
    pub fn find() -> Option<Own> {
        let hierarchy = Hierarchy::find().ok()?;
        let path = hierarchy.group(&hierarchy.own_name()?);
        Some(Own { version: hierarchy.version, path })
    }

    /// How many of its processes the kernel has ended for want of memory.
    pub fn killed_count(&self) -> u64 {
        killed_count(&self.path, self.version)
    }
}

/// A group that has a limit, of whoever asks often what is left of it.
#[derive(Debug)]
pub struct Bound {
    version: Version,
    path: PathBuf,
    /// What it held at the last look.
    held_before: Option<u64>,
}

impl Bound {
    /// Those around this process.
    pub fn own() -> Vec<Bound> {
        Hierarchy::find().ok().and_then(|hierarchy| hierarchy.own_bounds()).unwrap_or_default()
    }

    fn new(version: Version, path: &Path) -> Bound {
        Bound { version, path: path.to_owned(), held_before: None }
    }

    /// Its own limit. Above `memory.high` the kernel slows a group down until it holds less: that is no
    /// RAM to count on, either.
    pub fn limit_bytes(&self) -> Option<u64> {
        let files: &[&str] = match self.version {
            Version::V1 => &["memory.limit_in_bytes"],
            Version::V2 => &["memory.max", "memory.high"],
        };
        let limit = files.iter().filter_map(|file| number(&self.path.join(file))).min();
        limit.filter(|&limit| limit < UNLIMITED_BYTES_MIN)
    }

    /// Is less than one part in `share` of it left, or will be at the next look, if it grows on as it
    /// has since the last? Files that nobody has used for a while go at once where memory is wanted.
    ///
    /// *The story:* what fills 1.5 GiB a second filled the last 8 MiB of a small group between two looks.
    pub fn is_nearly_full(&mut self, share: u64) -> bool {
        let (usage, files) = match self.version {
            Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
            Version::V2 => ("memory.current", "inactive_file"),
        };
        let Some((limit, usage)) = self.limit_bytes().zip(number(&self.path.join(usage))) else {
            return false;
        };
        // Asked for only where it matters.
        let files = if usage > limit / 2 { stat(&self.path, files).unwrap_or(0) } else { 0 };
        let held = usage.saturating_sub(files);
        let growth = self.held_before.map_or(0, |before| held.saturating_sub(before));
        self.held_before = Some(held);
        held + growth.min(limit / share) > limit - limit / share
    }
}

/// The limit around this process, if there is one that can be found: see
/// [`Hierarchy::own_limit_bytes`].
pub fn own_limit_bytes() -> Option<u64> {
    Hierarchy::find().ok()?.own_limit_bytes()
}

impl Group {
    /// Makes a group, or says which permission is missing.
    pub fn create(hierarchy: &Hierarchy, name: &str, limit: Limit) -> Result<Group> {
        let path = hierarchy.group_path(name);
        fs::create_dir(&path).with_context(|| format!("cannot make the memory cgroup {}", path.display()))?;
        let group = Group { version: hierarchy.version, path };
        group.limit(limit)?;
        Ok(group)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn limit(&self, limit: Limit) -> Result<()> {
        match self.version {
            Version::V1 => self.limit_v1(limit),
            Version::V2 => self.limit_v2(limit),
        }
    }

    fn limit_v1(&self, limit: Limit) -> Result<()> {
        match limit {
            Limit::None => self.write("memory.swappiness", "0"),
            Limit::Swapping(bytes) => self.write("memory.limit_in_bytes", &bytes.to_string()),
            Limit::Fenced(bytes) => {
                self.write("memory.limit_in_bytes", &bytes.to_string())?;
                self.write("memory.memsw.limit_in_bytes", &bytes.to_string())
            }
        }
    }

    fn limit_v2(&self, limit: Limit) -> Result<()> {
        match limit {
            Limit::None => self.write("memory.swap.max", "0"),
            Limit::Swapping(bytes) => self.write("memory.max", &bytes.to_string()),
            Limit::Fenced(bytes) => {
                self.write("memory.max", &bytes.to_string())?;
                self.write("memory.swap.max", "0")
            }
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// The file that a process writes `0` to in order to enter the group.
    pub fn entrance(&self) -> Result<OwnedFd> {
        let path = self.path.join("cgroup.procs");
        let file = fs::OpenOptions::new().write(true).open(&path);
        Ok(file.with_context(|| format!("cannot open {}", path.display()))?.into())
    }

    /// The most memory of all kinds that the group held at once; 0 where the kernel does not tell
    /// (version 2 before 5.19).
    pub fn peak_bytes(&self) -> u64 {
        let file = if self.version == Version::V1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        number(&self.path.join(file)).unwrap_or(0)
    }

    /// How many of its processes the kernel killed because the group was full.
    pub fn killed_count(&self) -> u64 {
        killed_count(&self.path, self.version)
    }
}

fn killed_count(group: &Path, version: Version) -> u64 {
    let file = if version == Version::V1 { "memory.oom_control" } else { "memory.events" };
    keyed(&group.join(file), "oom_kill").unwrap_or(0)
}

/// Kills everything in the group at `path` and removes it. A group that is not there is a success.
pub fn remove(path: &Path) -> Result<()> {
    let deadline = Instant::now() + REMOVAL_TIME_MAX;
    let mut pause = Duration::from_millis(1);
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("cannot remove the cgroup {}", path.display()));
            }
            Err(_) => kill_all(path),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

fn kill_all(path: &Path) {
    if fs::write(path.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()).filter(|&pid: &i32| pid > 0) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// A group name that nobody else uses.
pub fn unique_name(serial: u32) -> String {
    format!("overspill-{}-{serial}", std::process::id())
}

fn own_path(groups: &str, version: Version) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = match version {
            Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
            Version::V2 => controllers.is_empty(),
        };
        ours.then_some(path)
    })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn stat(group: &Path, key: &str) -> Option<u64> {
    keyed(&group.join("memory.stat"), key)
}

fn keyed(path: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Refuses early, with the reason, what would fail later for want of privileges.
pub fn require_root(command: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!("`overspill {command}` needs root for its cgroup and its temporary swap: run it as root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_found_by_its_controller() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n";
        let found = Hierarchy::among(mounts).unwrap();
        assert_eq!(found, Hierarchy { version: Version::V1, root: "/sys/fs/cgroup/memory".into() });
        assert_eq!(Hierarchy::among("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn version_2_is_found_by_its_controllers_file() {
        let root = std::env::temp_dir().join(format!("overspill-cgroup2-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", root.display());
        let hierarchy = Hierarchy::among(&mounts).unwrap();
        assert_eq!(hierarchy.version, Version::V2);
        let control = root.join("cgroup.subtree_control");
        assert_eq!(hierarchy.missing_controller(), Some(control.clone()));
        fs::write(control, "cpu memory\n").unwrap();
        assert_eq!(hierarchy.missing_controller(), None);

        // The files are those of the kernel's interface; a plain directory takes the same writes.
        let group = root.join("g");
        fs::create_dir(&group).unwrap();
        for file in ["memory.max", "memory.swap.max", "memory.peak"] {
            fs::write(group.join(file), "max").unwrap();
        }
        let group = Group { version: Version::V2, path: group };
        group.limit(Limit::Fenced(4096)).unwrap();
        assert_eq!(number(&group.path.join("memory.max")), Some(4096));
        assert_eq!(number(&group.path.join("memory.swap.max")), Some(0));
        assert_eq!(group.peak_bytes(), 0);
        fs::remove_dir_all(root).unwrap();
    }

    /// The files are those of the kernel's interface; a plain directory shows the same.
    #[test]
    fn the_limit_is_the_least_of_all_groups_above() {
        let root = std::env::temp_dir().join(format!("overspill-limits-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        let put = |file: &str, text: &str| fs::write(root.join(file), text).unwrap();
        let second = Hierarchy { version: Version::V2, root: root.clone() };
        assert_eq!(second.limit_bytes("/a/b"), None);
        put("a/b/memory.max", "max\n");
        put("a/memory.max", "8192\n");
        assert_eq!(second.limit_bytes("/a/b"), Some(8192));
        put("a/b/memory.max", "4096\n");
        assert_eq!((second.limit_bytes("/a/b"), second.limit_bytes("/a")), (Some(4096), Some(8192)));
        put("a/memory.high", "2048\n");
        assert_eq!(second.limit_bytes("/a/b"), Some(2048));
        put("a/memory.high", "max\n");
        // In a container the name is the host's, and the mounted root is its own group.
        put("memory.max", "1024\n");
        assert_eq!(second.limit_bytes("/docker/0815"), Some(1024));

        let first = Hierarchy { version: Version::V1, root: root.clone() };
        assert_eq!(first.limit_bytes("/a"), None);
        put("a/memory.stat", "cache 0\nhierarchical_memory_limit 12288\ntotal_cache 0\n");
        assert_eq!(first.limit_bytes("/a"), Some(12288));
        put("a/memory.stat", "hierarchical_memory_limit 9223372036854771712\n");
        assert_eq!(first.limit_bytes("/a"), None, "that is the kernel's word for none");
        fs::remove_dir_all(root).unwrap();
    }

    /// *The story:* what the tree's books said was taken for what the group held. A fork's copy stands
    /// there in full, and others in the group do not stand there at all.
    #[test]
    fn what_a_group_has_left_is_what_it_says() {
        let root = std::env::temp_dir().join(format!("overspill-bounds-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        let put = |file: &str, text: &str| fs::write(root.join(file), text).unwrap();
        let hierarchy = Hierarchy { version: Version::V2, root: root.clone() };
        put("a/b/memory.max", "max\n");
        assert!(hierarchy.bounds("/a/b").is_empty());
        put("a/memory.max", "16000\n");
        let mut bounds = hierarchy.bounds("/a/b");
        assert_eq!(bounds.len(), 1);
        let mut is_full = || bounds[0].is_nearly_full(16);
        assert!(!is_full(), "nobody says what it holds");
        put("a/memory.current", "15000\n");
        assert!(!is_full());
        put("a/memory.current", "15500\n");
        assert!(is_full() && is_full());
        put("a/memory.stat", "anon 15000\ninactive_file 499\n");
        assert!(is_full());
        put("a/memory.stat", "anon 15000\ninactive_file 500\n");
        assert!(!is_full());
        put("a/memory.high", "15500\n");
        assert!(is_full());
        put("a/memory.high", "max\n");
        put("a/memory.stat", "anon 13500\ninactive_file 2000\n");
        assert!(!is_full());
        put("a/memory.current", "16300\n");
        assert!(is_full() && !is_full(), "another 800 would be too much; nothing came since");
        put("a/memory.current", "2000\n");
        assert!(!is_full());
        put("a/memory.current", "15500\n");
        assert!(!is_full(), "in whatever time it was that nobody looked");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_own_group_is_read_from_proc() {
        let groups = "8:pids:/\n4:memory:/a/b\n0::/unified\n";
        assert_eq!(own_path(groups, Version::V1), Some("/a/b"));
        assert_eq!(own_path(groups, Version::V2), Some("/unified"));
    }

    #[test]
    fn removing_what_is_not_there_succeeds() {
        remove(Path::new("/sys/fs/cgroup/overspill-not-there")).unwrap();
    }
}
