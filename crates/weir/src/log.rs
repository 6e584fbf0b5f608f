//! The log: one line per event. Any text in it may come from a peer, a file or the far end of a
//! measurement.

use std::sync::OnceLock;
use tracing::Subscriber;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};
use units::foreign;

/// Logs to stderr, from the level that `WEIR_LOG` names.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| "warn".into());
    let (filter, level) = reload::Layer::new(filter);
    let set = move |wanted: &str| {
        // The levels that this program passes are valid, and the subscriber lives as long as it.
        let _ = level.reload(EnvFilter::new(wanted));
    };
    let _ = SET_LEVEL.set(Box::new(set));
    // No other code sets a subscriber.
    let _ = tracing::subscriber::set_global_default(lines(std::io::stderr, filter));
}

/// Changes the log's level from now on: `off`, `error`, `warn`, `info` or `debug`.
pub(crate) fn set_level(level: &str) {
    if let Some(set) = SET_LEVEL.get() {
        set(level);
    }
}

static SET_LEVEL: OnceLock<Box<dyn Fn(&str) + Send + Sync>> = OnceLock::new();

/// Formats each field as part of one line. The crates below escape texts from outside themselves;
/// this is the second line of defence, for texts that one of them missed.
fn lines(
    out: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    filter: impl Layer<Registry> + Send + Sync,
) -> impl Subscriber {
    let fields = debug_fn(|writer, field, value| {
        if field.name() != "message" {
            write!(writer, "{}=", field.name())?;
        }
        write!(writer, "{}", foreign(format_args!("{value:?}")).up_to(LONGEST))
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(out)
        .without_time()
        .with_target(false)
        .fmt_fields(fields.delimited(" "));
    Registry::default().with(filter).with(lines)
}

/// Longer than any message of this program.
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

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

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let kept = Recorded::default();
        let out = kept.clone();
        let subscriber = lines(move || out.clone(), EnvFilter::new("info"));
        tracing::subscriber::with_default(subscriber, || {
            let why = "no\n WARN forged\x1b[2J\u{202e}";
            tracing::warn!(%why, peer = ?"laptop", count = 3, "refused by {why}");
            tracing::info!(why = %"x".repeat(5000), "long");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let shown = r"no\n WARN forged\x1b[2J\u{202e}";
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(
            first,
            format!(r#" WARN refused by {shown} why={shown} peer="laptop" count=3"#),
            "{text}"
        );
        assert!(second.ends_with("xxx…\n") && second.chars().count() < 1100, "{second}");
    }
}
