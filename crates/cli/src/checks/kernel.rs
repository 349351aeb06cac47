//! What the kernel offers and permits: its version, userfaultfd and its features, io_uring,
//! PAGEMAP_SCAN, seccomp. Each is tried, not guessed from the version, which only explains.
//!
//! Who refuses userfaultfd is told by a second call: with UFFD_USER_MODE_ONLY the kernel itself
//! refuses nobody (since 5.11), so a refusal then comes from a filter. The mend that opens the
//! least is named first.

use overspill_sys::Errno;
use overspill_sys::pagemap::Pagemap;
use overspill_sys::uffd::{Features, Source, Uffd};
use overspill_sys::uring::Ring;

use super::Check;
use crate::machine::kernel_release;

/// The oldest kernel that the agent starts on, and the first that can move pages.
const OLDEST: (u32, u32) = (5, 11);
const MOVES_PAGES: (u32, u32) = (6, 8);
/// Why nothing works inside most containers, and what helps: the project's profile for docker and
/// podman.
const SECCOMP_FIX: &str = "docker run (or podman run) --security-opt seccomp=overspill-seccomp.json";
/// Where that is to be had.
const SECCOMP_PROFILE: &str = "overspill doctor --print seccomp > overspill-seccomp.json, beforehand";
/// The device that gives userfaultfd to whoever may open it (6.1).
const DEVICE: &str = "/dev/userfaultfd";
const SYSCTL_FIX: &str = "sudo sysctl -w vm.unprivileged_userfaultfd=1";
const IO_URING_DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// Without these nothing can be managed.
pub fn essential() -> Vec<Check> {
    vec![version(), userfaultfd()]
}

/// Everything here.
pub fn all() -> Vec<Check> {
    vec![version(), userfaultfd(), features(), page_map(), io_uring(), seccomp()]
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
    match Uffd::open(Features::empty(), false) {
        Ok((uffd, _)) => Check::ok(
            NAME,
            match uffd.source() {
                Source::Device => "permitted by /dev/userfaultfd",
                Source::Syscall | Source::UserMode | Source::Received => "permitted",
            },
        ),
        Err(error) => refused(NAME, error, Uffd::open(Features::empty(), true).err()),
    }
}

/// Why userfaultfd was refused with `error`; `restricted` is what became of the restricted kind,
/// which the kernel gives to everybody.
fn refused(name: &'static str, error: Errno, restricted: Option<Errno>) -> Check {
    match restricted {
        // Where the device is handed in already, only the right to open it is missing.
        None if is_container() && !std::path::Path::new(DEVICE).exists() => {
            let found = format!("{}: this container's user may not have it", text(error));
            Check::fail(name, found, device_fix()).or(format!("{SYSCTL_FIX}, on the host"))
        }
        None => {
            let found =
                format!("{}: this user may not have it (vm.unprivileged_userfaultfd is 0)", text(error));
            by_permission(Check::fail(name, found, narrowest()))
        }
        Some(Errno::NOSYS) if !is_filtered() => Check::fail(
            name,
            format!("{}: this kernel has none", text(error)),
            "a kernel with CONFIG_USERFAULTFD",
        ),
        Some(_) => by_filter(
            Check::fail(name, format!("{}: a seccomp filter refuses it", text(error)), SECCOMP_FIX),
            is_container(),
        ),
    }
}

/// Filters refuse the system call, not the device, which gives the same right: it opens less than
/// another filter does. `check` proposes the profile.
fn by_filter(check: Check, is_container: bool) -> Check {
    let check = match check.fix.clone() {
        Some(profile) if is_container => Check { fix: Some(device_fix()), ..check }.or(profile),
        _ => check,
    };
    check.or(SECCOMP_PROFILE).or("docker run --security-opt seccomp=unconfined, which lifts the whole filter")
}

/// The device, handed into a container.
fn device_fix() -> String {
    format!("docker run (or podman run) --device {DEVICE}")
}

/// The device for this user alone, until the next boot.
fn narrowest() -> String {
    if !std::path::Path::new(DEVICE).exists() {
        return SYSCTL_FIX.into();
    }
    match crate::run::launch::program::find("setfacl".as_ref()) {
        Some(_) => format!("sudo setfacl -m u:$USER:rw {DEVICE}"),
        None => format!("sudo chown $USER {DEVICE}"),
    }
}

/// For good, and for a group of users; then for everybody.
fn by_permission(check: Check) -> Check {
    if !std::path::Path::new(DEVICE).exists() {
        return check;
    }
    let rule = "for good: overspill doctor --print udev | sudo tee /etc/udev/rules.d/60-overspill.rules";
    check.or(rule).or(format!("for everybody: {SYSCTL_FIX}"))
}

fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|path| std::path::Path::new(path).exists())
}

/// What makes paging fast and safe, where the kernel has it.
fn features() -> Check {
    const NAME: &str = "features";
    let Ok(available) = Uffd::available(false) else {
        return Check::warn(NAME, "unknown without userfaultfd", "see above");
    };
    let wanted = [
        (Features::PAGEFAULT_FLAG_WP, "write protection (5.7)"),
        (Features::WP_UNPOPULATED, "write protection of absent pages (6.4)"),
        (Features::POISON, "poisoning of unreadable pages (6.6)"),
        (Features::MOVE, "moving of pages (6.8)"),
    ];
    let missing: Vec<&str> =
        wanted.iter().filter(|(feature, _)| !available.contains(*feature)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Check::ok(NAME, "write protection, poisoning and moving of pages");
    }
    Check::warn(NAME, format!("without {}: slower", missing.join(", ")), "a kernel of 6.8 or later")
}

fn page_map() -> Check {
    const NAME: &str = "page map";
    match Pagemap::open() {
        Ok(map) if map.can_scan() => Check::ok(NAME, "PAGEMAP_SCAN"),
        Ok(_) => {
            Check::warn(NAME, "no PAGEMAP_SCAN (6.7): it is read page by page", "a kernel of 6.8 or later")
        }
        Err(error) => {
            Check::fail(NAME, format!("/proc/self/pagemap: {}", text(error)), "mount -t proc proc /proc")
        }
    }
}

fn io_uring() -> Check {
    const NAME: &str = "io_uring";
    match Ring::best(8, 16) {
        Ok(_) => Check::ok(NAME, "available"),
        Err(Errno::PERM) => match crate::machine::first_line(IO_URING_DISABLED).as_deref() {
            Some("1") => Check::warn(
                NAME,
                "only for a group (kernel.io_uring_disabled is 1): threads do the I/O instead",
                "sudo sysctl -w kernel.io_uring_group=$(id -g)",
            ),
            Some("2") => Check::warn(
                NAME,
                "switched off (kernel.io_uring_disabled is 2): threads do the I/O instead",
                "sudo sysctl -w kernel.io_uring_disabled=0",
            ),
            _ => Check::warn(NAME, "refused by a seccomp filter: threads do the I/O instead", SECCOMP_FIX)
                .or(SECCOMP_PROFILE),
        },
        Err(Errno::NOSYS) if is_filtered() => {
            Check::warn(NAME, "refused by a seccomp filter: threads do the I/O instead", SECCOMP_FIX)
                .or(SECCOMP_PROFILE)
        }
        Err(error) => Check::warn(
            NAME,
            format!("not available ({}): threads do the I/O instead", text(error)),
            "a kernel of 5.11 or later with CONFIG_IO_URING",
        ),
    }
}

/// In the system's words.
pub(super) fn text(error: Errno) -> String {
    nix::errno::Errno::from_raw(error.raw_os_error()).desc().to_string()
}

fn is_filtered() -> bool {
    status_field("Seccomp").as_deref() == Some("2")
}

fn status_field(key: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_string()))
}

fn seccomp() -> Check {
    const NAME: &str = "seccomp";
    let found =
        if is_filtered() { "a filter is active; the lines above say what it refuses" } else { "no filter" };
    Check::ok(NAME, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* every EPERM inside a container was put down to the filter, and outside to the
    /// sysctl that opens it to all.
    #[test]
    fn who_refuses_is_told_by_a_second_call() {
        let by_user = refused("x", Errno::PERM, None);
        if std::path::Path::new(DEVICE).exists() {
            let fix = by_user.fix.unwrap();
            assert!(fix.contains(DEVICE), "{fix}");
            assert!(by_user.other_fixes[0].contains("udev") && by_user.other_fixes[1].contains("sysctl"));
        }
        let by_filter = refused("x", Errno::PERM, Some(Errno::PERM));
        assert!(by_filter.detail.contains("seccomp filter"), "{}", by_filter.detail);
        let first_fix = by_filter.fix.unwrap();
        assert_eq!(first_fix.contains("--device /dev/userfaultfd"), is_container(), "{first_fix}");
        assert!(by_filter.detail.starts_with("Operation not permitted"), "the system's own text comes first");
    }

    /// *The story:* in a container the first mend was a profile that opens userfaultfd and io_uring
    /// to everybody in it, though handing in the device is enough.
    #[test]
    fn in_a_container_the_device_comes_before_the_profile() {
        let check = || Check::fail("x", "refused", SECCOMP_FIX);
        let inside = by_filter(check(), true);
        assert_eq!(inside.fix, Some(device_fix()));
        assert_eq!(inside.other_fixes[..2], [SECCOMP_FIX, SECCOMP_PROFILE]);
        let outside = by_filter(check(), false);
        assert_eq!(outside.fix.as_deref(), Some(SECCOMP_FIX));
        assert_eq!(outside.other_fixes[0], SECCOMP_PROFILE);
    }

    #[test]
    fn releases_are_versions() {
        assert_eq!(parse_version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_version("5.10.0-8-amd64"), Some((5, 10)));
        assert_eq!(parse_version("next"), None);
    }
}
