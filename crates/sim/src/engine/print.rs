//! Fingerprints of the simulated pager: a byte each, since only one question is ever put to them.

/// A page's fingerprint, as far as it is like that of its slot or unlike it: two kinds are enough for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Print {
    /// Not known.
    #[default]
    Unknown,
    /// Unlike [`Print::Other`].
    One,
    /// Unlike [`Print::One`].
    Other,
}

impl Print {
    /// The fingerprint of a page that has what a slot with this one has (`same`), or has not.
    pub fn of(self, same: bool) -> Print {
        match (self, same) {
            (Print::One, true) | (Print::Other, false) => Print::One,
            (Print::Other, true) | (Print::One, false) => Print::Other,
            (Print::Unknown, _) => Print::One,
        }
    }
}
