//! Whether a file carries an extended attribute (such as file capabilities).

use std::ffi::CStr;

/// Whether the file at `path` has the attribute `name`.
pub fn exists(path: &CStr, name: &CStr) -> bool {
    // SAFETY: two NUL-terminated strings; with size 0 nothing is written, only the attribute's
    // length is returned.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}
