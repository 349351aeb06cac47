//! Where /proc is, for a thread whose root has none.
//!
//! [`detached`] makes a /proc that lies nowhere: nothing leads out of it, it shows processes only, and of
//! those whoever the caller may look into. It can be handed over as a descriptor, and [`use_given`] has the
//! threads of `thread::spawn`, which have one table of descriptors, open by it what they open below /proc.
//! The program's own threads go on by its root.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

use linux_raw_sys::general::fsconfig_command;

use crate::fd::make;
use crate::raw::{nr, syscall};
use crate::{Errno, Fd, thread};

const HERE: usize = nr::AT_FDCWD as isize as usize;
const BELOW: &[u8] = b"/proc/";

/// The descriptor, in the table of the threads of `thread::spawn`; negative: they go by their root.
static GIVEN: AtomicI32 = AtomicI32::new(-1);

/// A /proc of the caller's pid namespace that is mounted nowhere (5.8). EPERM: the caller may not mount.
///
/// *Why it is none that is there:* by a directory of the machine's own tree whoever gets hold of it comes
/// to all of that (`..`), whatever its root is.
pub fn detached() -> Result<Fd, Errno> {
    let (name, close) = (c"proc".as_ptr() as usize, nr::FSOPEN_CLOEXEC as usize);
    // SAFETY: the name is NUL-terminated; makes a descriptor.
    let context = make(|| unsafe { syscall!(nr::__NR_fsopen, name, close) })?;
    // What knows these options has mounts that do not share theirs with each other.
    for (key, value) in [(c"subset", c"pid"), (c"hidepid", c"ptraceable")] {
        let (key, value) = (key.as_ptr() as usize, value.as_ptr() as usize);
        configure(&context, fsconfig_command::FSCONFIG_SET_STRING, key, value)?;
    }
    configure(&context, fsconfig_command::FSCONFIG_CMD_CREATE, 0, 0)?;
    let attributes = nr::MOUNT_ATTR_NOSUID | nr::MOUNT_ATTR_NODEV | nr::MOUNT_ATTR_NOEXEC;
    let (from, close) = (context.raw() as usize, nr::FSMOUNT_CLOEXEC as usize);
    // SAFETY: makes a descriptor.
    make(|| unsafe { syscall!(nr::__NR_fsmount, from, close, attributes as usize) })
}

fn configure(context: &Fd, command: fsconfig_command, key: usize, value: usize) -> Result<(), Errno> {
    let context = context.raw() as usize;
    // SAFETY: key and value are null, or the addresses of NUL-terminated strings.
    unsafe { syscall!(nr::__NR_fsconfig, context, command as usize, key, value, 0).map(drop) }
}

/// From now on the threads of `thread::spawn` see processes by this.
pub fn use_given(proc: Fd) {
    GIVEN.store(proc.into_raw(), Ordering::Release);
}

/// In a child of fork, whose threads have a table of their own: the number means nothing there.
pub fn forget_given() {
    GIVEN.store(-1, Ordering::Release);
}

/// Is it used? Then processes that this one may not look into are not shown.
#[must_use]
pub fn is_given() -> bool {
    GIVEN.load(Ordering::Acquire) >= 0
}

/// From where the calling thread is to look for a path, and by which name.
pub(crate) fn place(path: &CStr) -> (usize, &CStr) {
    let given = GIVEN.load(Ordering::Acquire);
    if given < 0 || !path.to_bytes().starts_with(BELOW) || !thread::is_own(thread::id()) {
        return (HERE, path);
    }
    let rest = &path.to_bytes_with_nul()[BELOW.len()..];
    (given as usize, CStr::from_bytes_with_nul(rest).expect("the end of such a string is one, too"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{self, Open};
    use crate::thread::Descriptors;

    /// A directory without anything in it, as the root of a thread by itself.
    extern "C" fn look(argument: *mut ()) {
        // SAFETY: whoever started the thread waits for it.
        let seen = unsafe { &mut *argument.cast::<[Result<usize, Errno>; 3]>() };
        let read = |path| {
            let mut text = [0; 64];
            file::open(path, Open::empty()).and_then(|file| file::pread(&file, &mut text, 0))
        };
        // SAFETY: it is the root of this thread only.
        let moved = unsafe { syscall!(nr::__NR_chroot, c"/proc/self/fdinfo".as_ptr() as usize) };
        seen[0] = moved.and_then(|_| read(c"/proc/thread-self/statm"));
        if let Ok(proc) = GIVEN_LATER.get().expect("it was put there") {
            use_given(proc.duplicate().expect("a descriptor"));
            seen[1] = read(c"/proc/thread-self/statm");
            seen[2] = file::open(c"/proc/../etc/passwd", Open::empty()).map(|_| 0);
            forget_given();
        }
    }

    static GIVEN_LATER: std::sync::OnceLock<Result<Fd, Errno>> = std::sync::OnceLock::new();

    /// Who may not mount has nothing to hand over.
    #[test]
    fn a_thread_in_another_root_sees_itself_and_nothing_outside() {
        let proc = GIVEN_LATER.get_or_init(detached);
        if let Err(errno) = proc {
            assert!(rustix::process::getuid().as_raw() != 0 || *errno == Errno::PERM, "{errno}");
            return;
        }
        let mut seen: [Result<usize, Errno>; 3] = [Err(Errno::IO); 3];
        // SAFETY: it makes system calls, and is waited for.
        let thread = unsafe { thread::spawn(256 << 10, Descriptors::Private, look, (&raw mut seen).cast()) };
        thread.unwrap().join();
        assert_eq!(seen[0], Err(Errno::NOENT));
        assert!(seen[1].is_ok_and(|len| len > 0), "{:?}", seen[1]);
        assert_eq!(seen[2], Err(Errno::NOENT));
        // This thread goes by its own root.
        assert!(file::open(c"/proc/meminfo", Open::empty()).is_ok());
    }
}
