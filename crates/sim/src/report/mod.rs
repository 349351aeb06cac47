//! What a sweep is reported as: a table, JSON, one HTML file, a sentence.
//!
//! Everything that is printed is made from integers, so that equal runs give equal bytes.

pub mod explain;
pub mod fold;
pub mod html;
pub mod json;
pub mod table;

use crate::engine::outcome::Outcome;
use crate::sweep::Machine;
use crate::time::Nanos;
use crate::trace::workload::Counted;
use overspill_mm::Vmstat;
use overspill_mm::types::PAGE_SIZE;
use serde::Serialize;

/// What all rows of a report have in common; printed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// The trace or load, as typed.
    pub workload: String,
    /// Bytes of its distinct pages.
    pub workload_bytes: u64,
    /// The seed, where the workload has one.
    pub seed: Option<u64>,
    /// log2 of the kernel policies' largest window.
    pub page_cluster: u8,
    /// Processors; 0 = one for each thread.
    pub processors: u32,
    /// What counts as a page each, whatever its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// The trace does not say what its times count: misses count, not times.
    #[serde(skip_serializing_if = "is_false")]
    pub has_no_unit: bool,
    /// The compressed pool of live systems, as typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The version of the program.
    pub version: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// One combination and its figures. Units are in the names; counters have the kernel's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// RAM.
    pub ram_bytes: u64,
    /// RAM in thousandths of the workload's pages.
    pub ram_permille: u64,
    /// Read-ahead policy.
    pub readahead: String,
    /// Device.
    pub device: String,
    /// System.
    pub policy: String,
    /// Time of the whole run.
    pub elapsed_ns: Nanos,
    /// Accesses simulated.
    pub accesses: u64,
    /// Faults that found their page in the swap cache, perhaps still on its way.
    pub faults_soft: u64,
    /// Faults that had to read: the kernel's `pgmajfault`.
    pub faults_major: u64,
    /// First touches.
    pub faults_first: u64,
    /// Pages read from swap.
    pub pswpin: u64,
    /// Pages written to swap.
    pub pswpout: u64,
    /// Pages that came from the compressed pool, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zswpin: Option<u64>,
    /// Pages that went into it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zswpout: Option<u64>,
    /// Pages that went from it to swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zswpwb: Option<u64>,
    /// Pages read ahead.
    pub swap_ra: u64,
    /// Of those, pages that were used.
    pub swap_ra_hit: u64,
    /// Evicted pages that were read again, for a fault or ahead of one.
    pub workingset_refault_anon: u64,
    /// What reclaim did.
    #[serde(flatten)]
    pub reclaim: Reclaim,
    /// Median latency of all faults.
    pub fault_p50_ns: Nanos,
    /// 99th percentile.
    pub fault_p99_ns: Nanos,
    /// The longest.
    pub fault_max_ns: Nanos,
    /// Time that threads waited for faults, all together.
    pub stalled_ns: Nanos,
    /// Share of the time in which the device was busy, in thousandths.
    pub device_busy_permille: u64,
    /// Processor time of the pager.
    pub pager_ns: Nanos,
    /// Most bytes held at once, but for those of the compressed pool.
    pub resident_bytes_max: u64,
}

/// Counters of reclaim, in JSON alone (specification 5.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Reclaim {
    /// Faults, of every kind.
    pub pgfault: u64,
    /// Faults that had to wait for a frame.
    pub allocstall: u64,
    /// Times that room was made that no fault waited for.
    pub pageoutrun: u64,
    /// Pages looked at to make room that no fault waited for.
    pub pgscan_kswapd: u64,
    /// Pages looked at while a fault waited.
    pub pgscan_direct: u64,
    /// Pages freed that were looked at when no fault waited.
    pub pgsteal_kswapd: u64,
    /// Pages freed that were looked at while a fault waited.
    pub pgsteal_direct: u64,
    /// Active pages looked at.
    pub pgrefill: u64,
    /// Pages that became active.
    pub pgactivate: u64,
    /// Pages that became inactive.
    pub pgdeactivate: u64,
    /// Pages whose write reclaim began.
    pub nr_vmscan_write: u64,
    /// Evicted pages that came back active.
    pub workingset_activate_anon: u64,
}

impl Reclaim {
    fn of(vmstat: &Vmstat) -> Reclaim {
        Reclaim {
            pgfault: vmstat.pgfault,
            allocstall: vmstat.allocstall,
            pageoutrun: vmstat.pageoutrun,
            pgscan_kswapd: vmstat.pgscan_kswapd,
            pgscan_direct: vmstat.pgscan_direct,
            pgsteal_kswapd: vmstat.pgsteal_kswapd,
            pgsteal_direct: vmstat.pgsteal_direct,
            pgrefill: vmstat.pgrefill,
            pgactivate: vmstat.pgactivate,
            pgdeactivate: vmstat.pgdeactivate,
            nr_vmscan_write: vmstat.nr_vmscan_write,
            workingset_activate_anon: vmstat.workingset_activate_anon,
        }
    }
}

impl Row {
    /// The row of `machine`.
    #[must_use]
    pub fn new(machine: &Machine, workload_bytes: u64, outcome: &Outcome) -> Row {
        let faults = outcome.faults();
        let vmstat = &outcome.vmstat;
        let pool = outcome.pool.map(|pool| pool.totals);
        Row {
            ram_bytes: machine.ram_bytes,
            ram_permille: crate::time::permille(machine.ram_bytes, workload_bytes),
            readahead: machine.readahead.clone(),
            device: machine.device.name.clone(),
            policy: machine.policy_name(),
            elapsed_ns: outcome.elapsed_ns,
            accesses: outcome.accesses,
            faults_soft: outcome.soft_faults(),
            faults_major: outcome.major_faults(),
            faults_first: outcome.fill.count(),
            pswpin: vmstat.pswpin,
            pswpout: vmstat.pswpout,
            zswpin: pool.map(|totals| totals.loaded),
            zswpout: pool.map(|totals| totals.stored),
            zswpwb: pool.map(|totals| totals.written_back),
            swap_ra: vmstat.swap_ra,
            swap_ra_hit: vmstat.swap_ra_hit,
            workingset_refault_anon: vmstat.workingset_refault_anon,
            reclaim: Reclaim::of(vmstat),
            fault_p50_ns: faults.quantile_ns(500),
            fault_p99_ns: faults.quantile_ns(990),
            fault_max_ns: faults.max_ns(),
            stalled_ns: outcome.stalled_ns(),
            device_busy_permille: outcome.device.busy_permille(outcome.elapsed_ns),
            pager_ns: outcome.pager_ns,
            resident_bytes_max: outcome.frames_max * PAGE_SIZE,
        }
    }

    /// The combination without its RAM: what a curve is drawn for.
    #[must_use]
    pub fn series(&self) -> (String, String, String) {
        (self.readahead.clone(), self.device.clone(), self.policy.clone())
    }
}

#[cfg(test)]
pub(crate) fn sample(ram_bytes: u64, readahead: &str, elapsed_ns: Nanos) -> Row {
    Row {
        ram_bytes,
        ram_permille: ram_bytes / 1_000_000,
        readahead: readahead.to_owned(),
        device: "nvme".to_owned(),
        policy: "live".to_owned(),
        elapsed_ns,
        accesses: 1000,
        faults_soft: 10,
        faults_major: 20,
        faults_first: 30,
        pswpin: 100,
        pswpout: 200,
        zswpin: None,
        zswpout: None,
        zswpwb: None,
        swap_ra: 80,
        swap_ra_hit: 60,
        workingset_refault_anon: 20,
        reclaim: Reclaim { pgfault: 60, pgscan_direct: 70, ..Reclaim::default() },
        fault_p50_ns: 47_000,
        fault_p99_ns: 300_000,
        fault_max_ns: 900_000,
        stalled_ns: 1_000_000,
        device_busy_permille: 421,
        pager_ns: 5_000,
        resident_bytes_max: ram_bytes,
    }
}
