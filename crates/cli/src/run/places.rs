//! What went to each of the places that a run spills to, and what is there: read from the shared page,
//! where the agents tell it ([`overspill_engine::spill`]).

use std::ffi::OsStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;

use overspill_engine::SwapPlace;
use overspill_engine::claims::PLACES;
use overspill_engine::orders::Order;
use overspill_engine::shared::{PROCESSES, Shared};
use overspill_engine::spill::{Here, Row, SPOTS, Spill, Total, stand};
use serde::Serialize;

use crate::human;
use crate::run::shared_page::{Fields, Report, SharedPage};
use crate::size::Size;
use crate::swap::arg::SwapArg;

/// Of a path, in a line.
const PATH_CHARS: usize = 30;
/// So many are told of for people.
const TOLD_MAX: usize = 8;

/// A place that a run spills to.
#[derive(Serialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its path.
    pub path: String,
    /// Its priority.
    pub priority: i16,
    /// What a process may use of it; 0: nobody had it open.
    pub size_bytes: u64,
    /// What is in use of it; once the command has ended, by who goes on. What is compressed in RAM has its
    /// place there, too, and what a fork left in common counts for each who has it.
    pub used_bytes: u64,
    /// The most of that which was seen at a time.
    pub peak_bytes: u64,
    /// Bytes written there.
    pub written_bytes: u64,
    /// Bytes read from there.
    pub read_bytes: u64,
    /// `open`, `closed` (its file system has no room), `draining`, `drained`, `failed` (a write failed) or
    /// `unused`.
    pub state: &'static str,
    /// How another run is given it, where it was added while this one went on.
    #[serde(skip)]
    pub added: Option<SwapArg>,
}

impl Place {
    /// For people.
    pub fn text(&self) -> String {
        let bytes = human::bytes;
        let state = if self.state == "open" { String::new() } else { format!(" ({})", self.state) };
        let used = if self.used_bytes == 0 { String::new() } else { bytes(self.used_bytes) + " used, " };
        let path = human::clipped(&self.path, PATH_CHARS);
        let (peak, size) = (bytes(self.peak_bytes), bytes(self.size_bytes));
        let (read, written) = (bytes(self.read_bytes), bytes(self.written_bytes));
        format!("{path}{state}: {used}peak {peak} of {size}, in {read}, out {written}")
    }
}

/// A line for each of several places; nothing of one alone, of which the other figures tell all.
pub fn lines(places: &[Place]) -> Vec<String> {
    if places.len() < 2 {
        return Vec::new();
    }
    let mut lines: Vec<String> = places.iter().take(TOLD_MAX).map(Place::text).collect();
    if places.len() > TOLD_MAX {
        lines.push(format!("and {} more", places.len() - TOLD_MAX));
    }
    lines
}

fn word_of(number: u32) -> &'static str {
    match number {
        stand::DRAINED => "drained",
        stand::OPEN => "open",
        stand::CLOSED => "closed",
        stand::DRAINING => "draining",
        stand::FAILED => "failed",
        _ => "unused",
    }
}

/// The places of a run, with their numbers: those of its start, those that were added, and the file beside
/// the first one where somebody has that.
fn known(page: &SharedPage) -> io::Result<Vec<(usize, SwapPlace)>> {
    let first = SwapPlace::decode(&page.settings()?.swap_places);
    let beside = first.first().map(|first| (0, first.beside()));
    let mut known: Vec<(usize, SwapPlace)> = (1..=PLACES).zip(first).collect();
    for (index, order) in page.orders()?.into_iter().enumerate() {
        if let Some(Order::Add(place)) = order {
            known.push((1 + PLACES + index, place));
        }
    }
    known.extend(beside);
    Ok(known)
}

/// The argument that gives a run such a place.
fn asked(place: &SwapPlace) -> SwapArg {
    let size = (place.bytes_max > 0).then_some(Size::Bytes(place.bytes_max));
    let priority = (place.priority != 0).then_some(place.priority);
    SwapArg { path: OsStr::from_bytes(place.path.as_bytes()).into(), size, priority }
}

impl SharedPage {
    /// What went where, and what is there of the processes that go on.
    pub fn places(&self, living: &[Report]) -> io::Result<Vec<Place>> {
        let mut totals = vec![0; size_of::<[Total; SPOTS]>()];
        self.read_spill(&mut totals, offset_of!(Spill, totals))?;
        let here = self.here(living)?;
        let mut places = Vec::new();
        for (spot, place) in known(self)? {
            let added = (spot > PLACES).then(|| asked(&place));
            let SwapPlace { path, priority, .. } = place;
            let total = Fields(&totals[spot * size_of::<Total>()..][..size_of::<Total>()]);
            let (pages, stand) = here[spot];
            let stand = if stand == stand::NONE { total.u64(offset_of!(Total, stand)) as u32 } else { stand };
            let place = Place {
                path: path.to_string_lossy().into_owned(),
                priority,
                size_bytes: total.u64(offset_of!(Total, size)),
                used_bytes: pages * overspill_mm::types::PAGE_SIZE,
                peak_bytes: total.u64(offset_of!(Total, peak)),
                written_bytes: total.u64(offset_of!(Total, written)),
                read_bytes: total.u64(offset_of!(Total, read)),
                state: word_of(stand),
                added,
            };
            // Nobody had to go beside the others.
            if spot != 0 || place.size_bytes > 0 {
                places.push(place);
            }
        }
        Ok(places)
    }

    /// The same, of those that go on now.
    pub fn places_now(&self) -> Vec<Place> {
        let living =
            |reports: Vec<Report>| reports.into_iter().filter(Report::lives).collect::<Vec<Report>>();
        self.reports().and_then(|reports| self.places(&living(reports))).unwrap_or_default()
    }

    /// Raises the peaks to what the processes have together now; of one alone its agent does.
    pub fn note_peaks(&self, living: &[Report]) -> io::Result<()> {
        if living.len() < 2 {
            return Ok(());
        }
        for (spot, &(pages, _)) in self.here(living)?.iter().enumerate().filter(|(_, here)| here.0 > 0) {
            let at = offset_of!(Spill, totals) + spot * size_of::<Total>() + offset_of!(Total, peak);
            let (mut peak, bytes) = ([0; 8], pages * overspill_mm::types::PAGE_SIZE);
            self.read_spill(&mut peak, at)?;
            if bytes > u64::from_ne_bytes(peak) {
                self.write_spill(&bytes.to_ne_bytes(), at)?;
            }
        }
        Ok(())
    }

    /// By place: pages of all these processes, and how it stands with them.
    fn here(&self, living: &[Report]) -> io::Result<[(u64, u32); SPOTS]> {
        let count = living.iter().map(|report| report.place + 1).max().unwrap_or(0);
        assert!(count <= PROCESSES);
        let (mut sums, mut rows) = ([(0, stand::NONE); SPOTS], vec![0; count * size_of::<Row>()]);
        self.read_spill(&mut rows, offset_of!(Spill, rows))?;
        for report in living {
            let row = &rows[report.place * size_of::<Row>()..][..size_of::<Row>()];
            for (sum, here) in sums.iter_mut().zip(row.chunks_exact(size_of::<Here>()).map(Fields)) {
                sum.0 += u64::from(here.u32(offset_of!(Here, pages)));
                sum.1 = sum.1.max(here.u32(offset_of!(Here, stand)));
            }
        }
        Ok(sums)
    }

    fn read_spill(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        self.read_at(bytes, offset_of!(Shared, spill) + at)
    }

    fn write_spill(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        self.write_at(bytes, offset_of!(Shared, spill) + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::shared_page::Settings;
    use std::ffi::CString;

    fn put(page: &SharedPage, at: usize, value: u64) {
        page.write_spill(&value.to_ne_bytes(), at).unwrap();
    }

    /// See [`overspill_engine::spill`].
    #[test]
    fn what_went_where_is_told_by_place_and_summed_over_the_living() {
        let place = |path: &str, priority| SwapPlace {
            priority,
            ..SwapPlace::directory(CString::new(path).expect("it has no NUL"))
        };
        let [first, second, added] = [("/mnt/a", 5), ("/mnt/b", 1), ("/mnt/c", 0)].map(|(p, n)| place(p, n));
        let swap_places = SwapPlace::encode(&[first, second]).into();
        let page =
            SharedPage::new(&Settings { ram_bytes: 1 << 30, swap_places, ..Settings::default() }).unwrap();
        page.give_order(&Order::Add(added).encode().unwrap()).unwrap();
        let total = |spot: usize, field: usize| offset_of!(Spill, totals) + spot * size_of::<Total>() + field;
        put(&page, total(1, offset_of!(Total, written)), 7 << 20);
        put(&page, total(1, offset_of!(Total, size)), 9 << 20);
        put(&page, total(2, offset_of!(Total, stand)), stand::DRAINED.into());
        put(&page, total(1 + PLACES, offset_of!(Total, read)), 5 << 20);
        let living = [0, 2].map(|index| Report::empty(index, 2, 7, 1));
        for index in 0..3 {
            let here = index * size_of::<Row>() + size_of::<Here>();
            put(&page, offset_of!(Spill, rows) + here, u64::from(stand::OPEN) << 32 | 256);
        }
        page.note_peaks(&living).unwrap();
        let places = page.places(&living).unwrap();
        let told =
            |place: &Place| (place.path.clone(), place.used_bytes >> 20, place.peak_bytes >> 20, place.state);
        let all = [("/mnt/a", 2, 2, "open"), ("/mnt/b", 0, 0, "drained"), ("/mnt/c", 0, 0, "unused")];
        assert_eq!(
            places.iter().map(told).collect::<Vec<_>>(),
            all.map(|it| (it.0.into(), it.1, it.2, it.3))
        );
        assert_eq!(
            (places[0].written_bytes, places[2].read_bytes, places[0].priority),
            (7 << 20, 5 << 20, 5)
        );
        assert_eq!(places[0].text(), "/mnt/a: 2.0 MiB used, peak 2.0 MiB of 9.0 MiB, in 0 B, out 7.0 MiB");
        assert!(lines(&places[..1]).is_empty() && lines(&places).len() == 3);
    }
}
