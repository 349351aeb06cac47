//! Device models as text: the TOML files of `devices/` and what `sim calibrate` writes.
//!
//! A model is a name, a sentence, the sources of its numbers, and exactly one table of parameters.
//! Every number is checked here, once, against bounds in which the models' arithmetic cannot
//! overflow; a file that breaks them gets one line that names the key.

use super::disk::Disk;
use super::flash::Flash;
use super::simple::{Linear, Network, Ram};
use super::{Device, Direct};
use crate::nearest;
use crate::time::SECOND;
use serde::{Deserialize, Serialize};
use std::path::Path;
use thiserror::Error;

/// A device's description and parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What `--device` calls it.
    pub name: String,
    /// What it stands for, in a sentence.
    pub description: String,
    /// Where the numbers come from.
    pub source: Vec<String>,
    /// Would the kernel count it as rotating? Not said: if it is a spinning disk below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotating: Option<bool>,
    /// A spinning disk with one head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskParams>,
    /// Solid-state storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashParams>,
    /// A store at the other end of a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkParams>,
    /// Compressed RAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram: Option<RamParams>,
    /// A fixed cost an operation and a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear: Option<LinearParams>,
}

/// A hard disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskParams {
    /// Bytes from the outermost to the innermost track.
    pub capacity_bytes: u64,
    /// Revolutions a minute.
    pub rpm: u64,
    /// Media rate at the first byte, bytes a microsecond (= MB/s).
    pub outer_bytes_per_us: u64,
    /// Media rate at the last byte.
    pub inner_bytes_per_us: u64,
    /// Seek to a neighbouring track.
    pub seek_track_ns: u64,
    /// Seek over a third of the stroke, which is what data sheets call the average.
    pub seek_average_ns: u64,
    /// Seek from end to end.
    pub seek_full_ns: u64,
    /// What a write settles longer than a read.
    pub write_settle_ns: u64,
    /// Command and interface time of every request.
    pub command_ns: u64,
    /// How far the disk reads on by itself after a read.
    pub lookahead_bytes: u64,
    /// Rate of the interface, for bytes that are already in the disk's buffer.
    pub interface_bytes_per_us: u64,
    /// After this wait a read is served out of turn.
    pub read_deadline_ns: u64,
    /// After this wait a write is served out of turn.
    pub write_deadline_ns: u64,
}

/// Solid-state storage; see [`super::flash`] for the meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParams {
    /// Units that work side by side.
    pub dies: u32,
    /// Bytes a die reads or programs at a time.
    pub unit_bytes: u64,
    /// A die reads a unit.
    pub read_unit_ns: u64,
    /// A die programs a unit.
    pub program_unit_ns: u64,
    /// The longest a read waits for a program to be suspended.
    pub suspend_ns: u64,
    /// The controller is taken by every command for this long: its inverse is the highest rate of operations.
    pub command_ns: u64,
    /// Latency of a read that occupies nothing (host, interface).
    pub read_overhead_ns: u64,
    /// The same for a write.
    pub write_overhead_ns: u64,
    /// Bus rate towards the host, bytes a microsecond.
    pub read_bytes_per_us: u64,
    /// Bus rate from the host.
    pub write_bytes_per_us: u64,
    /// The rate of one request by itself, however idle the device is (0: not limited).
    #[serde(default)]
    pub stream_read_bytes_per_us: u64,
    /// The same for a write.
    #[serde(default)]
    pub stream_write_bytes_per_us: u64,
    /// Reads and writes share one bus.
    pub half_duplex: bool,
    /// Bytes that may be acknowledged and not yet programmed.
    pub buffer_bytes: u64,
}

/// A store behind a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkParams {
    /// There and back, without data.
    pub round_trip_ns: u64,
    /// The link's rate, each way.
    pub link_bytes_per_us: u64,
    /// The server's time for a request.
    pub server_ns: u64,
    /// The server's time for each page of it.
    pub server_page_ns: u64,
    /// Requests that the server handles side by side.
    pub server_lanes: u32,
}

/// Compressed RAM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RamParams {
    /// Processor time to decompress a page.
    pub decompress_page_ns: u64,
    /// Processor time to compress one.
    pub compress_page_ns: u64,
    /// Processor time around it (allocation, tables).
    pub handling_page_ns: u64,
    /// Processors that may do so at the same time.
    pub lanes: u32,
    /// Bytes in to bytes kept, in hundredths (210 = 2.1 to 1). A property for reports; it does not
    /// enter the timing.
    pub ratio_percent: u64,
}

/// `a` an operation, `b` a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearParams {
    /// A read operation.
    pub read_op_ns: u64,
    /// Each page of it.
    pub read_page_ns: u64,
    /// A write operation.
    pub write_op_ns: u64,
    /// Each page of it.
    pub write_page_ns: u64,
}

/// A model that cannot be used.
#[derive(Debug, Error)]
pub enum ModelError {
    /// Not TOML, or not of this shape.
    #[error("{file}: {message}")]
    Parse {
        /// The file, or the built-in name.
        file: String,
        /// Where and what.
        message: String,
    },
    /// A number out of bounds.
    #[error("{file}: {key} is {value}, must be {least} to {most}")]
    Bounds {
        /// The file, or the built-in name.
        file: String,
        /// `table.key`.
        key: &'static str,
        /// What it says.
        value: u64,
        /// Lower bound.
        least: u64,
        /// Upper bound.
        most: u64,
    },
    /// None of the parameter tables, or more than one.
    #[error("{file}: {found} of the tables [disk], [flash], [network], [ram], [linear], must be exactly one")]
    Tables {
        /// The file, or the built-in name.
        file: String,
        /// How many there are.
        found: usize,
    },
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Neither a built-in model nor a file.
    #[error("no device '{name}': not a file, and the built-in ones are {known}{hint}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The built-in names.
        known: String,
        /// What was meant, perhaps.
        hint: String,
    },
}

/// Where it is and what, on one line.
///
/// *The story:* what the parser draws below the line was folded into one.
fn complaint(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end().replace('\n', ", ");
    let line = error.span().map(|span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
    line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
}

/// The models that come with the program.
const BUILTIN: &[(&str, &str)] = &[
    ("hdd", include_str!("../../devices/hdd.toml")),
    ("hdd-2007", include_str!("../../devices/hdd-2007.toml")),
    ("sata-ssd", include_str!("../../devices/sata-ssd.toml")),
    ("nvme", include_str!("../../devices/nvme.toml")),
    ("nvme-2014", include_str!("../../devices/nvme-2014.toml")),
    ("network", include_str!("../../devices/network.toml")),
    ("network-rdma", include_str!("../../devices/network-rdma.toml")),
    ("zram-lz4", include_str!("../../devices/zram-lz4.toml")),
    ("zram-zstd", include_str!("../../devices/zram-zstd.toml")),
    ("swapload-ssd", include_str!("../../devices/swapload-ssd.toml")),
    ("swapload-hdd", include_str!("../../devices/swapload-hdd.toml")),
    ("vm", include_str!("../../devices/vm.toml")),
];

impl Model {
    /// The names of the built-in models.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// A built-in model.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Model> {
        let (_, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        Some(Model::parse(name, text).expect("the built-in models are checked by a test"))
    }

    /// A built-in model, or else the file of that path.
    pub fn find(name: &str) -> Result<Model, ModelError> {
        if let Some(model) = Model::builtin(name) {
            return Ok(model);
        }
        let path = Path::new(name);
        if !path.exists() {
            let known = Model::builtin_names().collect::<Vec<_>>().join(", ");
            let hint = nearest::hint(name, Model::builtin_names());
            return Err(ModelError::Unknown { name: name.to_owned(), known, hint });
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| ModelError::Read { file: name.to_owned(), error })?;
        Model::parse(name, &text)
    }

    /// Reads and checks a model; `file` is what errors call it.
    pub fn parse(file: &str, text: &str) -> Result<Model, ModelError> {
        let model: Model = toml::from_str(text)
            .map_err(|error| ModelError::Parse { file: file.to_owned(), message: complaint(text, &error) })?;
        model.check(file)?;
        Ok(model)
    }

    /// The model as a file that [`Model::parse`] reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("names, texts and integers have a TOML form")
    }

    /// True for a device whose kernel would count it as rotating.
    ///
    /// *The story:* that went by the name, so a hard disk that `sim calibrate` had measured was none.
    #[must_use]
    pub fn rotating(&self) -> bool {
        self.rotating.unwrap_or(self.disk.is_some())
    }

    /// How much it holds, where it ends at all: the models of the others have no end.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(u64::MAX, |disk| disk.capacity_bytes)
    }

    /// True for a device that answers within the call (compressed RAM): there is nothing to overlap with.
    #[must_use]
    pub fn synchronous(&self) -> bool {
        self.ram.is_some()
    }

    /// An idle device of this model.
    #[must_use]
    pub fn build(&self) -> Box<dyn Device + Send> {
        if let Some(params) = &self.disk {
            Box::new(Disk::new(params.clone()))
        } else if let Some(params) = &self.flash {
            Box::new(Direct::new(Flash::new(params.clone())))
        } else if let Some(params) = &self.network {
            Box::new(Direct::new(Network::new(params.clone())))
        } else if let Some(params) = &self.ram {
            Box::new(Direct::new(Ram::new(params.clone())))
        } else {
            let params = self.linear.clone().expect("a checked model has one of the tables");
            Box::new(Direct::new(Linear::new(params)))
        }
    }

    fn check(&self, file: &str) -> Result<(), ModelError> {
        let found = [
            self.disk.is_some(),
            self.flash.is_some(),
            self.network.is_some(),
            self.ram.is_some(),
            self.linear.is_some(),
        ];
        let found = found.iter().filter(|&&is| is).count();
        if found != 1 {
            return Err(ModelError::Tables { file: file.to_owned(), found });
        }
        for (key, value, least, most) in self.bounds() {
            if !(least..=most).contains(&value) {
                return Err(ModelError::Bounds { file: file.to_owned(), key, value, least, most });
            }
        }
        Ok(())
    }

    /// Every number with its bounds.
    fn bounds(&self) -> Vec<(&'static str, u64, u64, u64)> {
        const TIME: u64 = 10 * SECOND;
        const RATE: u64 = 10_000_000;
        const BYTES: u64 = 1 << 50;
        let mut list = Vec::new();
        if let Some(disk) = &self.disk {
            list.extend([
                ("disk.capacity_bytes", disk.capacity_bytes, 1 << 20, BYTES),
                ("disk.rpm", disk.rpm, 60, 100_000),
                ("disk.outer_bytes_per_us", disk.outer_bytes_per_us, 1, RATE),
                ("disk.inner_bytes_per_us", disk.inner_bytes_per_us, 1, disk.outer_bytes_per_us),
                ("disk.seek_track_ns", disk.seek_track_ns, 0, TIME),
                ("disk.seek_average_ns", disk.seek_average_ns, disk.seek_track_ns, TIME),
                ("disk.seek_full_ns", disk.seek_full_ns, disk.seek_average_ns, TIME),
                ("disk.write_settle_ns", disk.write_settle_ns, 0, TIME),
                ("disk.command_ns", disk.command_ns, 0, TIME),
                ("disk.lookahead_bytes", disk.lookahead_bytes, 0, BYTES),
                ("disk.interface_bytes_per_us", disk.interface_bytes_per_us, 1, RATE),
                ("disk.read_deadline_ns", disk.read_deadline_ns, 0, 100 * TIME),
                ("disk.write_deadline_ns", disk.write_deadline_ns, 0, 100 * TIME),
            ]);
        }
        if let Some(flash) = &self.flash {
            list.extend([
                ("flash.dies", u64::from(flash.dies), 1, 4096),
                ("flash.unit_bytes", flash.unit_bytes, 512, 1 << 30),
                ("flash.read_unit_ns", flash.read_unit_ns, 0, TIME),
                ("flash.program_unit_ns", flash.program_unit_ns, 0, TIME),
                ("flash.suspend_ns", flash.suspend_ns, 0, TIME),
                ("flash.command_ns", flash.command_ns, 0, TIME),
                ("flash.read_overhead_ns", flash.read_overhead_ns, 0, TIME),
                ("flash.write_overhead_ns", flash.write_overhead_ns, 0, TIME),
                ("flash.read_bytes_per_us", flash.read_bytes_per_us, 0, RATE),
                ("flash.write_bytes_per_us", flash.write_bytes_per_us, 0, RATE),
                ("flash.stream_read_bytes_per_us", flash.stream_read_bytes_per_us, 0, RATE),
                ("flash.stream_write_bytes_per_us", flash.stream_write_bytes_per_us, 0, RATE),
                ("flash.buffer_bytes", flash.buffer_bytes, 0, BYTES),
            ]);
        }
        if let Some(network) = &self.network {
            list.extend([
                ("network.round_trip_ns", network.round_trip_ns, 0, TIME),
                ("network.link_bytes_per_us", network.link_bytes_per_us, 0, RATE),
                ("network.server_ns", network.server_ns, 0, TIME),
                ("network.server_page_ns", network.server_page_ns, 0, TIME),
                ("network.server_lanes", u64::from(network.server_lanes), 1, 4096),
            ]);
        }
        if let Some(ram) = &self.ram {
            list.extend([
                ("ram.decompress_page_ns", ram.decompress_page_ns, 0, TIME),
                ("ram.compress_page_ns", ram.compress_page_ns, 0, TIME),
                ("ram.handling_page_ns", ram.handling_page_ns, 0, TIME),
                ("ram.lanes", u64::from(ram.lanes), 1, 4096),
                ("ram.ratio_percent", ram.ratio_percent, 100, 100_000),
            ]);
        }
        if let Some(linear) = &self.linear {
            list.extend([
                ("linear.read_op_ns", linear.read_op_ns, 0, TIME),
                ("linear.read_page_ns", linear.read_page_ns, 0, TIME),
                ("linear.write_op_ns", linear.write_op_ns, 0, TIME),
                ("linear.write_page_ns", linear.write_page_ns, 0, TIME),
            ]);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See [`complaint`].
    #[test]
    fn a_file_that_is_no_model_is_refused_in_one_line() {
        for (text, line) in [("", None), ("name = 3\n", Some("line 1")), ("# x\n= 5\n", Some("line 2"))] {
            let error = Model::parse("afile", text).unwrap_err().to_string();
            assert!(error.starts_with("afile: ") && !error.contains(['|', '\n']), "{error}");
            assert!(line.is_none_or(|line| error.contains(line)), "{error}");
        }
    }

    #[test]
    fn builtin_models_are_sound_and_name_their_source() {
        for name in Model::builtin_names() {
            let (_, text) = BUILTIN.iter().find(|(known, _)| *known == name).expect("listed");
            let model = Model::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(model.name, name);
            assert!(!model.source.is_empty(), "{name} names no source");
            let again = Model::parse(name, &model.to_toml()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again, model);
            drop(model.build());
        }
    }

    #[test]
    fn what_rotates_is_said_or_a_spinning_disk() {
        let rotating = ["hdd", "hdd-2007", "swapload-hdd"];
        for name in Model::builtin_names() {
            let model = Model::builtin(name).expect("listed");
            assert_eq!(model.rotating(), rotating.contains(&name), "{name}");
        }
        let calibrated = |said| Model { rotating: said, ..Model::builtin("sata-ssd").expect("built in") };
        assert!(calibrated(Some(true)).rotating() && !calibrated(None).rotating());
        let again = Model::parse("again", &calibrated(Some(true)).to_toml()).expect("its own text");
        assert!(again.rotating());
    }

    #[test]
    fn errors_name_the_key() {
        let text = |line: &str| {
            format!(
                "name='x'\ndescription='d'\nsource=['s']\n[linear]\nread_op_ns=1\nread_page_ns=1\nwrite_op_ns=1\n{line}\n"
            )
        };
        let error = |text: &str| Model::parse("f", text).expect_err("must fail").to_string();
        assert!(Model::parse("f", &text("write_page_ns=1")).is_ok());
        assert_eq!(
            error(&text("write_page_ns=99999999999999")),
            "f: linear.write_page_ns is 99999999999999, must be 0 to 10000000000"
        );
        assert!(error(&text("write_page_ms=1")).contains("write_page_ms"));
        assert!(error("name='x'\ndescription='d'\nsource=[]").contains("0 of the tables"));
        assert!(!error("]]").contains('\n'));
        assert!(Model::find("/nowhere").expect_err("must fail").to_string().contains("nvme"));
    }
}
