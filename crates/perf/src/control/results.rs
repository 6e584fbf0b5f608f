use super::lenient;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The results that each side sends at the end, in iperf3's keys. A peer may omit any value or send
/// nonsense, so every reader checks the numbers it uses. A missing number is NaN, which fails every
/// check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    #[serde(deserialize_with = "lenient::measured")]
    pub cpu_util_total: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub cpu_util_user: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub cpu_util_system: f64,
    /// 1, 0, or −1 from a side that only receives. iperf3 3.12 may write −1 as
    /// 18446744073709551615.
    #[serde(deserialize_with = "lenient::measured")]
    pub sender_has_retransmits: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<Value>,
    pub streams: Vec<StreamResult>,
    /// Results beyond iperf3's, for a weir peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weir: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamResult {
    #[serde(deserialize_with = "lenient::measured")]
    pub id: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub bytes: f64,
    /// −1 if the sender does not count retransmissions.
    #[serde(deserialize_with = "lenient::measured")]
    pub retransmits: f64,
    /// Jitter in seconds.
    #[serde(deserialize_with = "lenient::measured")]
    pub jitter: f64,
    /// Datagrams lost.
    #[serde(deserialize_with = "lenient::measured")]
    pub errors: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub omitted_errors: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub packets: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub omitted_packets: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub start_time: f64,
    #[serde(deserialize_with = "lenient::measured")]
    pub end_time: f64,
}

impl Default for Results {
    fn default() -> Self {
        Self {
            cpu_util_total: f64::NAN,
            cpu_util_user: f64::NAN,
            cpu_util_system: f64::NAN,
            sender_has_retransmits: f64::NAN,
            congestion_used: None,
            server_output_text: None,
            server_output_json: None,
            streams: Vec::new(),
            weir: None,
        }
    }
}

impl Default for StreamResult {
    fn default() -> Self {
        Self {
            id: f64::NAN,
            bytes: f64::NAN,
            retransmits: f64::NAN,
            jitter: f64::NAN,
            errors: f64::NAN,
            omitted_errors: f64::NAN,
            packets: f64::NAN,
            omitted_packets: f64::NAN,
            start_time: 0.0,
            end_time: f64::NAN,
        }
    }
}

/// Reads a count. −1 in either spelling, and any value that cannot be a count, is `None`.
pub fn count(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..MINUS_ONE).contains(&value)).then_some(value as u64)
}

/// Numbers from here on count as −1: 2⁶⁴ − 1 is 2⁶⁴ as a double, and no real count comes near.
const MINUS_ONE: f64 = (1_u64 << 63) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_of_minus_one_mean_an_unknown_count() {
        let text = r#"{"cpu_util_total":1.5,"sender_has_retransmits":18446744073709551615,
            "streams":[{"id":1,"bytes":100,"retransmits":-1}]}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        assert_eq!(count(results.sender_has_retransmits), None);
        assert_eq!(count(results.streams[0].retransmits), None);
        assert_eq!(count(results.streams[0].bytes), Some(100));
        assert_eq!(count(f64::NAN), None);
    }

    #[test]
    fn a_figure_that_is_not_a_number_counts_as_missing() {
        let text = r#"{"cpu_util_total":null,"sender_has_retransmits":true,
            "streams":[{"id":1,"bytes":100,"jitter":null}]}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        assert!(results.cpu_util_total.is_nan() && results.streams[0].jitter.is_nan());
        assert_eq!(count(results.sender_has_retransmits), Some(1));
    }
}
