//! The log: a line for each event. Each text in it may come from a peer, a file or the far end of a measurement.

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use units::foreign;

/// To stderr, from the level that `WEIR_LOG` names.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| "warn".into());
    // Nobody else sets one.
    let _ = tracing::subscriber::set_global_default(lines(std::io::stderr, filter));
}

/// Each field as one line's part, whoever wrote it: the crates below escape the texts of others themselves, and a text
/// that one of them missed is escaped here.
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

/// More than any message of this program's own.
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
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
        let kept = Kept::default();
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
