//! The launcher's end of the memory that it shares with the agents: a memfd that it writes the configuration into and
//! reads the counters from.
//!
//! The launcher never maps it: it reads and writes the file at the offsets of the fields, so that nothing another process
//! does to the memory can be undefined behaviour here. The descriptor closes on exec; agents reach it by way of
//! `/proc/PID/fd/FD`, which needs the same user and no more.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};
use overspill_engine::shared::{
    Config, Counters, LATENCY_BUCKETS, MAGIC, PLACES_MAX, PROCESSES, Process, Shared, VERSION, flags, state,
};
use overspill_engine::trace;

use crate::histogram::Histogram;

/// What the launcher tells the agents: the fields of [`Config`] that vary.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Settings<'a> {
    /// The budget.
    pub ram_bytes: u64,
    /// Bound of the swap area; 0 = none.
    pub swap_bytes_max: u64,
    /// `--page-cluster`; `u32::MAX` = not given.
    pub page_cluster: u32,
    /// Bits of [`overspill_engine::shared::flags`].
    pub flags: u32,
    /// Number of the read-ahead policy.
    pub readahead: u32,
    /// `--max-pool-percent`.
    pub max_pool_percent: u32,
    /// The places to spill to, as `SwapPlace::encode` writes them.
    pub swap_places: Cow<'a, [u8]>,
}

/// What an agent has reported.
pub struct Report {
    /// The process.
    pub pid: u32,
    /// A value of [`overspill_engine::shared::state`].
    pub state: u32,
    /// Bits of [`overspill_engine::shared::events`].
    pub events: u32,
    /// Bits of [`overspill_engine::shared::paths`].
    pub paths: u32,
    /// errno behind its failure.
    pub error: u32,
    /// The step that failed.
    pub error_step: u32,
    /// Every counter by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Latency of soft faults.
    pub soft: Histogram,
    /// Latency of major faults.
    pub major: Histogram,
}

impl Report {
    /// A counter by name.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.counters.iter().find(|(own, _)| *own == name);
        found.expect("counters are asked for by the names that shared.rs declares").1
    }
}

/// The shared memory.
pub struct SharedPage {
    file: File,
}

impl SharedPage {
    /// Makes the memory and writes the configuration into it.
    pub fn new(settings: &Settings<'_>) -> io::Result<SharedPage> {
        let memfd: OwnedFd = memfd_create(c"overspill", MFdFlags::MFD_CLOEXEC)?;
        let file = File::from(crate::os::inherit::moved_up(memfd));
        let traces = settings.flags & flags::TRACE != 0;
        file.set_len(if traces { trace::ring_offset(PROCESSES) } else { size_of::<Shared>() } as u64)?;
        file.write_all_at(&config_bytes(settings)?, offset_of!(Shared, config) as u64)?;
        Ok(SharedPage { file })
    }

    /// The memory of another launcher, by its [`SharedPage::address`].
    pub fn open(address: &str) -> io::Result<SharedPage> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let (launcher, descriptor) = address.split_once(':').ok_or_else(invalid)?;
        let (launcher, descriptor): (u32, u32) =
            launcher.parse().ok().zip(descriptor.parse().ok()).ok_or_else(invalid)?;
        Ok(SharedPage { file: File::open(format!("/proc/{launcher}/fd/{descriptor}"))? })
    }

    /// The value of [`overspill_engine::shared::ENV`] that leads the agents here.
    pub fn address(&self) -> String {
        format!("{}:{}", std::process::id(), self.file.as_raw_fd())
    }

    /// The memory, for whoever drains the rings in it.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// What the launcher told.
    pub fn settings(&self) -> io::Result<Settings<'static>> {
        let mut bytes = vec![0; size_of::<Config>()];
        self.file.read_exact_at(&mut bytes, offset_of!(Shared, config) as u64)?;
        let places = &bytes[offset_of!(Config, swap_places)..][..PLACES_MAX];
        // Each path ends with a NUL, and nothing follows the last.
        let end = places.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 2);
        let places = &places[..end];
        let fields = Fields(&bytes);
        Ok(Settings {
            ram_bytes: fields.u64(offset_of!(Config, ram_bytes)),
            swap_bytes_max: fields.u64(offset_of!(Config, swap_bytes_max)),
            page_cluster: fields.u32(offset_of!(Config, page_cluster)),
            flags: fields.u32(offset_of!(Config, flags)),
            readahead: fields.u32(offset_of!(Config, readahead)),
            max_pool_percent: fields.u32(offset_of!(Config, max_pool_percent)),
            swap_places: Cow::Owned(places.to_vec()),
        })
    }

    /// What every agent that claimed a slot has reported so far.
    pub fn reports(&self) -> io::Result<Vec<Report>> {
        let mut bytes = vec![0; size_of::<Process>() * PROCESSES];
        self.file.read_exact_at(&mut bytes, offset_of!(Shared, processes) as u64)?;
        let reports = bytes.chunks_exact(size_of::<Process>()).map(|bytes| report(&Fields(bytes)));
        Ok(reports.filter(|report| report.state != state::FREE).collect())
    }
}

fn config_bytes(settings: &Settings<'_>) -> io::Result<Vec<u8>> {
    if settings.swap_places.len() >= PLACES_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    let mut bytes = vec![0; size_of::<Config>()];
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(offset_of!(Config, magic), &MAGIC.to_ne_bytes());
    put(offset_of!(Config, version), &VERSION.to_ne_bytes());
    put(offset_of!(Config, page_cluster), &settings.page_cluster.to_ne_bytes());
    put(offset_of!(Config, ram_bytes), &settings.ram_bytes.to_ne_bytes());
    put(offset_of!(Config, swap_bytes_max), &settings.swap_bytes_max.to_ne_bytes());
    put(offset_of!(Config, flags), &settings.flags.to_ne_bytes());
    put(offset_of!(Config, readahead), &settings.readahead.to_ne_bytes());
    put(offset_of!(Config, max_pool_percent), &settings.max_pool_percent.to_ne_bytes());
    put(offset_of!(Config, swap_places), &settings.swap_places);
    Ok(bytes)
}

/// The bytes of a structure.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().expect("four bytes were cut"))
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.0[offset..offset + 8].try_into().expect("eight bytes were cut"))
    }

    fn histogram(&self, offset: usize) -> Histogram {
        let mut counts = [0; LATENCY_BUCKETS];
        counts.iter_mut().enumerate().for_each(|(index, count)| *count = self.u64(offset + index * 8));
        Histogram::from_counts(counts)
    }
}

fn report(fields: &Fields<'_>) -> Report {
    // The counters are one u64 after another; their names come in the same order from an empty set of them.
    let counters = Counters::default();
    let names = counters.each().map(|(name, _)| name);
    let offset = offset_of!(Process, counters);
    Report {
        pid: fields.u32(offset_of!(Process, pid)),
        state: fields.u32(offset_of!(Process, state)),
        events: fields.u32(offset_of!(Process, events)),
        paths: fields.u32(offset_of!(Process, paths)),
        error: fields.u32(offset_of!(Process, error)),
        error_step: fields.u32(offset_of!(Process, error_step)),
        counters: names.enumerate().map(|(index, name)| (name, fields.u64(offset + index * 8))).collect(),
        soft: fields.histogram(offset_of!(Process, soft_latency)),
        major: fields.histogram(offset_of!(Process, major_latency)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings<'static> = Settings {
        ram_bytes: 100 << 20,
        swap_bytes_max: 0,
        page_cluster: 3,
        flags: 5,
        readahead: 1,
        max_pool_percent: 40,
        swap_places: Cow::Borrowed(b"d0:0:/var/tmp\0"),
    };

    #[test]
    fn an_unclaimed_page_reports_nothing() {
        assert!(SharedPage::new(&SETTINGS).unwrap().reports().unwrap().is_empty());
    }

    #[test]
    fn the_configuration_stands_where_agents_look_for_it() {
        let page = SharedPage::new(&SETTINGS).unwrap();
        let mut bytes = vec![0; size_of::<Config>()];
        page.file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..8], b"OVRSPILL");
        assert!(bytes.ends_with(&[0]));
        let places = offset_of!(Config, swap_places);
        assert_eq!(&bytes[places..places + 14], b"d0:0:/var/tmp\0");
        assert_eq!(Fields(&bytes).u64(offset_of!(Config, ram_bytes)), 100 << 20);
        assert_eq!(page.settings().unwrap(), SETTINGS);
    }

    #[test]
    fn a_claimed_slot_is_read_back_by_name() {
        let page = SharedPage::new(&SETTINGS).unwrap();
        let slot = (offset_of!(Shared, processes) + size_of::<Process>() * 2) as u64;
        let put = |offset: usize, value: &[u8]| page.file.write_all_at(value, slot + offset as u64).unwrap();
        put(offset_of!(Process, state), &state::MANAGING.to_ne_bytes());
        put(offset_of!(Process, pid), &77u32.to_ne_bytes());
        put(offset_of!(Process, counters) + offset_of!(Counters, pswpin), &123u64.to_ne_bytes());
        put(offset_of!(Process, major_latency) + 80, &9u64.to_ne_bytes());
        let reports = SharedPage::open(&page.address()).unwrap().reports().unwrap();
        assert!(SharedPage::open("1").is_err() && SharedPage::open("x:3").is_err());
        assert_eq!(reports.len(), 1);
        assert_eq!(
            (reports[0].pid, reports[0].counter("pswpin"), reports[0].counter("pswpout")),
            (77, 123, 0)
        );
        assert_eq!(reports[0].major.latency().count, 9);
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        let path = [b'a'; PLACES_MAX];
        assert!(SharedPage::new(&Settings { swap_places: Cow::Borrowed(&path), ..SETTINGS }).is_err());
    }
}
