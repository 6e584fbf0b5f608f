//! The log: one line per event. Any text in it may come from a peer, a file or the far end of a
//! measurement.

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use units::foreign;

/// Logs to stderr, from the level that `WEIR_LOG` names.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| "warn".into());
    // No other code sets a subscriber.
    let _ = tracing::subscriber::set_global_default(lines(std::io::stderr, filter));
}

/// Formats each field as part of one line. The crates below escape texts from outside themselves;
/// this is the second line of defence, for texts that one of them missed.
fn lines(
    out: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    filter: EnvFilter,
) -> impl Subscriber {
    let fields = debug_fn(|writer, field, value| {
        if field.name() != "message" {
            write!(writer, "{}=", field.name())?;
        }
        write!(writer, "{}", foreign(format_args!("{value:?}")).up_to(LONGEST))
    });
    tracing_subscriber::fmt()
        .with_writer(out)
        .without_time()
        .with_target(false)
        .with_env_filter(filter)
        .fmt_fields(fields.delimited(" "))
        .finish()
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
        let subscriber = lines(move || out.clone(), "info".into());
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
