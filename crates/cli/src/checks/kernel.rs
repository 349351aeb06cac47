//! What the kernel offers and permits: its version, userfaultfd and its features, io_uring, PAGEMAP_SCAN, seccomp. Each is
//! tried, not guessed from the version, which only explains.

use overspill_sys::Errno;
use overspill_sys::pagemap::Pagemap;
use overspill_sys::uffd::{Features, Source, Uffd};
use overspill_sys::uring::Ring;

use super::Check;
use crate::machine::kernel_release;

/// The oldest kernel that the agent starts on, and the first that can move pages.
const OLDEST: (u32, u32) = (5, 11);
const MOVES_PAGES: (u32, u32) = (6, 8);
/// Why nothing works inside most containers, and what helps.
const SECCOMP_FIX: &str =
    "docker run --security-opt seccomp=unconfined, or a profile that allows userfaultfd and io_uring";

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
        Err(Errno::NOSYS) if !is_filtered() => {
            Check::fail(NAME, "this kernel has none", "a kernel built with CONFIG_USERFAULTFD")
        }
        Err(_) if is_filtered() => {
            Check::fail(NAME, "refused, most likely by the seccomp filter", SECCOMP_FIX)
        }
        Err(Errno::PERM) => {
            Check::fail(NAME, "not permitted for this user", "sudo sysctl -w vm.unprivileged_userfaultfd=1")
        }
        Err(error) => Check::fail(NAME, format!("refused: {}", text(error)), "run overspill as root"),
    }
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
        Err(_) if is_filtered() => {
            Check::warn(NAME, "refused by the seccomp filter: threads do the I/O", SECCOMP_FIX)
        }
        Err(Errno::PERM) => Check::warn(
            NAME,
            "switched off: threads do the I/O instead",
            "sudo sysctl -w kernel.io_uring_disabled=0",
        ),
        Err(error) => Check::warn(
            NAME,
            format!("not available ({}): threads do the I/O instead", text(error)),
            "a kernel of 5.11 or later with CONFIG_IO_URING",
        ),
    }
}

fn text(error: Errno) -> String {
    std::io::Error::from_raw_os_error(error.raw_os_error()).to_string()
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
    if is_filtered() {
        let found = "a filter is active and may refuse userfaultfd or io_uring to the program";
        return Check::warn(NAME, found, format!("if a line above fails: {SECCOMP_FIX}"));
    }
    Check::ok(NAME, "no filter")
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
