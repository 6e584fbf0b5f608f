//! JSON messages. The length of a message comes first, as four bytes in big-endian order.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Maximum length of a message from a peer: iperf3 3.12 sends a server's whole output in one
/// message.
pub const LONGEST: usize = 4 << 20;
/// Maximum length of the parameters that a server reads: iperf3's MAX_PARAMS_JSON_STRING.
pub const LONGEST_PARAMETERS: usize = 8 * 1024;

/// A message that arrives in segments. Memory grows with the received bytes, never with the
/// announced length.
#[derive(Debug)]
pub struct Message {
    prefix: Vec<u8>,
    body: Vec<u8>,
    longest: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("a message of {length} bytes was announced, and the limit is {longest}")]
    TooLong { length: usize, longest: usize },
    #[error("an empty message")]
    Empty,
    #[error("a message that is not the JSON expected: {0}")]
    Json(#[from] serde_json::Error),
}

impl Message {
    pub fn new(longest: usize) -> Self {
        Self { prefix: Vec::with_capacity(PREFIX), body: Vec::new(), longest }
    }

    /// Returns the number of bytes to read next; zero when the message is complete.
    pub fn wants(&self) -> Result<usize, MessageError> {
        let Ok(prefix) = <[u8; PREFIX]>::try_from(self.prefix.as_slice()) else {
            return Ok(PREFIX - self.prefix.len());
        };
        let length = u32::from_be_bytes(prefix) as usize;
        match length {
            0 => Err(MessageError::Empty),
            _ if length > self.longest => {
                Err(MessageError::TooLong { length, longest: self.longest })
            }
            _ => Ok((length - self.body.len()).min(PIECE)),
        }
    }

    /// Appends received bytes: at most the number that [`Self::wants`] returned.
    pub fn take(&mut self, bytes: &[u8]) {
        let (prefix, body) = bytes.split_at(bytes.len().min(PREFIX - self.prefix.len()));
        self.prefix.extend_from_slice(prefix);
        self.body.extend_from_slice(body);
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, MessageError> {
        // The peer's parser, cJSON, ends at the first zero byte.
        let end = self.body.iter().position(|byte| *byte == 0).unwrap_or(self.body.len());
        Ok(serde_json::from_slice(&self.body[..end])?)
    }

    pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, MessageError> {
        let mut value = serde_json::to_value(value)?;
        whole_numbers(&mut value);
        let body = serde_json::to_vec(&value)?;
        let Ok(length) = u32::try_from(body.len()) else {
            return Err(MessageError::TooLong { length: body.len(), longest: u32::MAX as usize });
        };
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }
}

/// Writes whole numbers without a decimal point, as cJSON does: peers with typed numbers, riperf3
/// among them, refuse `1.0` for a count.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < EXACT {
                *number = (float as i64).into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

const PREFIX: usize = 4;
/// Above this value a double skips whole numbers.
const EXACT: f64 = (1_u64 << 53) as f64;
const PIECE: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fed(bytes: &[u8], step: usize) -> Result<Message, MessageError> {
        let mut message = Message::new(1000);
        let mut rest = bytes;
        loop {
            let wants = message.wants()?;
            if wants == 0 || rest.is_empty() {
                return Ok(message);
            }
            let (now, later) = rest.split_at(wants.min(step).min(rest.len()));
            message.take(now);
            rest = later;
        }
    }

    #[test]
    fn an_encoded_message_is_decoded_from_segments_of_any_size() {
        let value = json!({"tcp": true, "omit": 0, "time": 10});
        let bytes = Message::encode(&value).unwrap();
        for step in [1, 3, 4, 5, 1000] {
            let message = fed(&bytes, step).unwrap();
            assert_eq!(message.wants().unwrap(), 0);
            assert_eq!(message.parse::<Value>().unwrap(), value);
        }
    }

    #[test]
    fn whole_numbers_are_encoded_without_a_decimal_point() {
        let value =
            json!({"omit": 0.0, "none": -1.0, "all": [10.0, {"jitter": 0.25, "big": 1e300}]});
        let bytes = Message::encode(&value).unwrap();
        let text = std::str::from_utf8(&bytes[PREFIX..]).unwrap();
        assert_eq!(text, r#"{"omit":0,"none":-1,"all":[10,{"jitter":0.25,"big":1e+300}]}"#);
    }

    #[test]
    fn an_announced_length_of_two_gigabytes_is_refused_unread() {
        let refused = fed(&[0x7f, 0xff, 0xff, 0xff, b'{'], 5).unwrap_err();
        assert!(matches!(refused, MessageError::TooLong { length: 0x7fff_ffff, .. }));
        assert!(matches!(fed(&[0; 4], 4), Err(MessageError::Empty)));
    }

    #[test]
    fn a_message_with_invalid_json_is_reported() {
        let message = fed(b"\0\0\0\x03abc", 9).unwrap();
        assert!(message.parse::<Value>().unwrap_err().to_string().contains("not the JSON"));
    }
}
