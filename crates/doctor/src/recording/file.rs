use super::{Origin, Recording, Sample, Unseen, VERSION};
use crate::DoctorError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use units::foreign_json;

/// Reads the text of an untrusted file of at most `LONGEST` bytes.
pub(crate) fn bounded(path: &Path) -> Result<String, DoctorError> {
    let failed = |source| DoctorError::Read { path: path.to_owned(), source };
    let file = host::open_regular_file(path).map_err(failed)?;
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > LONGEST {
        true => Err(DoctorError::TooLong { path: path.to_owned(), most: LONGEST }),
        false => Ok(text),
    }
}

impl Recording {
    /// Reads an untrusted recording: bounds the file's size, and escapes its texts.
    pub fn read(path: &Path) -> Result<Self, DoctorError> {
        let text = bounded(path)?;
        Self::parse(&text).map_err(|reason| DoctorError::Malformed {
            path: path.to_owned(),
            reason: units::foreign(reason).to_string(),
        })
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let mut document: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let version = document.get("weir_recording").and_then(Value::as_u64);
        match version {
            Some(version) if version <= VERSION.into() => {}
            Some(version) => {
                return Err(format!(
                    "it has version {version} and this program reads up to {VERSION}: use a newer \
                     weir"
                ));
            }
            None => return Err("it has no \"weir_recording\"".to_owned()),
        }
        foreign_json(&mut document, LONGEST_TEXT);
        let mut recording: Self = serde_json::from_value(document).map_err(|e| e.to_string())?;
        recording.check()?;
        Ok(recording)
    }

    /// Writes a file that only its owner may read, because it names processes and peers.
    pub fn write(&self, path: &Path) -> Result<(), DoctorError> {
        let failed = |source| DoctorError::Write { path: path.to_owned(), source };
        let text = serde_json::to_string(self).map_err(|e| failed(e.into()))?;
        let mut file =
            host::open_output_file(path, host::Earlier::Replaced, 0o600).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.write_all(b"\n").map_err(failed)
    }

    /// Drops samples whose time does not advance (the clock jumped), and refuses too many samples.
    /// Cuts long lists, and notes the cut among what was not seen.
    fn check(&mut self) -> Result<(), String> {
        if self.periods.len() > MOST_PERIODS {
            return Err(format!("it has more than {MOST_PERIODS} periods"));
        }
        let mut is_cut = false;
        for period in &mut self.periods {
            if period.samples.len() > MOST_SAMPLES {
                return Err(format!("a period has more than {MOST_SAMPLES} samples"));
            }
            let mut last = None;
            period.samples.retain(|sample| {
                let advances = last.is_none_or(|last| sample.at > last);
                if advances {
                    last = Some(sample.at);
                }
                advances
            });
            for sample in &mut period.samples {
                is_cut |= bound_sample(sample);
            }
            is_cut |= bound(&mut period.far_ends, MOST_CONNECTIONS);
            for end in &mut period.far_ends {
                is_cut |= bound(&mut end.holders, MOST_HOLDERS);
            }
            if let Some(attempt) = &mut period.attempt {
                is_cut |= bound(&mut attempt.connections, MOST_CONNECTIONS);
            }
            if let Some(drops) = &mut period.drops {
                is_cut |= bound(&mut drops.places, MOST_CONNECTIONS);
            }
        }
        is_cut |= bound_map(&mut self.machine.paths, MOST_CONNECTIONS);
        is_cut |= bound(&mut self.machine.neighbours, MOST_CONNECTIONS);
        is_cut |= bound_map(&mut self.machine.interfaces, MOST_CONNECTIONS);
        for interface in self.machine.interfaces.values_mut() {
            is_cut |= bound_map(&mut interface.queues, MOST_CONNECTIONS);
            for queue in interface.queues.values_mut() {
                is_cut |= bound(&mut queue.cores, MOST_CORES);
            }
            is_cut |= bound(&mut interface.interrupts, MOST_CONNECTIONS);
            for interrupt in &mut interface.interrupts {
                is_cut |= bound(&mut interrupt.cores, MOST_CORES);
            }
        }
        if is_cut {
            let what = "the ends of long lists in the recording".to_owned();
            let reason = format!(
                "Weir judges at most {MOST_CONNECTIONS} connections, {MOST_TASKS} threads and \
                 {MOST_GROUPS} control groups of a sample"
            );
            self.unseen.push(Unseen { what, reason });
        }
        Ok(())
    }

    /// Returns a line about the origin, if the values were not measured.
    pub fn label(&self) -> Option<&'static str> {
        match self.origin {
            Origin::Measured => None,
            Origin::Transcribed => Some("transcribed by hand from other programs' output"),
            Origin::Captured => Some("made of the packets of a capture"),
            Origin::Saved => Some("made of the figures that another test saved"),
            Origin::Synthetic => Some("synthetic: written for a test, not measured"),
        }
    }
}

/// Bounds the lists of a sample, because rules compare the entries of several lists with one
/// another. Returns whether a list was longer.
fn bound_sample(sample: &mut Sample) -> bool {
    let mut is_cut = bound(&mut sample.connections, MOST_CONNECTIONS);
    is_cut |= bound(&mut sample.udp, MOST_CONNECTIONS);
    is_cut |= bound(&mut sample.listeners, MOST_CONNECTIONS);
    is_cut |= bound(&mut sample.qdiscs, MOST_CONNECTIONS);
    is_cut |= bound(&mut sample.tasks, MOST_TASKS);
    is_cut |= bound(&mut sample.processes, MOST_TASKS);
    is_cut |= bound(&mut sample.groups, MOST_GROUPS);
    is_cut |= bound(&mut sample.socket_limits, MOST_GROUPS);
    is_cut |= bound_map(&mut sample.interfaces, MOST_CONNECTIONS);
    is_cut |= bound_map(&mut sample.cores, MOST_CORES);
    let holders = sample.connections.iter_mut().map(|one| &mut one.holders);
    let holders = holders.chain(sample.udp.iter_mut().map(|one| &mut one.holders));
    for holders in holders.chain(sample.listeners.iter_mut().map(|one| &mut one.holders)) {
        is_cut |= bound(holders, MOST_HOLDERS);
    }
    let pids = sample.groups.iter_mut().map(|group| &mut group.pids);
    for pids in pids.chain(sample.socket_limits.iter_mut().map(|limit| &mut limit.pids)) {
        is_cut |= bound(pids, MOST_TASKS);
    }
    is_cut
}

/// Cuts a list. Returns whether the list was longer.
pub(crate) fn bound<T>(list: &mut Vec<T>, most: usize) -> bool {
    let is_longer = list.len() > most;
    list.truncate(most);
    is_longer
}

fn bound_map<K: Ord, V>(map: &mut BTreeMap<K, V>, most: usize) -> bool {
    let is_longer = map.len() > most;
    while map.len() > most {
        map.pop_last();
    }
    is_longer
}

const LONGEST: u64 = 64 << 20;
const LONGEST_TEXT: usize = 4096;
/// A lab may have a thousand cells.
const MOST_PERIODS: usize = 1024;
const MOST_SAMPLES: usize = 4096;
const MOST_CONNECTIONS: usize = 1024;
const MOST_TASKS: usize = 4096;
const MOST_GROUPS: usize = 256;
const MOST_HOLDERS: usize = 64;
/// More than the highest number of cores of a kernel (CONFIG_NR_CPUS).
const MOST_CORES: usize = 8192;

#[cfg(test)]
mod tests {
    use super::super::{Connection, Machine, Period, Sample, Tcp};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use units::{Bytes, Span};

    #[test]
    fn a_recording_is_written_and_read_back() {
        let mut recording = Recording::new(Machine::default());
        let sample = Sample {
            connections: vec![Connection {
                local: "[::1]:5".parse().unwrap(),
                remote: "[::1]:6".parse().unwrap(),
                state: Default::default(),
                cookie: u64::MAX,
                holders: Vec::new(),
                receive_queue: Bytes::new(1),
                send_queue: Bytes::new(123_456_789),
                receive_limit: None,
                send_limit: None,
                retransmits: 0,
                probing: false,
                drops: 0,
                beside: false,
                congestion: None,
                tcp: Tcp { rtt: Some(Span::from_nanos(123_456_789)), ..Tcp::default() },
            }],
            ..Sample::default()
        };
        let later = Sample { at: Span::from_nanos(1), ..sample.clone() };
        recording.periods.push(Period { samples: vec![sample, later], ..Period::default() });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        recording.write(&path).unwrap();
        assert_eq!(Recording::read(&path).unwrap(), recording);
    }

    #[test]
    fn files_of_other_formats_are_refused() {
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "weir_recording"),
            (r#"{"weir_recording": 2}"#, "version 2"),
            (r#"{"weir_recording": 1, "machine": 3}"#, "invalid type"),
        ] {
            let error = Recording::parse(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn texts_are_escaped_and_samples_without_progress_of_time_are_dropped() {
        let text = r#"{"weir_recording": 1, "note": "a\u001b[31mb", "periods": [
            {"samples": [{"at": "1s"}, {"at": "1s"}, {"at": "500ms"}, {"at": "2s"}]}]}"#;
        let recording = Recording::parse(text).unwrap();
        assert_eq!(recording.note.as_deref(), Some("a\\x1b[31mb"));
        assert_eq!(recording.periods[0].samples.len(), 2);
    }

    /// Rules compare holders with threads and with the processes of groups, and the cores of
    /// interrupts with all cores: without bounds a file of 64 MiB takes hours.
    #[test]
    fn lists_that_rules_compare_with_one_another_are_bounded() {
        let holders: Vec<_> = (0..5000).map(|pid| json!({"pid": pid, "name": "a"})).collect();
        let ends = json!({"local": "10.0.0.1:1", "remote": "10.0.0.2:2", "holders": holders});
        let pairs = vec![json!(["10.0.0.1:1", "10.0.0.2:2"]); 5000];
        let cores: Vec<u32> = (0..20_000).collect();
        let times: BTreeMap<u32, _> = cores.iter().map(|core| (*core, json!({}))).collect();
        let mut groups = vec![json!({"path": "/a"}); 300];
        groups[0] = json!({"path": "/a", "pids": cores});
        let sample = json!({"at": "1s", "connections": [ends], "cores": times,
            "groups": groups, "socket_limits": groups,
            "processes": vec![json!({"pid": 1}); 5000]});
        let interrupt = json!({"number": 1, "name": "a", "cores": cores});
        let address = |at: u32| std::net::Ipv4Addr::from(at).to_string();
        let paths: BTreeMap<String, _> = (0..5000).map(|at| (address(at), json!({}))).collect();
        let silent = |at| json!({"address": address(at), "interface": "eth0", "state": "failed"});
        let neighbours: Vec<_> = (0..5000).map(silent).collect();
        let text = json!({"weir_recording": 1,
            "machine": {"paths": paths, "neighbours": neighbours,
                "interfaces": {"eth0": {"index": 2, "interrupts": vec![interrupt; 2]}}},
            "periods": [{"samples": [sample], "far_ends": [ends],
                "attempt": {"connections": pairs}}]});
        let recording = Recording::parse(&text.to_string()).unwrap();
        let period = &recording.periods[0];
        let sample = &period.samples[0];
        assert_eq!(sample.connections[0].holders.len(), MOST_HOLDERS);
        assert_eq!(period.far_ends[0].holders.len(), MOST_HOLDERS);
        assert_eq!(period.attempt.as_ref().unwrap().connections.len(), MOST_CONNECTIONS);
        assert_eq!((sample.cores.len(), sample.processes.len()), (MOST_CORES, MOST_TASKS));
        assert_eq!((sample.groups.len(), sample.groups[0].pids.len()), (MOST_GROUPS, MOST_TASKS));
        assert_eq!(sample.socket_limits.len(), MOST_GROUPS);
        let machine = &recording.machine;
        assert_eq!((machine.paths.len(), machine.neighbours.len()), (1024, 1024));
        let eth0 = &machine.interfaces["eth0"];
        assert!(eth0.interrupts.iter().all(|one| one.cores.len() == MOST_CORES));
        assert!(recording.unseen[0].reason.contains("1024 connections"), "{:?}", recording.unseen);
    }

    proptest! {
        #[test]
        fn parsing_a_malformed_recording_does_not_panic(text in "\\{\"weir_recording\": ?1(, \"[a-z]{1,9}\": ?[0-9\\[\\]{}\"a]{0,9}){0,4}\\}") {
            let _ = Recording::parse(&text);
        }
    }
}
