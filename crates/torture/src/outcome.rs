//! How a subtest says that something is wrong: a sentence, carried by `?` to `main`, which prints
//! it and exits 1.

/// What was expected and what was found, in one line.
#[derive(Debug)]
pub struct Failure(pub String);

/// The result of anything that can go wrong in a subtest.
pub type Outcome<T = ()> = Result<T, Failure>;

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Returns a [`Failure`] from the function around it.
#[macro_export]
macro_rules! fail {
    ($($text:tt)*) => { return Err($crate::outcome::Failure(format!($($text)*))) };
}

/// Returns a [`Failure`] unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::fail!($($text)*);
        }
    };
}
