//! Ports that are closed are free at once, whoever looks at the program's descriptors meanwhile.
//!
//! *The story:* the agent has a copy of a socket while it asks whether that lends pages. Of 1.6 million ports
//! that were bound right after they had been closed 24 to 395 were "in use", in bursts, where the agent had
//! lost its processor.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::outcome::Outcome;
use crate::{ensure, sys};

const THREADS: u16 = 6;
const TIME: Duration = Duration::from_millis(1000);
/// Below those that the kernel gives to whoever asks for none.
const PORT: u16 = 17_900;

/// `ports`: threads bind a port each, listen, close it, and bind it again.
pub fn run(context: &mut Context) -> Outcome {
    context.sabotage_status()?;
    context.under_pressure(|_| {
        let until = Instant::now() + TIME;
        std::thread::scope(|scope| {
            let binders: Vec<_> =
                (0..THREADS).map(|index| scope.spawn(move || bind_again(PORT + index, until))).collect();
            binders.into_iter().try_for_each(|binder| binder.join().expect("a panic ends the process"))
        })
    })
}

fn bind_again(port: u16, until: Instant) -> Outcome {
    // An address of this process's own: nobody else binds there.
    let own = 0x7f00_0000 | (std::process::id() & 0x3f_ffff) << 1 | 1;
    let (mut calls, mut refused) = (0u64, 0u64);
    while Instant::now() < until {
        // SAFETY: makes a descriptor.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        let socket = sys::check("socket", socket as isize)?;
        // SAFETY: it was just made.
        let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: own.to_be() },
            sin_zero: [0; 8],
        };
        let (at, len) = ((&raw const address).cast(), size_of::<libc::sockaddr_in>() as u32);
        // SAFETY: the address is one, and so long.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), at, len) };
        calls += 1;
        if bound == 0 {
            // SAFETY: no pointer.
            let listens = unsafe { libc::listen(socket.as_raw_fd(), 5) };
            sys::check("listen", listens as isize)?;
        } else if sys::errno() == libc::EADDRINUSE {
            refused += 1;
        } else {
            sys::check("bind", bound as isize)?;
        }
    }
    ensure!(refused == 0, "port {port} was in use {refused} times of {calls} after it had been closed");
    Ok(())
}
