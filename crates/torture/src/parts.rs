//! `overspill-torture part NAME`: processes that subtests start, each a few lines that call the
//! subtest's own file.

use crate::context::Context;
use crate::fail;
use crate::outcome::Outcome;
use crate::subtests::{exits, forks, kinds, mapped_files, process, remote};

/// Runs the part named first, with the rest as its arguments.
pub fn run(arguments: &[String]) -> Outcome {
    let Some((name, arguments)) = arguments.split_first() else { fail!("part: which one?") };
    match name.as_str() {
        "nothing" => Ok(()),
        "arguments" => remote::arguments_part(arguments),
        "peek" => match arguments {
            [pid, base, len] => remote::peek_part(number(pid)? as i32, number(base)?, number(len)?),
            _ => fail!("part peek PID ADDRESS BYTES"),
        },
        "poke" => match arguments {
            [pid, base, len] => remote::poke_part(number(pid)? as i32, number(base)?, number(len)?),
            _ => fail!("part poke PID ADDRESS BYTES"),
        },
        "rewrite" => match arguments {
            [path] => mapped_files::rewrite_part(path),
            _ => fail!("part rewrite FILE"),
        },
        "exec-self" => remote::exec_self_part(&mut context(arguments)?),
        "outlived" => forks::outlived_part(context(arguments)?),
        "main-exit" => kinds::main_exit_part(context(arguments)?),
        "setuid" => process::setuid_part(&mut context(arguments)?),
        "chroot" => process::chroot_part(&mut context(arguments)?),
        "exit" => match arguments {
            [way, argument, rest @ ..] => exits::part(&mut context(rest)?, way, number(argument)? as i32),
            _ => fail!("part exit WAY NUMBER"),
        },
        other => fail!("no part called {other:?}"),
    }
}

fn context(arguments: &[String]) -> Outcome<Context> {
    crate::parse(arguments).map(Context::new).map_err(crate::outcome::Failure)
}

fn number(text: &str) -> Outcome<usize> {
    text.parse().map_err(|_| crate::outcome::Failure(format!("{text:?} is no number")))
}
