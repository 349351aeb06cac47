//! The output of a measured command: its standard output is counted and hashed (the runs must agree
//! on it), the end of its standard error is kept for the case that it fails.
//!
//! A process that the command has left behind, and that nobody could kill, may hold the streams open
//! for ever: what comes a moment after the end does not count.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How much of the beginning of the standard output is kept: more than one line of the built-in
/// load.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// How much of the end of the standard error is kept.
const TAIL_BYTES_MAX: usize = 4096;

/// So long after the command's end its streams are read, if somebody holds them open.
const GRACE: Duration = Duration::from_secs(1);
/// How often is looked whether it has ended, in milliseconds.
const LOOK_AGAIN_MS: u8 = 100;

/// What came out.
#[derive(Default, Clone, Debug)]
pub struct Captured {
    /// Length of the standard output.
    pub output_bytes: u64,
    /// Its checksum.
    pub output_hash: u64,
    /// Its beginning.
    pub head: Vec<u8>,
    /// The end of the standard error.
    pub error_tail: String,
    /// A stream was not at its end.
    pub is_cut: bool,
}

/// The threads that read while the command runs.
pub struct Streams {
    output: JoinHandle<io::Result<Captured>>,
    error: JoinHandle<io::Result<String>>,
    run: Arc<Run>,
}

/// What the readers know of the command.
#[derive(Default)]
struct Run {
    ended: OnceLock<Instant>,
    is_cut: AtomicBool,
}

/// A stream that ends with the command, if not before.
struct Stream<S> {
    stream: S,
    run: Arc<Run>,
}

impl<S: Read + AsFd> Read for Stream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.run.ended.get().is_none_or(|ended| ended.elapsed() < GRACE) {
            let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(LOOK_AGAIN_MS))? > 0 {
                return self.stream.read(buffer);
            }
        }
        self.run.is_cut.store(true, Relaxed);
        Ok(0)
    }
}

/// Starts reading both streams of a child; its standard output is also copied to `keep`.
pub fn start(child: &mut Child, keep: Option<File>) -> Streams {
    let run = Arc::<Run>::default();
    let output = child.stdout.take().expect("its standard output is a pipe");
    let output = Stream { stream: output, run: run.clone() };
    let error = child.stderr.take().expect("its standard error is a pipe");
    let error = Stream { stream: error, run: run.clone() };
    Streams {
        output: std::thread::spawn(move || read_output(output, keep)),
        error: std::thread::spawn(move || read_tail(error)),
        run,
    }
}

impl Streams {
    /// The command has ended: waits until both streams have, too, but not for long.
    pub fn finish(self) -> Result<Captured> {
        self.run.ended.get_or_init(Instant::now);
        let panicked = |_| anyhow!("a reader of the command's output panicked");
        let mut captured = self.output.join().map_err(panicked)??;
        captured.error_tail = self.error.join().map_err(panicked)??;
        captured.is_cut = self.run.is_cut.load(Relaxed);
        Ok(captured)
    }
}

fn read_output(mut stream: impl Read, mut keep: Option<File>) -> io::Result<Captured> {
    let mut captured = Captured::default();
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = read_some(&mut stream, &mut buffer)?;
        if count == 0 {
            captured.output_hash = hasher.finish();
            return Ok(captured);
        }
        let bytes = &buffer[..count];
        hasher.write(bytes);
        captured.output_bytes += count as u64;
        let room = HEAD_BYTES_MAX - captured.head.len();
        captured.head.extend_from_slice(&bytes[..count.min(room)]);
        if let Some(file) = &mut keep {
            file.write_all(bytes)?;
        }
    }
}

fn read_tail(mut stream: impl Read) -> io::Result<String> {
    let mut tail = Vec::new();
    let mut buffer = vec![0; 1 << 12];
    loop {
        let count = read_some(&mut stream, &mut buffer)?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&tail).trim_end().to_string());
        }
        tail.extend_from_slice(&buffer[..count]);
        let surplus = tail.len().saturating_sub(TAIL_BYTES_MAX);
        tail.drain(..surplus);
    }
}

fn read_some(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_the_bytes_and_not_on_their_pieces() {
        struct OneByOne<'a>(&'a [u8]);
        impl Read for OneByOne<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
                buffer[0] = *first;
                self.0 = rest;
                Ok(1)
            }
        }
        let whole = read_output(&b"hello"[..], None).unwrap();
        let pieces = read_output(OneByOne(b"hello"), None).unwrap();
        assert_eq!((whole.output_hash, whole.output_bytes), (pieces.output_hash, 5));
        assert_ne!(whole.output_hash, read_output(&b"hellp"[..], None).unwrap().output_hash);
    }

    /// *The story:* a process in the background had the output open, and the comparison waited for it.
    #[test]
    fn a_stream_that_is_held_open_ends_with_the_command() {
        for (script, is_cut) in [("echo hello", false), ("echo hello; exec sleep 60", true)] {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).stdout(std::process::Stdio::piped());
            let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
            let captured = start(&mut child, None).finish().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!((captured.output_bytes, captured.is_cut), (6, is_cut), "{script}");
        }
    }

    #[test]
    fn only_the_end_of_the_errors_is_kept() {
        let text = "x".repeat(10_000) + "the end\n";
        let tail = read_tail(text.as_bytes()).unwrap();
        assert!(tail.len() <= TAIL_BYTES_MAX && tail.ends_with("the end"));
    }
}
