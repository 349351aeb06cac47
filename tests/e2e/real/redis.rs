//! redis-server: filled with known data, loaded by redis-benchmark, read back key by key, saved by
//! a fork while it is written to, and restarted bare from what it saved.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::inputs::Rng;
use super::resp::{Client, Reply};
use crate::again::Verdict;
use crate::context::{Context, Mode};
use crate::launch::{Launch, MIB, Running};
use crate::tree_sampler::TreeSampler;
use crate::{Outcome, ensure, packages};

const KEYS: usize = 120_000;
const HASHES: usize = 1_000;
const FIELDS: usize = 40;
const BATCH: usize = 500;

/// What a bare run has shown: the memory it took and the digest of the data set.
struct Bare {
    want_bytes: u64,
    digest: Vec<u8>,
}

/// The whole life of a server at a share of the memory it wants.
pub fn test(context: &'static Context, budget: &str, divisor: u64) -> Outcome {
    static BARE: OnceLock<Outcome<Bare>> = OnceLock::new();
    let bare = BARE.get_or_init(|| {
        let (want_bytes, digest) = life(context, "real-redis-bare", None, &[])?;
        eprintln!("e2e: redis wants {} MiB", want_bytes / MIB);
        Ok(Bare { want_bytes, digest })
    });
    let bare = bare.as_ref().map_err(Clone::clone)?;
    let ram = bare.want_bytes / divisor;
    life(context, &format!("real-redis-{budget}"), Some(ram), &bare.digest).map(drop)
}

/// Runs a server from start to end; its peak before the save, and the digest of its data.
fn life(context: &'static Context, name: &str, ram: Option<u64>, expected: &[u8]) -> Outcome<(u64, Vec<u8>)> {
    // What an earlier run has saved would be loaded.
    let _ = std::fs::remove_file(context.path(format!("{name}.rdb")));
    let port = free_port()?;
    let server = start(context, name, name, port, ram)?;
    let outcome = (|| {
        let mut client = Client::connect(port)?;
        fill(&mut client)?;
        benchmark(port)?;
        forget_others(&mut client, b"ours:")?;
        if context.mode == Mode::Broken && ram.is_some() {
            client.command(&["SETRANGE", "ours:777", "3", "?"])?;
        }
        verify(&mut client)?;
        let digest = client.command(&["DEBUG", "DIGEST"])?.text()?;
        ensure!(
            expected.is_empty() || digest == expected,
            "the digest of the data is not that of a bare run"
        );
        let peak = server.peak_bytes();
        server.within_budget()?;
        save(&mut client)?;
        forget_others(&mut client, b"ours:")?;
        verify(&mut client)?;
        ensure!(
            client.command(&["DEBUG", "DIGEST"])?.text()? == digest,
            "the data changed while it was saved"
        );
        Ok((peak, digest))
    })();
    if outcome.is_err() {
        server.kill();
        let finished = server.finish()?;
        return outcome.map_err(|complaint: String| finished.complain(&complaint));
    }
    stop(port, server)?;
    let (peak, digest) = outcome?;
    check_saved(context, name, &digest)?;
    Ok((peak, digest))
}

/// *The story:* a server of 79 MiB saved itself in 300 by a fork. Nothing was copied but what was
/// written, and the run was said to need 158: what both had in common was counted twice.
pub fn saves(context: &'static Context, ram: u64) -> Outcome<Verdict> {
    /// What a server holds with so many keys, and the most that may be said of it.
    const NEEDED_BYTES_MAX: u64 = 110 * MIB;
    /// What was written meanwhile, and what both processes write for themselves.
    const COPIED_BYTES_MAX: u64 = 8 * MIB;
    let name = "real-redis-saves";
    let _ = std::fs::remove_file(context.path(format!("{name}.rdb")));
    let port = free_port()?;
    let server = start(context, name, name, port, Some(ram))?;
    let sampler = TreeSampler::start(server.pid(), ram);
    let outcome = (|| {
        let mut client = Client::connect(port)?;
        client.command(&["DEBUG", "POPULATE", "200000", "key", "300"])?;
        let digest = client.command(&["DEBUG", "DIGEST"])?.text()?;
        client.command(&["BGSAVE"])?;
        let deadline = Instant::now() + Duration::from_secs(60);
        for number in 0.. {
            let state = persistence(&mut client)?;
            if state.contains("rdb_bgsave_in_progress:0") {
                ensure!(state.contains("rdb_last_bgsave_status:ok"), "BGSAVE failed");
                break;
            }
            ensure!(Instant::now() < deadline, "BGSAVE takes for ever");
            if number < 200 {
                client.command(&["SETRANGE", &format!("key:{}", number * 997), "0", "value"])?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok((digest, persistence(&mut client)?))
    })();
    let (digest, state) = match outcome {
        Ok(found) => found,
        Err(complaint) => {
            server.kill();
            let complaint: String = complaint;
            return Err(server.finish()?.complain(&complaint));
        }
    };
    let mut client = Client::connect(port)?;
    let _ = client.command(&["SHUTDOWN", "NOSAVE"]);
    let finished = server.finish()?;
    finished.succeeded()?;
    let verdict = sampler.finish(&finished)?;
    let copied = state.lines().find_map(|line| line.strip_prefix("rdb_last_cow_size:"));
    let copied: u64 =
        copied.and_then(|text| text.trim().parse().ok()).ok_or("redis does not say what it copied")?;
    ensure!(copied <= COPIED_BYTES_MAX, "{}", finished.complain(&format!("{copied} bytes were copied")));
    let report = finished.report()?;
    let needed = report["needed_bytes"].as_u64().unwrap_or(u64::MAX);
    ensure!(
        needed <= NEEDED_BYTES_MAX,
        "{}",
        finished.complain(&format!("it is said to need {needed} bytes"))
    );
    check_saved(context, name, &digest)?;
    Ok(verdict)
}

fn persistence(client: &mut Client) -> Outcome<String> {
    let state = client.command(&["INFO", "persistence"])?.text()?;
    Ok(String::from_utf8_lossy(&state).into_owned())
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

fn start<'a>(
    context: &'a Context,
    name: &str,
    saved: &str,
    port: u16,
    ram: Option<u64>,
) -> Outcome<Running<'a>> {
    let program = packages::program("redis-server", "redis-server")?;
    let launch = Launch::new(context, name, program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no", "--save", ""])
        .args(["--appendonly", "no", "--enable-debug-command", "local", "--loglevel", "warning"])
        .args(["--dbfilename", &format!("{saved}.rdb"), "--dir"])
        .args([&context.scratch])
        .timeout(600);
    match ram {
        Some(bytes) => launch.ram(bytes).start(),
        None => launch.start(),
    }
}

fn stop(port: u16, server: Running<'_>) -> Outcome {
    let mut client = Client::connect(port)?;
    // It answers by closing the connection.
    let _ = client.command(&["SHUTDOWN", "NOSAVE"]);
    let finished = server.finish()?;
    finished.succeeded()?.paged().map(drop)
}

fn value(number: usize) -> Vec<u8> {
    let mut rng = Rng(number as u64);
    let len = 300 + rng.below(1200);
    (0..len / 8 + 1).flat_map(|_| rng.next().to_ne_bytes()).take(len).collect()
}

fn fill(client: &mut Client) -> Outcome {
    for batch in 0..KEYS / BATCH {
        for number in batch * BATCH..(batch + 1) * BATCH {
            client.queue(&[b"SET", format!("ours:{number}").as_bytes(), &value(number)]);
        }
        client.send()?;
    }
    for hash in 0..HASHES {
        for field in 0..FIELDS {
            let name = format!("ours:hash:{hash}");
            let content = format!("{}", hash * 1000 + field);
            client.queue(&[
                b"HSET",
                name.as_bytes(),
                format!("field {field}").as_bytes(),
                content.as_bytes(),
            ]);
            client.queue(&[b"ZADD", b"ours:scores", content.as_bytes(), content.as_bytes()]);
        }
        client.send()?;
    }
    Ok(())
}

/// Reads every key back.
fn verify(client: &mut Client) -> Outcome {
    for batch in 0..KEYS / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        numbers.clone().for_each(|number| client.queue(&[b"GET", format!("ours:{number}").as_bytes()]));
        for (number, reply) in numbers.zip(client.send()?) {
            ensure!(reply == Reply::Text(value(number)), "key ours:{number} holds something else");
        }
    }
    for hash in 0..HASHES {
        let name = format!("ours:hash:{hash}");
        (0..FIELDS).for_each(|field| {
            client.queue(&[b"HGET", name.as_bytes(), format!("field {field}").as_bytes()]);
        });
        for (field, reply) in client.send()?.into_iter().enumerate() {
            let expected = Reply::Text((hash * 1000 + field).to_string().into_bytes());
            ensure!(reply == expected, "field {field} of {name} is {reply:?}");
        }
    }
    let scores = client.command(&["ZCARD", "ours:scores"])?;
    ensure!(scores == Reply::Number((HASHES * FIELDS) as i64), "the sorted set has {scores:?} members");
    Ok(())
}

fn benchmark(port: u16) -> Outcome {
    let output = Command::new(packages::program("redis-benchmark", "redis-tools")?)
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-n", "40000", "-c", "20", "-P", "8", "-q"])
        .args(["-r", "20000", "-d", "400", "-t", "set,get,incr,lpush,lpop,sadd,hset,zadd,mset"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("redis-benchmark: {error}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "redis-benchmark: {}", complaint.trim());
    Ok(())
}

/// Deletes every key that does not begin with `prefix`.
fn forget_others(client: &mut Client, prefix: &[u8]) -> Outcome {
    let mut cursor = "0".to_owned();
    loop {
        let Reply::Many(mut parts) = client.command(&["SCAN", &cursor, "COUNT", "1000"])? else {
            return Err("SCAN answered something else".to_owned());
        };
        let (Some(Reply::Many(keys)), Some(Reply::Text(next))) = (parts.pop(), parts.pop()) else {
            return Err("SCAN answered something else".to_owned());
        };
        for key in keys {
            let key = key.text()?;
            if !key.starts_with(prefix) {
                client.queue(&[b"UNLINK", &key]);
            }
        }
        client.send()?;
        cursor = String::from_utf8_lossy(&next).into_owned();
        if cursor == "0" {
            return Ok(());
        }
    }
}

/// Saves by a fork, and writes other keys meanwhile.
fn save(client: &mut Client) -> Outcome {
    client.command(&["BGSAVE"])?;
    let deadline = Instant::now() + Duration::from_secs(120);
    for number in 0.. {
        let words = format!("later:{}", number % 1000);
        client.queue(&[b"SET", words.as_bytes(), &value(number)]);
        client.send()?;
        let state = client.command(&["INFO", "persistence"])?.text()?;
        let state = String::from_utf8_lossy(&state).into_owned();
        if state.contains("rdb_bgsave_in_progress:0") {
            ensure!(state.contains("rdb_last_bgsave_status:ok"), "BGSAVE failed");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "BGSAVE takes for ever");
    }
    Ok(())
}

/// A bare server on what was saved has the same data.
fn check_saved(context: &Context, saved: &str, digest: &[u8]) -> Outcome {
    let port = free_port()?;
    let server = start(context, &format!("{saved}-again"), saved, port, None)?;
    let found = Client::connect(port).and_then(|mut client| {
        // The digest can be asked for while data is loading, and then is that of a part.
        while !String::from_utf8_lossy(&client.command(&["INFO", "persistence"])?.text()?)
            .contains("\nloading:0")
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        client.command(&["DEBUG", "DIGEST"])?.text()
    });
    server.kill();
    server.finish()?;
    ensure!(found? == digest, "what was saved is not what was there");
    let _ = std::fs::remove_file(context.path(format!("{saved}.rdb")));
    Ok(())
}
