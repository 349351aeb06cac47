//! As much of the redis protocol as the test needs: commands out in batches, answers in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::{Outcome, ensure};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple or bulk string.
    Text(Vec<u8>),
    /// An integer.
    Number(i64),
    /// No such thing.
    Nothing,
    /// Several answers.
    Many(Vec<Reply>),
}

impl Reply {
    /// The text, or a complaint.
    pub fn text(self) -> Outcome<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(format!("redis answered {other:?} instead of a text")),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
    batch: Vec<u8>,
    outstanding: usize,
}

impl Client {
    /// Connects to a server on this machine that may still be starting.
    pub fn connect(port: u16) -> Outcome<Self> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream
                        .set_read_timeout(Some(Duration::from_secs(120)))
                        .map_err(|error| error.to_string())?;
                    return Ok(Self { reader: BufReader::new(stream), batch: Vec::new(), outstanding: 0 });
                }
                Err(error) if Instant::now() > deadline => {
                    return Err(format!("redis on port {port}: {error}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Adds a command to the batch.
    pub fn queue(&mut self, words: &[&[u8]]) {
        let _ = write!(self.batch, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.batch, "${}\r\n", word.len());
            self.batch.extend_from_slice(word);
            self.batch.extend_from_slice(b"\r\n");
        }
        self.outstanding += 1;
    }

    /// Sends the batch; its answers.
    pub fn send(&mut self) -> Outcome<Vec<Reply>> {
        self.reader.get_mut().write_all(&self.batch).map_err(|error| format!("to redis: {error}"))?;
        self.batch.clear();
        let count = std::mem::take(&mut self.outstanding);
        (0..count).map(|_| self.reply()).collect()
    }

    /// One command at once.
    pub fn command(&mut self, words: &[&str]) -> Outcome<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.queue(&words);
        self.send()?.pop().ok_or_else(|| "redis gave no answer".to_owned())
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(|error| format!("from redis: {error}"))?;
        ensure!(line.ends_with("\r\n"), "redis has closed the connection");
        line.truncate(line.len() - 2);
        Ok(line)
    }

    fn reply(&mut self) -> Outcome<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or("an empty answer of redis")?;
        let number = || rest.parse::<i64>().map_err(|_| format!("redis answered {line:?}"));
        match kind {
            "+" => Ok(Reply::Text(rest.as_bytes().to_vec())),
            "-" => Err(format!("redis says: {rest}")),
            ":" => number().map(Reply::Number),
            "$" => self.bulk(number()?),
            "*" => (0..number()?).map(|_| self.reply()).collect::<Outcome<_>>().map(Reply::Many),
            _ => Err(format!("redis answered {line:?}")),
        }
    }

    fn bulk(&mut self, len: i64) -> Outcome<Reply> {
        let Ok(len) = usize::try_from(len) else { return Ok(Reply::Nothing) };
        let mut text = vec![0; len + 2];
        self.reader.read_exact(&mut text).map_err(|error| format!("from redis: {error}"))?;
        text.truncate(len);
        Ok(Reply::Text(text))
    }
}
