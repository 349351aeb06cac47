//! Programs that are started with a cleaned environment get the agent all the same.
//!
//! The agent comes to a program by two variables, and a third has AddressSanitizer bear it. Where the
//! caller's environment lacks them they are added to what is handed on, and the caller's own is not
//! touched; a preload of the program's own stays, behind the agent, and so do the sanitizer's options.
//! Who has another launcher's variable (a run within a run) keeps it, and its agent.
//! Everything lies on the stack ([`room`]) and nothing is locked: this runs in signal handlers and
//! between vfork and exec. The next library's function makes the call.
//!
//! Out of reach: an exec by the bare instruction, what a static program starts, and what the loader
//! itself takes away (set-user-ID).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use linux_raw_sys::general::{__NR_execve, __NR_execveat, R_OK};
use overspill_engine::shared::{ENV, hexadecimal};
use overspill_sys::text::Decimal;
use overspill_sys::{Errno, file};

use crate::{agent, cpu_limit, elf, filters, libc, peek, room, start};

/// Strings, then a null pointer.
type Strings = *const *const c_char;
type Execve = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
type Fexecve = unsafe extern "C" fn(c_int, Strings, Strings) -> c_int;
type Execveat = unsafe extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
type Spawn =
    unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;

static EXECVE: AtomicUsize = AtomicUsize::new(0);
static EXECVPE: AtomicUsize = AtomicUsize::new(0);
static FEXECVE: AtomicUsize = AtomicUsize::new(0);
static EXECVEAT: AtomicUsize = AtomicUsize::new(0);
static SPAWN: AtomicUsize = AtomicUsize::new(0);
static SPAWNP: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// The environment of this process, by the name that libc uses. The loader alone knows whose variable it
    /// is: a program may have a copy of its own in place of libc's.
    ///
    /// *The story:* it was looked for by hand, and not in programs that are linked with a hash table of the
    /// older kind: what they started by execv had an empty environment.
    #[link_name = "__environ"]
    static ENVIRON: AtomicPtr<*const c_char>;
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// AddressSanitizer's options; and the one without which it refuses to be loaded behind the agent.
const SANITIZER: &[u8] = b"ASAN_OPTIONS=";
const ORDER: &[u8] = b"verify_asan_link_order";

/// Looks up what is called later.
pub fn set_up() {
    elf::find_next(&[
        (c"execve", &EXECVE),
        (c"execvpe", &EXECVPE),
        (c"fexecve", &FEXECVE),
        (c"execveat", &EXECVEAT),
        (c"posix_spawn", &SPAWN),
        (c"posix_spawnp", &SPAWNP),
    ]);
}

/// What an environment lacks.
struct Lack {
    entries: usize,
    lacks_run: bool,
    /// Where LD_PRELOAD is, if it is there without the agent; `None` inside: it is not there at all.
    preload: Option<Option<usize>>,
    /// The same of the sanitizer's options.
    sanitizer: Option<Option<usize>>,
}

impl Lack {
    fn is_nothing(&self) -> bool {
        !self.lacks_run && self.preload.is_none() && self.sanitizer.is_none()
    }
}

/// `None`: nothing, or it is not known what to add.
///
/// # Safety
/// `environment` is null or strings with a null pointer behind them.
unsafe fn lack(environment: Strings, agent: &[u8]) -> Option<Lack> {
    let mut lack = Lack { entries: 0, lacks_run: true, preload: Some(None), sanitizer: Some(None) };
    let mut has_another = false;
    // SAFETY: passed on to the caller.
    for entry in unsafe { entries(environment) } {
        if entry.strip_prefix(ENV.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")) {
            lack.lacks_run = false;
        }
        if let Some(libraries) = entry.strip_prefix(PRELOAD) {
            lack.preload = if names(libraries, agent) { None } else { Some(Some(lack.entries)) };
            has_another = parts(libraries).any(|library| is_like(library, agent));
        }
        if let Some(options) = entry.strip_prefix(SANITIZER) {
            let is_said = options.windows(ORDER.len()).any(|part| part == ORDER);
            lack.sanitizer = if is_said { None } else { Some(Some(lack.entries)) };
        }
        lack.entries += 1;
    }
    if has_another && !lack.lacks_run {
        lack.preload = None;
    }
    (!lack.is_nothing()).then_some(lack)
}

/// Calls with an environment that has the agent.
///
/// # Safety
/// As for [`lack`].
unsafe fn with_agent(environment: Strings, mut call: impl FnMut(Strings) -> c_int) -> c_int {
    cpu_limit::before_exec();
    let Some(path) = agent::path() else { return call(environment) };
    // SAFETY: passed on to the caller. What cannot be read is the kernel's to refuse.
    if !unsafe { peek::are_strings(environment) } {
        return call(environment);
    }
    let agent = path.to_bytes();
    if !is_to_be_found(path) {
        // SAFETY: passed on to the caller.
        return unsafe { without_agent(environment, agent, &mut call) };
    }
    // SAFETY: passed on to the caller.
    let Some(lack) = (unsafe { lack(environment, agent) }) else { return call(environment) };
    // SAFETY: as above.
    unsafe { with_more(environment, &lack, agent, &mut call) }
}

/// Can the loader open the agent's library from here? Not behind a change of root, nor where something
/// is mounted over its directory. Behind a filter nobody asks: it may kill whoever does.
fn is_to_be_found(path: &CStr) -> bool {
    // As the loader opens it: with the effective rights.
    let asks = || file::may(path, R_OK);
    filters::may_be_filtered() || !matches!(asks(), Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS))
}

/// Calls with an environment that names the agent no more, which the loader could not find.
///
/// *The story:* behind a chroot each program began with the loader's complaint about that.
///
/// # Safety
/// As for [`lack`].
unsafe fn without_agent(environment: Strings, agent: &[u8], call: &mut dyn FnMut(Strings) -> c_int) -> c_int {
    let (mut count, mut named) = (0, None);
    // SAFETY: passed on to the caller.
    for entry in unsafe { entries(environment) } {
        if let Some(libraries) = entry.strip_prefix(PRELOAD).filter(|libraries| names(libraries, agent)) {
            named = Some((count, libraries));
        }
        count += 1;
    }
    let Some((named, libraries)) = named else { return call(environment) };
    let handed = room::with(count + 1, PRELOAD.len() + libraries.len() + 1, &mut |mut room| {
        let others = || parts(libraries).filter(|&other| !other.is_empty() && other != agent);
        let between = core::iter::once(&b""[..]).chain(core::iter::repeat(&b":"[..]));
        let joined = between.zip(others()).flat_map(|(between, other)| [between, other]);
        let preload = others().next().map(|_| room.text(core::iter::once(PRELOAD).chain(joined)));
        // SAFETY: the entries were counted.
        let entry = |index| unsafe { *environment.add(index) };
        let kept = (0..count).filter(|&index| index != named).map(entry).chain(preload);
        for (place, entry) in kept.chain([core::ptr::null()]).enumerate() {
            room.put(place, entry);
        }
        call(room.entries())
    });
    handed.unwrap_or_else(|| call(environment))
}

/// The entries of an environment.
///
/// # Safety
/// `environment` is null or strings with a null pointer behind them, which stay as they are while they are
/// looked at.
pub unsafe fn entries<'a>(environment: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    let at = move |index| {
        // SAFETY: the caller vouches for the array; nobody looks behind its null pointer.
        let entry = unsafe { *environment.add(index) };
        // SAFETY: as above: it is a string.
        (!entry.is_null()).then(|| unsafe { CStr::from_ptr(entry) }.to_bytes())
    };
    (0..).take_while(move |_| !environment.is_null()).map_while(at)
}

/// Does LD_PRELOAD name the agent?
fn names(libraries: &[u8], agent: &[u8]) -> bool {
    parts(libraries).any(|library| library == agent)
}

/// Is it another launcher's agent? That has the same name, or is a launcher's descriptor.
///
/// *The story:* a launcher within a run started a program with its own agent. This one was put before
/// that: each paged the other, and the program stood still.
fn is_like(library: &[u8], agent: &[u8]) -> bool {
    let name = |path: &[u8]| path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let is_descriptor = library.starts_with(b"/proc/") && library.windows(4).any(|part| part == b"/fd/");
    is_descriptor || library[name(library)..] == agent[name(agent)..]
}

/// The libraries that LD_PRELOAD names.
pub fn parts(libraries: &[u8]) -> impl Iterator<Item = &[u8]> {
    libraries.split(|byte| b" :".contains(byte))
}

/// An entry that is made: in place of one that is there, or behind them all.
struct Made<'a> {
    place: Option<usize>,
    parts: &'a [&'a [u8]],
}

impl Made<'_> {
    /// With the NUL that ends it.
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + 1
    }
}

/// Calls with an environment that has what this one lacks.
///
/// # Safety
/// As for [`lack`], which told what it lacks.
unsafe fn with_more(
    environment: Strings,
    lack: &Lack,
    agent: &[u8],
    call: &mut dyn FnMut(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller vouches for so many entries.
    let entry = |index| unsafe { *environment.add(index) };
    let there = |place: Option<Option<usize>>| {
        // SAFETY: an entry that was found is there, and a string.
        place.flatten().map_or(&[][..], |index| unsafe { CStr::from_ptr(entry(index)) }.to_bytes())
    };
    let address = start::address();
    let numbers = [address.process, address.descriptor, address.filters];
    let numbers = numbers.map(|number| Decimal::new(u64::from(number)));
    let [process, descriptor, filters] = numbers.each_ref().map(Decimal::as_bytes);
    let token = hexadecimal(address.token);
    let run = [ENV.as_bytes(), b"=", process, b":", descriptor, b":", &token, b":", filters];
    let others = there(lack.preload).get(PRELOAD.len()..);
    let preload = [PRELOAD, agent, if others.is_some() { b":" } else { b"" }, others.unwrap_or_default()];
    let options = Some(there(lack.sanitizer)).filter(|options| options.len() > SANITIZER.len());
    let [options, between] = options.map_or([SANITIZER, b""], |options| [options, b":"]);
    let sanitizer = [options, between, ORDER, b"=0"];
    let made = [
        lack.lacks_run.then_some(Made { place: None, parts: &run }),
        lack.preload.map(|place| Made { place, parts: &preload }),
        lack.sanitizer.map(|place| Made { place, parts: &sanitizer }),
    ];
    let bytes = made.iter().flatten().map(Made::bytes).sum();
    let handed = room::with(lack.entries + made.len() + 1, bytes, &mut |mut room| {
        (0..lack.entries).for_each(|index| room.put(index, entry(index)));
        let mut count = lack.entries;
        for Made { place, parts } in made.iter().flatten() {
            let text = room.text(parts.iter().copied());
            room.put(place.unwrap_or(count), text);
            count += usize::from(place.is_none());
        }
        room.put(count, core::ptr::null());
        call(room.entries())
    });
    handed.unwrap_or_else(|| call(environment))
}

/// The environment of this process.
fn own_environment() -> Strings {
    // SAFETY: the loader has found the variable; who changes it while another thread calls exec has that
    // race without an agent, too.
    unsafe { ENVIRON.load(Ordering::Relaxed) }.cast_const()
}

/// A function that was looked up.
fn known(place: &AtomicUsize) -> Option<usize> {
    Some(place.load(Ordering::Acquire)).filter(|&address| address != 0)
}

/// execve(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, words: Strings, environment: Strings) -> c_int {
    let call = |environment: Strings| match known(&EXECVE) {
        // SAFETY: the function has this type, and the caller vouches for the arguments.
        Some(next) => unsafe { core::mem::transmute::<usize, Execve>(next)(path, words, environment) },
        // SAFETY: as above.
        None => unsafe {
            let arguments = [path as usize, words as usize, environment as usize, 0, 0, 0];
            libc::call(__NR_execve, arguments) as c_int
        },
    };
    // SAFETY: the caller vouches for the environment.
    unsafe { with_agent(environment, call) }
}

/// execv(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: Strings) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { execve(path, words, own_environment()) }
}

/// execvpe(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, words: Strings, environment: Strings) -> c_int {
    let Some(next) = known(&EXECVPE) else { return libc::fail(Errno::NOSYS) as c_int };
    // SAFETY: the function has this type, and the caller vouches for the arguments.
    unsafe {
        with_agent(environment, |environment| {
            core::mem::transmute::<usize, Execve>(next)(file, words, environment)
        })
    }
}

/// execvp(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: Strings) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { execvpe(file, words, own_environment()) }
}

/// fexecve(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(file: c_int, words: Strings, environment: Strings) -> c_int {
    let Some(next) = known(&FEXECVE) else { return libc::fail(Errno::NOSYS) as c_int };
    // SAFETY: the function has this type, and the caller vouches for the arguments.
    unsafe {
        with_agent(environment, |environment| {
            core::mem::transmute::<usize, Fexecve>(next)(file, words, environment)
        })
    }
}

/// execveat(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    words: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let call = |environment: Strings| match known(&EXECVEAT) {
        // SAFETY: the function has this type, and the caller vouches for the arguments.
        Some(next) => unsafe {
            core::mem::transmute::<usize, Execveat>(next)(directory, path, words, environment, flags)
        },
        // SAFETY: as above. glibc has the function since 2.34; `syscall` makes the call with any.
        None => unsafe {
            let (words, environment) = (words as usize, environment as usize);
            let arguments = [directory as usize, path as usize, words, environment, flags as usize, 0];
            libc::call(__NR_execveat, arguments) as c_int
        },
    };
    // SAFETY: the caller vouches for the environment.
    unsafe { with_agent(environment, call) }
}

/// posix_spawn(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { spawn(&SPAWN, (pid, path, actions, attributes), words, environment) }
}

/// posix_spawnp(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { spawn(&SPAWNP, (pid, file, actions, attributes), words, environment) }
}

/// # Safety
/// As for the functions.
unsafe fn spawn(
    function: &AtomicUsize,
    (pid, path, actions, attributes): (*mut c_int, *const c_char, *const c_void, *const c_void),
    words: Strings,
    environment: Strings,
) -> c_int {
    // These return the error.
    let Some(next) = known(function) else { return Errno::NOSYS.raw_os_error() };
    // SAFETY: the function has this type, and the caller vouches for the arguments.
    unsafe {
        with_agent(environment, |environment| {
            core::mem::transmute::<usize, Spawn>(next)(pid, path, actions, attributes, words, environment)
        })
    }
}

/// A function that takes the words one by one: what came in registers is put below what came on the
/// stack, which makes the array. The return address stands between the two, and goes back there for
/// the return.
#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! listed {
    ($function:ident) => {
        core::arch::naked_asm!(
            "pop rax",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push rax",
            "call {function}",
            "pop rcx",
            "add rsp, 40",
            "push rcx",
            "ret",
            function = sym $function,
        )
    };
}

/// execl(3).
///
/// # Safety
/// As for the function.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execl() -> c_int {
    listed!(execv)
}

/// execlp(3).
///
/// # Safety
/// As for the function.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execlp() -> c_int {
    listed!(execvp)
}

/// execle(3).
///
/// # Safety
/// As for the function.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execle() -> c_int {
    listed!(execle_array)
}

/// execle(3), of which the environment follows the null pointer behind the words.
///
/// # Safety
/// As for the function.
#[cfg(all(not(test), target_arch = "x86_64"))]
unsafe extern "C" fn execle_array(path: *const c_char, words: Strings) -> c_int {
    let mut end = words;
    // SAFETY: the caller vouches for the list, which ends with a null pointer and the environment.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, words, *end.add(1).cast::<Strings>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const AGENT: &[u8] = b"/lib/agent.so";
    const LEAVE: &CStr = c"ASAN_OPTIONS=verify_asan_link_order=0";

    fn text(entry: &[u8]) -> std::string::String {
        core::str::from_utf8(entry).unwrap().into()
    }

    fn mended(environment: &[&CStr]) -> Vec<std::string::String> {
        let mut entries: Vec<*const c_char> = environment.iter().map(|entry| entry.as_ptr()).collect();
        entries.push(core::ptr::null());
        // SAFETY: strings with a null pointer behind them.
        let Some(lack) = (unsafe { lack(entries.as_ptr(), AGENT) }) else { return Vec::new() };
        let mut seen = Vec::new();
        let mut call = |environment: Strings| {
            // SAFETY: as above.
            seen.extend(unsafe { super::entries(environment) }.map(text));
            0
        };
        // SAFETY: as above, and there is room.
        unsafe { with_more(entries.as_ptr(), &lack, AGENT, &mut call) };
        seen
    }

    /// *The stories:* `env -i CMD` ran without an agent, and was said to fit; what was linked with
    /// AddressSanitizer's library refused to start in it.
    #[test]
    fn a_cleaned_environment_gets_all() {
        let seen = mended(&[]);
        assert_eq!(seen.len(), 3);
        assert!(seen[0].starts_with("OVERSPILL_RUN=") && seen[1] == "LD_PRELOAD=/lib/agent.so", "{seen:?}");
        assert_eq!(seen[2], "ASAN_OPTIONS=verify_asan_link_order=0");
    }

    #[test]
    fn what_the_program_preloads_stays() {
        let more = c"LD_PRELOAD=/lib/other.so:/lib/more.so";
        let seen = mended(&[c"A=1", more, c"OVERSPILL_RUN=1:2:3:0", LEAVE]);
        let preload = "LD_PRELOAD=/lib/agent.so:/lib/other.so:/lib/more.so";
        assert_eq!(seen, ["A=1", preload, "OVERSPILL_RUN=1:2:3:0", LEAVE.to_str().unwrap()]);
    }

    /// *The story:* `ASAN_OPTIONS=detect_leaks=1 CMD` in a script ended with "ASan runtime does not
    /// come first in initial library list".
    #[test]
    fn the_sanitizers_own_options_stay() {
        let with = |options: &CStr| {
            let seen = mended(&[c"LD_PRELOAD=/lib/agent.so", options, c"OVERSPILL_RUN=1:2:3:0"]);
            seen.get(1).cloned()
        };
        let expected = "ASAN_OPTIONS=detect_leaks=1:verify_asan_link_order=0";
        assert_eq!(with(c"ASAN_OPTIONS=detect_leaks=1").as_deref(), Some(expected));
        assert_eq!(with(c"ASAN_OPTIONS=").as_deref(), LEAVE.to_str().ok());
        assert_eq!(with(c"ASAN_OPTIONS=verify_asan_link_order=1"), None);
    }

    #[test]
    fn what_is_complete_is_left_alone() {
        let preload = c"LD_PRELOAD=/lib/other.so:/lib/agent.so";
        assert!(mended(&[preload, c"OVERSPILL_RUN=1:2:3:0", LEAVE]).is_empty());
        // A run within a run has a launcher of its own.
        let seen = mended(&[c"OVERSPILL_RUN=7:8:9:0", LEAVE]);
        assert_eq!(seen, ["OVERSPILL_RUN=7:8:9:0", LEAVE.to_str().unwrap(), "LD_PRELOAD=/lib/agent.so"]);
    }

    /// See [`is_like`].
    #[test]
    fn no_program_has_two_agents() {
        for inner in [c"LD_PRELOAD=/tmp/inner/agent.so:/lib/other.so", c"LD_PRELOAD=/proc/7/fd/500"] {
            assert!(mended(&[inner, c"OVERSPILL_RUN=7:8:9:0", LEAVE]).is_empty());
        }
    }

    /// See [`without_agent`].
    #[test]
    fn an_agent_that_cannot_be_found_is_named_no_more() {
        let handed = |preload: &CStr| {
            let entries = [c"A=1".as_ptr(), preload.as_ptr(), c"B=2".as_ptr(), core::ptr::null()];
            let mut seen: Vec<std::string::String> = Vec::new();
            let mut call = |environment: Strings| {
                // SAFETY: strings with a null pointer behind them.
                seen.extend(unsafe { super::entries(environment) }.map(text));
                0
            };
            // SAFETY: as above.
            unsafe { without_agent(entries.as_ptr(), AGENT, &mut call) };
            seen
        };
        assert_eq!(handed(c"LD_PRELOAD=/lib/agent.so"), ["A=1", "B=2"]);
        let both = handed(c"LD_PRELOAD=/lib/agent.so:/lib/other.so /lib/more.so");
        assert_eq!(both, ["A=1", "B=2", "LD_PRELOAD=/lib/other.so:/lib/more.so"]);
        assert_eq!(handed(c"LD_PRELOAD=/lib/other.so"), ["A=1", "LD_PRELOAD=/lib/other.so", "B=2"]);
        assert!(is_to_be_found(c"/proc/self/exe") && !is_to_be_found(c"/no/such/library.so"));
    }

    /// *The story:* with glibc before 2.34, which has no such function, `syscall(SYS_execveat)` failed
    /// with ENOSYS.
    #[test]
    fn without_the_function_the_call_is_made() {
        let there = EXECVEAT.swap(0, Ordering::AcqRel);
        let words = [core::ptr::null()];
        // SAFETY: arrays that end with a null pointer, and a path.
        let result = unsafe { execveat(-1, c"/no/such/program".as_ptr(), words.as_ptr(), words.as_ptr(), 0) };
        let told = (result, libc::errno());
        EXECVEAT.store(there, Ordering::Release);
        assert_eq!(told, (-1, Errno::NOENT));
    }
}
