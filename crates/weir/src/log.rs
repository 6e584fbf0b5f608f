//! The log: one line per event. Any text in the log may come from a peer, a file or the far end of
//! a measurement.

use crate::exit::Unusable;
use clap::ValueEnum;
use serde_json::{Map, Value};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};
use units::foreign;

/// The format of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The program that logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logger {
    /// A command that a user runs: logs warnings, without the time.
    Command,
    /// A tunnel process: also logs connecting peers, and puts the time in front of each line.
    Daemon,
}

/// The level and the destinations of the log, if the user chose them.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogTo {
    pub(crate) level: Option<&'static str>,
    /// Files, `stdout` or `stderr`; if empty, the log goes to stderr.
    pub(crate) paths: Vec<String>,
}

/// Logs to stderr unless `to` names other destinations. `WEIR_LOG` sets the level, and
/// `WEIR_LOG_FORMAT` the format unless a flag sets it.
pub(crate) fn start(logger: Logger, format: Option<LogFormat>, to: &LogTo) -> anyhow::Result<()> {
    let usual = to.level.unwrap_or(match logger {
        Logger::Command => "warn",
        Logger::Daemon => "warn,tunnel=info",
    });
    let filter = EnvFilter::try_from_env(LEVEL).unwrap_or_else(|_| usual.into());
    let (filter, level) = reload::Layer::new(filter);
    let set = move |wanted: &str| {
        // Cannot fail: the levels that this program passes are valid, and the subscriber exists
        // until the program ends.
        let _ = level.reload(EnvFilter::new(wanted));
    };
    let _ = SET_LEVEL.set(Box::new(set));
    let named = || LogFormat::from_str(&std::env::var(FORMAT).ok()?, true).ok();
    let format = format.or_else(named).unwrap_or_default();
    let lines = match format {
        LogFormat::Json => Lines::Json,
        // journald adds the time, and takes the level from a prefix (sd-daemon(3)).
        LogFormat::Text if is_journal() && to.paths.is_empty() => Lines::Journal,
        LogFormat::Text
            if logger == Logger::Daemon
                && (!to.paths.is_empty() || !std::io::stderr().is_terminal()) =>
        {
            Lines::Timed
        }
        LogFormat::Text => Lines::Plain,
    };
    // Cannot fail: no other code sets a global subscriber.
    if to.paths.is_empty() {
        let to_stderr = subscriber(std::io::stderr, filter, lines);
        let _ = tracing::subscriber::set_global_default(to_stderr);
    } else {
        let places = Places::open(&to.paths)?;
        let to_places = subscriber(move || places.clone(), filter, lines);
        let _ = tracing::subscriber::set_global_default(to_places);
    }
    Ok(())
}

/// A writer that sends each line to several destinations.
#[derive(Clone)]
struct Places(Arc<Vec<Mutex<Box<dyn Write + Send>>>>);

impl Places {
    fn open(paths: &[String]) -> anyhow::Result<Self> {
        let open = |path: &String| -> anyhow::Result<Mutex<Box<dyn Write + Send>>> {
            Ok(Mutex::new(match path.as_str() {
                "stdout" => Box::new(std::io::stdout()),
                "stderr" => Box::new(std::io::stderr()),
                path => {
                    let file = OpenOptions::new().append(true).create(true).open(path);
                    let failed = |error| {
                        Unusable::path("write", Path::new(path), &error, "--log-output-paths")
                    };
                    Box::new(file.map_err(failed)?)
                }
            }))
        };
        paths.iter().map(open).collect::<anyhow::Result<_>>().map(|places| Self(Arc::new(places)))
    }
}

/// A destination that fails, for example a full disk, does not keep the line from the other
/// destinations.
impl Write for Places {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        for place in &*self.0 {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = place.write_all(line).and_then(|()| place.flush());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether standard error leads to systemd's journal (systemd.exec(5), `$JOURNAL_STREAM`).
fn is_journal() -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let about = std::fs::metadata("/proc/self/fd/2");
    about.is_ok_and(|about| named == format!("{}:{}", about.dev(), about.ino()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lines {
    Plain,
    Timed,
    Journal,
    Json,
}

/// Changes the log's level from now on: `off`, `error`, `warn`, `info` or `debug`.
pub(crate) fn set_level(level: &str) {
    if let Some(set) = SET_LEVEL.get() {
        set(level);
    }
}

type SetLevel = Box<dyn Fn(&str) + Send + Sync>;
static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

/// Builds the subscriber, which writes each event as one line. The crates below escape texts from
/// outside; the subscriber escapes texts that a crate missed.
fn subscriber(
    out: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    filter: impl Layer<Registry> + Send + Sync,
    lines: Lines,
) -> impl Subscriber {
    let fields = debug_fn(|writer, field, value| {
        if field.name() == OMITTED && format!("{value:?}") == "0" {
            return Ok(());
        }
        if field.name() != MESSAGE {
            write!(writer, "{}=", field.name())?;
        }
        write!(writer, "{}", foreign(format_args!("{value:?}")).up_to(LONGEST))
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(out)
        .with_ansi(false)
        .fmt_fields(fields.delimited(" "))
        .event_format(lines);
    Registry::default().with(filter).with(lines)
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        match self {
            Self::Json => return json(writer, level, event),
            Self::Plain => write!(writer, "{level:>5} ")?,
            Self::Timed => {
                SystemTime.format_time(&mut writer)?;
                write!(writer, " {level:>5} ")?;
            }
            Self::Journal => write!(writer, "<{}>", priority(level))?,
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn json(mut writer: Writer<'_>, level: Level, event: &Event<'_>) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut object = Fields(Map::new());
    object.0.insert("time".to_owned(), time.into());
    object.0.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
    event.record(&mut object);
    writeln!(writer, "{}", Value::Object(object.0))
}

/// Returns the level's priority in the journal (syslog(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Collects the fields of an event as JSON; numbers stay numbers.
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() != OMITTED || value > 0 {
            self.put(field, value.into());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, foreign(value).up_to(LONGEST).to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = foreign(format_args!("{value:?}")).up_to(LONGEST).to_string();
        self.put(field, text.into());
    }
}

/// Maximum length of a field's text, in bytes. All messages of this program are shorter.
const LONGEST: usize = 1024;
const MESSAGE: &str = "message";
/// The field that counts omitted events, left out if it is 0.
const OMITTED: &str = "omitted";
const LEVEL: &str = "WEIR_LOG";
const FORMAT: &str = "WEIR_LOG_FORMAT";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<Vec<u8>>>);

    impl Write for Recorded {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(lines: Lines, log: impl FnOnce()) -> String {
        let kept = Recorded::default();
        let out = kept.clone();
        let subscriber = subscriber(move || out.clone(), EnvFilter::new("info"), lines);
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn an_event_with_any_text_is_one_log_line() {
        let text = logged(Lines::Plain, || {
            let why = "no\n WARN forged\x1b[2J\u{202e}";
            tracing::warn!(%why, peer = ?"laptop", count = 3, "refused by {why}");
            tracing::info!(why = %"x".repeat(5000), "long");
        });
        let shown = r"no\n WARN forged\x1b[2J\u{202e}";
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(
            first,
            format!(r#" WARN refused by {shown} why={shown} peer="laptop" count=3"#),
            "{text}"
        );
        assert!(second.ends_with("xxx…\n") && second.chars().count() < 1100, "{second}");
    }

    #[test]
    fn json_logs_have_an_object_per_line_and_journal_lines_a_priority() {
        let log = || {
            let reason = "no\nsuch key";
            tracing::warn!(address = %"192.0.2.7", port = 5, reason, omitted = 0_u64, "refused");
        };
        let text = logged(Lines::Json, log);
        assert_eq!(text.lines().count(), 1, "{text}");
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["level"], "warn");
        assert_eq!(object["message"], "refused");
        assert_eq!(object["address"], "192.0.2.7");
        assert_eq!(object["port"], 5);
        assert_eq!(object["reason"], r"no\nsuch key");
        assert_eq!(object.get("omitted"), None);
        assert!(object["time"].as_str().unwrap().ends_with('Z'), "{text}");
        let text = logged(Lines::Journal, log);
        assert!(text.starts_with("<4>refused address=192.0.2.7 port=5"), "{text}");
        assert!(!text.contains("omitted"), "{text}");
    }
}
