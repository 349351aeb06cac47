//! The function that a name would mean if the agent were not there: the next library's, by the
//! loader's own list.
//!
//! libc's `dlsym(RTLD_NEXT, ...)` says the same, but it is a name that a program can stand before,
//! and it takes locks. Only read here, at the start, before the program's first thread: the list is
//! the loader's (`struct link_map` in link.h), what it leads to is each library's dynamic section
//! (System V ABI, chapter 5) with a hash table: GNU's, or else the older one, of all symbols.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::foreign;

/// The head of the loader's list of libraries; 0 while it is not known.
static LIBRARIES: AtomicUsize = AtomicUsize::new(0);

/// An entry of the loader's list.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
    next: *const LinkMap,
}

/// An entry of a dynamic section, `Elf64_Dyn`.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// A program header, `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_bytes: usize,
    memory_bytes: usize,
    alignment: usize,
}

/// A symbol, `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The loader's own record, `struct r_debug`.
#[repr(C)]
struct Debug {
    version: i32,
    map: *const LinkMap,
}

const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_DEBUG: i64 = 21;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const PF_W: u32 = 2;
/// Where an ELF header has the place of the program headers, and their number.
const HEADERS_AT: usize = 32;
const HEADERS_COUNT_AT: usize = 56;
/// Libraries that are looked at, at most.
const LIBRARIES_MAX: usize = 4096;

unsafe extern "C" {
    /// The agent's own dynamic section; the linker provides it, hidden.
    #[link_name = "_DYNAMIC"]
    static OWN_DYNAMIC: Entry;
    /// Its first byte; the linker provides that, too.
    #[link_name = "__ehdr_start"]
    static OWN_HEADER: u8;
}

/// Finds the loader's list by way of the program's headers.
///
/// # Safety
/// `environment` is what the loader passes to constructors: pointers, a null pointer, then the
/// auxiliary vector.
pub unsafe fn set_up(environment: *const *const c_char) {
    // SAFETY: passed on to the caller.
    let Some(head) = (unsafe { list_by(environment) }) else { return };
    LIBRARIES.store(head as usize, Ordering::Release);
}

/// The same by the address of the loader's record.
///
/// # Safety
/// It is that.
pub unsafe fn set_up_by(record: usize) {
    // SAFETY: passed on to the caller.
    LIBRARIES.store(unsafe { (*(record as *const Debug)).map } as usize, Ordering::Release);
}

/// # Safety
/// As for [`set_up`].
unsafe fn list_by(environment: *const *const c_char) -> Option<*const LinkMap> {
    // SAFETY: the caller vouches for the arrays: both end where the loops do. The headers are the
    // program's, mapped for its whole life, and so is the section that they tell of.
    unsafe {
        let mut end = environment;
        while !end.is_null() && !(*end).is_null() {
            end = end.add(1);
        }
        if end.is_null() {
            return None;
        }
        let mut pair = end.add(1).cast::<[usize; 2]>();
        let (mut headers, mut count) = (0, 0);
        while (*pair)[0] != 0 {
            match *pair {
                [AT_PHDR, at] => headers = at,
                [AT_PHNUM, number] => count = number,
                _ => {}
            }
            pair = pair.add(1);
        }
        if headers == 0 {
            return None;
        }
        let all = core::slice::from_raw_parts(headers as *const Header, count);
        let find = |kind| all.iter().find(|header| header.kind == kind);
        let base = headers.wrapping_sub(find(PT_PHDR)?.address);
        let dynamic = base.wrapping_add(find(PT_DYNAMIC)?.address) as *const Entry;
        let debug = value(dynamic, DT_DEBUG)? as *const Debug;
        (!debug.is_null()).then(|| (*debug).map)
    }
}

/// The value of an entry of a dynamic section.
///
/// # Safety
/// `dynamic` is a dynamic section: entries, the last with the tag 0.
unsafe fn value(dynamic: *const Entry, tag: i64) -> Option<usize> {
    let mut at = dynamic;
    loop {
        // SAFETY: the loop ends with the section.
        let entry = unsafe { &*at };
        if entry.tag == tag {
            return Some(entry.value);
        }
        if entry.tag == 0 {
            return None;
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
}

/// What libc has, and nobody stands before.
const OF_LIBC: &CStr = c"__libc_start_main";

/// The address of the function `name` in the first library behind the agent that has it.
pub fn next(name: &CStr) -> Option<usize> {
    let is_own = |map: &LinkMap| core::ptr::eq(map.dynamic, &raw const OWN_DYNAMIC);
    let mut behind = libraries().skip_while(|map| !is_own(map)).skip(1);
    // SAFETY: what the loader lists is loaded.
    behind.find_map(|map| unsafe { find(map, name) })
}

/// Is the agent the first who has the function `name`? No, where nothing is known.
pub fn is_own_first(name: &CStr) -> bool {
    // SAFETY: as above.
    let first = libraries().find(|map| unsafe { find(map, name) }.is_some());
    first.is_some_and(|map| core::ptr::eq(map.dynamic, &raw const OWN_DYNAMIC))
}

/// Notes where the next library has each of these functions; 0: none has it.
pub fn find_next(functions: &[(&CStr, &AtomicUsize)]) {
    functions.iter().for_each(|(name, place)| place.store(next(name).unwrap_or(0), Ordering::Release));
}

/// What [`next`] gives where that library is not glibc: somebody else stands before it, behind the agent.
pub fn next_but_glibc(name: &CStr) -> Option<usize> {
    let next = next(name)?;
    if !foreign::is_glibc() {
        return Some(next);
    }
    // SAFETY: as above.
    let libc = libraries().find(|map| unsafe { find(map, OF_LIBC) }.is_some());
    // SAFETY: as above.
    let of_libc = libc.and_then(|map| unsafe { find(map, name) });
    (of_libc != Some(next)).then_some(next)
}

/// Calls `visit` with the handles of whoever asks others for the name, the program included: what
/// exit handlers are registered by. It is a word that holds its own address, among the data; the
/// programs that lie where they were linked to have none, and 0 is theirs.
pub fn handles_of_askers(name: &CStr, mut visit: impl FnMut(usize)) {
    // SAFETY: as above.
    for map in libraries().filter(|map| unsafe { asks_for(map, name) }.unwrap_or(false)) {
        visit(0);
        if map.base != 0 {
            // SAFETY: as above, and it begins with its header.
            unsafe { self_pointers(map.base, &mut visit) };
        }
    }
}

/// # Safety
/// A library that is loaded begins at `base`, and its data are in memory.
unsafe fn self_pointers(base: usize, visit: &mut impl FnMut(usize)) {
    // SAFETY: of the library's data all words are readable.
    unsafe {
        for data in data_of(base, |header| header.file_bytes) {
            let start = data.start.next_multiple_of(size_of::<usize>());
            let words = (start..data.end.saturating_sub(7)).step_by(size_of::<usize>());
            words.filter(|&at| (at as *const usize).read_volatile() == at).for_each(&mut *visit);
        }
    }
}

/// What may be written to of a library, as far as it is in its file, or in memory.
///
/// # Safety
/// A library that is loaded begins at `base`.
unsafe fn data_of(base: usize, bytes: fn(&Header) -> usize) -> impl Iterator<Item = AddressRange> {
    // SAFETY: the header says where the program headers are.
    let all = unsafe {
        let headers = *((base + HEADERS_AT) as *const usize);
        let count = *((base + HEADERS_COUNT_AT) as *const u16);
        core::slice::from_raw_parts((base + headers) as *const Header, usize::from(count))
    };
    let data = all.iter().filter(|header| header.kind == PT_LOAD && header.flags & PF_W != 0);
    data.map(move |header| base + header.address..base + header.address + bytes(header))
}

/// Calls `visit` with the pages of the agent's own data.
///
/// *The story:* memory that was mapped directly behind them became one mapping with their end, which is
/// anonymous, too. All of it was managed, and the agent waited for itself (`citizens::audited`). *The other
/// story:* only what is in the file was left out. That held until a page of the rest had not been touched yet
/// when it was managed.
pub fn each_own_data(visit: &mut impl FnMut(AddressRange)) {
    // SAFETY: the agent begins with its header, and is never unloaded.
    for data in unsafe { data_of((&raw const OWN_HEADER) as usize, |header| header.memory_bytes) } {
        visit(data.start / PAGE_SIZE * PAGE_SIZE..data.end.next_multiple_of(PAGE_SIZE));
    }
}

/// What is loaded, the program first.
fn libraries() -> impl Iterator<Item = &'static LinkMap> {
    let mut next = LIBRARIES.load(Ordering::Acquire) as *const LinkMap;
    let all = core::iter::from_fn(move || {
        // SAFETY: what the loader lists is loaded, and nothing is unloaded before main; its list
        // ends with a null pointer.
        let map = unsafe { next.as_ref() }?;
        next = map.next;
        Some(map)
    });
    all.take(LIBRARIES_MAX)
}

/// # Safety
/// The library is loaded.
unsafe fn asks_for(map: &LinkMap, name: &CStr) -> Option<bool> {
    let address = |value: usize| if value < map.base { map.base + value } else { value };
    // SAFETY: as for `find`. GNU's hash table leaves out the first symbols, and those that are asked of
    // others are among them; the older one counts all.
    unsafe {
        let table = |tag| value(map.dynamic, tag).map(address);
        let (symbols, strings) = (table(DT_SYMTAB)? as *const Symbol, table(DT_STRTAB)?);
        let end = *(table(DT_GNU_HASH).or_else(|| table(DT_HASH))? as *const u32).add(1);
        let named = |index| {
            let symbol: &Symbol = &*symbols.add(index as usize);
            let is_asked = symbol.section == 0;
            is_asked && CStr::from_ptr((strings + symbol.name as usize) as *const c_char) == name
        };
        Some((1..end).any(named))
    }
}

/// # Safety
/// The library is loaded.
unsafe fn find(map: &LinkMap, name: &CStr) -> Option<usize> {
    // glibc has made addresses of these values where it could, other loaders leave them as they are
    // in the file.
    let address = |value: usize| if value < map.base { map.base + value } else { value };
    // SAFETY: a loaded library has its tables in memory, laid out as the ABI has it.
    unsafe {
        let table = |tag| value(map.dynamic, tag).map(address);
        let (symbols, strings) = (table(DT_SYMTAB)? as *const Symbol, table(DT_STRTAB)?);
        let symbol = |index: u32| &*symbols.add(index as usize);
        let is_it = |index: u32| {
            let named = (strings + symbol(index).name as usize) as *const c_char;
            symbol(index).section != 0 && CStr::from_ptr(named) == name
        };
        let index = match table(DT_GNU_HASH) {
            Some(hashes) => among_hashed(hashes as *const u32, name, is_it),
            None => among_all(table(DT_HASH)? as *const u32, name, is_it),
        };
        Some(map.base + symbol(index?).value)
    }
}

/// The number of a symbol of this name by GNU's hash table: of those that `is_it` accepts.
///
/// # Safety
/// It is such a table, of which each chain ends with an odd hash.
unsafe fn among_hashed(hashes: *const u32, name: &CStr, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    // SAFETY: the caller vouches for the table.
    unsafe {
        let [buckets_count, first, filter_words] = [0, 1, 2].map(|index| *hashes.add(index));
        if buckets_count == 0 {
            return None;
        }
        let buckets = hashes.add(4 + 2 * filter_words as usize);
        let chains = buckets.add(buckets_count as usize);
        let wanted = hash(name.to_bytes());
        let mut index = *buckets.add((wanted % buckets_count) as usize);
        if index < first {
            return None;
        }
        loop {
            let found = *chains.add((index - first) as usize);
            if found | 1 == wanted | 1 && is_it(index) {
                return Some(index);
            }
            if found & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }
}

/// The same by the older table.
///
/// *The story:* a library that has no other one was passed over.
///
/// # Safety
/// It is such a table, of which each chain ends with 0.
unsafe fn among_all(hashes: *const u32, name: &CStr, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    // SAFETY: the caller vouches for the table.
    unsafe {
        let buckets_count = *hashes;
        if buckets_count == 0 {
            return None;
        }
        let buckets = hashes.add(2);
        let chains = buckets.add(buckets_count as usize);
        let mut index = *buckets.add((old_hash(name.to_bytes()) % buckets_count) as usize);
        while index != 0 && !is_it(index) {
            index = *chains.add(index as usize);
        }
        Some(index).filter(|&index| index != 0)
    }
}

/// The hash function of GNU hash tables.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

/// That of the older ones.
fn old_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        (hash ^ (hash >> 24 & 0xf0)) & 0x0fff_ffff
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_of_the_abi() {
        let both = |name: &[u8]| (hash(name), old_hash(name));
        assert_eq!(both(b""), (0x1505, 0));
        assert_eq!(both(b"printf"), (0x156b_2bb8, 0x0779_05a6));
        assert_eq!(both(b"syscall"), (0xbac2_12a0, 0x0b09_985c));
    }

    /// Two symbols in one bucket, of which the second is asked for.
    #[test]
    fn the_older_table_is_followed_to_its_end() {
        // One bucket, three symbols with the first, which is none: the bucket, and the chains.
        let table = [1u32, 3, 1, 0, 2, 0];
        let find = |wanted| {
            // SAFETY: it is such a table.
            unsafe { among_all(table.as_ptr(), c"name", |index| index == wanted) }
        };
        assert_eq!((find(1), find(2), find(3)), (Some(1), Some(2), None));
    }
}
