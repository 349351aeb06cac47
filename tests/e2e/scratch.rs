//! Things that must be put away whatever happens: mounts, loop devices, cgroups, directories.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::context::Context;
use crate::launch::MIB;
use crate::{Outcome, ensure, packages};

/// Runs a command of the administrator; its standard output, or what it complained about.
pub fn administer(program: &str, arguments: &[&str]) -> Outcome<String> {
    let path = packages::find(program).ok_or_else(|| format!("there is no {program}"))?;
    let output = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {} (needs root): {}", arguments.join(" "), stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are plain text")
}

/// A file system of a given size on a loop device, mounted: ext4 unless said.
#[derive(Debug)]
pub struct SmallDisk {
    /// Where it is mounted.
    pub directory: PathBuf,
    image: PathBuf,
}

impl SmallDisk {
    /// Makes and mounts it.
    pub fn new(context: &Context, name: &str, mib: u64) -> Outcome<Self> {
        Self::with(context, name, mib, &[])
    }

    /// The same with options for mkfs.
    pub fn with(context: &Context, name: &str, mib: u64, options: &[&str]) -> Outcome<Self> {
        // No journal and no reserved blocks: nearly all of it is for the test.
        let plain = ["-q", "-F", "-m", "0", "-O", "^has_journal"];
        Self::made_by(context, name, mib, "mkfs.ext4", &[&plain, options].concat())
    }

    /// One of xfs, in which files can have blocks in common; mkfs makes none below 300 MiB.
    pub fn xfs(context: &Context, name: &str, mib: u64) -> Outcome<Self> {
        Self::made_by(context, name, mib, "mkfs.xfs", &["-q", "-f", "-m", "reflink=1"])
    }

    fn made_by(context: &Context, name: &str, mib: u64, mkfs: &str, options: &[&str]) -> Outcome<Self> {
        let disk = Self {
            directory: context.path(format!("{name}.mnt")),
            image: context.path(format!("{name}.img")),
        };
        let error = |error: std::io::Error| format!("{name}: {error}");
        std::fs::create_dir_all(&disk.directory).map_err(error)?;
        std::fs::File::create(&disk.image).and_then(|file| file.set_len(mib * MIB)).map_err(error)?;
        administer(mkfs, &[options, &[text(&disk.image)]].concat())?;
        administer("mount", &["-o", "loop", text(&disk.image), text(&disk.directory)])?;
        Ok(disk)
    }

    /// The names in it.
    pub fn names(&self) -> Vec<String> {
        names(&self.directory).into_iter().filter(|name| name != "lost+found").collect()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What fails here was said by the test that left it in use.
        let _ = administer("umount", &["-l", text(&self.directory)]);
        let _ = std::fs::remove_dir(&self.directory);
        let _ = std::fs::remove_file(&self.image);
    }
}

/// A loop device over a file on the disk.
#[derive(Debug)]
pub struct LoopDevice {
    /// Its path.
    pub device: String,
    image: PathBuf,
}

impl LoopDevice {
    /// Makes both; the file is sparse. A loop device that was made read-only stays so, whatever it is over.
    ///
    /// *The story:* a test made one read-only, and the next one that was given that number failed.
    pub fn new(context: &Context, name: &str, mib: u64) -> Outcome<Self> {
        let image = context.path(name);
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(mib * MIB));
        made.map_err(|error| format!("{}: {error}", image.display()))?;
        let device = administer("losetup", &["--find", "--show", &image.to_string_lossy()])?;
        let device = Self { device, image };
        administer("blockdev", &["--setrw", &device.device])?;
        Ok(device)
    }

    /// Bytes that the image takes on its disk.
    pub fn taken_bytes(&self) -> Outcome<u64> {
        taken_bytes(&self.image)
    }
}

/// Bytes that a file takes on its disk.
pub fn taken_bytes(path: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(metadata.blocks() * 512)
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Whoever mounts an image is given this number next.
        let _ = administer("blockdev", &["--setrw", &self.device]);
        // What fails here was said by the test that left it in use.
        let _ = administer("losetup", &["--detach", &self.device]);
        let _ = std::fs::remove_file(&self.image);
    }
}

/// The names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// `overspill-faultyfs`, mounted until this is dropped.
#[derive(Debug)]
pub struct FaultyDisk {
    /// Where it is mounted.
    pub directory: PathBuf,
    server: Child,
}

impl FaultyDisk {
    /// Starts the server and waits until it has mounted.
    pub fn new(context: &Context, name: &str, options: &[&str]) -> Outcome<Self> {
        use std::io::{BufRead, BufReader};
        let directory = context.path(format!("{name}.mnt"));
        std::fs::create_dir_all(&directory).map_err(|error| format!("{name}: {error}"))?;
        let mut server = Command::new(&context.faultyfs)
            .arg(&directory)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", context.faultyfs.display()))?;
        let mut line = String::new();
        let stdout = server.stdout.take().ok_or("no pipe to the file system's server")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        let disk = Self { directory, server };
        ensure!(line == "ready\n", "overspill-faultyfs did not start: it needs root and /dev/fuse");
        Ok(disk)
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// A setting of the kernel's, which is as it was when this is dropped.
#[derive(Debug)]
pub struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    /// Changes it.
    pub fn new(path: &'static str, value: &str) -> Outcome<Self> {
        let error = |error: std::io::Error| format!("{path}: {error} (needs root)");
        let before = std::fs::read_to_string(path).map_err(error)?;
        std::fs::write(path, value).map_err(error)?;
        Ok(Self { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(self.path, &self.before) {
            eprintln!("e2e: {} stays changed: {error}", self.path);
        }
    }
}

/// A memory cgroup, of version 1 or 2, without swap.
#[derive(Debug)]
pub struct MemoryCgroup {
    /// Its directory.
    pub directory: PathBuf,
    version: u32,
}

impl MemoryCgroup {
    /// Makes it with a limit in bytes.
    pub fn new(name: &str, limit_bytes: u64) -> Outcome<Self> {
        let (root, version) = Self::find_hierarchy()?;
        let directory = root.join(format!("overspill-e2e-{name}-{}", std::process::id()));
        let write = |file: &str, value: &str| {
            let path = directory.join(file);
            std::fs::write(&path, value).map_err(|error| format!("{}: {error} (needs root)", path.display()))
        };
        std::fs::create_dir(&directory)
            .map_err(|error| format!("{}: {error} (needs root)", directory.display()))?;
        let cgroup = Self { directory: directory.clone(), version };
        if version == 1 {
            write("memory.limit_in_bytes", &limit_bytes.to_string())?;
            // Swap on top of memory, where the kernel counts it at all.
            let _ = write("memory.memsw.limit_in_bytes", &limit_bytes.to_string());
        } else {
            write("memory.max", &limit_bytes.to_string())?;
            write("memory.swap.max", "0")?;
        }
        Ok(cgroup)
    }

    fn find_hierarchy() -> Outcome<(PathBuf, u32)> {
        let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) =
                (parts.next(), parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
            if controllers.split(',').any(|controller| controller == "memory") {
                let directory = PathBuf::from(format!("/sys/fs/cgroup/memory{path}"));
                let fallback = PathBuf::from("/sys/fs/cgroup/memory");
                return Ok((if directory.exists() { directory } else { fallback }, 1));
            }
        }
        let root = PathBuf::from("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        ensure!(controllers.contains("memory"), "this machine has no memory cgroups");
        let _ = std::fs::write(root.join("cgroup.subtree_control"), "+memory");
        Ok((root, 2))
    }

    /// How often the kernel has killed a process in it for lack of memory.
    pub fn kills(&self) -> Outcome<u64> {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let path = self.directory.join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok())
            .ok_or_else(|| format!("no oom_kill in {}", path.display()))
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("e2e: cannot remove {}", self.directory.display());
    }
}
