//! Queues whose sizes depend on the path.

use crate::{LinkError, QueueConfig};
use units::Bytes;

/// A queue whose sizes may be multiples of the bandwidth-delay product: `droptail:1.5bdp`,
/// `droptail:max(1bdp,256KiB)`, `red:limit=2bdp,min=1bdp`. A queue without such sizes is valid too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOfPath(String);

impl QueueOfPath {
    /// Returns the queue on a path with this bandwidth-delay product; `None` if the link has no
    /// fixed rate.
    pub fn on(&self, product: Option<Bytes>) -> Result<QueueConfig, LinkError> {
        with_sizes(&self.0, product)?.parse()
    }
}

impl std::str::FromStr for QueueOfPath {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let queue = Self(text.trim().to_owned());
        // Check the queue on a path on which any multiple is a valid size.
        match queue.on(Some(Bytes::new(1 << 20))) {
            Ok(_) => Ok(queue),
            // Report the text as the user wrote it, not with the sizes of the checked path.
            Err(LinkError::UnknownForm { what: what @ "queue", hint, known, .. }) => {
                Err(LinkError::UnknownForm { what, found: queue.0, hint, known })
            }
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Display for QueueOfPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

units::as_text!(QueueOfPath, "a queue such as \"droptail:256KiB\" or \"droptail:1bdp\"");

/// Replaces each size such as `2bdp` or `max(1bdp,256KiB)` by its number of bytes.
fn with_sizes(text: &str, product: Option<Bytes>) -> Result<String, LinkError> {
    let Some((before, rest)) = text.split_once("max(") else {
        return text
            .split(',')
            .map(|part| with_size(part, product))
            .collect::<Result<Vec<_>, _>>()
            .map(|parts| parts.join(","));
    };
    let (inside, after) =
        rest.split_once(')').ok_or_else(|| LinkError::OpenMax { found: text.to_owned() })?;
    let mut largest = Bytes::ZERO;
    for size in inside.split(',') {
        let size = with_size(size.trim(), product)?;
        largest = largest.max(size.parse::<Bytes>()?);
    }
    with_sizes(&format!("{before}{largest}{after}"), product)
}

/// Replaces `1.5bdp` in `droptail:1.5bdp`, `limit=1.5bdp` or `1.5bdp` by bytes. Other text stays.
pub fn with_size(word: &str, product: Option<Bytes>) -> Result<String, LinkError> {
    let Some(stem) = word.strip_suffix("bdp") else { return Ok(word.to_owned()) };
    let start = stem.rfind([':', '=']).map_or(0, |at| at + 1);
    let factor: f64 = stem[start..]
        .parse()
        .ok()
        .filter(|factor: &f64| factor.is_finite() && *factor >= 0.0)
        .ok_or_else(|| LinkError::NoFactor { found: word.to_owned() })?;
    let product = product.ok_or_else(|| LinkError::NoProduct { found: word.to_owned() })?;
    let bytes = Bytes::new((product.count() as f64 * factor).round() as u64);
    Ok(format!("{}{bytes}", &stem[..start]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_sizes_in_bdp_follow_the_path() {
        let product = Some(Bytes::new(1_500_000));
        let sizes = |text| with_sizes(text, product).unwrap();
        assert_eq!(sizes("droptail:max(1bdp,256KiB)"), "droptail:1.5MB");
        assert_eq!(sizes("droptail:0.5bdp"), "droptail:750KB");
        assert_eq!(sizes("red:limit=2bdp,min=1bdp,ecn"), "red:limit=3MB,min=1.5MB,ecn");
        assert_eq!(sizes("droptail:100p"), "droptail:100p");
        let refused = |text: &str, product| with_sizes(text, product).unwrap_err().to_string();
        assert!(refused("droptail:1bdp", None).contains("fixed rate"));
        for none in ["x", "NaN", "inf", "-1"] {
            let message = refused(&format!("droptail:{none}bdp"), product);
            assert!(message.contains("a number before"), "{message}");
        }
        assert!(refused("droptail:max(1bdp", product).contains("never closed"));
    }

    #[test]
    fn a_queue_is_checked_before_the_path_is_known() {
        let queue: QueueOfPath = "droptail:2bdp".parse().unwrap();
        assert_eq!(queue.on(Some(Bytes::new(50_000))).unwrap().to_string(), "droptail:100KB");
        assert_eq!(serde_json::to_string(&queue).unwrap(), "\"droptail:2bdp\"");
        let unknown = "dropptail:1bdp".parse::<QueueOfPath>().unwrap_err().to_string();
        assert!(unknown.starts_with("`dropptail:1bdp` is not a queue"), "{unknown}");
        assert!("droptail:xbdp".parse::<QueueOfPath>().is_err());
        assert!(queue.on(Some(Bytes::ZERO)).unwrap_err().to_string().contains("is 0"));
    }
}
