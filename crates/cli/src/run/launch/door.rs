//! The launcher's door: where a process of the run asks for the shared page.
//!
//! Only those come here that cannot open the page by way of /proc: another user, another pid namespace,
//! another root. They get what they could not open themselves, too: /dev/userfaultfd, a file to page to, a
//! /proc, their page map. The [`mod@super::entrance`] is seen by everybody on the machine, so whoever
//! comes is answered only if it is a descendant of this process. When the launcher has ended the keeper
//! answers, who is nobody's ancestor: then it must be one of the run's processes or descend from one, or be
//! this user's own and have the run's variable.

use std::ffi::CString;
use std::iter::successors;
use std::time::Duration;

use super::entrance::Entrance;
use crate::run::shared_page::SharedPage;
use crate::run::tree::descendants::{parent, read_of_memory};
use overspill_engine::shared::letters;
use overspill_sys::file::{self, Open};
use overspill_sys::procfs::Fields;
use overspill_sys::socket::{self, Letter};
use overspill_sys::{Errno, Fd};

/// Parents that are followed up to this process.
const DEPTH_MAX: usize = 4096;
/// How long it rests where there is no descriptor for a guest.
const REST: Duration = Duration::from_millis(10);

/// What is handed over.
pub struct Door {
    /// The shared page.
    pub page: Fd,
    /// Where swap files are made, and for which of the places.
    pub directories: Vec<(usize, CString)>,
    /// What shows a process itself where its root has no /proc, if it could be made.
    pub proc: Option<Fd>,
}

impl Door {
    /// From now on those are answered by a thread of its own who come there, until this process ends: if
    /// they are guests, by their number and user.
    pub fn answer_at(
        self,
        entrance: Entrance,
        is_guest: impl Fn(u32, u32) -> bool + Send + 'static,
    ) -> Result<(), Errno> {
        let serve = move || {
            loop {
                match entrance.accept() {
                    // Whoever has gone meanwhile needs no answer.
                    Ok(guest) => drop(self.answer(&guest, &is_guest)),
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    // Whoever comes waits until there is a descriptor again.
                    //
                    // *The story:* the launcher had none for an instant, and from then on nobody was
                    // answered.
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        std::thread::sleep(REST);
                    }
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("door".into()).spawn(serve);
        thread.map(drop).map_err(|_| Errno::AGAIN)
    }

    fn answer(&self, guest: &Fd, is_guest: impl Fn(u32, u32) -> bool) -> Result<(), Errno> {
        let (pid, user) = socket::peer(guest)?;
        // Who has come may have ended, and its number be another's by now, with its socket in other hands.
        if !is_of_user(pid, user) || !is_guest(pid, user) {
            return Err(Errno::PERM);
        }
        let letter = |kind, value| Letter { kind, value };
        socket::send(guest, letter(letters::PAGE, u64::from(pid)), Some(&self.page))?;
        if let Ok(device) = file::open(c"/dev/userfaultfd", Open::READ_WRITE) {
            socket::send(guest, letter(letters::DEVICE, 0), Some(&device))?;
        }
        if let Some(proc) = &self.proc {
            socket::send(guest, letter(letters::PROC, 0), Some(proc))?;
        }
        if let Some(pagemap) = pagemap_of(pid, user) {
            socket::send(guest, letter(letters::PAGEMAP, 0), Some(&pagemap))?;
        }
        for (index, directory) in &self.directories {
            if let Ok(swap) = file::open_nameless(directory, true) {
                socket::send(guest, letter(letters::SWAP, *index as u64), Some(&swap))?;
            }
        }
        socket::send(guest, letter(letters::END, 0), None)
    }
}

/// The page map of a process that `user` asks for it. It is for who gave up root: it may not open its own.
///
/// It shows nothing but what that user's process has. One that has more rights than whoever came to the
/// door is another program, which this process has executed since, and gets none: its maker may still
/// have the socket. The map is bound to a memory when it is opened, so both times, before and after, the
/// process must be that user's alone.
fn pagemap_of(pid: u32, user: u32) -> Option<Fd> {
    const ROOT: u32 = 0;
    if user == ROOT || !is_all(pid, user) {
        return None;
    }
    let path = CString::new(format!("/proc/{pid}/pagemap")).expect("no NUL in a path of digits");
    let pagemap = file::open(&path, Open::empty()).ok()?;
    is_all(pid, user).then_some(pagemap)
}

fn status_of(pid: u32) -> Option<Fields> {
    let path = CString::new(format!("/proc/{pid}/status")).expect("no NUL in a path of digits");
    Fields::read(&path).ok()
}

/// Is that the user by whose rights a process does things?
fn is_of_user(pid: u32, user: u32) -> bool {
    let Some(status) = status_of(pid) else { return false };
    let Some(Ok(numbers)) = status.text("Uid").map(std::str::from_utf8) else { return false };
    numbers.split_whitespace().nth(1).and_then(|number| number.parse().ok()) == Some(user)
}

/// Is a process this user's by all of its numbers, and without any right that others have not?
fn is_all(pid: u32, user: u32) -> bool {
    let Some(status) = status_of(pid) else { return false };
    let is_same = |name, wanted: Option<u32>| {
        let Some(Ok(numbers)) = status.text(name).map(std::str::from_utf8) else { return false };
        let mut numbers = numbers.split_whitespace().map(str::parse::<u32>);
        let first = numbers.next().and_then(Result::ok);
        first.is_some()
            && wanted.is_none_or(|wanted| first == Some(wanted))
            && numbers.all(|n| n.ok() == first)
    };
    is_same("Uid", Some(user)) && is_same("Gid", None) && status.mask("CapPrm") == Some(0)
}

/// A process, its parent, and so on.
fn line_of(pid: u32) -> impl Iterator<Item = u32> {
    successors(Some(pid), |&pid| parent(pid)).take_while(|&pid| pid > 1).take(DEPTH_MAX)
}

/// Is that a descendant of this process?
pub fn is_descendant(pid: u32) -> bool {
    let own = std::process::id();
    pid != own && line_of(pid).any(|pid| pid == own)
}

/// Is it one of the run's processes, or does it descend from one? Or has it the run's variable? That may be
/// anybody's who has seen the token, so it must be this user's process.
pub fn is_of_run(page: &SharedPage, pid: u32, user: u32) -> bool {
    let Ok(reports) = page.reports() else { return false };
    let is_member = |pid| reports.iter().any(|report| report.pid == pid);
    if line_of(pid).any(is_member) {
        return true;
    }
    let mark = page.mark();
    let environment = || read_of_memory(pid, "environ").unwrap_or_default();
    user == nix::unistd::geteuid().as_raw()
        && environment().split(|&byte| byte == 0).any(|variable| variable.starts_with(&mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::shared_page::Settings;
    use overspill_engine::shared::socket_name;
    use overspill_sys::socket::Place;
    use std::process::Command;
    use std::time::Instant;

    /// The token is seen by everybody: with it alone only this user's own processes are the run's.
    #[test]
    fn the_variable_is_enough_for_this_users_own() {
        let page = SharedPage::new(&Settings::default()).unwrap();
        let variable = format!("{}0", String::from_utf8(page.mark()).unwrap());
        let (name, value) = variable.split_once('=').unwrap();
        let start = |name: &str| Command::new("sleep").arg("60").env(name, value).spawn().unwrap();
        let (mut ours, mut other) = (start(name), start("OTHER"));
        let user = nix::unistd::geteuid().as_raw();
        let begun = Instant::now();
        while !is_of_run(&page, ours.id(), user) {
            assert!(begun.elapsed().as_secs() < 20);
        }
        assert!(!is_of_run(&page, ours.id(), user + 1) && !is_of_run(&page, other.id(), user));
        for child in [&mut ours, &mut other] {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
    }

    /// A name that everybody can see must not give everybody the page.
    #[test]
    fn strangers_are_sent_away() {
        let token = overspill_sys::random::unpredictable();
        let page = file::memfd(c"page").unwrap();
        let entrance = Entrance::open(&socket_name(token), None).unwrap();
        let door = Door { page, directories: Vec::new(), proc: None };
        door.answer_at(entrance, |pid, _| is_descendant(pid)).unwrap();
        // This process is no descendant of itself.
        let guest = socket::connect(Place::Name(&socket_name(token)), 1).unwrap();
        assert!(matches!(socket::receive(&guest), Ok(None)));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_descendant(child.id()) && !is_descendant(1) && !is_descendant(std::process::id()));
        child.kill().and_then(|()| child.wait()).unwrap();
    }
}
