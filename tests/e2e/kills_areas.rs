//! Killed while it pages to an area that outlives it, overspill leaves the area as good as before:
//! nobody has its lock, the next run pages to it, and nothing is beside it.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::kills::{Kill, Victim};
use crate::launch::MIB;
use crate::scratch::{self, LoopDevice, administer};
use crate::swap_areas::{info, make, noise};
use crate::{Outcome, Test, ensure};

const AREA_MIB: u64 = 256;
/// As much of it as is looked at while a program runs. (Of what the next run wrote all is: once nothing was
/// found in this part.)
const LOOKED_AT_MIB: u64 = AREA_MIB / 16;
/// More pages than these have to be written by a run that pages.
const PAGED: usize = 500;

/// Options beside the area. There is no pool: all that leaves goes there.
const KINDS: [(&str, &[&str]); 3] = [("file", &[]), ("device", &[]), ("encrypt", &["--encrypt"])];
const NO_POOL: [&str; 2] = ["--max-pool-percent", "0"];

const VICTIMS: [(&str, Victim); 3] =
    [("launcher", Victim::Launcher), ("program", Victim::Program), ("both", Victim::Both)];

/// All of this file.
pub fn tests() -> Vec<Test> {
    let pairs = KINDS.into_iter().flat_map(|kind| VICTIMS.map(|victim| (kind, victim)));
    let test =
        |((kind, options), (who, victim)): ((&'static str, &'static [&'static str]), (&str, Victim))| {
            let name = format!("{kind}-{who}");
            Test::new(format!("kills::{name}"), move |context| {
                let area = Area::new(context, &name, kind == "device")?;
                killed(context, &area, &name, victim, options)
            })
        };
    pairs.map(test).collect()
}

/// An area in a directory of its own.
struct Area {
    path: PathBuf,
    directory: PathBuf,
    disk: Option<LoopDevice>,
}

impl Area {
    fn new(context: &Context, name: &str, is_device: bool) -> Outcome<Self> {
        let directory = context.path(format!("kills-{name}"));
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let file = directory.join("area");
        if !is_device {
            make(context, &file, AREA_MIB)?;
            return Ok(Self { path: file, directory, disk: None });
        }
        let disk = LoopDevice::new(context, &format!("kills-{name}/area"), AREA_MIB)?;
        administer("mkswap", &[&disk.device])?;
        Ok(Self { path: PathBuf::from(&disk.device), directory, disk: Some(disk) })
    }

    fn is_locked(&self) -> Outcome<bool> {
        let file = File::open(&self.path).map_err(|error| error.to_string())?;
        Ok(file.try_lock().is_err())
    }

    /// Fails unless the lock is given up within some seconds.
    ///
    /// *The story:* a ring of io_uring holds its files until what it has in flight has come back, and
    /// the kernel takes it apart behind the end of its process: asked once, this failed on a slow disk.
    fn expect_unlocked(&self) -> Outcome {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.is_locked()? {
            ensure!(Instant::now() < deadline, "somebody still has the area");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Its pages from the first one behind the header on, of so many MiB.
    fn content(&self, mib: u64) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; (mib * MIB) as usize];
        let read = File::open(&self.path).and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(|error| error.to_string())?;
        bytes.drain(..4096);
        Ok(bytes)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.disk = None;
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn differing_pages(one: &[u8], other: &[u8]) -> usize {
    one.chunks(4096).zip(other.chunks(4096)).filter(|(one, other)| one != other).count()
}

fn killed(context: &Context, area: &Area, name: &str, victim: Victim, options: &[&str]) -> Outcome {
    let with_pool_off = [options, &NO_POOL].concat();
    let kill = Kill { name, victim, swap: &area.path, options: &with_pool_off, seconds: 2 };
    let fresh = area.content(LOOKED_AT_MIB)?;
    kill.carry_out(context, || {
        ensure!(area.is_locked()?, "nobody has the area that is paged to");
        let deadline = Instant::now() + Duration::from_secs(10);
        while differing_pages(&fresh, &area.content(LOOKED_AT_MIB)?) <= PAGED {
            ensure!(Instant::now() < deadline, "nothing is paged to the area");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })?;
    area.expect_unlocked()?;
    expect_alone(area)?;
    let left = area.content(AREA_MIB)?;
    let (is_usable, told) = info(context, &area.path)?;
    ensure!(is_usable, "after the kill: {told}");
    let next = noise(context, &format!("kills-{name}-next")).swap(&area.path).options(options);
    next.run()?.succeeded()?.paged()?;
    let written = differing_pages(&left, &area.content(AREA_MIB)?);
    ensure!(written > PAGED, "the next run wrote {written} pages there");
    expect_alone(area)
}

/// Nothing is beside the area.
fn expect_alone(area: &Area) -> Outcome {
    let names = scratch::names(&area.directory);
    ensure!(names == ["area"], "in its directory are {names:?}");
    Ok(())
}
