//! The output of a measured command: its standard output is counted and hashed (the runs must agree
//! on it), the end of its standard error is kept for the case that it fails.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::process::Child;
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};

/// How much of the beginning of the standard output is kept: more than one line of the built-in
/// load.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// How much of the end of the standard error is kept.
const TAIL_BYTES_MAX: usize = 4096;

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
}

/// The threads that read while the command runs.
pub struct Streams {
    output: JoinHandle<io::Result<Captured>>,
    error: JoinHandle<io::Result<String>>,
}

/// Starts reading both streams of a child; its standard output is also copied to `keep`.
pub fn start(child: &mut Child, keep: Option<File>) -> Streams {
    let output = child.stdout.take().expect("its standard output is a pipe");
    let error = child.stderr.take().expect("its standard error is a pipe");
    Streams {
        output: std::thread::spawn(move || read_output(output, keep)),
        error: std::thread::spawn(move || read_tail(error)),
    }
}

impl Streams {
    /// Waits until both streams have ended.
    pub fn finish(self) -> Result<Captured> {
        let panicked = |_| anyhow!("a reader of the command's output panicked");
        let mut captured = self.output.join().map_err(panicked)??;
        captured.error_tail = self.error.join().map_err(panicked)??;
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

    #[test]
    fn only_the_end_of_the_errors_is_kept() {
        let text = "x".repeat(10_000) + "the end\n";
        let tail = read_tail(text.as_bytes()).unwrap();
        assert!(tail.len() <= TAIL_BYTES_MAX && tail.ends_with("the end"));
    }
}
