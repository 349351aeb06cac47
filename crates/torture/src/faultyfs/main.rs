//! `overspill-faultyfs DIR [options]`: a file system in memory that fails when told to, for tests
//! of what happens when a swap file cannot be written or read. Linux mounts it through /dev/fuse,
//! so the errors come from real system calls.
//!
//! Runs until its standard input ends or it is killed; says `ready` when mounted. Needs root.

mod files;
mod protocol;

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;

use files::{Faults, Files};

const USAGE: &str = "usage: overspill-faultyfs DIR [--capacity BYTES] [--quota BYTES] \
                     [--fail-writes-after BYTES] \
                     [--fail-reads-after BYTES] [--bad-block-every N] [--delay-us N] \
                     [--short-reads-every N] [--short-writes-every N] \
                     [--flip-reads-after BYTES] [--misplace-reads-after BYTES] \
                     [--forget-writes-after BYTES] [--tear-writes-after BYTES] \
                     [--busy-after BYTES --busy-ms N] [--device PATH]
       mounts a file system in memory on DIR that is full after --capacity bytes (ENOSPC), or
       after --quota bytes were written, whatever room it says there is, whose
       writes or reads fail (EIO) after so many bytes, or reads in every N-th block of a file; of
       every N-th read or write of several blocks it does the first half, as a file system may, and
       all take --delay-us; after so many bytes it lies: a bit of each block is turned, other blocks
       are brought, writes are done not at all or by halves;
       for --busy-ms it says that it cannot just now (EAGAIN, ENOMEM); until standard input ends;
       with --device it says that it is on that block device, and where there a file's blocks
       lie (FIBMAP): pieces of 67, with gaps between them";

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Err(complaint) => {
            eprintln!("overspill-faultyfs: {complaint}\n{USAGE}");
            ExitCode::from(2)
        }
        Ok((directory, device, faults)) => match serve(&directory, device.as_deref(), faults) {
            Ok(()) => ExitCode::SUCCESS,
            Err(complaint) => {
                eprintln!("overspill-faultyfs: {complaint}");
                ExitCode::FAILURE
            }
        },
    }
}

type Parsed = (PathBuf, Option<String>, Faults);

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Parsed, String> {
    let directory = PathBuf::from(arguments.next().ok_or("which directory?")?);
    let (mut faults, mut device) = (Faults::default(), None);
    while let Some(option) = arguments.next() {
        if option == "--device" {
            device = Some(arguments.next().ok_or("--device needs a path")?);
            continue;
        }
        let value = arguments.next().and_then(|text| text.parse().ok());
        let value: u64 = value.ok_or_else(|| format!("{option} needs a number"))?;
        match option.as_str() {
            "--capacity" => faults.capacity_bytes = value,
            "--quota" => faults.quota_bytes = value,
            "--fail-writes-after" => faults.written_bytes_max = value,
            "--fail-reads-after" => faults.read_bytes_max = value,
            "--bad-block-every" => faults.bad_block_every = value,
            "--flip-reads-after" => faults.flip_reads_after = value,
            "--misplace-reads-after" => faults.misplace_reads_after = value,
            "--forget-writes-after" => faults.forget_writes_after = value,
            "--tear-writes-after" => faults.tear_writes_after = value,
            "--short-reads-every" => faults.short_reads_every = value,
            "--short-writes-every" => faults.short_writes_every = value,
            "--delay-us" => faults.delay_us = value,
            "--busy-after" => faults.busy_after = value,
            "--busy-ms" => faults.busy_ms = value,
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok((directory, device, faults))
}

fn serve(directory: &std::path::Path, on: Option<&str>, faults: Faults) -> Result<(), String> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|error| format!("/dev/fuse: {error} (needs root)"))?;
    mount(directory, on, device.as_raw_fd())?;
    let path = c_string(directory);
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        // What comes does not matter, only that it ends; an error ends it as well.
        let _ = std::io::stdin().read_to_end(&mut rest);
        // SAFETY: `path` is a C string; taking away a mount changes no memory.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        std::process::exit(0);
    });
    println!("ready");
    protocol::answer_all(&device, &mut Files::new(faults)).map_err(|error| format!("/dev/fuse: {error}"))
}

fn mount(directory: &std::path::Path, on: Option<&str>, device: i32) -> Result<(), String> {
    let mut options = format!("fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,max_read=1048576");
    let kind = if on.is_some() { c"fuseblk" } else { c"fuse" };
    if on.is_some() {
        options.push_str(",blksize=4096");
    }
    let source =
        CString::new(on.unwrap_or("overspill-faultyfs")).expect("words of a command line have no NUL");
    let options = CString::new(options).expect("no NUL inside");
    let path = c_string(directory);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: four C strings that live until the call returns.
    let result =
        unsafe { libc::mount(source.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("mount on {}: {error} (needs root)", directory.display()));
    }
    Ok(())
}

fn c_string(path: &std::path::Path) -> CString {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).expect("a path that came by the command line has no NUL")
}
