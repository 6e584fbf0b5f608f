use crate::control::PERIODS_WISH;
use crate::observe::EchoOffer;
use serde_json::Value;

/// The features of a weir server beyond iperf3. Unknown keys are ignored, and an invalid value
/// counts as missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) version: Option<String>,
    pub(super) echo: Option<EchoOffer>,
    /// True if the server samples in the periods that this client asked for.
    pub(super) periods: bool,
}

impl Offer {
    pub(super) fn read(value: &Value) -> Self {
        let version = value["version"].as_str().filter(|text| is_plain(text)).map(str::to_owned);
        let echo = &value["echo"];
        let port = echo["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let token = echo["token"].as_str().and_then(|token| token.parse().ok());
        let echo = port.zip(token).map(|(port, token)| EchoOffer { port, token });
        Self { version, echo, periods: value[PERIODS_WISH] == true }
    }
}

/// True if the version is short and printable.
fn is_plain(version: &str) -> bool {
    version.len() <= 64 && version.chars().all(|c| c.is_ascii_graphic() || c == ' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_valid_parts_of_a_weir_offer_are_read() {
        let token = "00112233445566778899aabbccddeeff";
        let offer = Offer::read(&json!({
            "version": "0.1.0", "echo": {"port": 5201, "token": token}, "later": [1],
        }));
        assert_eq!(offer.version.as_deref(), Some("0.1.0"));
        assert_eq!(offer.echo.unwrap().port, 5201);
        assert_eq!(offer.echo.unwrap().token.to_string(), token);
        let absurd = json!({"version": "\u{1b}[2J", "echo": {"port": 70000, "token": token}});
        assert_eq!(Offer::read(&absurd), Offer { version: None, echo: None, periods: false });
        assert_eq!(Offer::read(&json!(null)), Offer { version: None, echo: None, periods: false });
    }
}
