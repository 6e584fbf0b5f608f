use aws_lc_rs::digest;
use std::collections::HashMap;

/// Tokens that were admitted and are still valid: a second copy is a replay.
#[derive(Debug, Default)]
pub(super) struct ReplayCache {
    /// Keyed by the ciphertext's SHA-256; the value is the second at which the token expires.
    tokens: HashMap<Vec<u8>, i64>,
}

impl ReplayCache {
    /// Records a token. Returns true for a token that was not seen before. A full cache admits no
    /// token.
    pub(super) fn is_new(&mut self, ciphertext: &[u8], good_until: i64, now: i64) -> bool {
        self.tokens.retain(|_, until| *until >= now);
        let name = digest::digest(&digest::SHA256, ciphertext).as_ref().to_vec();
        if self.tokens.len() >= MOST || self.tokens.contains_key(&name) {
            return false;
        }
        self.tokens.insert(name, good_until);
        true
    }
}

/// Maximum number of tokens held. Only tokens with a correct password are held.
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replay_cache_accepts_a_token_once_and_forgets_expired_tokens() {
        let mut seen = ReplayCache::default();
        assert!(seen.is_new(b"a", 110, 100));
        assert!(!seen.is_new(b"a", 110, 110));
        assert!(seen.is_new(b"b", 120, 111));
        assert_eq!(seen.tokens.len(), 1);
    }
}
