//! `swap info` against what others say of the same file: filefrag of its extents, blkid of its
//! header, and what follows from that by counting.

use std::path::Path;

use serde_json::{Value, json};

use crate::context::Context;
use crate::scratch::{FaultyDisk, LoopDevice, SmallDisk, administer};
use crate::swap_areas::{info, make, noise, overspill};
use crate::{Outcome, Test, ensure};

/// Pages of the area, and of each file that is in its way.
const AREA_PAGES: u64 = 512;
const FILE_PAGES: usize = 16;
/// Pages of a read of 256 KiB.
const WINDOW_PAGES: u64 = 64;

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("areas::info", told),
        Test::new("areas::by-blocks", by_blocks),
        Test::new("areas::doctor", doctored),
    ]
}

/// An area of mkswap, all of which was written.
fn written(path: &Path, mib: u64) -> Outcome {
    std::fs::write(path, vec![b'x'; (mib << 20) as usize]).map_err(|error| error.to_string())?;
    administer("mkswap", &[&path.to_string_lossy()]).map(drop)
}

/// Where a file system tells no extents it is asked for each block, the map is the kernel's, and the area
/// serves; where it tells nothing at all that is the reason.
///
/// *The story:* what had no FIEMAP was refused, and nothing asked for blocks.
fn by_blocks(context: &Context) -> Outcome {
    let device = LoopDevice::new(context, "areas-blocks.img", 1)?;
    let disk = FaultyDisk::new(context, "areas-blocks", &["--device", &device.device])?;
    // No blocks can be reserved there: they are written.
    let area = disk.directory.join("area");
    make(context, &area, 64)?;
    let json = overspill(context, &["swap", "info", "--json", &area.to_string_lossy()])?;
    let told: Value = serde_json::from_slice(&json.stdout).map_err(|error| error.to_string())?;
    ensure!(json.status.success() && told["refused"].is_null(), "{told}");
    // The file lies in pieces of 67 blocks, one each 128, from the fifth block on; the header is left out.
    let (layout, pages) = (&told["layout"], 64 * 256);
    let (pieces, rest) = (pages / 67, pages % 67);
    let expected = [
        ("extents_reported", pieces + 1),
        ("extents", pieces + 1),
        ("pages", pages),
        ("shortest_pages", rest),
        ("longest_pages", 67),
        ("span_pages", pieces * 128 + rest - 1),
    ];
    for (name, value) in expected {
        ensure!(layout[name] == value, "{name}: told {}, and it is {value}", layout[name]);
    }
    ensure!(layout["told_by"] == "fibmap", "{layout}");
    noise(context, "areas-blocks-run").swap(&area).run()?.succeeded()?.paged()?;
    let (usable, text) = info(context, &area)?;
    ensure!(usable && text.contains("block by block (FIBMAP)"), "after a run: {text}");
    // A hole is one, block by block, too.
    let holed = disk.directory.join("holed");
    written(&holed, 2)?;
    let file = std::fs::File::options().write(true).open(&holed).map_err(|error| error.to_string())?;
    file.set_len(1 << 20).and_then(|()| file.set_len(2 << 20)).map_err(|error| error.to_string())?;
    let (usable, text) = info(context, &holed)?;
    ensure!(!usable && text.contains("a hole at byte 1048576"), "{text}");
    let silent = FaultyDisk::new(context, "areas-silent", &[])?;
    for place in [silent.directory.join("area"), Path::new("/dev/shm/overspill-e2e-area").to_path_buf()] {
        let looked = written(&place, 2).and_then(|()| info(context, &place));
        std::fs::remove_file(&place).map_err(|error| error.to_string())?;
        let (usable, text) = looked?;
        ensure!(!usable && text.contains("does not tell where it lies"), "{}: {text}", place.display());
    }
    Ok(())
}

/// *The story:* of a device `doctor` told the room and the speed of /var/tmp, as if it were those of the
/// device; of an area in a file what else is free beside it.
fn doctored(context: &Context) -> Outcome {
    let device = LoopDevice::new(context, "areas-doctor.img", 16)?;
    let file = context.path("areas-doctor");
    let made = overspill(context, &["swap", "make", &device.device, "--erase"])?;
    ensure!(made.status.success(), "swap make: {}", String::from_utf8_lossy(&made.stderr));
    make(context, &file, 16)?;
    let [directory, file] = [context.path(""), file].map(|path| path.to_string_lossy().into_owned());
    for (place, expected) in [
        (directory.as_str(), &["swap directory", "swap space", "swap speed"][..]),
        (file.as_str(), &["swap area", "swap speed"]),
        (device.device.as_str(), &["swap area"]),
    ] {
        let json = overspill(context, &["doctor", "--json", "--swap", place])?;
        let told: Value = serde_json::from_slice(&json.stdout).map_err(|error| error.to_string())?;
        let names =
            told["checks"].as_array().into_iter().flatten().filter_map(|check| check["name"].as_str());
        let names: Vec<&str> = names.filter(|name| name.starts_with("swap")).collect();
        ensure!(names == expected, "of {place} {names:?} were told, not {expected:?}");
    }
    std::fs::remove_file(file).map_err(|error| error.to_string())
}

/// Pages of the file from `page` on that lie on the device from `place` on.
#[derive(Clone, Copy, Debug)]
struct Run {
    page: u64,
    count: u64,
    place: u64,
}

/// A file system whose free space is in pieces of 64 KiB: an area that is made there has many.
fn disk_in_pieces(context: &Context) -> Outcome<SmallDisk> {
    let disk = SmallDisk::with(context, "areas-info", 16, &["-b", "4096"])?;
    let file = |number: u32| disk.directory.join(format!("file-{number}"));
    let fill = |number: &u32| std::fs::write(file(*number), vec![b'x'; FILE_PAGES * 4096]).is_ok();
    let files = (0..).take_while(fill).count() as u32;
    administer("sync", &[])?;
    // The last one was cut short.
    let removed = (0..=files).step_by(2).filter(|&number| std::fs::remove_file(file(number)).is_ok());
    ensure!(removed.count() > 50, "there were {files} files");
    Ok(disk)
}

/// The lines `N: first.. last: first.. last: length: ...`, in pages of 4 KiB.
fn reported(area: &Path) -> Outcome<Vec<Run>> {
    let text = administer("filefrag", &["-v", "-b4096", &area.to_string_lossy()])?;
    let run = |line: &str| {
        let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        Run { page: numbers[1], count: numbers[5], place: numbers[3] }
    };
    Ok(text.lines().filter(|line| line.contains("..")).map(run).collect())
}

/// What follows each other on the device is one.
fn merged(reported: &[Run]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &run in reported {
        match runs.last_mut() {
            Some(last) if last.place + last.count == run.place => last.count += run.count,
            _ => runs.push(run),
        }
    }
    runs
}

/// Parts of a window, in hundredths: the mean of all windows, each looked at page by page.
fn parts_percent(runs: &[Run]) -> u64 {
    let starts = AREA_PAGES - WINDOW_PAGES + 1;
    let begins = |page: &u64| runs.iter().any(|run| run.page == *page);
    let parts = |start: u64| 1 + (start + 1..start + WINDOW_PAGES).filter(begins).count() as u64;
    (0..starts).map(parts).sum::<u64>() * 100 / starts
}

fn told(context: &Context) -> Outcome {
    let disk = disk_in_pieces(context)?;
    let area = disk.directory.join("area");
    let path = area.to_string_lossy().into_owned();
    let size = format!("{}K", AREA_PAGES * 4);
    let made = overspill(context, &["swap", "make", &path, "--size", &size, "--label", "in pieces"])?;
    ensure!(made.status.success(), "swap make: {}", String::from_utf8_lossy(&made.stderr));
    let json = overspill(context, &["swap", "info", "--json", &path])?;
    let told: Value = serde_json::from_slice(&json.stdout).map_err(|error| error.to_string())?;
    ensure!(json.status.success() && told["refused"].is_null(), "{told}");

    let tag = |name: &str| administer("blkid", &["-p", "-o", "value", "-s", name, &path]);
    let header = json!({
        "label": tag("LABEL")?,
        "uuid": tag("UUID")?,
        "last_page": AREA_PAGES - 1,
        "usable_pages": AREA_PAGES - 1,
        "bad_pages": [],
        "other_byte_order": false,
    });
    ensure!(told["header"] == header, "told {}, expected {header}", told["header"]);
    ensure!(header["label"] == "in pieces", "{header}");
    layout(&told["layout"], &reported(&area)?)?;
    text(&info(context, &area)?.1, &told)
}

fn layout(told: &Value, reported: &[Run]) -> Outcome {
    let runs = merged(reported);
    ensure!(runs.len() > 10, "the area has {} extents: that says little", runs.len());
    let counts = || runs.iter().map(|run| run.count);
    // The header page is left out.
    let first = |run: &Run| run.place + u64::from(run.page == 0);
    let low = runs.iter().filter(|run| run.page > 0 || run.count > 1).map(first).min();
    let high = runs.iter().map(|run| run.place + run.count).max();
    let expected = [
        ("extents_reported", reported.len() as u64),
        ("extents", runs.len() as u64),
        ("pages", counts().sum()),
        ("shortest_pages", counts().min().unwrap_or(0)),
        ("longest_pages", counts().max().unwrap_or(0)),
        ("span_pages", high.unwrap_or(0) - low.unwrap_or(0)),
        ("parts_per_window_percent", parts_percent(&runs)),
    ];
    for (name, value) in expected {
        ensure!(told[name] == value, "{name}: told {}, and it is {value} by {reported:?}", told[name]);
    }
    ensure!(told["pages"] == AREA_PAGES, "{} pages", told["pages"]);
    ensure!(told["told_by"] == "fiemap", "{told}");
    Ok(())
}

/// The same for people.
fn text(text: &str, told: &Value) -> Outcome {
    let (header, layout) = (&told["header"], &told["layout"]);
    let parts = layout["parts_per_window_percent"].as_u64().unwrap_or(0);
    let lines = [
        "can be used".to_owned(),
        "label        in pieces".to_owned(),
        format!("uuid         {}", header["uuid"].as_str().unwrap_or("?")),
        "bad pages    0".to_owned(),
        "usable       511 pages".to_owned(),
        format!(
            "extents      {} as reported, {} once packed and merged",
            layout["extents_reported"], layout["extents"]
        ),
        format!("a read of 256 KiB has {}.{:02} parts on average", parts / 100, parts % 100),
    ];
    for line in lines {
        ensure!(text.contains(&line), "no `{line}` in\n{text}");
    }
    Ok(())
}
