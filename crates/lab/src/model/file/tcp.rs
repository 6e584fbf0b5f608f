//! TCP settings of a connection's two hosts in virtual time.

use super::LinkSettings;
use super::locate::FileError;
use super::schema::{Document, NumberOrText};
use super::workload_table::bounded;
use results::Axes;
use settings::table;
use sim::{ReceiveWindow, TcpConfig};
use toml::Spanned;
use units::{Bytes, Span};

table! {
    /// `[tcp]`. The defaults are those of Linux, with buffers that do not limit the flow.
    #[derive(Debug, Clone, Default)]
    pub struct TcpSpec {
        /// The initial window, in segments.
        pub initial_window: Option<Spanned<NumberOrText>>,
        /// The longest time for which the receiver delays an ACK to wait for a second segment, or
        /// `none`.
        pub delayed_ack: Option<Spanned<String>>,
        /// The time within which the receiver acknowledges all arriving segments together, or
        /// `none`.
        pub coalesce: Option<Spanned<String>>,
        /// Maximum size of a paced burst, as the time in which the pacing rate carries the burst.
        pub burst: Option<Spanned<String>>,
        /// Maximum size of a burst, whatever the rate.
        pub burst_max: Option<Spanned<String>>,
        /// Whether the hosts use segmentation offload: `on` or `off`.
        pub offload: Option<Spanned<String>>,
        /// Whether the sender paces algorithms that set no pacing rate: `on` or `off`.
        pub pacing: Option<Spanned<String>>,
        /// The receive window: `auto`, or a size.
        pub receive_window: Option<Spanned<String>>,
        /// The size of the send buffer, or `none`.
        pub send_buffer: Option<Spanned<String>>,
    }
}

impl TcpSpec {
    /// Whether any setting of `[tcp]` contains `text`.
    pub(super) fn mentions(&self, text: &str) -> bool {
        self.texts().any(|(_, setting)| setting.get_ref().contains(text))
            || self.initial_window.iter().any(|count| count.get_ref().contains(text))
    }

    fn texts(&self) -> impl Iterator<Item = (&'static str, &Spanned<String>)> {
        let all = [
            ("delayed_ack", &self.delayed_ack),
            ("coalesce", &self.coalesce),
            ("burst", &self.burst),
            ("burst_max", &self.burst_max),
            ("offload", &self.offload),
            ("pacing", &self.pacing),
            ("receive_window", &self.receive_window),
            ("send_buffer", &self.send_buffer),
        ];
        all.into_iter().filter_map(|(key, setting)| Some((key, setting.as_ref()?)))
    }
}

impl Document {
    /// Returns the TCP settings of the hosts on both sides of `link` in the cell at `axes`.
    pub fn tcp_at(&self, axes: &Axes, link: &LinkSettings) -> Result<TcpConfig, FileError> {
        // The headers take 52 bytes: 20 bytes each for IP and TCP, and 12 for timestamps (RFC
        // 7323).
        let mss = Bytes::new(u64::from(link.mtu.saturating_sub(52)));
        let mut tcp = TcpConfig { mss, ..TcpConfig::default() };
        let Some(spec) = &self.tcp else { return Ok(tcp) };
        let written = spec.get_ref();
        if let Some(count) = &written.initial_window {
            tcp.initial_window = self.count_at(axes, count, "initial_window", MOST_SEGMENTS)?;
        }
        for (key, setting) in written.texts() {
            let text = self.filled(axes, setting)?;
            set(&mut tcp, key, &text).map_err(|message| {
                self.source.error(setting.span(), format!("`{key}`: {message}"))
            })?;
        }
        match tcp.validate() {
            Ok(()) => Ok(tcp),
            Err(error) => Err(self.source.error(spec.span(), error.to_string())),
        }
    }
}

fn set(tcp: &mut TcpConfig, key: &str, text: &str) -> Result<(), String> {
    match key {
        "delayed_ack" => tcp.delayed_ack = unless("none", text, || span(text, LONGEST_DELAY))?,
        "coalesce" => tcp.coalesce = unless("none", text, || span(text, LONGEST_COALESCING))?,
        "burst" => tcp.burst_time = span(text, LONGEST_BURST)?,
        "burst_max" => tcp.burst_max = size(text)?,
        "offload" => tcp.offload = switch(text)?,
        "pacing" => tcp.paces = switch(text)?,
        "receive_window" => {
            let fixed = unless("auto", text, || size(text))?.map(ReceiveWindow::Fixed);
            tcp.receive_window = fixed.unwrap_or(TcpConfig::default().receive_window);
        }
        _ => tcp.send_buffer = unless("none", text, || size(text))?,
    }
    Ok(())
}

/// Returns `None` where the text is `word`. A similar text is reported as a misspelling of `word`.
fn unless<T>(
    word: &str,
    text: &str,
    read: impl FnOnce() -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == word {
        return Ok(None);
    }
    read().map(Some).map_err(|message| match units::did_you_mean(text, [word]) {
        hint if hint.is_empty() => format!("{message}; or `{word}`"),
        hint => format!("{message}{hint}"),
    })
}

fn span(text: &str, most: Span) -> Result<Span, String> {
    let bounds = Span::from_nanos(1)..=most;
    bounded(text, bounds, || format!("it is above 0 and at most {most}"))
}

fn size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size >= LEAST_SIZE { Ok(size) } else { Err(format!("it is at least {LEAST_SIZE}")) }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!(
            "`{other}` is neither `on` nor `off`{}",
            units::did_you_mean(other, ["on", "off"])
        )),
    }
}

const MOST_SEGMENTS: u32 = 10_000;
/// Minimum size: one or two segments. With a smaller size the sender could send nothing.
const LEAST_SIZE: Bytes = Bytes::kib(4);
/// Maximum delay of an ACK (RFC 1122, 4.2.3.2).
const LONGEST_DELAY: Span = Span::from_millis(500);
const LONGEST_COALESCING: Span = Span::from_millis(100);
const LONGEST_BURST: Span = Span::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn after(key: &str, text: &str) -> Result<TcpConfig, String> {
        let mut tcp = TcpConfig::default();
        set(&mut tcp, key, text).map(|()| tcp)
    }

    #[test]
    fn each_tcp_setting_changes_the_configuration() {
        assert_eq!(after("delayed_ack", "none").unwrap().delayed_ack, None);
        let delay = after("delayed_ack", "25ms").unwrap().delayed_ack;
        assert_eq!(delay, Some(Span::from_millis(25)));
        let coalesced = after("coalesce", "200us").unwrap().coalesce;
        assert_eq!(coalesced, Some(Span::from_micros(200)));
        assert_eq!(after("burst", "4ms").unwrap().burst_time, Span::from_millis(4));
        assert!(!after("offload", "off").unwrap().offload);
        assert!(after("pacing", "on").unwrap().paces);
        let window = after("receive_window", "64KiB").unwrap().receive_window;
        assert_eq!(window, ReceiveWindow::Fixed(Bytes::kib(64)));
        let window = after("receive_window", "auto").unwrap().receive_window;
        assert_eq!(window, TcpConfig::default().receive_window);
        let buffer = after("send_buffer", "4MB").unwrap().send_buffer;
        assert_eq!(buffer, Some(Bytes::new(4_000_000)));
    }

    #[test]
    fn a_wrong_setting_is_refused_with_a_hint() {
        let refused = |key, text| after(key, text).unwrap_err();
        assert!(refused("delayed_ack", "nnoe").contains("did you mean `none`?"));
        assert!(refused("delayed_ack", "1s").contains("at most 500ms"));
        assert!(refused("coalesce", "0ms").contains("above 0"));
        assert!(refused("offload", "no").contains("did you mean `on`?"));
        assert!(refused("receive_window", "atuo").contains("did you mean `auto`?"));
        assert!(refused("send_buffer", "4").contains("or `none`"));
    }
}
