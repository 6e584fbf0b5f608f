use crate::options::TestOptions;
use rand::RngExt;

/// Returns a payload: random bytes, which no device on the path can compress, or iperf3's repeating
/// digits.
pub(crate) fn payload(options: &TestOptions, length: usize) -> Vec<u8> {
    if options.repeating_payload {
        return (b'0'..=b'9').cycle().take(length).collect();
    }
    let mut bytes = vec![0; length];
    rand::rng().fill(bytes.as_mut_slice());
    bytes
}
