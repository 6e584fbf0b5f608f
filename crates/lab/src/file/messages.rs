//! The messages of a `messages` workload, and the idle connections of a `crowd`.

use super::locate::FileError;
use super::schema::{LabFile, WorkloadKind};
use results::Axes;
use toml::Spanned;
use units::Bytes;

/// Small messages. The peer answers each with one of the same size before the next is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSettings {
    pub size: Bytes,
    /// The limit on messages per connection.
    pub count: u32,
    /// The number of connections that exchange messages at the same time.
    pub streams: u32,
}

/// Idle connections, and busy connections at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrowdSettings {
    pub idle: u32,
    pub busy: u32,
}

impl LabFile {
    /// The messages of the cell at `axes`.
    pub fn messages_at(&self, axes: &Axes) -> Result<MessageSettings, FileError> {
        let spec = self.workload.get_ref();
        let size = match &spec.size {
            None => USUAL_SIZE,
            Some(written) => {
                let wrong = |message: String| self.source.error(written.span(), message);
                let size: Bytes = self
                    .filled(axes, written)?
                    .parse()
                    .map_err(|error| wrong(format!("{error}")))?;
                if size == Bytes::ZERO || size > LARGEST {
                    return Err(wrong(format!("a message has from 1 byte to {LARGEST}")));
                }
                size
            }
        };
        let count = match spec.messages.as_ref() {
            None => USUAL_COUNT,
            written => self.count_at(axes, written, "messages", MOST_MESSAGES)?,
        };
        Ok(MessageSettings { size, count, streams: self.workload_at(axes)?.streams })
    }

    /// The connections of the cell at `axes`.
    pub fn crowd_at(&self, axes: &Axes) -> Result<CrowdSettings, FileError> {
        let spec = self.workload.get_ref();
        let idle = match spec.idle.as_ref() {
            None => 0,
            Some(written) => self.number_at(axes, written, "idle", 0..=MOST_IDLE)?,
        };
        Ok(CrowdSettings { idle, busy: self.workload_at(axes)?.streams })
    }

    /// Checks keys that apply only to these two kinds of workload.
    pub(super) fn check_message_keys(&self) -> Result<(), FileError> {
        let spec = self.workload.get_ref();
        let keys = [
            ("messages", &spec.messages, WorkloadKind::Messages),
            ("idle", &spec.idle, WorkloadKind::Crowd),
        ];
        for (key, written, kind) in keys {
            if let Some(written) = written.as_ref().filter(|_| spec.kind != kind) {
                let kind = if kind == WorkloadKind::Crowd { "crowd" } else { "messages" };
                let message = format!("`{key}` is for workloads of `kind = \"{kind}\"`");
                return Err(self.source.error(Spanned::span(written), message));
            }
        }
        Ok(())
    }
}

/// The reference reports' own test uses this size.
const USUAL_SIZE: Bytes = Bytes::new(1_000);
const USUAL_COUNT: u32 = 500;
/// A larger message is not small.
const LARGEST: Bytes = Bytes::kib(64);
const MOST_MESSAGES: u32 = 1_000_000;
/// Each idle connection takes a port and, at each end, a file descriptor.
const MOST_IDLE: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(workload: &str) -> Result<LabFile, String> {
        let text = format!(
            "name = \"lab\"\nhosts = [\"a\", \"b\"]\n[axes]\nmany = [\"0\", \"20\"]\n\
             [[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n[workload]\nfrom = \"a\"\nto = \"b\"\n\
             {workload}\n[[system]]\nname = \"x{{many}}\"\nkind = \"external\"\nserver = \"x {{many}}\"\n\
             client = \"x {{files}}/c.yaml\"\nfiles = {{ \"c.yaml\" = \"to: {{server}}\" }}\n\
             [form.full]\nduration = \"1s\"\n"
        );
        let text = text.replace("x{many}", "x");
        LabFile::parse("lab.toml", &text).map_err(|error| error.to_string())
    }

    fn at(many: &str) -> Axes {
        Axes::from([("many".to_owned(), many.to_owned())])
    }

    #[test]
    fn messages_and_crowds_are_parsed() {
        let messages = lab("kind = \"messages\"\nsize = \"64B\"\nstreams = 3").unwrap();
        let expected = MessageSettings { size: Bytes::new(64), count: 500, streams: 3 };
        assert_eq!(messages.messages_at(&at("0")).unwrap(), expected);
        let crowd = lab("kind = \"crowd\"\nidle = \"{many}\"").unwrap();
        assert_eq!(crowd.crowd_at(&at("0")).unwrap(), CrowdSettings { idle: 0, busy: 1 });
        assert_eq!(crowd.crowd_at(&at("20")).unwrap(), CrowdSettings { idle: 20, busy: 1 });
    }

    #[test]
    fn an_invalid_setting_is_refused_with_its_line() {
        for (workload, told) in [
            ("kind = \"messages\"\nsize = \"1MiB\"", "lab.toml:12: a message has from 1 byte"),
            ("kind = \"messages\"\nsize = \"0B\"", "lab.toml:12: a message has from 1 byte"),
            ("kind = \"messages\"\nmessages = 0", "lab.toml:12: `messages` is from 1 to"),
            (
                "kind = \"messages\"\nidle = 1",
                "lab.toml:12: `idle` is for workloads of `kind = \"crowd\"",
            ),
            ("kind = \"crowd\"\nidle = 100000", "lab.toml:12: `idle` is from 0 to 20000"),
            ("kind = \"crowd\"\nmessages = 1", "lab.toml:12: `messages` is for workloads"),
            ("kind = \"crowd\"\nsize = \"1B\"", "lab.toml:12: `size` is for workloads"),
        ] {
            let error = lab(workload).unwrap_err();
            assert!(error.contains(told), "{workload}: {error}");
        }
    }
}
