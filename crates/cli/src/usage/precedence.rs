//! What is typed beats variables, and these beat the configuration file: also where two options cannot be
//! had together. The weaker one counts as not given.
//!
//! *The stories:* with OVERSPILL_LAPS set `bench --seconds` was refused, and with OVERSPILL_ENCRYPT=0
//! `run --no-checksum`. With OVERSPILL_SIM_RAM `sim devices` wanted a trace.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Id};

/// Words of a variable that switch an option off, as its parser has them.
const OFF: [&str; 7] = ["", "0", "f", "n", "no", "off", "false"];

/// From where an option has its value, the weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Nowhere,
    File,
    Variable,
    Typed,
}

/// The table for these words.
pub fn settled(table: Command, words: &[OsString]) -> Command {
    let bare = bare(super::table());
    // What is wrong with the words is found and told later.
    match bare.try_get_matches_from(words) {
        Ok(typed) => settle(table, &typed),
        Err(_) => table,
    }
}

/// Without variables; nothing is required, as a variable may bring it.
fn bare(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = names.iter().fold(command, |command, name| command.mut_subcommand(name, bare));
    command.mut_args(|arg| if arg.is_positional() { arg } else { without_variable(arg).required(false) })
}

fn settle(command: Command, typed: &ArgMatches) -> Command {
    if let Some((name, inner)) = typed.subcommand() {
        // What a command does by itself is not asked for where another one below it is.
        return command.mut_args(without_variable).mut_subcommand(name, |command| settle(command, inner));
    }
    let command = command.mut_args(|arg| if is_switched_off(&arg) { switched_off(arg) } else { arg });
    let source = |arg: &Arg| match typed.value_source(arg.get_id().as_str()) {
        Some(ValueSource::CommandLine) => Source::Typed,
        _ if variable(arg).is_some() => Source::Variable,
        _ if arg.get_default_values().iter().any(|value| value != "false") => Source::File,
        _ => Source::Nowhere,
    };
    let is_beaten = |arg: &&Arg| rivals(&command, arg).any(|rival| source(rival) > source(arg));
    let beaten: Vec<Id> = command.get_arguments().filter(is_beaten).map(|arg| arg.get_id().clone()).collect();
    command.mut_args(|arg| {
        if !beaten.contains(arg.get_id()) {
            return arg;
        }
        without_variable(arg).default_value(None::<&str>)
    })
}

/// Options that cannot be had beside this one, whichever of the two says so.
fn rivals<'a>(command: &'a Command, arg: &'a Arg) -> impl Iterator<Item = &'a Arg> {
    let names = move |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|rival| rival.get_id() == other.get_id())
    };
    command.get_arguments().filter(move |other| names(arg, other) || names(other, arg))
}

/// What its variable says, if that is set.
fn variable(arg: &Arg) -> Option<OsString> {
    std::env::var_os(arg.get_env()?)
}

fn is_switched_off(arg: &Arg) -> bool {
    let is_off = |value: &OsStr| OFF.iter().any(|word| value.eq_ignore_ascii_case(word));
    matches!(arg.get_action(), ArgAction::SetTrue) && variable(arg).is_some_and(|value| is_off(&value))
}

/// Not by the file, either.
fn switched_off(arg: Arg) -> Arg {
    without_variable(arg).default_value("false")
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(None::<&str>)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two switches, and two options that take a value, each pair of which cannot be had together.
    fn table() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name);
        let inner = Command::new("inner")
            .arg(option("one").action(ArgAction::SetTrue).conflicts_with("other"))
            .arg(option("other").action(ArgAction::SetTrue))
            .arg(option("laps").conflicts_with("seconds"))
            .arg(option("seconds"));
        Command::new("outer").arg(option("outside")).subcommand(inner)
    }

    /// What the words come to, with these options from a configuration file.
    fn come_to(words: &str, file: &[(&'static str, &'static str)]) -> Vec<String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let typed = table().try_get_matches_from(&words).unwrap();
        let configured = file.iter().fold(table(), |table, &(name, value)| {
            table.mut_subcommand("inner", |inner| inner.mut_arg(name, |arg| arg.default_value(value)))
        });
        let matches = settle(configured, &typed).try_get_matches_from(&words).unwrap();
        let inner = matches.subcommand_matches("inner").unwrap();
        let switches = ["one", "other"].into_iter().filter(|name| inner.get_flag(name)).map(str::to_owned);
        let values = ["laps", "seconds"].into_iter();
        let values = values.filter_map(|name| Some(format!("{name}={}", inner.get_one::<String>(name)?)));
        switches.chain(values).collect()
    }

    #[test]
    fn what_is_typed_beats_the_file() {
        let file = [("other", "true"), ("laps", "3")];
        assert_eq!(come_to("outer inner", &file), ["other", "laps=3"]);
        assert_eq!(come_to("outer inner --one --seconds 5", &file), ["one", "seconds=5"]);
        assert_eq!(come_to("outer inner --laps 5", &[("laps", "3"), ("one", "false")]), ["laps=5"]);
    }
}
