//! Writes a load's accesses as a trace: `cargo run --release -p overspill-sim --example long_trace
//! FILE LOAD`, where the load is one of `overspill sim`'s. For trying traces that are longer than
//! memory.

use overspill_sim::generate;
use overspill_sim::trace::RecordWriter;
use overspill_sim::trace::own::Writer;
use overspill_sim::trace::record::{AccessKind, AccessRecord, Record};
use std::io::BufWriter;

fn main() {
    let mut args = std::env::args().skip(1);
    let (file, load) = (args.next().expect("FILE"), args.next().expect("LOAD"));
    let mut workload = generate::parse(&load).expect("a load").start().remove(0);
    let file = std::fs::File::create(&file).expect("the file can be made");
    let mut writer = Writer::new(BufWriter::new(file)).expect("the file can be written");
    let mut time_ns = 0;
    while let Some(access) = workload.next().expect("loads do not fail") {
        time_ns += access.think_ns;
        let kind = if access.write { AccessKind::Write } else { AccessKind::Read };
        let record = AccessRecord { time_ns, vpn: access.vpn, thread: 0, space: 0, kind };
        writer.push(Record::Access(record)).expect("the file can be written");
    }
    writer.finish().expect("the file can be written");
}
