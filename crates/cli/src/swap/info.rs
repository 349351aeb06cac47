//! `overspill swap info`: what an area is, where it lies, and what that will cost.

use std::path::Path;

use anyhow::Result;
use overspill_mm::swap::extents::{Extents, ListMap, Lookup, SortedMap, TreeMap};
use overspill_mm::swap::header::Header;
use serde::Serialize;

use super::inspect::{Candidate, Layout, pages_text, uuid_text};
use crate::human;
use crate::stdout::{print, print_json};

/// Pages of a read that is looked at for its number of parts: a window of 256 KiB.
const WINDOW_PAGES: u64 = 64;
/// Lookups that the mean steps are taken from.
const SAMPLES: u32 = 256;

/// Everything there is to tell.
#[derive(Serialize)]
struct Info {
    schema_version: u32,
    path: String,
    /// Why it cannot be used, if it cannot.
    refused: Option<String>,
    header: Option<HeaderInfo>,
    layout: Option<LayoutInfo>,
}

#[derive(Serialize)]
struct HeaderInfo {
    label: String,
    uuid: String,
    last_page: u32,
    usable_pages: u32,
    bad_pages: Vec<u32>,
    other_byte_order: bool,
}

#[derive(Serialize)]
struct LayoutInfo {
    /// As the file system tells them.
    extents_reported: u64,
    /// Packed and merged.
    extents: usize,
    pages: u32,
    shortest_pages: u32,
    longest_pages: u32,
    /// Of the device, in pages, the header left out.
    span_pages: u64,
    /// Parts that a read of 256 KiB has on average, in hundredths.
    parts_per_window_percent: u64,
    lookup: [LookupInfo; 3],
}

/// What finding a page costs.
#[derive(Serialize)]
struct LookupInfo {
    name: &'static str,
    /// Nodes looked at for a random page, in tenths.
    steps_tenths: u64,
    memory_bytes: u64,
}

/// Carries out the command. 0: it can be used.
pub fn main(path: &Path, json: bool) -> Result<u8> {
    let info = look(path);
    if json {
        print_json(&info)?;
    } else {
        print(&text(&info))?;
    }
    Ok(u8::from(info.refused.is_some()))
}

fn look(path: &Path) -> Info {
    let mut info = Info {
        schema_version: 1,
        path: path.display().to_string(),
        refused: None,
        header: None,
        layout: None,
    };
    let candidate = match Candidate::open(path) {
        Ok(candidate) => candidate,
        Err(refused) => return Info { refused: Some(refused.to_string()), ..info },
    };
    // All that can be told is told, and the first reason is the one that counts.
    let used = candidate.refuse_used().map_err(|refused| refused.to_string());
    let header = candidate.header().map_err(|refused| refused.to_string());
    let layout = candidate.layout().map_err(|refused| refused.to_string());
    info.header = header.as_ref().ok().map(header_info);
    info.layout = layout.as_ref().ok().map(layout_info);
    info.refused = used.err().or(header.err()).or(layout.err());
    info
}

fn header_info(header: &Header) -> HeaderInfo {
    HeaderInfo {
        label: String::from_utf8_lossy(header.label()).into_owned(),
        uuid: uuid_text(header.uuid),
        last_page: header.last_page,
        usable_pages: header.usable(),
        bad_pages: header.bad_pages.clone(),
        other_byte_order: header.is_swapped,
    }
}

fn layout_info(layout: &Layout) -> LayoutInfo {
    let extents = &layout.extents;
    let counts = || extents.runs().iter().map(|run| run.count);
    let pages = u64::from(extents.pages());
    // A window crosses each border behind one of its pages but the last.
    let borders = extents.runs().len() as u64 - 1;
    let starts = pages.saturating_sub(WINDOW_PAGES - 1).max(1);
    let crossings = (borders * (WINDOW_PAGES - 1)).min(starts * borders);
    LayoutInfo {
        extents_reported: layout.reported,
        extents: extents.runs().len(),
        pages: extents.pages(),
        shortest_pages: counts().min().unwrap_or(0),
        longest_pages: counts().max().unwrap_or(0),
        span_pages: extents.span(),
        parts_per_window_percent: 100 + crossings * 100 / starts,
        lookup: [
            lookup("list", &ListMap::new(extents), extents),
            lookup("tree", &TreeMap::new(extents), extents),
            lookup("default", &SortedMap::new(extents), extents),
        ],
    }
}

/// The mean of pages all over the area, in an order without any.
fn lookup<L: Lookup>(name: &'static str, map: &L, extents: &Extents) -> LookupInfo {
    let (mut cursor, pages) = (L::Cursor::default(), u64::from(extents.pages()));
    let page = |n: u32| (u64::from(n.wrapping_mul(0x9e37_79b9)) * pages) >> 32;
    let steps: u64 = (0..SAMPLES).map(|n| u64::from(map.steps(&mut cursor, page(n) as u32))).sum();
    LookupInfo {
        name,
        steps_tenths: steps * 10 / u64::from(SAMPLES),
        memory_bytes: (map.extent_bytes() * extents.runs().len()) as u64,
    }
}

fn text(info: &Info) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("  {name:<12} {value}"));
    if let Some(header) = &info.header {
        let or_none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
        line("label", or_none(&header.label));
        line("uuid", header.uuid.clone());
        let (usable, bad) = (u64::from(header.usable_pages), header.bad_pages.len() as u64);
        line("usable", format!("{} pages ({})", human::count(usable), pages_text(usable)));
        line("bad pages", human::count(bad));
        line("byte order", if header.other_byte_order { "the other one" } else { "this machine's" }.into());
    }
    if let Some(layout) = &info.layout {
        let (reported, packed) = (layout.extents_reported, layout.extents as u64);
        let told = format!(
            "{} as reported, {} once packed and merged",
            human::count(reported),
            human::count(packed)
        );
        line("extents", told);
        let mean = u64::from(layout.pages) / packed.max(1);
        let sizes = [u64::from(layout.shortest_pages), mean, u64::from(layout.longest_pages)].map(pages_text);
        line("their size", format!("{} at least, {} on average, {} at most", sizes[0], sizes[1], sizes[2]));
        line(
            "span",
            format!(
                "{} of the device for {}",
                pages_text(layout.span_pages),
                pages_text(layout.pages.into())
            ),
        );
        let parts = layout.parts_per_window_percent;
        line("cost", format!("a read of 256 KiB has {}.{:02} parts on average", parts / 100, parts % 100));
        for lookup in &layout.lookup {
            let steps = format!("{}.{}", lookup.steps_tenths / 10, lookup.steps_tenths % 10);
            let memory = human::bytes(lookup.memory_bytes);
            line("", format!("{}: {steps} nodes for a random page, {memory} of memory", lookup.name));
        }
    }
    let verdict = match &info.refused {
        None => "can be used".to_owned(),
        Some(reason) => format!("cannot be used: {reason}"),
    };
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{}: {verdict}\n{body}", info.path)
}
