//! What is around the program: the agent's library, the launcher's shared memory, limits of the
//! cgroup and of the user, and settings of the machine's memory.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use overspill_engine::shared::ENV;
use overspill_sys::idle::WakeLatency;

use super::Check;
use crate::cgroup::Hierarchy;
use crate::human;
use crate::idle::Idle;
use crate::machine::{chosen, first_line, ram_bytes};
use crate::run::launch::agent::Agent;
use crate::run::shared_page::{Settings, SharedPage};

const AGENT: &str = "agent";
/// A budget that a trial program stays far below.
const TRIAL_BYTES: u64 = 1 << 30;
/// How long it lives.
const TRIAL_TIME: Duration = Duration::from_millis(50);

/// Locked memory that io_uring's buffers may need on kernels that count it.
const LOCKED_BYTES_LOW: u64 = 8 << 20;

/// Everything here.
pub fn all() -> Vec<Check> {
    vec![
        proc_is_there(),
        shared_memory(),
        agent_reports(),
        locked_memory(),
        overcommit(),
        huge_pages(),
        idle_processors(),
        cgroup_limit(),
    ]
}

/// The agent's library, ready to be loaded: the check that `run` makes.
pub fn agent() -> Result<Agent, Check> {
    let mend = "TMPDIR=DIR with a directory that you may write to, and OVERSPILL_PRELOAD unset";
    Agent::ready().map_err(|error| Check::fail(AGENT, format!("{error:#}"), mend))
}

/// Whether the agent also loads into a program and reports from there.
fn agent_reports() -> Check {
    let agent = match agent() {
        Ok(agent) => agent,
        Err(check) => return check,
    };
    let shown = agent.describe();
    let reports = page().and_then(|page| {
        let mut child = reaching_child(&page)?;
        child.env("LD_PRELOAD", agent.path()).env(ENV, page.address());
        let output = child.output()?;
        Ok((page.reports()?, output))
    });
    match reports {
        Ok((reports, _)) if !reports.is_empty() => Check::ok(AGENT, format!("{shown}: loads and reports")),
        Ok((_, output)) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let why = errors.lines().next().unwrap_or("it never reported from a child");
            Check::fail(
                AGENT,
                format!("{shown}: does not work: {why}"),
                "OVERSPILL_PRELOAD unset, or another agent",
            )
        }
        Err(error) => {
            Check::fail(AGENT, format!("cannot be tried: {error}"), "run doctor outside the sandbox")
        }
    }
}

/// Whether there is a /proc, by which agents and launcher know what processes hold.
///
/// *The story:* without one nobody was limited, and `run --strict` ended with 0.
pub fn proc_is_there() -> Check {
    const NAME: &str = "/proc";
    match std::fs::read("/proc/self/statm") {
        Ok(_) => Check::ok(NAME, "mounted"),
        Err(error) => {
            let detail = format!("what processes hold cannot be read ({})", error.kind());
            Check::fail(NAME, detail, "mount -t proc proc /proc")
        }
    }
}

/// Whether another process of this user can open memory of this one through /proc/PID/fd: hidden
/// /proc mounts forbid it.
fn shared_memory() -> Check {
    const NAME: &str = "shared memory";
    match page().and_then(|page| reaching_child(&page)?.output()) {
        Ok(output) if output.status.success() => Check::ok(NAME, "a child can open it through /proc"),
        Ok(_) => Check::fail(
            NAME,
            "a child cannot open /proc/PID/fd of its parent",
            "mount -o remount,hidepid=0 /proc",
        ),
        Err(error) => {
            Check::fail(NAME, format!("cannot be tried: {error}"), "run doctor outside the sandbox")
        }
    }
}

fn page() -> io::Result<SharedPage> {
    SharedPage::new(&Settings {
        ram_bytes: TRIAL_BYTES,
        swap_places: b"d0:0:/var/tmp\0"[..].into(),
        ..Settings::default()
    })
}

/// This program again, as a child that opens the page.
fn reaching_child(page: &SharedPage) -> io::Result<Command> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["reach", &page.address()]).stdin(Stdio::null());
    Ok(child)
}

/// The other end of [`shared_memory`]: the hidden command `reach PID:FD:TOKEN`.
///
/// *The story:* the token came later, was taken for a part of the descriptor, and the check always
/// failed.
pub fn reach(shared: &str) -> anyhow::Result<u8> {
    let mut parts = shared.split(':');
    let (Some(pid), Some(fd)) = (parts.next(), parts.next()) else { anyhow::bail!("expected PID:FD:TOKEN") };
    std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
    if std::env::var_os(ENV).is_some() {
        std::thread::sleep(TRIAL_TIME); // for the agent to report
    }
    Ok(0)
}

fn locked_memory() -> Check {
    const NAME: &str = "locked memory";
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    if limit == nix::libc::RLIM_INFINITY {
        return Check::ok(NAME, "no limit");
    }
    if limit < LOCKED_BYTES_LOW && !nix::unistd::geteuid().is_root() {
        let found = format!("limit is {}", human::bytes(limit));
        return Check::warn(NAME, found, "ulimit -l 65536, or LimitMEMLOCK= of the service");
    }
    Check::ok(NAME, format!("limit is {}", human::bytes(limit)))
}

fn overcommit() -> Check {
    const NAME: &str = "overcommit";
    match first_line("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("2") => Check::warn(
            NAME,
            "vm.overcommit_memory is 2: programs may be refused memory that would have spilled",
            "sudo sysctl -w vm.overcommit_memory=0",
        ),
        Some(mode) => Check::ok(NAME, format!("vm.overcommit_memory is {mode}")),
        None => Check::ok(NAME, "unknown"),
    }
}

fn huge_pages() -> Check {
    const NAME: &str = "huge pages";
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match first_line(path).as_deref().map(chosen) {
        Some("always") => Check::warn(
            NAME,
            "transparent huge pages are always used: each must be split before a part of it can spill",
            format!("echo madvise | sudo tee {path}"),
        ),
        Some(setting) => Check::ok(NAME, format!("transparent huge pages: {setting}")),
        None => Check::ok(NAME, "the kernel has none"),
    }
}

fn idle_processors() -> Check {
    const NAME: &str = "idle processors";
    let path = "/dev/cpu_dma_latency";
    match WakeLatency::open() {
        Ok(_) if Idle::Auto.polls() => Check::ok(NAME, "kept awake while a program waits for pages"),
        Ok(_) => Check::ok(NAME, "many: they sleep unless `--idle poll` is given"),
        Err(error) => Check::warn(
            NAME,
            format!(
                "{path}: {}: they sleep between the steps of a fault, which makes each one longer",
                super::kernel::text(error)
            ),
            format!("sudo setfacl -m u:$USER:w {path}"),
        )
        .or("run as root")
        .or(format!("in a container: --device {path}")),
    }
}

fn cgroup_limit() -> Check {
    const NAME: &str = "cgroup limit";
    let ram = ram_bytes();
    match Hierarchy::find().ok().and_then(|hierarchy| hierarchy.own_limit_bytes()) {
        Some(limit) if limit < ram => Check::warn(
            NAME,
            format!("this cgroup may use {} of the machine's {}", human::bytes(limit), human::bytes(ram)),
            format!(
                "--ram with less than {}, so that overspill acts before the kernel does",
                human::bytes(limit)
            ),
        ),
        _ => Check::ok(NAME, format!("none below the machine's {}", human::bytes(ram))),
    }
}
