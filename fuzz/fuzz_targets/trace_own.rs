//! Arbitrary payloads behind correct headers and checksums: the column decoder meets what no
//! checksum keeps away.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overspill_sim::trace::RecordReader;
use overspill_sim::trace::own::Reader;
use overspill_sim::trace::own::layout::{BlockHeader, BlockKind, Codec, file_header};

const KINDS: [BlockKind; 6] = [
    BlockKind::Access,
    BlockKind::Pager,
    BlockKind::File,
    BlockKind::Name,
    BlockKind::Region,
    BlockKind::Index,
];

fuzz_target!(|input: (u8, bool, u16, &[u8])| {
    let (kind, packed, records, payload) = input;
    let header = BlockHeader {
        kind: KINDS[usize::from(kind) % KINDS.len()],
        codec: if packed { Codec::Zstd } else { Codec::Stored },
        number: 0,
        records: u32::from(records),
        raw_bytes: payload.len() as u32 * if packed { 20 } else { 1 },
        stored_bytes: payload.len() as u32,
        payload_crc: overspill_sim::trace::own::checksum(payload),
        first_ns: 0,
        last_ns: 0,
    };
    let mut bytes = file_header().to_vec();
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(payload);
    let Ok(mut reader) = Reader::new(&bytes[..]) else { return };
    while let Ok(Some(_)) = reader.next_record() {}
});
