//! Memory that is out of RAM and is read or written from elsewhere: by process_vm_readv of the
//! process itself and of another process, through /proc/PID/mem, and by an exec that takes its
//! arguments from there.

use std::os::unix::fs::FileExt;

use crate::child::{self, Child};
use crate::context::Context;
use crate::memory::{Memory, PAGE};
use crate::outcome::Outcome;
use crate::sys::check;
use crate::{ensure, fail, pattern, sys};

const SEED: u64 = 0x4e40;

/// `vm-readv`: the program copies its own cold memory by process_vm_readv; another process reads it so, too.
pub fn vm_readv(context: &mut Context) -> Outcome {
    let (source, target) = (context.subject(SEED)?, context.subject(SEED + 1)?);
    context.cool(&target)?;
    context.cool(&source)?;
    move_remote(std::process::id() as i32, source.base(), target.base(), source.len(), true)?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "moved within the process")?;
    context.cool(&source)?;
    by_another_process("peek", &source)?;
    pattern::check_pages(&source, 0..source.pages(), SEED, "read by another process")
}

/// `vm-writev`: the same by process_vm_writev, for which the kernel pins the pages before it writes to them.
pub fn vm_writev(context: &mut Context) -> Outcome {
    let (source, target) = (context.subject(SEED)?, context.subject(SEED + 1)?);
    context.cool(&source)?;
    context.cool(&target)?;
    move_remote(std::process::id() as i32, target.base(), source.base(), source.len(), false)?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "moved within the process")?;
    context.cool(&source)?;
    by_another_process("poke", &source)?;
    pattern::check_pages(&source, 0..source.pages(), SEED + 7, "written by another process")?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "beside it")
}

fn by_another_process(part: &str, memory: &Memory) -> Outcome {
    let numbers = [std::process::id() as usize, memory.base(), memory.len()].map(|number| number.to_string());
    child::expect_success(
        child::part(part, &numbers.each_ref().map(String::as_str)),
        "a process that looks into this one",
    )
}

/// `proc-mem`: cold memory is read and written through /proc/self/mem, as debuggers do it.
pub fn proc_mem(context: &mut Context) -> Outcome {
    let target = context.subject(SEED)?;
    context.cool(&target)?;
    let memory = std::fs::OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let mut buffer = vec![0; 100_000];
    let offsets = || (3..target.len() - 100_000).step_by(2_000_001);
    for offset in offsets() {
        memory.read_exact_at(&mut buffer, (target.base() + offset) as u64)?;
        pattern::check_bytes(SEED, offset, &buffer, "/proc/self/mem")?;
        pattern::bytes(SEED + 1, offset, &mut buffer);
        memory.write_all_at(&buffer, (target.base() + offset) as u64)?;
    }
    context.cool(&target)?;
    for offset in offsets() {
        // SAFETY: in bounds, and nobody else touches it.
        let part = unsafe { std::slice::from_raw_parts_mut(target.at(offset), buffer.len()) };
        pattern::check_bytes(SEED + 1, offset, part, "written through /proc/self/mem")?;
        pattern::bytes(SEED, offset, part);
    }
    pattern::check_pages(&target, 0..target.pages(), SEED, "beside what was written through /proc/self/mem")
}

/// The body of the process that reads, and checks.
pub fn peek_part(pid: i32, base: usize, len: usize) -> Outcome {
    let copy = Memory::map(len)?;
    move_remote(pid, base, copy.base(), len, true)?;
    pattern::check_pages(&copy, 0..copy.pages(), SEED, "read from another process")
}

/// The body of the process that writes, with another seed.
pub fn poke_part(pid: i32, base: usize, len: usize) -> Outcome {
    let copy = Memory::map(len)?;
    pattern::fill_pages(&copy, 0..copy.pages(), SEED + 7);
    move_remote(pid, base, copy.base(), len, false)
}

/// Moves `len` bytes between `remote` in the process and `local` here.
fn move_remote(pid: i32, remote: usize, local: usize, len: usize, read: bool) -> Outcome {
    let mut done = 0;
    while done < len {
        let vector =
            |address: usize| libc::iovec { iov_base: (address + done) as *mut _, iov_len: len - done };
        let (local, remote) = (vector(local), vector(remote));
        // SAFETY: the local range is ours; the remote one is checked by the kernel, and the subtest
        // owns it too.
        let count = unsafe {
            if read {
                libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0)
            } else {
                libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0)
            }
        };
        let count = check("process_vm_readv", count)?;
        ensure!(count > 0, "process_vm_readv moved nothing at {done} of {len} bytes");
        done += count;
    }
    Ok(())
}

/// `exec`: path, arguments and environment of an exec lie in cold memory: by posix_spawn, by vfork,
/// by fork; and the program replaces itself while its memory is cold and threads run.
pub fn exec(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let start = 8 * PAGE;
    let strings = exec_strings();
    for round in 0..3 {
        let arguments = ExecArguments::write(&memory, start, &strings);
        context.cool(&memory)?;
        let pid = match round {
            0 => spawn(&arguments)?,
            1 => vfork_exec(&arguments)?,
            _ => fork_exec(&arguments)?,
        };
        pid.succeed(["posix_spawn", "vfork and exec", "fork and exec"][round])?;
        pattern::check_pages(&memory, 1000..memory.pages(), SEED, "beside the arguments")?;
    }
    let mib = context.options.mib.to_string();
    child::expect_success(child::part("exec-self", &["--mib", &mib]), "a program that replaces itself")?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 1000..memory.pages(), SEED, "after children")
}

fn exec_strings() -> Vec<String> {
    let long = "x".repeat(100_000);
    ["/proc/self/exe", "part", "arguments", "first", &long, "last"].map(str::to_owned).to_vec()
}

/// The body of the process that was started from cold memory.
pub fn arguments_part(arguments: &[String]) -> Outcome {
    let expected = &exec_strings()[3..];
    ensure!(arguments == expected, "the arguments arrived wrong: {} of them", arguments.len());
    match std::env::var("COLD") {
        Ok(value) if value == "environment" => Ok(()),
        other => fail!("the environment arrived wrong: {other:?}"),
    }
}

/// The body of the process that replaces itself.
pub fn exec_self_part(context: &mut Context) -> Outcome {
    use std::os::unix::process::CommandExt;
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let address = memory.base();
    for lane in 0..4 {
        std::thread::spawn(move || {
            let memory = Memory::adopt(address, 4096 * PAGE);
            for round in 0usize.. {
                let page = (round * 7 + lane) % 4096;
                if let Err(failure) = pattern::check_page(&memory, page, SEED, page, "while replaced") {
                    eprintln!("{failure}");
                    std::process::abort();
                }
            }
        });
    }
    sys::pause_ms(50);
    let error = child::part("nothing", &[]).exec();
    fail!("exec of this program: {error}")
}

/// argv and envp with their strings, all inside one memory, every string ending in another page.
struct ExecArguments {
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
}

impl ExecArguments {
    fn write(memory: &Memory, start: usize, strings: &[String]) -> Self {
        let argv: *mut *const libc::c_char = memory.place(start);
        let envp: *mut *const libc::c_char = memory.place(start + 2 * PAGE);
        let mut offset = start + 4 * PAGE;
        let mut write = |text: &str| {
            let at = memory.at(offset + PAGE - 5);
            offset += text.len().next_multiple_of(PAGE) + 2 * PAGE;
            // SAFETY: in bounds: the memory is much larger than all strings together, and nothing
            // else lies there.
            unsafe {
                at.copy_from(text.as_ptr(), text.len());
                at.add(text.len()).write(0);
            }
            at.cast_const().cast::<libc::c_char>()
        };
        let path = write(&strings[0]);
        let pointers: Vec<_> = strings.iter().map(|text| write(text)).chain([std::ptr::null()]).collect();
        let inherited = std::env::vars().map(|(name, value)| format!("{name}={value}"));
        let variables: Vec<_> = inherited
            .chain(["COLD=environment".to_owned()])
            .map(|text| write(&text))
            .chain([std::ptr::null()])
            .collect();
        // SAFETY: a page or two each, which holds hundreds of pointers (asserted).
        unsafe {
            assert!(variables.len() < 2 * PAGE / 8, "too many environment variables");
            argv.copy_from(pointers.as_ptr(), pointers.len());
            envp.copy_from(variables.as_ptr(), variables.len());
        }
        Self { path, argv, envp }
    }
}

fn spawn(arguments: &ExecArguments) -> Outcome<Child> {
    let mut pid = 0;
    let (actions, attributes) = (std::ptr::null(), std::ptr::null());
    // SAFETY: path, argv and envp are C strings and null-terminated arrays of them.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            arguments.path,
            actions,
            attributes,
            arguments.argv.cast(),
            arguments.envp.cast(),
        )
    };
    ensure!(error == 0, "posix_spawn from cold memory: {}", std::io::Error::from_raw_os_error(error));
    Ok(Child::adopt(pid))
}

fn vfork_exec(arguments: &ExecArguments) -> Outcome<Child> {
    // SAFETY: as in `spawn`; the child shares our memory and stack until it execs, and calls
    // nothing but exec and exit.
    let pid = unsafe {
        #[expect(deprecated, reason = "it is what is tested")]
        let pid = libc::vfork();
        if pid == 0 {
            libc::execve(arguments.path, arguments.argv, arguments.envp);
            libc::_exit(112);
        }
        pid
    };
    check("vfork", pid as isize)?;
    Ok(Child::adopt(pid))
}

fn fork_exec(arguments: &ExecArguments) -> Outcome<Child> {
    child::fork(|| {
        // SAFETY: as in `spawn`.
        unsafe { libc::execve(arguments.path, arguments.argv, arguments.envp) };
        fail!("execve: {}", std::io::Error::last_os_error())
    })
}
