//! Regions that stand for files are read ahead by the rules of files ([`crate::fileread`]), not by
//! those of swap.
//!
//! The default policy of swap asks this module for the regions of files; the kernel's rules go on
//! as they do for swap. A window is one plan: an answer of several pieces (a strided reader) is cut
//! to those at equal distance. All but the mark are mapped as they arrive, so that a reader is
//! heard of once a window. What a reader has passed goes along with the plan: it is the next to go.
//! What only fills room waits for its touch: who has not been touched is not needed.

use alloc::boxed::Box;

use super::{Mapping, Plan, Touch, Window};
use crate::fileread::adaptive::{Adaptive, Config, File};
use crate::fileread::{Ask, Cause, Extent, Fault, FileRead, MapAdvice, PageCache, Passed, Reads};
use crate::types::{RegionKind, Slot, Vpn};

/// Parts of a region with an advice of their own: the oldest goes where there are more.
const ADVISED: usize = 16;
/// A region of so many times the frames is read around what is wanted at most.
const ROOMY: u64 = 8;

/// What is kept for a region of a file: one reader's memory of it, and what the program has said.
#[derive(Clone, Debug, Default)]
pub struct FileSide {
    reader: Option<Box<Reader>>,
    /// What the program has said of parts of the mapping, the latest last. By slots, which stay
    /// where a region is moved or cut.
    advised: Option<Box<[Option<Advised>; ADVISED]>>,
}

#[derive(Clone, Copy, Debug)]
struct Advised {
    start: u32,
    end: u32,
    advice: MapAdvice,
}

#[derive(Clone, Debug)]
struct Reader {
    policy: Adaptive,
    file: File,
}

/// The states of pages are not the policy's to see: `mm` passes over those that are there.
struct Unseen;

impl PageCache for Unseen {
    fn holds(&self, _: u64) -> bool {
        false
    }
}

/// Is it a region that these rules are for?
pub(super) fn concerns(touch: &Touch) -> bool {
    matches!(touch.kind, RegionKind::File { .. })
}

impl FileSide {
    /// The program says how it will use the pages in these slots. Nothing is forgotten for it.
    pub fn advise(&mut self, start: Slot, end: Slot, advice: MapAdvice) {
        let new = Advised { start: start.0, end: end.0, advice };
        let is_left = |old: &Advised| old.start < new.start || old.end > new.end;
        let mut kept: [Option<Advised>; ADVISED] = [None; ADVISED];
        let before = || self.advised.iter().flat_map(|all| all.iter().flatten()).filter(|old| is_left(old));
        let (all, rest) = (before().count(), before());
        let latest = rest.skip(all.saturating_sub(ADVISED - 1)).chain([&new]);
        kept.iter_mut().zip(latest).for_each(|(place, &advised)| *place = Some(advised));
        self.advised = Some(Box::new(kept));
    }

    fn advice(&self, touch: &Touch) -> MapAdvice {
        let Some(Slot(slot)) = touch.kind.file_slot(touch.vpn) else { return MapAdvice::Normal };
        let mut latest_first = self.advised.iter().flat_map(|all| all.iter().rev().flatten());
        let found = latest_first.find(|advised| (advised.start..advised.end).contains(&slot));
        found.map_or(MapAdvice::Normal, |advised| advised.advice)
    }

    fn reader(&mut self, frames: u32) -> &mut Reader {
        self.reader.get_or_insert_with(|| {
            let config = Config { frames: u64::from(frames), ..Config::default() };
            let mut policy = Adaptive::new(config);
            let file = policy.open();
            Box::new(Reader { policy, file })
        })
    }

    /// A page of the region is missing.
    pub(super) fn miss(&mut self, frames: u32, touch: &Touch) -> Option<Plan> {
        let mut fault = fault(touch, self.advice(touch));
        fault.ask.room = room(frames, touch);
        let mut reads = Reads::new(fault.ask.file_pages);
        let Reader { policy, file } = self.reader(frames);
        policy.fault_missing(file, &fault, &Unseen, &mut reads);
        plan(&reads, touch)
    }

    /// A page of the region was found in RAM, but not in view.
    pub(super) fn cached(&mut self, frames: u32, touch: &Touch) -> Option<Plan> {
        let fault = fault(touch, self.advice(touch));
        let mut reads = Reads::new(fault.ask.file_pages);
        let Reader { policy, file } = self.reader(frames);
        policy.fault_cached(file, &fault, &Unseen, &mut reads);
        plan(&reads, touch)
    }

    /// No more of a plan than the region's own knob says.
    ///
    /// *The story:* that held for swap only. A region of a file whose window was to be 4 pages, or none,
    /// was read by 128 and more.
    pub(super) fn bound(&mut self, plan: Option<Plan>, most: Option<u16>) -> Option<Plan> {
        let Some(whole) = plan else { return plan };
        let Window::Pages { start, stride, count } = whole.window else { return plan };
        let Some(most) = most.map(u32::from).filter(|&most| most < count) else { return plan };
        self.cut_short(&whole, most);
        let place = |vpn: Vpn| (vpn.0 as i64 - start.0 as i64) / stride;
        let is_inside = |vpn: &Vpn| (0..i64::from(most)).contains(&place(*vpn));
        let last = start.offset(stride * i64::from(most - 1));
        let marker = whole.marker.map(|marker| if is_inside(&marker) { marker } else { last });
        Some(Plan { window: Window::Pages { start, stride, count: most }, marker, ..whole })
    }

    /// There was room for the first `covered` pages of a plan only.
    pub(super) fn cut_short(&mut self, plan: &Plan, covered: u32) {
        let Window::Pages { start, stride, .. } = plan.window else { return };
        if let Some(reader) = &mut self.reader {
            let first_out = start.offset(stride * i64::from(covered));
            reader.policy.cut_short(&mut reader.file, first_out.0);
        }
    }

    /// A page that was read ahead went before anybody touched it.
    pub(super) fn unused(&mut self, vpn: Vpn) {
        if let Some(reader) = &mut self.reader {
            reader.policy.unused(&mut reader.file, vpn.0);
        }
    }
}

/// Pages are counted from the start of the address space: a region may be cut and moved, and its
/// readers do not care.
fn fault(touch: &Touch, advice: MapAdvice) -> Fault {
    // Page 0 would be taken for the start of the file.
    let ask = Ask { now: touch.now, ..Ask::new(touch.vpn.0, 1, touch.region_end.0) };
    Fault { ask, advice, marked: touch.marker, arriving: touch.arriving }
}

/// Frames for pages that nobody asked for. Where the region is that much larger than all frames few of
/// its pages are met again.
fn room(frames: u32, touch: &Touch) -> u64 {
    let pages = touch.region_end.0 - touch.region_start.0;
    if pages > ROOMY * u64::from(frames) { 0 } else { touch.room.into() }
}

fn plan(reads: &Reads, touch: &Touch) -> Option<Plan> {
    let (first, rest) = reads.extents().split_first()?;
    if let Some(around) = around(rest, touch) {
        return Some(around);
    }
    let start = Vpn(first.start.max(touch.region_start.0));
    let pages = (first.start + first.pages).saturating_sub(start.0);
    let step = rest.first().map(|second| second.start as i64 - first.start as i64);
    let window = match step {
        Some(step) if first.pages == 1 && step != 0 => {
            // A descending reader's window may go on below the region.
            let inside = reads.extents().iter().take_while(|extent| extent.start >= touch.region_start.0);
            let even = |&(index, extent): &(usize, &Extent)| {
                extent.start as i64 == first.start as i64 + step * index as i64
            };
            let count = inside.enumerate().take_while(even).count();
            Window::Pages { start, stride: step, count: count as u32 }
        }
        _ => {
            let count = u32::try_from(pages).unwrap_or(u32::MAX);
            // The nearest page first: where there is no room for all the farthest are left out.
            let is_backward = first.cause == Cause::Backward && count > 0;
            let (start, stride) =
                if is_backward { (start.offset(i64::from(count) - 1), -1) } else { (start, 1) };
            Window::Pages { start, stride, count }
        }
    };
    if window.count() == 0 {
        return None;
    }
    let marker = reads.extents().iter().find_map(|extent| extent.marker).map(Vpn);
    let passed = reads.passed().map(|passed| behind(passed, touch));
    Some(Plan { window, marker, mapping: Mapping::Together, passed, wanted_first: false })
}

/// The page that is wanted by itself, then what lies around it.
fn around(rest: &[Extent], touch: &Touch) -> Option<Plan> {
    let rest = rest.iter().filter(|extent| extent.cause == Cause::Around);
    let start = rest.clone().map(|extent| extent.start).min()?.max(touch.region_start.0);
    let end = rest.map(Extent::end).max()?;
    let window = Window::Pages { start: Vpn(start), stride: 1, count: (end.checked_sub(start)?) as u32 };
    Some(Plan { window, marker: None, mapping: Mapping::Filling, passed: None, wanted_first: true })
}

fn behind(passed: Passed, touch: &Touch) -> Window {
    let (start, end) = (touch.region_start.0, touch.region_end.0);
    let count = u32::try_from(passed.pages.min(end - start)).unwrap_or(u32::MAX);
    let stride = if passed.above { 1 } else { -1 };
    Window::Pages { start: Vpn(passed.nearest_in(start, end)), stride, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 10_000;

    fn touch(page: u64, marker: bool) -> Touch {
        Touch {
            now: 0,
            vpn: Vpn(START + page),
            slot: None,
            area_slots: 0,
            region_start: Vpn(START),
            region_end: Vpn(START + 100_000),
            kind: RegionKind::File { bias: START.wrapping_sub(u64::from(Slot::FILES)) },
            clock: 0,
            left_at: 0,
            room: 0,
            read_ahead: false,
            marker,
            arriving: false,
        }
    }

    fn window(plan: Option<Plan>) -> (u64, i64, u32) {
        let Window::Pages { start, stride, count } = plan.expect("a plan").window else { panic!() };
        (start.0 - START, stride, count)
    }

    #[test]
    fn a_second_fault_begins_a_stream_and_its_mark_goes_on() {
        let mut side = FileSide::default();
        assert_eq!(window(side.miss(1 << 20, &touch(5000, false))), (5000, 1, 1), "one page a fault");
        let first = side.miss(1 << 20, &touch(5001, false));
        let (start, stride, count) = window(first);
        assert!(start == 5001 && stride == 1 && count > 1, "{first:?}");
        let marker = first.and_then(|plan| plan.marker).expect("a mark").0 - START;
        let next = side.cached(1 << 20, &touch(marker, true));
        assert_eq!(window(next).0, start + u64::from(count), "where the last ended");
        let Some(Window::Pages { start: nearest, stride: -1, .. }) = next.and_then(|plan| plan.passed) else {
            panic!("what was passed is told: {next:?}")
        };
        assert!(nearest.0 - START < marker);
    }

    /// *The story:* backward windows were cut at their near end, and each page there was a fault.
    #[test]
    fn what_has_no_room_is_the_farthest_and_comes_with_the_next_window() {
        for (first, second, stride) in [(5000, 5001, 1), (5000, 4999, -1)] {
            let mut side = FileSide::default();
            side.miss(1 << 20, &touch(first, false));
            let begun = side.miss(1 << 20, &touch(second, false)).expect("a plan");
            let (start, way, count) = window(Some(begun));
            assert_eq!((start, way), (second, stride), "the nearest first");
            side.cut_short(&begun, count - 1);
            let marker = begun.marker.expect("a mark").0 - START;
            let next = side.cached(1 << 20, &touch(marker, true));
            let farthest = second as i64 + stride * (i64::from(count) - 1);
            let (start, way, _) = window(next);
            assert_eq!((start as i64, way), (farthest, stride));
        }
    }

    /// *The story:* see [`FileSide::bound`].
    #[test]
    fn a_bounded_reader_goes_on_where_its_window_ends() {
        for (first, stride) in [(5000, 1), (5000, -1)] {
            let mut side = FileSide::default();
            side.miss(1 << 20, &touch(first, false));
            let mut at = (first as i64 + stride) as u64;
            let whole = side.miss(1 << 20, &touch(at, false));
            let mut widest = window(whole).2;
            let mut plan = side.bound(whole, Some(4));
            for _ in 0..50 {
                let (start, way, count) = window(plan);
                assert!((start, way) == (at, stride) && count <= 4, "{plan:?}");
                at = (start as i64 + stride * i64::from(count)) as u64;
                let marker = plan.and_then(|plan| plan.marker).expect("a mark").0 - START;
                assert!((start.min(at)..=start.max(at)).contains(&marker), "{plan:?}");
                let next = side.cached(1 << 20, &touch(marker, true));
                widest = widest.max(window(next).2);
                plan = side.bound(next, Some(4));
            }
            assert!(widest > 4, "nothing was bounded");
            assert_eq!(side.bound(None, Some(4)), None);
        }
    }

    /// *The story:* near the start of a file the pages at its very end were said to be passed, which are
    /// the nearest, in place of those as far behind as elsewhere.
    #[test]
    fn what_was_passed_goes_on_behind_the_start() {
        let passed = |nearest: i64, above| {
            let nearest = START as i64 + nearest;
            let Window::Pages { start, stride, count } =
                behind(Passed { nearest, pages: 100, above }, &touch(0, false))
            else {
                panic!()
            };
            (start.0 - START, stride, count)
        };
        assert_eq!(passed(-55, false), (100_000 - 55, -1, 100));
        assert_eq!(passed(7, false), (7, -1, 100));
        assert_eq!(passed(100_000 + 9, true), (9, 1, 100));
    }

    #[test]
    fn readers_at_random_get_a_page_a_fault() {
        let mut side = FileSide::default();
        let mut page = 7u64;
        for _ in 0..1000 {
            page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let plan = side.miss(1 << 20, &touch((page >> 33) % 50_000 * 2, false));
            assert_eq!(window(plan).2, 1, "{plan:?}");
        }
        side.advise(Slot(Slot::FILES), Slot(Slot::FILES + 100), MapAdvice::Random);
        (0..100).for_each(|page| assert_eq!(window(side.miss(1 << 20, &touch(page, false))).2, 1));
    }

    #[test]
    fn where_there_is_room_what_lies_around_comes_after_the_page_itself() {
        let plan = |pages: u64, room| {
            let mut side = FileSide::default();
            let touch = |page| Touch { room, region_end: Vpn(START + pages), ..touch(page, false) };
            (0..20).map(|turn| side.miss(1 << 10, &touch(turn * turn * 11 % 8000))).last().flatten()
        };
        let first = START + 19 * 19 * 11;
        let around = plan(8 << 10, 1000).expect("a plan");
        assert!(around.wanted_first && around.marker.is_none(), "{around:?}");
        let Window::Pages { start, stride: 1, count: 64 } = around.window else { panic!("{around:?}") };
        assert_eq!(start.0, first / 64 * 64);
        for (pages, room) in [(8 << 10, 0), ((8 << 10) + 1, 1000)] {
            assert_eq!(plan(pages, room).expect("a plan").window.count(), 1);
        }
    }

    /// *The story:* a reader that came down in equal steps had windows that went on below its region.
    #[test]
    fn a_descending_readers_window_ends_with_its_region() {
        let mut side = FileSide::default();
        let mut strided = 0;
        for page in (0..20).rev().map(|step| step * 50 + 7) {
            let Some(plan) = side.miss(1 << 20, &touch(page, false)) else { continue };
            let Window::Pages { start, stride, count } = plan.window else { panic!() };
            assert!(start.offset(stride * (i64::from(count) - 1)) >= Vpn(START), "{plan:?}");
            strided += u64::from(stride == -50 && count > 1);
        }
        assert!(strided > 0);
    }

    #[test]
    fn the_latest_advice_for_a_page_holds() {
        let mut side = FileSide::default();
        let slot = |page: u32| Slot(Slot::FILES + page);
        side.advise(slot(0), slot(1000), MapAdvice::Random);
        side.advise(slot(100), slot(200), MapAdvice::Sequential);
        let advice = |side: &FileSide, page| side.advice(&touch(page, false));
        assert_eq!([99, 100, 199, 200, 1000].map(|page| advice(&side, page)), {
            use MapAdvice::{Normal, Random, Sequential};
            [Random, Sequential, Sequential, Random, Normal]
        });
        for part in 0..ADVISED as u32 + 4 {
            side.advise(slot(300 + part), slot(301 + part), MapAdvice::Normal);
        }
        assert_eq!(advice(&side, 320), MapAdvice::Normal, "the oldest was forgotten");
        assert_eq!(advice(&side, 310), MapAdvice::Normal);
        side.advise(slot(0), slot(1000), MapAdvice::Random);
        let left = side.advised.iter().flat_map(|all| all.iter().flatten()).count();
        assert_eq!(left, 1, "what is covered is forgotten");
    }
}
