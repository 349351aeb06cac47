//! A trace that is replaced when the new one is whole. Until then that is written beside it, as
//! `NAME.part`, which is what is left of a command that is killed.
//!
//! *The story:* who recorded once more under the old name and was killed had neither of the two.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use crate::output;

/// The file, and where it is to be.
pub struct Part {
    path: PathBuf,
    file: File,
    /// None: there can be none beside it, be it a device or in a directory that is not ours.
    beside: Option<Beside>,
}

/// It goes with its owner unless it was settled what becomes of it.
struct Beside {
    part: PathBuf,
    real: PathBuf,
    is_settled: bool,
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_settled {
            let _ = fs::remove_file(&self.part);
        }
    }
}

impl Part {
    /// Before the work, so that a wrong path costs none. What is at `path` stays as it is.
    pub fn prepare(path: &Path) -> io::Result<Part> {
        output::refuse_own_stream(path)?;
        let old = match fs::metadata(path) {
            Ok(about) if about.is_file() => Some((open(path)?, about)),
            Err(_) if fs::symlink_metadata(path).is_err() => None,
            _ => return Ok(Part { path: path.to_owned(), file: open(path)?, beside: None }),
        };
        let real = if old.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
        let (file, beside) = match (make_beside(&real), old) {
            (Ok((part, file)), old) => {
                let beside = Beside { part, real, is_settled: false };
                if let Some((_, about)) = old {
                    // It stays whose it was, as far as this user may have it so.
                    let _ = fchown(&file, Some(about.uid()), Some(about.gid()));
                    file.set_permissions(about.permissions())?;
                }
                (file, Some(beside))
            }
            (Err(_), Some((file, _))) => (file, None),
            (Err(error), None) => return Err(error),
        };
        Ok(Part { path: path.to_owned(), file, beside })
    }

    /// The file, to be written from its beginning.
    pub fn begin(&self) -> io::Result<File> {
        if self.beside.is_none() && self.file.metadata()?.is_file() {
            output::say_replaced(&self.path);
            self.file.set_len(0)?;
        }
        self.file.try_clone()
    }

    /// It is whole.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(beside) = &mut self.beside else { return Ok(()) };
        output::say_replaced(&self.path);
        fs::rename(&beside.part, &beside.real)?;
        beside.is_settled = true;
        Ok(())
    }

    /// It will not be whole, and stays as it is. Where that is.
    pub fn keep(mut self) -> PathBuf {
        let Some(beside) = &mut self.beside else { return self.path };
        beside.is_settled = true;
        beside.part.clone()
    }

    /// It will not be whole, and nobody wants a part.
    pub fn give_up(self) {
        if self.beside.is_none() {
            output::discard(&self.path);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// An empty file beside `real`, whose name nobody else has at work. One that somebody left behind is
/// replaced, which is said.
fn make_beside(real: &Path) -> io::Result<(PathBuf, File)> {
    let named = |end: String| {
        let mut name = real.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let part = named(".part".to_owned());
    if let Some(file) = take(&part)? {
        return Ok((part, file));
    }
    let part = named(format!(".{}.part", std::process::id()));
    let file = take(&part)?.ok_or(io::ErrorKind::AlreadyExists)?;
    Ok((part, file))
}

/// The file of that name, empty and locked. None: somebody else is writing to it, or it is no file of
/// ours to write to.
fn take(part: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().write(true).create_new(true).open(part) {
        Ok(file) => return Ok(file.try_lock().is_ok().then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if !fs::symlink_metadata(part).is_ok_and(|about| about.is_file()) {
        return Ok(None);
    }
    let Ok(file) = OpenOptions::new().write(true).open(part) else { return Ok(None) };
    // Whoever had it may have given it its name meanwhile.
    let is_there = || {
        let (there, ours) = (fs::symlink_metadata(part).ok()?, file.metadata().ok()?);
        Some((there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    };
    if file.try_lock().is_err() || is_there() != Some(true) {
        return Ok(None);
    }
    output::say_replaced(part);
    file.set_len(0)?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory of the test's own.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path =
                Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("part-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Place(path)
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut names: Vec<_> = fs::read_dir(&self.0).unwrap().map(name).collect();
            names.sort();
            names
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_there_stays_until_the_other_is_whole() {
        let place = Place::new("stays");
        let (path, link) = (place.0.join("t.ovt"), place.0.join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("t.ovt", &link).unwrap();
        let part = Part::prepare(&link).unwrap();
        part.begin().unwrap().write_all(b"new").unwrap();
        assert_eq!(place.names(), ["link", "t.ovt", "t.ovt.part"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        part.finish().unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), place.names()),
            (b"new".to_vec(), vec!["link".into(), "t.ovt".into()])
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "as it was");
    }

    #[test]
    fn what_comes_to_nothing_leaves_nothing_unless_it_is_kept() {
        let place = Place::new("nothing");
        let path = place.0.join("t.ovt");
        drop(Part::prepare(&path).unwrap());
        Part::prepare(&path).unwrap().give_up();
        assert!(place.names().is_empty());
        let kept = Part::prepare(&path).unwrap().keep();
        assert_eq!((kept, place.names()), (place.0.join("t.ovt.part"), vec!["t.ovt.part".to_owned()]));
        assert!(Part::prepare(Path::new("/no/such/directory/t")).is_err());
        assert!(Part::prepare(&place.0).is_err(), "a directory");
    }

    /// Two at once, and one after who was killed.
    #[test]
    fn nobody_writes_to_the_part_of_another() {
        let place = Place::new("two");
        let path = place.0.join("t.ovt");
        let (first, second) = (Part::prepare(&path).unwrap(), Part::prepare(&path).unwrap());
        first.begin().unwrap().write_all(b"first").unwrap();
        second.begin().unwrap().write_all(b"second").unwrap();
        assert_eq!(place.names().len(), 2, "{:?}", place.names());
        first.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        second.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), place.names()), (b"second".to_vec(), vec!["t.ovt".to_owned()]));
        fs::write(place.0.join("t.ovt.part"), "of one who was killed").unwrap();
        let third = Part::prepare(&path).unwrap();
        third.begin().unwrap().write_all(b"third").unwrap();
        third.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), place.names()), (b"third".to_vec(), vec!["t.ovt".to_owned()]));
    }
}
