//! How it is learnt what the program does to pages in its view: the one seam to accessed bits.
//!
//! userfaultfd has none so far, so the pager takes a page out of view and waits for its next touch. A
//! kernel reads the bits of its own page tables. Every branch that depends on this asks here, by
//! what it needs to know.

/// Who tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Probe {
    /// Nobody: a touch is seen of a page out of view only, and every page that was in view may have
    /// been stored to.
    #[default]
    Faults,
    /// The accessed bits of the program's page tables, by a feed that newer kernels may give: uses of
    /// pages in view are told, stores are not. The rules are the pager's.
    Accessed,
    /// A kernel's own page tables, and its rules: uses and stores are told as they happen.
    Kernel,
}

impl Probe {
    /// Uses of pages in view are told of.
    #[inline]
    #[must_use]
    pub const fn tells_uses(self) -> bool {
        !matches!(self, Probe::Faults)
    }

    /// A page in view that was not stored to is known to be clean.
    #[inline]
    #[must_use]
    pub const fn tells_stores(self) -> bool {
        matches!(self, Probe::Kernel)
    }

    /// Everything is as a kernel does it: fixed watermarks, faults handled where they happen, one
    /// order of use for pages in view and out of view.
    #[inline]
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        matches!(self, Probe::Kernel)
    }
}
