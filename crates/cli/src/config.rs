//! The configuration file: `key = value` lines, the keys being the names of the options. Its values
//! become the options' defaults, so that flags and environment variables beat them and the same
//! parsers judge them.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::ArgAction;
use overspill_sim::nearest;

use crate::stderr::say;

/// Commands whose options the file can set.
const COMMANDS: [&str; 4] = ["run", "doctor", "compare", "bench"];
/// Options that only make sense where they are typed.
const NOT_CONFIGURABLE: [&str; 2] = ["help", "command"];

/// No file of settings is so long.
const BYTES_MAX: u64 = 1 << 20;

/// One line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    key: String,
    value: String,
}

/// `command` with the defaults that the user's configuration file sets; unchanged when there is no
/// file.
pub fn apply(command: clap::Command) -> Result<clap::Command> {
    let Some(path) = path() else { return Ok(command) };
    // Whoever writes to a pipe, if anybody does: it was waited for, without a word.
    if std::fs::metadata(&path).is_ok_and(|about| about.file_type().is_fifo()) {
        bail!("{}: it is a pipe, and no configuration file", path.display());
    }
    let text = match read(&path) {
        Ok(text) => text,
        // A file that was asked for by name has to be there.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named().is_none() => {
            return Ok(command);
        }
        // Another user's, where HOME is still that one's (su, sudo, setpriv): it is not for this user.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && named().is_none() => {
            say!("overspill: note: {} cannot be read, and is left out", path.display());
            return Ok(command);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    parse(&text)
        .and_then(|settings| apply_settings(command, settings))
        .with_context(|| path.display().to_string())
}

/// *The story:* `OVERSPILL_CONFIG=/dev/zero` was read for ever.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > BYTES_MAX {
        return Err(std::io::Error::other("it is too long for a configuration file"));
    }
    Ok(text)
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn named() -> Option<PathBuf> {
    set("OVERSPILL_CONFIG").map(PathBuf::from)
}

fn path() -> Option<PathBuf> {
    if let Some(path) = named() {
        return Some(path);
    }
    let base = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("overspill/config"))
}

/// A comment is the rest of a line from a `#` on that stands first or after a blank, outside of quotes.
///
/// *The story:* `swap = /mnt/disk#1` spilled to /mnt/disk.
fn without_comment(line: &str) -> &str {
    let (mut quoted, mut after_blank) = (false, true);
    for (at, letter) in line.char_indices() {
        if letter == '#' && after_blank && !quoted {
            return &line[..at];
        }
        quoted ^= letter == '"';
        after_blank = letter.is_whitespace();
    }
    line
}

fn parse(text: &str) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            bail!("line {}: `{line}` is not `key = value`", index + 1);
        };
        let value = value.trim().trim_matches('"');
        settings.push(Setting { key: key.trim().replace('-', "_"), value: value.to_string() });
    }
    Ok(settings)
}

/// Lines of one key, together.
fn by_key(settings: Vec<Setting>) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for Setting { key, value } in settings {
        match all.iter_mut().find(|(other, _)| *other == key) {
            Some((_, values)) => values.push(value),
            None => all.push((key, vec![value])),
        }
    }
    all
}

/// *The story:* of two lines `swap = ...` the first was forgotten, without a word.
fn apply_settings(mut command: clap::Command, settings: Vec<Setting>) -> Result<clap::Command> {
    for (key, values) in by_key(settings) {
        let mut known = false;
        for name in COMMANDS {
            let has_key = |sub: &clap::Command| {
                sub.get_arguments().any(|arg| arg.get_id() == key.as_str() && arg.get_long().is_some())
                    && !NOT_CONFIGURABLE.contains(&key.as_str())
            };
            if !command.find_subcommand(name).is_some_and(has_key) {
                continue;
            }
            known = true;
            let mut is_list = false;
            command = command.mut_subcommand(name, |sub| {
                sub.mut_arg(&key, |arg| {
                    is_list = matches!(arg.get_action(), ArgAction::Append);
                    arg.required(false).default_values(values.clone())
                })
            });
            ensure!(is_list || values.len() == 1, "`{}` is set more than once", key.replace('_', "-"));
        }
        if !known {
            let typed = key.replace('_', "-");
            let subs = COMMANDS.iter().filter_map(|name| command.find_subcommand(name));
            let options: Vec<&str> =
                subs.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long).collect();
            bail!("there is no option `{typed}`{}", nearest::hint(&typed, options));
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches};

    use crate::args::{Cli, Command};
    use crate::size::Size;

    /// See [`super::read`].
    #[test]
    fn what_has_no_end_is_no_configuration() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is too long for a configuration file");
        assert_eq!(read(Path::new("/dev/null")).unwrap(), "");
    }

    fn run(config: &str, line: &[&str]) -> Result<crate::args::RunArgs> {
        let command = apply_settings(Cli::command(), parse(config)?)?;
        let matches = command.try_get_matches_from(line)?;
        match Cli::from_arg_matches(&matches)?.command {
            Command::Run(args) => Ok(args),
            _ => bail!("not run"),
        }
    }

    #[test]
    fn the_file_sets_defaults_and_flags_beat_them() {
        let config = "# defaults\nram = 1G\nswap-max = \"4G\"  # plenty\nstrict = true\n";
        let args = run(config, &["overspill", "run", "true"]).unwrap();
        assert_eq!(args.ram, Size::Bytes(1 << 30));
        assert_eq!(args.tuning.swap_max, Some(Size::Bytes(4 << 30)));
        assert!(args.tuning.strict);
        let cut = |line: &'static str| without_comment(line).trim();
        assert_eq!(cut("swap = /mnt/disk#1 # the second"), "swap = /mnt/disk#1");
        assert_eq!(cut("swap = \"/mnt/disk #1\""), "swap = \"/mnt/disk #1\"");
        assert_eq!(cut("#ram = 1G"), "");
        let args = run(config, &["overspill", "run", "--ram", "2G", "true"]).unwrap();
        assert_eq!(args.ram, Size::Bytes(2 << 30));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("ram 1G").unwrap_err().to_string().contains("line 1"));
        let unknown = run("rom = 1G", &["overspill", "run", "true"]).err().unwrap();
        assert!(unknown.to_string().contains("no option `rom` (did you mean `ram`?)"), "{unknown}");
        assert!(run("ram = 3X", &["overspill", "run", "true"]).is_err());
        let doubtful = run("ram = 1G\nstrict = maybe", &["overspill", "run", "true"]).err().unwrap();
        assert!(doubtful.to_string().contains("invalid value 'maybe' for '--strict'"), "{doubtful}");
        assert!(!run("ram = 1G\nstrict = off", &["overspill", "run", "true"]).unwrap().tuning.strict);
    }

    /// See [`apply_settings`].
    #[test]
    fn an_option_that_can_be_repeated_has_a_line_for_each() {
        let config = "ram = 1G\nswap = /no/a:prio=1\nidle = sleep\nswap = /no/b:2G\n";
        let places = |line: &[&str]| {
            let swap = run(config, line).unwrap().tuning.swap;
            swap.into_iter().map(|place| place.path.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(places(&["overspill", "run", "true"]), ["/no/a", "/no/b"]);
        assert_eq!(places(&["overspill", "run", "--swap", "/no/c", "true"]), ["/no/c"]);
        let twice = run("ram = 1G\nram = 2G", &["overspill", "run", "true"]).err().unwrap().to_string();
        assert!(twice.contains("`ram` is set more than once"), "{twice}");
    }
}
