//! How much room there is to spill to, and how much is wanted: one line for all places together,
//! where that is too little.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use overspill_engine::SwapKind;

use crate::checks::{SwapPlace, swap_place};
use crate::human;
use crate::os::inherit::longest_file;

/// A place's part of what there is.
struct Room {
    /// The file system that it is on; `None`: nobody else uses what it has.
    file_system: Option<u64>,
    /// What is free there.
    free_bytes: u64,
    /// What of that the place may use.
    bytes_max: u64,
}

/// What to say of `places` where `wanted` bytes are.
pub fn note(wanted: u64, places: &[SwapPlace]) -> Option<String> {
    let limit = longest_file();
    let rooms = |limit| places.iter().map(|place| room(place, limit)).collect::<Option<Vec<_>>>();
    // Of one that cannot be asked nothing is said: it may have any room.
    let (there, without_limit) = (sum(&rooms(limit)?), sum(&rooms(u64::MAX)?));
    if there >= wanted {
        return None;
    }
    let shown: Vec<String> = places.iter().map(|place| place.path.display().to_string()).collect();
    let has = match (there < without_limit, places.len()) {
        (true, _) => "may have (ulimit -f)",
        (false, 1) => "has",
        (false, _) => "have",
    };
    let [wanted, there] = [wanted, there].map(human::bytes);
    Some(format!("{wanted} of room to spill are wanted, and {} {has} {there}", shown.join(" and ")))
}

/// Places on one file system share what is free there.
fn sum(rooms: &[Room]) -> u64 {
    let mut shared = BTreeMap::<u64, (u64, u64)>::new();
    let mut sum = 0_u64;
    for room in rooms {
        match room.file_system {
            None => sum = sum.saturating_add(room.free_bytes.min(room.bytes_max)),
            Some(file_system) => {
                let (free, most) = shared.entry(file_system).or_default();
                *free = room.free_bytes;
                *most = most.saturating_add(room.bytes_max);
            }
        }
    }
    shared.values().fold(sum, |sum, (free, most)| sum.saturating_add(*free.min(most)))
}

/// No file may be longer than `limit`.
fn room(place: &SwapPlace, limit: u64) -> Option<Room> {
    let bytes_max = if place.bytes_max == 0 { u64::MAX } else { place.bytes_max };
    if place.kind == SwapKind::Area {
        let free_bytes = area_bytes(&place.path)?;
        return Some(Room { file_system: None, free_bytes, bytes_max });
    }
    let free_bytes = swap_place::free_bytes(&place.directory).ok()?;
    let file_system = Some(fs::metadata(&place.directory).ok()?.dev());
    Some(Room { file_system, free_bytes, bytes_max: bytes_max.min(limit) })
}

/// What a file or a device that is there has; None: it is neither.
pub fn area_bytes(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let kind = file.metadata().ok()?.file_type();
    let is_area = kind.is_file() || kind.is_block_device();
    is_area.then(|| file.seek(SeekFrom::End(0)).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn place(directory: &str, mib: u64) -> SwapPlace {
        let kind = SwapKind::Directory;
        SwapPlace {
            path: directory.into(),
            directory: directory.into(),
            kind,
            bytes_max: mib * MIB,
            priority: 0,
        }
    }

    /// *The story:* of `--swap DIR:64M --swap OTHER:64M` each was asked for all, and what it might not
    /// use counted as room.
    #[test]
    fn places_are_counted_together_and_as_far_as_they_may_be_used() {
        let directory = std::env::temp_dir();
        let directory = directory.to_str().unwrap();
        let two = [place(directory, 2), place(directory, 3)];
        assert_eq!(note(5 * MIB, &two), None);
        let said = note(6 * MIB, &two).unwrap();
        assert!(said.starts_with("6.0 MiB of room to spill are wanted"), "{said}");
        assert!(said.ends_with("have 5.0 MiB"), "{said}");
        assert!(note(6 * MIB, &two[..1]).unwrap().ends_with("has 2.0 MiB"));
        assert!(note(u64::MAX, &[place(directory, 0)]).is_some(), "no disk is that large");
    }

    #[test]
    fn what_is_free_on_a_file_system_counts_once() {
        let room = |file_system, free, most| Room { file_system, free_bytes: free, bytes_max: most };
        assert_eq!(sum(&[room(Some(1), 10, 8), room(Some(1), 10, 8)]), 10);
        assert_eq!(sum(&[room(Some(1), 10, 8), room(Some(2), 10, 8), room(None, 5, u64::MAX)]), 21);
        assert_eq!(sum(&[room(Some(1), 10, u64::MAX), room(Some(1), 10, u64::MAX)]), 10);
    }

    #[test]
    fn an_area_has_what_it_is_long() {
        let file = std::env::temp_dir().join(format!("overspill-room-{}", std::process::id()));
        File::create(&file).unwrap().set_len(3 * MIB).unwrap();
        let area = SwapPlace { kind: SwapKind::Area, path: file.clone(), ..place("/", 0) };
        let said = note(4 * MIB, std::slice::from_ref(&area));
        fs::remove_file(file).unwrap();
        assert!(said.unwrap().ends_with("has 3.0 MiB"));
    }
}
