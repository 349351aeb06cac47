//! `--swap PLACE[:SIZE][:prio=N]`: taking the words apart. What the place is, and whether it can
//! serve, is found out elsewhere.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::size::{Size, enough_to_spill};

/// One place to spill to, as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwapArg {
    /// A directory, a file or a device.
    pub path: PathBuf,
    /// Use no more of it than this.
    pub size: Option<Size>,
    /// Places of a higher priority are filled first.
    pub priority: Option<i16>,
}

impl SwapArg {
    /// A place and nothing else.
    pub fn plain(path: PathBuf) -> SwapArg {
        SwapArg { path, size: None, priority: None }
    }

    /// Takes the words apart from their end, in whatever order they are. A path that exists as it stands
    /// is one, colons and all.
    ///
    /// *The stories:* `/mnt/a:prio=10:2G` spilled to a new file `a:prio=10` in /mnt; `/mnt:2Q` and
    /// `/mnt:pri=5` to files of those names; `/mnt:prio=1:prio=2` to a file `mnt:prio=1`, and `:` to a file
    /// of that name. Of `/mnt:10M:5M` it was told that `10M` is no size.
    pub fn parse(text: OsString) -> Result<SwapArg, String> {
        let whole = PathBuf::from(&text);
        if whole.as_os_str().is_empty() {
            return Err("a place to spill to has a path".into());
        }
        if whole.exists() {
            return Ok(SwapArg::plain(whole));
        }
        let (mut bytes, mut size, mut priority) = (text.as_bytes(), None::<Size>, None::<i16>);
        while let Some((head, word)) = cut(bytes) {
            if word.is_empty() {
                return Err(
                    "a size, as 2G, or a priority, as prio=5, is missing behind the last colon".into()
                );
            }
            let stands = Path::new(OsStr::from_bytes(bytes)).exists();
            if let Some(number) = word.strip_prefix("prio=").filter(|_| !stands) {
                let wrong = || format!("`{number}` is no priority: write a number from -32768 to 32767");
                once("priorities", &mut priority, number.parse().map_err(|_| wrong())?)?;
            } else if let Some(found) = word.parse().ok().filter(|_| !stands) {
                once("sizes", &mut size, found)?;
            } else if stands || !Path::new(OsStr::from_bytes(head)).exists() {
                break;
            } else {
                return Err(format!("`{word}` is neither a size, as 2G, nor a priority, as prio=5"));
            }
            bytes = head;
        }
        if bytes.is_empty() || bytes.starts_with(b":") {
            return Err("a place to spill to has a path".into());
        }
        size.map_or(Ok(()), enough_to_spill)?;
        Ok(SwapArg { path: OsStr::from_bytes(bytes).into(), size, priority })
    }

    /// The words again, for another command line.
    pub fn to_word(&self) -> OsString {
        let mut word = self.path.clone().into_os_string().into_vec();
        if let Some(size) = self.size {
            word.extend(format!(":{size}").into_bytes());
        }
        if let Some(priority) = self.priority {
            word.extend(format!(":prio={priority}").into_bytes());
        }
        OsString::from_vec(word)
    }
}

/// Notes what is said of a place. The words come from the last to the first.
fn once<T: Copy + Display>(what: &str, said: &mut Option<T>, now: T) -> Result<(), String> {
    match said.replace(now) {
        None => Ok(()),
        Some(other) => Err(format!("two {what} were given, {now} and {other}: a place has one")),
    }
}

/// What stands before and behind the last colon.
fn cut(bytes: &[u8]) -> Option<(&[u8], &str)> {
    let colon = bytes.iter().rposition(|&byte| byte == b':')?;
    Some((&bytes[..colon], std::str::from_utf8(&bytes[colon + 1..]).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SwapArg, String> {
        SwapArg::parse(text.into())
    }

    #[test]
    fn words_are_taken_apart_and_put_together() {
        let arg = |path: &str, size, priority| SwapArg { path: path.into(), size, priority };
        let bytes = |bytes| Some(Size::Bytes(bytes));
        let cases = [
            ("/mnt/a", arg("/mnt/a", None, None)),
            ("/mnt/a:2G", arg("/mnt/a", bytes(2 << 30), None)),
            ("/mnt/a:prio=-5", arg("/mnt/a", None, Some(-5))),
            ("/mnt/a:2G:prio=10", arg("/mnt/a", bytes(2 << 30), Some(10))),
            ("/mnt/a:b", arg("/mnt/a:b", None, None)),
            ("/mnt/a:b:40K", arg("/mnt/a:b", bytes(40 << 10), None)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected.clone()));
            assert_eq!(expected.to_word(), text);
        }
        assert_eq!(parse("/mnt/a:prio=10:2G"), Ok(arg("/mnt/a", bytes(2 << 30), Some(10))));
        for (twice, told) in [
            ("/:10M:5M", "two sizes were given, 10M and 5M"),
            ("/mnt/a:1G:2G", "two sizes were given, 1G and 2G"),
            ("/:10M:prio=1:prio=2", "two priorities were given, 1 and 2"),
            ("/mnt/a:prio=1:2G:prio=2", "two priorities were given, 1 and 2"),
        ] {
            assert!(parse(twice).unwrap_err().starts_with(told), "{twice}: {:?}", parse(twice));
        }
        for pathless in [":", "::", ":b", ":prio=1", "/:", "/no/such/place:"] {
            assert!(parse(pathless).is_err(), "{pathless}");
        }
        for mistyped in ["/:2Q", "/:pri=5", "/:99999999T"] {
            assert!(parse(mistyped).unwrap_err().contains("neither a size"), "{mistyped}");
        }
        assert!(parse("/mnt/a:prio=x").unwrap_err().contains("no priority"));
        assert!(parse("/mnt/a:prio=x:2G").unwrap_err().contains("no priority"));
        assert!(parse("/mnt/a:prio=40000").is_err());
        // *The story:* `:2`, for 2G, was two bytes, and these were no limit at all.
        assert!(parse("/mnt/a:2").unwrap_err().contains("2 bytes are no place"));
        assert!(parse("").is_err() && parse(":2G").is_err());
    }
}
