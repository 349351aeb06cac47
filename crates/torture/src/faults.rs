//! Touches memory that may not be there, and reports the signal instead of dying by it: two probe
//! instructions whose address the handler knows, and to which it gives a way out.

use std::cell::Cell;

use crate::outcome::Outcome;
use crate::sys::check;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the probes and the code that subtests write into memory are x86-64 machine code");

std::arch::global_asm!(
    ".global overspill_probe_load",
    "overspill_probe_load:",
    "movzx eax, byte ptr [rdi]",
    "ret",
    ".global overspill_probe_store",
    "overspill_probe_store:",
    "mov byte ptr [rdi], sil",
    "xor eax, eax",
    "ret",
    ".global overspill_probe_failed",
    "overspill_probe_failed:",
    "mov eax, -1",
    "ret",
);

unsafe extern "C" {
    fn overspill_probe_load(address: usize) -> i32;
    fn overspill_probe_store(address: usize, byte: u8) -> i32;
    fn overspill_probe_failed();
}

/// A fault that the handler has seen in this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// SIGSEGV or SIGBUS.
    pub signal: i32,
    /// `si_addr`.
    pub address: usize,
}

thread_local! {
    static LAST: Cell<Option<Fault>> = const { Cell::new(None) };
    static LAST_CODE: Cell<i32> = const { Cell::new(0) };
}

/// The `si_code` of this thread's last fault.
pub fn last_code() -> i32 {
    LAST_CODE.get()
}

/// Handles SIGSEGV and SIGBUS from now on, on the alternative stack where a thread has one.
pub fn install() -> Outcome {
    install_handler(libc::SIGSEGV, on_fault)?;
    install_handler(libc::SIGBUS, on_fault)
}

/// A handler with the arguments of SA_SIGINFO.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Sets a handler with SA_SIGINFO and SA_ONSTACK.
pub fn install_handler(signal: i32, handler: Handler) -> Outcome {
    // SAFETY: all-zero is a valid sigaction: no flags, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is initialised and `handler` has the signature that SA_SIGINFO asks for.
    check("sigaction", unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } as isize)?;
    Ok(())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo and ucontext, both ours until we return.
    let (address, code, context) =
        unsafe { ((*info).si_addr() as usize, (*info).si_code, &mut *context.cast::<libc::ucontext_t>()) };
    let instruction = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let probes = [overspill_probe_load as *const () as i64, overspill_probe_store as *const () as i64];
    if probes.contains(instruction) {
        LAST.set(Some(Fault { signal, address }));
        LAST_CODE.set(code);
        *instruction = overspill_probe_failed as *const () as i64;
    } else {
        // SAFETY: restores the default, so that the instruction, run again, ends the process as it should.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Loads a byte, or says which signal that raised.
pub fn load(address: usize) -> Result<u8, Fault> {
    // SAFETY: the probe reads a byte and nothing else; a fault comes back through `on_fault`.
    let value = unsafe { overspill_probe_load(address) };
    u8::try_from(value).map_err(|_| LAST.take().expect("the handler has run in this thread"))
}

/// Stores a byte, or says which signal that raised.
pub fn store(address: usize, byte: u8) -> Result<(), Fault> {
    // SAFETY: callers pass addresses in ranges that they own or that nobody owns; a fault comes
    // back by `on_fault`.
    let value = unsafe { overspill_probe_store(address, byte) };
    if value == 0 { Ok(()) } else { Err(LAST.take().expect("the handler has run in this thread")) }
}
