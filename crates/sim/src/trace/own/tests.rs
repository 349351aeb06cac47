//! The project's own trace format: what is written is read again, and what is broken is refused.

use super::layout::{BLOCK_HEADER_BYTES, FOOTER_BYTES, HEADER_BYTES, RECORDS_MAX};
use super::{Reader, Seeker, Writer};
use crate::rng::Rng;
use crate::trace::record::{
    AccessKind, AccessRecord, FileOp, FileRecord, IN_VIEW_MAX, NameRecord, PagerOp, PagerRecord, Record,
};
use crate::trace::{RecordReader, RecordWriter, TraceError};
use crate::workload::RegionSpec;
use overspill_mm::types::RegionKind;
use proptest::prelude::*;
use std::io::Cursor;

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("no error");
    for record in records {
        writer.push(record.clone()).expect("no error");
    }
    assert_eq!(writer.total(), records.len() as u64);
    writer.finish().expect("no error");
    writer.into_inner()
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    let mut reader = Reader::new(bytes)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    assert_eq!(reader.total(), records.len() as u64);
    Ok(records)
}

fn access(time_ns: u64, vpn: u64, thread: u32) -> Record {
    Record::Access(AccessRecord { time_ns, vpn, thread, space: 0, kind: AccessKind::Write })
}

/// A few records of each kind, with the largest numbers there are.
fn samples() -> Vec<Record> {
    let far = u64::MAX;
    let pager = |time_ns, op, argument| {
        Record::Pager(PagerRecord { time_ns, vpn: far - time_ns, thread: 3, space: 2, op, argument })
    };
    let file = |time_ns, op, offset| {
        Record::File(FileRecord { time_ns, thread: u32::MAX, file: 1, op, offset, bytes: far / 3 })
    };
    let mut list = vec![
        Record::Name(NameRecord { id: NameRecord::NOTE, text: "sort, on a machine".to_owned() }),
        Record::Name(NameRecord { id: 1, text: "/tmp/späte Datei".to_owned() }),
        Record::Region(RegionSpec { space: u16::MAX, start: 7, end: far, kind: RegionKind::Shared }),
        Record::Region(RegionSpec { space: 0, start: 3, end: 4, kind: RegionKind::Anon }),
        access(0, far, 0),
        access(5, 0, u32::MAX),
        access(far - 100, far, 0),
    ];
    list.extend(
        PagerOp::ALL
            .into_iter()
            .enumerate()
            .map(|(n, op)| pager(far - 100 + n as u64, op, if op.takes(far) { far } else { 7 })),
    );
    list.extend(
        FileOp::ALL.into_iter().enumerate().map(|(n, op)| file(far - 50 + n as u64, op, far - n as u64)),
    );
    list
}

#[test]
fn every_kind_comes_back() {
    let records = samples();
    assert_eq!(read(&written(&records)).expect("intact"), records);
    assert_eq!(read(&written(&[])).expect("intact"), []);
}

#[test]
fn blocks_and_index() {
    let records: Vec<Record> =
        (0..RECORDS_MAX as u64 * 2 + 10).map(|n| access(n * 100, n % 5000, (n / 1000) as u32 % 3)).collect();
    let bytes = written(&records);
    assert!(bytes.len() < records.len() * 3, "{} bytes for {} records", bytes.len(), records.len());
    assert_eq!(read(&bytes).expect("intact"), records);
    let seeker = Seeker::new(Cursor::new(&bytes)).expect("intact");
    assert_eq!(seeker.entries().len(), 3);
    assert_eq!(seeker.records(), records.len() as u64);
    for time_ns in [0, 99, RECORDS_MAX as u64 * 100, RECORDS_MAX as u64 * 200 + 1, u64::MAX] {
        let seeker = Seeker::new(Cursor::new(&bytes)).expect("intact");
        let mut reader = seeker.from_time(time_ns).expect("intact");
        let Some(Record::Access(first)) = reader.next_record().expect("intact") else {
            panic!("accesses only")
        };
        assert!(first.time_ns <= time_ns);
        let mut count = 1;
        while reader.next_record().expect("intact").is_some() {
            count += 1;
        }
        assert_eq!(count, records.len() as u64 - first.time_ns / 100);
    }
}

/// *The story:* a part of a trace that begins later was cut out by a jump, and had no names, notes and
/// regions; of records of one time in two blocks it had those of the second.
#[test]
fn a_jump_takes_names_notes_and_regions_along() {
    let lasting = &samples()[..4];
    let late = Record::Name(NameRecord { id: 2, text: "/opened/later".to_owned() });
    let accesses: Vec<Record> = (0..RECORDS_MAX as u64 * 2).map(|n| access(n / 4 * 4, n, 0)).collect();
    let (first, rest) = accesses.split_at(10);
    let all = [lasting, first, std::slice::from_ref(&late), rest].concat();
    let bytes = written(&all);
    let from = |time_ns: u64| {
        let seeker = Seeker::new(Cursor::new(&bytes)).expect("intact");
        let mut reader = seeker.from_time(time_ns).expect("intact");
        let mut records = Vec::new();
        while let Some(record) = reader.next_record().expect("intact") {
            records.push(record);
        }
        records
    };
    assert_eq!(from(0), all);
    let border = RECORDS_MAX as u64 + 8; // a block begins in the middle of what has this time
    let part = from(border);
    assert_eq!((&part[..4], &part[4]), (lasting, &late));
    let of_time = |record: &&Record| matches!(record, Record::Access(it) if it.time_ns == border);
    assert_eq!(part.iter().filter(of_time).count(), 4);
}

#[test]
fn times_that_fall_are_raised() {
    let records = read(&written(&[access(10, 1, 0), access(4, 2, 0)])).expect("intact");
    assert_eq!(records, [access(10, 1, 0), access(10, 2, 0)]);
}

/// A file that ends early says so, wherever it ends, and everything before is read.
#[test]
fn every_truncation_is_noticed() {
    let bytes = written(&samples());
    for length in 0..bytes.len() {
        let error = read(&bytes[..length]).expect_err("something is missing");
        assert!(
            matches!(error, TraceError::Truncated { offset, .. } if offset == length as u64),
            "{length}: {error}"
        );
        assert!(Seeker::new(Cursor::new(&bytes[..length])).is_err(), "{length}");
    }
}

/// Every single changed byte is noticed: all of the file is under a checksum.
#[test]
fn every_flipped_byte_is_noticed() {
    let records = samples();
    let mut bytes = written(&records);
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            bytes[at] ^= flip;
            let error = read(&bytes).expect_err("a byte is wrong").to_string();
            assert!(error.starts_with("offset "), "{at}: {error}");
            bytes[at] ^= flip;
        }
    }
    bytes.push(0);
    assert!(read(&bytes).expect_err("a byte too many").to_string().contains("behind the footer"));
}

#[test]
fn errors_name_the_place() {
    let bytes = written(&samples());
    let mut damaged = bytes.clone();
    damaged[HEADER_BYTES + BLOCK_HEADER_BYTES + 3] ^= 1;
    assert_eq!(
        read(&damaged).expect_err("damaged").to_string(),
        "offset 80: the checksum of the block that begins here does not match"
    );
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(
        read(&newer).expect_err("newer").to_string(),
        "offset 8: trace format version 9 is not known here (newest: 2)"
    );
    assert_eq!(
        read(b"GIF89a..........................").expect_err("foreign").to_string(),
        "offset 0: these are not the first bytes of a trace"
    );
    let cut = &bytes[..bytes.len() - FOOTER_BYTES];
    assert!(Seeker::new(Cursor::new(cut)).is_err());
}

/// Bytes with correct checksums but arbitrary content behind them.
fn forge(kind: u8, records: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = super::layout::file_header().to_vec();
    let mut header = [0_u8; BLOCK_HEADER_BYTES];
    header[0..4].copy_from_slice(b"OVBK");
    header[4] = kind;
    header[12..16].copy_from_slice(&records.to_le_bytes());
    header[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[20..24].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[24..28].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let crc = crc32c::crc32c(&header[..44]);
    header[44..48].copy_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(payload);
    bytes
}

fn any_record() -> impl Strategy<Value = Record> {
    let access = (any::<u64>(), any::<u64>(), 0_u32..4, 0_u16..3, 0_usize..3).prop_map(
        |(time_ns, vpn, thread, space, kind)| {
            let kind = [AccessKind::Read, AccessKind::Write, AccessKind::Fetch][kind];
            Record::Access(AccessRecord { time_ns: time_ns >> 8, vpn, thread, space, kind })
        },
    );
    let pager = (any::<u64>(), any::<u64>(), 0..PagerOp::ALL.len(), any::<u64>()).prop_map(
        |(time_ns, vpn, op, argument)| {
            let op = PagerOp::ALL[op];
            let argument = if op.takes(argument) { argument } else { 1 + argument % IN_VIEW_MAX };
            Record::Pager(PagerRecord { time_ns: time_ns >> 8, vpn, thread: 1, space: 0, op, argument })
        },
    );
    let name = (any::<u32>(), ".{0,40}").prop_map(|(id, text)| Record::Name(NameRecord { id, text }));
    prop_oneof![access, pager, name]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_records_come_back(records in prop::collection::vec(any_record(), 0..300)) {
        let back = read(&written(&records)).expect("intact");
        prop_assert_eq!(back.len(), records.len());
        let mut last_ns = 0;
        for (record, mut expected) in back.into_iter().zip(records) {
            if let Record::Access(AccessRecord { time_ns, .. }) | Record::Pager(PagerRecord { time_ns, .. }) = &mut expected {
                *time_ns = (*time_ns).max(last_ns);
                last_ns = *time_ns;
            }
            prop_assert_eq!(record, expected);
        }
    }

    #[test]
    fn arbitrary_payloads_do_not_panic(
        kind in 0_u8..9,
        records in 0_u32..2000,
        payload in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        prop_assert!(read(&forge(kind, records, &payload)).is_err());
    }

    /// Column lengths right, columns arbitrary.
    #[test]
    fn arbitrary_columns_do_not_panic(
        kind in 1_u8..6,
        records in 1_u32..50,
        columns in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 6),
    ) {
        let mut payload = Vec::new();
        for column in columns {
            super::columns::put_varint(&mut payload, column.len() as u64);
            payload.extend(column);
        }
        prop_assert!(read(&forge(kind, records, &payload)).is_err());
    }
}

/// The seeded cousin of the fuzz targets: a real file with random damage.
#[test]
fn random_damage_does_not_panic() {
    let records: Vec<Record> = (0..5000).map(|n| access(n * 7, n * n % 1000, n as u32 % 2)).collect();
    let bytes = written(&records);
    let mut rng = Rng::new(8);
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(damaged.len() as u64) as usize;
            match rng.below(3) {
                0 => damaged[at] = rng.next_u64() as u8,
                1 => damaged.truncate(at.max(1)),
                _ => damaged.insert(at, rng.next_u64() as u8),
            }
        }
        if damaged != bytes {
            assert!(read(&damaged).is_err());
        }
    }
}
