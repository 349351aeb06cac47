//! The program that is about to be run: where it is, and whether the agent can be loaded into it.
//!
//! The dynamic linker loads the agent (LD_PRELOAD), so a program without one, or one for which the
//! linker ignores LD_PRELOAD (set-user-ID, file capabilities), runs unmanaged. Only the file is
//! looked at, nothing is executed.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::stderr::say;
use crate::{exit, human};

/// Interpreters of interpreters that the kernel follows.
const SCRIPT_DEPTH_MAX: u32 = 4;

/// Where execvp(3) would find `name`. A file that cannot be executed is found only if there is
/// nothing better.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return fs::metadata(name).is_ok().then(|| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|directory| if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory })
        .map(|directory| directory.join(name))
        .filter(|candidate| fs::metadata(candidate).is_ok_and(|metadata| metadata.is_file()))
        .collect();
    let executable =
        |path: &&PathBuf| nix::unistd::access(path.as_path(), nix::unistd::AccessFlags::X_OK).is_ok();
    candidates.iter().find(executable).or(candidates.first()).cloned()
}

/// Says that the command's program is not there; of a line in one word how it can be run.
///
/// *The story:* `run -- 'ls -la'`: "not found", and nothing else.
pub fn say_not_found(command: &[OsString]) {
    let name = human::command(&command[..1]);
    match &command[0] {
        line if command.len() == 1 && is_line(line) => {
            say!("overspill: {name}: not found, as it is one word; for a line of a shell write sh -c {name}");
        }
        _ => say!("overspill: {name}: not found"),
    }
}

/// Several words in one, as a shell takes them?
fn is_line(word: &OsStr) -> bool {
    word.as_bytes().trim_ascii().iter().any(u8::is_ascii_whitespace)
}

/// The exit code where there is nothing to run, after saying so.
pub fn refused(command: &[OsString]) -> Option<u8> {
    let Some(path) = find(&command[0]) else {
        say_not_found(command);
        return Some(exit::NOT_FOUND);
    };
    let can = nix::unistd::access(&path, nix::unistd::AccessFlags::X_OK);
    let denied = if path.is_dir() { nix::errno::Errno::EACCES } else { can.err()? };
    say!("overspill: cannot execute {}: {}", human::command(&[path]), denied.desc());
    Some(exit::CANNOT_EXECUTE)
}

/// Who starts a program.
#[derive(Clone, Copy)]
pub struct Starter {
    /// The real user and group.
    pub user: u32,
    /// See there.
    pub group: u32,
}

/// Why the agent cannot be loaded into the program at `path`, if this process starts it; `None` if it can, or
/// if nothing is known against it.
pub fn unmanageable(path: &Path) -> Option<String> {
    let own = Starter { user: nix::unistd::getuid().as_raw(), group: nix::unistd::getgid().as_raw() };
    unmanageable_at(path, own, 0)
}

/// The same of who was started by somebody.
///
/// *The story:* the launcher's own user was asked for. Of a program with file capabilities that a user had
/// started below a launcher of root's it was said that a sandbox keeps the library from it.
pub fn unmanageable_by(path: &Path, starter: Starter) -> Option<String> {
    unmanageable_at(path, starter, 0)
}

fn unmanageable_at(path: &Path, starter: Starter, depth: u32) -> Option<String> {
    let (file, head) = opened(path)?;
    let metadata = file.metadata().ok()?;
    let name = path.display();
    if let Some(kind) = privileged(path, &metadata, starter) {
        return Some(format!("{name} is {kind}, and such programs ignore LD_PRELOAD"));
    }
    if is_script(&head) && depth < SCRIPT_DEPTH_MAX {
        return script_interpreters(&head)
            .iter()
            .find_map(|interpreter| unmanageable_at(interpreter, starter, depth + 1));
    }
    let of_musl = || Some(format!("{name} is linked with musl, and the agent works with glibc only"));
    match Elf::read(&head, &file)? {
        Elf::Dynamic => None,
        Elf::Static if is_musls_linker(path) => of_musl(),
        Elf::Static if is_linker(path) => None,
        Elf::Static => Some(format!("{name} is statically linked, so no agent can be loaded into it")),
        Elf::Foreign => Some(format!("{name} is built for another processor or word size than the agent")),
        Elf::Musl => of_musl(),
    }
}

/// A file, and how it begins.
fn opened(path: &Path) -> Option<(File, Vec<u8>)> {
    let file = File::open(path).ok()?;
    let mut head = vec![0; 256];
    let length = file.read_at(&mut head, 0).ok()?;
    head.truncate(length);
    Some((file, head))
}

fn is_script(head: &[u8]) -> bool {
    head.starts_with(b"#!")
}

/// Whether it is the dynamic linker itself, which loads what LD_PRELOAD names where it is started as a
/// program, too, and is linked to nothing.
fn is_linker(path: &Path) -> bool {
    let path = resolved(path);
    let name = name_of(&path);
    (name.starts_with(b"ld-") || name.starts_with(b"ld64")) && name.windows(3).any(|part| part == b".so")
}

/// Whether it is musl's, which is its C library, too. (glibc has a text of the second name.)
fn is_musls_linker(path: &Path) -> bool {
    let path = resolved(path);
    name_of(&path).starts_with(MUSLS_LINKER) || name_of(&path) == b"libc.so"
}

/// How the name of musl's dynamic linker begins.
const MUSLS_LINKER: &[u8] = b"ld-musl-";

fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStr::as_bytes)
}

/// Whether executing the file gains privileges, which makes the dynamic linker ignore LD_PRELOAD.
fn privileged(path: &Path, metadata: &Metadata, starter: Starter) -> Option<&'static str> {
    let mode = metadata.permissions().mode();
    if mode & libc::S_ISUID != 0 && metadata.uid() != starter.user {
        return Some("set-user-ID");
    }
    let group_set = mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0;
    if group_set && metadata.gid() != starter.group {
        return Some("set-group-ID");
    }
    (starter.user != 0 && has_capabilities(path)).then_some("given file capabilities")
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    crate::os::xattr::exists(&path, c"security.capability")
}

/// The files behind a `#!` line: the interpreter, and for env(1) also what it will execute.
fn script_interpreters(head: &[u8]) -> Vec<PathBuf> {
    let line = head[2..].split(|&byte| byte == b'\n').next().unwrap_or_default();
    let words: Vec<OsString> = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    let Some(interpreter) = words.first() else { return Vec::new() };
    let mut files = vec![PathBuf::from(interpreter)];
    if Path::new(interpreter).file_name() == Some(OsStr::new("env")) {
        let target = words[1..]
            .iter()
            .find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='));
        files.extend(target.and_then(|target| find(target)));
    }
    files
}

/// The interpreter that a script names but that does not exist: why executing it says "not found".
pub fn missing_interpreter(path: &Path) -> Option<PathBuf> {
    let (_, head) = opened(path).filter(|(_, head)| is_script(head))?;
    script_interpreters(&head).into_iter().next().filter(|interpreter| !interpreter.exists())
}

/// What matters about an ELF file.
#[derive(Debug, PartialEq, Eq)]
enum Elf {
    /// It has a dynamic linker.
    Dynamic,
    /// It has none.
    Static,
    /// It is not for this processor.
    Foreign,
    /// Its dynamic linker is musl's.
    Musl,
}

/// Program header type of the dynamic linker's path.
const PT_INTERP: u32 = 3;
/// ELF's number of the processor this is built for.
const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

impl Elf {
    /// Reads the headers; `None` if it is no (complete) ELF file.
    fn read(head: &[u8], file: &File) -> Option<Elf> {
        if !head.starts_with(b"\x7fELF") {
            return None;
        }
        let (word_size, order, machine) = (*head.get(4)?, *head.get(5)?, u16_at(head, 18)?);
        if (word_size, order, machine) != (2, 1, OWN_MACHINE) {
            return Some(Elf::Foreign);
        }
        let (offset, size, count) = (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?);
        let mut headers = vec![0u8; usize::from(size) * usize::from(count)];
        file.read_exact_at(&mut headers, offset).ok()?;
        let mut headers = headers.chunks_exact(usize::from(size).max(4));
        let Some(linker) = headers.find(|header| header[..4] == PT_INTERP.to_le_bytes()) else {
            return Some(Elf::Static);
        };
        Some(if is_of_musl(linker, file) { Elf::Musl } else { Elf::Dynamic })
    }
}

/// Does this program header name musl's dynamic linker?
fn is_of_musl(header: &[u8], file: &File) -> bool {
    let (Some(offset), Some(length)) = (u64_at(header, 8), u64_at(header, 32)) else { return false };
    let mut path = vec![0; length.min(libc::PATH_MAX as u64) as usize];
    let name = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec).unwrap_or_default();
    file.read_exact_at(&mut path, offset).is_ok() && name(&path).starts_with(MUSLS_LINKER)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal ELF file with one program header.
    fn elf(word_size: u8, machine: u16, header_type: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[4] = word_size;
        bytes[5] = 1;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&header_type.to_le_bytes());
        bytes
    }

    fn scratch(name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("overspill-program-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn judged(name: &str, bytes: &[u8], mode: u32) -> Option<String> {
        let path = scratch(name, bytes, mode);
        let judgement = unmanageable(&path);
        fs::remove_file(path).unwrap();
        judgement
    }

    #[test]
    fn elf_files_are_told_apart() {
        assert_eq!(judged("dynamic", &elf(2, OWN_MACHINE, PT_INTERP), 0o755), None);
        assert!(judged("static", &elf(2, OWN_MACHINE, 1), 0o755).unwrap().contains("statically linked"));
        assert!(judged("narrow", &elf(1, 3, PT_INTERP), 0o755).unwrap().contains("another processor"));
        let linked_with = |linker: &[u8]| {
            let mut bytes = elf(2, OWN_MACHINE, PT_INTERP);
            bytes[64 + 8..64 + 16].copy_from_slice(&120_u64.to_le_bytes());
            bytes[64 + 32..64 + 40].copy_from_slice(&(linker.len() as u64).to_le_bytes());
            [&bytes, linker].concat()
        };
        let musl = linked_with(b"/lib/ld-musl-x86_64.so.1\0");
        assert!(judged("musl", &musl, 0o755).unwrap().contains("linked with musl"));
        assert_eq!(judged("gnu", &linked_with(b"/lib64/ld-linux-x86-64.so.2\0"), 0o755), None);
        assert_eq!(judged("cut", &elf(2, OWN_MACHINE, 1)[..80], 0o755), None);
        assert_eq!(judged("text", b"echo hello\n", 0o755), None);
    }

    #[test]
    fn scripts_are_judged_by_their_interpreter() {
        let interpreter = scratch("interpreter", &elf(2, OWN_MACHINE, 1), 0o755);
        let script = format!("#! {} -x\n", interpreter.display());
        assert!(judged("script", script.as_bytes(), 0o755).unwrap().contains("statically linked"));
        fs::remove_file(interpreter).unwrap();
        assert_eq!(judged("shell", b"#!/bin/sh\n", 0o755), None);
        assert_eq!(judged("env", b"#!/usr/bin/env -S FOO=1 sh -e\n", 0o755), None);
        let words = script_interpreters(b"#!/usr/bin/env -S FOO=1 sh -e\n");
        assert_eq!(words[0], Path::new("/usr/bin/env"));
        assert!(words[1].ends_with("sh"));
    }

    /// *The story:* `run -- /lib64/ld-linux-x86-64.so.2 prog` was called statically linked, and managed.
    #[test]
    fn the_linker_itself_is_no_static_program() {
        let directory = std::env::temp_dir().join(format!("overspill-linker-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let judged = |name: &str| {
            let path = directory.join(name);
            fs::write(&path, elf(2, OWN_MACHINE, 1)).unwrap();
            unmanageable(&path)
        };
        let [linker, other] = [judged("ld-linux-x86-64.so.2"), judged("ld-gold")];
        let musls = [judged("ld-musl-x86_64.so.1"), judged("libc.so")];
        fs::remove_dir_all(directory).unwrap();
        assert!(linker.is_none() && other.is_some(), "{linker:?} {other:?}");
        let is_told = |reason: &Option<String>| reason.as_ref().is_some_and(|reason| reason.contains("musl"));
        assert!(musls.iter().all(is_told), "{musls:?}");
    }

    #[test]
    fn a_missing_interpreter_is_named() {
        let path = scratch("missing", b"#!/nonexistent/interpreter\n", 0o755);
        assert_eq!(missing_interpreter(&path), Some("/nonexistent/interpreter".into()));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_shell_is_found_and_dynamic() {
        let shell = find(OsStr::new("sh")).unwrap();
        assert_eq!(unmanageable(&shell), None);
        assert_eq!(find(OsStr::new("no-such-program-here")), None);
        assert_eq!(find(OsStr::new("/no/such/program")), None);
    }
}
