//! How a run was ended before it was done, as far as that is told: by a signal, or by the kernel for want of
//! memory.

use super::Report;
use crate::human;
use crate::os::child::signal_name;

/// Shells tell of a signal by this and its number.
const SHELLS_SIGNAL: i32 = 128;
const SIGNALS: i32 = 64;

/// Was the command ended, or somebody whose end it tells, as shells do (128 and the signal's number)?
///
/// *The story:* `sh -c './prog; exit $?'`, where prog was killed, and whatever the kernel ended in a full
/// memory cgroup: "fits".
pub fn killed(report: &Report) -> Option<String> {
    let status = report.status().text();
    let told = report.exit_code.and_then(|code| code.checked_sub(SHELLS_SIGNAL));
    let mut texts = Vec::new();
    if report.signal.is_some() {
        texts.push(format!("{status} before it was done"));
    } else if let Some(signal) = told.filter(|signal| (1..=SIGNALS).contains(signal)) {
        texts.push(format!("{status}, as after {}, before it was done", signal_name(signal)));
    }
    texts.extend(by_kernel(report));
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Whom the kernel ended for want of memory: of a group that has a limit, else of the machine.
pub fn by_kernel(report: &Report) -> Option<String> {
    let kills = report.oom_kills;
    let ended = if kills == 1 { "process" } else { "processes" };
    let what = match report.group_limit_bytes {
        Some(limit) => format!("the memory cgroup ({})", human::bytes(limit)),
        None => "the machine's RAM".into(),
    };
    (kills > 0).then(|| format!("the kernel ended {kills} {ended}, as {what} was full"))
}
