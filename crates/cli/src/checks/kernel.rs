//! What the kernel offers and permits: its version, userfaultfd and its features, io_uring, PAGEMAP_SCAN, seccomp.

use nix::unistd::{AccessFlags, access};

use super::Check;
use crate::machine::{first_line, kernel_release};

/// The oldest kernel that the agent starts on, and the first that can move pages.
const OLDEST: (u32, u32) = (5, 11);
const MOVES_PAGES: (u32, u32) = (6, 8);
/// Bit of CAP_SYS_PTRACE in the capability sets of /proc/PID/status.
const CAP_SYS_PTRACE: u32 = 19;

/// Without these nothing can be managed.
pub fn essential() -> Vec<Check> {
    vec![version(), userfaultfd()]
}

/// Everything here.
pub fn all() -> Vec<Check> {
    vec![version(), userfaultfd(), io_uring(), seccomp()]
}

fn version() -> Check {
    const NAME: &str = "kernel";
    let release = kernel_release();
    match parse_version(&release) {
        None => Check::warn(
            NAME,
            format!("`{release}` is not a version number"),
            "nothing, if the other checks pass",
        ),
        Some(version) if version < OLDEST => Check::fail(
            NAME,
            format!("{release} is too old: userfaultfd needs 5.11"),
            "a kernel of 6.8 or later",
        ),
        Some(version) if version < MOVES_PAGES => Check::warn(
            NAME,
            format!("{release} cannot move pages (6.8 can): evicting takes three steps instead of one"),
            "a kernel of 6.8 or later",
        ),
        Some(_) => Check::ok(NAME, release),
    }
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn userfaultfd() -> Check {
    const NAME: &str = "userfaultfd";
    if has_capability(CAP_SYS_PTRACE) {
        return Check::ok(NAME, "permitted by CAP_SYS_PTRACE");
    }
    let device = access("/dev/userfaultfd", AccessFlags::R_OK | AccessFlags::W_OK).is_ok();
    if device {
        return Check::ok(NAME, "permitted by /dev/userfaultfd");
    }
    match first_line("/proc/sys/vm/unprivileged_userfaultfd").as_deref() {
        Some("1") => Check::ok(NAME, "permitted by vm.unprivileged_userfaultfd"),
        Some(_) => {
            Check::fail(NAME, "not permitted for this user", "sudo sysctl -w vm.unprivileged_userfaultfd=1")
        }
        None => Check::fail(NAME, "the kernel has none", "a kernel built with CONFIG_USERFAULTFD"),
    }
}

fn has_capability(bit: u32) -> bool {
    status_field("CapEff")
        .and_then(|hex| u64::from_str_radix(&hex, 16).ok())
        .is_some_and(|set| set >> bit & 1 == 1)
}

fn status_field(key: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_string()))
}

fn io_uring() -> Check {
    const NAME: &str = "io_uring";
    let fix = "sudo sysctl -w kernel.io_uring_disabled=0";
    match first_line("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("2") => Check::warn(NAME, "switched off: threads do the I/O instead, slower", fix),
        Some("1") if !has_capability(21) => Check::warn(NAME, "switched off for this user", fix),
        _ => Check::ok(NAME, "available"),
    }
}

fn seccomp() -> Check {
    const NAME: &str = "seccomp";
    match status_field("Seccomp").as_deref() {
        Some("2") => Check::warn(
            NAME,
            "a filter is active and may refuse userfaultfd or io_uring to the program",
            "if the lines above fail: docker run --security-opt seccomp=unconfined, or a profile that allows them",
        ),
        _ => Check::ok(NAME, "no filter"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_versions() {
        assert_eq!(parse_version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_version("5.10.0-8-amd64"), Some((5, 10)));
        assert_eq!(parse_version("next"), None);
    }
}
