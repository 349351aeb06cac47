//! Page 0 of a swap area, as mkswap writes it and the kernel reads it (specification 3.1; the byte diagram is docs/swap-header.md).
//!
//! [`Header::parse`] refuses what the kernel refuses, in the kernel's order, each with its reason; a header of a machine with the
//! other byte order is read, too. [`Header::write`] writes one in this machine's order. What the area's pages hold is nobody's
//! business here, and nothing is read or written.

use core::fmt;

use alloc::vec::Vec;

/// Bytes of the page.
pub const HEADER_BYTES: usize = 4096;
/// The last bytes of the page.
pub const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";
/// What kernels before 2.1.117 had.
const SIGNATURE_OLD: &[u8; 10] = b"SWAP-SPACE";
/// What a hibernated machine puts in the signature's place.
const SIGNATURE_SUSPENDED: [&[u8]; 5] =
    [b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001", b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"];
/// Bytes of a label.
pub const LABEL_BYTES: usize = 16;

const VERSION_AT: usize = 1024;
const LAST_PAGE_AT: usize = 1028;
const BAD_COUNT_AT: usize = 1032;
const UUID_AT: usize = 1036;
const LABEL_AT: usize = 1052;
const BAD_AT: usize = 1536;
const SIGNATURE_AT: usize = HEADER_BYTES - SIGNATURE.len();
/// Numbers of bad pages that there is room for.
pub const BAD_PAGES_MAX: u32 = ((SIGNATURE_AT - BAD_AT) / 4) as u32;
const _: () = assert!(BAD_PAGES_MAX == 637);

/// Where the area lies, as far as that decides what is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A file, which never has bad pages.
    File,
    /// A block device.
    Device,
}

/// A valid header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Index of the last usable page.
    pub last_page: u32,
    /// All zero: none.
    pub uuid: [u8; 16],
    /// Padded with zeroes.
    pub label: [u8; LABEL_BYTES],
    /// Pages that are not to be used.
    pub bad_pages: Vec<u32>,
    /// It was written by a machine with the other byte order.
    pub is_swapped: bool,
}

/// Why a page is no header of an area that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no signature.
    NoSignature,
    /// The signature of kernels before 2.1.117.
    OldFormat,
    /// A hibernated machine's memory is in it.
    Suspended,
    /// An unknown version.
    Version(u32),
    /// Its last page is the header.
    Empty,
    /// The file or device has fewer pages than the header says.
    Short {
        /// Pages that there are.
        has: u64,
        /// Pages that the header speaks of.
        says: u64,
    },
    /// Bad pages in a file.
    BadPagesInFile(u32),
    /// More bad pages than there is room for.
    TooManyBadPages(u32),
    /// A bad page that is the header, or that the area does not have.
    BadPageOutOfRange(u32),
    /// Every page is bad.
    NoneUsable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoSignature => write!(f, "it has no swap signature"),
            Refusal::OldFormat => write!(f, "it has the swap format of kernels before 2.1.117 (SWAP-SPACE)"),
            Refusal::Suspended => write!(f, "the memory of a hibernated machine is in it"),
            Refusal::Version(version) => write!(f, "its header has version {version}, and only 1 is known"),
            Refusal::Empty => write!(f, "its header says that it has no pages"),
            Refusal::Short { has, says } => {
                write!(f, "its header speaks of {says} pages, and there are {has}")
            }
            Refusal::BadPagesInFile(count) => {
                write!(f, "its header lists {count} bad pages, which a file cannot have")
            }
            Refusal::TooManyBadPages(count) => {
                write!(f, "its header lists {count} bad pages, and there is room for {BAD_PAGES_MAX}")
            }
            Refusal::BadPageOutOfRange(page) => {
                write!(f, "its header lists page {page} as bad, which is none of its pages")
            }
            Refusal::NoneUsable => write!(f, "all of its pages are bad"),
        }
    }
}

impl Header {
    /// The header of an area of `pages` pages, this one included.
    ///
    /// # Panics
    /// With fewer than two pages, or a label that is too long.
    #[must_use]
    pub fn new(pages: u32, uuid: [u8; 16], label: &[u8]) -> Self {
        assert!(pages >= 2, "an area has a page beside its header");
        let mut padded = [0; LABEL_BYTES];
        padded[..label.len()].copy_from_slice(label);
        Header { last_page: pages - 1, uuid, label: padded, bad_pages: Vec::new(), is_swapped: false }
    }

    /// Pages that can be used: neither header nor bad.
    #[must_use]
    pub fn usable(&self) -> u32 {
        self.last_page - self.bad_pages.len() as u32
    }

    /// The label's characters.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let end = self.label.iter().position(|&byte| byte == 0).unwrap_or(LABEL_BYTES);
        &self.label[..end]
    }

    /// Reads the first page of a medium that has `pages` pages in all.
    ///
    /// # Errors
    /// With the first reason, in the kernel's order, for which it cannot be used.
    pub fn parse(page: &[u8; HEADER_BYTES], medium: Medium, pages: u64) -> Result<Header, Refusal> {
        check_signature(page)?;
        let is_swapped = word(page, VERSION_AT, false).swap_bytes() == 1;
        let word = |at: usize| word(page, at, is_swapped);
        let (version, last_page, bad_count) = (word(VERSION_AT), word(LAST_PAGE_AT), word(BAD_COUNT_AT));
        if version != 1 {
            return Err(Refusal::Version(version));
        }
        if last_page == 0 {
            return Err(Refusal::Empty);
        }
        let says = u64::from(last_page) + 1;
        if pages < says {
            return Err(Refusal::Short { has: pages, says });
        }
        if bad_count > 0 && medium == Medium::File {
            return Err(Refusal::BadPagesInFile(bad_count));
        }
        if bad_count > BAD_PAGES_MAX {
            return Err(Refusal::TooManyBadPages(bad_count));
        }
        let mut bad_pages: Vec<u32> = (0..bad_count as usize).map(|n| word(BAD_AT + 4 * n)).collect();
        if let Some(&page) = bad_pages.iter().find(|&&page| page == 0 || page > last_page) {
            return Err(Refusal::BadPageOutOfRange(page));
        }
        // A page that is listed twice is bad once.
        bad_pages.sort_unstable();
        bad_pages.dedup();
        if bad_pages.len() as u32 == last_page {
            return Err(Refusal::NoneUsable);
        }
        let bytes = |at: usize| <[u8; 16]>::try_from(&page[at..at + 16]).expect("sixteen bytes");
        Ok(Header { last_page, uuid: bytes(UUID_AT), label: bytes(LABEL_AT), bad_pages, is_swapped })
    }

    /// Writes it into a page, in this machine's byte order. The first 1024 bytes stay: they may be a boot loader's.
    ///
    /// # Panics
    /// When there are more bad pages than there is room for.
    pub fn write(&self, page: &mut [u8; HEADER_BYTES]) {
        assert!(self.bad_pages.len() <= BAD_PAGES_MAX as usize, "they have to fit");
        page[VERSION_AT..].fill(0);
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(VERSION_AT, &1u32.to_ne_bytes());
        put(LAST_PAGE_AT, &self.last_page.to_ne_bytes());
        put(BAD_COUNT_AT, &(self.bad_pages.len() as u32).to_ne_bytes());
        put(UUID_AT, &self.uuid);
        put(LABEL_AT, &self.label);
        for (n, bad) in self.bad_pages.iter().enumerate() {
            put(BAD_AT + 4 * n, &bad.to_ne_bytes());
        }
        put(SIGNATURE_AT, SIGNATURE);
    }
}

fn check_signature(page: &[u8; HEADER_BYTES]) -> Result<(), Refusal> {
    let signature = &page[SIGNATURE_AT..];
    match signature {
        _ if signature == SIGNATURE => Ok(()),
        _ if signature == SIGNATURE_OLD => Err(Refusal::OldFormat),
        _ if SIGNATURE_SUSPENDED.iter().any(|known| signature.starts_with(known)) => Err(Refusal::Suspended),
        _ => Err(Refusal::NoSignature),
    }
}

fn word(page: &[u8; HEADER_BYTES], at: usize, is_swapped: bool) -> u32 {
    let word = u32::from_ne_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if is_swapped { word.swap_bytes() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Page = [u8; HEADER_BYTES];

    fn page(header: &Header) -> Page {
        let mut page = [0xee; HEADER_BYTES];
        header.write(&mut page);
        page
    }

    fn good() -> Header {
        Header::new(1000, *b"0123456789abcdef", b"spill")
    }

    fn with(change: impl FnOnce(&mut Page)) -> Page {
        let mut changed = page(&good());
        change(&mut changed);
        changed
    }

    fn put(page: &mut Page, at: usize, word: u32) {
        page[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }

    #[test]
    fn what_is_written_is_read() {
        let header = Header { bad_pages: vec![3, 999], ..good() };
        let page = page(&header);
        assert_eq!(Header::parse(&page, Medium::Device, 1000), Ok(header.clone()));
        assert_eq!((header.usable(), header.label()), (997, &b"spill"[..]));
        assert!(page[..1024].iter().all(|&byte| byte == 0xee), "a boot loader's part stays");
        assert!(page.ends_with(SIGNATURE));
    }

    #[test]
    fn the_other_byte_order_is_read() {
        let foreign = with(|page| {
            put(page, BAD_COUNT_AT, 2);
            [7, 8].into_iter().enumerate().for_each(|(n, bad)| put(page, BAD_AT + 4 * n, bad));
            for at in [VERSION_AT, LAST_PAGE_AT, BAD_COUNT_AT, BAD_AT, BAD_AT + 4] {
                page[at..at + 4].reverse();
            }
        });
        let header = Header::parse(&foreign, Medium::Device, 1000).unwrap();
        assert_eq!((header.last_page, header.is_swapped, &header.bad_pages[..]), (999, true, &[7, 8][..]));
    }

    #[test]
    fn everything_is_refused_with_its_reason() {
        let bad = |numbers: &[u32]| {
            with(|page| {
                put(page, BAD_COUNT_AT, numbers.len() as u32);
                numbers.iter().enumerate().for_each(|(n, &bad)| put(page, BAD_AT + 4 * n, bad));
            })
        };
        let signed = |signature: &[u8]| {
            with(|page| page[SIGNATURE_AT..SIGNATURE_AT + signature.len()].copy_from_slice(signature))
        };
        let cases = [
            ([0; HEADER_BYTES], Refusal::NoSignature),
            (signed(b"SWAP-SPACE"), Refusal::OldFormat),
            (signed(b"S1SUSPEND"), Refusal::Suspended),
            (with(|page| put(page, VERSION_AT, 2)), Refusal::Version(2)),
            (with(|page| put(page, LAST_PAGE_AT, 0)), Refusal::Empty),
            (with(|page| put(page, LAST_PAGE_AT, 1000)), Refusal::Short { has: 1000, says: 1001 }),
            (with(|page| put(page, LAST_PAGE_AT, u32::MAX)), Refusal::Short { has: 1000, says: 1 << 32 }),
            (with(|page| put(page, BAD_COUNT_AT, 638)), Refusal::TooManyBadPages(638)),
            (with(|page| put(page, BAD_COUNT_AT, u32::MAX)), Refusal::TooManyBadPages(u32::MAX)),
            (bad(&[5, 0]), Refusal::BadPageOutOfRange(0)),
            (bad(&[5, 1000]), Refusal::BadPageOutOfRange(1000)),
        ];
        for (page, reason) in cases {
            assert_eq!(Header::parse(&page, Medium::Device, 1000), Err(reason), "{reason}");
        }
        assert_eq!(Header::parse(&bad(&[5]), Medium::File, 1000), Err(Refusal::BadPagesInFile(1)));
        let mut all_bad = bad(&[1, 2, 3]);
        put(&mut all_bad, LAST_PAGE_AT, 3);
        assert_eq!(Header::parse(&all_bad, Medium::Device, 4), Err(Refusal::NoneUsable));
        let twice = Header::parse(&bad(&[5, 5]), Medium::Device, 1000).unwrap();
        assert_eq!(twice.usable(), 998, "a page that is listed twice is bad once");
    }

    /// Of several reasons the kernel names the first; and nothing that a page may hold makes the parser fail.
    #[test]
    fn the_first_reason_counts_and_any_bytes_will_do() {
        let both = with(|page| {
            put(page, LAST_PAGE_AT, 5000);
            put(page, BAD_COUNT_AT, 700);
        });
        assert!(matches!(Header::parse(&both, Medium::File, 1000), Err(Refusal::Short { .. })));
        let mut seed = 27u64;
        for _ in 0..2000 {
            let noise = with(|page| {
                for byte in &mut page[VERSION_AT + 4..SIGNATURE_AT] {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    *byte = (seed >> 33) as u8 & (seed >> 41) as u8;
                }
            });
            for medium in [Medium::File, Medium::Device] {
                if let Ok(header) = Header::parse(&noise, medium, seed >> 33) {
                    assert!(header.usable() > 0);
                }
            }
        }
    }
}
