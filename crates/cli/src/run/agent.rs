//! Finding the agent's library and handing it to the program by way of the environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// File name of the agent's library.
const LIBRARY: &str = "liboverspill_preload.so";
/// Where it lies beside or below the executable: a build tree, an unpacked archive, an installation under a prefix.
const PLACES: [&str; 3] = ["", "../lib/overspill", "../lib"];

/// The agent's library: `$OVERSPILL_PRELOAD`, else where it was built or installed with this executable.
pub fn find() -> Result<PathBuf> {
    let path = match std::env::var_os("OVERSPILL_PRELOAD") {
        Some(path) if Path::new(&path).is_file() => std::path::absolute(path)?,
        Some(path) => bail!("OVERSPILL_PRELOAD names {}, which is no file", path.display()),
        None => beside_executable()?,
    };
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\n\t".contains(byte)) {
        bail!("{} has a blank or a colon in its path, which LD_PRELOAD cannot carry", path.display());
    }
    Ok(path)
}

fn beside_executable() -> Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let directory = executable.parent().unwrap_or(Path::new("/"));
    let candidates = PLACES.map(|place| directory.join(place).join(LIBRARY));
    match candidates.iter().find(|candidate| candidate.is_file()) {
        Some(library) => Ok(library.canonicalize()?),
        None => bail!("{LIBRARY} is neither beside {} nor in ../lib/overspill", executable.display()),
    }
}

/// The value of LD_PRELOAD with the agent before whatever the user preloads.
pub fn preload_value(agent: &Path, present: Option<&OsStr>) -> OsString {
    let mut value = agent.as_os_str().to_owned();
    let others = present.map_or(&b""[..], OsStr::as_bytes).split(|byte| b" :".contains(byte));
    for other in others.filter(|other| !other.is_empty() && *other != agent.as_os_str().as_bytes()) {
        value.push(":");
        value.push(OsStr::from_bytes(other));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_comes_first_and_once() {
        let agent = Path::new("/lib/agent.so");
        let value = |present: Option<&str>| preload_value(agent, present.map(OsStr::new));
        assert_eq!(value(None), "/lib/agent.so");
        assert_eq!(value(Some("")), "/lib/agent.so");
        assert_eq!(value(Some("a.so b.so")), "/lib/agent.so:a.so:b.so");
        assert_eq!(value(Some("/lib/agent.so:a.so")), "/lib/agent.so:a.so");
    }
}
