//! Files that are written: where summaries, JSON and pages go. Those of `run`: files are tried
//! before the program starts, so that a wrong path costs no run, and written when it has ended.
//! `%p` in a name becomes the program's process id.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::human;
use crate::os::inherit;
use crate::stderr::say;
use crate::whole::Whole;

/// Whether it was asked for silence.
static QUIET: AtomicBool = AtomicBool::new(false);

/// A file to write at the end.
pub struct Output {
    path: PathBuf,
    /// Open already unless the name depends on the process id.
    target: Option<Target>,
}

/// An open file, and what was in it when it was opened.
struct Target {
    file: File,
    before: Option<Content>,
    /// It is where the program itself writes: the text follows, and replaces nothing.
    follows: bool,
    /// There was none.
    is_new: bool,
}

/// When a file was last written to, and how much is in it: nothing is said of an empty one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Content(Option<SystemTime>, u64);

impl Content {
    fn of(file: &File) -> Option<Content> {
        let about = file.metadata().ok().filter(|about| about.is_file() && about.len() > 0)?;
        Some(Content(about.modified().ok(), about.len()))
    }
}

impl Output {
    /// Opens the file without changing what is in it.
    pub fn prepare(path: &Path) -> Result<Output> {
        let depends_on_pid = path.as_os_str().as_bytes().windows(2).any(|pair| pair == b"%p");
        let target = if depends_on_pid { None } else { Some(open(path)?) };
        Ok(Output { path: path.to_path_buf(), target })
    }

    /// Replaces what was in the file. Two runs that write to one file write one after the other, and
    /// the second says so: the file never holds a part of each.
    pub fn write(mut self, pid: u32, text: &str) -> Result<()> {
        let path = with_pid(&self.path, pid);
        let Target { mut file, before, follows, .. } = self.target.take().map_or_else(|| open(&path), Ok)?;
        let mut write = || -> io::Result<()> {
            if !follows && file.metadata()?.is_file() {
                lock(&file);
                if Content::of(&file) != before {
                    say_replaced(&path);
                }
                file.set_len(0)?;
            }
            file.write_all(text.as_bytes())
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Output {
    /// Nothing came of it: a file that was made for that goes again, if nobody else has written to it.
    ///
    /// *The story:* `run --json F` of what could not be executed left an empty F.
    fn drop(&mut self) {
        let Some(target) = self.target.take().filter(|target| target.is_new) else { return };
        if target.file.metadata().is_ok_and(|about| about.is_file() && about.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Waits until nobody else writes to the file, a second at most: who holds a lock for longer is none
/// of ours, and may wait for this very run. Closing the file lets go.
fn lock(file: &File) {
    for _ in 0..50 {
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn open(path: &Path) -> Result<Target> {
    if let Some(file) = own_stream(path) {
        return Ok(Target { file, before: None, follows: true, is_new: false });
    }
    let is_new = !is_there(path);
    let file = writable(path)?;
    say_replaced(path);
    let before = Content::of(&file);
    Ok(Target { file, before, follows: false, is_new })
}

/// The file as it is, made where there is none.
pub fn writable(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))
}

/// Fails where the file could not be written, before hours are spent on what is to be in it. One that is
/// made for that goes again: an empty one would tell of figures that there are none of.
pub fn ensure_writable(path: &Path) -> Result<()> {
    let was_there = is_there(path);
    writable(path)?;
    if !was_there {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Standard output or error, where the file is what that was redirected to.
///
/// *The story:* with `--json /dev/stderr` and `2>>log` the file was opened anew and cut to nothing:
/// what the program had said was gone, with all that the log had held before.
fn own_stream(path: &Path) -> Option<File> {
    let wanted = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let is_it = |stream: BorrowedFd<'_>| {
        let file = File::from(stream.try_clone_to_owned().ok()?);
        let about = file.metadata().ok()?;
        (identity(&about) == identity(&wanted)).then_some(file)
    };
    is_it(io::stderr().as_fd()).or_else(|| is_it(io::stdout().as_fd()))
}

/// An empty file, in place of what was there, which is said.
pub fn create(path: &Path) -> io::Result<File> {
    refuse_own_stream(path)?;
    say_replaced(path);
    File::create(path)
}

/// A file that is made from the beginning, of what can be had again. What was there stays until it is
/// whole, where that can be.
///
/// *The story:* `trace cut a.ovt b.ovt --after 100s`, of a trace of ten, said that there is nothing, and
/// b.ovt was gone.
pub struct Anew {
    path: PathBuf,
    place: Place,
}

/// Where it is written to.
enum Place {
    Whole(Whole),
    /// A device or a pipe, say, where one writes as one goes.
    Plain(File),
    /// Standard output or error: the text follows what is there.
    Stream(File),
}

impl Anew {
    /// Before the work, so that a wrong path costs none.
    pub fn begin(path: &Path) -> io::Result<Anew> {
        let place = match own_stream(path) {
            Some(file) => Place::Stream(file),
            None => Anew::place(path)?,
        };
        Ok(Anew { path: path.to_path_buf(), place })
    }

    fn place(path: &Path) -> io::Result<Place> {
        let old = match fs::metadata(path) {
            // What may not be written to is not replaced, either.
            Ok(about) if about.is_file() => Some((OpenOptions::new().write(true).open(path)?, about)),
            Err(_) if fs::symlink_metadata(path).is_err() => None,
            _ => return File::create(path).map(Place::Plain),
        };
        let real = if old.is_some() { fs::canonicalize(path)? } else { path.to_path_buf() };
        let Some(whole) = Whole::begin(&real, 0o666) else {
            say_replaced(path);
            return File::create(path).map(Place::Plain);
        };
        if let Some((_, about)) = old {
            // It stays whose it was, as far as this user may have it so.
            let _ = std::os::unix::fs::fchown(whole.file(), Some(about.uid()), Some(about.gid()));
            whole.file().set_permissions(about.permissions())?;
        }
        Ok(Place::Whole(whole))
    }

    /// The file.
    pub fn file(&self) -> &File {
        match &self.place {
            Place::Whole(whole) => whole.file(),
            Place::Plain(file) | Place::Stream(file) => file,
        }
    }

    /// It is whole.
    pub fn finish(self) -> io::Result<()> {
        let Place::Whole(whole) = &self.place else { return Ok(()) };
        say_replaced(&self.path);
        whole.replace()
    }

    /// It did not become whole: half of one is worse than none.
    pub fn give_up(self) {
        if matches!(self.place, Place::Plain(_)) {
            discard(&self.path);
        }
    }
}

/// Removes a file that did not become whole. What is no file of its own (/dev/full, a pipe) stays: root
/// would remove that as well.
pub fn discard(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|about| about.is_file()) {
        let _ = fs::remove_file(path);
    }
}

/// A file that cannot be shared with what the command or its program says.
pub fn refuse_own_stream(path: &Path) -> io::Result<()> {
    match own_stream(path) {
        Some(_) => Err(io::Error::other("standard output or error goes there")),
        None => Ok(()),
    }
}

/// Nothing is overwritten without a word; `-q` is the user's word for it.
pub fn say_replaced(path: &Path) {
    let old = fs::metadata(path).ok().filter(|about| about.is_file() && about.len() > 0);
    if let Some(old) = old.filter(|_| !QUIET.load(Relaxed)) {
        let (path, size) = (human::one_line(&path.to_string_lossy()), human::bytes(old.len()));
        say!("overspill: note: {path} is replaced ({size} were in it)");
    }
}

/// From now on nothing is said of files that are replaced.
pub fn be_quiet() {
    QUIET.store(true, Relaxed);
}

/// Fails where two of these are one file: what is written to it would replace the other.
pub fn ensure_apart(files: &[(&str, Option<&Path>)]) -> Result<()> {
    let named: Vec<(&str, &Path)> = files.iter().filter_map(|&(name, path)| Some((name, path?))).collect();
    for (index, &(name, path)) in named.iter().enumerate() {
        let other = named[..index].iter().find(|&&(_, other)| same_file(path, other));
        if let Some((other, _)) = other {
            bail!("{other} and {name} are one file, {}", human::one_line(&path.to_string_lossy()));
        }
    }
    Ok(())
}

/// Are both one regular file, by whatever names, or would they be? A device takes what several write.
pub fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && identity(&one) == identity(&other),
        (Err(_), Err(_)) => {
            let absolute = |path| std::path::absolute(path).ok();
            absolute(one).is_some_and(|one| Some(one) == absolute(other))
        }
        _ => false,
    }
}

/// What makes a file that file.
fn identity(about: &fs::Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

/// For options of `run` that name a file to write: a lone dash is none.
pub fn file_name() -> impl TypedValueParser<Value = PathBuf> {
    no_dash("nothing but the program's own goes to standard output: name a file, or /dev/stderr")
}

/// The same where standard output is as good a place as any.
pub fn file_name_or_stdout() -> impl TypedValueParser<Value = PathBuf> {
    let stdout = |path: PathBuf| match path.as_os_str() == "-" {
        true if inherit::was_closed(1) => Err("standard output is closed"),
        true => Ok("/dev/stdout".into()),
        false => Ok(path),
    };
    PathBufValueParser::new().try_map(stdout)
}

/// The same for other commands, which have no program's output to keep clean.
pub fn any_file_name() -> impl TypedValueParser<Value = PathBuf> {
    no_dash("a dash is no file: name one, or /dev/stdout")
}

fn no_dash(why: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| if path.as_os_str() == "-" { Err(why) } else { Ok(path) })
}

fn with_pid(path: &Path, pid: u32) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut out = Vec::with_capacity(bytes.len() + 8);
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"%p") {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(pid.to_string().as_bytes());
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_percent_p_is_the_pid() {
        assert_eq!(with_pid(Path::new("a.%p.%p.txt"), 7), Path::new("a.7.7.txt"));
        assert_eq!(with_pid(Path::new("plain%"), 7), Path::new("plain%"));
    }

    #[test]
    fn old_contents_stay_until_the_end() {
        let path = std::env::temp_dir().join(format!("overspill-output-{}", std::process::id()));
        std::fs::write(&path, "something long").unwrap();
        let output = Output::prepare(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something long");
        output.write(1, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(&path).unwrap();
        assert!(Output::prepare(Path::new("/no/such/directory/file")).is_err());
    }

    /// *The story:* of two runs with one `--json FILE` the second could write its text over the
    /// longer one of the first, and leave the end of that behind its own.
    #[test]
    fn a_file_of_two_runs_has_the_text_of_one() {
        let path = std::env::temp_dir().join(format!("overspill-two-{}", std::process::id()));
        let texts: Vec<String> = (0..8).map(|index| index.to_string().repeat(100_000 >> index)).collect();
        let outputs: Vec<Output> = texts.iter().map(|_| Output::prepare(&path).unwrap()).collect();
        std::thread::scope(|scope| {
            for (output, text) in outputs.into_iter().zip(&texts) {
                scope.spawn(|| output.write(1, text).unwrap());
            }
        });
        assert!(texts.contains(&std::fs::read_to_string(&path).unwrap()));
        // Somebody else's lock is waited for, but not for ever.
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        Output::prepare(&path).unwrap().write(1, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(&path).unwrap();
    }
}
