//! `overspill swap info`: what an area is, where it lies, and what that will cost.

use std::path::{Path, PathBuf};

use anyhow::Result;
use overspill_mm::swap::extents::{Extents, ListMap, Lookup, SortedMap, TreeMap};
use overspill_mm::swap::header::Header;
use serde::Serialize;

use super::inspect::{Candidate, pages_text, uuid_text};
use super::layout::{Layout, Source};
use crate::human;
use crate::stdout::{print, print_json};

/// Pages of a read that is looked at for its number of parts: a window of 256 KiB.
const WINDOW_PAGES: u64 = 64;
/// Lookups that the mean steps are taken from.
const SAMPLES: u32 = 256;

/// Everything there is to tell.
#[derive(Serialize)]
struct Info {
    /// Of this layout.
    schema_version: u32,
    /// The file or device.
    path: String,
    /// Why it cannot be used, if it cannot.
    refused: Option<String>,
    /// What its first page says.
    header: Option<HeaderInfo>,
    /// Where it lies.
    layout: Option<LayoutInfo>,
}

#[derive(Serialize)]
struct HeaderInfo {
    /// Its name.
    label: String,
    /// Its number.
    uuid: String,
    /// The number of its last page.
    last_page: u32,
    /// Pages that can be used.
    usable_pages: u32,
    /// The numbers of those that cannot.
    bad_pages: Vec<u32>,
    /// Whether it is in the byte order that is not this machine's.
    other_byte_order: bool,
}

#[derive(Serialize)]
struct LayoutInfo {
    /// Who told it: the file system by `fiemap` or `fibmap`, or a `device`, which is one piece.
    told_by: Source,
    /// Extents as the file system tells them; by `fibmap` runs of blocks.
    extents_reported: u64,
    /// Extents once packed and merged.
    extents: usize,
    /// Pages in them.
    pages: u32,
    /// The shortest of them.
    shortest_pages: u32,
    /// The longest.
    longest_pages: u32,
    /// From the first page to the last on the device, the header left out.
    span_pages: u64,
    /// Parts that a read of 256 KiB has on average, in hundredths: 100 is one.
    parts_per_window_percent: u64,
    /// What finding a page costs, by way of finding it.
    lookup: [LookupInfo; 3],
}

/// What finding a page costs.
#[derive(Serialize)]
struct LookupInfo {
    /// The way: `list`, `tree` or `default`.
    name: &'static str,
    /// Nodes looked at for a random page: 10 is one.
    steps_tenths: u64,
    /// Memory that it takes.
    memory_bytes: u64,
}

/// Carries out the command. 0: all of them can be used.
pub fn main(paths: &[PathBuf], json: bool) -> Result<u8> {
    let infos: Vec<Info> = paths.iter().map(|path| look(path)).collect();
    match &infos[..] {
        [info] if json => print_json(info)?,
        several if json => print_json(&several)?,
        infos => print(&infos.iter().map(text).collect::<Vec<_>>().join("\n"))?,
    }
    Ok(u8::from(infos.iter().any(|info| info.refused.is_some())))
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
    LayoutInfo {
        told_by: layout.told_by,
        extents_reported: layout.reported,
        extents: extents.runs().len(),
        pages: extents.pages(),
        shortest_pages: counts().min().unwrap_or(0),
        longest_pages: counts().max().unwrap_or(0),
        span_pages: extents.span(),
        parts_per_window_percent: parts_per_window_percent(extents),
        lookup: [
            lookup("list", &ListMap::new(extents), extents),
            lookup("tree", &TreeMap::new(extents), extents),
            lookup("default", &SortedMap::new(extents), extents),
        ],
    }
}

/// The mean of all windows that there can be: each has one part, and one more for every border of
/// extents that it crosses. An area that is smaller is one window.
fn parts_per_window_percent(extents: &Extents) -> u64 {
    let pages = u64::from(extents.pages());
    let window = WINDOW_PAGES.min(pages);
    let starts = pages - window + 1;
    let crossed = |border: u64| border.min(starts) - (border + 1).saturating_sub(window);
    let crossings: u64 = extents.runs()[1..].iter().map(|run| crossed(run.page.into())).sum();
    100 + crossings * 100 / starts
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
        let or_none = |text: &str| if text.is_empty() { "none".to_owned() } else { human::one_line(text) };
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
        line("told by", layout.told_by.text().to_owned());
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
    format!("{}: {}\n{body}", human::one_line(&info.path), human::one_line(&verdict))
}

#[cfg(test)]
mod tests {
    use overspill_mm::swap::extents::split;

    use super::*;

    /// Extents of so many pages, no two of them neighbours on the device.
    fn extents(counts: &[u32]) -> Extents {
        let mut extents = Extents::new();
        for (number, &count) in (0..).zip(counts) {
            extents.push(count, number * 10_000);
        }
        extents
    }

    /// Looks at every window that there is.
    fn parts_by_count(extents: &Extents) -> u64 {
        let map = SortedMap::new(extents);
        let window = extents.pages().min(WINDOW_PAGES as u32);
        let starts = extents.pages() - window + 1;
        let parts = |start| split(&map, &mut Default::default(), start, window).count() as u64;
        (0..starts).map(parts).sum::<u64>() * 100 / u64::from(starts)
    }

    /// *The story:* borders near an end were said to be crossed by as many windows as those in the
    /// middle.
    #[test]
    fn the_parts_of_a_window_are_those_that_all_windows_have() {
        let thousand = vec![3; 1000];
        let cases: [&[u32]; 9] = [
            &[1],
            &[1, 1],
            &[500],
            &[2, 98],
            &[99, 1],
            &[64, 64, 64],
            &[10, 300, 1, 1, 1, 200],
            &[63, 1],
            &thousand,
        ];
        for counts in cases {
            let extents = extents(counts);
            assert_eq!(parts_per_window_percent(&extents), parts_by_count(&extents), "{counts:?}");
        }
        assert_eq!(parts_per_window_percent(&extents(&[500])), 100, "one piece, one part");
        assert_eq!(parts_per_window_percent(&extents(&[32; 2])), 200, "the whole area is one window");
    }

    fn laid_out(counts: &[u32]) -> Layout {
        let reported = counts.len() as u64 + 1;
        Layout { told_by: Source::Fibmap, reported, extents: extents(counts) }
    }

    fn info(counts: &[u32]) -> Info {
        let header = Header { bad_pages: vec![3, 9], ..Header::new(120, [0xab; 16], b"spill") };
        Info {
            schema_version: 1,
            path: "/area".into(),
            refused: None,
            header: Some(header_info(&header)),
            layout: Some(layout_info(&laid_out(counts))),
        }
    }

    #[test]
    fn what_is_told_is_what_the_area_has() {
        let info = info(&[10, 70, 40]);
        let layout = info.layout.as_ref().unwrap();
        assert_eq!((layout.extents_reported, layout.extents, layout.pages), (4, 3, 120));
        assert_eq!((layout.shortest_pages, layout.longest_pages), (10, 70));
        // From behind the header to the end of the last one.
        assert_eq!(layout.span_pages, 20_040 - 1);
        let [list, tree, default] = &layout.lookup;
        assert_eq!([list.name, tree.name, default.name], ["list", "tree", "default"]);
        // Two of three extents are looked at on average, and more of them where there are more.
        assert!((10..=30).contains(&list.steps_tenths), "{}", list.steps_tenths);
        let many = layout_info(&laid_out(&[3; 1000])).lookup;
        let steps = many.each_ref().map(|lookup| lookup.steps_tenths);
        assert!(steps[0] > 1000 && steps[1] < 150 && steps[2] < 150, "{steps:?}");
        let bytes = many.each_ref().map(|lookup| lookup.memory_bytes);
        assert!(bytes[..2] == [32_000, 40_000] && bytes[2] <= 20_000, "{bytes:?}");
        let text = text(&info);
        let lines = [
            "/area: can be used",
            "label        spill",
            "uuid         abababab-abab-abab-abab-abababababab",
            "usable       117 pages (",
            "bad pages    2",
            "byte order   this machine's",
            "extents      4 as reported, 3 once packed and merged",
            "told by      the file system, block by block (FIBMAP)",
            "span         ",
            "cost         a read of 256 KiB has 1.87 parts on average",
        ];
        lines.iter().for_each(|line| assert!(text.contains(line), "no `{line}` in\n{text}"));
    }

    /// *The story:* a label of somebody else's area coloured the terminal.
    #[test]
    fn a_label_is_words_and_nothing_else() {
        let mut told = info(&[500]);
        told.path = "/a\nb".into();
        told.header.as_mut().unwrap().label = "\x1b[31mred\r".into();
        let text = text(&told);
        assert!(text.starts_with(r"/a\nb: can be used") && text.contains(r"\u{1b}[31mred\r"), "{text}");
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let refused = Info { refused: Some("it is mine".into()), header: None, ..info(&[500]) };
        let text = text(&refused);
        assert!(text.starts_with("/area: cannot be used: it is mine\n"), "{text}");
        assert!(!text.contains("label") && text.contains("2 as reported, 1 once packed"), "{text}");
    }
}
