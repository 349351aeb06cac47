//! System calls: the instruction itself and nothing more.
//!
//! It never interprets a result beyond splitting it into value and errno. Numbers come from `linux-raw-sys`.

use crate::Errno;
pub(crate) use linux_raw_sys::general as nr;

/// A system call with six arguments (unused ones are zero).
///
/// # Safety
/// The call must be sound with these arguments: pointers valid for what the kernel does with them,
/// descriptors owned.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn call(number: u32, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the instruction clobbers rcx and r11 only; the caller vouches for the call.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    split(result)
}

/// A system call with six arguments (unused ones are zero).
///
/// # Safety
/// The call must be sound with these arguments: pointers valid for what the kernel does with them,
/// descriptors owned.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn call(number: u32, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the instruction clobbers x0 only; the caller vouches for the call.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number as usize, inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack, preserves_flags),
        );
    }
    split(result)
}

/// Value or errno: the kernel returns -4095..=-1 for errors, anything else is a value.
#[inline]
pub(crate) fn split(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) {
        return Err(Errno::from_raw_os_error(-result as i32));
    }
    Ok(result as usize)
}

/// `syscall!(number, a, b, ...)`: up to six `usize` arguments.
macro_rules! syscall {
    ($number:expr $(,)?) => {
        $crate::raw::call($number, [0; 6])
    };
    ($number:expr, $a:expr) => {
        $crate::raw::call($number, [$a, 0, 0, 0, 0, 0])
    };
    ($number:expr, $a:expr, $b:expr) => {
        $crate::raw::call($number, [$a, $b, 0, 0, 0, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::raw::call($number, [$a, $b, $c, 0, 0, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::raw::call($number, [$a, $b, $c, $d, 0, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::raw::call($number, [$a, $b, $c, $d, $e, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::raw::call($number, [$a, $b, $c, $d, $e, $f])
    };
}
pub(crate) use syscall;

/// Number of an ioctl command: direction (1 = write, 2 = read), type, number, size of the argument.
pub(crate) const fn ioctl_number(direction: u32, kind: u8, number: u8, size: usize) -> u32 {
    assert!(size < 1 << 14);
    direction << 30 | (size as u32) << 16 | (kind as u32) << 8 | number as u32
}
/// Direction bits of a command that the kernel only reads.
pub(crate) const IOC_WRITE: u32 = 1;
/// Direction bits of a command that the kernel only writes.
pub(crate) const IOC_READ: u32 = 2;
