//! The load's shared memory under `overspill run`. The agent manages private memory only, so the
//! load asks the pager library for a region of its own, with the budget, the swap place and the
//! read-ahead that the launcher was given.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use overspill_engine::shared::{ENV, flags};
use overspill_engine::{SwapKind, SwapPlace};
use overspill_pager::{Config, Knobs, NAMES, Pager, Policy};

use crate::os::memory::{PAGE_BYTES, Pages};
use crate::run::shared_page::{Settings, SharedPage};

/// `count` pages and their pager; `None` where the load does not run under overspill.
pub fn under_overspill(count: usize) -> Result<Option<(Pages, Pager)>> {
    let Ok(address) = std::env::var(ENV) else { return Ok(None) };
    let settings = SharedPage::open(&address).and_then(|page| page.settings());
    let settings = settings.context("cannot read what the launcher was given")?;
    let (pages, pager) = manage(&settings, count).context("no shared memory for the load")?;
    Ok(Some((pages, pager)))
}

fn manage(settings: &Settings<'_>, count: usize) -> Result<(Pages, Pager), overspill_pager::Error> {
    let mut knobs = Knobs::default();
    if let Ok(page_cluster) = u8::try_from(settings.page_cluster) {
        knobs.page_cluster = page_cluster;
    }
    let name = NAMES[settings.readahead as usize];
    let policy = Policy::by_name(name, Config { knobs, ..Config::default() });
    // The library spills to a directory.
    let places = SwapPlace::decode(&settings.swap_places);
    let first = places.first().expect("the launcher knows a place");
    let path = Path::new(OsStr::from_bytes(first.path.as_bytes()));
    let is_directory = first.kind == SwapKind::Directory;
    let pager = Pager::builder()
        .ram(settings.ram_bytes)
        .swap(if is_directory { path } else { path.parent().unwrap_or(path) })
        .swap_max(settings.swap_bytes_max)
        .readahead(policy.expect("every listed name makes a policy"))
        .reclaim(overspill_pager::Reclaim::ALL[settings.reclaim as usize])
        .max_pool_percent(settings.max_pool_percent)
        .fixed_pool(settings.flags & flags::FIXED_POOL != 0)
        .use_move(settings.flags & flags::NO_MOVE == 0)
        .use_uring(settings.flags & flags::NO_URING == 0)
        .poll_idle(settings.flags & flags::POLL_IDLE != 0)
        .build()?;
    let region = pager.map_shared(count * PAGE_BYTES)?;
    Ok((Pages::of(region), pager))
}
