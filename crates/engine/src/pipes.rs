//! Pipes by which the program may have lent pages.
//!
//! vmsplice puts pages into a pipe, from which anybody may pass them on (splice, tee) into other
//! pipes and sockets: that the pipe is empty says nothing, and nobody can tell how a byte came into
//! it. What can be known is that nothing at all was put into a pipe since the program began. So the
//! pipes that are there then are watched, and any other pipe may have lent.

use alloc::vec::Vec;

use overspill_sys::descriptors::{Descriptor, Kind, Pipe, Table, Watch};

/// Descriptors that are looked at when the program begins.
const LOOKED_AT: usize = 64;

/// The pipes that the program began with.
#[derive(Default)]
pub struct Pipes {
    /// Those that it reads from: nothing of this program's is in there.
    read: Vec<Pipe>,
    /// Those that it writes to, and the watch that hears of it.
    written: Vec<Pipe>,
    watch: Option<Watch>,
}

impl Pipes {
    /// As they are now. To be called before the program runs, after an exec or a fork: what is in
    /// them is not of its memory. `may_watch`: a watch may be kept, of which a user has few.
    #[must_use]
    pub fn at_start(may_watch: bool) -> Pipes {
        let mut pipes = Pipes::default();
        let Ok(table) = Table::open() else { return pipes };
        let mut looked_at = 0;
        // Where it ends early fewer pipes are known.
        let _ = table.for_each(|Descriptor { number, kind }| {
            match kind {
                Kind::PipeReader(pipe) => pipes.read.push(pipe),
                Kind::PipeWriter(pipe) if may_watch => pipes.watch(&table, number, pipe),
                _ => {}
            }
            looked_at += 1;
            looked_at == LOOKED_AT
        });
        pipes
    }

    fn watch(&mut self, table: &Table, number: u32, pipe: Pipe) {
        if self.watch.is_none() {
            self.watch = Watch::new().ok();
        }
        if self.watch.as_ref().is_some_and(|watch| table.watch(watch, number).is_ok()) {
            self.written.push(pipe);
        }
    }

    /// Was something put into one that was watched?
    pub(crate) fn have_changed(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::has_heard)
    }

    /// Is this, seen now, an end of a pipe into which the program may have put something that no
    /// watch would hear of?
    pub(crate) fn may_lend(&self, end: Kind) -> bool {
        match end {
            Kind::PipeReader(pipe) => !self.read.contains(&pipe) && !self.written.contains(&pipe),
            Kind::PipeWriter(pipe) => !self.written.contains(&pipe),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    fn may_lend(pipes: &Pipes, end: i32) -> bool {
        let mut kind = None;
        Table::open()
            .unwrap()
            .for_each(|descriptor| {
                if descriptor.number == end as u32 {
                    kind = Some(descriptor.kind);
                }
                kind.is_some()
            })
            .unwrap();
        pipes.may_lend(kind.expect("it is open"))
    }

    /// *The story:* a pipe counted only while it was full and the program did not read from it
    /// itself. What a Go program had put into its own came out with another page's bytes.
    #[test]
    fn only_a_pipe_from_the_start_is_known_not_to_lend() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pipes = Pipes::at_start(true);
        assert!(!may_lend(&pipes, writer.as_raw_fd()) && !may_lend(&pipes, reader.as_raw_fd()));
        assert!(!pipes.have_changed());
        let (other_reader, other_writer) = std::io::pipe().unwrap();
        assert!(may_lend(&pipes, other_writer.as_raw_fd()) && may_lend(&pipes, other_reader.as_raw_fd()));
        writer.write_all(b"x").unwrap();
        assert!(pipes.have_changed());
        let unwatched = Pipes::at_start(false);
        assert!(may_lend(&unwatched, writer.as_raw_fd()) && !unwatched.have_changed());
    }
}
