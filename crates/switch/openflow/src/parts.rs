//! Requests that consist of several messages.

use flow::request::Refusal;

/// The parts of an incomplete multipart request.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    xid: u32,
    /// `None` if the request became too long. Further parts of the request are dropped.
    bytes: Option<Vec<u8>>,
}

impl Parts {
    /// Adds a part. With the last part, returns the whole request. A part of another request
    /// discards the former parts.
    pub(super) fn add(
        &mut self,
        xid: u32,
        part: &[u8],
        is_last: bool,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let kept = self.pending.take().filter(|pending| pending.xid == xid);
        let mut pending = kept.unwrap_or(Pending { xid, bytes: Some(Vec::new()) });
        let mut outcome = Ok(None);
        if let Some(bytes) = &mut pending.bytes {
            if bytes.len() + part.len() > MAX_REQUEST {
                pending.bytes = None;
                outcome = Err(Refusal::TooManyParts);
            } else {
                bytes.extend_from_slice(part);
            }
        }
        if is_last {
            return outcome.map(|_: Option<Vec<u8>>| pending.bytes);
        }
        self.pending = Some(pending);
        outcome
    }
}

/// Maximum length of a request, in bytes. A request with the features of all tables has about
/// 350,000 bytes.
const MAX_REQUEST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_completes_a_multipart_request() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(1, &[1], false), Ok(None));
        assert_eq!(parts.add(1, &[2, 3], false), Ok(None));
        assert_eq!(parts.add(1, &[4], true), Ok(Some(vec![1, 2, 3, 4])));
        assert_eq!(parts.add(1, &[5], true), Ok(Some(vec![5])));
    }

    #[test]
    fn a_new_multipart_request_discards_the_parts_of_the_former_request() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(1, &[1], false), Ok(None));
        assert_eq!(parts.add(2, &[2], true), Ok(Some(vec![2])));
        assert_eq!(parts.add(1, &[3], true), Ok(Some(vec![3])));
    }

    #[test]
    fn a_multipart_request_that_is_too_long_is_refused_once_and_dropped() {
        let mut parts = Parts::default();
        let part = vec![0; MAX_REQUEST / 2];
        assert_eq!(parts.add(1, &part, false), Ok(None));
        assert_eq!(parts.add(1, &part, false), Ok(None));
        assert_eq!(parts.add(1, &[0], false), Err(Refusal::TooManyParts));
        assert_eq!(parts.add(1, &[0], false), Ok(None));
        assert_eq!(parts.add(1, &[0], true), Ok(None));
        assert_eq!(parts.add(1, &[9], true), Ok(Some(vec![9])));
    }
}
